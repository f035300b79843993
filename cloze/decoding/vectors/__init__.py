"""Vectors of texts and words, and what is near to them.

May import what `cloze.decoding` may. To add one: a file here with a function of vectors or of a `Reader`.
Contract: tests/decoding.
"""
