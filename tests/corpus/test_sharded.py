"""Stores of several shards: what an epoch holds, in what order, and for how many processes."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from cloze import rng
from cloze.corpus import Lines, Passages, Sentences, Store, Streams
from cloze.corpus.shards.manifest import write_manifest
from cloze.corpus.shards.shard_plan import ShardPlan
from cloze.corpus.shards.sharded import BoundShards
from cloze.corpus.stores.writer import StoreWriter
from cloze.errors import CorpusError

WANT = frozenset({"tokens", "sentence"})


def shard(folder: Path, documents: int, first: int) -> None:
    """Documents of sentences whose tokens count on from `first`."""
    with StoreWriter(folder, vocab_size=30_000, roles={"[SEP]": 3}, tokenizer_hash="0" * 64) as writer:
        sizes = 3 + np.arange(documents * 4) % 5
        ids = first + np.arange(sizes.sum())
        writer.append(ids, ids % 2 == 0, sizes, np.full(documents, 4))
        writer.finish({"odd": {}}, lambda path: path.mkdir())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Five shards of different sizes; every token has an id of its own."""
    path, first = tmp_path_factory.mktemp("sharded"), 10
    for number, documents in enumerate((30, 25, 40, 21, 33)):
        shard(path / "shards" / f"{number:05d}", documents, first)
        first += Store.open(path / "shards" / f"{number:05d}").size
    return write_manifest(path, [f"{number:05d}" for number in range(5)])


def bind(store: Store, source: object = None, *, lanes: int = 4, subset: str = "train", **given: object) -> BoundShards:
    given = {"seed": 7, "entry": "main", "held_out": 0.1, "options": {}, **given}
    return store.bind_source(source or Passages(length=16), lanes=lanes, subset=subset, **given)  # type: ignore[no-any-return, arg-type]


def firsts(bound: BoundShards, epoch: int, block: int = 10**9) -> list[int]:
    """The first token of every row of an epoch, in order, read in blocks."""
    plan, found = bound.plan(epoch, 12), []
    for low in range(0, len(plan), block):
        rows = bound.read(plan, np.arange(low, min(low + block, len(plan))), WANT)
        found += rows["tokens"][:, 0].tolist()
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 1000])
def test_places_are_permuted_without_an_array(size: int) -> None:
    keys = rng.row_keys(3, items=np.arange(2))
    once, again = (rng.shuffled(np.arange(size), np.full(size, size), np.full(size, key)) for key in keys)
    assert sorted(once.tolist()) == sorted(again.tolist()) == list(range(size))
    if size > 5:
        assert once.tolist() != again.tolist() and abs(np.corrcoef(once, np.arange(size))[0, 1]) < 0.3


@pytest.mark.parametrize("source", [Passages(length=16), Passages(length=16, short=0.4), Sentences(length=16), Lines(length=12)])
@pytest.mark.parametrize("lanes", [1, 4, 64])
def test_an_epoch_holds_every_row_of_every_shard_once(store: Store, source: object, lanes: int) -> None:
    bound = bind(store, source, lanes=lanes)
    expected: list[int] = []
    for number in range(5):
        alone = source.bind(store.shard(number), seed=0, entry="x", held_out=0.1)  # type: ignore[attr-defined]
        expected += store.shard(number).tokens[alone.cuts(12).start].tolist()  # type: ignore[attr-defined]
    one, two = firsts(bound, 0), firsts(bound, 1)
    assert sorted(one) == sorted(two) == sorted(expected) and one != two != expected


def test_rows_do_not_depend_on_blocks_or_processes(store: Store) -> None:
    bound = bind(store)
    whole = firsts(bound, 0)
    assert firsts(pickle.loads(pickle.dumps(bound)), 0, block=7) == whole
    plan, step = bound.plan(0, 12), bound.by_lane(np.arange(16, 32))
    assert (np.diff(step % 4) >= 0).all() and sorted(step.tolist()) == list(range(16, 32))
    rows = bound.read(plan, step, WANT)
    for ranks in (2, 4):
        parts = [bind(store).read(plan, piece, WANT)["tokens"][:, 0].tolist() for piece in np.split(step, ranks)]
        assert sum(parts, []) == rows["tokens"][:, 0].tolist()


def test_a_rank_reads_the_windows_of_its_lanes_alone() -> None:
    plan = ShardPlan(0, 128, 64, 2, np.arange(800), np.full(800, 1000), (0, "main"))
    step = np.arange(10**5, 10**5 + 512)
    by_lane = step[np.argsort(step % 64, kind="stable")]
    for piece in np.split(by_lane, 512):
        assert len(set(plan.locate(piece)[0].tolist())) == 1
    assert len(plan.shards_of(np.unique(plan.windows(np.split(by_lane, 8)[3])))) <= 2 * 9


def test_items_are_located_once_for_a_read_and_its_random_numbers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, asked = bind(store), list[int]()
    plan, items = bound.plan(0, 12), np.arange(20)
    whole, real = np.stack(plan.locate(np.arange(len(plan)))), rng.shuffled
    monkeypatch.setattr(rng, "shuffled", lambda place, size, key: (asked.append(len(place)), real(place, size, key))[1])
    for moved in (0, 7):
        items += moved  # the same array with other items
        bound.read(plan, items, WANT)
        bound.draw(plan, items)
        assert np.array_equal(np.stack(plan.locate(items)), whole[:, items])
    assert asked == [20, 20]


def test_shards_are_open_as_long_as_a_lane_is_in_their_window(store: Store) -> None:
    bound = bind(store, lanes=2)
    plan, opened = bound.plan(0, 12), []
    for low in range(0, len(plan), 4):
        items = np.arange(low, min(low + 4, len(plan)))
        bound.read(plan, items[items % 2 == low // 4 % 2], WANT)  # the lanes take turns
        now = plan.shards_of(np.unique(plan.windows(np.arange(max(low - 4, 0), low + 4).clip(max=len(plan) - 1))))
        assert set(bound._opened) <= set(now)
        opened.append(len(bound._opened))
    assert max(opened) == 4 and opened[-1] < 4


def test_masks_differ_between_shards(store: Store) -> None:
    bound = bind(store)
    plan = bound.plan(0, 12)
    keys = bound.draw(plan, np.arange(len(plan))).keys
    assert len(np.unique(keys)) == len(plan)
    assert not np.array_equal(keys, bound.draw(bound.plan(1, 12), np.arange(len(plan))).keys)


def test_held_out_rows_are_disjoint_from_training_and_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held = bind(store, subset="held_out")
    first = firsts(held, 0)
    assert len(first) > 10 and not set(first) & set(firsts(bind(store), 0))
    monkeypatch.setattr(type(store), "shard", lambda self, number: pytest.fail("opened again"))
    assert firsts(held, 0) == first


def test_numbers_of_rows_are_counted_once_and_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    length = len(bind(store).plan(0, 12))
    monkeypatch.setattr(BoundShards, "_number_of_rows", lambda self, number, max_tokens: pytest.fail("counted again"))
    assert len(bind(store).plan(0, 12)) == length


def test_large_shards_map_the_bounds_of_their_passages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = firsts(bind(store), 0)
    monkeypatch.setattr("cloze.corpus.shards.planned._LARGE", 1)
    written = bind(store)
    assert firsts(written, 0) == whole
    assert len(list((store.path / "plans").glob("*/00003/start.npy"))) == 1
    monkeypatch.setattr("cloze.corpus.sources.plan.cut_by_sentence", lambda *args, **given: pytest.fail("planned again"))
    assert firsts(bind(store), 0) == whole


def test_parts_that_are_put_back_are_those_of_the_shard_in_every_epoch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(epoch: int) -> dict[int, tuple[int, bool]]:
        bound = bind(store, options={"put_back": 0.5})
        rows = bound.read(plan := bound.plan(epoch, 12), np.arange(len(plan)), WANT | {"border", "apart"})
        columns = (rows["tokens"][:, 0].tolist(), rows["border"].tolist(), rows["apart"].tolist())
        return {first: (border, apart) for first, border, apart in zip(*columns, strict=True)}

    found = parts(0)
    assert 0.3 < np.mean([apart for _, apart in found.values()]) < 0.9 and parts(1) == found
    assert len(found) > len(bind(store).plan(0, 12))
    monkeypatch.setattr("cloze.corpus.shards.planned._LARGE", 1)
    assert parts(0) == parts(0) == found


def test_streams_read_shard_after_shard(store: Store) -> None:
    bound = bind(store, Streams(length=8), lanes=64, options={"lanes": 3}, held_out=0.0)
    plan = bound.plan(0, 8)
    rows = bound.read(plan, np.arange(len(plan)), WANT)
    assert rows["restarts"].sum() == 5 * 3 and len(plan) % 3 == 0
    shards = plan.locate(np.arange(len(plan)))[0]
    assert (np.diff(shards) != 0).sum() == 4
    following = rows["tokens"][3:6, 0] - rows["tokens"][:3, 0]
    assert following.tolist() == [8, 8, 8] or rows["restarts"][3:6].all()


def test_a_store_of_one_shard_is_an_ordinary_store(tmp_path: Path) -> None:
    shard(tmp_path / "alone", 30, 10)
    shard(tmp_path / "s" / "shards" / "00000", 30, 10)
    made = write_manifest(tmp_path / "s", ["00000"])
    alone = Store.open(tmp_path / "alone")
    assert type(made) is Store and made.header["files"] == alone.header["files"]
    given = {"seed": 1, "entry": "main", "held_out": 0.1, "subset": "train"}
    one, other = (s.bind_source(Passages(length=16), lanes=64, options={}, **given).plan(2, 12).order for s in (made, alone))
    assert one.tolist() == other.tolist()


def test_the_manifest_adds_up_and_what_reads_a_store_as_a_whole_is_refused(store: Store) -> None:
    shards = [store.shard(number) for number in range(5)]
    assert (store.size, store.documents, store.sentences) == (sum(s.size for s in shards), 149, 596)
    assert store.counts().tolist() == sum(s.counts() for s in shards).tolist()  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(store)).shards == store.shards  # type: ignore[attr-defined]
    with pytest.raises(CorpusError, match="has 5 shards, and what you asked for reads a store as a whole.*\n.*corpus join"):
        store.tokens  # noqa: B018
    with pytest.raises(CorpusError, match="rows of random lengths are drawn for a whole store, but this store has 5 shards"):
        bind(store, Streams(length=40, spread=2.0), options={"lanes": 3})


def test_missing_and_foreign_shards_are_named(tmp_path: Path) -> None:
    for number in range(2):
        shard(tmp_path / "shards" / f"{number:05d}", 5, 10)
    write_manifest(tmp_path, ["00000", "00001"])
    with StoreWriter(tmp_path / "shards" / "00002", vocab_size=70, roles={}, tokenizer_hash="1" * 64) as writer:
        writer.append(np.array([5]), np.array([True]), np.array([1]), np.array([1]))
        writer.finish({}, lambda path: path.mkdir())
    with pytest.raises(CorpusError, match="00002: was not built like the first shard, 00000: its vocab_size differs"):
        write_manifest(tmp_path, ["00000", "00002"])
    (tmp_path / "shards" / "00001" / "store.json").unlink()
    with pytest.raises(CorpusError, match="the shard 00001 is missing .1 of 2 shards are"):
        Store.open(tmp_path)
