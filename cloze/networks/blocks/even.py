"""Rounding numbers of rows up, so that tensors come in few sizes.

Without it a tensor has as many rows as the batch has tokens, a new number in every batch, and glibc cannot reuse the memory of a
slightly smaller one: a mini BART grew to three times the memory of a step. Multiples of 64 are few enough. Rows are added only
where they are at most one in eight.
"""

from __future__ import annotations

ROWS = 64
_FEW = 8 * ROWS


def rows_to_add(count: int) -> int:
    """How many unread rows to add to `count` rows to reach a multiple of `ROWS`; 0 if `count` is small."""
    return -count % ROWS if count >= _FEW else 0
