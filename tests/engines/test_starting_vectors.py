"""fastText's classifier whose words begin with vectors: rows and vocabulary of fastText's -pretrainedVectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.errors import CheckpointError, TaskError
from cloze.interop.vectors.opening import width_of
from cloze.kernels import has_numba

ROWS = [("good film", "yes"), ("bad film", "no"), ("a good one", "yes"), ("a bad one", "no")] * 3
WORDS = ["</s>", "good", "bad", "splendid", "Paris", "don't"]
VECTORS = np.random.default_rng(0).normal(0, 1, (len(WORDS), 5)).astype(np.float32)
STILL = ["--set", "training.rate.peak=1e-30", "--set", "training.epochs=1", "--set", "tables.ngrams.buckets=50"]
Run = Callable[..., Path]

pytestmark = pytest.mark.skipif(not has_numba(), reason="numba is not installed")


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    lines = [f"{word} {' '.join(f'{x:.9g}' for x in row)}\n" for word, row in zip(WORDS, VECTORS, strict=True)]
    (tmp_path / "words.vec").write_text(f"{len(WORDS)} 5\n" + "".join(lines))
    return tmp_path / "words.vec"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    table = tmp_path / "rows.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))

    def train(*words: object, out: str = "out", status: int = 0) -> Path:
        given = ["finetune", "fasttext-supervised", "--train", table, "--dev", table, "--out", tmp_path / out, *words]
        assert main([str(word) for word in given]) == status
        return tmp_path / out

    return train


def rows_of(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    loaded = load_checkpoint(folder)
    table: Any = loaded.network.embeddings.weight.detach().numpy()  # type: ignore[union-attr, operator]
    return {word: table[number] for number, word in enumerate(loaded.tokenizer.spellings)}


def test_words_of_the_file_get_its_rows_and_those_that_no_text_can_hold_are_left_out(
    run: Run, vectors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run("--init", vectors, *STILL)
    said = capsys.readouterr()
    assert "adds 1 words to the 9 of the text; 2 can never be cut out of a text" in said.out + said.err
    found = rows_of(folder)
    assert set(found) == {"[PAD]", "[UNK]", "[BOS]", "</s>", "good", "bad", "film", "a", "one", "splendid"}
    for word, row in zip(WORDS[:4], VECTORS, strict=False):
        assert np.array_equal(found[word], row), word
    for word in ("film", "a", "one"):  # drawn, as without vectors
        assert 0 < np.abs(found[word]).max() <= 1 / 5
    kept = json.loads((folder / "cloze" / "network.json").read_text())
    assert "words.vec" not in json.dumps(kept["arguments"]) and kept["arguments"]["vectors"] is None
    assert not list((folder / "cloze").glob("tables/*vectors*"))


def test_training_moves_rows_on_from_the_vectors(run: Run, vectors: Path) -> None:
    more = ["--set", "training.rate.peak=0.5", "--set", "training.epochs=3", "--set", "tables.ngrams.buckets=50"]
    found = rows_of(run("--init", vectors, *more))
    assert np.array_equal(found["splendid"], VECTORS[3]), "no text has the word"
    assert 0 < np.abs(found["good"] - VECTORS[1]).max() < 1


@pytest.mark.skipif(find_spec("fasttext") is None, reason="fasttext is not installed")
def test_fasttext_begins_with_the_same_rows_for_the_same_words(run: Run, vectors: Path, tmp_path: Path) -> None:
    import fasttext

    text = tmp_path / "rows.txt"
    text.write_text("".join(f"__label__{label} {line}\n" for line, label in ROWS))
    plain = ["--set", "text.normalise.lower=false", "--set", "text.tokenizer.split=whitespace"]
    found = rows_of(run("--init", vectors, *STILL, *plain))
    theirs = fasttext.train_supervised(
        str(text), pretrainedVectors=str(vectors), dim=5, lr=1e-30, epoch=1, wordNgrams=2, bucket=50, minCount=1, thread=1,
        verbose=0,
    )
    matrix, words = theirs.get_input_matrix(), theirs.get_words()
    assert set(words) == set(found) - {"[PAD]", "[UNK]", "[BOS]"}
    for word in WORDS:
        np.testing.assert_allclose(matrix[words.index(word)], found[word], atol=1e-6)


def test_a_run_of_word_vectors_serves_too(run: Run, tmp_path: Path, vectors: Path) -> None:
    assert not main(["import", str(vectors), "--out", str(tmp_path / "run")])
    assert width_of(tmp_path / "run") == width_of(vectors) == 5
    assert np.array_equal(rows_of(run("--init", tmp_path / "run", *STILL))["splendid"], VECTORS[3])


def test_what_does_not_fit_is_refused(run: Run, vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("--init", vectors, "--set", "network.width=7", status=2)
    assert "10 of 5 numbers; expected 10 of 7" in (said := capsys.readouterr().err) and "--set network.width=5" in said
    run("--init", tmp_path / "nowhere.vec", status=2)
    assert "nowhere.vec: there is no such file" in capsys.readouterr().err
    from cloze.runs.finetuning.finetune import finetune

    with pytest.raises(CheckpointError):
        width_of(tmp_path / "nowhere.vec")
    folder = run(*STILL)
    table = str(tmp_path / "rows.tsv")
    with pytest.raises(TaskError, match="is for a recipe that starts without a checkpoint"):
        finetune(folder, tmp_path / "other", table, table, init=vectors)
