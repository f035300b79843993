"""Parallel text: tables and aligned files, a store of pairs, and the source that reads it."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest

from cloze.corpus import Cooccurrences, Pairs, Passages, Store, Streams, TermDocuments
from cloze.corpus.readers.pair_files import find_pairs, read_pairs
from cloze.corpus.readers.report import CorpusReport
from cloze.corpus.stores.build import build_store, build_store_from_texts, train_tokenizer_from
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
    names, blocks = read_pairs(paths, CorpusReport())
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
        ("The cat.\t猫。\n", r"t\.tsv:1: expected a header"), ("en\t\na\tb\n", r"t\.tsv:1: expected a header"),
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
    with pytest.raises(CorpusError, match="expected two with different endings"):
        find_pairs([tmp_path / "n.en"])
    (tmp_path / "n.zh").write_bytes(b"x\ny\n" + "中".encode("gb18030"))
    with pytest.raises(CorpusError, match=r"n\.zh:3: byte 0x.. is not UTF-8.*\n.*Convert it first: iconv -f NAME"):
        pairs_of(tmp_path / "n.en", tmp_path / "n.zh")
    with pytest.raises(CorpusError, match="no such file"):
        find_pairs([tmp_path / "n.fr"])


def test_every_document_of_the_store_is_a_pair(store: Store) -> None:
    assert store.pairs and store.languages == ("en", "zh")
    assert np.diff(store.document_sentences).tolist() == [2] * 60
    assert store.document_languages.tolist() == [[0, 1]] * 60
    assert store.report["formats"] == {"pairs": 1}


def test_two_columns_of_one_language_are_no_translations(tmp_path: Path) -> None:
    words = table(tmp_path / "w.tsv", [("cat", "feline"), ("road", "street")], "en\ten")
    store = build_store([words], train_tokenizer_from([words], SPEC, format="pairs"), tmp_path / "store", format="pairs")
    with pytest.raises(CorpusError, match="both columns are in one language, en; expected a text and its translation"):
        Pairs().bind(store, seed=1, entry="main")


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
    with pytest.raises(RecipeError, match="can hold"):
        bound.plan(0, 1)


def test_pairs_of_languages_are_smoothed(tmp_path: Path) -> None:
    paths = [table(tmp_path / "a.tsv", ROWS * 27), table(tmp_path / "b.tsv", ROWS * 3, "fr\tzh")]
    store = build_store(paths, train_tokenizer_from(paths, SPEC, format="pairs"), tmp_path / "store", format="pairs")
    bound = Pairs(languages={"smooth": 0.5}).bind(store, seed=3, entry="main")
    rows = bound.read(bound.plan(0, 20), np.arange(90), frozenset({"language", "translation.language"}))
    french = (rows["language"] == 2) | (rows["translation.language"] == 2)
    assert french.sum() == round(90 * 0.25)  # .1^.5 / (.9^.5 + .1^.5) = 1/4


def test_running_text_and_pairs_are_not_mistaken_for_each_other(store: Store, tmp_path: Path) -> None:
    for source in (Passages(), Cooccurrences(), TermDocuments()):
        with pytest.raises(CorpusError, match="with the source pairs"):
            source.bind(store, seed=1, entry="main")
    with pytest.raises(CorpusError, match="with the source pairs"):
        Streams().bind(store, seed=1, entry="main", lanes=2)
    plain = build_store_from_texts(["The cat sleeps."] * 3, store.tokenizer(), tmp_path / "plain")
    with pytest.raises(CorpusError, match="--format pairs"):
        Pairs().bind(plain, seed=1, entry="main")


def test_nothing_is_held_out_of_a_small_store_of_smoothed_languages(tmp_path: Path) -> None:
    source = table(tmp_path / "a.tsv", ROWS)
    store = build_store([source], train_tokenizer_from([source], SPEC, format="pairs"), tmp_path / "store", format="pairs")
    for alternate in (False, True):
        few = Pairs(languages={"smooth": 0.7}, alternate=alternate)
        assert len(few.bind(store, seed=1, entry="main", held_out=0.1, subset="held_out").plan(0, 20)) == 0
        assert len(few.bind(store, seed=1, entry="main", held_out=0.1).plan(0, 200)) > 0


# ---- distractors -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Pairs of words that say which pair they are: 40 English-Chinese, then 30 French-Chinese, then 1 English-French."""
    folder = tmp_path_factory.mktemp("numbered")
    tables = [
        table(folder / "a.tsv", [(f"en {i} x", f"zh {i}") for i in range(40)]),
        table(folder / "b.tsv", [(f"fr {i} y", f"zh {i} z") for i in range(30)], "fr\tzh"),
        table(folder / "c.tsv", [("en 7", "fr 7")], "en\tfr"),
    ]
    return build_store(tables, train_tokenizer_from(tables, SPEC, format="pairs"), folder / "store", format="pairs")


def test_a_distractor_is_the_same_side_of_another_pair_of_the_same_languages(numbered: Store) -> None:
    bound = Pairs().bind(numbered, seed=3, entry="main")
    plan = bound.plan(0, 20)
    items = np.arange(len(plan))
    want = frozenset({
        "language", "translation.tokens", "translation.language", "distractor.tokens", "distractor.language",
        "distractor.document", "document",
    })
    rows = bound.read(plan, items, want)
    assert (rows["distractor.language"] == rows["translation.language"]).all()
    kinds = np.sort(numbered.document_languages, axis=1).tolist()
    other, own = rows["distractor.document"], rows["document"]
    assert all(kinds[a] == kinds[b] for a, b in zip(own, other, strict=True))
    alone = own == 70  # the only English-French pair has no other
    assert (other != own)[~alone].all() and other[alone].tolist() == [70]
    for item in (0, 33):
        again = bound.read(plan, items[item : item + 1], want)
        size = int(again["distractor.length"][0])
        assert again["distractor.tokens"][0, :size].tolist() == rows["distractor.tokens"][item, :size].tolist()


def test_every_other_pair_is_drawn_alike(numbered: Store) -> None:
    bound = Pairs(swap=False).bind(numbered, seed=3, entry="main")
    drawn = np.zeros((40, 40), int)
    for epoch in range(200):
        plan = bound.plan(epoch, 20)
        rows = bound.read(plan, np.arange(len(plan)), frozenset({"distractor.tokens", "document"}))
        english = rows["document"] < 40
        np.add.at(drawn, (rows["document"][english], rows["distractor.document"][english]), 1)
    assert not drawn.diagonal().any() and drawn.sum() == 8000
    others = drawn[~np.eye(40, dtype=bool)]
    chi_square = ((others - 8000 / 1560) ** 2).sum() / (8000 / 1560)
    assert abs(chi_square - 1559) < 4 * (2 * 1559) ** 0.5


# ---- documents that alternate ----------------------------------------------------------------------------------------


def shown(bound: object, plan: object, item: int, want: frozenset[str] = frozenset()) -> tuple[list[int], list[int]]:
    rows = bound.read(plan, np.array([item]), want)  # type: ignore[attr-defined]
    size = int(rows["length"][0])
    return rows["tokens"][0, :size].tolist(), rows["inputs/language"][0, :size].tolist()


def test_every_second_sentence_is_its_translation(numbered: Store) -> None:
    tokenizer = numbered.tokenizer()
    bound = Pairs(swap=False, alternate=True).bind(numbered, seed=3, entry="main")
    assert "inputs/language" in bound.gives and "translation.tokens" not in bound.gives
    plan = bound.plan(0, 10_000)
    assert len(plan) == 3  # a run for each pair of languages
    rows = {tuple(languages): tokens for tokens, languages in (shown(bound, plan, i) for i in range(3))}
    expected = []
    for i in range(40):
        expected += tokenizer.encode(f"zh {i}" if i % 2 else f"en {i} x").ids.tolist()
    (english,) = [languages for languages in rows if 0 in languages and 1 in languages]
    assert rows[english] == expected
    wholes = [(f"fr {i} y" if i % 2 == 0 else f"zh {i} z") for i in range(30)]
    assert [t for text in wholes for t in tokenizer.encode(text).ids.tolist()] in rows.values()


def test_rows_of_alternating_text_fill_the_room_and_lose_nothing(numbered: Store) -> None:
    bound = Pairs(swap=False, alternate=True).bind(numbered, seed=3, entry="main")
    whole, cut = bound.plan(0, 10_000), bound.plan(0, 7)
    everything = sorted(shown(bound, whole, i) for i in range(len(whole)))
    pieces = [shown(bound, cut, int(np.flatnonzero(cut.order == row)[0])) for row in range(len(cut))]
    joined: list[tuple[list[int], list[int]]] = []
    for row, (tokens, languages) in enumerate(pieces):
        if row == 0 or len(pieces[row - 1][0]) < 7:
            joined.append(([], []))
        joined[-1][0].extend(tokens)
        joined[-1][1].extend(languages)
    assert sorted(joined) == everything
    assert all(cut.lengths(np.array([i]))[0] == len(shown(bound, cut, i)[0]) <= 7 for i in range(len(cut)))


def test_layers_of_alternating_text_belong_to_its_tokens(numbered: Store) -> None:
    tokenizer = numbered.tokenizer()
    bound = Pairs(alternate=True).bind(numbered, seed=3, entry="main")
    plan = bound.plan(2, 9)
    items = np.arange(len(plan))
    rows = bound.read(plan, items, frozenset({"word_start", "sentence"}))
    for i in items.tolist():
        size = int(rows["length"][i])
        changes = np.flatnonzero(np.diff(rows["sentence"][i, :size])) + 1
        assert rows["sentence"][i, 0] == 0 and set(np.diff(rows["sentence"][i, :size]).tolist()) <= {0, 1}
        assert (rows["inputs/language"][i, changes] != rows["inputs/language"][i, changes - 1]).all()
        first = tokenizer.piece(int(rows["tokens"][i, 0]))
        assert rows["word_start"][i, 0] == (not first.startswith("##"))
        alone = bound.read(plan, items[i : i + 1], frozenset())
        assert alone["tokens"][0].tolist() == rows["tokens"][i, :size].tolist()


def test_the_side_that_begins_is_drawn_anew_in_every_epoch(numbered: Store) -> None:
    bound = Pairs(alternate=True).bind(numbered, seed=3, entry="main")
    first = [tuple(sorted(shown(bound, bound.plan(e, 10_000), i)[1][0] for i in range(3))) for e in range(12)]
    assert len(set(first)) > 1 and first == [
        tuple(sorted(shown(bound, bound.plan(e, 10_000), i)[1][0] for i in range(3))) for e in range(12)
    ]
    static = Pairs(alternate=True, static=True).bind(numbered, seed=3, entry="main")
    texts = [sorted(shown(static, static.plan(e, 10_000), i) for i in range(3)) for e in range(4)]
    assert all(text == texts[0] for text in texts)


def test_held_out_pairs_are_in_no_row_of_the_training_part(numbered: Store) -> None:
    parts = {
        part: Pairs(alternate=True).bind(numbered, seed=3, entry="main", held_out=0.2, subset=part)  # type: ignore[arg-type]
        for part in ("train", "held_out")
    }
    documents = {part: set(bound.documents.tolist()) for part, bound in parts.items()}  # type: ignore[union-attr]
    assert documents["held_out"] and not documents["train"] & documents["held_out"]
    assert parts["train"].tokens + parts["held_out"].tokens == len(numbered.tokens)
    assert len(parts["held_out"].plan(0, 10)) > 0


def test_languages_of_alternating_text_are_smoothed(numbered: Store) -> None:
    bound = Pairs(alternate=True, languages={"smooth": 0.0}).bind(numbered, seed=3, entry="main")
    plan = bound.plan(0, 4)
    kinds = [tuple(sorted(map(int, numbered.document_languages[d]))) for d in plan.passages.document[plan.order].tolist()]
    counts = [kinds.count(kind) for kind in set(kinds)]
    assert len(counts) == 3 and max(counts) - min(counts) <= 1
    assert len(np.unique(plan.address(np.arange(len(plan)), static=False))) == len(plan)  # a repeated row is masked differently


def test_a_row_of_alternating_text_needs_room(numbered: Store) -> None:
    with pytest.raises(RecipeError, match="can hold 1 tokens of text; expected 2"):
        Pairs(alternate=True).bind(numbered, seed=3, entry="main").plan(0, 1)
