"""A tiny recurrent run: lanes of synthetic text, a function of lane and place, and a Transformer-XL that reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tiny import VOCABULARY

from cloze.batch import Batch
from cloze.batching import Cursor, MicroBatch
from cloze.networks import Clock
from cloze.networks.blocks.dropout import name_dropouts
from cloze.objectives import token_prediction
from cloze.training.passes import Pass, PassObjective
from cloze.training.step import StepModule
from tests.making import network_of

LENGTH, STEPS = 6, 5


class Lanes:
    """Row i of every step continues row i of the step before; an epoch has five steps."""

    def __init__(self, *, batch: int = 8, micro: int | None = None, rank: int = 0, ranks: int = 1) -> None:
        self.batch, self.rank, self.share = batch, rank, batch // ranks
        self.micro = micro or self.share

    def next(self, entry: str, cursor: Cursor, share: float = 0.0) -> tuple[Sequence[MicroBatch], Cursor]:
        epoch, item = cursor
        epoch, item = (epoch + 1, 0) if item >= STEPS * self.batch else (epoch, item)
        starts = range(self.rank * self.share, (self.rank + 1) * self.share, self.micro)
        micros = [self._micro(item // self.batch, first, self.micro, 1) for first in starts]
        return micros, Cursor(epoch, item + self.batch)

    def held_out(self, entry: str) -> Iterator[MicroBatch]:
        for step in range(2):
            yield self._micro(step, self.rank * self.share, self.share, 2)

    def rows_in_epoch(self, entry: str) -> int:
        return STEPS * self.batch

    def change(self, values: Mapping[str, Any]) -> bool:
        return False

    def _micro(self, step: int, first: int, rows: int, seed: int) -> MicroBatch:
        made = [
            np.random.default_rng([seed, lane]).integers(5, VOCABULARY, STEPS * LENGTH)[step * LENGTH : (step + 1) * LENGTH]
            for lane in range(first, first + rows)
        ]
        tokens = torch.from_numpy(np.stack(made))
        positions = torch.arange(rows * LENGTH).view(rows, LENGTH)[:, :-1].flatten()
        batch = Batch({
            "tokens": tokens, "targets/main": tokens[:, 1:].flatten(), "positions/main": positions,
            "restarts": torch.full((rows,), step == 0),
        })
        return MicroBatch(batch, first, tokens.numel(), rows)


def recurrent(*, memory: int = 8) -> StepModule:
    """Token prediction on a Transformer-XL of two layers."""
    torch.manual_seed(0)
    clock = Clock(0)
    network = network_of("transformer_xl", layers=2, width=16, heads=2, vocab_size=VOCABULARY, clock=clock,
        **{"memory.size": memory})
    head = token_prediction(tie=True, width=16, vocab_size=VOCABULARY, table=network.token_tables["tokens"])
    passes = [Pass("main", "main", objectives=(PassObjective("lm", "lm"),), order="left_to_right")]
    step = StepModule(networks={"main": network}, objectives={"lm": head}, entries={"main": passes}, clock=clock)
    name_dropouts(step)
    return step
