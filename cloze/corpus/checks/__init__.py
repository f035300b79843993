"""Checks of text and of parallel text before anything is built from it.

May import readers, stores and shards. To add a check: a file here with a report of its own, and its option in
`cloze/cli/text/corpus.py`.
Its contract is tested in tests/corpus/.
"""
