"""Captions of pictures and films, and pickles that hold them.

May import what `cloze.corpus.readers` may. To add a format: a module with a test of the first object and a reader of its rows,
and its branch in `readers/objects.py`. Contract: tests/corpus/test_item_databases.py, tests/corpus/test_film_clips.py.
"""
