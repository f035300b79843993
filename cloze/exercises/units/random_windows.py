"""Choose independently in each window of a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.units.unit_request import UnitRequest
from cloze.rng import Draw, fold, mix_keys

Chosen = dict[str, NDArray[Any]]


def in_windows(request: UnitRequest, window: str | int, choose: Callable[[UnitRequest], Chosen]) -> Chosen:
    """Windows are the halves of each row, or `window` free tokens; their numbers add up to the row's.

    A remainder goes to the earlier windows (XLNet: 43 and 42 of 85).
    """
    free, number = request.free, request.number
    columns = np.arange(free.shape[1])
    if isinstance(window, int):
        member = np.maximum(np.cumsum(free, axis=1) - 1, 0) // window
    else:
        member = (columns >= (request.rows["length"][:, None] + 1) // 2).astype(np.int64)
    available = np.maximum(np.count_nonzero(free, axis=1), 1)
    due = np.zeros_like(number)
    passed = np.zeros_like(number)
    marks: Chosen = {}
    for ordinal in range(int(member[:, -1].max(initial=0)) + 1):
        inside = free & (member == ordinal)
        passed += np.count_nonzero(inside, axis=1)
        part = -(-number * passed // available) - due
        due += part
        draw = Draw(mix_keys(request.draw.keys, fold("window", ordinal)), request.draw.view)
        chosen = choose(replace(request, free=inside, number=part, draw=draw))
        for name, value in chosen.items():
            old = marks.get(name, np.zeros_like(value))
            if name == "layers/span":  # span numbers continue from the earlier windows
                value = np.where(value > 0, value + old.max(axis=1, initial=0)[:, None], 0)
            marks[name] = old | value if value.dtype == bool else old + value
    return marks
