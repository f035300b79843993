"""ORQA: a retriever learns from text by the inverse cloze task, then answers from questions and answers alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.tables.evidence import Evidence
from cloze.errors import CorpusError
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.run import pretrain
from cloze.tasks.evaluation import evaluate
from cloze.tasks.kinds.retrieval import untuned
from cloze.tasks.measures.bm25 import bm25
from cloze.tasks.task import task
from cloze.tasks.tuned_folder import load_tuned
from cloze.training.checkpoints.checkpoint import Checkpoints
from cloze.training.run_progress import RunProgress

THINGS = ("cat", "dog", "mice", "rain", "river", "night", "garden", "mat", "lake", "hill", "tree", "moon")
KINDS = ("red", "blue", "green", "old", "new", "cold", "warm", "long", "short", "big", "small", "wet")
BLOCKS = [f"the {thing} is {KINDS[n]} . a {thing} was {KINDS[n - 7]} ." for n, thing in enumerate(THINGS)]
ROWS: list[dict[str, Any]] = [
    *({"question": f"is {thing}", "answer": [KINDS[n], "nothing"]} for n, thing in enumerate(THINGS)),
    *({"question": f"was {thing}", "answer": KINDS[n - 7]} for n, thing in enumerate(THINGS)),
]
SMALL = [
    "text.tokenizer.size=120", "length=24", "network.layers=1", "network.initial.std=0.1", "network.dropout=0",
    "passes[0].objectives.embedding.dropout=0", "passes[1].objectives[0].embedding.dropout=0", "training.held_out=0.0",
    "training.batch=12", "training.steps=20", "training.rate.peak=1e-3", "training.rate.warmup_steps=2",
]  # fmt: skip
VALUES = [
    "training.epochs=9", "training.batch=8", "training.rate.peak=5e-4", "training.evaluate_every=0.5",
    "tables.evidence.read=3", "networks.query.dropout=0", "networks.reader.dropout=0",
]  # fmt: skip


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("open")
    (place / "blocks.txt").write_text("\n\n".join(BLOCKS) + "\n")
    (place / "text.txt").write_text("\n\n".join(block.replace(" . ", " .\n") for block in BLOCKS) + "\n")
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return place


@pytest.fixture(scope="module")
def retriever(files: Path) -> Path:
    out = files / "retriever"
    pretrain("orqa", corpus=[str(files / "text.txt")], out=out, size="tiny", fit=False, overrides=SMALL, report=quiet)
    return out


def tuned_in(out: Path, files: Path, retriever: Path, *values: str) -> Any:
    rows = [str(files / "rows.jsonl")]
    return finetune(
        retriever, task="open_question_answering", train=rows, dev=rows, out=out, binds=[f"evidence={files / 'blocks.txt'}"],
        overrides=[*VALUES, *values], fit=False, report=quiet, keep_checkpoints=True,
    )


@pytest.fixture(scope="module")
def tuned(files: Path, retriever: Path) -> Any:
    return tuned_in(files / "tuned", files, retriever)


def test_it_answers_better_than_any_one_place_in_the_best_block_of_bm25(tuned: Any, files: Path) -> None:
    learner, told = load_tuned(load_checkpoint(tuned.folder))
    assert told["towers"] == {"query": {"network": "query", "head": "embedding"}}
    examples = learner.task.read(files / "rows.jsonl")
    found = evaluate(learner, examples, constant_answer=told["constant_answer"])
    assert found.metrics == pytest.approx(tuned.outcomes[1].standing.metrics)
    best = [BLOCKS[int(np.argmax(bm25([row["question"]] * len(BLOCKS), BLOCKS)))].split() for row in ROWS]
    answers = [row["answer"] if isinstance(row["answer"], list) else [row["answer"]] for row in ROWS]
    places = [np.mean([words[n] in right for words, right in zip(best, answers, strict=True)]) for n in range(len(best[0]))]
    assert max(places) == 0.5 and found.metrics["exact_match"] > 0.7
    assert found.baseline is not None and found.baseline["exact_match"] < 0.2
    first = learner.predict(examples)[0].record()
    assert first.pop("score") > 0.5
    assert first == {
        "line": 1, "question": "is cat", "answer": "red", "evidence_line": 1, "evidence": BLOCKS[0]
    }  # fmt: skip
    assert [one.record()["evidence_line"] for one in learner.predict(examples)[:12]] == list(range(1, 25, 2))


def test_the_encoder_of_blocks_stays_and_that_of_questions_learns(tuned: Any, retriever: Path) -> None:
    learner: Any = load_tuned(load_checkpoint(tuned.folder))[0]
    before: Any = load_checkpoint(retriever)
    assert learner.head.evidence.matrix == pytest.approx(untuned(before).passage_vectors(BLOCKS), abs=1e-5)
    weights = before.network.state_dict()
    assert any(not torch.equal(tensor, weights[name]) for name, tensor in learner.question_network.state_dict().items())


def test_a_run_that_was_stopped_resumes_bit_for_bit(
    tuned: Any, files: Path, retriever: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = RunProgress.advance

    def killed(self: RunProgress, *given: Any, **more: Any) -> Any:
        if self.step == 18:
            raise KeyboardInterrupt
        return finished(self, *given, **more)

    monkeypatch.setattr(RunProgress, "advance", killed)
    with pytest.raises(KeyboardInterrupt):
        tuned_in(tmp_path / "broken", files, retriever)
    monkeypatch.setattr(RunProgress, "advance", finished)
    tuned_in(tmp_path / "broken", files, retriever)
    whole, resumed = (Checkpoints(folder).load()[1] for folder in (tuned.folder, tmp_path / "broken"))
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())


def test_the_verbs_answer_and_say_what_is_wrong(
    tuned: Any, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(tuned.folder), "is dog"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["answer"] == "blue"
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"question": "is cat", "answer": []}\n')
    assert main(["evaluate", str(tuned.folder), str(bad)]) == 2
    assert "bad.jsonl:1: 'answer' is" in capsys.readouterr().err
    rows, base = str(files / "rows.jsonl"), ["finetune", str(files / "retriever"), "--task", "open_question_answering"]
    base += ["--train", rows, "--dev", rows, "--out", str(tmp_path / "out")]
    assert main(base) == 2
    assert "no file. Give one with a block of text per line: --bind evidence=FILE" in capsys.readouterr().err
    (tmp_path / "empty.txt").write_text("\n")
    assert main([*base, "--bind", f"evidence={tmp_path / 'empty.txt'}"]) == 2
    assert "expected a block of text per line" in capsys.readouterr().err


def test_answers_of_a_row_are_one_text_or_several(files: Path) -> None:
    examples = task("open_question_answering").read(files / "rows.jsonl")
    assert examples.labels[0] == ["red", "nothing"] and examples.labels[12] == ["cold"]


def test_a_damaged_table_is_told() -> None:
    with pytest.raises(CorpusError, match="evidence: expected the arrays tokens, "):
        Evidence.restored({"tokens": np.zeros(3)})
