"""Copies of finished checkpoints elsewhere: object storage or another disk, by fsspec (`--mirror URL`).

    URL/cloze/checkpoints/step-00000100/…   as in the run folder; `state/state.json` is copied last, so what has it is whole
    URL/cloze/run.json, environment.json, log.jsonl

A run that lost its disk continues from a copy of all this: `aws s3 cp --recursive URL RUN`, then the same command. A place that
holds another run, or later checkpoints than the run has, is refused: copying would remove them. What cannot be copied never stops
a run. Credentials come from the environment, and the URL is part of no record.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from cloze.errors import CheckpointError, MissingExtra, UserError

_TRIES = 4
_WAIT = 1.0  # seconds before the second try; doubled for each further one
_LAST = "state/state.json"
_RECORD = "cloze/run.json"
_RUN = ("run.json", "environment.json", "log.jsonl")


class Mirror:
    """A place for copies of checkpoints. `say` is told what could not be copied.

    Raises `UserError` for a URL that cannot be used, `MissingExtra` without fsspec.
    """

    def __init__(self, url: str, *, say: Callable[[str], object] = print) -> None:
        try:
            import fsspec
        except ImportError:
            raise MissingExtra("fsspec", "cloud", "--mirror") from None
        if not url:
            raise UserError("--mirror: is empty. Expected a URL such as s3://bucket/run or file:///disk/run.")
        if re.search("://[^/]*@", url):
            raise UserError("--mirror: the URL holds a name or a password. Give credentials by the environment, not in the URL.")
        try:
            self.files, self.root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise UserError(f"--mirror {url}: a package is missing: {error}.") from None
        except ValueError as error:
            raise UserError(f"--mirror {url}: {error}. Expected a URL such as s3://bucket/run or file:///disk/run.") from None
        self.url, self.say = url, say
        self._own = False  # nothing of another run is there

    def require_usable(self, run: Path) -> None:
        """Make the folder if it is on a disk of this machine. Raises `UserError` if it cannot be made, or is the run folder."""
        if "file" not in _protocols(self.files):
            return
        if Path(self.root).resolve() == run.resolve():
            raise UserError(f"--mirror {self.url}: is the folder of the run itself. Name a place on another disk.")
        try:
            Path(self.root).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--mirror {self.url}: cannot be used: {error.strerror}. Name another place.") from None

    def require_own(self, run: Path, steps: Collection[int]) -> None:
        """Raise `CheckpointError` if there are checkpoints of another run, or later ones than those that `run` has (`steps`).

        Raises what the file system raises if it cannot be reached.
        """
        copied = max((int(name[5:]) for name in self.whole()), default=-1)
        if copied > max(steps, default=-1) or (copied >= 0 and self._there() != _identity((run / _RECORD).read_bytes())):
            raise CheckpointError(
                f"--mirror {self.url}: holds the checkpoint of step {copied} of a run, which {run} does not have.\n"
                f"  If {run} has lost its files, copy everything from the mirror there first; the same command then continues.\n"
                "  For another run, choose another --mirror, or empty this one."
            )
        self._own = True

    def _there(self) -> tuple[Any, ...] | None:
        try:
            return _identity(self.files.cat_file(f"{self.root}/{_RECORD}"))
        except FileNotFoundError:
            return None

    def copy(self, run: Path, steps: Collection[int]) -> None:
        """Copy the run's checkpoints of these steps, unless they are there, and what it records; remove copies of other steps."""
        folders = {f"step-{step:08d}" for step in steps}
        try:
            if not self._own:
                self.require_own(run, steps)
            for name in _RUN:
                if (run / "cloze" / name).is_file():
                    self._put(run / "cloze" / name, f"cloze/{name}")
            for name in sorted(folders - self.whole(), reverse=True):  # the last one first
                self._checkpoint(run / "cloze" / "checkpoints" / name, f"cloze/checkpoints/{name}")
            for name in self._names() - folders:
                self.files.rm(f"{self.root}/cloze/checkpoints/{name}", recursive=True)
        except Exception as error:  # any file system may raise anything
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Say that not everything could be copied, and why."""
        self.say(
            f"{self.url}: checkpoints could not be copied: {type(error).__name__}: {error}\n"
            "  The run continues, and its own folder is complete; the next checkpoint tries again."
        )

    def whole(self) -> set[str]:
        """The names of the checkpoints of which there is a whole copy."""
        return {name for name in self._names() if self.files.exists(f"{self.root}/cloze/checkpoints/{name}/{_LAST}")}

    def _names(self) -> set[str]:
        try:
            entries: list[Any] = self.files.ls(f"{self.root}/cloze/checkpoints", detail=False, refresh=True)
        except FileNotFoundError:
            return set()
        names = {str(path).rstrip("/").rpartition("/")[2] for path in entries}
        return {name for name in names if re.fullmatch(r"step-\d{8,}", name)}

    def _checkpoint(self, folder: Path, target: str) -> None:
        inside = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
        for name in [*(name for name in inside if name != _LAST), _LAST]:
            self._put(folder / name, f"{target}/{name}")

    def _put(self, file: Path, target: str) -> None:
        """Copy a file and compare the size of the copy; after an error, try again."""
        path = f"{self.root}/{target}"
        for number in range(_TRIES):
            try:
                size = file.stat().st_size
                self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
                self.files.put_file(str(file), path)
                self.files.invalidate_cache()
                if (actual := self.files.size(path)) == size or file.name == "log.jsonl":  # which grows meanwhile
                    return
                raise OSError(f"{target} has {actual} bytes there and {size} here")
            except Exception:  # any file system may raise anything
                if number + 1 == _TRIES:
                    raise
                time.sleep(_WAIT * 2**number)


def join_url(url: str, part: Path) -> str:
    """The URL of a folder in the mirror of a run: stages have theirs where they are in the run folder."""
    return f"{url.rstrip('/')}/{part.as_posix()}"


def _identity(record: bytes) -> tuple[Any, ...]:
    """What tells runs apart, from the bytes of run.json."""
    values = json.loads(record)
    return values.get("recipe_hash"), values.get("seed")


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)
