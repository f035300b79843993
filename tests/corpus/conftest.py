"""Small stores made directly from numbers, for tests of plans and reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from cloze.corpus import Store
from cloze.corpus.stores.writer import StoreWriter

MakeStore = Callable[[Sequence[Sequence[int]]], Store]


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    """A store whose documents have sentences of these lengths; token n of the store has id 10 + n % 900."""
    made = 0

    def make(documents: Sequence[Sequence[int]]) -> Store:
        nonlocal made
        made += 1
        roles = {"[PAD]": 0, "[SEP]": 3}
        with StoreWriter(tmp_path / f"store{made}", vocab_size=1000, roles=roles, tokenizer_hash="0" * 64) as writer:
            first = 0
            for start in range(0, len(documents), 3):  # several appends, so that bits and offsets cross block borders
                block = documents[start : start + 3]
                sizes = np.array([n for sentences in block for n in sentences], dtype=np.int64)
                number = np.arange(first, first + int(sizes.sum()))
                first += len(number)
                writer.append(10 + number % 900, number % 3 != 1, sizes, np.array([len(s) for s in block]))
            return writer.finish({"odd": {}}, lambda folder: folder.mkdir())

    return make
