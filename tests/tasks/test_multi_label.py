"""Sets of classes: the metrics against scikit-learn, how cells are read, the objective, the recipe and transformers' folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.records import Records, check_records
from cloze.corpus.records.several import ClassesAnswer, classes_of
from cloze.errors import RecipeError, TaskError
from cloze.networks import Clock
from cloze.objectives import several
from cloze.runs.finetuning.finetune import finetune
from cloze.tasks import task
from cloze.tasks.evaluation import evaluate
from cloze.tasks.measures.label_sets import set_metrics
from cloze.tasks.tuned_folder import load_tuned


@settings(deadline=None, max_examples=15)
@given(st.data(), st.integers(1, 8), st.integers(1, 4))
def test_metrics_are_those_of_scikit_learn(data: st.DataObject, rows: int, classes: int) -> None:
    sk = pytest.importorskip("sklearn.metrics")
    truth = data.draw(arrays(np.int64, (rows, classes), elements=st.integers(0, 1)))
    found = data.draw(arrays(np.float64, (rows, classes), elements=st.sampled_from([0.0, 0.2, 0.5, 0.5001, 0.9, 1.0])))
    guess = (found >= 0.5).astype(int)
    metrics = set_metrics(truth, found, 0.5)
    assert metrics["exact_match"] == pytest.approx(sk.accuracy_score(truth, guess) if classes > 1 else (truth == guess).mean())
    assert metrics["micro_f1"] == pytest.approx(sk.f1_score(truth.ravel(), guess.ravel(), zero_division=0))
    occurs = (truth | guess).any(0)
    each = [sk.f1_score(truth[:, c], guess[:, c], zero_division=0) for c in np.flatnonzero(occurs)]
    assert metrics["macro_f1"] == pytest.approx(np.mean(each) if each else 0.0)
    ranked = [sk.average_precision_score(truth[:, c], found[:, c]) for c in np.flatnonzero(truth.any(0))]
    assert metrics["mean_average_precision"] == pytest.approx(np.mean(ranked) if ranked else 0.0)


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("a, b", ["a", "b"]), ("", []), ("  ", []), ("[]", []), ('["a, b", "c"]', ["a, b", "c"]), ("[1, 2]", ["1", "2"]),
        ("[x", ["[x"]), ("['a', \"b's\"]", ["a", "b's"]), ("[u'a', 2]", ["a", "2"]),
    ],
)
def test_a_cell_holds_names_or_a_list_of_json_or_python(cell: str, found: list[str]) -> None:
    assert classes_of(cell, ",") == found


HOT = "text\tlabel\na\t[1, 0, 1]\nb\t[0, 0, 0]\n"
BITS = "text\tx\ty\tz\na\t1\t0\t1\nb\t0\t0\t0\n"


@pytest.mark.parametrize("rows", [HOT, HOT.replace("[", "").replace("]", ""), HOT.replace("[1, 0, 1]", "x,z"), BITS])
def test_zeros_and_ones_choose_among_named_classes(tmp_path: Path, rows: str) -> None:
    path, names = tmp_path / "a.tsv", ["x", "y", "z"]
    path.write_text(rows)
    source = Records(answer=ClassesAnswer(names=names))
    assert [record.answer for record in source.answer.read(path, source.columns)] == [["x", "z"], []]
    assert task("multi_label", names=names).read(path).labels == [["x", "z"], []]
    assert task("multi_label", names=names).description()["names"] == names


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (HOT, r"a.tsv:2: 'label' is '\[1, 0, 1\]', a list of 3 zeros and ones. .*: --set 'corpus.answer.names=\[A,B,…\]'"),
        ("text\tlabel\na\t[1, 0]\n", "a list of 2 zeros and ones"),
        (BITS, r"a column of 0 and 1 for each of x, y, z\.\n  Name the classes: --set 'corpus.answer.names=\[x,y,z\]'"),
        ("text\tlabel\na\t['a' 'b']\n", "expected a JSON list of names"),
        ("text\tlabel\na\t[a, b]\n", "expected a JSON list of names"),
        ("text\tlabel\na\t[NaN]\n", "expected a JSON list of names"),
    ],
)
def test_zeros_and_ones_without_names_and_lists_of_something_else_are_refused(tmp_path: Path, rows: str, message: str) -> None:
    (tmp_path / "a.tsv").write_text(rows)
    source = Records(answer=ClassesAnswer())
    with pytest.raises(TaskError, match=message):
        list(source.answer.read(tmp_path / "a.tsv", source.columns))


def test_another_separator_is_noticed_where_no_row_has_several_classes(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    for separator in "|;":
        path.write_text("text\tlabel\n" + "".join(f"a\t{label}\n" for label in ("x", f"x{separator}y", "y", f"y{separator}x")))
        (remark,) = check_records([path], ClassesAnswer(), Records().columns).remarks
        told = f"no row has several classes, but 2 hold {separator!r}, such as 'x{separator}y'. If it separates classes: --set "
        assert remark == f"{path}: {told}'corpus.answer.separator=\"{separator}\"'"
        assert check_records([path], ClassesAnswer(separator=separator), Records().columns).remarks == ()
    path.write_text("text\tlabel\na\tR&D; B|C,x\na\ty\n")
    assert check_records([path], ClassesAnswer(), Records().columns).remarks == ()


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("a,,b", r":3: 'label' is 'a,,b'; expected names with ',' between them, and found an empty one"),
        ("[" * 100_000 + ",,", r":3: 'label' is '\[+'; expected names with ',' between them, and found an empty one"),
        ("a,b,a", r":3: 'label' is 'a,b,a'; it names 'a' twice"),
        ('[["a"]]', r":3: 'label' is '\[\[\"a\"\]\]'; expected a JSON list of names"),
    ],
)
def test_a_cell_that_cannot_be_read_is_told_with_its_line(
    folder: Callable[[str], Path], tmp_path: Path, cell: str, told: str
) -> None:
    path = tmp_path / "x.tsv"
    path.write_text(f"text\tlabel\nthe cat\ta,b\na dog\t{cell}\n")
    with pytest.raises(TaskError, match=told):
        Records(answer="classes").build_store(
            [path], load_checkpoint(folder("bert")).tokenizer, tmp_path / "s", base=None, report=print
        )
    with pytest.raises(TaskError, match=told):
        task("multi_label").read(path)
    with pytest.raises(RecipeError, match="expected a character that is in no name"):
        from cloze.corpus.records import ClassesAnswer

        ClassesAnswer(separator=" ")


def test_a_store_gives_a_one_for_each_class_of_a_record(folder: Callable[[str], Path], tmp_path: Path) -> None:
    tokenizer = load_checkpoint(folder("bert")).tokenizer
    path = tmp_path / "x.tsv"
    path.write_text("text\tlabel\nthe cat\tz,b\na dog\t\nrain\tm\n")
    source = Records(answer="classes")
    store = source.build_store([path], tokenizer, tmp_path / "s", base=None, report=lambda line: None)
    assert store.classes == ("b", "m", "z")
    bound = source.bind(store, seed=1, entry="main")
    plan = bound.plan(0, 10)
    rows = bound.read(plan, np.arange(3), frozenset())
    assert rows["numbers/label"][np.argsort(plan.order)].tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    told = source.answer.description({**store.columns, "bounds": store.bounds}, store.classes)
    assert told["label_counts"] == {"b": 1, "m": 1, "z": 1} and told["constant_answer"] == "[]"
    wrong = tmp_path / "wrong.tsv"
    wrong.write_text("text\tlabel\nthe cat\tz,c\n")
    with pytest.raises(TaskError, match=r"wrong\.tsv:2: the label 'c' does not occur in the training examples"):
        source.build_store([wrong], tokenizer, tmp_path / "w", base=store, report=print)


def test_the_loss_is_a_binary_cross_entropy_for_each_class() -> None:
    torch.manual_seed(0)
    objective = several(classes=3, pool=True, width=4, clock=Clock()).double()
    summary = torch.randn(2, 4, dtype=torch.double, requires_grad=True)
    values = torch.tensor([[1.0, 0, 1], [0, 0, 0]], dtype=torch.double)
    batch = Batch({"values/label": values, "positions/label": torch.tensor([0, 1])})
    loss = objective({"summary": summary}, batch)
    logits = objective.head(summary).detach()
    assert loss.total.item() == pytest.approx(2 * F.binary_cross_entropy_with_logits(logits, values).item())
    assert loss.metrics["correct"].item() == pytest.approx(((logits > 0) == (values > 0)).double().mean(1).sum().item())
    assert torch.autograd.gradcheck(lambda x: objective({"summary": x}, batch).total, (summary,))


def test_a_network_learns_sets_and_its_folder_says_the_same(
    folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = np.random.default_rng(0)
    rows = []
    for _ in range(48):
        has = chance.random(2) < 0.5
        rows.append((f"the {'cat' if has[0] else 'dog'} saw the {'rain' if has[1] else 'river'}", "; ".join(
            name for name, one in zip(("feline", "wet"), has, strict=True) if one
        )))
    path, out = tmp_path / "sets.tsv", tmp_path / "out"
    path.write_text("\n".join(["text\tlabel", *("\t".join(row) for row in rows)]) + "\n")
    values = [
        "training.batch=8", "training.epochs=8", "training.rate.peak=1e-2", "corpus.length=24", "objectives[0].dropout=0",
        "network.dropout=0", "corpus.answer.separator=;", "task.patience=0", "task.metric=micro_f1",
    ]  # fmt: skip
    made = finetune(
        folder("bert"), task="multi_label", train=[str(path)], dev=[str(path)], out=out, overrides=values,
        report=lambda line: None,
    )
    standing = made.outcomes[1].standing
    assert standing is not None and standing.metrics["micro_f1"] > 0.8
    loaded = load_checkpoint(out)
    assert loaded.imported.labels == ("feline", "wet")
    learner, told = load_tuned(loaded)
    assert (told["separator"], told["threshold"], learner.labels) == (";", 0.5, ("feline", "wet"))
    measured = evaluate(learner, learner.task.read(path), constant_answer=told["constant_answer"])
    assert measured.metrics == pytest.approx(standing.metrics)
    assert measured.baseline is not None and measured.baseline["micro_f1"] == told["baseline"]["micro_f1"]
    config = json.loads((out / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification" and config["id2label"] == {"0": "feline", "1": "wet"}
    assert main(["predict", str(out), str(path), "--threshold", "1e-9"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(one["labels"] == ["feline", "wet"] for one in shown)
    assert main(["evaluate", str(out), str(path), "--threshold", "2"]) == 2
    assert "--threshold 2: expected a probability between 0 and 1" in capsys.readouterr().err
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    with torch.no_grad():
        found = torch.sigmoid(model(**tokenizer(rows[0][0], return_tensors="pt")).logits)[0].tolist()
    assert list(shown[0]["probabilities"].values()) == pytest.approx(found, abs=1e-5)


@pytest.mark.parametrize(("recipe", "shares"), [("multi_label", [2.5 / 4, 1.5 / 4]), ("patentbert", [0.5, 0.5])])
def test_the_offsets_begin_at_the_log_odds_of_the_classes_and_at_zero_as_in_the_code_of_patentbert(
    folder: Callable[[str], Path], tmp_path: Path, recipe: str, shares: list[float]
) -> None:
    from typing import Any

    from cloze.checkpoint.build import build_step
    from cloze.runs.data_facts import with_data_facts
    from cloze.runs.finetuning.task_recipe import recipe_onto

    path = tmp_path / "x.tsv"
    path.write_text("text\tlabel\nthe cat\ta,b\na dog\ta\nrain\t\n")
    loaded = load_checkpoint(folder("bert"))
    store = Records(answer="classes").build_store(
        [path], loaded.tokenizer, tmp_path / "s", base=None, report=lambda line: None
    )
    resolved = recipe_onto(recipe, loaded, overrides=["corpus.length=24"])
    step = build_step(with_data_facts(resolved, {"main": store}), vocab_size=loaded.tokenizer.size)
    head: Any = next(iter(step.objectives.values()))
    assert torch.sigmoid(head.head.output.bias).tolist() == pytest.approx(shares)
