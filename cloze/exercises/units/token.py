"""Single tokens: an exact number, independent draws, draws with replacement, or rare tokens more often."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.units.unit_request import Bools, UnitRequest, columns_of, exactly
from cloze.rows import columns_before, count_true, rows_and_columns


def choose(request: UnitRequest) -> dict[str, NDArray[Any]]:
    """Exactly `number` tokens; with `rounding: independent` a coin for every token, with `at_least_one` at least one; with
    `power` without replacement in proportion to count^−power (XLM, Conneau & Lample, 2019, `sample_alpha`); with
    `rounding: replacement` those that `number` draws hit, which may hit a token again (google-research/electra
    `pretrain_helpers.py`, `mask`).

    Differs: XLM draws that number from the whole batch; here each row has its own. A token that ELECTRA draws twice counts twice
    in the generator's loss, and stays unmasked only if both draws say so; here it counts as one.
    """
    mask, free = request.mask, request.free
    if mask.rounding == "replacement":
        return {"masked": _repeatedly(request)}
    bits = request.draw.bits("mask", free.shape[1])
    if mask.rounding in ("independent", "at_least_one"):
        chosen: Bools = free & (bits < request.rates * 2.0**32)
        if mask.rounding == "at_least_one":  # the one with the smallest coin
            chosen |= exactly(np.minimum(1, count_true(free)), free, bits)
        return {"masked": chosen}
    if mask.power:
        return {"masked": _by_weight(request, _weights(request))}
    return {"masked": exactly(request.number, free, bits)}


def _repeatedly(request: UnitRequest) -> Bools:
    """The tokens that `number` draws from the free ones hit."""
    free, number = request.free, request.number
    most = max(int(number.max(initial=0)), 1)
    slot = request.draw.integers("mask", count_true(free)[:, None], most)
    row, draw = rows_and_columns(columns_before(number, most))
    chosen = np.zeros_like(free)
    chosen[row, columns_of(free)[row, slot[row, draw]]] = True
    return chosen


def _weights(request: UnitRequest) -> NDArray[np.float64]:
    counts = request.mask.counts
    if counts is None:
        raise RecipeError("mask: power draws tokens by how often they occur; give it counts=… (V,) of the store.")
    return np.maximum(counts[request.rows["tokens"]], 1).astype(np.float64) ** -request.mask.power


def _by_weight(request: UnitRequest, weights: NDArray[np.float64]) -> Bools:
    """The `number` that come first when each token waits an exponential time of rate `weights`."""
    uniform = (request.draw.bits("mask", weights.shape[1]).astype(np.float64) + 0.5) * 2.0**-32
    waits = np.where(request.free, -np.log(uniform) / weights, np.inf)
    order = np.argsort(waits, axis=1, kind="stable")
    chosen = np.zeros_like(request.free)
    np.put_along_axis(chosen, order, np.arange(weights.shape[1]) < request.number[:, None], axis=1)
    return chosen & request.free
