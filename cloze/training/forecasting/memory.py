"""Memory: what this machine has left, and the peak of a piece of work."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cloze.processes import processes_here

_GROUPS = Path("/sys/fs/cgroup")


def available(device: torch.device) -> int | None:
    """Bytes that this process can still take on a device; None if the system does not report it.

    For a CPU: what is free or can be freed, within the limits of the control groups (of a container, a job). Several
    processes of one run on a machine share it equally.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    bounds = [bytes_ for bytes_ in (_system(), *_limits()) if bytes_ is not None]
    return min(bounds) // processes_here() if bounds else None


def resident() -> int:
    """Bytes that this process holds for itself now, without files mapped into memory; 0 if the system does not report it."""
    return _kilobytes(Path("/proc/self/status"), "RssAnon:") or 0


def peaks(work: Callable[[Callable[[], None]], object], device: torch.device) -> tuple[int, int]:
    """Peak bytes of the tensors that `work` creates: until it calls its argument, and in all."""
    marks: list[int] = []
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work(lambda: marks.append(torch.cuda.max_memory_allocated(device)))
        torch.cuda.synchronize(device)
        return max(marks[0] - before, 0), max(torch.cuda.max_memory_allocated(device) - before, 0)
    with _Counting() as counted:
        work(lambda: marks.append(counted.most))
    return marks[0], counted.most


class _Counting(TorchDispatchMode):
    """Adds up the storages of every tensor that an operation returns, as long as they live."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to say so, torch would load the compiler, which takes two seconds."""
        return False

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        inputs = {id(storage) for storage in _storages((args, kwargs))}
        for storage in _storages(results):
            if id(storage) not in inputs:
                self._add(storage)
        return results

    def _add(self, storage: Any) -> None:
        if storage in self._known:
            return
        size = storage.nbytes()
        self._known[storage] = size
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._remove, size).atexit = False

    def _remove(self, size: int) -> None:
        self.now -= size


def _storages(tensors: Any) -> list[Any]:
    """The memory behind tensors; those of other libraries (oneDNN's weights) do not show theirs."""
    storages = []
    for leaf in tree_leaves(tensors):
        if isinstance(leaf, Tensor):
            with suppress(NotImplementedError, RuntimeError):
                storages.append(leaf.untyped_storage())
    return storages


def _system() -> int | None:
    """The memory that the kernel reports as available, without swap."""
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable:")


def _kilobytes(file: Path, name: str) -> int | None:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)


def _limits() -> list[int | None]:
    """What is left in each control group of this process, of version 2 or 1."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    bounds: list[int | None] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            bounds += _left(_GROUPS, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            bounds += _left(_GROUPS / "memory", path, *names)
    return bounds


def _left(root: Path, path: str, limit: str, usage: str, reclaimable: str) -> list[int | None]:
    """Limit less usage of a group and of all groups above it; unused file pages do not count as used."""
    inner = root / path.lstrip("/")
    bounds: list[int | None] = []
    for folder in [inner, *inner.parents]:
        if root not in (folder, *folder.parents):
            break
        try:
            most = (folder / limit).read_text(encoding="utf-8").strip()
            used = int((folder / usage).read_text(encoding="utf-8"))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines())
        except (OSError, ValueError):
            continue
        if most != "max":
            bounds.append(max(int(most) - used + int(stat.get(reclaimable, 0)), 0))
    return bounds
