"""The space of a sweep: which values of a recipe vary, as lists of choices or as ranges, and points of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from cloze.errors import RecipeError

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(?P<log>log:)?(?P<low>{_NUMBER})\.\.(?P<high>{_NUMBER})")
_OTHER_RANGE = re.compile(rf"(?P<low>{_NUMBER})\s*(?:-|:|–|…|to)\s*(?P<high>{_NUMBER})")
MOST = 10_000  # trials of a sweep
_DIGITS = 4  # significant digits of a value

Values = tuple[str, ...]  # of a trial, each PATH=VALUE


@dataclass(frozen=True)
class CategoricalValue:
    """A value that is one of several."""

    path: str
    values: Values

    def at(self, share: float) -> str:
        """The choice at a share of the list, 0 ≤ share < 1."""
        return self.values[int(share * len(self.values))]


@dataclass(frozen=True)
class Range:
    """A number from `low` to `high`, both included: spread evenly, or evenly by its logarithm; or a whole number."""

    path: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def at(self, share: float) -> str:
        """The number at a share of the way from `low` to `high`, as text of four significant digits."""
        if self.whole:
            top = math.log(self.high + 1) if self.log else self.high + 1
            bottom = math.log(self.low) if self.log else self.low
            position = bottom + share * (top - bottom)
            return str(min(int(math.exp(position) + 1e-9 if self.log else position), int(self.high)))
        return self.text(self.low * (self.high / self.low) ** share if self.log else self.low + share * (self.high - self.low))

    def points(self, count: int) -> list[str]:
        """That many numbers, the first `low` and the last `high`; possibly fewer, because each comes once."""
        shares = [number / (count - 1) for number in range(count)] if count > 1 else [0.5]
        if not self.whole:
            return list(dict.fromkeys(self.at(share) for share in shares))
        ratio = self.high / self.low if self.log else 1.0
        numbers = [self.low * ratio**share if self.log else self.low + share * (self.high - self.low) for share in shares]
        return list(dict.fromkeys(str(round(number)) for number in numbers))

    def text(self, value: float) -> str:
        """A number of this range as a recipe has it."""
        return str(round(value)) if self.whole else f"{value:.{_DIGITS}g}"


Axis = CategoricalValue | Range


def space_of(options: Sequence[str]) -> list[Axis]:
    """The axes of `--vary PATH=A,B`, `PATH=LOW..HIGH` and `PATH=log:LOW..HIGH`.

    A range whose ends are written without a point or an exponent is one of whole numbers. Raises `RecipeError` for anything else.
    """
    if not options:
        raise RecipeError(
            "nothing to sweep: --vary PATH=A,B or PATH=LOW..HIGH is missing, such as training.rate.peak=log:1e-4..3e-3."
        )
    axes = [_axis(option) for option in options]
    twice = [axis.path for number, axis in enumerate(axes) if axis.path in {other.path for other in axes[:number]}]
    if twice:
        raise RecipeError(f"--vary {twice[0]}: is given twice. Write all of its values in one --vary.")
    return axes


def _axis(option: str) -> Axis:
    path, equals, rest = option.partition("=")
    path, rest = path.strip(), rest.strip()
    if not equals or not path or not rest:
        raise RecipeError(
            f"--vary {option}: expected PATH=A,B or PATH=LOW..HIGH or PATH=log:LOW..HIGH, such as "
            "training.rate.peak=log:1e-4..3e-3."
        )
    if ".." not in rest and not rest.startswith("log:"):
        values = tuple(value.strip() for value in rest.split(","))
        if not all(values) or len(set(values)) < len(values):
            raise RecipeError(f"--vary {option}: expected different values with commas between them.")
        if len(values) == 1 and (ends := _OTHER_RANGE.fullmatch(rest)) is not None:
            as_range = f"{ends['low']}..{ends['high']}"
            raise RecipeError(f"--vary {option}: a range is written {as_range}, and several values with commas.")
        return CategoricalValue(path, values)
    ends = _RANGE.fullmatch(rest)
    if ends is None:
        raise RecipeError(f"--vary {option}: {rest!r} is no range. Write LOW..HIGH or log:LOW..HIGH, such as log:1e-4..3e-3.")
    low, high, log = float(ends["low"]), float(ends["high"]), ends["log"] is not None
    if math.inf in (low, high) or -math.inf in (low, high):
        raise RecipeError(f"--vary {option}: both ends must be numbers below 1.8e308.")
    if not low < high:
        raise RecipeError(f"--vary {option}: the first end must be below the second.")
    if log and low <= 0:
        raise RecipeError(f"--vary {option}: a logarithmic range must lie above 0.")
    return Range(path, low, high, log, all(re.fullmatch(r"[-+]?\d+", ends[end]) for end in ("low", "high")))


def size_of(space: Sequence[Axis]) -> float:
    """How many different points a space has; infinite with a range of real numbers."""
    sizes = (
        len(axis.values) if isinstance(axis, CategoricalValue) else axis.high - axis.low + 1 if axis.whole else math.inf
        for axis in space
    )
    return math.prod(sizes)


def grid_of(space: Sequence[Axis], trials: int | None) -> list[Values]:
    """All combinations of the choices with evenly spaced numbers of every range, at most `trials` in all.

    Raises `RecipeError` if so many trials do not suffice for two numbers of every range.
    """
    choices = math.prod(len(axis.values) for axis in space if isinstance(axis, CategoricalValue))
    ranges = sum(isinstance(axis, Range) for axis in space)
    if ranges and trials is None:
        raise RecipeError("--trials is missing: into how many points the grid divides its ranges, such as --trials 16.")
    if trials is None and choices > MOST:
        raise RecipeError(f"--vary: the grid has {choices:,} points; a sweep has at most {MOST:,} trials. Try --search random.")
    points = 0
    if trials is not None:
        while choices * (points + 1) ** max(ranges, 1) <= trials and (ranges or points < 1):
            points += 1
        if points < (2 if ranges else 1):
            least = choices * 2**ranges
            raise RecipeError(f"--trials {trials}: the smallest grid has {least:,} points. Give as many, or --search random.")
    lists = [axis.values if isinstance(axis, CategoricalValue) else axis.points(points) for axis in space]
    return [named(space, point) for point in product(*lists)]


def named(space: Sequence[Axis], values: Sequence[str]) -> Values:
    """The values of a point with their paths."""
    return tuple(f"{axis.path}={value}" for axis, value in zip(space, values, strict=True))
