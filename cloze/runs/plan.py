"""Forecasts what a budget achieves: updates, tokens, time, memory, and the expected loss; and what would improve it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from cloze import html_parts
from cloze.budget.baselines import label_of
from cloze.budget.expected import STARTED, Expected, RunKind, exercise_of, expected_of, fresh, run_kind_of
from cloze.budget.fit import SHORT, can_be_fitted, fit_vocabulary, per_update, short, worth
from cloze.budget.fit_text import sample_for
from cloze.budget.fitted import Fitted
from cloze.checkpoint.build import build_step
from cloze.corpus import Store
from cloze.display import three_digits
from cloze.errors import ClozeError
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import Recipe
from cloze.runs.options import PretrainOptions
from cloze.runs.request import to_be_fitted
from cloze.training.baselines import Baseline
from cloze.training.forecasting.forecast import Forecast
from cloze.training.run import Run
from cloze.training.schedule.budget import Budget

NOTHING = 0.3  # nats below single tokens; a smaller expected gain counts as nothing
ENOUGH = 0.5  # the gain that a suggestion must reach
OFTEN = 16  # passes over a text after which a further one teaches about a third of what new text would (`expected.fresh`)
_SIZES = ("tiny", "mini", "small", "medium", "base", "large")
_TIMES = (2, 3, 5, 10, 20, 30, 50, 100, 200, 500, 1000)
_MASKED = 0.15  # targets per token if not every token is a target


@dataclass(frozen=True)
class Prospect:
    """The expected loss of one objective; `parameters` are those of its network without tables. Its tokens teach `times` as much
    as those of a network whose weights are all drawn."""

    name: str
    kind: RunKind | None
    parameters: int
    baseline: Baseline
    expected: Expected | None
    times: float = 1.0

    @property
    def gap(self) -> float | None:
        """Nats below the baseline of single tokens."""
        return None if self.expected is None else self.baseline.single - self.expected.loss

    def after(self, tokens: float, *, parameters: float | None = None) -> Prospect:
        """The same for another budget and network."""
        many = self.parameters if parameters is None else parameters
        assert self.kind is not None
        return replace(self, expected=expected_of(self.kind, self.baseline, parameters=many, tokens=tokens * self.times))

    def __str__(self) -> str:
        base = self.baseline
        if base.pairs is None:
            references = f"constant prediction {base.single:.2f}"
        else:
            references = f"single tokens {base.single:.2f}, pairs {base.pairs:.2f}, chance {base.chance:.2f}"
        if self.kind is None:
            return f"{self.name}: {references}"
        loss = "unknown: no such exercise has been measured" if self.expected is None else str(self.expected)
        return f"{self.name}: {references}; expected held-out loss {loss}"


@dataclass(frozen=True)
class Plan:
    """What a budget achieves with a recipe. `forecast` is None if nothing can be timed; `why_no_forecast` then holds the reason.

    `text_tokens` is the size of the training text. `made_later` are objectives whose answers only training makes. `ways` are
    suggestions if the budget achieves next to nothing. `stage` names the stage of a recipe with stages. `held_out`: some text is
    held out. `starts` say what is counted before the first step, `distance` how far the text is from what a checkpoint has read,
    `copies` how many of the held-out documents are trained on as well.
    """

    recipe: Recipe
    budget: Budget
    fitted: Fitted | None
    forecast: Forecast | None
    why_no_forecast: str
    text_tokens: int
    prospects: tuple[Prospect, ...]
    made_later: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()
    stage: str | None = None
    held_out: bool = True
    starts: tuple[str, ...] = ()
    distance: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()

    @property
    def worth(self) -> float | None:
        """The budget with which a fitted run learns as much; None if the number of updates is not known."""
        forecast = self.forecast
        if forecast is None or forecast.tokens is None or not forecast.updates:
            return None
        return worth(forecast.tokens, forecast.updates)

    def fresh(self, tokens: float) -> float:
        """How many tokens of new text teach as much as that many of this text, which may be read again and again."""
        forecast = self.forecast
        if forecast is None or not forecast.tokens or not forecast.epochs:
            return tokens
        return fresh(tokens, forecast.tokens / forecast.epochs)

    @property
    def often(self) -> float | None:
        """How many times a run with a predicted loss reads the text, if that is too often."""
        predicted = any(prospect.expected is not None for prospect in self.prospects) and self.recipe.task is None
        epochs = self.forecast.epochs if predicted and self.forecast is not None else None
        return epochs if epochs is not None and epochs > OFTEN else None

    @property
    def nothing(self) -> bool:
        """Whether no objective with a law is expected to get far enough below single tokens."""
        gaps = [prospect.gap for prospect in self.prospects if prospect.gap is not None]
        return bool(gaps) and max(gaps) < NOTHING

    def outlook(self) -> list[str]:
        """The expected losses as a run prints them, and what would improve them."""
        lines = [f"  {prospect}" for prospect in self.prospects]
        lines += [f"  {name}: not predicted; the run itself makes its right answers" for name in self.made_later]
        if self.prospects and not self.held_out:
            lines.append("  Nothing is held out of so few documents, so no held-out loss is measured. Give text with --held-out.")
        if self.often is not None:
            lines += [
                f"  The text is read {self.often:,.0f} times. After {OFTEN} passes, a further one teaches about a third of what",
                "  new text would, and the held-out loss may rise again. More text would help.",
            ]
        if self.nothing:
            lines += [
                f"  This budget teaches next to nothing: the expected loss is less than {NOTHING} nats below single tokens."
                + (" What would help:" if self.ways else ""),
                *(f"  - {way}" for way in self.ways),
            ]
        return lines

    def _repr_html_(self) -> str:
        """The same for notebooks, with the expected losses as a table."""
        rows = [
            {
                "objective": prospect.name, "expected held-out loss": "" if prospect.expected is None else str(prospect.expected),
                "single tokens or constant prediction": f"{prospect.baseline.single:.2f}",
                "pairs": "" if prospect.baseline.pairs is None else f"{prospect.baseline.pairs:.2f}",
                "chance": f"{prospect.baseline.chance:.2f}",
            }
            for prospect in self.prospects
        ]  # fmt: skip
        outlook = self.outlook()
        rest = [*(outlook[len(rows) :] if outlook else _no_outlook(self.recipe)), *self.copies, *self.distance]
        opening, closing = "\n".join(self._opening()), "\n".join(rest)
        return html_parts.preformatted(opening) + html_parts.table(rows) + html_parts.preformatted(closing)

    def __str__(self) -> str:
        return "\n".join([*self._opening(), *(self.outlook() or _no_outlook(self.recipe)), *self.copies, *self.distance])

    def _opening(self) -> list[str]:
        """What comes before the losses: the fit, the cost, the text."""
        whose = self.recipe.name if self.stage is None else f"{self.recipe.name}, stage {self.stage},"
        head = f"plan of {whose} for {self.budget.typed}: nothing is trained or written."
        fit = [f"{self.recipe.name} is trained as written."]
        if self.fitted is not None and self.fitted.changed_values:
            fit = [self.fitted.table(self.budget.typed, self.stage)]
        text = f"text: {short(self.text_tokens)} tokens"
        if self.forecast is None:
            return [head, *fit, f"no forecast of {self.why_no_forecast}", text, *self.starts]
        read = "" if self.forecast.epochs is None else f", read {three_digits(self.forecast.epochs)} times"
        return [head, *fit, str(self.forecast), text + read, *self.starts]


class Plans(list[Plan]):
    """The plans of the stages of a recipe; one of a recipe without stages."""

    def __repr__(self) -> str:
        """What `cloze pretrain --plan` prints."""
        return "\n\n".join(map(str, self))

    def _repr_html_(self) -> str:
        return "".join(plan._repr_html_() for plan in self)


def _no_outlook(recipe: Recipe) -> tuple[str]:
    """The line for a recipe without a loss that can be compared with one that needs no network."""
    parts = [network.part for network in recipe.networks.values()]
    if all(part is not None and class_of("network", part.name).of_words for part in parts):
        return ("  quality of the vectors: not predicted; `cloze evaluate RUN --similarity FILE` measures it",)
    return ("  loss: not predicted; it cannot be compared with that of token or label frequencies",)


def made_later(recipe: Recipe) -> tuple[str, ...]:
    """The objectives that label what another pass makes: which tokens were replaced."""
    return tuple(
        label_of(recipe, entry, objective)
        for entry, spec in recipe.step_entries.items() for pass_, objective in spec.objectives()
        if (kind := run_kind_of(recipe, spec, pass_, objective)) is not None and kind.exercise == "replaced"
    )  # fmt: skip


def prospects_of(
    recipe: Recipe, run: Run, tokens: float | None, *, vocab_size: int, continued: bool = False
) -> Iterator[Prospect]:
    """The prospect of every objective that has a baseline, after so many tokens; of a trained network that is `continued`, the
    baselines alone, because the laws are those of new networks."""
    for entry, spec in recipe.step_entries.items():
        for pass_, objective in spec.objectives():
            name = label_of(recipe, entry, objective)
            baseline = run.baselines.get(name)
            if baseline is None:
                continue
            kind = None if continued else run_kind_of(recipe, spec, pass_, objective)
            many = without_tables(run.step.networks[pass_.network].parameters(), vocab_size)
            times = 1.0 if recipe.networks[pass_.network].start is None else STARTED
            prospect = Prospect(name, kind, many, baseline, None, times)
            yield prospect if kind is None or tokens is None else prospect.after(tokens)


def without_tables(parameters: Iterable[Any], vocab_size: int) -> int:
    """How many parameters there are, not counting tables with a row per id."""
    return sum(parameter.numel() for parameter in parameters if vocab_size not in parameter.shape)


def ways_out(plan: Plan, options: PretrainOptions, *, vocab_size: int, text_bytes: float | None) -> tuple[str, ...]:
    """Suggestions that help according to the laws, each with its command."""
    predicted = [prospect for prospect in plan.prospects if prospect.gap is not None]
    forecast, tokens = plan.forecast, plan.worth
    if not predicted or forecast is None or forecast.tokens is None or not forecast.updates or tokens is None:
        return ()
    best = max(predicted, key=lambda prospect: prospect.gap or 0.0)
    hints = []
    if not to_be_fitted(options, plan.recipe) and can_be_fitted(plan.recipe):
        command = options.command(fit=None if options.fit is False else True)
        then = best.after(plan.fresh(forecast.tokens)).expected
        hints.append(f"values fitted to this budget instead of those of the recipe, expected {best.name} {then}:\n    {command}")
    rows = max(4, 4 * round(forecast.batch * per_update(forecast.tokens) * forecast.updates / forecast.tokens / 4))
    if tokens < forecast.tokens and rows < forecast.batch and plan.budget.kind != "steps":
        command = options.command(overrides=[*options.overrides, f"training.batch={rows}"])
        hints.append(f"smaller batches ({rows} rows instead of {forecast.batch:,}) and therefore more updates:\n    {command}")
    size = _smaller(plan, options, best, tokens, vocab_size)
    if size is not None:
        hints.append(size)
    trains_tokenizer = text_bytes is not None and options.tokenizer is None  # a tokenizer that the user gave stays
    sample = sample_for(plan.recipe, options.paths) if trains_tokenizer else ""
    for change in fit_vocabulary(plan.recipe, int(text_bytes or 0), sample) if trains_tokenizer else []:
        if vocab_size > 1.3 * change.fitted:
            command = options.command(overrides=[*options.overrides, f"text.tokenizer.size={change.fitted}"])
            if any(Store.is_store(path) for path in options.paths):  # its text is encoded already
                command = f"cloze corpus build TEXT --recipe {options.recipe} --size {change.fitted} --out STORE"
            hints.append(f"a smaller vocabulary ({change.fitted:,} instead of {vocab_size:,} ids) of this text:\n    {command}")
    if (plan.recipe.length or 0) > SHORT:
        command = options.command(overrides=[*options.overrides, f"length={SHORT}"])
        hints.append(f"shorter rows ({SHORT} instead of {plan.recipe.length} tokens):\n    {command}")
    longer = next((n for n in _TIMES if (best.after(plan.fresh(n * tokens)).gap or 0.0) >= ENOUGH), None)
    if longer is not None:
        more = best.after(plan.fresh(longer * tokens)).expected
        budget = plan.budget if options.budget is None else Budget.parse(options.budget)  # of all stages
        command = options.command(budget=replace(budget, amount=budget.amount * longer).typed)
        hints.append(f"{longer} times the budget, expected {best.name} {more}:\n    {command}")
    return tuple(hints)


def _smaller(plan: Plan, options: PretrainOptions, now: Prospect, tokens: float, vocab_size: int) -> str | None:
    """The smaller network with the lowest expected loss, if one is better: it reads more tokens in the same time."""
    if plan.recipe.exported.origin in options.checkpoints:
        return None  # its size is that of the checkpoint
    timed = plan.budget.kind in ("seconds", "flops")
    cost = cost_per_token(plan.recipe, vocab_size) if timed else 0.0
    best: tuple[float, str, float, Prospect] | None = None
    for size in _SIZES:
        if size == options.size:
            break
        try:
            recipe = replace(options, size=size).load(() if plan.fitted is None else plan.fitted.overrides)
            step = build_step(recipe, vocab_size=vocab_size, device="meta")
        except ClozeError:  # the network has no such size
            continue
        parameters = without_tables(step.networks[recipe.export].parameters(), vocab_size)
        if parameters >= now.parameters:
            break  # larger sizes are no smaller either
        many = tokens * (max(cost / max(cost_per_token(recipe, vocab_size), 1.0), 1.0) if timed else 1.0)
        then = now.after(plan.fresh(many), parameters=parameters)
        if (then.gap or 0.0) > (now.gap or 0.0) + 0.05 and (best is None or (then.gap or 0.0) > best[0]):
            best = (then.gap or 0.0, size, many, then)
    if best is None:
        return None
    _, size, many, then = best
    command = options.command(size=size)
    return f"a smaller network: about {short(many)} tokens, expected {then.name} {then.expected}:\n    {command}"


def cost_per_token(recipe: Recipe, vocab_size: int) -> float:
    """About how many FLOPs a token takes: in the networks, and in the output over the vocabulary for predicted tokens."""
    step = build_step(recipe, vocab_size=vocab_size, device="meta")
    total = 0.0
    for name, entry in recipe.step_entries.items():
        for pass_ in entry.passes:
            share = 1.0 if exercise_of(recipe, entry, pass_.view) == "causal" else _MASKED
            part = recipe.networks[pass_.network].part
            width = part.arguments.get("width") or 1 if part is not None else 1
            total += 6.0 * share * vocab_size * width * bool(pass_.objectives)
        total += step.flops_per_token(name, recipe.length or SHORT)
    return total
