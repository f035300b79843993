"""GPT's recipes for tasks: new start, delimiter and extract tokens, and a language model whose loss is averaged per row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cloze.changes import TaskMarks
from cloze.checkpoint.build import load_checkpoint
from cloze.decoding.reader import Reader
from cloze.errors import RecipeError
from cloze.exercises.targets.predict import Predict
from cloze.objectives.tokens.token_prediction import token_prediction
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.runs.finetuning.finetune import finetune
from cloze.text import Tokenizer
from cloze.training.schedule.rates import Linear

Folder = Callable[..., Path]
SMALL = ["corpus.length=24", "training.batch=8", "training.epochs=6", "training.rate.peak=5e-3", "network.dropout=0"]


def tuned_by(recipe: str, start: Path, train: Path, dev: Path, out: Path, *values: str) -> dict[str, float]:
    result = finetune(
        start, recipe=recipe, train=[str(train)], dev=[str(dev)], out=out, overrides=[*SMALL, *values], fit=False,
        report=lambda line: None, baselines=False,
    )
    standing = result.outcomes[1].standing
    assert standing is not None
    return dict(standing.metrics)


@pytest.fixture(scope="module")
def classifier(folder: Folder, tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gpt") / "out"
    metrics = tuned_by("gpt_classification", folder("gpt2"), tables / "train.tsv", tables / "dev.tsv", out)
    assert metrics["accuracy"] >= 0.9
    return out


def test_the_marks_are_new_tokens_around_a_text_as_in_the_authors_rows(folder: Folder, classifier: Path) -> None:
    before, after = Tokenizer.load(folder("gpt2")), load_checkpoint(classifier)
    start, delimiter, extract = (before.size + number for number in range(3))  # train.py: `encoder[…] = len(encoder)`
    assert after.tokenizer.size == before.size + 3
    assert [after.tokenizer.piece(number) for number in (start, delimiter, extract)] == ["_start_", "_delimiter_", "_classify_"]
    text, other = "the cat saw", "the rain"
    ids, more = (before.encode(words).ids.tolist() for words in (text, other))
    assert after.tokenizer.encode(text).ids.tolist() == ids
    read = Reader.of(after)
    assert read.encode([text])[0].ids.tolist() == [start, *ids, extract]  # transform_roc, for one text
    assert read.encode([text], [other])[0].ids.tolist() == [start, *ids, delimiter, *more, extract]
    assert after.tokenizer.encode("_start_ [START]").ids.max() < start  # no text writes them


def test_a_tuned_network_is_tuned_again_without_further_tokens(classifier: Path, tables: Path, tmp_path: Path) -> None:
    tuned_by("gpt_classification", classifier, tables / "train.tsv", tables / "dev.tsv", tmp_path / "out", "training.epochs=1")
    assert load_checkpoint(tmp_path / "out").tokenizer.hash == load_checkpoint(classifier).tokenizer.hash
    tuned_by("sentence_classification", classifier, tables / "train.tsv", tables / "dev.tsv", tmp_path / "plain",
             "training.epochs=1")  # fmt: skip
    assert load_checkpoint(tmp_path / "plain").reading.single == "[START] {A} [EXTRACT]"


def test_choices_are_learned_with_the_marks(folder: Folder, tmp_path: Path) -> None:
    words = {"cat": "dog", "rain": "river"}
    rows = [
        {"text": f"the {a} saw the {a}", "choices": [f"the {b}", "the night"][:: 1 if turn else -1], "label": 1 - turn}
        for turn in (1, 0) for a, b in words.items()
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * 4))
    metrics = tuned_by("gpt_multiple_choice", folder("gpt2"), path, path, tmp_path / "out")
    assert metrics["accuracy"] == 1.0
    assert load_checkpoint(tmp_path / "out").reading.pair == "[START] {A} [DELIMITER] {B} [EXTRACT]"


def test_the_language_models_loss_is_the_mean_over_rows_of_means_over_tokens() -> None:
    tokens = np.array([[5, 6, 7, 0, 0], [5, 1, 2, 3, 4]], np.int32)
    given = Rows({"tokens": tokens, "length": np.array([3, 5], np.int32)})
    rows = Predict("next", weigh="rows")(given, Draw(np.zeros(2, np.uint64)))
    expected = np.array([[0.5, 0.5, 0, 0], [0.25] * 4], np.float32)
    assert np.array_equal(rows["weights/main"], expected)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 5, 8, generator=generator)
    objective = token_prediction(width=8, vocab_size=8).eval()
    present = rows["positions/main"] >= 0
    flat = (rows["positions/main"] + np.array([[0], [5]]))[present]
    batch = {"positions/main": torch.from_numpy(flat), "targets/main": torch.from_numpy(rows["targets/main"][present]),
             "weights/main": torch.from_numpy(rows["weights/main"][present])}  # fmt: skip
    loss = objective({"hidden": hidden}, batch).total / objective.count(batch)
    # train.py: lm_losses = reduce_sum(lm_losses * M[:, 1:], 1) / reduce_sum(M[:, 1:], 1), then reduce_mean
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1.0]])
    logits = objective.head(hidden[:, :-1].flatten(0, 1))
    losses = F.cross_entropy(logits, torch.from_numpy(tokens[:, 1:]).long().flatten(), reduction="none").view(2, 4)
    torch.testing.assert_close(loss, ((losses * mask[:, 1:]).sum(1) / mask[:, 1:].sum(1)).mean())


def test_the_rate_is_that_of_the_authors_schedule() -> None:
    rate = Linear(6.25e-5, warmup=0.002, decay="product")
    for share in (0.0, 0.001, 0.002, 0.5, 0.999):
        rising = float(share <= 0.002)  # opt.py, warmup_linear
        assert rate(share, 10_000) == pytest.approx(6.25e-5 * (rising * (share / 0.002) + (1 - rising)) * (1 - share))


def test_marks_with_other_roles_or_spelled_as_text_are_refused() -> None:
    for tokens, said in (
        ({}, "change.marks.tokens: expected at least one role"),
        ({"[CLS]": "_x_"}, r"change.marks.tokens: '\[CLS\]' is not the mark of a task"),
        ({"[START]": "start"}, r"change.marks.tokens: \[START\] is 'start'; expected at least three characters"),
    ):
        with pytest.raises(RecipeError, match=said):
            TaskMarks(tokens)
