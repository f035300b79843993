"""The length of spans: a distribution over 0, 1, 2, … and draws from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError, propose
from cloze.rng import UInt32

#: Lengths as a recipe writes them: `{geometric: {p: 0.2, max_length: 10}}`, `{inverse: 5}`, `{poisson: 3}`, `{1: 0.8, 2: 0.2}`.
LengthLaw = dict[str, float | dict[str, float]]

_MAX_LENGTH = 100_000  # words or tokens of a span: longer than any row
_SMALLEST = 1e-7  # fairseq drops the smaller tail of a Poisson distribution


def odds_of(law: Mapping[str, Any]) -> NDArray[np.float64]:
    """The probabilities of the lengths 0, 1, 2, …

    `geometric` (SpanBERT, Joshi et al., 2020, §3.1): p·(1−p)ⁿ⁻¹ on 1 … max_length, renormalised. `inverse` (XLNet, ALBERT):
    in proportion to 1/n on 1 … max_length. `poisson` (BART): the mean; length 0 is possible. Numbers as keys: the
    probabilities themselves, renormalised. Errors: `RecipeError` for anything else.
    """
    return _odds(tuple((str(k), tuple(sorted(v.items())) if isinstance(v, Mapping) else v) for k, v in law.items()))


@lru_cache(maxsize=64)
def _odds(law: tuple[tuple[str, Any], ...]) -> NDArray[np.float64]:
    if law and all(name.isdigit() for name, _ in law):
        odds = np.zeros(_checked_length(max(int(name) for name, _ in law)) + 1)
        for name, share in law:
            odds[int(name)] = share
    else:
        odds = _named(law)
    if not odds.sum() > 0 or odds.min() < 0:
        raise RecipeError(f"lengths: {dict(law)} are not probabilities; expected numbers of 0 or more, at least one above 0.")
    return np.asarray(odds / odds.sum())


def _named(law: tuple[tuple[str, Any], ...]) -> NDArray[np.float64]:
    known = {"geometric": {"p", "max_length"}, "inverse": {"max_length"}, "poisson": {"mean"}}
    name, given = law[0] if len(law) == 1 else ("", 0)
    if name not in known:
        way_out = f"{propose(name, known)} Or numbers: {{1: 0.8, 2: 0.1, 3: 0.1}}."
        raise RecipeError(f"lengths: expected one law or probabilities by length, got {dict(law)}. {way_out}")
    values = dict(given) if isinstance(given, tuple) else {"mean" if name == "poisson" else "max_length": given}
    if set(values) != known[name]:
        raise RecipeError(f"lengths.{name}: expected {', '.join(sorted(known[name]))}, got {', '.join(values) or 'nothing'}.")
    if name == "poisson":
        odds = [math.exp(-values["mean"])]
        while (odds[-1] >= _SMALLEST or len(odds) <= values["mean"]) and len(odds) < 128:
            odds.append(odds[-1] * values["mean"] / len(odds))
        return np.array(odds)
    n = np.arange(1, _checked_length(values["max_length"]) + 1, dtype=np.float64)
    shares = 1 / n if name == "inverse" else values["p"] * (1 - values["p"]) ** (n - 1)
    return np.concatenate([[0.0], shares])


def _checked_length(number: float) -> int:
    """The maximum length of a law, a whole number from 1 to `_MAX_LENGTH`; a `RecipeError` for any other."""
    if not 1 <= number <= _MAX_LENGTH:
        raise RecipeError(f"lengths: max_length is {number}; expected a number from 1 to {_MAX_LENGTH:,}.")
    return int(number)


def drawn(odds: NDArray[np.float64], bits: UInt32) -> NDArray[np.int64]:
    """Lengths from random 32-bit words, of the same shape."""
    borders = np.cumsum(odds)[:-1] * 2.0**32
    return np.searchsorted(borders, bits, side="right").astype(np.int64)
