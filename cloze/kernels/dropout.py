"""The masks of `Dropout`: all words of a mask in one pass over them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cloze.kernels.compiling import kernel

_HALF = np.int64(32)
_LAST = np.int64(15)
_BITS = np.int64(0x0001000100010001)
_FULL = np.int64(0xFFFF)


@kernel()
def decide(table: Any, picked: Any, first: Any, second: Any, factor: Any, tops: Any, below: Any, masks: Any) -> None:
    """masks[r] of the words table[picked[r]] and the keys of row r; four 16-bit fields to a word.

    `table` (T, W), `picked`, `first` and `second` (R,), `masks` (R, W): int64. `below`: the threshold in every field.
    """
    for row in range(len(masks)):
        words = table[picked[row]]
        first_key, second_key, out = first[row], second[row], masks[row]
        for at in range(len(out)):
            word = (words[at] ^ first_key) * factor
            word ^= word >> _HALF
            word *= second_key
            word ^= word >> _HALF
            word = (((word | tops) - below) >> _LAST) & _BITS  # one bit for each field that stays
            out[at] = word * _FULL  # which fills the field: no bit reaches the next one
