"""Checkpoints: folders that appear atomically, are verified when read, and never damage earlier ones.

    RUN/                                  a Hugging Face folder: the last checkpoint's files, published
    RUN/cloze/checkpoints/step-00000100/  the same files, and
        state/parameters.safetensors      every parameter by our names, tied ones once
        state/optimizer.safetensors       the optimizer's tensors, `<parameter>:<key>`
        state/carry.safetensors           the memory of every lane, `<entry>:<pass>:<key>`, where networks have one
        state/state.json                  what was spent, cursors, seed, budget, checksums; written last
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cloze.atomic import flush, put, recover
from cloze.errors import CheckpointError, RunError
from cloze.training.tensors import read_tensors, sha256, write_tensors
from cloze.untrusted import parse_json, read_small

Export = Callable[[Path, Mapping[str, Tensor], int], object]

VERSION = 1
_STATE = "state"
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Checkpoints:
    """The checkpoints of one run: keeps step 0, the steps named in `keep_steps`, the last `keep` and the `best` one."""

    def __init__(self, run: Path, *, keep: int = 2, keep_steps: Iterable[int] = ()) -> None:
        self.run = run
        self.folder = run / "cloze" / "checkpoints"
        self.keep = max(keep, 1)
        self.keep_steps = frozenset({0, *keep_steps})
        self.best: int | None = None  # the step whose checkpoint the run publishes; None: the last

    def keep_best(self, step: int) -> None:
        """Keep and publish the checkpoint of this step, in place of the last one."""
        self.best = step

    def recover(self) -> None:
        """Restore the name of a checkpoint that a killed process had moved aside to save the same step again."""
        for copy in self.folder.glob(".step-*.kept"):
            recover(self.folder / copy.name[1 : -len(".kept")])

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, ascending."""
        paths = self.folder.glob("step-*") if self.folder.is_dir() else ()
        return sorted(int(path.name[5:]) for path in paths if path.name[5:].isdigit())

    def path(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return self.folder / f"step-{step:08d}"

    def save(
        self, state: Mapping[str, Any], *, parameters: Mapping[str, Tensor], optimizer: Mapping[str, Tensor],
        export: Callable[[Path], object], carry: Mapping[str, Tensor] | None = None,
    ) -> Path:
        """Write the checkpoint of `state["step"]`, publish its Hugging Face files if it is the one to publish, remove old ones.

        Raises:
            RunError: the disk is full or cannot be written; nothing of the new checkpoint is left, the old ones are whole.
        """
        target = self.path(state["step"])
        partial = self.folder / f".{target.name}.partial"
        try:
            self._clean()
            (partial / _STATE).mkdir(parents=True)
            export(partial)
            parts = {"parameters": parameters, "optimizer": optimizer, **({"carry": carry} if carry else {})}
            files = {name: _write(partial / _STATE / f"{name}.safetensors", tensors) for name, tensors in parts.items()}
            record = {"version": VERSION, **state, "files": files}
            (partial / _STATE / "state.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            flush(partial)
            put(partial, target)
            if self.best in (None, state["step"]):
                publish(target, self.run)
        except Exception as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise self._failure(error, target) from error
        self._drop_old()
        return target

    def load(self, step: int | None = None) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
        """The state, parameters and optimizer tensors of a checkpoint (default: the last), checked against checksums.

        Raises:
            CheckpointError: there is none, or it is damaged or incomplete.
        """
        steps = self.steps()
        if not steps:
            raise CheckpointError(f"{self.folder}: holds no checkpoint.")
        path = self.path(steps[-1] if step is None else step)
        state = self.read_state(path)
        return state, self._tensors(path, state, "parameters"), self._tensors(path, state, "optimizer")

    def load_carry(self, step: int) -> dict[str, Tensor]:
        """The memory of every lane at a step; empty if there was none. Raises as `load`."""
        path = self.path(step)
        state = self.read_state(path)
        return self._tensors(path, state, "carry") if "carry" in state["files"] else {}

    def _tensors(self, path: Path, state: Mapping[str, Any], name: str) -> dict[str, Tensor]:
        file, expected = path / _STATE / f"{name}.safetensors", state["files"][name]
        size = file.stat().st_size if file.is_file() else None
        if size != expected["bytes"]:
            actual = "no" if size is None else str(size)
            raise self._damaged(path, f"{file.name} has {actual} bytes of {expected['bytes']}")
        if sha256(file) != expected["sha256"]:
            raise self._damaged(path, f"{file.name} does not match its checksum")
        return read_tensors(file)

    def read_state(self, path: Path) -> dict[str, Any]:
        """The `state.json` of a checkpoint folder."""
        file = path / _STATE / "state.json"
        try:
            state = parse_json(read_small(file))
            complete = {"version", "step", "files", "spent", "cursors", "held_out_losses"} <= state.keys()
        except (OSError, ValueError, AttributeError):
            raise self._damaged(path, f"{_STATE}/state.json is missing or cannot be read") from None
        if state.get("version", VERSION) != VERSION:
            raise CheckpointError(
                f"{path}: was written in checkpoint format {state['version']}; this cloze reads format {VERSION}. "
                "Use the version of cloze that wrote it."
            )
        if not complete:
            raise self._damaged(path, f"{_STATE}/state.json lacks entries")
        return dict(state)

    def publish_last(self) -> None:
        """Publish the run's checkpoint again and remove what is half-removed, in case the process was killed meanwhile."""
        if self.steps():
            self._clean()
            publish(self.path(self.steps()[-1] if self.best is None else self.best), self.run)

    def _clean(self) -> None:
        """Remove what a killed run left half-written or half-removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.recover()
        for path in self.folder.glob(".step-*"):
            shutil.rmtree(path, ignore_errors=True)

    def _drop_old(self) -> None:
        """Remove checkpoints that need not be kept; each is renamed before its files are removed."""
        passing = [step for step in self.steps() if step not in self.keep_steps and step != self.best]
        for step in passing[: -self.keep]:
            path = self.path(step)
            hidden = path.with_name(f".{path.name}.removed")
            os.replace(path, hidden)
            shutil.rmtree(hidden, ignore_errors=True)

    def _failure(self, error: Exception, target: Path) -> Exception:
        full = "os error 28" in str(error)  # the wording of the safetensors package
        if not full and not isinstance(error, OSError):
            return error
        reason = error.strerror or str(error) if isinstance(error, OSError) else ""
        full = full or (isinstance(error, OSError) and error.errno in _FULL_DISK)
        steps = self.steps()
        last = f"The checkpoint of step {steps[-1]} is whole" if steps else "No checkpoint was written before"
        return RunError(
            f"{target}: cannot write the checkpoint: {'the disk is full' if full else reason}.\n"
            f"  {last}; make room or permit writing there, then run the same command again to continue from it."
        )

    def _damaged(self, path: Path, what: str) -> CheckpointError:
        earlier = [step for step in self.steps() if self.path(step) != path]
        way_out = f"the run then continues from step {max(earlier)}" if earlier else "and start the run again"
        return CheckpointError(
            f"{path}: this checkpoint is damaged or was copied only in part: {what}.\n"
            f"  Copy it again from its origin, or delete this folder: {way_out}."
        )


def _write(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write tensors to a file; its size and checksum."""
    checksum = write_tensors(path, tensors)
    return {"bytes": path.stat().st_size, "sha256": checksum}


def publish(source: Path, run: Path) -> None:
    """Put a checkpoint's Hugging Face files at the top of a run's folder, each atomically: linked, or copied if links fail."""
    for file in sorted(source.rglob("*")):
        inner = file.relative_to(source)
        if not file.is_file() or inner.parts[0] == _STATE:
            continue
        target = run / inner
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        fresh.unlink(missing_ok=True)
        try:
            os.link(file, fresh)
        except OSError:
            shutil.copyfile(file, fresh)
        os.replace(fresh, target)
        fresh.unlink(missing_ok=True)  # where both were links to one file, renaming did nothing
