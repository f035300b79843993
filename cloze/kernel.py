"""How every kernel is compiled, and where its machine code is kept for later processes. Importing this imports numba.

numba looks only at the file of the function it is asked for. But a kernel is made of functions and constants of several
files, and of registers whose width depends on the processor: code that was compiled before one of them changed, or for another
processor, would be loaded and compute something else. So the files of machine code carry `key()` in their names.
"""

from __future__ import annotations

import os
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
from numba.core.registry import cpu_target

from cloze.errors import UserError

_ROOT = Path(__file__).parent
_SOURCES = ("kernel.py", "lanes.py", "**/*_kernels.py", "**/kernels/*.py")
_OLD = 30 * 24 * 3600.0  # seconds after which code under another key is removed


def _lanes() -> int:
    asked = os.environ.get("CLOZE_LANES", "")
    if asked not in ("", "8", "16"):
        raise UserError(f"CLOZE_LANES={asked}: expected 8 or 16, the floats of a register. Unset it to let the processor decide.")
    features: str = cpu_target.target_context.codegen().magic_tuple()[2]
    return int(asked) if asked else 16 if "+avx512f" in features.split(",") else 8


#: Floats per register in the kernels of networks: what CLOZE_LANES says, else 16 where numba compiles for AVX-512, else 8.
LANES = _lanes()


def sources() -> list[Path]:
    """The files that kernels are made of."""
    return sorted(path for pattern in _SOURCES for path in _ROOT.glob(pattern))


@cache
def key() -> str:
    """What machine code depends on, but for numba's own part (function, argument types, processor): a digest in hex.

    The content of `sources()`, the lanes, and the versions of numba and llvmlite.
    """
    digest = sha256(f"{LANES} {numba.__version__} {llvmlite.__version__}".encode())
    for path in sources():
        content = path.read_bytes()
        digest.update(f"\n{path.relative_to(_ROOT).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: `numba.njit` with `options`, without the interpreter's lock and without bounds checks.

    The machine code is kept, unless numba finds no folder that can be written to.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        made = numba.njit(nogil=True, boundscheck=False, **options)(function)
        with suppress(RuntimeError):  # neither the package's folder nor the user's can be written to
            made._cache = _Kept(function)
        return made

    return compiled


def is_kept(*made: Any) -> bool:
    """Whether there is machine code of all of these kernels for some types of arguments."""
    return all(isinstance(one._cache, _Kept) and one._cache.exists() for one in made)


class _Names(CompileResultCacheImpl):
    """Names of files that differ where keys differ, so that hosts which share a folder never read each other's code."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        return f"{super().get_filename_base(fullname, abiflags)}-{key()}"


class _Kept(FunctionCache):
    """numba's cache of one function under our names."""

    _impl_class = _Names

    def exists(self) -> bool:
        return Path(self._cache_path, f"{self._impl.filename_base}.nbi").is_file()

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        """Code of these argument types. Processes that compile at the same time may have written over each other's files."""
        found = super()._load_overload(sig, target_context)
        return found if found is None or found.signature.args == tuple(sig) else None

    def _save_overload(self, sig: Any, data: Any) -> None:
        super()._save_overload(sig, data)
        name = self._impl.filename_base.removesuffix(key()).rpartition(".py")[0]  # up to the line of the function
        for path in Path(self._cache_path).glob(f"{name.rpartition('-')[0]}-*.nb[ic]"):
            try:
                if key() not in path.name and time.time() - path.stat().st_mtime > _OLD:
                    path.unlink()
            except OSError:
                continue  # another process was faster
