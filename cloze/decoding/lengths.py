"""The lengths of rows: batches of like length, so that little is computed for padding; the length of training; what was cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Padded tokens of a batch: more than these leave the caches of a core (measured for widths of 128 to 768).
CPU_TOKENS = 1024
#: The same for a network without layers, which has next to nothing to compute for a token.
STATIC_TOKENS = 16384
#: Padded tokens that keep a GPU busy.
GPU_TOKENS = 32768
_READ_MORE = "--length N reads more; --set length=N fine-tunes on more"


def cut_remark(lost: Sequence[int], length: int | None = None, what: str = "texts", *, way_out: str = _READ_MORE) -> str | None:
    """A sentence on how many texts were cut, by the tokens that each lost; None if none. `length`: the tokens read of one, and
    then `way_out` says what to do."""
    number = sum(tokens > 0 for tokens in lost)
    if not number:
        return None
    read = "than the network reads" if length is None else f"than {length} tokens"
    more = "" if length is None else f" ({way_out})"
    return f"{number} of {len(lost)} {what} are longer {read} and lost their end, {sum(lost):,} tokens in all{more}"


def by_length(lengths: Sequence[int], *, rows: int = 64, tokens: int | None = None) -> Iterator[NDArray[np.int64]]:
    """Indices of rows in batches of like length, longest first: at most `rows` rows, at most `tokens` padded tokens.

    The longest come first, so that a batch which does not fit in memory fails at once and the time left is not
    underestimated. Every index occurs exactly once; the order is a pure function of the lengths.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        size = rows if tokens is None else max(1, min(rows, tokens // longest))
        yield order[start : start + size]
        start += size


def trained_length(recipe: Mapping[str, Any] | None) -> int | None:
    """The most tokens of a row of training by the recipe of a run, its phases and its sources; None if it does not say."""
    if recipe is None:
        return None
    lengths = [phase["set"].get("length") for phase in recipe.get("schedule") or ()]
    lengths += [part.get("length") for source in recipe["sources"].values() for part in source.values()]
    return max((length for length in lengths if isinstance(length, int)), default=None)
