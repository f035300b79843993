"""The numbers of a fine-tuning run, and the optimisers that one may be run with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from cloze.errors import TaskError, nearest
from cloze.training.adafactor import Adafactor
from cloze.training.dropouts import Dropouts
from cloze.training.each_stage import EachStage
from cloze.training.movement import LayerwiseRates, Unfreezing
from cloze.training.optimizers import AdamW, OptimizerSpec
from cloze.training.rates import Constant, Cosine, Linear, Plateau, SlantedTriangular
from cloze.training.schedules import ExponentialChange


class Usual(NamedTuple):
    """How a run steps: the optimiser, the peak rate for a width, and the name of the rate by the share of the run."""

    optimizer: Callable[[Settings], OptimizerSpec]
    peak: Callable[[int], float]
    schedule: str


@dataclass(frozen=True)
class Settings:
    """The numbers of a fine-tuning run.

    `optimizer` adamw warms up and decays linearly; its `rate` None is 5e-5 for a width of 768 and in inverse proportion for
    others (3e-4 for tiny, 1.5e-4 for mini: within the authors' list for small BERTs). adafactor is how T5 is fine-tuned (Raffel
    et al., 2020, §3.1.3): a constant rate, 1e-3 for None, in proportion to the size of each weight. `schedule` is another course
    of the rate: one of `SCHEDULES`. `patience`: epochs without a better dev `metric` (None: the task's first) before stopping,
    None to run through. The best epoch is kept either way. `from_scratch` trains a randomly initialised twin instead.

    **Transfer.** `unfreeze` says which depth groups move when and `layerwise` how fast each is (parts of `cloze.transfer`); None:
    all move, equally fast. `pool` classifies by all tokens and not by the summary: concat (ULMFiT: then 50 hidden units, batch
    normalisation), attention (SiATL), mean, max or last, on a new LSTM of width `task_lstm` if that is not 0; tasks that label
    words or read mixed layers have one in each direction. `auxiliary` (start, end) adds the loss of the checkpoint's language
    model with a weight that falls from epoch to epoch by one factor. `truncate` (every, keep) reads a text in pieces of `every`
    tokens, gradients ending at each, and pools those that begin within the last `keep` tokens (BPT3C); for networks that carry a
    state. `dropouts` are those of the network while it is tuned, `penalties` the weights of the mean square of its states and of
    their change from token to token (AR and TAR; see `ActivationPenalty`). The schedule `slanted_triangular` begins again in
    every stage of `unfreeze`.
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
    betas: tuple[float, float] = (0.9, 0.999)
    schedule: str | None = None
    unfreeze: Unfreezing | None = None
    layerwise: LayerwiseRates | None = None
    pool: str | None = None
    task_lstm: int = 0
    auxiliary: tuple[float, float] | None = None
    truncate: tuple[int, int] | None = None
    dropouts: Dropouts | None = None
    penalties: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "length"):
            if getattr(self, name) < 1:
                raise TaskError(f"--{name} {getattr(self, name)}: expected at least 1.")
        if self.rate is not None and not self.rate > 0:
            raise TaskError(f"--rate {self.rate}: expected a learning rate above 0, such as 5e-5.")
        if self.optimizer not in OPTIMIZERS:
            raise TaskError(f"unknown optimizer {self.optimizer!r}. {nearest(self.optimizer, OPTIMIZERS)}")
        if self.schedule is not None and self.schedule not in SCHEDULES:
            raise TaskError(f"unknown schedule {self.schedule!r}. {nearest(self.schedule, SCHEDULES)}")
        if self.pool is not None and self.pool not in POOLS:
            raise TaskError(f"unknown pool {self.pool!r}. {nearest(self.pool, POOLS)}")
        if self.task_lstm < 0:
            raise TaskError(f"--task-lstm {self.task_lstm}: expected a width of at least 1, or 0 for none.")
        if not self.clip > 0:
            raise TaskError(f"--clip {self.clip:g}: expected a length above 0 for gradients, such as 1.")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise TaskError(f"--optimizer: betas {_listed(self.betas)}; expected two numbers from 0 to below 1: 0.9,0.999.")
        self._check_transfer()

    def _check_transfer(self) -> None:
        if self.auxiliary not in (None, (0.0, 0.0)) and not self.auxiliary[0] >= self.auxiliary[1] > 0:
            raise TaskError(f"--auxiliary {_listed(self.auxiliary)}: expected a weight and one for the end, such as 0.2,0.1.")
        if self.truncate is not None and not self.truncate[1] >= self.truncate[0] >= 1:
            raise TaskError(
                f"--truncate {_listed(self.truncate)}: expected the tokens of a piece, and as many or more to be kept: 70,1400."
            )
        if self.penalties is not None and not (len(self.penalties) == 2 and min(self.penalties) >= 0):
            raise TaskError(f"--penalties {_listed(self.penalties)}: expected two weights of 0 or more, such as 2,1.")
        if self.truncate is not None and self.pool is None:
            raise TaskError("--truncate: pieces are pooled; say how with --pool.")

    def rate_for(self, width: int) -> float:
        """The peak learning rate for a network of this width."""
        return self.rate if self.rate is not None else OPTIMIZERS[self.optimizer].peak(width)

    def rates(self, width: int, starts: Sequence[float] = (0.0,)) -> Any:
        """The learning rate as a function of the share of the run; `starts` are the shares at which stages begin."""
        course = self.schedule or OPTIMIZERS[self.optimizer].schedule
        return SCHEDULES[course](self.rate_for(width), self, starts)

    def auxiliary_weight(self, share: float) -> float:
        """The weight of the language model's loss when a share of the run is over: one level for each epoch."""
        if self.auxiliary is None or not self.auxiliary[0]:
            return 0.0
        return ExponentialChange(*self.auxiliary, stairs=self.epochs)(share)

    def record(self) -> dict[str, Any]:
        """Plain values; a part by its class."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: {type(value).__name__.lower(): asdict(value)} if is_dataclass(value) and not isinstance(value, type) else value
            for name, value in values.items()
        }


def _listed(numbers: tuple[float, ...]) -> str:
    return ",".join(f"{number:g}" for number in numbers)


#: What `--pool` names.
POOLS = ("concat", "attention", "mean", "max", "last")

#: What `--schedule` names.
SCHEDULES: Mapping[str, Callable[[float, Settings, Sequence[float]], Any]] = MappingProxyType({
    "linear": lambda peak, settings, starts: Linear(peak, warmup=settings.warmup),
    "slanted_triangular": lambda peak, settings, starts: EachStage(SlantedTriangular(peak), starts),
    "cosine": lambda peak, settings, starts: Cosine(peak, warmup=settings.warmup),
    "constant": lambda peak, settings, starts: Constant(peak),
    "plateau": lambda peak, settings, starts: Plateau(peak),
})

#: What `--optimizer` names.
OPTIMIZERS: Mapping[str, Usual] = MappingProxyType({
    "adamw": Usual(
        lambda settings: AdamW(weight_decay=settings.weight_decay, betas=settings.betas),
        lambda width: 5e-5 * 768 / width,
        "linear",
    ),
    "adafactor": Usual(lambda settings: Adafactor(), lambda width: 1e-3, "constant"),
})
