"""Copies of finished checkpoints elsewhere: object storage or another disk, by fsspec (`--mirror URL`).

    URL/cloze/checkpoints/step-00000100/…   as in the run folder; `state/state.json` is copied last, so what has it is whole
    URL/cloze/run.json, environment.json, log.jsonl

A run that lost its disk continues from a copy of all this: `aws s3 cp --recursive URL RUN`, then the same command. What cannot be
copied never stops a run. Credentials come from the environment, and the URL is part of no record.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cloze.errors import MissingExtra, UserError

_TRIES = 4
_WAIT = 1.0  # seconds before the second try; doubled for each further one
_LAST = "state/state.json"
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
        if re.match(r"[a-z0-9+]+://[^/]*@", url):
            raise UserError("--mirror: the URL holds a name or a password. Give credentials by the environment, not in the URL.")
        try:
            self.files, self.root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise UserError(f"--mirror {url}: {error}. Install that package, too.") from None
        except ValueError as error:
            raise UserError(f"--mirror {url}: {error}. Expected a URL such as s3://bucket/run or file:///disk/run.") from None
        self.url, self.say = url, say

    def copy(self, run: Path, steps: Iterable[int]) -> None:
        """Copy the run's checkpoints of these steps, unless they are there, and what it records; remove copies of other steps."""
        wanted = {f"step-{step:08d}" for step in steps}
        try:
            for name in sorted(wanted - self.whole(), reverse=True):  # the last one first
                self._checkpoint(run / "cloze" / "checkpoints" / name, f"cloze/checkpoints/{name}")
            for name in _RUN:
                if (run / "cloze" / name).is_file():
                    self._put(run / "cloze" / name, f"cloze/{name}")
            for name in self._names() - wanted:
                self.files.rm(f"{self.root}/cloze/checkpoints/{name}", recursive=True)
        except Exception as error:  # whatever a file system of others raises
            self.say(
                f"{self.url}: could not be given copies of all checkpoints: {type(error).__name__}: {error}\n"
                "  The run goes on, and its own folder is whole; the next checkpoint tries again."
            )

    def whole(self) -> set[str]:
        """The names of the checkpoints of which there is a whole copy."""
        return {name for name in self._names() if self.files.exists(f"{self.root}/cloze/checkpoints/{name}/{_LAST}")}

    def _names(self) -> set[str]:
        try:
            found: list[Any] = self.files.ls(f"{self.root}/cloze/checkpoints", detail=False, refresh=True)
        except FileNotFoundError:
            return set()
        names = {str(one).rstrip("/").rpartition("/")[2] for one in found}
        return {name for name in names if re.fullmatch(r"step-\d{8,}", name)}

    def _checkpoint(self, folder: Path, target: str) -> None:
        inside = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
        for name in [*(name for name in inside if name != _LAST), _LAST]:
            self._put(folder / name, f"{target}/{name}")

    def _put(self, file: Path, target: str) -> None:
        """Copy a file and look at the size of the copy; a fault is tried again."""
        path = f"{self.root}/{target}"
        for number in range(_TRIES):
            try:
                size = file.stat().st_size
                self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
                self.files.put_file(str(file), path)
                self.files.invalidate_cache()
                if (found := self.files.size(path)) == size or file.name == "log.jsonl":  # which grows meanwhile
                    return
                raise OSError(f"{target} has {found} bytes there and {size} here")
            except Exception:  # whatever a file system of others raises
                if number + 1 == _TRIES:
                    raise
                time.sleep(_WAIT * 2**number)
