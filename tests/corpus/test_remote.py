"""Stores at an address: read as if they lay here, within the cache, with faults told."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.corpus import Passages, Store
from cloze.corpus.shards import place
from cloze.corpus.shards.copying import copy_store
from cloze.corpus.shards.manifest import write_manifest
from cloze.corpus.shards.place import is_address
from cloze.corpus.shards.remote import NoRoom, Remote, ShardCache, local_store
from cloze.corpus.stores.writer import StoreWriter
from cloze.errors import CorpusError

fsspec = pytest.importorskip("fsspec", reason="the extra cloud is not installed")
GIVEN = {"lanes": 2, "options": {}, "seed": 7, "entry": "main", "held_out": 0.0, "subset": "train"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    path = tmp_path_factory.mktemp("here")
    for number in range(4):
        with StoreWriter(path / "shards" / f"{number:05d}", vocab_size=30_000, roles={}, tokenizer_hash="0" * 64) as writer:
            ids = 10 + 1000 * number + np.arange(30 * 8)
            writer.append(ids, ids % 2 == 0, np.full(60, 4), np.full(30, 2))
            writer.finish({}, lambda folder: folder.mkdir())
    return write_manifest(path, [f"{number:05d}" for number in range(4)])


@pytest.fixture
def address(store: Store) -> str:
    made = f"memory://{uuid.uuid4().hex}/store"
    copy_store(str(store.path), made, lambda line: None)
    return made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_PAUSE", 0.0)


def tokens(store: Store) -> list[list[int]]:
    bound = store.bind_source(Passages(length=8), **GIVEN)  # type: ignore[arg-type]
    plan = bound.plan(0, 8)
    items = np.arange(len(plan))
    blocks = [bound.read(plan, items[low : low + 8], frozenset({"tokens"}))["tokens"].tolist() for low in range(0, len(items), 8)]
    return sum(blocks, [])


def damage(address: str, name: str, change: Any) -> None:
    files, path = fsspec.core.url_to_fs(f"{address}/{name}")
    files.pipe_file(path, change(files.cat_file(path)))


def test_rows_from_an_address_are_those_of_the_store(store: Store, address: str, tmp_path: Path) -> None:
    there = Store.open(local_store(address, ShardCache(tmp_path)))
    assert not list(tmp_path.glob("*/shards/0*"))
    assert tokens(there) == tokens(store)
    there.verify()
    moved = tmp_path / "moved"
    copy_store((store.path).as_uri(), str(moved), lambda line: None)
    assert tokens(Store.open(moved)) == tokens(store)


def test_an_ordinary_store_is_fetched_as_a_whole(store: Store, tmp_path: Path) -> None:
    shard = store.shard(1)  # type: ignore[attr-defined]
    folder = local_store(shard.path.as_uri(), ShardCache(tmp_path))
    assert Store.open(folder).tokens.tolist() == shard.tokens.tolist()
    with pytest.raises(CorpusError, match="is needed as a whole; the\\s+cache may take 0.1 kB"):
        local_store(shard.path.as_uri(), ShardCache(tmp_path / "small", 100))


def test_the_cache_keeps_its_bound_and_shards_in_use(store: Store, address: str, tmp_path: Path) -> None:
    size = store.shards[0].bytes  # type: ignore[attr-defined]
    folder = local_store(address, ShardCache(tmp_path, 2 * size + 10))
    there: Any = Store.open(folder)

    def kept() -> list[str]:
        return sorted(one.name for one in (folder / "shards").iterdir() if one.is_dir())

    held = there.shard(0)
    there.shard(1)
    assert kept() == ["00000", "00001"]
    there.shard(2)
    assert kept() == ["00000", "00002"]
    other = there.shard(3)
    assert kept() == ["00000", "00003"]
    with pytest.raises(CorpusError, match=r"(?s)the 2 shards that are being read .* and 00001 needs .*--cache DIR:SIZE"):
        there.shard(1)
    assert held.tokens[0] == 10 and other.tokens[0] == 3010
    with pytest.raises(CorpusError, match=r"2 lanes over 1 machine need [\d.]+ kB for shards"):
        there.bind_source(Passages(length=8), **GIVEN)
    with pytest.raises(CorpusError, match=r"DIR:SIZE; with [\d.]+ kB no step waits for a shard, or fewer lanes"):
        there.require_room(1, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [(lambda data: data[:-2], "has 478 bytes, expected 480"), (lambda data: b"\x01" + data[1:], "has the checksum")],
)
def test_a_damaged_shard_is_tried_again_and_then_explained(address: str, tmp_path: Path, change: Any, message: str) -> None:
    damage(address, "shards/00002/tokens.bin", change)
    there: Any = Store.open(local_store(address, ShardCache(tmp_path)))
    with pytest.raises(CorpusError, match=rf"shards/00002/tokens.bin: {message}.*tried 4 times.*\n.*Nothing is lost"):
        there.shard(2)
    assert not list(tmp_path.glob("*/shards/*00002*/**/tokens.bin")) and there.shard(1).size == 240


def test_a_shard_that_fails_for_a_while_arrives(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there: Any = Store.open(local_store(address, ShardCache(tmp_path)))
    files, left = there._remote._place.files, [2]
    real = type(files).open

    def flaky(self: Any, path: str, *args: Any, **given: Any) -> Any:
        if path.endswith("words.bin") and left[0]:
            left[0] -= 1
            raise OSError("connection reset")
        return real(self, path, *args, **given)

    monkeypatch.setattr(type(files), "open", flaky)
    assert there.shard(3).size == 240 and left == [0]


def test_a_shard_that_is_gone_is_named(address: str, tmp_path: Path) -> None:
    files, path = fsspec.core.url_to_fs(f"{address}/shards/00001/words.bin")
    files.rm_file(path)
    there: Any = Store.open(local_store(address, ShardCache(tmp_path)))
    with pytest.raises(CorpusError, match="shards/00001/words.bin: is not there"):
        there.shard(1)
    with pytest.raises(CorpusError, match="store.json: is not there"):
        local_store("memory://nowhere/store", ShardCache(tmp_path))


def test_what_is_being_fetched_counts_in_the_cache(
    store: Store, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = store.shards[0].bytes  # type: ignore[attr-defined]
    folder = local_store(address, ShardCache(tmp_path, size + size // 2))
    one, other = Remote.at(folder), Remote.at(folder)
    real, said = place.RemoteFolder.fetch, []

    def fetch(self: Any, name: str, *args: Any) -> None:
        if name.startswith("shards/00001") and not said:
            said.append("")
            with pytest.raises(NoRoom):
                other.shard(store.shards[2])  # type: ignore[union-attr, attr-defined]
            said.append("refused")
        real(self, name, *args)

    monkeypatch.setattr(place.RemoteFolder, "fetch", fetch)
    one.shard(store.shards[1])  # type: ignore[union-attr, attr-defined]
    assert said == ["", "refused"]
    other.shard(store.shards[2])  # type: ignore[union-attr, attr-defined]
    assert sorted(one.name for one in (folder / "shards").iterdir() if one.is_dir()) == ["00002"]


def test_shards_fetched_ahead_do_not_displace_those_expected(store: Store, address: str, tmp_path: Path) -> None:
    shards: Any = store.shards  # type: ignore[attr-defined]
    remote: Any = Remote.at(local_store(address, ShardCache(tmp_path, 2 * shards[0].bytes + 10)))
    remote.shard(shards[3])
    remote.ahead([shards[0]], [shards[1], shards[2]])
    failed = [one.exception() is not None for one in remote._coming.values()]
    there = sorted(one.name for one in (remote.folder / "shards").iterdir() if one.is_dir())
    assert sum(failed) == 1 and len(there) == 2 and "00003" not in there


def test_a_shard_that_is_needed_displaces_one_that_is_being_fetched_ahead(
    store: Store, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for two: one is held and one is on its way. The third waits for it and takes its place."""
    shards: Any = store.shards  # type: ignore[attr-defined]
    remote: Any = Remote.at(local_store(address, ShardCache(tmp_path, 2 * shards[0].bytes + 10)))
    remote.shard(shards[0])
    held, begun, wanted = remote.hold("00000"), threading.Event(), threading.Event()
    real, real_room = place.RemoteFolder.fetch, Remote._make_room

    def slow(self: Any, name: str, *args: Any) -> None:
        if name.startswith("shards/00001"):
            begun.set()
            assert wanted.wait(20)
        real(self, name, *args)

    def make_room(self: Any, size: int, *, keep: str, ahead: bool) -> None:
        try:
            real_room(self, size, keep=keep, ahead=ahead)
        finally:
            if keep == "00002":
                wanted.set()

    monkeypatch.setattr(place.RemoteFolder, "fetch", slow)
    monkeypatch.setattr(Remote, "_make_room", make_room)
    remote.ahead([shards[0]], [shards[1]])
    assert begun.wait(20)
    assert remote.shard(shards[2]).name == "00002"
    assert sorted(one.name for one in (remote.folder / "shards").iterdir() if one.is_dir()) == ["00000", "00002"]
    os.close(held)


def test_a_cache_that_was_found_large_enough_holds_what_is_read(store: Store, address: str, tmp_path: Path) -> None:
    """Room for three shards: training reads two at a time, and held-out rows come from all four."""
    limit = 3 * store.shards[0].bytes + 10  # type: ignore[attr-defined]
    there = Store.open(local_store(address, ShardCache(tmp_path, limit)))
    found: list[list[int]] = []
    for side in (store, there):
        rows: list[int] = []
        for epoch, part in ((0, "held_out"), (0, "train"), (1, "held_out"), (1, "train")):
            bound = side.bind_source(Passages(length=8), **{**GIVEN, "lanes": 1, "held_out": 0.2, "subset": part})  # type: ignore[arg-type]
            plan = bound.plan(epoch, 8)
            for low in range(0, len(plan), 8):
                block = bound.read(plan, np.arange(low, min(low + 8, len(plan))), frozenset({"tokens"}))
                rows += block["tokens"][:, 0].tolist()
                assert sum(file.stat().st_size for file in tmp_path.glob("*/shards/*/*.bin")) <= limit
        found.append(rows)
    assert found[0] == found[1] and len(set(found[0])) == len(found[0]) // 2


def test_all_stores_of_a_cache_share_its_bound(store: Store, address: str, tmp_path: Path) -> None:
    second = f"memory://{uuid.uuid4().hex}/store"
    copy_store(str(store.path), second, lambda line: None)
    cache = ShardCache(tmp_path, store.shards[0].bytes + 10)  # type: ignore[attr-defined]
    Store.open(local_store(address, cache)).shard(0)  # type: ignore[attr-defined]
    Store.open(local_store(second, cache)).shard(1)  # type: ignore[attr-defined]
    assert [one.name for one in tmp_path.glob("*/shards/*") if one.is_dir()] == ["00001"]


def test_a_shard_that_was_cut_off_in_the_cache_is_fetched_again(address: str, tmp_path: Path) -> None:
    folder = local_store(address, ShardCache(tmp_path))
    cut = Store.open(folder).shard(2).path / "tokens.bin"  # type: ignore[attr-defined]
    cut.write_bytes(cut.read_bytes()[:-2])
    assert Store.open(local_store(address, ShardCache(tmp_path))).shard(2).size == 240  # type: ignore[attr-defined]


def test_another_store_at_the_same_address_has_a_folder_of_its_own(store: Store, address: str, tmp_path: Path) -> None:
    old = Store.open(local_store(address, ShardCache(tmp_path)))
    files, path = fsspec.core.url_to_fs(address)
    files.rm(path, recursive=True)
    shutil.copytree(store.path / "shards", tmp_path / "new" / "shards")
    copy_store(str(write_manifest(tmp_path / "new", ["00001", "00000"]).path), address, lambda line: None)
    new = Store.open(local_store(address, ShardCache(tmp_path)))
    assert (new.shard(0).tokens[0], old.shard(0).tokens[0]) == (1010, 10)  # type: ignore[attr-defined]


def test_faults_of_a_client_are_told_without_a_traceback(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = fsspec.core.url_to_fs(address)

    def fail(self: Any, path: str, *args: Any, **given: Any) -> Any:
        raise LookupError("no credentials\nand more")

    monkeypatch.setattr(type(files), "cat_file", fail)
    with pytest.raises(CorpusError, match=r"store.json: cannot be reached \(LookupError: no credentials\) \(tried 4 times\)"):
        local_store(address, ShardCache(tmp_path))


def test_a_copy_never_overwrites_its_source_or_anything_else(store: Store, tmp_path: Path) -> None:
    here = tmp_path / "here"
    shutil.copytree(store.path, here)
    before = {file: file.read_bytes() for file in here.rglob("*") if file.is_file()}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    other = tmp_path / "other"
    shutil.copytree(store.shard(0).path, other)  # type: ignore[attr-defined]
    for target, message in (
        (here, "is the same place"), (here / "inside", "is inside the other"), (tmp_path / "mine", "something else, such as"),
        (tmp_path / "mine" / "notes.txt", "is a file"), (other, "already holds another store"),
    ):
        with pytest.raises(CorpusError, match=message):
            copy_store(str(here), str(target), lambda line: None)
    assert before == {file: file.read_bytes() for file in here.rglob("*") if file.is_file()}
    with pytest.raises(CorpusError, match="expected a token store, found not there"):
        copy_store(str(tmp_path / "nothing"), str(tmp_path / "to"), lambda line: None)


def test_stores_at_addresses_are_refused_where_a_folder_is_needed() -> None:
    with pytest.raises(CorpusError, match="expected a folder of this machine.*cloze corpus copy s3://b/store STORE"):
        Store.open("s3://b/store")


def test_addresses_with_keys_and_unknown_schemes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="s3://…@bucket: an address must not contain a name or a key") as found:
        local_store("s3://me:secret@bucket/store", ShardCache(tmp_path))
    assert "secret" not in str(found.value)
    with pytest.raises(CorpusError, match="Known are s3, gs"):
        local_store("nonsense://bucket/store", ShardCache(tmp_path))


def test_a_copy_that_was_stopped_resumes(store: Store, tmp_path: Path) -> None:
    shutil.copytree(store.path / "shards" / "00000", tmp_path / "to" / "shards" / "00000")
    said: list[str] = []
    copy_store(str(store.path), str(tmp_path / "to"), said.append)
    assert "15 of 20 files copied" in said[0] and tokens(Store.open(tmp_path / "to")) == tokens(store)


@pytest.mark.parametrize(("given", "limit"), [("/c:200GB", 200 * 10**9), ("/c:1.5TB", 15 * 10**11), ("/c", 0)])
def test_the_size_of_a_cache(given: str, limit: int) -> None:
    assert ShardCache.parse(given) == ShardCache(Path("/c"), limit)
    assert is_address("s3://a/b") and not is_address("a/b")
    with pytest.raises(CorpusError, match="expected DIR or DIR:SIZE"):
        ShardCache.parse("/c:many")
