"""Compiled code: every function that numba compiles, found by name. README.md says how it is found, added, tested and measured.

    module = kernels.find("gelu", size=x.size)     None: use the plain code

May import: numpy, numba, llvmlite, `cloze.errors` and one another; never torch. No other package imports numba or a module of
this one, except `kernels.vectors.arguments`, which is plain numpy. The plain code stays with the caller.
To add one: a module of functions under `@kernel(…)`, an entry in `KERNELS`, and a comparison with the plain code in
tests/contracts/test_kernels.py, which walks the registry.
"""

from cloze.kernels.registry import KERNELS, Kernel, are_compiled, find, has_numba, require

__all__ = ["KERNELS", "Kernel", "are_compiled", "find", "has_numba", "require"]
