"""Compares the checksums of token stores while a run reads them, so that no run learns from damaged text without a word.

Opening a store checks its sizes and boundaries, which costs no time and finds no flipped bit. Small stores are read whole before
the run begins. Larger ones are read by a thread that works for a twentieth of its time. It needs a few seconds of one core per
gigabyte, which is little compared with an epoch.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence

from cloze.corpus.shards.manifest import ShardedStore
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError

AT_ONCE = 1 << 24  # bytes of a store that is read before the run begins
_BLOCK = 1 << 22
_DUTY = 0.05  # the share of its time in which the thread works


class Verification:
    """The checksums of the stores of a run; `check` raises if one differs.

    Raises `CorpusError` for a damaged store of at most `at_once` bytes.
    """

    def __init__(self, stores: Sequence[Store], *, at_once: int = AT_ONCE) -> None:
        self._failure: CorpusError | None = None
        self._left: list[Store] = []  # what is still to be read, in part or whole
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        for store in stores:
            if isinstance(store, ShardedStore) and store.fetches:
                continue  # every shard is compared when it is fetched
            if _size(store) <= at_once:
                store.verify()
            else:
                self._left.append(store)
        if self._left:
            self._thread = threading.Thread(target=self._read, name="verification", daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Raise the `CorpusError` of a damaged store as soon as it is known."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> str:
        """Stop reading; returns a sentence about stores that were not read to their end, empty if all were."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None or not self._left:
            return ""
        names = ", ".join(str(store.path) for store in self._left)
        return f"note: {names}: the run ended before all checksums were compared. To compare them: cloze corpus check {names}"

    def _read(self) -> None:
        while self._left and not self._stopping.is_set():
            try:
                for part in _parts(self._left[0]):
                    for name in part.header["files"]:
                        if not self._compare(part, name):
                            return
            except (CorpusError, OSError) as error:
                message = str(error) if isinstance(error, CorpusError) else f"{self._left[0].path}: cannot be read: {error}"
                self._failure = CorpusError(
                    f"{message}\n  This run has read from it. Start it again with the new store, in another --out."
                )
                return
            self._left.pop(0)

    def _compare(self, store: Store, name: str) -> bool:
        """Compare one file; False if the run ended meanwhile."""
        digest = hashlib.sha256()
        with (store.path / name).open("rb") as stream:
            began = time.perf_counter()
            while block := stream.read(_BLOCK):
                digest.update(block)
                if self._stopping.wait((time.perf_counter() - began) * (1 / _DUTY - 1)):
                    return False
                began = time.perf_counter()
        store.require_checksum(name, digest.hexdigest())
        return True


def _parts(store: Store) -> Iterator[Store]:
    """A store, or its shards."""
    if isinstance(store, ShardedStore):
        yield from (store.shard(number) for number in range(len(store.shards)))
    else:
        yield store


def _size(store: Store) -> int:
    """The bytes of a store that are compared."""
    if isinstance(store, ShardedStore):
        return sum(shard.bytes for shard in store.shards)
    return sum(int(entry["bytes"]) for entry in store.header["files"].values())
