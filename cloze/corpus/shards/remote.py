"""Stores at an address (`s3://…`, `https://…`, `memory://…`): what is read is brought to a folder of this machine.

`local_store` makes a folder with the manifest and the tokenizer of a store, and `remote.json`, which holds the address. The store
opens from that folder like any other; its shards are fetched when they are needed (`Remote.shard`), checked, and removed again if
the shards of all stores in the cache would exceed its limit. Every process on the machine uses the same folder: a shard that one
of them holds open is locked and stays.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cloze.atomic import hidden, put, recover, whole_file
from cloze.corpus.shards.place import RemoteFolder, require_main_thread
from cloze.corpus.stores.store import HEADER, PLANS, SHARDS, Store, file_hash
from cloze.errors import CorpusError, RunError, sized
from cloze.untrusted import parse_json

MARK = "remote.json"
_AT_ONCE = 4  # files fetched at the same time
_FETCHING = ".fetching"  # a file that its fetcher locks, with the bytes that it will take


@dataclass(frozen=True)
class ShardCache:
    """A folder for what is fetched, and how many bytes all shards in it may take; 0: any number."""

    folder: Path
    limit: int = 0

    @classmethod
    def parse(cls, option: str | None) -> ShardCache:
        """`--cache DIR` or `DIR:SIZE`, such as /local:200GB; by default a folder of the user without a limit."""
        if option is None:
            home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            return cls(Path(home) / "cloze" / "stores")
        folder, colon, size = option.rpartition(":")
        if not colon:
            return cls(Path(option))
        units = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
        digits, unit = size[:-2], size[-2:].upper()
        if unit not in units or not digits.replace(".", "", 1).isdigit() or not folder:
            raise CorpusError(f"--cache {option}: expected DIR or DIR:SIZE, for example /local/cloze:200GB.")
        return cls(Path(folder), int(float(digits) * units[unit]))


def local_store(address: str, cache: ShardCache) -> Path:
    """The folder through which the store at an address is read. An ordinary store is fetched as a whole.

    Another store at the same address has another folder. Raises `CorpusError` if there is no store, or if it cannot be reached
    after several tries.
    """
    remote = RemoteFolder.of(address)
    text = remote.read(HEADER)
    header = parsed_header(remote, HEADER, text)
    sizes = sizes_of(header)
    of_shards, total_size = SHARDS in header, sum(size for size, _ in sizes.values())
    folder = cache.folder / hashlib.sha256(remote.address.encode() + b"\n" + text).hexdigest()[:24]
    if not of_shards and cache.limit and total_size > cache.limit and not Store.is_store(folder):
        raise CorpusError(
            f"{address}: this store has {sized(total_size)} and is needed as a whole; the "
            f"cache may take {sized(cache.limit)}.\n  Give a larger --cache, or build it in shards: cloze corpus build "
            "TEXT --shard 256M"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(cache.folder / f"{folder.name}.lock"):  # processes that start together
        for name, (size, digest) in sizes.items():
            file = folder / name
            if not file.is_file() or file.stat().st_size != size:
                file.parent.mkdir(parents=True, exist_ok=True)
                with whole_file(file) as stage:
                    remote.fetch(name, stage, size, digest)
        if of_shards:
            with whole_file(folder / MARK) as stage:
                stage.write_text(json.dumps({"address": remote.address, "limit": cache.limit}) + "\n", encoding="utf-8")
            _fetch_counts(remote, folder)
        with whole_file(folder / HEADER) as stage:
            stage.write_bytes(text)
    if of_shards and len(header[SHARDS]) == 1:
        Remote.at(folder).shard(header[SHARDS][0])  # type: ignore[union-attr]
    return folder


class NoRoom(CorpusError):
    """The cache cannot hold a shard in addition to those that are being read."""


class Remote:
    """The shards of a store at an address, in the folder of this machine."""

    def __init__(self, folder: Path, address: str, limit: int) -> None:
        self.folder, self.address, self.limit = folder, address, limit
        self._place = RemoteFolder.of(address)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="cloze-fetch")
        self._coming: dict[str, Future[Path]] = {}
        self._expected: set[str] = set()

    @classmethod
    def at(cls, folder: Path) -> Remote | None:
        """The address behind a folder; None for a store that lies there itself."""
        try:
            mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return cls(folder, str(mark["address"]), int(mark["limit"]))

    def shard(self, shard: Any) -> Path:
        """The folder of a shard, fetched if it is not there. Raises `NoRoom` if the cache cannot hold it.

        Shards that this process fetches ahead of time make room for it: those not begun yet are left, the others can be removed
        once they are whole.
        """
        plain = shard if isinstance(shard, Mapping) else shard._asdict()
        coming = self._coming.pop(plain["name"], None)
        if coming is not None and not coming.cancel():
            with suppress(CorpusError, RunError):  # what failed ahead of time is tried again, and explained
                coming.result()
        try:
            return self._fetch(plain)
        except NoRoom:
            if not self._coming:
                raise
        for download in self._coming.values():
            if not download.cancel():
                with suppress(CorpusError, RunError):
                    download.result()
        self._coming.clear()
        return self._fetch(plain)

    def ahead(self, now: Sequence[Any], next: Sequence[Any]) -> None:
        """Begin to fetch shards, in threads: those read now and those that come next. They do not displace each other."""
        self._coming = {name: download for name, download in self._coming.items() if not download.done()}
        self._expected = {shard.name for shard in (*now, *next)}
        for shard in (*now, *next):
            if shard.name not in self._coming and not Store.is_store(self.folder / SHARDS / shard.name):
                self._coming[shard.name] = self._threads.submit(self._fetch, shard._asdict(), ahead=True)

    def hold(self, name: str) -> int:
        """Lock a shard so that it stays; closing the descriptor that is returned releases it."""
        self._lock(name).parent.mkdir(exist_ok=True)
        descriptor = os.open(self._lock(name), os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.utime(self._lock(name))
        return descriptor

    def _lock(self, name: str) -> Path:
        return self.folder / SHARDS / f"{name}.lock"

    def _fetch(self, shard: Mapping[str, Any], *, ahead: bool = False) -> Path:
        require_main_thread()
        name, folder = shard["name"], self.folder / SHARDS / shard["name"]
        folder.parent.mkdir(exist_ok=True)
        if _is_whole(folder, shard["sha256"]):
            return folder
        with _alone(self.folder / SHARDS / f"{name}{_FETCHING}") as reserved:
            if _is_whole(folder, shard["sha256"]):  # somebody else has fetched it
                return folder
            shutil.rmtree(folder, ignore_errors=True)
            room = self.folder.parent / "room"
            try:
                with _alone(room):
                    self._make_room(int(shard["bytes"]), keep=name, ahead=ahead)
                    reserved.write(str(shard["bytes"]))
                    reserved.flush()
                with hidden(folder) as stage:
                    self._fetch_files(shard, stage / name)
                    with _alone(room):
                        put(stage / name, folder)
                        self._lock(name).touch()
                        reserved.truncate(0)
            finally:
                reserved.truncate(0)
        return folder

    def _fetch_files(self, shard: Mapping[str, Any], folder: Path) -> None:
        folder.mkdir()
        inside = f"{SHARDS}/{shard['name']}"
        self._place.fetch(f"{inside}/{HEADER}", folder / HEADER, None, shard["sha256"])
        header = parsed_header(self._place, f"{inside}/{HEADER}", (folder / HEADER).read_bytes())
        for file, (size, digest) in sizes_of(header).items():
            self._place.fetch(f"{inside}/{file}", folder / file, size, digest)

    def _make_room(self, size: int, *, keep: str, ahead: bool) -> None:
        """Remove shards that nobody holds, of all stores in the cache, until there is room.

        Those that this process expects to read go last, then the longest unused first; a shard that is fetched `ahead` of time
        never displaces another that is expected.
        """
        if not self.limit:
            return
        folder_sizes: dict[Path, int] = {}
        coming = 0
        for shards in self.folder.parent.glob(f"*/{SHARDS}"):
            coming += sum(map(_reserved, shards.glob(f"*{_FETCHING}")))
            for folder in shards.iterdir():
                if folder.is_dir() and not folder.name.startswith("."):
                    folder_sizes[folder] = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        usage, held = coming + sum(folder_sizes.values()), 0

        def turn(folder: Path) -> tuple[bool, float]:
            lock = folder.with_name(f"{folder.name}.lock")
            return self._expects(folder), lock.stat().st_mtime if lock.exists() else 0.0

        for folder in sorted(folder_sizes, key=turn):
            if usage + size <= self.limit or (ahead and self._expects(folder)):
                break
            with folder.with_name(f"{folder.name}.lock").open("a") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held += 1
                    continue
                shutil.rmtree(folder, ignore_errors=True)
                usage -= folder_sizes[folder]
        if usage + size > self.limit:
            raise NoRoom(
                f"{self.folder}: the cache may take {sized(self.limit)}; the {held} shards that are being read and those "
                f"being fetched take {sized(usage)}, and {keep} needs {sized(size)} more.\n"
                "  Give a larger --cache DIR:SIZE, or fewer training.lanes."
            )

    def _expects(self, folder: Path) -> bool:
        return folder.name in self._expected and folder.parent == self.folder / SHARDS


def _fetch_counts(remote: RemoteFolder, folder: Path) -> None:
    """Fetch the numbers of rows that were counted before."""
    try:
        paths = remote.files.glob(f"{remote.path}/{PLANS}/*/rows.json")
    except Exception:  # a storage that cannot list its files; the rows are counted again
        return
    for file in map(str, paths):
        target = folder / PLANS / file.split("/")[-2] / "rows.json"
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(remote.read("/".join([PLANS, *file.split("/")[-2:]])))


def parsed_header(folder: RemoteFolder, name: str, text: bytes) -> Mapping[str, Any]:
    """The header of a store, or of a shard, whose text is in the file `name`. Raises `CorpusError` if it is none, or
    names a file that is outside the store."""
    try:
        header: Mapping[str, Any] = parse_json(text)
        names = [*sizes_of(header), *(shard["name"] for shard in header.get(SHARDS, ()))]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CorpusError(f"{folder.address}/{name}: not the header of a token store.") from None
    outside = next((file for file in names if file.startswith("/") or ".." in file.split("/")), None)
    if outside is not None:
        raise CorpusError(f"{folder.address}: names the file {outside!r}, which is outside the store.")
    return header


def sizes_of(header: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """The size and the sha256 of every file that a header lists."""
    return {name: (int(entry["bytes"]), str(entry["sha256"])) for name, entry in header["files"].items()}


def _is_whole(shard: Path, digest: str) -> bool:
    """Whether a shard is there with the header of this sha256 and files of the right sizes."""
    try:
        return file_hash(shard / HEADER) == digest and all(
            (shard / name).stat().st_size == size
            for name, (size, _) in sizes_of(json.loads((shard / HEADER).read_text(encoding="utf-8"))).items()
        )
    except OSError:
        return False


def _reserved(file: Path) -> int:
    """The bytes of a shard that is being fetched; of one whose fetcher is gone, which is removed, 0."""
    if not file.stat().st_size:
        return 0
    with file.open("a+") as reservation:
        try:
            fcntl.flock(reservation, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reservation.seek(0)
            return int(reservation.read() or 0)
        recover(file.with_name(file.name.removesuffix(_FETCHING)))
        reservation.truncate(0)
    return 0


@contextmanager
def _alone(file: Path) -> Iterator[IO[str]]:
    """The only process, and thread, in a block."""
    with file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
