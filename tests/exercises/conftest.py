"""Small blocks of passages made by rule, so that every expectation can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cloze.exercises import TokenFacts
from cloze.rng import Draw, row_keys
from cloze.rows import Rows

ROLES = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}


@pytest.fixture(scope="session")
def facts() -> TokenFacts:
    return TokenFacts(1000, ROLES, np.arange(5, 1000, dtype=np.int32), lambda text: [len(w) + 5 for w in text.split()])


@pytest.fixture(scope="session")
def passages() -> Callable[..., Rows]:
    return make_passages


@pytest.fixture(scope="session")
def draw() -> Callable[..., Draw]:
    return make_draw


def make_passages(count: int, width: int = 40, sentence: int = 8, seed: int = 0, distractor: bool = True) -> Rows:
    """Rows of 2…`width` tokens in sentences of `sentence` tokens; words of one to three pieces; ids tell where they are."""
    g = np.random.default_rng(seed)

    def block(offset: int) -> dict[str, np.ndarray]:
        length = g.integers(2, width + 1, count).astype(np.int32)
        length[0] = width
        starts = g.random((count, width)) < 0.6
        starts[:, 0] = True
        columns = np.broadcast_to(np.arange(width, dtype=np.int32), (count, width))
        return {
            "tokens": (5 + offset + columns + 100 * (np.arange(count, dtype=np.int32)[:, None] % 4)).astype(np.int32),
            "length": length,
            "sentence": columns // sentence,
            "word_start": starts,
        }

    arrays = {**block(0), "document": np.arange(count, dtype=np.int64), "target_length": np.full(count, width, np.int32)}
    if distractor:
        arrays.update({f"distractor.{k}": v for k, v in block(500).items()})
    return Rows(arrays)


def make_draw(count: int, *, seed: int = 1, epoch: int = 0, first: int = 0) -> Draw:
    return Draw(row_keys(seed, "main", epoch, items=np.arange(first, first + count)))
