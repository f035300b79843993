"""Question answering: learned from questions with and without answers, and answered with text, characters and a score."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.corpus.readers.questions import read_questions
from cloze.decoding.reader import Reader
from cloze.errors import CorpusError, TaskError
from cloze.interop import Reading
from cloze.networks import Clock
from cloze.objectives import SpanExtraction
from cloze.recipe.recipe import as_plain_data
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto
from cloze.tasks.evaluation import evaluate
from cloze.tasks.kinds.question_answering import Extractor, JudgedQuestion, best_remark, compute_metrics
from cloze.tasks.measures.answers import QuestionScores
from cloze.tasks.task import task
from cloze.tasks.tuned_folder import load_tuned

VALUES = [
    "training.batch=16", "training.epochs=4", "training.rate.peak=2e-2", "corpus.length=16", "corpus.stride=4",
    "network.dropout=0", "task.patience=0",
]  # fmt: skip
ANIMALS, WEATHER = ["cat", "dog", "mice"], ["rain", "river", "night", "garden"]


def questions(path: Path, count: int, seed: int) -> Path:
    """Which animal is in the text? One text in four has none."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        words = [chance.choice(WEATHER) for _ in range(chance.randint(4, 12))]
        animal = None if number % 4 == 3 else chance.choice(ANIMALS)
        if animal:
            words.insert(chance.randrange(len(words) + 1), animal)
        text = " ".join(words)
        answers = [{"text": animal, "answer_start": text.index(animal)}] if animal else []
        rows.append({"id": str(number), "question": "who saw", "context": text, "answers": answers})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("questions")
    return questions(place / "train.jsonl", 64, 0), questions(place / "dev.jsonl", 24, 1)


def tune(folder: Path, files: tuple[Path, Path], out: Path, *values: str) -> Any:
    return finetune(
        folder, task="question_answering", train=[str(files[0])], dev=[str(files[1])], out=out, overrides=[*VALUES, *values],
        report=lambda line: None,
    )


@pytest.mark.parametrize("system", ["bert", "gpt2"])
def test_questions_are_learned_and_the_folder_answers_as_in_training(
    folder: Callable[[str], Path], files: tuple[Path, Path], tmp_path: Path, system: str
) -> None:
    values = ["training.epochs=12", "training.rate.peak=1e-2"] if system == "gpt2" else []
    standing = tune(folder(system), files, tmp_path / "out", *values).outcomes[1].standing
    assert standing.metrics["f1"] >= 0.8 and "threshold" in standing.metrics
    learner, told = load_tuned(load_checkpoint(tmp_path / "out"))
    found = evaluate(learner, learner.task.read(files[1]), constant_answer=told["constant_answer"], bootstrap=100)
    assert {**found.metrics, "threshold": learner.threshold} == pytest.approx(standing.metrics, abs=1e-6)
    assert found.intervals.keys() == found.metrics.keys() == {"exact_match", "f1", "f1_answered", "f1_unanswerable"}
    assert found.baseline is not None and found.baseline["f1"] < 0.5 < standing.metrics["f1"]
    asked = learner.task.read(files[1], labelled=False)
    said = learner.predict(asked)
    for one, question in zip(said, asked.each, strict=True):
        record: dict[str, Any] = one.record()
        if record["start"] is None:
            assert record["answer"] == "" and record["end"] is None
        else:
            assert question.context[record["start"] : record["end"]] == record["answer"] != ""
        assert 0.0 <= record["score"] <= 1.0 and record["id"] == question.name
    given = [one.record()["answer"] for one in said]
    right = [answer == (q.answers[0].text if q.answers else "") for answer, q in zip(given, asked.each, strict=True)]
    assert np.mean(right) == pytest.approx(standing.metrics["exact_match"])


def test_where_the_checkpoint_knows_no_pairs_what_closes_a_text_separates_them(writer: Callable[[str], Path]) -> None:
    """As transformers' tokenizers of T5 do: the text, </s>, the second text, </s>."""
    made = recipe_onto("question_answering", load_checkpoint(writer("t5")))
    assert made.reading.pair == "{A} [EOS] {B} [EOS]"


def test_windows_that_would_not_overlap_are_refused_with_the_way_out(
    folder: Callable[[str], Path], files: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(CorpusError, match=r"(?s)windows start 16 tokens apart, .* --set corpus\.stride=\d"):
        tune(folder("bert"), files, tmp_path / "out", "corpus.stride=16")


def test_what_is_measured_is_framed_and_asked_as_what_is_trained(
    folder: Callable[[str], Path], files: tuple[Path, Path]
) -> None:
    """The learner reads dev files as text, the held-out loss reads the store: both show the network the same windows."""
    from cloze.checkpoint.build import build_step
    from cloze.checkpoint.feeds import build_feed
    from cloze.corpus.records import Records
    from cloze.exercises import TokenFacts
    from cloze.runs.finetuning.task_recipe import recipe_onto

    for system, values in (("bert", []), ("gpt2", ["reading.pair='{A} {B}'"])):
        loaded = load_checkpoint(folder(system))
        recipe = recipe_onto("question_answering", loaded, overrides=[*VALUES, *values])
        entry, facts = recipe.entries["main"], TokenFacts.of(loaded.tokenizer)
        records = Records(text="question", text_b="context", label="answers", answer="span")
        store = records.build_store(
            [files[1]], loaded.tokenizer, files[1].with_suffix(f".{system}"), base=None, report=lambda line: None
        )
        step = build_step(recipe, vocab_size=loaded.tokenizer.size)
        feed = build_feed(recipe, entry, store, step, facts, length=16, seed=1, held_out_share=0.0)
        plan = feed.source.plan(0, feed.exercise.max_tokens)
        (part,) = feed.micro_batches([(0, np.argsort(plan.order))], [len(plan)])
        reader = Reader.of(loaded)
        reader = Reader(reader.network, reader.tokenizer, recipe.reading, reader.order)
        head = SpanExtraction(width=16, clock=Clock())
        learner = Extractor(reader, head, None, length=16, stride=4, max_answer_length=5, threshold=None)
        rows = learner.encode(read_questions(files[1]))
        batch = reader.batch([window.framed for row in rows for window in row.windows])
        assert part.arrays["tokens"].tolist() == batch["tokens"].tolist()
        width = batch["tokens"].shape[1]
        wanted = []
        summaries = iter((batch["summaries"] % width).tolist())
        for row in rows:
            for window in row.windows:
                columns = {window.begin + n: int(column) for n, column in enumerate(window.columns)}
                answer = row.record.answers and row.record.answers[0]
                summary = next(summaries)
                inside = [] if not answer else [
                    n for n, (a, b) in enumerate(zip(row.start, row.stop, strict=True))
                    if a < answer.start + len(answer.text) and b > answer.start
                ]  # fmt: skip
                shown = inside and inside[0] in columns and inside[-1] in columns
                wanted.append([columns[inside[0]], columns[inside[-1]]] if shown else [summary, summary])
        assert (part.arrays["positions/answer"] % width).tolist() == wanted
        assert 0 < sum(own != [0, 0] for own in wanted if system == "bert") < len(wanted) or system == "gpt2"


def test_a_question_is_not_answered_above_the_threshold() -> None:
    right, wrong, none = QuestionScores(1.0, 1.0), QuestionScores(0.0, 0.5), QuestionScores(0.0, 0.0)
    given = [(right, none, -1.0, True), (wrong, none, 2.0, True), (none, right, 3.0, False)]
    per_example = [JudgedQuestion(*own) for own in given]
    constant_answer = {"exact_match": 1 / 3, "f1": 0.5, "f1_answered": 0.75, "f1_unanswerable": 0.0}
    assert compute_metrics(per_example, None) == pytest.approx(constant_answer)
    assert compute_metrics(per_example, 2.5)["f1"] == pytest.approx(2.5 / 3)
    assert compute_metrics(per_example, 0.0)["f1"] == pytest.approx(2 / 3)


def test_the_best_exact_match_and_f1_have_thresholds_of_their_own() -> None:
    """Two questions are answered nearly, one exactly, and one has no answer: exact match gains by silence, F1 does not."""
    near, right, none = QuestionScores(0.0, 0.8), QuestionScores(1.0, 1.0), QuestionScores(0.0, 0.0)
    per_example = [
        JudgedQuestion(near, none, 1.0, True), JudgedQuestion(near, none, 1.2, True), JudgedQuestion(right, none, -1.0, True),
        JudgedQuestion(none, right, 0.5, False),
    ]  # fmt: skip
    exact, f1 = (max(compute_metrics(per_example, cut)[name] for cut in (-2, 0, 0.7, 1.1, 2)) for name in ("exact_match", "f1"))
    assert (exact, f1) == (0.5, pytest.approx(2.6 / 4))
    assert best_remark(per_example).endswith("exact_match 0.5000 (margin -0.250), f1 0.6500 (margin 2.200)")


@pytest.mark.parity
@pytest.mark.parametrize("system", ["bert", "roberta", "electra", "gpt2"])
def test_transformers_scores_the_same_tokens(folder: Callable[[str], Path], files: tuple[Path, Path], system: str) -> None:
    transformers = pytest.importorskip("transformers")
    place = folder(f"{system}-answers")
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(place).eval()
    assert type(model).__name__.endswith("ForQuestionAnswering")
    loaded = load_checkpoint(place)
    reading = Reading("{A}", "{A} {B}", "last") if system == "gpt2" else loaded.reading
    reader = Reader(loaded.network, loaded.tokenizer, reading, loaded.order)
    learner = Extractor(reader, loaded.heads["answer"], None, length=16, stride=4, max_answer_length=5, threshold=None).eval()
    batch = reader.batch([learner.encode(read_questions(files[1]))[0].windows[0].framed])
    kinds = {"token_type_ids": batch["segments"]} if system in ("bert", "electra") else {}
    with torch.inference_mode():
        theirs = model(input_ids=batch["tokens"], **kinds)
        ours = learner._scores(batch)[:, 0]
    np.testing.assert_allclose(ours, torch.cat([theirs.start_logits, theirs.end_logits]).numpy(), atol=1e-5)


def test_the_head_is_the_one_that_transformers_has_for_the_network(folder: Callable[[str], Path]) -> None:
    found = {}
    for system in ("bert", "modern"):
        recipe = recipe_onto("question_answering", load_checkpoint(folder(system)))
        (spec,) = [spec for _, spec in recipe.entries["main"].objectives()]
        assert spec.part.name == "span_extraction"
        found[system] = as_plain_data(spec.part.arguments)["transform"]
    assert found == {"bert": None, "modern": {"gelu": {"norm_epsilon": 1e-5, "biases": False, "times": 1}}}


def test_answers_are_needed_where_something_is_measured(folder: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "who", "context": "the cat"}\n')
    learner = Extractor(
        Reader.of(load_checkpoint(folder("bert"))), SpanExtraction(width=16, clock=Clock()), task("question_answering"),
        length=None, stride=8, max_answer_length=5, threshold=None,
    )
    with pytest.raises(TaskError, match=r"q\.jsonl:1: no answers; expected them for every question"):
        learner.encode_labelled(read_questions(path, labelled=False))
