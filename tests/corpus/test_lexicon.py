"""The n-gram lexicon: what is counted, what is listed, and that the edit `match` finds it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloze.corpus import BoundLexicon, Lexicon, Store
from cloze.corpus.stores.build import build_store_from_texts
from cloze.corpus.stores.writer import StoreWriter
from cloze.corpus.tables import lexicon
from cloze.errors import CorpusError, RecipeError
from cloze.exercises.knowledge.match import Match
from cloze.rng import Draw, row_keys
from cloze.rows import Rows
from cloze.text import Normalise, TextSpec, WordPiece, train

relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
sentences_of = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=1, max_size=8)


def store_of(sentences: list[list[int]], path: Path) -> Store:
    with StoreWriter(path, vocab_size=100, roles={"[PAD]": 0, "[UNK]": 1}, tokenizer_hash="0" * 64) as writer:
        ids = np.array([i for s in sentences for i in s], dtype=np.int64)
        writer.append(ids, np.ones(len(ids), np.bool_), np.array([len(s) for s in sentences]), np.array([len(sentences)]))
        return writer.finish({"odd": {}}, lambda folder: folder.mkdir())


def plainly(sentences: list[list[int]], low: int, high: int, least: int) -> list[tuple[int, ...]]:
    counts: Counter[tuple[int, ...]] = Counter()
    for sentence in sentences:
        for size in range(low, high + 1):
            counts.update(
                gram for gram in zip(*(sentence[i:] for i in range(size)), strict=False) if not {0, 1} & set(gram)
            )
    kept = [(gram, n) for gram, n in counts.items() if n >= least]
    return [gram for gram, _ in sorted(kept, key=lambda item: (-item[1], [*item[0], *[-1] * (high - len(item[0]))]))]


@relaxed
@given(sentences=sentences_of, least=st.integers(1, 3), chunk=st.sampled_from([3, 1000]))
def test_the_counted_n_grams_are_those_of_the_plainest_code(
    sentences: list[list[int]], least: int, chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = store_of(sentences, tmp_path_factory.mktemp("lexicon") / "store")
    expected = plainly(sentences, 2, 4, least)
    before, lexicon._CHUNK = lexicon._CHUNK, chunk
    try:
        if not expected:
            with pytest.raises(CorpusError, match="the lexicon is empty"):
                Lexicon(lengths=(2, 4), min_count=least).bind(store)
            return
        bound = Lexicon(lengths=(2, 4), min_count=least).bind(store)
    finally:
        lexicon._CHUNK = before
    assert [tuple(i for i in row if i >= 0) for row in bound.grams[1:].tolist()] == expected
    assert bound.size == len(bound.grams) == len(expected) + 1 and (bound.grams[0] == -1).all()
    few = Lexicon(lengths=(2, 4), min_count=least, most=2).bind(store)
    assert few.grams.tolist() == bound.grams[:3].tolist()


@relaxed
@given(rows=st.lists(st.lists(st.integers(2, 5), min_size=1, max_size=12), min_size=1, max_size=5))
def test_every_occurrence_is_matched_and_nothing_behind_the_length(rows: list[list[int]]) -> None:
    grams = [(), (2, 3), (3, 2), (2, 3, 4), (5, 5), (4, 4, 4, 4)]
    bound = BoundLexicon(np.array([[*gram, *[-1] * (4 - len(gram))] for gram in grams], dtype=np.int32))
    tokens = np.full((len(rows), 12), 5, dtype=np.int32)
    for block, row in zip(tokens, rows, strict=True):
        block[: len(row)] = row
    expected = [
        (number, at, len(gram), item)
        for number, row in enumerate(rows) for at in range(len(row)) for item, gram in enumerate(grams)
        if item and tuple(row[at : at + len(gram)]) == gram
    ]
    found = bound.match(tokens, np.array([len(row) for row in rows]))
    assert list(zip(*(column.tolist() for column in found), strict=True)) == sorted(expected, key=lambda m: m[:3])
    for number, row in enumerate(rows):
        alone = bound.match(tokens[number : number + 1], np.array([len(row)]))
        assert alone.item.tolist() == found.item[found.row == number].tolist()


def test_a_list_is_read_by_the_stores_tokenizer(tmp_path: Path) -> None:
    texts = ["北京大学在北京。我们在学习。"] * 3
    tokenizer = train(TextSpec(Normalise(), WordPiece(size=60)), texts)
    store = build_store_from_texts(texts, tokenizer, tmp_path / "store")
    (tmp_path / "list.txt").write_text("北京\n北京大学\n我\n学习\n鲸鱼\n", encoding="utf-8")
    bound = Lexicon(file=str(tmp_path / "list.txt")).bind(store)
    spelled = [tokenizer.decode([i for i in row if i >= 0]).replace(" ", "") for row in bound.grams[1:].tolist()]
    assert spelled == ["北京", "北京大学", "学习"]  # one character is too short, 鲸鱼 is unknown
    assert Lexicon.restored(bound.arrays).hash == bound.hash
    with pytest.raises(CorpusError, match="expected n-grams"):
        Lexicon.restored({})


def test_the_edit_match_finds_what_the_lexicon_counted(tmp_path: Path) -> None:
    store = store_of([[2, 3, 4], [2, 3], [5, 5]], tmp_path / "store")
    bound = Lexicon(lengths=(2, 3), min_count=1).bind(store)
    tokens = np.array([[9, 2, 3, 4, 0], [5, 5, 5, 2, 3]], dtype=np.int32)
    rows = Match(table="ngrams", tables={"ngrams": bound})(
        Rows({"tokens": tokens, "length": np.array([4, 4])}), Draw(row_keys(1, items=np.arange(2)))
    )
    spelled = [[tuple(i for i in bound.grams[n].tolist() if i >= 0) for n in row if n] for row in rows["items/ngram"].tolist()]
    assert spelled == [[(2, 3), (2, 3, 4), (3, 4)], [(5, 5), (5, 5)]]


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(RecipeError, match="the fewest and the most tokens"):
        Lexicon(lengths=(3, 2))
    with pytest.raises(RecipeError, match="expected 1 or more"):
        Lexicon(most=0)
