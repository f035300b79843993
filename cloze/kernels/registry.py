"""Which compiled functions there are, what they replace and when they pay. Importing this imports neither numba nor a kernel."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from cloze.errors import MissingExtra


class Kernel(NamedTuple):
    """A module of compiled functions, and what it replaces.

    `plain`: the plain code that computes the same; `tolerance`: the largest relative difference from it, 0 if all bits are equal;
    `least`: numbers from which on a call pays; `threads`: of torch, up to which it does.
    """

    module: str
    plain: str
    tolerance: float
    least: int = 0
    threads: int = 1 << 20


#: By name. tests/contracts/test_kernels.py compares each with its plain code.
KERNELS: dict[str, Kernel] = {
    "dropout": Kernel("dropout", "cloze.networks.blocks.dropout.Dropout", 0.0, least=1 << 16),
    "gelu": Kernel("gelu", "torch.nn.functional.gelu", 8e-3, least=1 << 16, threads=2),
    "cross_entropy": Kernel("cross_entropy", "cloze.objectives.cross_entropy.cross_entropy_sum", 4e-3, least=1 << 16),
    "chunks": Kernel("chunks", "cloze.text.encoding.chunks.ChunkEncoder", 0.0),
    "pairs": Kernel("pairs", "cloze.corpus.counting.pair_counting.counted", 0.0),
    "glove": Kernel("vectors.glove", "cloze.training.loop", 1e-5),
    "skipgram": Kernel("vectors.shared", "cloze.training.loop", 2e-2),
    "windows": Kernel("vectors.exact", "cloze.training.loop", 2e-2),
    "texts": Kernel("vectors.texts", "cloze.training.loop", 1e-5),
    "translation": Kernel("vectors.translation", "cloze.training.loop", 1e-5),
}


@cache
def has_numba() -> bool:
    """Whether the extra `fast` is installed, and the environment does not say `CLOZE_NUMBA=off`."""
    return os.environ.get("CLOZE_NUMBA", "") != "off" and find_spec("numba") is not None


def find(name: str, *, size: int | None = None, threads: int = 1) -> Any:
    """The module of a kernel; None where numba is missing, or where plain code is as fast for `size` numbers on `threads`."""
    kernel = KERNELS[name]
    if not has_numba() or (size is not None and size < kernel.least) or threads > kernel.threads:
        return None
    return import_module(f"cloze.kernels.{kernel.module}")


def require(name: str, purpose: str) -> Any:
    """The module of a kernel. Raises `MissingExtra` without numba; `purpose` says in its text what numba is for."""
    module = find(name)
    if module is None:
        raise MissingExtra("numba", "fast", purpose)
    return module


def are_compiled(*functions: Any) -> bool:
    """Whether the machine code of all of these functions is on disk already."""
    from cloze.kernels.compiling import is_kept

    return is_kept(*functions)
