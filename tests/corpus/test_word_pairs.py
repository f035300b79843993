"""A lexicon of related words: which wrong word a row gets, and what is held out."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.corpus import Store, TextVectors, WordPairs
from cloze.corpus.sources.word_pairs import split_words, words_of
from cloze.corpus.stores.build import build_store
from cloze.errors import CorpusError, RecipeError
from cloze.interop.vectors import open_vectors
from cloze.text import ByteBPE, Normalise, TextSpec, Tokenizer, Words
from cloze.text.vocabularies.training import train

PAIRS = [("cat", "feline"), ("car", "motor car"), ("dog", "cat"), ("road", "street"), ("hot dog", "sausage")]
#: On a circle, by degrees: cat is nearest to feline and dog, to which it is related, then to road.
ANGLES = {"cat": 0, "feline": 5, "dog": 10, "road": 40, "street": 52, "car": 90, "motor": 95, "sausage": 180, "hot": -100}
WANT = frozenset({"related.tokens", "distractor.tokens"})


def reader_of(words: list[str]) -> Tokenizer:
    return train(TextSpec(Normalise(lower=True), Words(min_count=1)), words)


def tokenizer() -> Tokenizer:
    words = [word for pair in PAIRS for text in pair for word in text.split()]
    return reader_of(words)


def built(folder: Path, rows: list[tuple[str, str]], header: str = "en\ten", reader: Tokenizer | None = None) -> Store:
    folder.mkdir(exist_ok=True)
    (folder / "words.tsv").write_text("\n".join([header, *map("\t".join, rows)]) + "\n", encoding="utf-8")
    return build_store([folder / "words.tsv"], reader or tokenizer(), folder / "store", format="pairs")


@pytest.fixture
def vectors(tmp_path: Path) -> Any:
    radians = {word: np.deg2rad(angle) for word, angle in ANGLES.items()}
    lines = "".join(f"{word} {np.cos(a):.5f} {np.sin(a):.5f}\n" for word, a in radians.items())
    (tmp_path / "vectors.txt").write_text(lines, encoding="utf-8")
    table = TextVectors(file=str(tmp_path / "vectors.txt"))
    return table.bind(None, open_vectors(table.opens))  # type: ignore[arg-type]


def read(bound: Any, epoch: int = 0) -> list[tuple[str, str, str]]:
    """A row's word, the related one and the wrong one."""
    plan = bound.plan(epoch, 20)
    rows = bound.read(plan, np.arange(len(plan)), WANT)
    decode = bound.store.tokenizer().decode
    views = [(rows[f"{view}tokens"], rows[f"{view}length"]) for view in ("", "related.", "distractor.")]
    return [tuple(decode(tokens[i, : length[i]]) for tokens, length in views) for i in range(len(plan))]  # type: ignore[misc]


def test_a_wrong_word_is_the_nearest_that_the_lexicon_does_not_relate(tmp_path: Path, vectors: Any) -> None:
    source = WordPairs(near="words", among=200, tables={"words": vectors})
    bound = source.bind(built(tmp_path / "s", PAIRS), seed=1, entry="main")
    wrong: dict[str, set[str]] = {}
    for epoch in range(12):
        for word, related, other in read(bound, epoch):
            assert (word, related) in PAIRS or (related, word) in PAIRS
            wrong.setdefault(word, set()).add(other)
    assert wrong["cat"] == {"road"} and wrong["feline"] == {"dog"} and wrong["dog"] == {"feline"}
    assert wrong["road"] == {"dog"} and wrong["street"] == {"car"}
    assert wrong["motor car"] == {"street"}  # it stands at 92.5 degrees and is related to car
    assert wrong["hot dog"] == {"cat"}  # the mean of its words stands at -45 degrees


def test_without_vectors_wrong_words_are_random_and_never_related(tmp_path: Path) -> None:
    bound = WordPairs().bind(built(tmp_path / "s", PAIRS), seed=1, entry="main")
    found = {row for epoch in range(30) for row in read(bound, epoch)}
    assert len({other for word, _, other in found if word == "road"}) > 5
    assert all(word != other and not {(word, other), (other, word)} & set(PAIRS) for word, _, other in found)


def test_a_wrong_word_has_a_vector_if_any_candidate_has_one(tmp_path: Path, vectors: Any) -> None:
    rows = [("cat", "feline"), ("sausage", "oddity"), ("weirdness", "quaintness")]
    words = [word for row in rows for word in row]
    bound = WordPairs(near="words", among=99, swap=False, tables={"words": vectors}).bind(
        built(tmp_path / "s", rows, reader=reader_of(words)), seed=1, entry="main"
    )
    assert ("cat", "feline", "sausage") in read(bound)  # opposite to it, but the others have no vector


def test_a_row_does_not_depend_on_the_other_rows(tmp_path: Path, vectors: Any) -> None:
    bound = WordPairs(near="words", among=3, tables={"words": vectors}).bind(built(tmp_path / "s", PAIRS), seed=5, entry="main")
    plan = bound.plan(0, 20)
    whole, alone = bound.read(plan, np.arange(5), WANT), pickle.loads(pickle.dumps(bound)).read(plan, np.array([3]), WANT)
    for view in ("", "related.", "distractor."):
        length = alone[f"{view}length"][0]
        assert whole[f"{view}tokens"][3, :length].tolist() == alone[f"{view}tokens"][0, :length].tolist()


def test_swap_false_keeps_the_order_of_the_columns(tmp_path: Path) -> None:
    bound = WordPairs(swap=False).bind(built(tmp_path / "s", PAIRS), seed=1, entry="main")
    assert {row[:2] for row in read(bound)} == set(PAIRS)


def test_the_held_out_part_shares_no_word_with_training(tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    rows = [(f"w{a}", f"w{b}") for a, b in g.integers(0, 300, (2000, 2)) if a != b]
    reader = reader_of([f"w{n}" for n in range(300)])
    store = built(tmp_path / "s", rows, reader=reader)
    words = words_of(store)
    parts = split_words(store, words, 0.1)
    used = {part: {int(words.of[2 * pair + side]) for pair in pairs for side in (0, 1)} for part, pairs in parts.items()}
    assert not used["train"] & used["held_out"] and used["held_out"]
    both = len(parts["train"]) + len(parts["held_out"])
    assert len(parts["held_out"]) / both == pytest.approx(0.1, abs=0.04)
    assert both == pytest.approx(len(rows) * 0.625, rel=0.1)  # p = 1/4: 9/16 + 1/16
    bound = WordPairs().bind(store, seed=1, entry="main", held_out=0.1, subset="held_out")
    shown = {text for row in read(bound) for text in row}
    assert len(shown) <= len(used["held_out"])
    again = split_words(built(tmp_path / "t", rows[::-1], reader=reader), words_of(Store.open(tmp_path / "t" / "store")), 0.1)
    assert len(again["held_out"]) == len(parts["held_out"])  # words decide, not the order of the file


@pytest.mark.parametrize("rows", [[("a", "b"), ("b", "c"), ("a", "c")]])
def test_a_word_related_to_all_others_is_an_error(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    reader = reader_of(["a", "b", "c"])
    bound = WordPairs().bind(built(tmp_path / "s", rows, reader=reader), seed=1, entry="main")
    with pytest.raises(CorpusError, match=r"'[abc]' is related to every other word, so it has no wrong one"):
        read(bound)


def test_a_lexicon_without_a_header_is_refused(tmp_path: Path) -> None:
    store = built(tmp_path / "s", PAIRS[1:], header="cat\tfeline")
    with pytest.raises(CorpusError, match="its header names cat, feline.\n  The first line of the file must name the language"):
        WordPairs().bind(store, seed=1, entry="main")


def test_vectors_of_other_words_are_refused(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("chat 1 0\nchien 0 1\n")
    table = TextVectors(file=str(tmp_path / "v.txt")).bind(None, open_vectors(tmp_path / "v.txt"))  # type: ignore[arg-type]
    with pytest.raises(CorpusError, match="has a vector for none of the 9 words"):
        WordPairs(near="words", tables={"words": table}).bind(built(tmp_path / "s", PAIRS), seed=1, entry="main")


def test_what_a_recipe_may_not_say() -> None:
    with pytest.raises(RecipeError, match=r"there is no table 'wrods'. Did you mean 'words'\?"):
        WordPairs(near="wrods", tables={"words": object()})
    with pytest.raises(RecipeError, match="among: 0"):
        WordPairs(among=0)
    with pytest.raises(RecipeError, match=r"no file.*\n  --bind NAME=PATH"):
        TextVectors().opens  # noqa: B018


def test_with_byte_level_bpe_half_of_the_words_are_spelled_as_behind_a_space(tmp_path: Path) -> None:
    text = [" ".join(word for pair in PAIRS for word in pair)] * 20
    reader = train(TextSpec(Normalise(lower=True), ByteBPE(size=320)), text)
    store = built(tmp_path / "s", PAIRS, reader=reader)
    bound = pickle.loads(pickle.dumps(WordPairs().bind(store, seed=1, entry="main")))
    ways = {text: (tuple(reader.encode(text).ids), tuple(reader.encode(f" {text}").ids)) for pair in PAIRS for text in pair}
    assert all(start != inside for start, inside in ways.values())
    counts, want = np.zeros(2, int), frozenset({*WANT, "word_start", "sentence", "related.word_start"})
    for epoch in range(60):
        plan = bound.plan(epoch, 20)
        rows = bound.read(plan, np.arange(len(plan)), want)
        assert rows["word_start"].shape == rows["sentence"].shape == rows["tokens"].shape
        for view in ("", "related.", "distractor."):
            for tokens, length in zip(rows[f"{view}tokens"], rows[f"{view}length"], strict=True):
                ids = tuple(tokens[:length].tolist())
                start, inside = ways[reader.decode(list(ids)).strip()]
                counts += [ids == start, ids == inside]
    assert counts.sum() == 60 * 5 * 3 and abs(counts[0] / counts.sum() - 0.5) < 0.05
    again = bound.read(bound.plan(3, 20), np.array([2]), want)
    whole = bound.read(bound.plan(3, 20), np.arange(5), want)
    assert again["related.tokens"][0].tolist() == whole["related.tokens"][2, : again["related.length"][0]].tolist()


def test_a_word_that_does_not_fit_behind_a_space_stays_as_it_is(tmp_path: Path) -> None:
    reader = train(TextSpec(Normalise(lower=True), ByteBPE(size=258)), ["cat dog"] * 9)  # bytes alone
    rows_of = [("cat", "dog"), ("sun", "day"), ("sky", "air")]
    bound = WordPairs().bind(built(tmp_path / "s", rows_of, reader=reader), seed=1, entry="main")
    for epoch in range(8):
        rows = bound.read(bound.plan(epoch, 3), np.arange(3), WANT)
        assert rows["length"].tolist() == rows["related.length"].tolist() == [3, 3, 3]
