"""Batches of examples: padding, packing, distribution over ranks and micro-batches, cursors.
May import: exercises, corpus, text and the foundation; never networks or objectives.
To add something: a way to lay examples into rows is a function in `collate.py`; a way to distribute them is in
`Data.micro_batch_ranges`.
Contract: tests/batching and tests/contracts.
"""

from cloze.batching.collate import collate
from cloze.batching.data import Data, MicroBatch
from cloze.batching.feed import Cursor, Feed
from cloze.batching.mixed import MixedFeed

__all__ = ["Cursor", "Data", "Feed", "MicroBatch", "MixedFeed", "collate"]
