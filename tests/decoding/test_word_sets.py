"""The odd one out, classes of words and retrofitting, against plain computations and gensim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.decoding.vectors.word_sets import classes, fitting, retrofitted
from cloze.errors import UserError
from cloze.interop.vectors import Vectors, open_vectors

MATRIX = np.random.default_rng(5).standard_normal((30, 6)).astype(np.float32)


@pytest.fixture
def vectors() -> Vectors:
    return Vectors([f"w{number}" for number in range(30)], MATRIX.copy(), "v")


def test_the_odd_one_out_is_gensims(vectors: Vectors) -> None:
    gensim = pytest.importorskip("gensim")
    theirs = gensim.models.KeyedVectors(6)
    theirs.add_vectors(list(vectors.words), MATRIX)
    generator = np.random.default_rng(0)
    for size in (3, 4, 7):
        words = [f"w{number}" for number in generator.permutation(30)[:size]]
        found = fitting(vectors, words)
        assert found[0].word == theirs.doesnt_match(words)
        assert [one.score for one in found] == sorted(one.score for one in found)
    with pytest.raises(UserError, match="2 different words: expected three or more"):
        fitting(vectors, ["w1", "w2", "w2"])
    with pytest.raises(UserError, match="'zebra' is not among the 30 words"):
        fitting(vectors, ["w1", "w2", "zebra"])


def test_classes_are_those_of_word2vec(vectors: Vectors, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of word2vec.c, written out word by word."""
    count, passes = 4, 3
    wanted = [number % count for number in range(30)]
    for _ in range(passes):
        means = []
        for one in range(count):
            mine = [MATRIX[row].astype(np.float64) for row in range(30) if wanted[row] == one]
            mean = sum(mine) / max(len(mine), 1) if mine else np.zeros(6)
            means.append(mean / max(float(np.sqrt((mean**2).sum())), 1e-30))
        wanted = [int(np.argmax([mean @ MATRIX[row] for mean in means])) for row in range(30)]
    monkeypatch.setattr("cloze.decoding.vectors.word_sets._ROWS", 7)
    assert classes(vectors, count, passes=passes).tolist() == wanted
    assert len(set(wanted)) == count
    with pytest.raises(UserError, match="31 classes for 30 words: expected 1 to 30"):
        classes(vectors, 31)


def test_retrofitting_reaches_the_minimum_of_the_paper(vectors: Vectors) -> None:
    """Σ_i d_i |q_i - q̂_i|² + Σ_(i,j) |q_i - q_j|² has its minimum where a linear system is solved."""
    lexicon = [["w0", "w1", "w2"], ["w2", "w3", "unknown"], ["nothing", "w4"], ["w5", "w5"]]
    made, moved = retrofitted(vectors, lexicon, passes=60)
    edges = [(0, 1), (0, 2), (2, 3)]
    degree = np.array([2.0, 1.0, 2.0, 1.0])
    system = np.diag(2 * degree)
    for a, b in edges:
        system[a, b] = system[b, a] = -1.0
    wanted = np.linalg.solve(system, degree[:, None] * MATRIX[:4])
    assert moved == 4
    np.testing.assert_allclose(made.own[:4], wanted, atol=1e-6)
    assert np.array_equal(made.own[4:], MATRIX[4:]) and np.array_equal(vectors.own, MATRIX)
    once, _ = retrofitted(vectors, lexicon, passes=1)
    np.testing.assert_allclose(once.own[0], (MATRIX[0] + (MATRIX[1] + MATRIX[2]) / 2) / 2, atol=1e-6)
    with pytest.raises(UserError, match="no two related words of the lexicon"):
        retrofitted(vectors, [["a", "b"]])


def theirs_retrofitted(table: dict[str, Any], lexicon: dict[str, list[str]], passes: int) -> dict[str, Any]:
    """What retrofit.py of mfaruqui/retrofitting computes: vectors of length 1, moved one after another."""
    first = {word: vector / np.sqrt((vector**2).sum() + 1e-6) for word, vector in table.items()}
    new = dict(first)
    for _ in range(passes):
        for word in first:
            near = set(lexicon.get(word, ())) & first.keys()
            if near:
                new[word] = (len(near) * first[word] + sum(new[other] for other in near)) / (2 * len(near))
    return new


def test_normed_vectors_are_retrofitted_as_by_the_authors_code(vectors: Vectors) -> None:
    both_ways = {"w0": ["w1", "w2"], "w1": ["w0"], "w2": ["w0", "w3"], "w3": ["w2", "unknown"], "w9": []}
    table = {word: MATRIX[row].astype(np.float64) for row, word in enumerate(vectors.words)}
    theirs = theirs_retrofitted(table, both_ways, passes=60)
    made, moved = retrofitted(vectors, [[word, *near] for word, near in both_ways.items()], passes=60, normed=True)
    assert moved == 4
    np.testing.assert_allclose(made.own, np.stack([theirs[word] for word in vectors.words]), atol=1e-6)


def test_the_commands_write_what_the_functions_find(vectors: Vectors, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from cloze.cli.use.words import app
    from cloze.interop.vectors.text import write_text

    with (tmp_path / "v.txt").open("wb") as file:
        write_text(file, vectors)
    (tmp_path / "lexicon.txt").write_text("w0 w1 w2\n\nw2\tw3\n")

    def run(*given: str) -> str:
        made = CliRunner().invoke(app, [str(one) for one in given], catch_exceptions=False)
        assert made.exit_code == 0
        return made.output

    source = str(tmp_path / "v.txt")
    assert run("odd", source, "w1", "w2", "w3").split()[0] == fitting(vectors, ["w1", "w2", "w3"])[0].word
    assert "30 words in 4 classes" in run("classes", source, "--count", "4", "--out", str(tmp_path / "c.txt"))
    found = dict(line.split() for line in (tmp_path / "c.txt").read_text().splitlines())
    assert [int(found[word]) for word in vectors.words] == classes(vectors, 4).tolist()
    out = str(tmp_path / "better.vec.gz")
    assert "30 vectors, 4 of them moved" in run("retrofit", source, "--lexicon", str(tmp_path / "lexicon.txt"), "--out", out)
    wanted, _ = retrofitted(vectors, [["w0", "w1", "w2"], ["w2", "w3"]])
    assert np.array_equal(open_vectors(out).own, wanted.own)
    out = str(tmp_path / "normed.vec")
    run("retrofit", source, "--lexicon", str(tmp_path / "lexicon.txt"), "--normed", "--out", out)
    assert np.allclose(np.square(open_vectors(out).own[4:]).sum(1), 1.0, atol=1e-5)
