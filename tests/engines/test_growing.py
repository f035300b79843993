"""Word vectors that go on with new text: new words get rows, old ones stay or go on; an iterable of texts is read once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cloze
from cloze.cli.main import main
from cloze.interop.vectors import Vectors, open_vectors

pytest.importorskip("numba")

OLD = ["the cat sat on the mat", "a dog saw the cat", "rain fell in the garden"] * 12
NEW = ["the zebra saw a dog", "the zebra sat in the savanna"] * 12
ADDED, SEEN = {"zebra", "savanna"}, {"the", "saw", "a", "dog", "sat", "in"}
UNSEEN = {"cat", "mat", "rain", "fell", "garden", "on"}
VALUES: dict[str, Any] = {"text.tokenizer.min_count": 1, "network.width": 8, "exercise.0.threshold": None, "training.batch": 4}
VALUES |= {"training.rate.floor": 0.0, "training.engine": "compiled"}
STILL = 1e-30  # a rate at which no float moves


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trained(corpus: Any, out: Path, *, rate: float = 0.1, epochs: int = 2, **given: Any) -> Vectors:
    cloze.pretrain(
        "word2vec-cbow", corpus=corpus, out=out, budget=f"{epochs}epochs", fit=False, report=None, device="cpu",
        overrides={**VALUES, "training.rate.peak": rate, "training.epochs": epochs}, **given,
    )
    return open_vectors(out)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the old text, and the tokenizer that also has the new words, next to it."""
    place = tmp_path_factory.mktemp("base")
    torch.set_num_threads(1)
    trained(OLD, place / "run")
    (place / "new.txt").write_text("".join(f"{line}\n\n" for line in NEW))
    words = ["vocab", "candidates", place / "run", "--corpus", place / "new.txt", "--add", "9", "--out", place / "words"]
    assert not main([str(word) for word in words])
    return place


def rows(vectors: Vectors, words: set[str]) -> np.ndarray[Any, Any]:
    return np.stack([vectors.own[vectors.ids[word]] for word in sorted(words)])


def test_new_words_get_rows_at_the_mean_and_old_ones_keep_theirs_until_they_are_trained(base: Path, tmp_path: Path) -> None:
    before = open_vectors(base / "run")
    assert not ADDED & set(before.words) and {*SEEN, *UNSEEN} <= set(before.words)
    grown = trained(NEW, tmp_path / "still", rate=STILL, init=base / "run", tokenizer=base / "words")
    assert set(grown.words) == {*before.words, *ADDED}
    assert np.array_equal(rows(grown, SEEN | UNSEEN), rows(before, SEEN | UNSEEN))
    table = cloze.load(base / "run").network.embeddings.weight.detach().numpy()
    np.testing.assert_allclose(rows(grown, ADDED), np.tile(table.mean(0), (2, 1)), atol=1e-6)

    moved = trained(NEW, tmp_path / "moved", init=base / "run", tokenizer=base / "words")
    assert np.array_equal(rows(moved, UNSEEN), rows(before, UNSEEN)), "words that the new text lacks stay bit for bit"
    change = np.abs(rows(moved, SEEN) - rows(before, SEEN)).max(1)
    assert (change > 1e-3).all(), "words of the new text are trained further"
    assert (np.abs(rows(moved, ADDED) - rows(grown, ADDED)).max(1) > 1e-3).all()


def test_the_command_grows_a_vocabulary_as_python_does(base: Path, tmp_path: Path) -> None:
    values = [word for key, value in VALUES.items() for word in ("--set", f"{key}={'null' if value is None else value}")]
    given = ["--init", base / "run", "--tokenizer", base / "words", "--corpus", base / "new.txt", "--as-published", "--quiet"]
    more = ["--set", "training.rate.peak=0.1", "--set", "training.epochs=2"]
    words = ["pretrain", "word2vec-cbow", *given, *values, *more, "--budget", "2epochs", "--out", tmp_path / "run"]
    assert not main([str(word) for word in words])
    typed = open_vectors(tmp_path / "run")
    called = trained(NEW, tmp_path / "called", init=base / "run", tokenizer=base / "words")
    assert typed.words == called.words and np.array_equal(typed.own, called.own)


class Counted:
    """Texts that can be read again; `readings` says how often they were."""

    def __init__(self, texts: list[str]) -> None:
        self.texts, self.readings = texts, 0

    def __iter__(self) -> Iterator[str]:
        self.readings += 1
        return iter(self.texts)


def test_a_generator_and_an_iterable_are_read_once_for_all_epochs_and_train_as_a_list(tmp_path: Path) -> None:
    wanted = trained(NEW, tmp_path / "list", epochs=3)
    taken: list[str] = []

    def each() -> Iterator[str]:
        for text in NEW:
            taken.append(text)
            yield text

    found = trained(each(), tmp_path / "generator", epochs=3)
    assert taken == NEW and found.words == wanted.words and np.array_equal(found.own, wanted.own)
    again = Counted(NEW)
    found = trained(again, tmp_path / "iterable", epochs=3)
    assert again.readings == 1 and np.array_equal(found.own, wanted.own)


def test_an_exhausted_generator_is_refused(tmp_path: Path) -> None:
    spent = iter(NEW)
    list(spent)
    with pytest.raises(cloze.ClozeError, match="no texts; expected at least one"):
        trained(spent, tmp_path / "run")
    assert not (tmp_path / "run").exists()
