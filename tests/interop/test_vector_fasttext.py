"""fastText's .bin file: byte for byte what is read is written; n-grams make up unseen words; faults are told."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cloze.errors import CheckpointError
from cloze.interop.vectors import Vectors, open_fasttext, open_vectors, write_vectors
from cloze.interop.vectors.fasttext import FastText, Settings, as_fasttext, is_fasttext, read_fasttext, write_fasttext
from cloze.interop.vectors.subwords import Subwords

WORDS = ["the", "</s>", "naïve", "where"]


def model(buckets: int = 50, **changes: int) -> FastText:
    chance = np.random.default_rng(0)
    table = chance.standard_normal((len(WORDS) + buckets, 6)).astype(np.float32)
    answers = chance.standard_normal((len(WORDS), 6)).astype(np.float32)
    settings = Settings(6, buckets=buckets, **changes)
    return FastText(settings, WORDS, (), np.array([9, 5, 2, 1]), 17, table, answers)


def written(made: FastText) -> bytes:
    file = io.BytesIO()
    write_fasttext(file, made)
    return file.getvalue()


def test_what_is_written_is_read_and_written_again() -> None:
    made = replace(model(), labels=("__label__x",), counts=np.array([9, 5, 2, 1, 3]), answers=np.zeros((1, 6), np.float32))
    data = written(made)
    found = read_fasttext(data, "f")
    assert found.settings == made.settings and (list(found.words), found.tokens) == (WORDS, 17)
    assert list(found.labels) == ["__label__x"] and found.counts.tolist() == made.counts.tolist()
    assert np.array_equal(found.table, made.table) and written(found) == data


def test_the_layout_is_that_of_the_authors_code() -> None:
    data = written(model())
    assert struct.unpack_from("<2i", data) == (793712314, 12)
    assert struct.unpack_from("<12id", data, 8) == (6, 5, 5, 5, 5, 1, 2, 2, 50, 3, 6, 100, 1e-4)
    assert struct.unpack_from("<3iqq", data, 64) == (4, 4, 0, 17, -1)
    assert data[92:106] == b"the\0" + struct.pack("<q", 9) + b"\0" + b"<"
    assert len(data) == 92 + sum(len(w.encode()) + 10 for w in WORDS) + 2 * 17 + 4 * 6 * (54 + 4)


def test_files_of_before_2017_are_read() -> None:
    data = written(model())
    body = 92 + sum(len(w.encode()) + 10 for w in WORDS)
    first, second = data[body + 1 : body + 17 + 4 * 54 * 6], data[body + 18 + 4 * 54 * 6 :]
    old = data[8:84] + data[92:body] + first + second
    assert is_fasttext(old) and is_fasttext(data) and not is_fasttext(b"3 4\n" + bytes(200))
    assert written(read_fasttext(old, "f")) == data


def test_words_are_means_over_their_row_and_their_n_grams() -> None:
    made = model()
    vectors = made.vectors("f")
    assert vectors.subwords is not None
    rows = [4 + hash_ % 50 for hash_ in grams_of("where")]
    assert np.allclose(vectors.vector("where"), made.table[[3, *rows]].mean(0), atol=1e-6)
    assert np.array_equal(vectors.matrix[1], made.table[1])  # </s> has no n-grams
    unseen = [4 + hash_ % 50 for hash_ in grams_of("naive")]
    assert np.allclose(vectors.vector("naive"), made.table[unseen].mean(0), atol=1e-6)
    for row, word in enumerate(WORDS):
        assert np.array_equal(vectors.matrix[row], vectors.vector(word))


def grams_of(word: str) -> list[int]:
    """Hashes of the n-grams of 3 to 6 characters, written down from the specification."""
    bounded, found = f"<{word}>", []
    for start in range(len(bounded)):
        for stop in range(start + 3, min(start + 6, len(bounded)) + 1):
            value = 2166136261
            for byte in bounded[start:stop].encode():
                value = ((value ^ (byte - 256 if byte > 127 else byte) & 0xFFFFFFFF) * 16777619) & 0xFFFFFFFF
            found.append(value)
    return found


@pytest.mark.parametrize("name", ["shortest", "longest", "word_ngrams"])
def test_negative_sizes_of_n_grams_are_damage(name: str) -> None:
    with pytest.raises(CheckpointError, match="f: n-grams of .* a damaged file. Copy it again."):
        read_fasttext(written(model(**{name: -(1 << 31)})), "f")


def test_a_word_too_short_for_n_grams_is_unknown() -> None:
    vectors = Vectors(["abc"], np.ones((1, 2), np.float32), "v", Subwords(np.ones((5, 2), np.float32), 5, 6))
    assert vectors.find("x") is None and vectors.find("xyz") is not None


def test_the_matrix_is_a_view_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(written(model()))
    vectors = open_vectors(path)
    assert not vectors.own.flags.owndata and not vectors.own.flags.writeable
    assert vectors.counts is not None and vectors.counts.tolist() == [9, 5, 2, 1]


def test_vectors_without_n_grams_become_a_model_without_them(tmp_path: Path) -> None:
    vectors = Vectors(["a", "b"], np.float32([[1, 2], [3, 4]]), "v")
    made, remarks = as_fasttext(vectors)
    assert (made.settings.longest, made.settings.buckets, made.counts.tolist()) == (0, 0, [2, 1])
    assert len(remarks) == 2 and np.array_equal(read_fasttext(written(made), "f").vectors("f").matrix, vectors.own)
    (tmp_path / "v.txt").write_text("a 1 2\nb 3 4\n")
    count, width, said = write_vectors(tmp_path / "v.txt", "fasttext", tmp_path / "v.bin")
    assert (count, width) == (2, 2) and any("decreasing numbers" in one for one in said)


def test_n_grams_that_a_format_cannot_hold_are_told(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(written(model()))
    _, _, said = write_vectors(tmp_path / "m.bin", "word2vec", tmp_path / "m.vec")
    assert any("n-grams were left out" in one for one in said)
    assert np.array_equal(open_vectors(tmp_path / "m.vec").own, open_vectors(tmp_path / "m.bin").matrix)


QUANTISED = written(model())[: 92 + sum(len(w.encode()) + 10 for w in WORDS)] + b"\1" + bytes(40)
FAULTS = {
    "cut off": (written(model())[:-1], "It is cut off"),
    "cut off in the words": (written(model())[:95], "It is cut off"),
    "cut off in the settings": (written(model())[:30], "It is cut off"),
    "another version": (struct.pack("<2i", 793712314, 9) + bytes(200), "version 9 of fastText's file; cloze reads versions 11"),
    "cut off in a quantised matrix": (QUANTISED, "It is cut off"),
    "another width": (written(replace(model(), settings=Settings(7, buckets=50))), "a table of 54 x 6; expected 54 rows"),
    "wrong counts": (written(model())[:64] + struct.pack("<3i", 4, 9, 0) + written(model())[76:], "a damaged file"),
    "not finite": (written(replace(model(), table=np.full((54, 6), np.nan, np.float32))), "is nan; expected finite numbers"),
    "twice": (written(replace(model(), words=["a", "b", "a", "c"])), "'a' (rows 1 and 3)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_of_a_model_is_told(fault: str, tmp_path: Path) -> None:
    content, expected = FAULTS[fault]
    path = tmp_path / "m.bin"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as error:
        open_vectors(path)
    assert expected in str(error.value), error.value


def test_n_grams_that_are_not_finite_are_told_when_they_are_used(tmp_path: Path) -> None:
    table = model().table.copy()
    table[4:] = np.inf
    vectors = replace(model(), table=table).vectors("m.bin")
    with pytest.raises(CheckpointError, match="m.bin: number 1 of 'the'"):
        _ = vectors.matrix


def test_another_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("a 1 2\n")
    with pytest.raises(CheckpointError, match="vectors as text; expected fastText's .bin"):
        open_fasttext(tmp_path / "v.txt")
