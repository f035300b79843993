"""Packing on stores of several shards: which examples share rows, for how many processes, from what place, and how many rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cloze.batching import Cursor, Data, Feed
from cloze.corpus import Passages, Sentences, Store
from cloze.corpus.shards.manifest import write_manifest
from cloze.corpus.shards.packed import PackedShards
from cloze.corpus.stores.writer import StoreWriter
from cloze.exercises import TokenFacts
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.frame import Frame
from cloze.exercises.noise.corrupt import Corrupt
from cloze.exercises.noise.mask import Mask
from cloze.exercises.targets.predict import Predict

FACTS = TokenFacts(30_000, {"[CLS]": 2, "[SEP]": 3, "[MASK]": 4}, np.arange(5, 1000, dtype=np.int32), lambda text: [])
LENGTH, START = 40, Cursor()
DOCUMENTS = (30, 25, 40, 21, 33)


def write(folder: Path, documents: int, first: int) -> int:
    """Documents of one to three sentences; every token has an id of its own. Returns the next id."""
    sentences = 1 + np.arange(documents) % 3
    sizes = 3 + np.arange(sentences.sum()) * 7 % 11
    ids = first + np.arange(sizes.sum())
    with StoreWriter(folder, vocab_size=30_000, roles={"[SEP]": 3}, tokenizer_hash="0" * 64) as writer:
        writer.append(ids, ids % 2 == 0, sizes, sentences)
        writer.finish({"odd": {}}, lambda path: path.mkdir())
    return int(ids[-1]) + 1


def sharded(path: Path, documents: tuple[int, ...]) -> Store:
    first = 1000
    for number, count in enumerate(documents):
        first = write(path / "shards" / f"{number:05d}", count, first)
    return write_manifest(path, [f"{number:05d}" for number in range(len(documents))])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return sharded(tmp_path_factory.mktemp("packed"), DOCUMENTS)


def feed(
    store: Store, source: object = None, *, lanes: int = 4, subset: str = "train", hide: float = 0.3, packing: bool = True
) -> Feed:
    bound = store.bind_source(
        source or Passages(), lanes=lanes, options={}, seed=7, entry="main", held_out=0.1, subset=subset,  # type: ignore[arg-type]
    )  # fmt: skip
    edits = [Frame("[CLS] {A} [SEP]", tokenizer=FACTS)]
    edits += [Mask(rate=hide), Corrupt(tokenizer=FACTS), Predict()] if hide else []
    placed, takes = [PlacedEdit(edit) for edit in edits], frozenset({"tokens"})
    return Feed(bound, placed, length=LENGTH, takes=takes, padding=0, packing=packing, fixed=True)


def steps(store: Store, number: int, *, cursor: Cursor = START, rank: int = 0, ranks: int = 1) -> list[list]:
    """Every field of `number` steps of 8 rows; `rank` sees its share of each."""
    data, found = Data({"main": feed(store)}, batch=8, rank=rank, ranks=ranks), []
    for _ in range(number):
        parts, cursor = data.next("main", cursor)
        found.append([{name: value.tolist() for name, value in part.batch.items()} for part in parts])
    return found


def passages(store: Store) -> Iterator[list[int]]:
    """The ids of every passage of the training part, by the ordinary sources of the shards."""
    for number in range(len(DOCUMENTS)):
        shard = store.shard(number)  # type: ignore[attr-defined]
        cuts = Passages().bind(shard, seed=0, entry="x", held_out=0.1).cuts(LENGTH - 2)
        for start, size in zip(cuts.start, np.minimum(cuts.length, LENGTH - 2), strict=True):
            yield shard.tokens[start : start + size].tolist()


def seen(of: Feed, epoch: int) -> list[list[list[int]]]:
    """The examples of every row of an epoch, without [CLS] and [SEP]."""
    (made,) = of.micro_batches([(epoch, np.arange(of.row_count(epoch)))], [of.row_count(epoch)])
    tokens, block = made.arrays["tokens"], made.arrays["block"]
    assert (block.max(1) >= 1).all()
    return [
        [row[inside == number][1:-1].tolist() for number in range(1, inside.max() + 1)]
        for row, inside in zip(tokens, block, strict=True)
    ]


@pytest.mark.parametrize("lanes", [1, 4, 64])
def test_an_epoch_holds_every_passage_once_in_rows_that_are_well_filled(store: Store, lanes: int) -> None:
    one, two = (seen(feed(store, lanes=lanes, hide=0.0), epoch) for epoch in (0, 1))
    expected = sorted(passages(store))
    assert sorted(sum(one, [])) == sorted(sum(two, [])) == expected
    assert one != two and len(one) < 0.6 * len(expected)
    filled = sum(len(passage) + 2 for passage in expected) / (len(one) * LENGTH)
    assert filled > 0.85
    assert sorted(map(str, one)) == sorted(map(str, two)), "the rows of a shard are the same in every epoch"


def test_passages_of_a_row_come_from_one_shard_and_seldom_from_one_document(store: Store) -> None:
    ends = np.cumsum([store.shard(number).size for number in range(len(DOCUMENTS))]) + 1000  # type: ignore[attr-defined]
    rows = [row for row in seen(feed(store, hide=0.0), 0) if len(row) > 1]
    assert all(len({int(np.searchsorted(ends, passage[0], "right")) for passage in row}) == 1 for row in rows)
    following = sum(abs(b[0] - a[-1]) == 1 for row in rows for a, b in zip(row, row[1:], strict=False))
    assert following < len(rows) / 5


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_rows_of_a_step_do_not_depend_on_the_number_of_processes(store: Store, ranks: int) -> None:
    whole = steps(store, 9)
    shares = [steps(store, 9, rank=rank, ranks=ranks) for rank in range(ranks)]
    for number, (only,) in enumerate(whole):
        parts = [share[number][0] for share in shares]
        assert sum((part["tokens"] for part in parts), []) == only["tokens"]
        assert sum((part["block"] for part in parts), []) == only["block"]
        assert sum((part["targets/main"] for part in parts), []) == only["targets/main"]


def test_a_run_resumes_in_the_middle_of_an_epoch_and_over_its_end(store: Store) -> None:
    rows = feed(store).row_count(0)
    number = -(-rows // 8) + 3
    straight = steps(store, number)
    data, cursor = Data({"main": feed(store)}, batch=8), Cursor()
    for at in range(number):
        if at in (2, number - 2):
            assert steps(store, number - at, cursor=cursor) == straight[at:]
        _, cursor = data.next("main", cursor)
    assert cursor.epoch == 1 and isinstance(cursor.row, int)


def test_a_feed_that_was_sent_to_a_worker_makes_the_same_rows(store: Store) -> None:
    made = feed(store)
    made.row_count(0)
    assert seen(pickle.loads(pickle.dumps(made)), 1) == seen(feed(store), 1)


def test_a_store_of_one_shard_is_packed_as_the_ordinary_store_is(tmp_path: Path) -> None:
    write(tmp_path / "alone", 60, 1000)
    alone, one = Store.open(tmp_path / "alone"), sharded(tmp_path / "one", (60,))
    assert steps(one, 12) == steps(alone, 12)
    assert seen(feed(one), 3) == seen(feed(alone), 3)


def test_rows_are_counted_once_for_all_epochs_and_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    single = feed(store, Sentences(), packing=False).row_count(0)
    rows = feed(store, Sentences()).row_count(0)
    assert rows < 0.6 * single
    monkeypatch.setattr("cloze.batching.packing.pack", lambda *given: pytest.fail("packed again"))
    again = feed(store, Sentences())
    assert again.row_count(0) == rows == again.row_count(5) == again.for_length(LENGTH).row_count(1)


def test_which_passages_share_a_row_is_mapped_from_a_file_where_a_shard_is_large(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = seen(feed(store), 0)
    monkeypatch.setattr("cloze.corpus.shards.planned._LARGE", 1)
    assert seen(feed(store), 0) == before
    assert len(list((store.path / "plans").glob("*/00003/members.npy"))) == 1
    monkeypatch.setattr(PackedShards, "_pack", lambda self, number: pytest.fail("packed again"))
    assert seen(feed(store), 0) == before


def test_held_out_rows_are_packed_too_apart_from_training_and_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held = feed(store, subset="held_out")
    rows = np.arange(held.row_count(0))
    first = held.micro_batches([(0, rows)], [len(rows)])
    monkeypatch.setattr(type(store), "shard", lambda self, number: pytest.fail("opened again"))
    again = held.micro_batches([(0, rows)], [len(rows)])
    assert first[0].arrays["tokens"].tolist() == again[0].arrays["tokens"].tolist()
    assert len(rows) > 3 and first[0].examples > 1.5 * len(rows)
