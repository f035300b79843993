"""Parallel text: tables and aligned files, a store of pairs, and the source that reads it."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest

from cloze.corpus import Pairs, Passages, Store
from cloze.corpus.build import build_store, build_store_from_texts, train_tokenizer_from
from cloze.corpus.readers.pairs import find_pairs, read_pairs
from cloze.corpus.report import Report
from cloze.errors import CorpusError, RecipeError
from cloze.text import Normalise, TextSpec, WordPiece

ROWS = [("The cat sleeps.", "猫睡觉。"), ("It dreams of fish!", "它梦见鱼！"), ("Good night, cat.", "晚安，猫。")]
SPEC = TextSpec(Normalise(lower=True), WordPiece(size=120))


def table(path: Path, rows: list[tuple[str, str]], header: str = "en\tzh") -> Path:
    path.write_text("\n".join([header, *("\t".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    source = table(tmp_path / "tatoeba.tsv", ROWS * 20)
    return build_store(
        [source], train_tokenizer_from([source], SPEC, format="pairs"), tmp_path / "store", format="pairs"
    )


def pairs_of(*paths: Path) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    names, blocks = read_pairs(paths, Report())
    rows = []
    for block in blocks:
        assert isinstance(block.data, list)
        rows += [(*block.data[i : i + 2], *(names[n] for n in block.languages)) for i in range(0, len(block.data), 2)]
    return names, rows


def test_tables_and_aligned_files_give_the_same_pairs(tmp_path: Path) -> None:
    expected = [(*row, "en", "zh") for row in ROWS]
    assert pairs_of(table(tmp_path / "a.tsv", ROWS)) == (("en", "zh"), expected)
    (tmp_path / "folder").mkdir()
    with lzma.open(tmp_path / "folder" / "news.en.xz", "wt", encoding="utf-8") as file:
        file.write("\r\n".join(row[0] for row in ROWS))
    (tmp_path / "folder" / "news.zh").write_text("\ufeff" + "\n".join(row[1] for row in ROWS), encoding="utf-8")
    (tmp_path / "folder" / "README.md").write_text("not text")
    assert pairs_of(tmp_path / "folder") == (("en", "zh"), expected)


def test_several_pairs_of_languages_share_one_list_of_names(tmp_path: Path) -> None:
    first = table(tmp_path / "a.tsv", ROWS)
    second = table(tmp_path / "b.tsv", [("Le chat dort.", "The cat sleeps.")], "fr\ten")
    names, rows = pairs_of(first, second)
    assert names == ("en", "zh", "fr") and rows[-1][2:] == ("fr", "en")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("The cat.\t猫。\n", r"t\.tsv:1: expected a header"), ("en\ten\na\tb\n", r"t\.tsv:1: expected a header"),
        ("en\tzh\na\tb\nc\n", r"t\.tsv:3: 1 columns, expected 2"), ("en\tzh\na\tb\tc\n", r"t\.tsv:2: 3 columns"),
        ("en\tzh\na\t \n", r"t\.tsv:2: the second side of this pair is empty"), ("en\tzh\n\n", "no pair of sentences"),
    ],
)
def test_a_ragged_table_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        pairs_of(tmp_path / "t.tsv")


def test_unaligned_files_are_reported_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "n.en").write_text("a\nb\nc\n")
    (tmp_path / "n.zh").write_text("x\ny\n")
    with pytest.raises(CorpusError, match=r"n\.en:3: this line has no translation: .*n\.zh ends at line 2"):
        pairs_of(tmp_path / "n.en", tmp_path / "n.zh")
    with pytest.raises(CorpusError, match="expected two that differ in their ending"):
        find_pairs([tmp_path / "n.en"])
    (tmp_path / "n.zh").write_bytes(b"x\ny\n" + "中".encode("gb18030"))
    with pytest.raises(CorpusError, match=r"n\.zh:3: not UTF-8"):
        pairs_of(tmp_path / "n.en", tmp_path / "n.zh")
    with pytest.raises(CorpusError, match="no such file"):
        find_pairs([tmp_path / "n.fr"])


def test_every_document_of_the_store_is_a_pair(store: Store) -> None:
    assert store.pairs and store.languages == ("en", "zh")
    assert np.diff(store.document_sentences).tolist() == [2] * 60
    assert store.document_languages.tolist() == [[0, 1]] * 60
    assert store.report["formats"] == {"pairs": 1}


def test_pairs_give_a_sentence_and_its_translation_in_both_directions(store: Store) -> None:
    tokenizer = store.tokenizer()
    bound = Pairs().bind(store, seed=3, entry="main")
    plan = bound.plan(0, 20)
    want = frozenset({"language", "word_start", "translation.tokens", "translation.language", "translation.word_start"})
    rows = bound.read(plan, np.arange(len(plan)), want)
    ids = {text: tokenizer.encode(text).ids.tolist() for row in ROWS for text in row}
    seen = set()
    for i in range(len(plan)):
        a = rows["tokens"][i, : rows["length"][i]].tolist()
        b = rows["translation.tokens"][i, : rows["translation.length"][i]].tolist()
        (pair,) = [row for row in ROWS if [a, b] in ([ids[row[0]], ids[row[1]]], [ids[row[1]], ids[row[0]]])]
        side = [a, b].index(ids[pair[0]])
        assert (rows["language"][i], rows["translation.language"][i]) == ((0, 1) if side == 0 else (1, 0))
        seen.add((pair, side))
        assert plan.lengths(np.array([i]))[0] == len(a) + len(b)
    assert len(seen) == 6
    alone = bound.read(plan, np.array([7]), want)
    assert alone["tokens"][0, : alone["length"][0]].tolist() == rows["tokens"][7, : rows["length"][7]].tolist()
    straight = Pairs(swap=False).bind(store, seed=3, entry="main")
    assert not straight.read(straight.plan(0, 20), np.arange(60), want)["language"].any()


def test_a_side_longer_than_the_room_is_cut(store: Store) -> None:
    bound = Pairs().bind(store, seed=3, entry="main")
    rows = bound.read(bound.plan(0, 2), np.arange(60), frozenset({"translation.tokens"}))
    assert set(rows["length"].tolist()) == set(rows["translation.length"].tolist()) == {2}
    with pytest.raises(RecipeError, match="room"):
        bound.plan(0, 1)


def test_pairs_of_languages_are_smoothed(tmp_path: Path) -> None:
    paths = [table(tmp_path / "a.tsv", ROWS * 27), table(tmp_path / "b.tsv", ROWS * 3, "fr\tzh")]
    store = build_store(paths, train_tokenizer_from(paths, SPEC, format="pairs"), tmp_path / "store", format="pairs")
    bound = Pairs(languages={"smooth": 0.5}).bind(store, seed=3, entry="main")
    rows = bound.read(bound.plan(0, 20), np.arange(90), frozenset({"language", "translation.language"}))
    french = (rows["language"] == 2) | (rows["translation.language"] == 2)
    assert french.sum() == round(90 * 0.25)  # .1^.5 / (.9^.5 + .1^.5) = 1/4


def test_running_text_and_pairs_are_not_mistaken_for_each_other(store: Store, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="with the source pairs"):
        Passages().bind(store, seed=1, entry="main")
    plain = build_store_from_texts(["The cat sleeps."] * 3, store.tokenizer(), tmp_path / "plain")
    with pytest.raises(CorpusError, match="--format pairs"):
        Pairs().bind(plain, seed=1, entry="main")
