"""The numbers of a fine-tuning run, and the optimisers that one may be run with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from cloze.errors import TaskError, nearest
from cloze.training.adafactor import Adafactor
from cloze.training.optimizers import AdamW, OptimizerSpec
from cloze.training.rates import Constant, Linear


class Usual(NamedTuple):
    """How a run steps: the optimiser, the peak rate for a width, and the rate by the share of the run."""

    optimizer: Callable[[Settings], OptimizerSpec]
    peak: Callable[[int], float]
    rate: Callable[[float, Settings], Any]


@dataclass(frozen=True)
class Settings:
    """The numbers of a fine-tuning run.

    `optimizer` adamw warms up and decays linearly; its `rate` None is 5e-5 for a width of 768 and in inverse proportion for
    others (3e-4 for tiny, 1.5e-4 for mini: within the authors' list for small BERTs). adafactor is how T5 is fine-tuned (Raffel
    et al., 2020, §3.1.3): a constant rate, 1e-3 for None, in proportion to the size of each weight. `patience`: epochs without
    a better dev `metric` (None: the task's first) before stopping, None to run through. The best epoch is kept either way.
    `from_scratch` trains a randomly initialised twin instead.
    """

    epochs: int = 4
    batch: int = 32
    optimizer: str = "adamw"
    rate: float | None = None
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    dropout: float = 0.1
    length: int = 128
    patience: int | None = 2
    metric: str | None = None
    from_scratch: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "length"):
            if getattr(self, name) < 1:
                raise TaskError(f"--{name} {getattr(self, name)}: expected at least 1.")
        if self.rate is not None and not self.rate > 0:
            raise TaskError(f"--rate {self.rate}: expected a learning rate above 0, such as 5e-5.")
        if self.optimizer not in OPTIMIZERS:
            raise TaskError(f"unknown optimizer {self.optimizer!r}. {nearest(self.optimizer, OPTIMIZERS)}")

    def rate_for(self, width: int) -> float:
        """The peak learning rate for a network of this width."""
        return self.rate if self.rate is not None else OPTIMIZERS[self.optimizer].peak(width)

    def schedule(self, width: int) -> Any:
        """The learning rate as a function of the share of the run."""
        return OPTIMIZERS[self.optimizer].rate(self.rate_for(width), self)


#: What `--optimizer` names.
OPTIMIZERS: Mapping[str, Usual] = MappingProxyType({
    "adamw": Usual(
        lambda settings: AdamW(weight_decay=settings.weight_decay),
        lambda width: 5e-5 * 768 / width,
        lambda peak, settings: Linear(peak, warmup=settings.warmup),
    ),
    "adafactor": Usual(lambda settings: Adafactor(), lambda width: 1e-3, lambda peak, settings: Constant(peak)),
})
