"""Questions are answered and spans classified by networks of other kinds: their folders answer as they did in training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.interop import Card, PortableModel, Reading, export_folder
from cloze.networks import Clock
from cloze.recipe.builders import build
from cloze.registry import lookup
from cloze.runs.finetuning.finetune import finetune
from cloze.tasks.evaluation import evaluate
from cloze.tasks.tuned_folder import load_tuned

SIZE = {"layers": 1, "width": 16}
ATTENDING = {**SIZE, "heads": 2, "feed_forward": {"plain": {"inner": 24}}}
#: part, arguments, order, whose pieces, templates
KINDS: dict[str, tuple[dict[str, Any], str, str, Reading]] = {
    "lstm": (SIZE, "left_to_right", "gpt2", Reading("{A}", None, "last")),
    "bilstm": (SIZE, "open", "bert", Reading("[CLS] {A} [SEP]", None, "last")),
    "two_stream": (ATTENDING, "open", "bert", Reading("{A} [SEP] [CLS]", "{A} [SEP] {B} [SEP] [CLS]", "last")),
}  # fmt: skip
ROWS: dict[str, list[dict[str, Any]]] = {
    "question_answering": [
        {"question": "who saw", "context": "the rain saw the cat", "answers": [{"text": "cat", "answer_start": 17}]},
        {"question": "who saw", "context": "the rain saw the river and the night", "answers": []},
    ],
    "span_classification": [
        {"text": "the cat saw the rain", "spans": [[4, 7], [16, 20]], "label": "x"},
        {"text": "the rain saw the cat", "spans": [[4, 8], [17, 20]], "label": "y"},
    ],
}
VALUES = {
    "question_answering": ["corpus.length=12", "corpus.stride=2"], "span_classification": ["corpus.length=16"],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "task"), [
    ("lstm", "question_answering"), ("two_stream", "span_classification"), ("bilstm", "question_answering"),
])  # fmt: skip
def test_a_network_of_another_kind_answers_as_in_training(
    folder: Callable[[str], Path], tmp_path: Path, kind: str, task: str
) -> None:
    arguments, order, pieces, reading = KINDS[kind]
    tokenizer = load_checkpoint(folder(pieces)).tokenizer
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network: Any = build(lookup("network", kind), arguments, {"vocab_size": tokenizer.size, "clock": Clock()})
    model = PortableModel(arguments, order, network.state_dict(), {}, kind)
    export_folder(tmp_path / "start", model=model, tokenizer=tokenizer, reading=reading, card=Card(kind))
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS[task]), encoding="utf-8")

    def tuned() -> Any:
        values = ["training.epochs=1", "training.batch=4", *VALUES[task]]
        return finetune(
            tmp_path / "start", task=task, train=[str(rows)], dev=[str(rows)], out=tmp_path / "out", overrides=values,
            report=lambda line: None,
        )

    standing = tuned().outcomes[1].standing
    loaded = load_checkpoint(tmp_path / "out")
    learner, _ = load_tuned(loaded)
    if kind == "bilstm":  # its recipe says nothing of two texts
        assert loaded.reading.pair == "[CLS] {A} [SEP] {B} [SEP]"
    measured = {name: value for name, value in standing.metrics.items() if name != "threshold"}
    assert evaluate(learner, learner.task.read(rows)).metrics == pytest.approx(measured, abs=1e-6)
