"""The machine: its matrix rate for MFU, its allocator, its description for the record."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch

from cloze.version import __version__

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # glibc's malloc.h
_GIVE_BACK_ABOVE = 2**31 - 1
_PACKAGES = ("torch", "numpy", "tokenizers", "safetensors")


@cache
def matrix_rate(device: torch.device, precision: Literal["fp32", "bf16"]) -> float:
    """FLOP/s of a large matrix product here and now: the best of a few, so that MFU is relative to what is achievable.

    One product is enough if it takes half a second, as in bfloat16 on a processor without bfloat16 instructions.
    """
    size = 8192 if device.type == "cuda" else 1024
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (torch.randn(size, size, generator=torch.Generator().manual_seed(k)) for k in range(2))
    left, right = left.to(device, dtype), right.to(device, dtype)
    best, begin = float("inf"), time.perf_counter()
    for _ in range(8):
        start = time.perf_counter()
        if start - begin > 0.5:
            break
        left @ right
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best


@cache
def allocator() -> str:
    """The memory allocator in use: jemalloc, tcmalloc, mimalloc or the system's."""
    try:
        loaded = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "system"
    return next((name for name in ("jemalloc", "tcmalloc", "mimalloc") if name in loaded), "system")


def keep_memory() -> bool:
    """Tell glibc to keep freed memory instead of returning it to the system after every step.

    Large temporaries are otherwise unmapped and faulted in again at each step, which costs a CPU run 10 to 30 % of its
    speed. Does nothing and returns False under another allocator or another C library.
    """
    if not sys.platform.startswith("linux") or allocator() != "system":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _GIVE_BACK_ABOVE), (_M_TOP_PAD, 64 << 20))
    done = [bool(mallopt(name, value)) for name, value in settings]
    return all(done)


def allocator_hint(device: torch.device) -> str | None:
    """One line for a CPU run that would be faster under another allocator."""
    if device.type != "cpu" or allocator() != "system" or not sys.platform.startswith("linux"):
        return None
    return (
        "hint: training on a CPU is often faster under tcmalloc: install it and start with "
        "LD_PRELOAD=<path to libtcmalloc_minimal.so.4>"
    )


def environment(device: torch.device, precision: str) -> dict[str, Any]:
    """The facts about the machine that matter for a run, as plain values."""
    described: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "precision": precision,
        "allocator": allocator(),
        "packages": {"cloze": __version__} | {name: installed for name in _PACKAGES if (installed := _version(name))},
    }
    if device.type == "cuda":
        described["gpu"] = torch.cuda.get_device_name(device)
        described["cuda"] = torch.version.cuda
    return described


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    model_names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(model_names, platform.processor())
