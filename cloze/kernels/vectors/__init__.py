"""Kernels that train vectors of words, texts and graphs: pure functions on numpy arrays, called by `cloze.engines`.

`arguments` has what they take and imports no numba. `registers` holds several rows in vector registers while a loop runs over
other rows, which the compiler does not do by itself.

May import: what `cloze.kernels` may. To add a kernel: a module of `@kernel(**OPTIONS)` functions and an entry in the registry.
Tested in tests/engines against the loop, by hand and against numpy.
"""
