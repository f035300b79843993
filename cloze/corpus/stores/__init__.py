"""Token stores: text is read, encoded and written block by block, and opened as memory-mapped files.

May import the readers. To add a kind of store: a subclass of `Store` whose `holds` is the key of its header.
Its contract is tested in tests/corpus/test_store.py.
"""
