"""Stores of several shards: their manifest, their rows, building and joining them, and folders at an address.

May import sources and stores. To add a way to keep shards elsewhere: a file system of fsspec, which `place.py` opens.
Its contract is tested in tests/corpus/test_sharded.py and test_remote.py.
"""
