"""Compiled code of the engines: pure functions on numpy arrays, which need the extra `fast` (numba).

May import: numpy, numba, `cloze.kernel`, `cloze.simd` and one another; never torch. Only an engine that has begun imports them.
Add one here: a module of `kernel(**simd.OPTIONS)` functions; an engine beside the loop drives it.
Contract tested in: tests/training/test_kernels.py, test_glove.py (one update by hand, the loop's gradient).
"""
