"""Counts of words that occur together, in bounded memory, and the sources of these counts.

May import sources and stores. To add a source of counts: a file here, as in `sources/`.
Its contract is tested in tests/corpus/test_cooccurrences.py.
"""
