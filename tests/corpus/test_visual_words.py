"""Visual words: a tree of k-means, assigned child by child."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cloze.cli.text.vocab import app
from cloze.corpus.items import Picture
from cloze.corpus.items.visual_words import VISUAL_WORDS, VisualWords, sampled
from cloze.errors import CheckpointError, CorpusError
from cloze.text import TextSpec, Tokenizer, train

CORNERS = np.array([[0, 0], [0, 1], [9, 0], [9, 1]], np.float32)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(500, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def words(vectors: np.ndarray) -> VisualWords:
    return VisualWords.fit(vectors, branches=3, levels=4, seed=2)


def test_a_word_is_the_nearest_child_of_the_nearest_child_and_not_the_nearest_leaf(words: VisualWords) -> None:
    asked = np.random.default_rng(3).normal(size=(200, 5))
    found = words.assign(asked)
    expected = []
    for vector in asked:
        node = 0
        for centres, sizes in zip(words.centres, words.sizes, strict=True):
            kids = [node * 3 + branch for branch in range(3) if sizes[node * 3 + branch]]
            node = min(kids, key=lambda kid: float(((vector - centres[kid]) ** 2).sum()))
        expected.append(node)
    assert found.tolist() == expected and found.dtype == np.int32
    flat = [int(((vector - words.centres[-1][words.sizes[-1] > 0]) ** 2).sum(1).argmin()) for vector in asked]
    assert (np.flatnonzero(words.sizes[-1])[flat] != found).any()


def test_every_leaf_is_its_own_word_and_levels_count_the_vectors_below_them(words: VisualWords, vectors: np.ndarray) -> None:
    used = np.flatnonzero(words.sizes[-1])
    assert words.assign(words.centres[-1][used]).tolist() == used.tolist()
    assert words.size == 81 and np.array_equal(np.bincount(words.assign(vectors), minlength=81), words.sizes[-1])
    for above, below in zip(words.sizes, words.sizes[1:], strict=False):
        assert np.array_equal(above, below.reshape(-1, 3).sum(1))


def test_the_published_tree_has_20736_words() -> None:
    made = VisualWords.fit(np.random.default_rng(0).random((300, 2)))
    assert (made.branches, made.levels, made.size) == (12, 4, 20736)


def test_fewer_distinct_vectors_than_branches_leave_words_that_nothing_gets() -> None:
    made = VisualWords.fit(np.repeat(CORNERS, 5, axis=0), branches=3, levels=2)
    assert sorted(made.sizes[1][made.sizes[1] > 0].tolist()) == [5, 5, 5, 5]
    assert len(set(made.assign(CORNERS).tolist())) == 4
    assert made.sizes[1][made.assign(np.array([[100.0, 100.0]]))[0]] == 5


def test_a_tree_is_a_function_of_its_seed(vectors: np.ndarray, words: VisualWords, tmp_path: Path) -> None:
    again = VisualWords.fit(vectors, branches=3, levels=4, seed=2)
    again.save(tmp_path / "words.npz")
    read = VisualWords.load(tmp_path / "words.npz")
    assert all(np.array_equal(a, b) for a, b in zip(read.centres, words.centres, strict=True))
    other = VisualWords.fit(vectors, branches=3, levels=4, seed=3)
    assert not np.array_equal(other.centres[0], words.centres[0])


def test_a_sample_depends_on_its_seed_and_on_no_borders_of_pictures(vectors: np.ndarray) -> None:
    whole = [Picture("a", {"features": vectors})]
    pieces = [Picture(str(low), {"features": vectors[low : low + 7]}) for low in range(0, 500, 7)]
    one, other = sampled(whole, 60, 5), sampled(pieces, 60, 5)
    assert one.shape == (60, 5) and np.array_equal(one, other) and not np.array_equal(one, sampled(whole, 60, 6))
    assert np.array_equal(sampled(whole, 500, 5), vectors)


def test_wrong_trees_vectors_and_files_are_refused(words: VisualWords, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"vectors of the shape \(2, 4\); the words are of 5 numbers each"):
        words.assign(np.zeros((2, 4)))
    with pytest.raises(CorpusError, match=r"9 levels of 12 branches; expected .* at most 4,194,304 words"):
        VisualWords.fit(CORNERS, levels=9)
    with pytest.raises(CorpusError, match=r"picture 'a': has no 'features' \(items, width\), only class"):
        sampled([Picture("a", {"class": np.zeros(2)})], 5, 0)
    (tmp_path / "x.npz").write_bytes(b"no")
    with pytest.raises(CheckpointError, match=r"x\.npz: damaged, or no visual words"):
        VisualWords.load(tmp_path / "x.npz")
    with pytest.raises(CheckpointError, match=r"Make them: cloze vocab visual ITEMS\.npz --out DIR"):
        VisualWords.load(tmp_path / "y.npz")


def test_one_command_makes_words_and_their_tokens_and_another_assigns_them(tmp_path: Path) -> None:
    train(TextSpec.of({}, "wordpiece", {"size": 40}), ["the ball moves"]).save(tmp_path / "tok", length=16, frame_single="{A}")
    np.savez(tmp_path / "clips.npz", keys=np.array(["a", "b"]), offsets=np.array([0, 3, 4]), features=CORNERS)
    given = ["--tokenizer", str(tmp_path / "tok"), "--branches", "2", "--levels", "2", "--out", str(tmp_path / "words")]
    made = CliRunner().invoke(app, ["visual", str(tmp_path / "clips.npz"), *given])
    assert made.exit_code == 0, made.output
    before, after = Tokenizer.load(tmp_path / "tok"), Tokenizer.load(tmp_path / "words")
    assert after.size == before.size + 5 and after.id("[>]") == before.size
    parts = [*before.encode("the").ids, after.size - 1, *before.encode("ball").ids]
    assert after.encode("the [frames/3] ball").ids.tolist() == parts
    assert "4 visual words of 2 levels, made from 4 vectors, of which 4 have vectors" in made.output
    given = [str(tmp_path / name) for name in ("words", "clips.npz")]
    said = CliRunner().invoke(app, ["assign", *given, "--out", str(tmp_path / "w.npz")])
    assert said.exit_code == 0 and "the words of 4 items of 2 pictures, 4 different ones" in said.output
    words = VisualWords.load(tmp_path / "words" / VISUAL_WORDS).assign(CORNERS)
    with np.load(tmp_path / "w.npz") as written:
        assert written["keys"].tolist() == ["a", "b"] and written["offsets"].tolist() == [0, 3, 4]
        assert np.array_equal(written["word"], words)
