"""Vectors against gensim: files read and written by both, the same neighbours, analogies and correlations."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.decoding.vectors.neighbours import analogy, neighbours
from cloze.interop.vectors import Vectors, open_fasttext, open_vectors, write_vectors
from cloze.interop.vectors.binary import write_binary
from cloze.interop.vectors.fasttext import as_fasttext, write_fasttext
from cloze.interop.vectors.subwords import Subwords
from cloze.tasks.intrinsic.analogies import analogies, read_questions
from cloze.tasks.intrinsic.similarity import read_pairs, similarity

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    gensim = pytest.importorskip("gensim")
    from gensim.models import FastText, KeyedVectors  # type: ignore[import-untyped]
    from gensim.models.fasttext import load_facebook_model, load_facebook_vectors, save_facebook_model  # type: ignore[import-untyped]

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]
SENTENCES = [["the", "quick", "brown", "fox"], ["the", "lazy", "naïve", "über", "狐狸"], ["fox", "the", "quickly"]] * 5


@pytest.fixture(scope="module")
def words() -> list[str]:
    """The words of some questions and pairs, and others."""
    chance = np.random.default_rng(0)
    letters = [chr(97 + i) for i in range(26)]
    return list(dict.fromkeys("".join(chance.choice(letters, 5)) for _ in range(400)))


@pytest.fixture(scope="module")
def keyed(words: list[str]) -> Any:
    made = KeyedVectors(8)
    # A few directions and little noise, so that analogies have answers worth comparing.
    chance = np.random.default_rng(1)
    rows = chance.integers(-1, 2, (len(words), 8)) + 0.1 * chance.standard_normal((len(words), 8))
    made.add_vectors(words, rows.astype(np.float32))
    return made


@pytest.mark.parametrize("binary", [True, False])
def test_files_of_gensim_are_read(keyed: Any, binary: bool, tmp_path: Path) -> None:
    path = tmp_path / "g"
    keyed.save_word2vec_format(str(path), binary=binary)
    found = open_vectors(path)
    assert list(found.words) == keyed.index_to_key and np.array_equal(found.own, keyed.vectors)


@pytest.mark.parametrize("to", ["word2vec", "word2vec-binary", "glove"])
def test_files_of_ours_are_read_by_gensim(keyed: Any, to: str, tmp_path: Path) -> None:
    source = tmp_path / "g.bin"
    with source.open("wb") as file:
        write_binary(file, Vectors(keyed.index_to_key, keyed.vectors, "g"))
    write_vectors(source, to, tmp_path / "o")
    read = KeyedVectors.load_word2vec_format(str(tmp_path / "o"), binary=to.endswith("binary"), no_header=to == "glove")
    assert read.index_to_key == keyed.index_to_key and np.array_equal(read.vectors, keyed.vectors)


@pytest.mark.parametrize("options", [{"sg": 1}, {"sg": 0}, {"sg": 1, "hs": 1, "negative": 0}, {"max_n": 0}])
def test_models_of_fasttext_cross_both_ways(options: dict[str, int], tmp_path: Path) -> None:
    model = FastText(SENTENCES, vector_size=12, min_count=1, bucket=300, epochs=1, workers=1, **options)
    path, again = tmp_path / "g.bin", tmp_path / "o.bin"
    save_facebook_model(model, str(path))
    found = open_vectors(path)
    assert list(found.words) == model.wv.index_to_key
    assert np.allclose(found.matrix, model.wv.vectors, atol=1e-7)
    if "max_n" not in options:
        for word in ("quickest", "naive", "狐", "x", "thequickbrown"):
            assert np.allclose(found.vector(word), model.wv[word], atol=1e-7)
    assert write_vectors(path, "fasttext", again)[2] == []
    assert again.read_bytes() == path.read_bytes()
    loaded = load_facebook_model(str(again))
    assert np.allclose(loaded.wv.vectors, found.matrix, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "same"),
    [("crime-and-punishment", True), ("toy-model", True), ("toy-model-pretrained", True), ("lee_fasttext_new", False),
     ("lee_fasttext", False)],
)  # fmt: skip
def test_files_that_fasttext_itself_wrote_are_read(name: str, same: bool) -> None:
    folder = Path(gensim.__file__).parent / "test" / "test_data"
    path = folder / f"{name}.bin"
    if not path.is_file():
        pytest.skip("gensim came without its test data")
    found, theirs = open_vectors(path), load_facebook_vectors(str(path))
    # gensim gives </s> n-grams, fastText since 2017 does not.
    rows = [row for row, word in enumerate(found.words) if word != "</s>"]
    assert list(found.words) == theirs.index_to_key
    assert np.allclose(found.matrix[rows], theirs.vectors[rows], atol=1e-6)
    if path.with_suffix(".vec").is_file():
        text = open_vectors(path.with_suffix(".vec"))
        for word in set(text.words) & set(found.words) - {"</s>"}:  # the file has five digits
            assert np.allclose(text.vector(word), found.vector(word), atol=1e-4)
    file = io.BytesIO()
    write_fasttext(file, open_fasttext(path))
    assert (file.getvalue() == path.read_bytes()) == same  # older versions are written as the current one


def test_a_classifier_of_fasttext_gives_its_words() -> None:
    folder = Path(gensim.__file__).parent / "test" / "test_data"
    if not (folder / "pang_lee_polarity_fasttext.bin").is_file():
        pytest.skip("gensim came without its test data")
    found, text = (open_vectors(folder / f"pang_lee_polarity_fasttext.{ending}") for ending in ("bin", "vec"))
    assert open_fasttext(folder / "pang_lee_polarity_fasttext.bin").labels == ["__label__pos", "__label__neg"]
    assert list(found.words) == list(text.words) and np.allclose(found.matrix, text.matrix, atol=1e-6)


def test_a_model_made_of_vectors_is_read_by_gensim(tmp_path: Path) -> None:
    chance = np.random.default_rng(2)
    own, rows = (chance.standard_normal((n, 6)).astype(np.float32) for n in (3, 40))
    vectors = Vectors(["where", "naïve", "狐狸"], own, "v", Subwords(rows, 2, 4))
    made, _ = as_fasttext(vectors)
    with (tmp_path / "m.bin").open("wb") as file:
        write_fasttext(file, made)
    loaded = load_facebook_model(str(tmp_path / "m.bin"))
    assert loaded.wv.index_to_key == list(vectors.words) and loaded.wv.min_n == 2 and loaded.wv.max_n == 4
    for word in (*vectors.words, "there", "狐"):
        assert np.allclose(loaded.wv[word], vectors.vector(word), atol=1e-6)
    assert open_fasttext(tmp_path / "m.bin").settings.buckets == 40
    plain, _ = as_fasttext(Vectors(["a", "b"], own[:2], "v"))
    with (tmp_path / "p.bin").open("wb") as file:
        write_fasttext(file, plain)
    assert np.array_equal(load_facebook_model(str(tmp_path / "p.bin")).wv.vectors, own[:2])


def test_neighbours_and_analogies_are_those_of_gensim(keyed: Any, words: list[str]) -> None:
    vectors = Vectors(words, keyed.vectors, "g")
    for word, found in zip(words[:20], neighbours(vectors, words[:20], count=5), strict=True):
        theirs = keyed.most_similar(word, topn=5)
        assert [near.word for near in found] == [name for name, _ in theirs]
        assert np.allclose([near.score for near in found], [score for _, score in theirs], atol=1e-6)
    for a, b, c in zip(words[:20], words[20:40], words[40:60], strict=True):
        theirs = keyed.most_similar(positive=[b, c], negative=[a], topn=3)
        assert [near.word for near in analogy(vectors, a, b, c, count=3)] == [name for name, _ in theirs]
        theirs = keyed.most_similar_cosmul(positive=[b, c], negative=[a], topn=3)
        found = analogy(vectors, a, b, c, count=3, method="multiply", epsilon=1e-6)
        assert [near.word for near in found] == [name for name, _ in theirs]


def test_correlations_are_those_of_gensim(keyed: Any, words: list[str], tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    some = [*words[:60], "unseenword"]
    pairs = [(*chance.choice(some, 2, replace=False), round(chance.uniform(0, 10))) for _ in range(200)]
    path = tmp_path / "p.txt"
    path.write_text("".join(f"{a}\t{b}\t{score}\n" for a, b, score in pairs))
    vectors = Vectors(words, keyed.vectors, "g")
    for unknown in ("skip", "zero"):
        _, theirs, missing = keyed.evaluate_word_pairs(str(path), dummy4unknown=unknown == "zero")
        found = similarity(vectors, read_pairs(path), unknown=unknown)  # type: ignore[arg-type]
        assert found.spearman == pytest.approx(theirs.statistic, abs=1e-6)
        assert 100 * (1 - found.coverage) == pytest.approx(missing) or unknown == "zero"


def test_accuracies_are_those_of_gensim(keyed: Any, words: list[str], tmp_path: Path) -> None:
    vectors = Vectors(words, keyed.vectors, "g")
    chance = np.random.default_rng(6)
    lines = []
    for section in ("one", "gram-two"):
        lines.append(f": {section}")
        for _ in range(60):
            a, b, c = chance.choice(words, 3, replace=False)
            best = analogy(vectors, a, b, c, count=2)[chance.integers(2)].word
            lines.append(f"{a} {b} {c} {best if chance.random() < 0.9 else 'unseenword'}")
    path = tmp_path / "q.txt"
    path.write_text("\n".join(lines) + "\n")
    for restrict in (10_000, 300):
        score, sections = keyed.evaluate_word_analogies(str(path), restrict_vocab=restrict)
        found = analogies(vectors, read_questions(path), restrict=restrict)
        assert found.total.accuracy == pytest.approx(score) and 0 < score < 1
        for theirs in sections[:-1]:
            ours = found.sections[theirs["section"]]
            assert (ours.right, ours.known) == (len(theirs["correct"]), len(theirs["correct"]) + len(theirs["incorrect"]))
