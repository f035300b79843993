"""Training of probes: small networks on the states of a large one, until a development set says stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cloze.uncompiled import eager

EPOCHS = 40  # at most, of every probe


@dataclass(frozen=True)
class Convergence:
    """When the rate of Adam falls and when training ends. An epoch improves if its loss is lower by more than `margin`.

    `factor`: what the rate is multiplied by after more than `patience` epochs without a lower loss. `stop`: training ends after
    so many epochs without improvement, or after `EPOCHS`. `clip`: the largest norm of a gradient, None for any.
    """

    rate: float = 1e-3
    factor: float = 0.5
    patience: int = 0
    stop: int = 5
    margin: float = 1e-3
    clip: float | None = None


def converge(
    parameters: Sequence[Tensor], batches: Callable[[], Iterable[Any]], loss_of: Callable[[Any], Tensor],
    evaluate: Callable[[], float], convergence: Convergence,
) -> float:
    """Train parameters in place; they end as they were in the best epoch, whose evaluation is returned.

    `batches` gives those of one epoch, `evaluate` the loss after it, such as that of a development set.
    """
    solver = eager(torch.optim.Adam)(parameters, lr=convergence.rate)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        solver, factor=convergence.factor, patience=convergence.patience
    )
    best, lowest, since = [parameter.detach().clone() for parameter in parameters], float("inf"), 0
    for _ in range(EPOCHS):
        for batch in batches():
            solver.zero_grad()
            with torch.enable_grad():
                loss_of(batch).backward()
            if convergence.clip is not None:
                torch.nn.utils.clip_grad_norm_(parameters, convergence.clip)
            solver.step()
        with torch.no_grad():
            loss = evaluate()
        plateau.step(loss)
        since = 0 if loss < lowest - convergence.margin else since + 1
        if since == 0:
            best, lowest = [parameter.detach().clone() for parameter in parameters], loss
        if since == convergence.stop:
            break
    with torch.no_grad():
        for parameter, value in zip(parameters, best, strict=True):
            parameter.copy_(value)
    return lowest


def last_tenth(count: int) -> tuple[int, slice]:
    """How many of `count` examples are trained on, from the first on, and where the development set is: the last tenth. Of fewer
    than ten examples, all are trained on and all are the development set.

    >>> last_tenth(25), last_tenth(9)
    ((23, slice(23, 25, None)), (9, slice(0, 9, None)))
    """
    trained = count - count // 10
    return trained, slice(trained % count, count)


def several_passes(count: int, size: int, updates: int, generator: torch.Generator) -> list[Tensor]:
    """The examples of an epoch in random order as batches of `size`; few examples several times, for about `updates` batches.

    >>> len(several_passes(2, 20, 50, torch.Generator())), len(several_passes(50, 20, 50, torch.Generator()))
    (50, 51)
    """
    passes = max(1, round(updates / -(-count // size)))
    return [batch for _ in range(passes) for batch in torch.randperm(count, generator=generator).split(size)]
