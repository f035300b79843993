"""Numbers of texts: the metrics against scipy, the answer in a store, the recipe, the verbs and transformers' folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.readers.labelled import as_format
from cloze.corpus.records import ClassAnswer, Records
from cloze.corpus.records.answer import Columns
from cloze.errors import TaskError
from cloze.networks import Clock
from cloze.objectives import regress
from cloze.objectives.transforms import Gelu
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_checks import second_texts
from cloze.tasks.evaluation import evaluate
from cloze.tasks.evaluation_text import evaluation_lines
from cloze.tasks.kinds.regression import rounded
from cloze.tasks.measures.agreement import agreement, pearson, undefined
from cloze.tasks.remarks import remark_on
from cloze.tasks.task import Evaluation
from cloze.tasks.tuned_folder import load_tuned

NUMBERS = st.floats(-1e6, 1e6, width=32)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(-5, 5), NUMBERS), min_size=2, max_size=20))
def test_correlations_are_those_of_scipy(pairs: list[tuple[float, float]]) -> None:
    truth, guess = np.array(pairs, np.float64).T
    found = agreement(truth, guess)
    assert found["mse"] == pytest.approx(np.mean((truth - guess) ** 2))
    if np.ptp(truth) == 0 or np.ptp(guess) == 0:
        assert found["pearson"] == found["spearman"] == 0 and len(undefined(truth, guess)) == 1
        return
    assert undefined(truth, guess) == ()
    if np.ptp(guess) > 1e-9 * np.abs(guess).max():  # scipy itself warns of less
        assert found["pearson"] == pytest.approx(stats.pearsonr(truth, guess).statistic, abs=1e-6)
    assert found["spearman"] == pytest.approx(stats.spearmanr(truth, guess).statistic, abs=1e-9)


def test_correlations_of_extreme_numbers_exist() -> None:
    assert pearson([1e300, 2e300, 3e300], [1, 2, 3]) == pytest.approx(1)
    assert pearson([0, 1e-300, 2e-300], [3, 2, 1]) == pytest.approx(-1)
    assert pearson([1.0], [2.0]) is None and pearson([1, 1], [1, 2]) is None
    assert undefined([1, 1], [2, 2])[0].startswith("the given numbers and the predicted numbers are all equal")
    with pytest.raises(TaskError, match=r"1 of 2 predicted numbers are not finite: the weights have diverged"):
        agreement([1, 2], [np.nan, 1])
    with pytest.raises(TaskError, match="no labelled examples"):
        agreement([], [])


def test_the_loss_is_the_squared_error_and_its_gradients_are_right() -> None:
    torch.manual_seed(0)
    objective = regress(numbers=2, transform=Gelu(), width=4, clock=Clock()).double()
    summary = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    values = torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=torch.double)
    batch = Batch({"values/label": values, "positions/label": torch.tensor([2, 0])})
    loss = objective({"summary": summary}, batch)
    scores = objective.head(summary[[2, 0]])
    assert loss.total.item() == pytest.approx(float(((scores.detach() - values) ** 2).mean(1).sum()))
    assert float(objective.count(batch)) == 2
    assert torch.autograd.gradcheck(lambda x: objective({"summary": x}, batch).total, (summary,))
    weighed = objective({"summary": summary}, Batch({**batch, "weights/label": torch.tensor([1.0, 0.0])}))
    assert weighed.total.item() == pytest.approx(float(((scores.detach() - values) ** 2).mean(1)[0]))
    none = Batch({"values/label": values[:0], "positions/label": torch.zeros(0, dtype=torch.long)})
    nothing = objective({"summary": summary}, none).total
    nothing.backward()
    assert nothing.item() == 0 and all(p.grad is not None and p.grad.eq(0).all() for p in objective.parameters())
    both = regress(pool=True, transform=Gelu(), width=4, clock=Clock()).double().head
    hidden = torch.nn.functional.gelu(both.dense(torch.tanh(both.pool(summary))))
    torch.testing.assert_close(both(summary), both.output(hidden))


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("", r":3: 'label' is ''; expected a number such as 3\.5"),
        ("3,5", r":3: 'label' is '3,5'; expected a number such as 3\.5\. Write decimals with a point"),
        ("NaN", r":3: 'label' is NaN; expected a finite number"),
        ("-inf", r":3: 'label' is -inf; expected a finite number"),
        ("1e39", r":3: 'label' is 1e39; expected a finite number"),
    ],
)
def test_a_cell_that_is_no_number_is_told_with_its_line(
    folder: Callable[[str], Path], tmp_path: Path, cell: str, told: str
) -> None:
    path = tmp_path / "x.tsv"
    path.write_text(f"text\tlabel\nthe cat\t1.5\na dog\t{cell}\n")
    source = Records(answer="number")
    with pytest.raises(TaskError, match=told):
        source.build_store([path], load_checkpoint(folder("bert")).tokenizer, tmp_path / "s", base=None, report=print)
    with pytest.raises(TaskError, match=told):
        from cloze.tasks import task

        task("regression").read(path)
    assert [one.name for one in tmp_path.iterdir()] == ["x.tsv"]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rated.tsv: both texts have a word that says the number."""
    chance = np.random.default_rng(0)
    place = tmp_path_factory.mktemp("numbers")
    worth = {"cat": 0, "dog": 0.5, "rain": 2, "night": 3.5}
    rows = []
    for _ in range(64):
        word, other = chance.choice(list(worth), 2)
        rows.append(f"the {word} saw the {word}\tthe {other}\t{worth[word]}")
    (place / "rated.tsv").write_text("\n".join(["one\ttwo\tscore", *rows]) + "\n")
    return place / "rated.tsv"


VALUES = [
    "training.batch=8", "training.epochs=8", "training.rate.peak=1e-2", "corpus.length=24", "objectives[0].dropout=0",
    "network.dropout=0", "corpus.text=one", "corpus.label=score", "task.patience=0",
]  # fmt: skip


@pytest.mark.parametrize(("system", "pair"), [("bert", True)])
def test_a_network_learns_numbers_and_its_folder_says_the_same(
    folder: Callable[[str], Path], numbers: Path, tmp_path: Path, system: str, pair: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    made = finetune(
        folder(system), task="regression", train=[str(numbers)], dev=[str(numbers)], out=out, report=lambda line: None,
        overrides=[*VALUES, *(["corpus.text_b=two"] if pair else [])],
    )
    standing = made.outcomes[1].standing
    assert standing is not None and standing.metrics["pearson"] > 0.8
    learner, told = load_tuned(load_checkpoint(out))
    measured = evaluate(learner, learner.task.read(numbers), constant_answer=told["constant_answer"])
    assert measured.metrics == pytest.approx(standing.metrics, abs=0.02)  # ranks of answers that are almost equal
    assert measured.baseline is not None and measured.baseline["pearson"] == 0
    rows = [line.split("\t") for line in numbers.read_text().splitlines()[1:]]
    truth = np.array([float(row[2]) for row in rows])
    assert float(told["constant_answer"]) == pytest.approx(truth.mean(), rel=1e-5)
    assert told["baseline"]["mse"] == pytest.approx(truth.var())
    config = json.loads((out / "config.json").read_text())
    assert config["problem_type"] == "regression" and len(config["id2label"]) == 1
    assert load_checkpoint(out).imported.labels == ()  # the name of a number is not a class
    assert main(["predict", str(out), str(numbers)]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert shown[0]["line"] == 2 and ("text_b" in shown[0]) == pair
    assert np.mean((truth - [one["value"] for one in shown]) ** 2) == pytest.approx(measured.metrics["mse"], rel=1e-4)
    assert_transformers_agrees(out, rows, pair, [one["value"] for one in shown])


def assert_transformers_agrees(out: Path, rows: list[Any], pair: bool, values: list[float]) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    assert model.config.problem_type == "regression" and model.config.num_labels == 1
    found = []
    for row in rows[:4]:
        with torch.no_grad():
            found.append(model(**tokenizer(*row[: 1 + pair], return_tensors="pt")).logits.item())
    assert found == pytest.approx(values[:4], abs=1e-4)


def test_the_offset_begins_at_the_mean_of_the_column(folder: Callable[[str], Path], numbers: Path, tmp_path: Path) -> None:
    from cloze.checkpoint.build import build_step
    from cloze.runs.data_facts import with_data_facts
    from cloze.runs.finetuning.task_recipe import recipe_onto

    loaded = load_checkpoint(folder("bert"))
    recipe = recipe_onto("regression", loaded, overrides=["corpus.text=one", "corpus.label=score"])
    source = Records(answer="number", text="one", label="score")
    store = source.build_store([numbers], loaded.tokenizer, tmp_path / "s", base=None, report=lambda line: None)
    step = build_step(with_data_facts(recipe, {"main": store}), vocab_size=loaded.tokenizer.size)
    head: Any = next(iter(step.objectives.values()))
    assert head.head.output.bias.tolist() == pytest.approx([float(store.columns["label"].mean())])


ORDERS = """
name: similarity
corpus: {records: {text: one, text_b: two, label: score, answer: number, length: 24}}
network: {from: start}
exercise: [{spread: {over: orders}}, {frame: reading}, {value: {set: label}}]
objectives: [text_regression: {head: regression, dropout: 0}]
training: {optimizer: adamw, rate: {linear: {peak: 1e-2}}, batch: 16, epochs: 2, held_out: 0.0, evaluate_every: epoch}
task: {type: regression}
"""


def test_both_orders_of_a_pair_are_read_and_averaged_in_training_and_afterwards(
    folder: Callable[[str], Path], numbers: Path, tmp_path: Path
) -> None:
    (tmp_path / "orders.yaml").write_text(ORDERS)
    out = tmp_path / "out"
    finetune(
        folder("gpt2"), recipe=tmp_path / "orders.yaml", task="regression", train=[str(numbers)], dev=[str(numbers)], out=out,
        report=lambda line: None, overrides=["training.precision=fp32", "network.dropout=0"],
    )
    learner, told = load_tuned(load_checkpoint(out))
    assert told["over"] == "orders" and learner.reader.reading.pair == "{A} [EOS] {B}"
    examples = learner.task.read(numbers)
    swapped = type(examples)(examples.others, examples.texts, examples.labels, examples.path, examples.lines)
    one, two = (learner.row_outputs(learner.encode(given)) for given in (examples, swapped))
    assert one == pytest.approx(two, abs=1e-6)
    events = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text().splitlines()]
    (loss,) = [event["loss"] for event in events if event["event"] == "held_out"]
    last = [event["metrics"]["mse"] for event in events if event["event"] == "dev"][-1]
    assert loss == pytest.approx(last, rel=1e-4)


def test_a_second_text_that_is_set_is_read_as_one_of_a_pair(folder: Callable[[str], Path]) -> None:
    from cloze.runs.finetuning.task_recipe import recipe_onto

    recipe = recipe_onto("regression", load_checkpoint(folder("bert")), overrides=["corpus.text_b=two"])
    frame = next(edit.part for edit in recipe.entries["main"].exercise if edit.part.name == "frame")
    assert frame.arguments["template"] == recipe.reading.pair == "[CLS] {A} [SEP] {B} [SEP]"


@pytest.mark.parametrize(("kind", "labels", "second", "pair_kind", "values", "way"), [
    ("regression", "12", "text_b", "regression", ["corpus.text_b=text_b"], "--set corpus.text_b=text_b"),
    ("sentence_classification", "ny", "text_b", "pair_classification", [], "--task pair_classification"),
    ("sentence_classification", "ny", "sentence2", "pair_classification", ["corpus.text_b=sentence2"],
     "--task pair_classification --set corpus.text_b=sentence2"),
])  # fmt: skip
def test_a_second_text_that_is_not_read_is_named(
    folder: Callable[[str], Path], tmp_path: Path, kind: str, labels: str, second: str, pair_kind: str, values: list[str],
    way: str,
) -> None:
    """Where the column is read or another one is, there is nothing to say."""
    table, said, first = tmp_path / "pairs.tsv", list[str](), "text" if second == "text_b" else "sentence1"
    table.write_text(f"{first}\t{second}\tlabel\n" + "".join(f"a b\tb c\t{label}\n" for label in labels * 2))
    common = ["training.epochs=1", "training.batch=4", "corpus.length=24", f"corpus.text={first}"]
    for number, (chosen, more) in enumerate(((kind, []), (pair_kind, values))):
        finetune(
            folder("bert"), task=chosen, train=[str(table)], dev=[str(table)], out=tmp_path / str(number), report=said.append,
            overrides=[*common, *more],
        )
    noted = [line for line in said if line.startswith("note:") and "column" in line]
    assert noted == [f"note: {table} has a column {second}, which is not read. To read pairs: {way}"]


def test_a_folder_per_class_has_no_columns(tmp_path: Path) -> None:
    for name in ("no", "yes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text("a b")
    for format in (None, "tsv", "jsonl"):
        columns = Columns("text", None, "label", None, as_format(format), "auto")
        assert not ClassAnswer().also_has(tmp_path, columns, "text_b")


@pytest.mark.parametrize(("first", "names"), [
    ("text", ("text_b",)), ("sentence1", ("text_b", "sentence2")), ("text_a", ("text_b",)), ("s_1", ("text_b", "s_2")),
    ("premise", ("text_b", "hypothesis")), ("drama", ("text_b",)), ("text_b", ()),
])  # fmt: skip
def test_the_second_text_of_a_pair_has_a_usual_name(first: str, names: tuple[str, ...]) -> None:
    assert second_texts(first) == names


def test_recurrent_networks_are_read_at_the_last_token_with_maximum_and_mean() -> None:
    from cloze.objectives.labels.head_from_checkpoint import HeadFacts, TextChoice, TextRegression, TextSeveral

    start = HeadFacts("left_to_right", 2, pooled=True)
    for chosen, part in ((TextRegression(), "regress"), (TextSeveral(), "several"), (TextChoice(), "choose")):
        assert chosen.resolve(start) == (part, {"set": "label", "dropout": 0.1, "reading": "concat"})
    objective = regress(reading="concat", width=2, clock=Clock())
    hidden = torch.tensor([[[1.0, 5.0], [3.0, 1.0], [9.0, 9.0]]])
    with torch.no_grad():
        objective.head.output.weight.copy_(torch.tensor([[1.0, 10.0, 100.0, 1e3, 1e4, 1e5]]))
        block = torch.tensor([[1, 1, 0]])
        batch = Batch({"values/label": torch.zeros(1, 1), "positions/label": torch.tensor([0]), "block": block})
        found = objective.scores({"hidden": hidden}, batch).item()
    assert found == pytest.approx(3 + 10 * 1 + 100 * 3 + 1e3 * 5 + 1e4 * 2 + 1e5 * 3)


def test_predicted_numbers_keep_their_digits_whatever_their_size() -> None:
    assert [rounded(value) for value in (3.00000049, -126571776.0, 1.23456789e-7, 0.0)] == [3.0, -126571776.0, 1.23457e-7, 0.0]


def test_small_errors_keep_their_digits_in_the_table_and_in_the_remark() -> None:
    evaluation = Evaluation(2, {"mse": 0.0000234, "pearson": 1e-17}, {"always": "0", "mse": 0.0000123, "pearson": 0.5}, ())
    assert list(evaluation_lines("dev.tsv", evaluation))[2:4] == [
        "  mse          2.34e-05  1.23e-05", "  pearson      0.0000    0.5000",
    ]
    task = SimpleNamespace(metrics={"mse": False})
    learner = SimpleNamespace(truth_and_predictions=lambda rows: ([1.0, 2.0], [2.0, 1.0]), task=task)
    remark = remark_on(learner, [0, 1], evaluation.metrics, evaluation.baseline)  # type: ignore[arg-type]
    assert remark is not None and remark.startswith("mse 2.34e-05 is above the 1.23e-05 of a constant answer (always '0')")
