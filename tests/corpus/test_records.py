"""Labelled text: files → a store of records → rows with their answers."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.corpus import Store
from cloze.corpus.records import Records, RecordStore
from cloze.corpus.records.check import check_records
from cloze.corpus.records.windows import shares, windows
from cloze.corpus.records.words import first_tokens
from cloze.errors import CorpusError, TaskError
from cloze.text import TextSpec, Tokenizer, train
from cloze.text.tokenizer import Spelled

TEXTS = ["the cat sat on the mat", "", "rain on the river all night", "a dog", "the dog saw the cat in the rain"]
LABELS = ["animal", "weather", "weather", "animal", "animal"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    spec = TextSpec.of({"lower": True}, "wordpiece", {"size": 120})
    return train(spec, [text for text in TEXTS if text])


def write(path: Path, rows: list[tuple[str, ...]]) -> Path:
    path.write_text("\n".join("\t".join(row) for row in rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write(tmp_path / "train.tsv", [("text", "label"), *zip(TEXTS, LABELS, strict=True)])


def built(source: Records, path: Path, tokenizer: Tokenizer, known: Store | None = None) -> RecordStore:
    return source.build_store([path], tokenizer, path.with_suffix(".store"), base=known, report=lambda line: None)


def rows_of(source: Records, store: Store, max_tokens: int, **how: Any) -> tuple[Any, Any]:
    bound = source.bind(store, seed=1, entry="main", **how)
    plan = bound.plan(0, max_tokens)
    return bound.read(plan, np.arange(len(plan)), frozenset()), plan


def test_a_store_holds_every_record_with_its_line_and_class(table: Path, tokenizer: Tokenizer) -> None:
    store = built(Records(), table, tokenizer)
    assert store.classes == ("animal", "weather")
    assert store.lines.tolist() == [2, 3, 4, 5, 6]
    assert store.columns["label"].tolist() == [0, 1, 1, 0, 0]
    for number, text in enumerate(TEXTS):
        ids = store.tokens[store.sentence_starts[number] : store.sentence_starts[number + 1]]
        assert ids.tolist() == tokenizer.encode(text).ids.tolist()
    again = Store.open(store.path, verify=True)
    assert isinstance(again, RecordStore) and isinstance(pickle.loads(pickle.dumps(again)), RecordStore)


def test_a_row_holds_the_tokens_and_the_answer_of_its_record(table: Path, tokenizer: Tokenizer) -> None:
    source = Records()
    store = built(source, table, tokenizer)
    rows, plan = rows_of(source, store, 4)
    for row, record in enumerate(plan.order):
        ids = tokenizer.encode(TEXTS[record]).ids[:4]
        assert rows["tokens"][row, : rows["length"][row]].tolist() == ids.tolist()
        assert store.classes[rows["column/label"][row]] == LABELS[record]


def test_dev_text_takes_the_classes_of_the_training_text(tmp_path: Path, table: Path, tokenizer: Tokenizer) -> None:
    source = Records()
    train_store = built(source, table, tokenizer)
    dev = write(tmp_path / "dev.tsv", [("text", "label"), ("the cat", "weather")])
    assert built(source, dev, tokenizer, train_store).columns["label"].tolist() == [1]
    wrong = write(tmp_path / "wrong.tsv", [("text", "label"), ("the cat", "weather"), ("a dog", "wether")])
    with pytest.raises(TaskError, match=r"wrong\.tsv:3: the label 'wether' does not occur .* Did you mean 'weather'\?"):
        built(source, wrong, tokenizer, train_store)
    assert not wrong.with_suffix(".store").exists()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([("text", "label"), ("a", "x"), ("b", " ")], r":3: an empty 'label'; expected a label in every row"),
        ([("text", "other"), ("a", "x")], r"no column 'label'; it has: text, other"),
        ([("text", "label"), ("a", "x", "y")], r":2: 3 cells, expected 2"),
    ],
)
def test_a_row_that_cannot_be_used_is_told_with_its_line(
    tmp_path: Path, tokenizer: Tokenizer, rows: list[tuple[str, ...]], told: str
) -> None:
    with pytest.raises(TaskError, match=told):
        built(Records(), write(tmp_path / "x.tsv", rows), tokenizer)
    assert [path.name for path in tmp_path.iterdir()] == ["x.tsv"]


def test_two_texts_are_two_parts(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "p.tsv", [("a", "b", "label"), ("the cat sat", "a dog", "1"), ("rain", "", "0")])
    source = Records(text="a", text_b="b")
    rows, plan = rows_of(source, built(source, path, tokenizer), 50)
    for row, record in enumerate(plan.order):
        one, two = (("the cat sat", "a dog"), ("rain", ""))[record]
        (start, middle), (begin, stop) = rows["parts"][row]
        assert (start, begin) == (0, middle)
        assert rows["tokens"][row, :middle].tolist() == tokenizer.encode(one).ids.tolist()
        assert rows["tokens"][row, begin:stop].tolist() == tokenizer.encode(two).ids.tolist()


def test_word_labels_stand_at_the_first_token_of_each_word(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "train.conll"
    path.write_text("the\tDET\ntheon\tADJ\ncat\tNOUN\n\nrain\tNOUN\n\n", encoding="utf-8")
    source = Records(answer="words")
    store = built(source, path, tokenizer)
    assert store.classes == ("ADJ", "DET", "NOUN")
    rows, plan = rows_of(source, store, 50)
    row = plan.order.tolist().index(0)
    sizes = [len(tokenizer.encode(word).ids) for word in ("the", "theon", "cat")]
    assert sizes[1] > 1
    assert rows["words"][row].tolist() == [0, 1, 1 + sizes[1]]
    assert [store.classes[code] for code in rows["column/label"][row]] == ["DET", "ADJ", "NOUN"]
    assert rows["column/label"][1 - row].tolist()[1:] == [-1, -1]
    cut, plan = rows_of(source, store, 1 + sizes[1])
    assert cut["words"][plan.order.tolist().index(0)].tolist() == [0, 1, -1]


def test_a_store_of_words_says_how_many_ideographs_a_word_has(tmp_path: Path, tokenizer: Tokenizer) -> None:
    for words, expected in ((["我", "北京", "cat"], {"ideographs": 1.5}), (["cat"], {})):
        path = write(tmp_path / f"{len(words)}.conll", [*((word, "X") for word in words), ("",)])
        assert built(Records(answer="words"), path, tokenizer).about["described"] == expected


def test_the_space_before_a_word_may_count_as_its_first_token() -> None:
    """▁a ▁ ½ ▁b of `a ½ \x10 b`, in which the tokenizer drops the third word; transformers' `word_ids`: 0 1 1 3."""
    found = Spelled(
        np.arange(4, dtype=np.int32), np.ones(4, bool), np.array([0, 4]), np.array([0, 1, 2, 5]), np.array([1, 2, 3, 7])
    )
    words = ("a", "½", "\x10", "b")
    assert first_tokens(found, 0, words).tolist() == [0, 2, -1, 3]
    assert first_tokens(found, 0, words, spaced=True).tolist() == [0, 1, -1, 3]


@pytest.mark.parametrize(("labels", "scheme", "said"), [
    ("O B-X I-X | I-X O | B-Y I-X", "BIO", "x.conll:5: I-X at the start of a text breaks the scheme BIO, as do 1 more"),
    ("O B-X E-X | S-X B-X | B-X I-X O", "BIOES", "x.conll:6: B-X at the end of a text breaks the scheme BIOES, as do 1 more"),
    ("O B-X O E-X | S-X", "BIOES", "x.conll:2: B-X before O breaks the scheme BIOES, as do 1 more"),
    ("O o B-X", "BIO", "x.conll:2: the label 'o' has no prefix, as others have"),
    ("O B-X I-X | B-Y 0 O", "BIO", "x.conll:6: the label '0' has no prefix, as others have"),
    (" ".join(["O"] * 100), "BIO", "x.conll: all 100 words are one text. An empty line ends a text"),
    ("O B-X I-X | DET NOUN", None, ""),
])  # fmt: skip
def test_labels_that_break_their_scheme_are_told_with_the_line(
    tmp_path: Path, tokenizer: Tokenizer, labels: str, scheme: str | None, said: str
) -> None:
    path = tmp_path / "x.conll"
    path.write_text("\n\n".join("\n".join(f"a\t{label}" for label in text.split()) for text in labels.split("|")) + "\n")
    told: list[str] = []
    Records(answer="words").build_store([path], tokenizer, path.with_suffix(".store"), base=None, report=told.append)
    assert len(told) == (1 if scheme is None else 2)
    assert scheme is None or said in told[1]
    source = Records(answer="words")
    assert check_records([path], source.answer, source.columns).remarks == tuple(told[1:])


def test_an_epoch_has_every_record_once_in_batches_of_like_length(tmp_path: Path, tokenizer: Tokenizer) -> None:
    chance = np.random.default_rng(0)
    texts = [" ".join(["the"] * int(size)) for size in chance.integers(1, 60, 203)]
    path = write(tmp_path / "t.tsv", [("text", "label"), *((text, str(n % 2)) for n, text in enumerate(texts))])
    source = Records(pool=5)
    bound = source.bind(built(source, path, tokenizer), seed=1, entry="main", batch=8)
    orders = [bound.plan(epoch, 100).order for epoch in range(3)]
    assert all(sorted(order.tolist()) == list(range(203)) for order in orders)
    assert orders[0].tolist() != orders[1].tolist()
    assert bound.plan(0, 100).order.tolist() == orders[0].tolist()
    lengths = np.array([len(text.split()) for text in texts])
    rows = np.concatenate(orders)[: 203 * 3 // 8 * 8].reshape(-1, 8)  # batches go on over the end of an epoch
    spread = np.ptp(lengths[rows], axis=1)
    random = np.ptp(lengths[chance.permutation(203)][: 25 * 8].reshape(-1, 8), axis=1)
    for epoch in (spread[:25], spread[26:50], spread[51:]):
        assert np.median(epoch) < 0.4 * np.median(random)


@settings(deadline=None)
@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=1, max_size=9)),
    st.integers(1, 30),
)
def test_the_longest_text_gives_way_first(lengths: list[list[int]], max_tokens: int) -> None:
    from cloze.decoding.layout import _shares

    assert shares(np.array(lengths), max_tokens).tolist() == [_shares(own, max_tokens) for own in lengths]


def test_running_text_is_no_labelled_text(make_store: Any) -> None:
    with pytest.raises(CorpusError, match="this store holds running text, not labelled records"):
        Records().bind(make_store([[3, 4]]), seed=0, entry="main")


def test_files_of_any_size_are_read_in_constant_memory(tmp_path: Path) -> None:
    import tracemalloc

    from cloze.corpus.records import ClassAnswer
    from cloze.corpus.records.answer import Columns

    rows = [("text", "label"), *(("the cat sat on the mat " * 20, str(n % 3)) for n in range(3_000))]
    path = write(tmp_path / "big.tsv", rows)
    tracemalloc.start()
    assert sum(1 for _ in ClassAnswer().read(path, Columns("text", None, "label", None, None, "auto"))) == 3_000
    assert tracemalloc.get_traced_memory()[1] < 200_000 < path.stat().st_size / 5
    tracemalloc.stop()


def test_a_damaged_store_is_refused(table: Path, tokenizer: Tokenizer) -> None:
    store = built(Records(), table, tokenizer)
    lines = store.path / "records" / "lines.bin"
    lines.write_bytes(lines.read_bytes()[:-8])
    with pytest.raises(CorpusError, match=r"lines\.bin: has 32 bytes, expected 40 bytes"):
        Store.open(store.path)


@pytest.mark.parametrize(
    ("kind", "name", "text", "told", "kept"),
    [
        ("class", "x.tsv", "text\tlabel\na\tx\nb\t \nc\ty\td\ne\tz\n",
         [(3, "an empty 'label'"), (4, "3 cells, expected 2")], [2, 5]),
        ("class", "x.jsonl", '{"text": "a", "label": 1}\n[2]\n{"text": "b"}\nx\n{"text": "c", "label": 2}\n',
         [(2, "expected a JSON object"), (3, "no value for 'label'"), (4, "not JSON")], [1, 5]),
        ("class", "x.csv", "text,label\na\nb,x\n", [(2, "1 cell, expected 2")], [3]),
        ("class", "x.csv", "text,label\na,x\ntext,label\nb,y\n", [(3, "the header line once more")], [2, 4]),
        ("words", "x.conll", "a\tX\nb\n\nc\tY\n\nd\t\n\n", [(2, "1 cell, expected 2"), (6, "an empty 'label'")], [4]),
        ("words", "x.jsonl", '{"text": ["a"], "label": []}\n{"text": "a b", "label": ["X"]}\n{"text": "a", "label": ["X"]}\n',
         [(1, "'label' is not a list of labels"), (2, "2 words and 1 labels")], [3]),
    ],
)  # fmt: skip
def test_every_row_that_cannot_be_used_is_told_and_left_out(
    tmp_path: Path, kind: str, name: str, text: str, told: list[tuple[int, str]], kept: list[int]
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    source, faults = Records(answer=kind), list[tuple[int, str]]()
    records = list(source.answer.read(tmp_path / name, source.columns, lambda line, why: faults.append((line, why))))
    assert [record.line for record in records] == kept
    assert [line for line, _ in faults] == [line for line, _ in told]
    assert all(wanted in why for (_, wanted), (_, why) in zip(told, faults, strict=True))
    with pytest.raises(TaskError, match=rf"{name}:{told[0][0]}: "):
        list(source.answer.read(tmp_path / name, source.columns))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60)), min_size=1, max_size=9), st.integers(2, 40), st.integers(1, 20)
)
def test_windows_show_every_token_of_the_last_text(lengths: list[tuple[int, int]], max_tokens: int, stride: int) -> None:
    texts = np.array(lengths, np.int64)
    left = [max_tokens - (one if one + two <= max_tokens else min(one, max_tokens // 2)) for one, two in lengths]
    if any(two > own and stride >= own for (_, two), own in zip(lengths, left, strict=True)):
        with pytest.raises(CorpusError, match=r"start \d+ tokens apart, but only \d+ tokens .* windows would not overlap"):
            windows(texts, max_tokens, stride)
        return
    record, shown = windows(texts, max_tokens, stride)
    assert (shown.kept.sum(1) <= max_tokens).all()
    for number, (one, two) in enumerate(lengths):
        own = np.flatnonzero(record == number)
        first, kept = shown.first[own, 1], shown.kept[own, 1]
        seen = {token for begin, count in zip(first, kept, strict=True) for token in range(begin, begin + count)}
        assert seen == set(range(two)) and (len(own) == 1) == (two <= left[number])
        assert first.tolist() == [stride * turn for turn in range(len(own))]  # each is needed: none begins behind the end
        assert all(begin + count < two for begin, count in zip(first[:-1], kept[:-1], strict=True))
        assert set(shown.kept[own, 0]) == {one if one + two <= max_tokens else min(one, max_tokens // 2)}


def test_a_long_record_becomes_windows_that_each_draw_for_themselves(tmp_path: Path, tokenizer: Tokenizer) -> None:
    long = " ".join(["the cat sat on the mat"] * 4)
    path = write(tmp_path / "p.tsv", [("a", "b", "label"), ("the dog", long, "1"), ("rain", "a dog", "0")])
    source = Records(text="a", text_b="b", stride=3)
    rows, plan = rows_of(source, built(source, path, tokenizer), 10)
    question, ids = (tokenizer.encode(text).ids.tolist() for text in ("the dog", long))
    assert rows["document"].tolist().count(1) == 1
    seen = []
    for row in np.flatnonzero(rows["document"] == 0):
        (start, middle), (begin, stop) = rows["parts"][row]
        assert rows["tokens"][row, start:middle].tolist() == question
        seen.append(rows["tokens"][row, begin:stop].tolist())
    assert sorted(seen) == sorted(ids[first : first + 10 - len(question)] for first in range(0, 3 * len(seen), 3))
    bound = source.bind(built(source, path, tokenizer), seed=1, entry="main")
    keys = bound.draw(plan, np.arange(len(plan))).integers("x", 1 << 30)
    assert len(set(keys.tolist())) == len(plan) == len(seen) + 1
