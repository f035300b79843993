"""The language model beside a task: its loss on the task's texts keeps what was learned (SiATL: Chronopoulou et al., 2019)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.reader import Bound, Checkpoint, Reader, heads_by_kind
from cloze.errors import TaskError
from cloze.tasks.settings import Settings
from cloze.tasks.task import clock_of


def language_head(loaded: Checkpoint, reader: Reader, settings: Settings) -> Any:
    """A copy of the checkpoint's head that predicts the next token, tied to the copied network where it was tied to the other."""
    found = heads_by_kind(loaded).get("token_prediction")
    if settings.from_scratch or reader.order != "left_to_right" or found is None:
        why = "a randomly initialised twin has none" if settings.from_scratch else f"this checkpoint is {reader.order} and has: "
        why += "" if settings.from_scratch else ", ".join(loaded.heads) or "no heads"
        raise TaskError(
            f"--auxiliary needs a language model that predicts the next token: {why}.\n"
            "  Use a checkpoint that was trained from left to right with token_prediction, or leave it out."
        )
    if isinstance(found, Bound) or tuple(found.reads) != ("hidden",):
        raise TaskError(f"--auxiliary: the language model's head reads {found.reads[0]!r} and not hidden; this is not supported.")
    known: dict[int, Any] = {}
    pairs = zip(loaded.network.modules(), reader.network.modules(), strict=True)
    known.update({id(old): new for old, new in pairs})
    weights = zip(loaded.network.parameters(), reader.network.parameters(), strict=True)
    known.update({id(old): new for old, new in weights})
    known[id(clock_of(loaded.network))] = clock_of(reader.network)
    return copy.deepcopy(found, known)


def predicted(head: Any, reader: Reader, batch: Batch, states: Mapping[str, Tensor]) -> tuple[Tensor, int]:
    """The summed loss of every token of `block` that has another such before it, and how many they are."""
    tokens = batch["tokens"]
    real = batch["block"] > 0 if "block" in batch else torch.ones_like(tokens, dtype=torch.bool)
    asked = torch.zeros_like(real)
    asked[:, :-1] = real[:, :-1] & real[:, 1:]
    places = asked.flatten().nonzero().squeeze(1)
    answers = {f"targets/{head.set}": tokens.flatten()[places + 1], f"places/{head.set}": places}
    with reader.autocast():
        loss = head({name: states[name] for name in head.reads}, Batch({"tokens": tokens, **answers}, checked=True))
    return loss.total, len(places)
