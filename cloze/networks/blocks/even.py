"""Numbers of rows that come again: what depends on a text has as many rows as the text has tokens, a new number every batch.

glibc fits no new block into the gap of a slightly smaller one: a mini BART grew to three times the memory of a step. Multiples
of 64 are few enough; rows are added where they are one in eight at most, and none to what is small anyway.
"""

from __future__ import annotations

ROWS = 64
_FEW = 8 * ROWS


def rows_to_add(count: int) -> int:
    """How many rows nobody reads `count` rows lack to the next multiple of `ROWS`; 0 where they are few."""
    return -count % ROWS if count >= _FEW else 0
