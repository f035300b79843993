"""Whether there is a compiler for kernels. Asking does not import numba; `cloze.kernel` does."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec


@cache
def has_numba() -> bool:
    """Whether the extra `fast` is installed, and the environment does not say `CLOZE_NUMBA=off`."""
    return os.environ.get("CLOZE_NUMBA", "") != "off" and find_spec("numba") is not None
