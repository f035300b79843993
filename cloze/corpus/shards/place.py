"""A folder at an address such as s3://bucket/store: files are read and written by fsspec, checked, and tried several times."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from cloze.errors import ClozeError, CorpusError, MissingExtra, RunError

RESUMES = "Nothing is lost: the same command resumes from the last checkpoint."
_REPAIR = "To repair a copy, remove that file, then: cloze corpus copy STORE ADDRESS"
_TRIES = 4
_PAUSE = 0.5  # seconds before the second try; each further pause is twice as long
_BLOCK = 1 << 22
Answer = TypeVar("Answer")


def is_address(path: str | Path) -> bool:
    """Whether a path is an address such as s3://bucket/store."""
    return "://" in str(path)


class RemoteFolder:
    """A folder in object storage. `address` has no slash at its end; `files` is its file system by fsspec, `path` its path there.

    Every fault but a missing permission is tried again. `advice` ends the message about one that stays.
    """

    def __init__(self, address: str, files: Any, path: str, advice: str = RESUMES) -> None:
        self.address, self.files, self.path, self.advice = address.rstrip("/"), files, path.rstrip("/"), advice

    @classmethod
    def of(cls, address: str, advice: str = RESUMES) -> RemoteFolder:
        """The place at an address; that of a path here is `Path.as_uri`.

        Raises `CorpusError` for an address that cannot be used, `MissingExtra` without fsspec.
        """
        parts = urlsplit(address)
        if parts.username is not None:
            raise CorpusError(
                f"{parts.scheme}://…@{parts.hostname}: an address must not contain a name or a key, "
                "which is recorded.\n  Put them where the client of the storage looks for them, such as AWS_ACCESS_KEY_ID."
            )
        try:
            import fsspec
        except ImportError:
            raise MissingExtra("fsspec", "cloud", f"reading {address}") from None
        try:
            files, path = fsspec.core.url_to_fs(address)
        except ImportError as error:
            raise CorpusError(
                f'{address}: {error}.\n  The clients of s3 and https come with: pip install "cloze-lm[cloud]"'
            ) from None
        except ValueError as error:
            raise CorpusError(f"{address}: {error}. Known are s3, gs, az, hf, https, file and memory.") from None
        except Exception as error:  # whatever the client of a storage raises
            raise CorpusError(f"{address}: cannot be reached ({_told(error)}).") from None
        return cls(address, files, str(path), advice)

    def read(self, name: str) -> bytes:
        """A small file."""
        content: bytes = self.trying(name, lambda: self.files.cat_file(f"{self.path}/{name}"))
        return content

    def sizes(self, folder: str = "") -> dict[str, int]:
        """The sizes of all files below a folder by their names, which begin with that of the folder; none if it is not there."""
        top = f"{self.path}/{folder}".rstrip("/")

        def find() -> dict[str, int]:
            self.files.invalidate_cache()
            try:
                files: dict[str, Any] = self.files.find(top, detail=True)
            except FileNotFoundError:
                return {}
            start = len(str(self.path).lstrip("/")) + 1
            return {str(name).lstrip("/")[start:]: int(about["size"] or 0) for name, about in files.items()}

        return self.trying(folder, find)

    def fetch(self, name: str, to: Path, size: int | None, digest: str | None) -> None:
        """Fetch a file and check its size and its sha256 (None: not known)."""
        to.parent.mkdir(parents=True, exist_ok=True)

        def fetch() -> None:
            with self.open(name) as source, to.open("wb") as target:
                _copied(source, target, size, digest)

        self.trying(name, fetch)

    def put(self, source: RemoteFolder, name: str, size: int | None = None, digest: str | None = None) -> None:
        """Copy a file of the same name from another place, and check its size and its sha256 on the way (None: not known)."""

        def put() -> None:
            self.files.makedirs(f"{self.path}/{name}".rpartition("/")[0], exist_ok=True)
            with source.open(name) as reader, self.files.open(f"{self.path}/{name}", "wb") as other:
                _copied(reader, other, size, digest)

        self.trying(name, put)

    def write(self, data: bytes, name: str) -> None:
        """Write a small file."""
        self.trying(name, lambda: self.files.pipe_file(f"{self.path}/{name}", data))

    def open(self, name: str) -> Any:
        """A stream of the bytes of a file."""
        return self.files.open(f"{self.path}/{name}", "rb", block_size=_BLOCK)

    def trying(self, name: str, call: Callable[[], Answer]) -> Answer:
        """What a call gives, tried several times. `name` is the file that it is about."""
        reason, advice, file = "", self.advice, f"{self.address}/{name}".rstrip("/")
        for number in range(_TRIES):
            if number:
                time.sleep(_PAUSE * 2 ** (number - 1))
            try:
                return call()
            except ClozeError:
                raise
            except FileNotFoundError:
                reason = "is not there"
            except _Wrong as error:
                reason, advice = str(error), f"{self.advice}\n  {_REPAIR}"
            except PermissionError as error:
                raise CorpusError(f"{file}: no permission ({error}).") from None
            except Exception as error:  # whatever the client of a storage raises
                if isinstance(error, OSError) and error.filename is not None and not is_address(str(error.filename)):
                    raise RunError(f"{error.filename}: {error.strerror}.") from error  # the disk of this machine
                reason = f"cannot be reached ({_told(error)})"
        raise CorpusError(f"{file}: {reason} (tried {_TRIES} times).\n  {advice}")


class _Wrong(Exception):
    """A file that arrived, but not whole."""


def require_main_thread() -> None:
    """End a thread that would otherwise keep a process alive whose work is done."""
    if not threading.main_thread().is_alive():
        raise RunError("the process ends.")


def _copied(source: IO[bytes], target: IO[bytes], size: int | None, digest: str | None) -> None:
    checksum, count = hashlib.sha256(), 0
    while data := source.read(_BLOCK):
        require_main_thread()
        target.write(data)
        checksum.update(data)
        count += len(data)
    if size is not None and count != size:
        raise _Wrong(f"has {count:,} bytes, expected {size:,}")
    if digest is not None and checksum.hexdigest() != digest:
        raise _Wrong(f"has the checksum {checksum.hexdigest()[:12]}, expected {digest[:12]}")


def _told(error: BaseException) -> str:
    first, *_ = (str(error) or "no reason given").splitlines()
    return f"{type(error).__name__}: {first}"
