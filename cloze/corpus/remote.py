"""Stores at an address (`s3://…`, `https://…`, `memory://…`): what is read is brought to a folder of this machine.

`local_store` makes a folder with the manifest and the tokenizer of a store, and `remote.json`, which holds the address. The store
opens from that folder like any other; its shards are fetched when they are needed (`Remote.shard`), checked, and removed again if
the folder would grow beyond its limit. Every process on the machine uses the same folder: a shard that one of them holds open is
locked and stays.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from cloze.corpus.store import HEADER, SHARDS, Store
from cloze.errors import CorpusError, MissingExtra, RunError
from cloze.untrusted import parse_json
from cloze.whole import hidden, put, whole_file, whole_folder

MARK = "remote.json"
_TRIES = 4
_PAUSE = 0.5  # seconds before the second try; each further pause is twice as long
_AT_ONCE = 4  # files fetched at the same time
_BLOCK = 1 << 22
Answer = TypeVar("Answer")


def is_address(path: str | Path) -> bool:
    """Whether a path is an address such as s3://bucket/store."""
    return "://" in str(path)


@dataclass(frozen=True)
class Cache:
    """A folder for what is fetched, and how many bytes its shards may take; 0: any number."""

    folder: Path
    limit: int = 0

    @classmethod
    def parse(cls, given: str | None) -> Cache:
        """`--cache DIR` or `DIR:SIZE`, such as /local:200GB; by default a folder of the user without a limit."""
        if given is None:
            home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            return cls(Path(home) / "cloze" / "stores")
        folder, colon, size = given.rpartition(":")
        if not colon:
            return cls(Path(given))
        units = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
        digits, unit = size[:-2], size[-2:].upper()
        if unit not in units or not digits.replace(".", "", 1).isdigit() or not folder:
            raise CorpusError(f"--cache {given}: expected DIR or DIR:SIZE, for example /local/cloze:200GB.")
        return cls(Path(folder), int(float(digits) * units[unit]))


def local_store(address: str, cache: Cache) -> Path:
    """The folder through which the store at an address is read. An ordinary store is fetched as a whole.

    Raises `CorpusError` if there is none, or if it cannot be reached after several tries.
    """
    remote = _Place.of(address)
    folder = cache.folder / hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:24]
    text = remote.read(HEADER)
    try:
        header = parse_json(text)
        files: Mapping[str, Any] = header["files"]
        sizes = {name: (int(one["bytes"]), str(one["sha256"])) for name, one in files.items()}
    except (ValueError, KeyError, TypeError):
        raise CorpusError(f"{address}/{HEADER}: not the header of a token store.") from None
    of_shards = SHARDS in header
    known = folder / HEADER
    if known.is_file() and known.read_bytes() != text:  # another store is there now
        shutil.rmtree(folder, ignore_errors=True)
    if not known.is_file():
        _require_inside(address, sizes)
        if not of_shards and cache.limit and sum(size for size, _ in sizes.values()) > cache.limit:
            raise CorpusError(
                f"{address}: this store has {sum(size for size, _ in sizes.values()) / 1e9:.2f} GB and is needed as a whole; the "
                f"cache may take {cache.limit / 1e9:.2f} GB.\n  Give a larger --cache, or build it in shards: cloze corpus build "
                "TEXT --shard 256M"
            )
        cache.folder.mkdir(parents=True, exist_ok=True)
        with whole_folder(folder) as stage:
            for name, (size, digest) in sizes.items():
                remote.fetch(name, stage / name, size, digest)
            (stage / HEADER).write_bytes(text)
    if of_shards:
        with whole_file(folder / MARK) as stage:
            stage.write_text(json.dumps({"address": address.rstrip("/"), "limit": cache.limit}) + "\n", encoding="utf-8")
        _fetch_counts(remote, folder)
        if len(header[SHARDS]) == 1:
            Remote.at(folder).shard(header[SHARDS][0])  # type: ignore[union-attr]
    return folder


class Remote:
    """The shards of a store at an address, in the folder of this machine."""

    def __init__(self, folder: Path, address: str, limit: int) -> None:
        self.folder, self.address, self.limit = folder, address, limit
        self._place = _Place.of(address)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="cloze-fetch")
        self._coming: dict[str, Future[Path]] = {}

    @classmethod
    def at(cls, folder: Path) -> Remote | None:
        """The address behind a folder; None for a store that lies there itself."""
        try:
            found = json.loads((folder / MARK).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return cls(folder, str(found["address"]), int(found["limit"]))

    def shard(self, shard: Any) -> Path:
        """The folder of a shard, fetched if it is not there."""
        name = shard["name"] if isinstance(shard, Mapping) else shard.name
        coming = self._coming.pop(name, None)
        if coming is not None:
            with suppress(CorpusError, RunError):  # what failed ahead of time is tried again, and explained
                coming.result()
        return self._fetch(shard)

    def ahead(self, shards: Sequence[Any]) -> None:
        """Begin to fetch shards, in threads."""
        self._coming = {name: one for name, one in self._coming.items() if not one.done()}
        for shard in shards:
            if shard.name not in self._coming and not Store.is_store(self.folder / SHARDS / shard.name):
                self._coming[shard.name] = self._threads.submit(self._fetch, shard)

    def hold(self, name: str) -> int:
        """Lock a shard so that it stays; closing the descriptor that is returned releases it."""
        self._lock(name).parent.mkdir(exist_ok=True)
        descriptor = os.open(self._lock(name), os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.utime(self._lock(name))
        return descriptor

    def _lock(self, name: str) -> Path:
        return self.folder / SHARDS / f"{name}.lock"

    def _fetch(self, shard: Any) -> Path:
        plain = shard if isinstance(shard, Mapping) else shard._asdict()
        name, folder = plain["name"], self.folder / SHARDS / plain["name"]
        folder.parent.mkdir(exist_ok=True)
        if Store.is_store(folder):
            return folder
        with _alone(self.folder / SHARDS / f"{name}.fetching"):
            if Store.is_store(folder):
                return folder
            with _alone(self.folder / SHARDS / "room"):
                self._make_room(int(plain["bytes"]), keep=name)
            with hidden(folder) as stage:
                made = stage / name
                made.mkdir()
                header = made / HEADER
                self._place.fetch(f"{SHARDS}/{name}/{HEADER}", header, None, plain["sha256"])
                files = json.loads(header.read_text(encoding="utf-8"))["files"]
                sizes = {file: (int(one["bytes"]), str(one["sha256"])) for file, one in files.items()}
                _require_inside(self.address, sizes)
                for file, (size, digest) in sizes.items():
                    self._place.fetch(f"{SHARDS}/{name}/{file}", made / file, size, digest)
                put(made, folder)
        return folder

    def _make_room(self, wanted: int, *, keep: str) -> None:
        """Remove shards that nobody holds, the longest unused first, until there is room."""
        if not self.limit:
            return
        there = [folder for folder in (self.folder / SHARDS).iterdir() if folder.is_dir()]
        sizes = {folder: sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) for folder in there}
        held = 0

        def used(folder: Path) -> float:
            lock = self._lock(folder.name)
            return lock.stat().st_mtime if lock.exists() else 0.0

        for folder in sorted(there, key=used):
            if sum(sizes.values()) + wanted <= self.limit:
                return
            if folder.name.startswith("."):  # being fetched
                continue
            with (self.folder / SHARDS / f"{folder.name}.lock").open("a") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held += 1
                    continue
                shutil.rmtree(folder, ignore_errors=True)
                sizes.pop(folder)
        if sum(sizes.values()) + wanted > self.limit:
            raise CorpusError(
                f"{self.folder}: the cache may take {self.limit / 1e9:.2f} GB; the {held} shards that are being read take "
                f"{sum(sizes.values()) / 1e9:.2f} GB, and {keep} needs {wanted / 1e9:.2f} GB more.\n"
                "  Give a larger --cache DIR:SIZE, or fewer training.lanes."
            )


class _Place:
    """A folder in object storage."""

    def __init__(self, address: str, files: Any, path: str) -> None:
        self.address, self.files, self.path = address.rstrip("/"), files, path.rstrip("/")

    @classmethod
    def of(cls, address: str) -> _Place:
        if urlsplit(address).username is not None:
            raise CorpusError(
                f"{urlsplit(address).scheme}://…@{urlsplit(address).hostname}: an address must not contain a name or a key, "
                "which is recorded.\n  Put them where the client of the storage looks for them, such as AWS_ACCESS_KEY_ID."
            )
        try:
            import fsspec
        except ImportError:
            raise MissingExtra("fsspec", "cloud", f"reading {address}") from None
        try:
            files, path = fsspec.core.url_to_fs(address)
        except ImportError as error:
            raise CorpusError(f'{address}: {error}.\n  The client of s3 comes with: pip install "cloze[cloud]"') from None
        except ValueError as error:
            raise CorpusError(f"{address}: {error}. Known are s3, gs, az, hf, https, file and memory.") from None
        return cls(address, files, str(path))

    def read(self, name: str) -> bytes:
        """A small file."""
        found: bytes = self._trying(name, lambda: self.files.cat_file(f"{self.path}/{name}"))
        return found

    def size(self, name: str) -> int | None:
        """The bytes of a file; None if it is not there."""
        try:
            return int(self.files.info(f"{self.path}/{name}")["size"])
        except FileNotFoundError:
            return None

    def fetch(self, name: str, to: Path, size: int | None, digest: str) -> None:
        """Fetch a file and check it: its size, and its sha256."""
        to.parent.mkdir(parents=True, exist_ok=True)

        def fetch() -> None:
            found = hashlib.sha256()
            with self.files.open(f"{self.path}/{name}", "rb", block_size=_BLOCK) as source, to.open("wb") as target:
                while data := source.read(_BLOCK):
                    target.write(data)
                    found.update(data)
                written = target.tell()
            if size is not None and written != size:
                raise _Wrong(f"has {written:,} bytes, expected {size:,}")
            if found.hexdigest() != digest:
                raise _Wrong(f"has the checksum {found.hexdigest()[:12]}, expected {digest[:12]}")

        self._trying(name, fetch)

    def write(self, file: Path, name: str) -> None:
        """Write a file."""
        self._trying(name, lambda: self.files.put_file(str(file), f"{self.path}/{name}"))

    def write_bytes(self, data: bytes, name: str) -> None:
        """Write a small file."""
        self._trying(name, lambda: self.files.pipe_file(f"{self.path}/{name}", data))

    def _trying(self, name: str, call: Callable[[], Answer]) -> Answer:
        """What a call gives, tried several times."""
        reason = ""
        for number in range(_TRIES):
            if number:
                time.sleep(_PAUSE * 2 ** (number - 1))
            try:
                return call()
            except FileNotFoundError:
                reason = "is not there"
            except _Wrong as error:
                reason = str(error)
            except PermissionError as error:
                raise CorpusError(f"{self.address}/{name}: no permission ({error}).") from None
            except OSError as error:
                if error.filename is not None and not is_address(str(error.filename)):  # the disk of this machine
                    raise RunError(f"{error.filename}: {error.strerror}.") from error
                reason = f"cannot be reached ({type(error).__name__}: {error})"
        raise CorpusError(
            f"{self.address}/{name}: {reason} (tried {_TRIES} times).\n"
            "  Nothing is lost: the same command goes on from the last checkpoint. Repair it with: cloze corpus copy FROM TO"
        )


class _Wrong(Exception):
    """A file that arrived, but not whole."""


def copy_store(source: str, target: str, say: Callable[[str], None]) -> None:
    """Copy a store; either side may be an address. Files that are there already are left, and the header is written last."""
    read, write = _at(source), _at(target)
    text = read.read(HEADER)
    header = parse_json(text)
    names = list(header["files"])
    for shard in header.get(SHARDS, ()):
        inside = f"{SHARDS}/{shard['name']}"
        names += [f"{inside}/{name}" for name in [*parse_json(read.read(f"{inside}/{HEADER}"))["files"], HEADER]]
    copied = 0
    for name in names:
        if write.size(name) != read.size(name) or name.endswith(HEADER):
            with read.files.open(f"{read.path}/{name}", "rb") as one:
                write.files.makedirs(f"{write.path}/{name}".rpartition("/")[0], exist_ok=True)
                with write.files.open(f"{write.path}/{name}", "wb") as other:
                    shutil.copyfileobj(one, other, _BLOCK)
            copied += 1
    for file in read.files.glob(f"{read.path}/plans/*/rows.json"):
        name = "plans/" + "/".join(str(file).split("/")[-2:])
        write.files.makedirs(f"{write.path}/{name}".rpartition("/")[0], exist_ok=True)
        write.write_bytes(read.read(name), name)
    write.write_bytes(text, HEADER)
    say(f"{target}: {copied:,} of {len(names):,} files copied, the others were there")


def _at(path: str) -> _Place:
    return _Place.of(path if is_address(path) else Path(path).resolve().as_uri())


def _fetch_counts(remote: _Place, folder: Path) -> None:
    """Fetch the numbers of rows that were counted before."""
    try:
        found = remote.files.glob(f"{remote.path}/plans/*/rows.json")
    except (OSError, NotImplementedError):
        return
    for file in map(str, found):
        target = folder / "plans" / file.split("/")[-2] / "rows.json"
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(remote.read("/".join(["plans", *file.split("/")[-2:]])))


def _require_inside(address: str, names: Mapping[str, Any]) -> None:
    for name in names:
        if name.startswith("/") or ".." in name.split("/"):
            raise CorpusError(f"{address}: names the file {name!r}, which is outside the store.")


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    with file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
