"""A batch that grows: which rows each step has, on any number of ranks, resumed or made ahead."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from cloze.batching import Cursor, Data
from cloze.batching import data as data_module
from cloze.errors import RecipeError
from tests.batching.test_feed import feed

STEPS = 14


def growth(share: float) -> float:
    """From a quarter of the batch to all of it, over the first half."""
    return min(0.25 + 1.5 * share, 1.0)


START = Cursor()


def taken(
    *, ranks: int = 1, micro_batch: int | None = None, cursor: Cursor = START, first: int = 0, **options: Any
) -> list[list[list[list[int | None]]]]:
    """The rows of each step, as their tokens without padding, of all ranks in order; and checks of what each rank has."""
    every = [
        Data({"main": feed()}, batch=12, micro_batch=micro_batch, rank=rank, ranks=ranks, growth=growth, **options)
        for rank in range(ranks)
    ]
    found = []
    for number in range(first, STEPS):
        rows, counts = [], []
        for data in every:
            parts, after = data.next("main", cursor, number / STEPS)
            counts.append(len(parts))
            for part in parts:
                assert part.examples > 0 and part.first_row == len(rows)
                assert micro_batch is None or part.examples <= max(micro_batch, 2)
                masked = dict(zip(part.batch["positions/main"].tolist(), part.batch["targets/main"].tolist(), strict=True))
                width = part.batch["tokens"].shape[1]
                block = part.batch["block"] if "block" in part.batch else np.ones_like(part.batch["tokens"])
                for row, (tokens, real) in enumerate(zip(part.batch["tokens"].tolist(), block.tolist(), strict=True)):
                    shown = [[token, masked.get(row * width + place)] for place, token in enumerate(tokens) if real[place]]
                    rows.append(shown)
        assert len(set(counts)) == 1  # as collectives need
        found.append(rows)
        cursor = after
    return found


def test_steps_have_the_rows_of_the_share_before_them_in_the_order_of_any_batch():
    found = taken()
    assert [len(rows) for rows in found] == [max(round(12 * growth(step / STEPS)), 1) for step in range(STEPS)]
    plain, cursor, flat = Data({"main": feed()}, batch=1), START, []
    while len(flat) < sum(map(len, found)):
        (part,), cursor = plain.next("main", cursor)
        flat.append(part.batch["tokens"].tolist()[0])
    assert [[token for token, _ in row] for rows in found for row in rows] == flat


@pytest.mark.parametrize(("ranks", "micro_batch"), [(2, None), (3, None), (2, 2), (3, 1), (1, 5)])
def test_neither_ranks_nor_micro_batches_change_which_rows_a_step_has(ranks, micro_batch):
    assert taken(ranks=ranks, micro_batch=micro_batch) == taken()


def test_a_run_that_resumes_has_the_same_rows():
    whole, data, cursor = taken(), Data({"main": feed()}, batch=12, growth=growth), START
    for number in range(5):
        _, cursor = data.next("main", cursor, number / STEPS)
    assert taken(cursor=cursor, first=5) == whole[5:]


class AtOnce:
    """Does work where it is ordered, and counts it."""

    ordered = 0

    def __init__(self, workers: int, *, mp_context: Any, initializer: Any, initargs: Any) -> None:
        initializer.__globals__["_feeds"].update(*initargs)

    def submit(self, work: Any, *given: Any) -> Future[Any]:
        AtOnce.ordered += 1
        done: Future[Any] = Future()
        done.set_result(work(*given))
        return done

    def shutdown(self, **how: Any) -> None:
        """Nothing runs."""


def test_what_workers_made_for_another_number_of_rows_is_made_again(monkeypatch):
    monkeypatch.setattr(data_module, "ProcessPoolExecutor", AtOnce)
    assert taken(workers=2) == taken()
    assert AtOnce.ordered > STEPS


def test_a_first_step_with_fewer_rows_than_processes_is_refused():
    with pytest.raises(RecipeError, match="the first step has 3 rows, fewer than the 4 processes"):
        Data({"main": feed()}, batch=12, ranks=4, growth=growth)
