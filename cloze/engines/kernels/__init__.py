"""Compiled code of the engines: pure functions on numpy arrays, which need the extra `fast` (numba).

May import: numpy, numba, `cloze.kernel`, `cloze.simd` and one another; never torch. Only an engine that has started imports them.
To add a kernel: a module of `kernel(**simd.OPTIONS)` functions, called by an engine.
Tested in tests/engines/test_kernels.py, test_glove.py (one update by hand, the loop's gradient).
"""
