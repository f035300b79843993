"""Items of records: regions of pictures with their features, boxes and classes, and other things that come with a text.

Files of items (`readers.py`) are written next to the records of a store (`item_writer.py`), which reads them for rows
(`item_store.py`).
May import: what `cloze.corpus` may.
To add a format: a reader in `readers.py` that yields a `Picture` for each picture. The layout of the files is in
`item_store.py`.
Contract: tests/corpus/test_items.py.
"""

from cloze.corpus.items.item_store import ItemArray, ItemSet, StoredItems
from cloze.corpus.items.picture import Picture
from cloze.corpus.items.readers import read_pictures

__all__ = ["ItemArray", "ItemSet", "StoredItems", "Picture", "read_pictures"]
