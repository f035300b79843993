"""How networks write: the next token, search, drafts, the forms of rows.

May import what `cloze.decoding` may. To add one: a file here, and its options in `options.py`.
Contract: tests/decoding.
"""
