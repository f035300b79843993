"""The table `vectors`: rows for the words of a vocabulary, from a file, and back from what a checkpoint keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cloze.corpus import PretrainedVectors, Store
from cloze.corpus.stores.build import build_store_from_texts
from cloze.errors import CorpusError, RecipeError
from cloze.interop.vectors import open_vectors
from cloze.text.normalise import Normalise
from cloze.text.words import Words


@pytest.fixture
def store(tmp_path: Path) -> Store:
    tokenizer = Words(min_count=1).of_words(["sea", "blue", "qwerty"], Normalise())
    return build_store_from_texts(["sea blue qwerty\n"], tokenizer, tmp_path / "store")


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "v.txt"
    path.write_text(text)
    return path


def test_words_have_their_vectors_and_all_else_zeros(store: Store, tmp_path: Path) -> None:
    path = file(tmp_path, "blue 1 2\nsky 3 4\nsea 5 6\n[UNK] 7 7\n")
    table = PretrainedVectors(file=str(path))
    made = table.bind(store, open_vectors(table.opens))
    assert made.matrix.tolist() == [[0, 0]] * 4 + [[5, 6], [1, 2], [0, 0]]
    assert made.known.tolist() == [False] * 4 + [True, True, False]
    again = PretrainedVectors.restored(made.arrays)
    assert np.array_equal(again.matrix, made.matrix) and np.array_equal(again.known, made.known)


def test_a_table_without_a_file_or_without_a_known_word_says_so(store: Store, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="--set tables.NAME.file"):
        _ = PretrainedVectors().opens
    with pytest.raises(CorpusError, match="none of the 3 words"):
        PretrainedVectors().bind(store, open_vectors(file(tmp_path, "Meer 1 2\n")))
    with pytest.raises(CorpusError, match="damaged"):
        PretrainedVectors.restored({})
