"""Compiles every kernel and caches its machine code for later processes. Importing this imports numba.

numba's own cache checks only the file of the compiled function. But a kernel uses functions and constants from several files.
After a change in one of them, numba would load stale code that computes something else. So the names of our cache files contain
`key()`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache

_ROOT = Path(__file__).parent
_NOT_COMPILED = "registry.py"
_OLD = 30 * 24 * 3600.0  # seconds after which code under another key is deleted


#: How kernels of vectors are compiled. `fastmath` allows sums to be reordered; without it no dot product is vectorised. `_nrt`
#: off disables reference counting, which took half the time of a window; such kernels may neither allocate nor copy slices.
OPTIONS: dict[str, Any] = {"fastmath": True, "error_model": "numpy", "_nrt": False}
#: For functions that kernels call: inlined, because a call passes every array field by field, half the time of a small window.
INNER = {**OPTIONS, "forceinline": True}
#: For kernels that meet infinities on purpose, such as masked scores.
STRICT = {**OPTIONS, "fastmath": {"reassoc", "contract"}}


def sources() -> list[Path]:
    """The source files of all kernels."""
    return sorted(path for path in _ROOT.rglob("*.py") if path.name != _NOT_COMPILED)


@cache
def key() -> str:
    """A hex digest of what machine code depends on beyond numba's own key (function, argument types, processor).

    That is the content of `sources()` and the versions of numba and llvmlite.
    """
    digest = sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in sources():
        content = path.read_bytes()
        digest.update(f"\n{path.relative_to(_ROOT).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: `numba.njit` with `options`, without the interpreter's lock and without bounds checks.

    The machine code is cached unless numba finds no writable folder.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(nogil=True, boundscheck=False, **options)(function)
        with suppress(RuntimeError):  # neither the package's folder nor the user's is writable
            dispatcher._cache = _Kept(function)
        return dispatcher

    return compiled


def is_kept(*dispatchers: Any) -> bool:
    """Whether the cache holds machine code of all of these kernels, for any argument types."""
    return all(isinstance(dispatcher._cache, _Kept) and dispatcher._cache.exists() for dispatcher in dispatchers)


class _Names(CompileResultCacheImpl):
    """File names that contain the key, so that hosts that share a folder never load each other's code."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        return f"{super().get_filename_base(fullname, abiflags)}-{key()}"


class _Kept(FunctionCache):
    """numba's cache of one function under our file names."""

    _impl_class = _Names

    def exists(self) -> bool:
        return Path(self._cache_path, f"{self._impl.filename_base}.nbi").is_file()

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        """Code for these argument types. Processes that compile at the same time may have overwritten each other's files."""
        overload = super()._load_overload(sig, target_context)
        return overload if overload is None or overload.signature.args == tuple(sig) else None

    def _save_overload(self, sig: Any, data: Any) -> None:
        super()._save_overload(sig, data)
        name = self._impl.filename_base.removesuffix(key()).rpartition(".py")[0]  # up to the line of the function
        for path in Path(self._cache_path).glob(f"{name.rpartition('-')[0]}-*.nb[ic]"):
            try:
                if key() not in path.name and time.time() - path.stat().st_mtime > _OLD:
                    path.unlink()
            except OSError:
                continue  # another process deleted it first
