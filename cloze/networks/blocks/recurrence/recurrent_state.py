"""The state of recurrent layers: how many tokens a row has for it, where the next row of a lane goes on, what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from cloze.batch import on_host
from cloze.errors import RecipeError
from cloze.networks.blocks.recurrence.stepping import State


class StateCache:
    """What recurrent layers remember of the tokens read so far, h (B, H) and c (B, C) of each, for generation.

    A translator's decoder also remembers what it was fed last, and in `encoded` the encoder's states.
    """

    #: Whether tokens can be forgotten again.
    forgets: ClassVar[bool] = False

    def __init__(self) -> None:
        self.layers: list[list[Tensor]] = []
        self.source: list[list[Tensor]] = []
        self.encoded: Tensor | None = None
        self.length = 0


def lengths_of(block: Tensor | None, network: str) -> Tensor | None:
    """How many real tokens each row has (B,), None where nothing is padded; a row of several examples is a `RecipeError`."""
    if block is None:
        return None
    if bool((on_host(block) > 1).any()):
        raise RecipeError(f"{network}: a row holds several texts, and a state would go on to the next. Write `packing: false`.")
    return (block > 0).sum(1)


def ends_before(reuse: int, tokens: Tensor, lengths: Tensor | None) -> Tensor | None:
    """After how many tokens of a row the next one goes on (B,), if it brings the last `reuse` again; None: after all of them.

    `tokens` (B, L) or their vectors, of which `lengths` (B,) are real, by default all.
    """
    if not reuse:
        return None
    row_lengths = torch.full((len(tokens),), tokens.shape[1], device=tokens.device) if lengths is None else lengths
    return (row_lengths - reuse).clamp(min=0)


def recall_states(carry: Mapping[str, Tensor] | None, restarts: Tensor | None, layers: int) -> list[State] | None:
    """h (B, H) and c (B, C) of every layer out of a carry, None if it is empty; rows in `restarts` (B,) begin with zeros."""
    if not carry:
        return None
    states: list[State] = [(carry[f"hidden.{number}"], carry[f"cell.{number}"]) for number in range(layers)]
    if restarts is None:
        return states
    fresh = restarts[:, None]
    return [(h.masked_fill(fresh, 0.0), c.masked_fill(fresh, 0.0)) for h, c in states]


def remember_states(states: Sequence[State]) -> dict[str, Tensor]:
    """The carry that `recall_states` reads: h and c of every layer, detached."""
    return {
        f"{name}.{number}": part.detach()
        for number, state in enumerate(states) for name, part in zip(("hidden", "cell"), state, strict=True)
    }
