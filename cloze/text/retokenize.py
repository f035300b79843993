"""Ids of one tokenizer as ids of another, by way of the text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.text.tokenizer import Tokenizer


def retokenized(ids: NDArray[Any], tokenizer: Tokenizer, other: Tokenizer) -> NDArray[np.int32]:
    """The ids (L',) by which `other` reads the text of ids (L,) of `tokenizer`: the same ids if both are one tokenizer.

    The text is what `tokenizer` makes of the ids, so what it does not keep (case, unknown characters) is lost for `other`, too.
    """
    if tokenizer.hash == other.hash:
        return np.asarray(ids, np.int32)
    return np.asarray(other.encode(tokenizer.decode(ids)).ids, np.int32)
