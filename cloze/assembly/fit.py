"""Fit a published recipe to a user's budget: the values that make a small run learn, each with its reason.

Recipes are sized for the papers' budgets: BERT's batch of 256 rows leaves ten minutes on a laptop two hundred updates at a
rate meant for a million. `fit` keeps the system (network, exercise, objectives, kind of optimiser) and changes what depends on
the budget. The laws are few; docs/budgets.md says what they rest on:

- tokens per update grow like the square root of the budget's tokens, up to the published batch;
- the peak rate falls with the square root of the width; networks that normalise behind each layer take about a third of
  what others take;
- rows are short while a budget is small: a long row costs more and teaches nothing new;
- dropout is off while the text is read once or twice;
- a vocabulary grows with the square root of the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from cloze.assembly.recipe import PartSpec, Recipe

#: Networks that the laws apply to. Others are left as they are published.
FITTED = frozenset({"transformer", "transformer_xl", "two_stream", "encoder_decoder", "zen"})

BATCH_TOKENS, BATCH_POWER = 1000.0, 0.45  # tokens per update at a million tokens, and how they grow
PEAK_PRE, PEAK_POST = 3e-3, 1.5e-3  # Adam's peak at width 128
WIDTH, WIDTH_POWER = 128, -0.5
DISCRIMINATOR = 0.5  # two networks in one step want a lower rate
WARMUP_PRE, WARMUP_POST, WARMUP_UPDATES = 0.05, 0.1, 100  # shares of the budget; and the least number of updates
SHORT, LONG_TOKENS = 128, 1e9  # tokens per row below that many tokens
FEW_UPDATES, BETA = 10_000, 0.98  # Adam's second beta where updates are few
READ_OFTEN = 4.0  # times the text is read before dropout is worth its price
VOCABULARY = 1.6  # ids per square root of a byte of text
ADAM = ("adam", "adamw")  # how the names of optimisers end whose peak the laws are about


class Facts(NamedTuple):
    """What a fit goes by: tokens that the budget pays for, and tokens of the training text."""

    budget_tokens: float
    text_tokens: int


@dataclass(frozen=True)
class Change:
    """One value: its path, what is published, what is used here, and why."""

    path: str
    published: Any
    here: Any
    why: str

    @property
    def override(self) -> str:
        """As `--set` takes it."""
        return f"{self.path}={_written(self.here)}"


def fits(recipe: Recipe) -> bool:
    """Whether the laws apply to every network of a recipe and it is one run."""
    parts = [network.part for network in recipe.networks.values()]
    return not recipe.stages and all(part is not None and part.name in FITTED for part in parts)


def fit_vocabulary(recipe: Recipe, text_bytes: int) -> list[Change]:
    """The size of the tokenizer's vocabulary for a text of that many bytes, before there is a tokenizer."""
    changes = []
    for name, text in recipe.texts.items():
        published = text.tokenizer.arguments.get("size")
        here = max(1000, round(VOCABULARY * math.sqrt(text_bytes) / 1000) * 1000)
        if isinstance(published, int) and here < published:
            path = f"texts.{name}.tokenizer.size"
            changes.append(Change(path, published, here, f"{text_bytes / 1e6:,.1f} MB of text know that many pieces well"))
    return changes


def fit(recipe: Recipe, facts: Facts) -> list[Change]:
    """The changes that fit a recipe, as sized, to a budget; none where it already fits or the laws do not apply.

    They are values only, so that `--set` of every change gives the same run.
    """
    if not fits(recipe):
        return []
    return [change for change in _changes(recipe, facts) if change.published != change.here]


def _changes(recipe: Recipe, facts: Facts) -> Iterator[Change]:
    lengths, length = _lengths(recipe, facts)
    yield from lengths
    batch = _batch(recipe, facts, length)
    published = recipe.training.batch
    updates = facts.budget_tokens / (batch * length)
    many = f"{updates:,.0f} updates instead of {facts.budget_tokens / (published * length):,.0f}"
    yield Change("training.batch", published, batch, many)
    for index, phase in enumerate(recipe.schedule):
        if "batch" in phase.set:
            yield Change(f"schedule[{index}].set.batch", phase.set["batch"], min(batch, phase.set["batch"]), many)
    if recipe.training.micro_batch is not None and recipe.training.micro_batch > batch:
        yield Change("training.micro_batch", recipe.training.micro_batch, batch, "no larger than the batch")
    yield from _rate(recipe, updates)
    yield from _optimizer(recipe, updates)
    yield from _dropouts(recipe, facts)


def _lengths(recipe: Recipe, facts: Facts) -> tuple[list[Change], int]:
    """Rows of `SHORT` tokens in every phase while the budget is small; and the length that most rows then have."""
    published = [phase.set["length"] for phase in recipe.schedule if "length" in phase.set] or [recipe.length or SHORT]
    if facts.budget_tokens >= LONG_TOKENS:
        return [], published[0]
    why = f"a budget of {_short(facts.budget_tokens)} tokens learns more from more rows"
    changes = [
        Change(f"schedule[{index}].set.length", phase.set["length"], SHORT, why)
        for index, phase in enumerate(recipe.schedule) if phase.set.get("length", 0) > SHORT
    ]
    changes += [
        Change(f"sources.{name}.length", source.arguments["length"], SHORT, why)
        for name, source in recipe.sources.items() if (source.arguments.get("length") or 0) > SHORT
    ]
    return changes, min(published[0], SHORT)


def _batch(recipe: Recipe, facts: Facts, length: int) -> int:
    tokens = BATCH_TOKENS * (max(facts.budget_tokens, 1.0) / 1e6) ** BATCH_POWER
    rows = max(4.0, tokens / length)
    return min(recipe.training.batch, max(4, 4 * round(rows / 4)))


def _rate(recipe: Recipe, updates: float) -> Iterator[Change]:
    rate, optimizer = recipe.training.rate, recipe.training.optimizer
    path, given = f"training.rate.{rate.name}", rate.arguments
    post = _norm(recipe) == "post"
    if optimizer.name.endswith(ADAM) and "peak" in given:
        widest = max(part.arguments["width"] for part in _parts(recipe))
        peak = (PEAK_POST if post else PEAK_PRE) * (widest / WIDTH) ** WIDTH_POWER
        peak *= DISCRIMINATOR if len(recipe.networks) > 1 else 1.0
        why = f"width {widest}, norms {'behind' if post else 'before'} the layers, Adam"
        yield Change(f"{path}.peak", given["peak"], _rounded(peak), why)
    share = min(0.3, max(WARMUP_POST if post else WARMUP_PRE, WARMUP_UPDATES / max(updates, 1.0)))
    if "warmup" in given and rate.name != "inverse_square_root":
        was = given["warmup"] or f"{given.get('warmup_steps', 0)} steps"
        if given.get("warmup_steps"):
            yield Change(f"{path}.warmup_steps", given["warmup_steps"], 0, "written as a share, below")
        yield Change(f"{path}.warmup", was, _rounded(share), f"{share * updates:,.0f} updates")
    if given.get("floor"):
        yield Change(f"{path}.floor", given["floor"], 0.0, "a short run ends best at a rate of zero")
    if rate.name == "wsd":
        yield Change(f"{path}.decay", given["decay"], round(1.0 - _rounded(share), 4), "a short run decays from its peak on")
        yield Change(f"{path}.shape", given["shape"], "linear", "as above")
    if rate.name == "linear" and given.get("decay") != "after_warmup":
        yield Change(f"{path}.decay", given["decay"], "after_warmup", "the peak is reached where the warm-up is long")
    if rate.name == "cosine" and given.get("until", 1.0) != 1.0:
        yield Change(f"{path}.until", given["until"], 1.0, "as above")


def _optimizer(recipe: Recipe, updates: float) -> Iterator[Change]:
    """Adam's second moments must settle within the run."""
    optimizer = recipe.training.optimizer
    betas = optimizer.arguments.get("betas")
    if updates < FEW_UPDATES and betas is not None and betas[1] > BETA:
        path = f"training.optimizer.{optimizer.name}.betas"
        yield Change(path, list(betas), [betas[0], BETA], f"{1 / (1 - betas[1]):,.0f} updates of memory are too many")


def _dropouts(recipe: Recipe, facts: Facts) -> Iterator[Change]:
    read = facts.budget_tokens / max(facts.text_tokens, 1)
    if read >= READ_OFTEN:
        return
    why = f"the text is read {read:.2g} times: there is nothing to memorise"
    for name, network in recipe.networks.items():
        arguments = network.part.arguments if network.part is not None else {}
        for key in sorted(arguments):
            if (key == "dropout" or key.endswith("_dropout")) and arguments[key]:
                yield Change(f"networks.{name}.{key}", arguments[key], 0.0, why)


def _parts(recipe: Recipe) -> list[PartSpec]:
    return [network.part for network in recipe.networks.values() if network.part is not None]


def _norm(recipe: Recipe) -> str:
    exported = recipe.exported.part
    assert exported is not None  # `fits` has seen to it
    return str(exported.arguments.get("norm", "post"))


def _rounded(value: float) -> float:
    """Two significant digits: what follows them is noise."""
    return float(f"{value:.1e}")


def _short(number: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def _written(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_written(item) for item in value) + "]"
    return str(value)
