"""Worker processes: they answer in order and leave the terminal alone."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

import pytest

from cloze.corpus.readers.blocks import Block
from cloze.corpus.stores.workers import WorkerPool


def test_blocks_are_answered_in_order_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    blocks = [Block("text.txt", "book", b"a\n", line, last=line == 3) for line in (1, 2, 3)]
    with WorkerPool(partial(attrgetter, "line"), 1) as workers:
        answers = [answer for _, answer in workers.each(blocks)]
    assert answers == [1, 2, 3]
    assert capfd.readouterr() == ("", "")
