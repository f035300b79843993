"""Single tokens: an exact number, independent draws, or rare tokens more often."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.units.question import Bools, UnitRequest, exactly


def choose(question: UnitRequest) -> dict[str, NDArray[Any]]:
    """Exactly `number` tokens; with `rounding: independent` a coin for every token; with `power` without replacement
    in proportion to count^−power (XLM, Conneau & Lample, 2019, `sample_alpha`).

    Differs: XLM draws that number from the whole batch; here each row has its own.
    """
    mask, free = question.mask, question.free
    bits = question.draw.bits("mask", free.shape[1])
    if mask.rounding == "independent":
        return {"masked": free & (bits < question.rates * 2.0**32)}
    if mask.power:
        return {"masked": _by_weight(question, _weights(question))}
    return {"masked": exactly(question.number, free, bits)}


def _weights(question: UnitRequest) -> NDArray[np.float64]:
    counts = question.mask.counts
    if counts is None:
        raise RecipeError("mask: power draws tokens by how often they occur; give it counts=… (V,) of the store.")
    return np.maximum(counts[question.rows["tokens"]], 1).astype(np.float64) ** -question.mask.power


def _by_weight(question: UnitRequest, weights: NDArray[np.float64]) -> Bools:
    """The `number` that come first when each token waits an exponential time of rate `weights`."""
    uniform = (question.draw.bits("mask", weights.shape[1]).astype(np.float64) + 0.5) * 2.0**-32
    waits = np.where(question.free, -np.log(uniform) / weights, np.inf)
    order = np.argsort(waits, axis=1, kind="stable")
    chosen = np.zeros_like(question.free)
    np.put_along_axis(chosen, order, np.arange(weights.shape[1]) < question.number[:, None], axis=1)
    return chosen & question.free
