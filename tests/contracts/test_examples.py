"""What every recipe's exercise promises: a row is made alike wherever it is made, and as much is masked as the recipe says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cloze import fields
from cloze.batching import Cursor, Feed
from cloze.exercises.noise.mask import Mask
from cloze.rows import Rows
from tests.systems_at_tiny import distinct, has_edit

DISTINCT = distinct()
MASKING = [name for name in DISTINCT if has_edit(name, "mask")]


def example(rows: Rows, row: int) -> dict[str, list[Any]]:
    """One row of a block without its padding: what it says, whatever the block is padded to."""
    said = {}
    for name, value in rows.items():
        view, field, chosen = fields.split(name)
        if field == "owner":  # the place of its record in the block
            continue
        own: NDArray[Any] = value[row]
        items = f"item_length/{chosen.partition('/')[0]}"
        asked = next((one for one in rows if one.startswith("item_positions/") and one.endswith(f"/{chosen}")), None)
        if fields.find(name).per == "item" and fields.join(view, items) in rows:
            own = own[: rows[fields.join(view, items)][row]]
        elif field == "item_positions":
            own = own[own >= 0]
        elif asked is not None and field in ("targets", "values", "weights"):
            own = own[: int((rows[asked][row] >= 0).sum())]
        elif fields.find(name).aligned:
            own = own[: rows[fields.join(view, "length")][row]]
        elif field == "visible":
            length = rows[fields.join(view, "length")][row]
            own = own[:length, :length]
        elif field in ("targets", "positions", "weights") and own.ndim:
            own = own[rows[fields.join(view, "positions", chosen)][row] >= 0]
        elif field == "links":
            own = own[own[:, 0] >= 0]
        elif field in ("centers", "contexts"):
            own = own[own >= 0]
        elif field == "items":
            own = np.trim_zeros(own, "b")
        said[name] = own.tolist()
    return said


@pytest.mark.parametrize("name", DISTINCT)
def test_a_row_is_the_same_alone_and_in_a_block(name: str, system: Callable[..., Any]) -> None:
    opened = system(name)
    step = opened.step()
    for entry in opened.recipe.entries.values():
        feed = opened.feed(entry, step)
        ((epoch, rows),) = feed.advance(Cursor(1, 0), min(24, feed.row_count(1)))[0]
        block, row_of = feed.examples(epoch, rows)
        for place in range(0, len(rows), 5):
            alone, _ = feed.examples(epoch, rows[place : place + 1])
            own = [place] if row_of is None else np.flatnonzero(row_of == place).tolist()
            assert [example(alone, i) for i in range(alone.count)] == [example(block, i) for i in own]


@pytest.mark.parametrize("name", MASKING)
def test_as_much_is_masked_as_the_recipe_says(name: str, system: Callable[..., Any]) -> None:
    """Over two thousand rows; a number of tokens per row that must be whole may be off by what rounding does."""
    opened = system(name)
    step = opened.step()
    for entry in opened.recipe.entries.values():
        feed = opened.feed(entry, step)
        shares = (0.0, 1.0) if feed.is_scheduled else (0.0,)
        for mask, chosen in [one for share in shares for one in chosen_by(feed.when(share))]:
            rows, units, of, odds = np.array(chosen).sum(axis=0)
            if mask.count is not None:
                print(f"{entry.name}: masks {mask.count} {mask.unit} a row and has no rate")
                assert rows >= 2000 and units == mask.count * rows
                continue
            low, high = off(mask)
            chance = 4 * (mask.rate / of) ** 0.5
            assert rows >= 2000
            share = 1 - math.exp(-mask.rate) if mask.rounding == "replacement" else mask.rate  # draws may hit a unit again
            share *= odds / of  # of units that are favoured, as many more
            assert low * rows / of - chance <= units / of - share <= high * rows / of + chance, (entry.name, mask.rate)


#: By how many units a row may be off on average, for each rounding; no row here is longer than a window of a mask.
ROUNDED = {
    "independent": (0.0, 0.0), "at_least_one": (0.0, 1.0), "stochastic": (0.0, 0.0), "nearest": (-0.5, 0.5), "up": (0.0, 1.0),
    "down": (-1.0, 0.0), "replacement": (-0.5, 0.6),
}  # fmt: skip


def off(mask: Mask) -> tuple[float, float]:
    """By how many units a row is off at least and at most.

    GPT-BERT's spans are masked whole until the number is reached. With lengths S of 1, 2 or 3 the last exceeds it by
    Σ k · P(S > k) / E[S] = (1 · 2/3 + 2 · 1/3) / 2 = 2/3 of a token. BART's spans overlap: less is covered than was drawn.
    """
    low, high = ROUNDED[mask.rounding]
    if mask.unit == "partition":
        assert mask.lengths == {"1": 1, "2": 1, "3": 1}
        return low + 2 / 3, high + 2 / 3
    return (-1.0 if mask.unit == "infill" else low), high


def chosen_by(feed: Feed) -> list[tuple[Mask, list[tuple[int, int, int, float]]]]:
    """For each mask of a feed the rows it saw, the units it chose, those it could choose from and their `favour`, by block."""
    found: dict[int, tuple[Mask, list[tuple[int, int, int, float]]]] = {}
    for epoch, rows in feed.advance(Cursor(), 2000)[0]:
        plan, source, want = feed._plans(epoch), feed.source, feed.exercise.wants
        if feed._packed is None:
            block, draw = source.read(plan, rows, want), source.draw(plan, rows)
        else:
            block, draw, _ = feed._packed.read(plan, rows, want)
        for place, placed in enumerate(feed.exercise.edits):
            block = placed(block, draw)
            if isinstance(placed.edit, Mask):
                mask, chosen = found.setdefault(place, (placed.edit, []))
                chosen.append((block.count, *units(mask, block.view(placed.view))))
    return list(found.values())


def units(mask: Mask, rows: Rows) -> tuple[int, int, float]:
    """How many units are masked, of how many, and the sum of their `favour`: spans, words or tokens, as a recipe counts them."""
    free = np.arange(rows["tokens"].shape[1]) < rows["length"][:, None]
    if mask.count is not None:
        return int(rows["layers/span"].max(axis=1).sum()), int(rows["length"].sum()), float(rows["length"].sum())
    if mask.of == "ordinary" or mask.spare == "first":
        free = free & ~(rows["special"] if mask.spare == "special" and "special" in rows else np.zeros_like(free))
        free[:, 0] &= mask.spare != "first"
    masked = rows["masked"] & free
    if mask.unit == "infill":  # counted in words
        masked, free = masked & rows["word_start"], free & rows["word_start"]
    favour = rows["favour"] if "favour" in rows else np.ones(free.shape)
    return int(masked.sum()), int(free.sum()), float(favour[free].sum())

