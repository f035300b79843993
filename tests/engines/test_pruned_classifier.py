"""fastText's classifier with fewer rows, trained further: `compress --rows`, `finetune`, fastText's own -retrain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.kernels import has_numba
from cloze.tasks.given import given_examples
from cloze.tasks.tuned_folder import load_tuned

DRAW = np.random.default_rng(1)
NAMES = [f"w{number}" for number in range(120)]
LABELS = [f"l{number}" for number in range(4)]
ROWS = [(" ".join(DRAW.choice(NAMES[label * 24 :], 6)), LABELS[label]) for label in DRAW.integers(0, 4, 160)]

pytestmark = pytest.mark.skipif(not has_numba(), reason="numba is not installed")


def run(*words: object, status: int = 0) -> None:
    assert main([str(word) for word in words]) == status


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, a classifier `whole` that was trained on them, and `pruned`, which has 300 rows of it."""
    folder = tmp_path_factory.mktemp("classifier")
    torch.set_num_threads(1)
    (folder / "rows.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    rows, whole = folder / "rows.tsv", folder / "whole"
    given = ("network.width=6", "tables.ngrams.buckets=300", "training.rate.peak=0.5", "training.epochs=5")
    values = [f"--set={one}" for one in given]
    run("finetune", "fasttext-supervised", "--train", rows, "--dev", rows, "--out", whole, *values)
    run("compress", whole, "--rows", 300, "--out", folder / "pruned")
    return folder


def table_of(folder: Path) -> tuple[Any, np.ndarray[Any, Any]]:
    network: Any = load_checkpoint(folder).network
    return network.bag, network.embeddings.weight.detach().numpy()


def predicted(folder: Path, texts: Sequence[str]) -> list[dict[str, float]]:
    learner: Any = load_tuned(load_checkpoint(folder))[0]
    with given_examples(learner.task, list(texts), labelled=False) as examples:
        return [one.probabilities for one in learner.predict(examples)]


def test_the_longest_rows_stay_with_the_end_of_the_text_and_nothing_else_counts(place: Path) -> None:
    bag, before = table_of(place / "whole")
    small, after = table_of(place / "pruned")
    candidates = [3, *range(4, bag.first), *range(bag.first, len(before))]
    lengths = np.linalg.norm(before[candidates], axis=1)
    best = {candidates[at] for at in np.argsort(-lengths[1:])[:299] + 1} | {3}
    words = {word for word in range(3, small.first) if len(small.rows[small.starts[word] : small.starts[word + 1]])}
    assert words == {one for one in best if one < bag.first}
    there = {int(bag.table.kept[one - bag.first]) for one in best if one >= bag.first}
    assert set(small.table.kept.tolist()) == there and len(words) + len(there) == 300
    for bucket, row in zip(small.table.kept, small.table.order, strict=True):
        old = bag.first + int(np.flatnonzero(bag.table.kept == bucket)[0])
        assert np.array_equal(after[small.first + row], before[old])
    assert (small.hashes == bag.hashes).all(), "runs contain words without a row"
    ids = np.array([sorted(words - {3})[0], next(w for w in range(4, small.first) if w not in words), 3])
    rows, _, total = small.of_texts(ids, np.zeros(3, np.int64), {})
    assert total.tolist() == [len(rows)]


def test_retraining_moves_only_rows_that_stayed_and_lowers_the_loss(place: Path) -> None:
    rows, out = place / "rows.tsv", place / "again"
    run("finetune", place / "pruned", "--recipe", "fasttext-supervised", "--train", rows, "--dev", rows, "--out", out,
        "--set", "training.rate.peak=0.5", "--set", "training.engine=compiled")  # fmt: skip
    small, before = table_of(place / "pruned")
    bag, after = table_of(out)
    assert np.array_equal(bag.table.kept, small.table.kept) and np.array_equal(bag.table.absent, small.table.absent)
    assert not after[bag.table.absent].any() and len(bag.table.absent)
    moved = np.abs(after - before).max(1) > 0
    assert moved[small.first :].mean() > 0.9 and moved.sum() <= 300
    texts, labels = zip(*ROWS, strict=True)

    def loss(folder: Path) -> float:
        shares = [found[label] for found, label in zip(predicted(folder, texts), labels, strict=True)]
        return float(-np.log(shares).mean())

    assert loss(out) < loss(place / "pruned") - 0.05


@pytest.mark.skipif(find_spec("fasttext") is None, reason="fasttext is not installed")
def test_fasttext_opens_the_retrained_file_and_its_own_retraining_is_as_good(place: Path, tmp_path: Path) -> None:
    import fasttext

    rows, out = place / "rows.tsv", tmp_path / "again"
    run("finetune", place / "pruned", "--recipe", "fasttext-supervised", "--train", rows, "--dev", rows, "--out", out,
        "--set", "training.rate.peak=0.5")  # fmt: skip
    run("export", out, tmp_path / "small.ftz", "--to", "fasttext-quantised", "--piece", 1)
    run("import", tmp_path / "small.ftz", "--out", tmp_path / "small")
    run("export", place / "whole", tmp_path / "whole.bin", "--to", "fasttext")
    theirs = fasttext.load_model(str(tmp_path / "small.ftz"))
    texts, labels = zip(*ROWS, strict=True)
    for text, found in zip(texts[:20], predicted(tmp_path / "small", texts[:20]), strict=True):
        for share, label in theirs.f.predict(text + "\n", 4, 0.0, "strict"):
            assert abs(found[label.removeprefix("__label__")] - share) < 1e-4
    file = tmp_path / "rows.txt"
    file.write_text("".join(f"__label__{label} {text}\n" for text, label in ROWS))
    own = fasttext.load_model(str(tmp_path / "whole.bin"))
    own.quantize(str(file), cutoff=300, retrain=True, epoch=5, lr=0.5, thread=1, dsub=1)

    def accuracy(model: Any) -> float:
        found = [model.f.predict(text + "\n", 1, 0.0, "strict")[0][1] for text, _ in ROWS]
        return float(np.mean([one == f"__label__{label}" for one, (_, label) in zip(found, ROWS, strict=True)]))

    assert set(own.get_words()) == set(theirs.get_words()), "both keep the same words"
    assert accuracy(theirs) > accuracy(own) - 0.05


def test_labels_in_another_order_are_refused(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described = place / "pruned" / "cloze" / "task.json"
    before, rows = described.read_text(), place / "rows.tsv"
    described.write_text(json.dumps({**json.loads(before), "labels": LABELS[::-1]}))
    words = ["--recipe", "fasttext-supervised", "--train", rows, "--dev", rows, "--out", tmp_path / "a"]
    run("finetune", place / "pruned", *words, status=2)
    described.write_text(before)
    assert "in another order" in capsys.readouterr().err


def test_what_cannot_be_pruned_is_refused(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("compress", place / "whole", "--rows", 9, "--bits", 8, "--out", tmp_path / "a", status=2)
    assert "Leave the other options out" in capsys.readouterr().err
    run("export", place / "pruned", tmp_path / "a.bin", "--to", "fasttext", status=2)
    assert "a pruned model can only be written as .ftz" in capsys.readouterr().err
