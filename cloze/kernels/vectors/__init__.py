"""Kernels that train vectors of words, texts and graphs: pure functions on numpy arrays, called by `cloze.engines`.

`arguments` has what they take and imports no numba. `registers` holds several rows in vector registers while a loop runs over
other rows, which the compiler does not do by itself.
"""
