"""Spans that are marked in a text are classified: files, places, states, metrics, and what a cut text loses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.readers.marked_texts import Bounds, TextFields, each_marked, read_marked
from cloze.corpus.records import ClassOfSpans, Records
from cloze.corpus.records.span_marks import marks_around, with_marks
from cloze.decoding.reader import Reader
from cloze.errors import RecipeError, TaskError
from cloze.networks import Clock
from cloze.objectives import ClassifySpan
from cloze.runs.finetuning.finetune import finetune
from cloze.tasks.evaluation import evaluate
from cloze.tasks.kinds.span_classification import SpanClassifier, span_metrics
from cloze.tasks.tuned_folder import load_tuned

VALUES = [
    "training.batch=16", "training.epochs=5", "training.rate.peak=1e-2", "corpus.length=24", "network.dropout=0",
    "task.patience=0", "objectives[0].dropout=0",
]  # fmt: skip
ANIMALS, WEATHER = ["cat", "dog", "mice"], ["rain", "river", "night"]


def marked(path: Path, count: int, seed: int) -> Path:
    """Is the first marked word an animal, and the second? The text holds both kinds in any case."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        words = [chance.choice(["the", "saw", "on", "and"]) for _ in range(5)]
        kinds = [chance.choice([ANIMALS, WEATHER]) for _ in range(2)]
        for place, kind in zip((1, 3), kinds, strict=True):
            words[place] = chance.choice(kind)
        rows.append({"text": words, "spans": [[1, 2], [3, 4]], "label": "".join("aw"[kind is WEATHER] for kind in kinds)})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("marked")
    return marked(place / "train.jsonl", 96, 0), marked(place / "dev.jsonl", 24, 1)


def tune(folder: Path, files: tuple[Path, Path], out: Path, *values: str) -> Any:
    return finetune(
        folder, task="span_classification", train=[str(files[0])], dev=[str(files[1])], out=out, overrides=[*VALUES, *values],
        report=lambda line: None,
    )


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(("system", "pool"), [("bert", "mean"), ("gpt2", "ends")])
def test_two_spans_are_classified_and_the_folder_answers_as_in_training(
    folder: Callable[[str], Path], files: tuple[Path, Path], tmp_path: Path, system: str, pool: str
) -> None:
    standing = tune(folder(system), files, tmp_path / "out", f"objectives[0].pool={pool}").outcomes[1].standing
    assert standing.metrics["accuracy"] >= 0.9
    learner, told = load_tuned(load_checkpoint(tmp_path / "out"))
    found = evaluate(learner, learner.task.read(files[1]), constant_answer=told["constant_answer"])
    assert found.metrics == pytest.approx(standing.metrics) and found.remarks == ()
    assert found.baseline is not None and found.baseline["accuracy"] < 0.6
    record = learner.predict(learner.task.read(files[1], labelled=False))[0].record()
    assert [record["text"][span["start"] : span["end"]] for span in record["spans"]] == [span["text"] for span in record["spans"]]
    assert record["probability"] == max(record["probabilities"].values()) == record["probabilities"][record["label"]]


def test_places_move_with_the_frame_as_they_are_measured(folder: Callable[[str], Path], files: tuple[Path, Path]) -> None:
    from cloze.checkpoint.build import build_step
    from cloze.checkpoint.feeds import build_feed
    from cloze.exercises import TokenFacts
    from cloze.runs.finetuning.task_recipe import recipe_onto

    loaded = load_checkpoint(folder("bert"))
    recipe = recipe_onto("span_classification", loaded, overrides=VALUES)
    records = Records(answer="class_of_spans")
    store = records.build_store([files[1]], loaded.tokenizer, files[1].with_suffix(".s"), base=None, report=lambda line: None)
    assert store.about["given"] == {"spans": 2}
    step = build_step(recipe, vocab_size=loaded.tokenizer.size)
    for length, all_read in ((24, True), (7, False)):
        facts = TokenFacts.of(loaded.tokenizer)
        feed = build_feed(recipe, recipe.entries["main"], store, step, facts, length=length, seed=1, held_out_share=0.0)
        plan = feed.source.plan(0, feed.exercise.max_tokens)
        (part,) = feed.micro_batches([(0, np.argsort(plan.order))], [len(plan)])
        head = ClassifySpan(width=16, spans=2, classes=4, clock=Clock())
        learner = SpanClassifier(Reader.of(loaded), head, None, length=length, labels=store.classes, constant_answer="aa")
        rows = learner.encode(read_marked(files[1], TextFields()))
        width = part.arrays["tokens"].shape[1]
        wanted = [(row.columns + number * width).tolist() for number, row in enumerate(rows) if row.read]
        assert part.arrays["positions/label"].tolist() == wanted
        assert (len(wanted) == len(rows)) == all_read and wanted
        lost = ClassOfSpans().lost({**store.columns, "bounds": store.bounds}, feed.exercise.max_tokens)
        assert lost == sum(not row.read for row in rows)


@pytest.mark.parametrize(("text", "spans", "expected", "moved"), [
    ("the cat saw mice", [(1, 1), (3, 3)], "the # cat # saw $ mice $", [[2, 2], [6, 6]]),
    ("the cat saw mice", [(3, 3), (0, 1)], "$ the cat $ saw # mice #", [[6, 6], [1, 2]]),
    ("the cat saw mice", [(0, 1), (2, 3)], "# the cat # $ saw mice $", [[1, 2], [5, 6]]),
    ("the cat saw mice", [(1, 1), (1, 3)], "the $ # cat # saw mice $", [[3, 3], [3, 6]]),
    ("the cat saw mice", [(0, 3), (2, 3)], "# the cat $ saw mice $ #", [[1, 5], [4, 5]]),
])  # fmt: skip
def test_marks_stand_where_the_authors_write_them(
    text: str, spans: list[tuple[int, int]], expected: str, moved: list[list[int]]
) -> None:
    words = text.split()
    ids = np.array([-1, -2])  # # and $
    marks = marks_around(np.array(spans), ids)
    written = np.insert(np.arange(len(words)), marks.places, marks.ids)
    assert [words[n] if n >= 0 else "#$"[-n - 1] for n in written.tolist()] == expected.split()
    assert marks.spans.tolist() == moved


def test_a_mark_inside_of_a_unit_belongs_to_it() -> None:
    layer, labels = np.array([0, 1, 2, 1]), np.array([0, 7, 7, 8])
    places = np.array([1, 2, 3, 4])
    assert with_marks(layer, layer, places).tolist() == [0, 0, 1, 2, 2, 0, 1, 0]
    assert with_marks(labels, layer, places).tolist() == [0, 0, 7, 7, 7, 0, 8, 0]


def test_the_pooler_reads_the_first_token_of_each_row() -> None:
    head = ClassifySpan(width=4, spans=2, classes=3, pool="cls", clock=Clock())
    hidden = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    batch = Batch({"positions/label": torch.tensor([[6, 7, 8, 8], [1, 2, 3, 4]])})
    pooled = torch.tanh(hidden[[1, 0], 0] @ head.head.pool.weight.T + head.head.pool.bias)  # type: ignore[union-attr]
    torch.testing.assert_close(head.scores({"hidden": hidden}, batch), head.head.output(pooled))
    with pytest.raises(RecipeError, match="with pool: cls, the transform is that of BERT's pooler"):
        ClassifySpan(width=4, pool="cls", transform="tanh", clock=Clock())


def test_spans_that_a_cut_text_loses_are_told(
    folder: Callable[[str], Path], files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = ["training.epochs=1", "corpus.length=7"]
    tune(folder("bert"), files, tmp_path / "out", *values)
    learner, told = load_tuned(load_checkpoint(tmp_path / "out"))
    assert 0 < told["lost"]["dev"] < 24 and 0 < told["lost"]["train"] < 96
    examples = learner.task.read(files[1])
    found = evaluate(learner, examples, constant_answer=told["constant_answer"])
    rows = learner.encode(examples)
    lost = f"{told['lost']['dev']} of 24 texts lose a span by truncation, the first in line "
    assert any(remark.startswith(lost) for remark in found.remarks)
    for row, said in zip(rows, learner.predict(examples), strict=True):
        assert row.read or (said.label, said.probability) == (told["constant_answer"], 1.0)
    assert main(["evaluate", str(tmp_path / "out"), str(files[1])]) == 0
    assert "lose a span by truncation" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"text": "the cat", "label": "x"}, r"x\.jsonl:2: no field 'spans'.*\n  Expected: .*class_of_spans.spans=NAME"),
        ({"text": "", "spans": [[0, 1]], "label": "x"}, "'text' is not text; expected a text that is not empty, or a list"),
        ({"text": "the cat", "spans": [0, 1], "label": "x"}, "'spans' is not a list of pairs"),
        ({"text": "the cat", "spans": [[4, 8]], "label": "x"}, r"the span \[4, 8\] is not in the text of 7 characters"),
        ({"text": "the cat", "spans": [[3, 4]], "label": "x"}, r"the span \[3, 4\] holds white space only"),
        ({"text": ["the", "cat"], "spans": [[1, 1]], "label": "x"}, r"the span \[1, 1\] is not in the text of 2 words"),
        ({"text": "the cat", "spans": [[0, 3], [4, 7]], "label": "x"}, "2 spans; expected 1, as in the first text"),
        ({"text": "the cat", "spans": [[0, 3]], "label": " "}, "'label' is ' '; expected a label"),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_used_is_told_with_its_line(tmp_path: Path, row: Any, told: str) -> None:
    path = write(tmp_path / "x.jsonl", {"text": "a dog", "spans": [[2, 5]], "label": "y"}, row)
    with pytest.raises(TaskError, match=told):
        read_marked(path, TextFields())
    faults: list[tuple[int, str]] = []
    assert len(list(each_marked(path, TextFields(), fault=lambda line, why: faults.append((line, why))))) == 1
    assert [line for line, _ in faults] == [2]


def test_a_table_of_cells_is_refused_with_a_row_as_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('text,spans,label\nthe cat,"[[0, 3]]",x\n')
    with pytest.raises(TaskError, match=r"x\.csv: such rows are read from JSON lines .*, not from csv\..*\n  Expected: {.text"):
        read_marked(path, TextFields())


def test_spans_of_words_are_those_of_their_characters(tmp_path: Path) -> None:
    words = write(tmp_path / "w.jsonl", {"text": ["the", "old", "cat", "sat"], "spans": [[1, 3]], "label": 1})
    (one,) = read_marked(words, TextFields()).each
    assert (one.text, one.spans, one.label) == ("the old cat sat", (Bounds(4, 11),), "1")


def test_dev_texts_have_as_many_spans_as_the_training_texts(
    folder: Callable[[str], Path], files: tuple[Path, Path], tmp_path: Path
) -> None:
    other = write(tmp_path / "dev.jsonl", {"text": "the cat", "spans": [[0, 3]], "label": "aa"})
    with pytest.raises(TaskError, match=r"dev\.jsonl: 1 spans in every record; the training text has 2 spans"):
        tune(folder("bert"), (files[0], other), tmp_path / "out")


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30), st.booleans())
def test_metrics_are_those_of_scikit_learn(pairs: list[tuple[int, int]], leave_out: bool) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    truth, guess = np.array(pairs, np.int64).T
    names = ("none", "b", "c", "d")
    found = span_metrics(truth, guess, names, "none" if leave_out else None)
    kept = [1, 2, 3] if leave_out else [0, 1, 2, 3]
    assert found["micro_f1"] == pytest.approx(metrics.f1_score(truth, guess, labels=kept, average="micro", zero_division=0))
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(truth, guess))
    assert found["macro_f1"] == pytest.approx(metrics.f1_score(truth, guess, average="macro", zero_division=0))


@pytest.mark.parametrize("pool", ["first", "mean", "ends"])
def test_what_is_read_of_a_span(pool: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 6, 4, generator=generator)
    objective = ClassifySpan(width=4, spans=2, classes=3, pool=pool, clock=Clock())
    places = torch.tensor([[6, 8, 11, 11], [12, 12, 13, 17]])  # (1, 0..2), (1, 5); (2, 0), (2, 1..5)
    spans = [[hidden[1, 0:3], hidden[1, 5:6]], [hidden[2, 0:1], hidden[2, 1:6]]]
    of = {"first": lambda s: s[0], "mean": lambda s: s.mean(0), "ends": lambda s: torch.cat([s[0], s[-1]])}[pool]
    wanted = torch.stack([torch.cat([of(span) for span in own]) for own in spans])
    torch.testing.assert_close(objective.vectors(hidden, places), wanted)
    batch = Batch({"targets/label": torch.tensor([0, 2]), "positions/label": places})
    loss = objective({"hidden": hidden}, batch)
    expected = torch.nn.functional.cross_entropy(objective.head(wanted), torch.tensor([0, 2]), reduction="sum")
    torch.testing.assert_close(loss.total, expected)
    assert float(objective.count(batch)) == 2
