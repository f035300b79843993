"""Nearest words and analogies: against a plain computation, over blocks, with what is left out left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.cli.main import main
from cloze.decoding.vectors import neighbours as module
from cloze.decoding.vectors.neighbours import analogy, cosine, mean_cosine, neighbours, solve, unit, zero_words
from cloze.errors import UserError
from cloze.interop.vectors import Vectors
from cloze.interop.vectors.subwords import Subwords

NUMBER = 40


@pytest.fixture(params=[1 << 23, 64])
def vectors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Vectors:
    """Random vectors, looked through at once and in many blocks."""
    monkeypatch.setattr(module, "_NUMBERS", request.param)
    matrix = np.random.default_rng(3).standard_normal((NUMBER, 6)).astype(np.float32)
    matrix[7] = 0
    return Vectors([f"w{i}" for i in range(NUMBER)], matrix, "v")


def test_neighbours_are_those_of_highest_cosine(vectors: Vectors) -> None:
    rows = unit(vectors.own)
    for word, found in zip(("w3", "w0"), neighbours(vectors, ["w3", "w0"], count=5), strict=True):
        truth = rows @ rows[int(word[1:])]
        truth[int(word[1:])] = -np.inf
        assert [near.word for near in found] == [f"w{i}" for i in np.argsort(-truth)[:5]]
        assert np.allclose([near.score for near in found], np.sort(truth)[::-1][:5], atol=1e-6)


def test_a_restriction_looks_among_the_first_words_alone(vectors: Vectors) -> None:
    (found,) = neighbours(vectors, ["w30"], count=10, restrict=4)
    assert sorted(near.word for near in found) == ["w0", "w1", "w2", "w3"]
    (all_,) = neighbours(vectors, ["w0"], count=10 * NUMBER)
    assert len(all_) == NUMBER - 2 and "w7" not in [near.word for near in all_]  # the vector of w7 is zero


def test_equal_scores_come_in_the_order_of_the_rows() -> None:
    vectors = Vectors(list("abcdefghijkl"), np.ones((12, 2), np.float32), "v")
    assert [near.word for near in neighbours(vectors, ["c"], count=3)[0]] == ["a", "b", "d"]


@pytest.mark.parametrize("method", ["add", "multiply"])
def test_analogies_are_solved_as_the_papers_say(vectors: Vectors, method: str) -> None:
    rows = unit(vectors.own)
    a, b, c = rows[1], rows[2], rows[3]
    if method == "add":
        truth = rows @ unit((b - a + c)[None])[0]
    else:
        like = [(1 + rows @ one) / 2 for one in (a, b, c)]
        truth = like[1] * like[2] / (like[0] + 0.001)
    truth[[1, 2, 3]] = -np.inf
    found = analogy(vectors, "w1", "w2", "w3", method=method, count=3)  # type: ignore[arg-type]
    assert [near.word for near in found] == [f"w{i}" for i in np.argsort(-truth)[:3]]
    assert np.allclose([near.score for near in found], np.sort(truth)[::-1][:3], rtol=1e-5)


def test_king_minus_man_plus_woman() -> None:
    words = ["man", "king", "woman", "queen", "apple"]
    matrix = np.float32([[1, 0, 0.1], [1, 1, 0.1], [-1, 0, 0.1], [-1, 1, 0.1], [0, 0, 1]])
    vectors = Vectors(words, matrix, "v")
    for method in ("add", "multiply"):
        assert analogy(vectors, "man", "king", "woman", method=method, count=1)[0].word == "queen"  # type: ignore[arg-type]


def test_fewer_words_than_asked_are_marked() -> None:
    vectors = Vectors(["a", "b"], np.eye(2, dtype=np.float32), "v")
    rows, scores = solve(vectors, np.ones((1, 3, 2), np.float32), [[0]], count=3)
    assert rows.tolist() == [[1, -1, -1]] and np.isneginf(scores[0, 1:]).all()


def test_a_word_whose_vector_is_zero_is_no_answer_and_has_none(vectors: Vectors) -> None:
    message = "the vector of 'w7' in v is zero, so it has no cosine with any other.\n  Ask for another word."
    with pytest.raises(UserError, match=f"^{message}$"):
        neighbours(vectors, ["w1", "w7"])
    for method in ("add", "multiply"):
        with pytest.raises(UserError, match=message):
            analogy(vectors, "w1", "w7", "w2", method=method)  # type: ignore[arg-type]
        answers = analogy(vectors, "w1", "w2", "w3", method=method, count=NUMBER)  # type: ignore[arg-type]
        assert len(answers) == NUMBER - 4 and "w7" not in [answer.word for answer in answers]
    assert zero_words(vectors) == ["w7"] and not zero_words(vectors, restrict=7)


def test_the_mean_cosine_of_two_words_tells_vectors_that_are_all_alike(
    vectors: Vectors, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cosines = (rows := unit(vectors.own)[[i for i in range(10) if i != 7]]) @ rows.T
    assert mean_cosine(vectors, first=10) == pytest.approx(cosines[~np.eye(9, dtype=bool)].mean(), abs=1e-6)
    assert mean_cosine(vectors, first=1) == 0.0
    for shift, notes in ((0, 0), (100, 1)):
        file = tmp_path / f"{shift}.txt"
        lines = [f"{word} {' '.join(map(str, row + shift))}" for word, row in zip(vectors.words, vectors.own, strict=True)]
        file.write_text("\n".join([f"{NUMBER} 6", *lines]) + "\n")
        for command in (["neighbours", str(file), "w1"], ["analogy", str(file), "w1", "w2", "w3"],
                        ["words", "odd", str(file), "w1", "w2", "w3"]):
            assert main(command) == 0
            assert capsys.readouterr().err.count(f"note: two words of {file} have a cosine of 1.00 on average") == notes


def test_unknown_words_and_methods_are_told(vectors: Vectors) -> None:
    with pytest.raises(UserError, match="'w99' is not among the 40 words of v. Did you mean"):
        neighbours(vectors, ["w99"])
    with pytest.raises(UserError, match="unknown method 'mult'"):
        analogy(vectors, "w1", "w2", "w3", method="mult")  # type: ignore[arg-type]


def test_an_unseen_word_has_the_neighbours_of_its_n_grams() -> None:
    chance = np.random.default_rng(0)
    part = Subwords(chance.standard_normal((500, 8)).astype(np.float32), 3, 5)
    vectors = Vectors(["where", "there", "xyzzy"], np.zeros((3, 8), np.float32), "v", part)
    assert neighbours(vectors, ["wheree"], count=1)[0][0].word == "where"


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_a_cosine_is_between_minus_one_and_one_and_zero_of_nothing(seed: int) -> None:
    chance = np.random.default_rng(seed)
    one, two = chance.standard_normal((2, 5, 3)).astype(np.float32)
    one[0] = 0
    found = cosine(one, two)
    assert found[0] == 0 and (abs(found) <= 1 + 1e-6).all()
