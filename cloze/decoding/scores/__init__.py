"""How probable texts are, whole or by token, in windows or as a stream.

May import what `cloze.decoding` may. To add one: a file here with a function of a `Reader`.
Contract: tests/decoding.
"""
