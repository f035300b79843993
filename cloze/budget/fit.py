"""Fit a published recipe to a user's budget: the values that make a small run learn, each with its reason.

Recipes are sized for the budgets of the papers: with BERT's batch of 256 rows, ten minutes on a laptop are two hundred updates,
at a rate meant for a million. `fit` keeps shapes, objectives, mask rates and the kind of optimizer, and changes the values that
depend on the budget: batch, lengths and memory, rates, betas, dropouts, initial weights, growth and mean. Each function below is
one law; the table of laws in reproductions/budgets.md lists what it says and why, with the runs that it was measured on.
`peaks.py` has the peak rates, `fit_text.py` and `fit_words.py` fit what depends on the text.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from cloze.budget.expected import run_kind_of
from cloze.budget.facts import BudgetFacts, ChangedValue
from cloze.budget.fit_text import least_vocabulary
from cloze.budget.fit_words import fit_words, learns_words, least_counts
from cloze.budget.peaks import WORDS, NetworkKind, PeakLaw, learned_positions, network_kind, offsets_of, peak_law
from cloze.recipe.parts import builder_of, class_of
from cloze.recipe.recipe import PartSpec, Recipe
from cloze.recipe.references import reading_twins
from cloze.recipe.stages import stage_recipes
from cloze.registry import parameters

BATCH_TOKENS, BATCH_POWER = 1000.0, 0.45  # tokens per update at a million tokens, and how they grow
ROUNDED_ROWS = 4  # batches are multiples of 4 rows; where the batch is 1/n of the usual one, of 4/n
COMPARED = 64  # at least so many rows where an objective compares the rows of an update
LARGER = 2.0  # a batch that is so many times the fitted one leaves too few updates
CONTINUED = 0.1  # of the peak of a new network: a trained one forgets at the full rate
DETECTED_TOKENS, DETECTED_POWER, DETECTED_LEAST = 6e5, 0.6, 0.25  # ELECTRA: the peak falls from here on, to this part
WARMUP_UPDATES, LONGEST_WARMUP = 100, 0.3  # at least so many updates, at most this share of the budget
SHORT, LONG_TOKENS = 128, 1e9  # tokens per row below that many tokens
FEW_UPDATES, BETA = 10_000, 0.98  # Adam's second beta where updates are few
MEANS = 16  # the part of a run that a mean of the weights reaches back over
READ_OFTEN = 4.0  # passes over the text from which dropout pays
RUNS = ("span", "ngram")  # units of what is hidden that hide the neighbours too
OFFSETS = [-1, 1, -2, 2]  # where the heads of the first layer look at first, if positions are learned
STARTING = 20  # tokens of text that are counted for each token of the budget
STD, STD_WIDTH = 0.02, 768  # of the initial weights, and the width that it is for
VOCABULARY = 1.6  # ids per square root of a byte of text
EVALUATIONS, FEWEST_EVALUATIONS = 20, 3  # held-out losses in a run: the maximum and the minimum
HELD_OUT_ROWS, HELD_OUT_SHARE = 256, 0.05  # rows of one evaluation, and the share of the budget for all of them


#: Budgets and texts whose fits tell the laws of one version of cloze from those of another.
_PROBED = (BudgetFacts(1e6, 10**7), BudgetFacts(1e8, 10**6))


def can_be_fitted(recipe: Recipe) -> bool:
    """Whether the laws apply to the exported network of a recipe (with stages, of the last) and no other comes from elsewhere."""
    parts, exported = [network.part for network in recipe.networks.values()], recipe.exported.part
    layered = exported is not None and class_of("network", exported.name).stack is not None
    return learns_words(recipe) or (layered and None not in parts)


def fit_vocabulary(recipe: Recipe, text_bytes: int, sample: str = "") -> list[ChangedValue]:
    """The tokenizer's vocabulary for a text of that many bytes, before there is a tokenizer; with ids for nearly all characters
    of a `sample` of the text."""
    changes = list(least_counts(recipe, text_bytes)) if learns_words(recipe) else []
    for name, text in recipe.texts.items():
        published = text.tokenizer.arguments.get("size")
        here = max(1000, round(VOCABULARY * math.sqrt(text_bytes) / 1000) * 1000)
        least = least_vocabulary(text, sample)
        if isinstance(published, int) and max(here, least) < published:
            why = f"{text_bytes / 1e6:,.1f} MB of text support about this many pieces"
            why = why if here >= least else "fewer have no id for some characters of the text"
            changes.append(ChangedValue(f"texts.{name}.tokenizer.size", published, max(here, least), why))
    return changes


def fit(recipe: Recipe, facts: BudgetFacts, *, fixed_paths: Collection[str] = ()) -> list[ChangedValue]:
    """The changes that fit a recipe to a budget; none if it already fits or the laws do not apply.

    All of them are values, so `--set` with every change gives the same run. The values at `fixed_paths` stay, and the others are
    fitted to them.
    """
    if not can_be_fitted(recipe):
        return []
    changes = fit_words(recipe, facts) if learns_words(recipe) else _changes(recipe, facts, fixed_paths)
    return [change for change in changes if change.published != change.fitted and change.path not in fixed_paths]


def laws_of(recipe: Recipe) -> list[str]:
    """What the laws make of a recipe and its stages in two budgets: versions of cloze that agree on it fit its runs alike."""
    return [change.override for stage in stage_recipes(recipe) for facts in _PROBED for change in fit(stage, facts)]


def _changes(recipe: Recipe, facts: BudgetFacts, fixed_paths: Collection[str]) -> Iterator[ChangedValue]:
    lengths, length = _lengths(recipe, facts, fixed_paths)
    yield from lengths
    published = recipe.training.batch
    batch = published if "training.batch" in fixed_paths or not _free_batch(recipe) else _batch(recipe, facts, length)
    updates = facts.updates or facts.budget_tokens / (batch * length)
    before = facts.budget_tokens / (published * length)
    why_updates = f"{updates:,.0f} updates instead of {f'{before:,.0f}' if before >= 1 else 'less than one'}"
    if facts.updates:
        why_updates = f"{updates:,.0f} updates; the batch is that for {facts.budget_tokens:,.0f} tokens"
    yield ChangedValue("training.batch", published, batch, why_updates)
    for index, phase in enumerate(recipe.schedule):
        if "batch" in phase.set:
            yield ChangedValue(f"schedule[{index}].set.batch", phase.set["batch"], min(batch, phase.set["batch"]), why_updates)
    if recipe.training.micro_batch is not None and recipe.training.micro_batch > batch:
        yield ChangedValue("training.micro_batch", recipe.training.micro_batch, batch, "no larger than the batch")
    yield from _rate(recipe, updates, batch, facts)
    yield from _optimizer(recipe, updates)
    yield from _growth_and_mean(recipe, updates)
    yield from _evaluations(recipe, facts, length)
    yield from _dropouts(recipe, facts)
    yield from _first_weights(recipe)
    yield from _starts(recipe, facts)


def _lengths(recipe: Recipe, facts: BudgetFacts, fixed_paths: Collection[str]) -> tuple[list[ChangedValue], int]:
    """Rows of `SHORT` tokens in every phase while the budget is small; and the length that most rows then have."""
    lengths = [(f"schedule[{index}].set.length", phase.set.get("length")) for index, phase in enumerate(recipe.schedule)]
    phases = {path: long for path, long in lengths if long is not None}
    sources = {f"sources.{name}.length": source.arguments.get("length") for name, source in recipe.sources.items()}
    first = next(iter(phases), None)
    published = recipe.length or SHORT if first is None else phases[first]
    if facts.budget_tokens >= LONG_TOKENS:
        return [], published
    why = f"a budget of {short(facts.budget_tokens)} tokens learns more from more, shorter rows"
    changes = [ChangedValue(path, long, SHORT, why) for path, long in {**phases, **sources}.items() if (long or 0) > SHORT]
    changes += _carried(recipe, fixed_paths)
    stays = any(path in fixed_paths for path in (sources if first is None else [first]))
    return changes, published if stays else min(published, SHORT)


def _carried(recipe: Recipe, fixed_paths: Collection[str]) -> Iterator[ChangedValue]:
    """The memory of earlier rows and the part of them that is reused, in proportion to the shorter row."""
    why, fewer = "in proportion to the row length", 0
    long = recipe.length or SHORT
    if long <= SHORT or any(f"sources.{name}.length" in fixed_paths for name in recipe.sources):
        return
    for name, network in recipe.networks.items():
        arguments = network.part.arguments if network.part is not None else {}
        memory = arguments.get("memory") or {}
        carried = {f"memory.{key}": memory.get(key, 0) for key in ("size", "reuse")} | {"reuse": arguments.get("reuse", 0)}
        for key, was in carried.items():
            if was > 1:
                yield ChangedValue(f"networks.{name}.{key}", was, was * SHORT // long, why)
                fewer = was - was * SHORT // long if key.endswith("reuse") else fewer
    for name, source in recipe.sources.items():
        was = source.arguments.get("reuse") or 0
        if was > 1:  # together with the tokens of the frame it is what the network reuses
            yield ChangedValue(f"sources.{name}.reuse", was, was - fewer if 0 < fewer < was else was * SHORT // long, why)


def _free_batch(recipe: Recipe) -> bool:
    """Whether the batch can change without changing the size of an update: a sum of losses grows with the batch, but Adam
    normalises it."""
    family = class_of("optimizer", recipe.training.optimizer.name).family
    return recipe.training.divide != "nothing" or family in ("adam", "muon")


def per_update(budget_tokens: float) -> float:
    """The fitted number of tokens per update for a budget of tokens.

    >>> round(per_update(1e6)), round(per_update(1e8))
    (1000, 7943)
    """
    return BATCH_TOKENS * (max(budget_tokens, 1.0) / 1e6) ** BATCH_POWER


def worth(tokens: float, updates: float) -> float:
    """The budget with which a fitted run learns as much as a run that reads `tokens` in a few large `updates`.

    Early progress depends on the number of updates, so this is the budget of the fitted run with as many updates.

    >>> round(worth(4.66e6, 204)), round(worth(1e6, 1000))
    (55563, 1000000)
    """
    if tokens <= LARGER * per_update(tokens) * updates:
        return tokens
    return min(tokens, (updates * BATCH_TOKENS / 1e6**BATCH_POWER) ** (1.0 / (1.0 - BATCH_POWER)))


def _batch(recipe: Recipe, facts: BudgetFacts, length: int) -> int:
    share = (2 if "spans" in _exercises(recipe) else 1) * class_of("optimizer", recipe.training.optimizer.name).updates
    law, exported = _law(recipe)[1], recipe.exported.part
    learned = exported is not None and learned_positions(exported)
    fewest = law.causal_rows if law is not None and learned and _causal(recipe) else ROUNDED_ROWS
    unit = max(1, ROUNDED_ROWS // share)
    rows = max(COMPARED if _compared(recipe) else fewest / share, per_update(facts.budget_tokens) / (share * length))
    batch = min(recipe.training.batch, unit * max(1, round(rows / unit)))
    group = recipe.training.group or 1
    return min(recipe.training.batch, max(batch // group, 1) * group)


def _law(recipe: Recipe) -> tuple[NetworkKind, PeakLaw | None]:
    """The kind of the exported network, and the law for it under the recipe's optimizer."""
    exported = recipe.exported.part
    assert exported is not None  # `can_be_fitted` has seen to it
    kind = network_kind(exported)
    kind = "offsets" if kind == "post" and _offsets(recipe, exported) else kind
    return kind, peak_law(recipe.training.optimizer.name, kind)


def _causal(recipe: Recipe) -> bool:
    """Whether the exported network reads in one direction, without a memory of earlier rows."""
    exported = recipe.exported.part
    return "causal" in _exercises(recipe) and exported is not None and not exported.arguments.get("memory")


def _exercises(recipe: Recipe) -> set[str]:
    """The kinds of exercises of a recipe's objectives on tokens, as `run_kind_of` names them."""
    passes = [(entry, pass_, spec) for entry in recipe.step_entries.values() for pass_, spec in entry.objectives()]
    kinds = [run_kind_of(recipe, entry, pass_, spec) for entry, pass_, spec in passes]
    return {kind.exercise for kind in kinds if kind is not None}


def _compared(recipe: Recipe) -> bool:
    """Whether every objective of a recipe compares the rows of an update with each other: they hold the wrong answers."""
    specs = [objective for entry in recipe.step_entries.values() for _, objective in entry.objectives() if objective.weight != 0]
    comparing = all(class_of("objective", spec.part.name).scope in ("batch", "step") for spec in specs)
    return bool(specs) and comparing and recipe.training.group is None


def _fallen(budget_tokens: float) -> float:
    """The factor of the peak for a network that detects replaced tokens.

    >>> _fallen(3e5), _fallen(6e5), round(_fallen(3e6), 2), _fallen(1e8)
    (1.0, 1.0, 0.38, 0.25)
    """
    return max(DETECTED_LEAST, (max(budget_tokens, DETECTED_TOKENS) / DETECTED_TOKENS) ** -DETECTED_POWER)


def _rates(path: str, rate: PartSpec, updates: float) -> Iterator[tuple[str, PartSpec, float]]:
    """The rates that have a peak, with their paths and updates: the rate of the recipe, or those of which it is made."""
    share = rate.arguments.get("at")
    shares = {"first": share, "second": 1 - share} if isinstance(share, float) else {}
    inner = {key: part for key, part in rate.arguments.items() if isinstance(part, PartSpec)}
    for key, part in inner.items():
        yield from _rates(f"{path}.{key}.{part.name}", part, updates * shares.get(key, 1.0))
    if not inner:
        yield path, rate, updates


def _rate(recipe: Recipe, updates: float, batch: int, facts: BudgetFacts) -> Iterator[ChangedValue]:
    for path, rate, run_updates in _rates(f"training.rate.{recipe.training.rate.name}", recipe.training.rate, updates):
        yield from _peak(recipe, path, rate, batch, facts)
        yield from _course(recipe, path, rate, run_updates)


def _peak(recipe: Recipe, path: str, rate: PartSpec, batch: int, facts: BudgetFacts) -> Iterator[ChangedValue]:
    """The peak, by the law of the optimizer and the network."""
    published, (kind, law) = rate.arguments.get("peak"), _law(recipe)
    widest = max(part.arguments.get("width") or 1 for part in _parts(recipe))
    causal = _causal(recipe)
    peak = None if law is None else law.at(widest, causal=causal)
    if law is None or peak is None or published is None:
        return
    network = WORDS[kind] + (", read in one direction" if causal and law.causal != 1.0 else "")
    if "replaced" in _exercises(recipe):
        network += ", replaced tokens are detected"
        usual = published * math.sqrt(batch / recipe.training.batch)  # the published peak for such a batch
        peak = max(peak * _fallen(facts.budget_tokens), min(peak, usual))
    peak *= CONTINUED if facts.continued else 1.0
    optimizer = recipe.training.optimizer.name
    why = f"width {widest}, {network}, {optimizer}" + (", a tenth for a trained network" if facts.continued else "")
    yield ChangedValue(f"{path}.peak", published, _rounded(peak), why)


def _course(recipe: Recipe, path: str, rate: PartSpec, updates: float) -> Iterator[ChangedValue]:
    """The warm-up and the way down."""
    arguments, law = rate.arguments, _law(recipe)[1]
    rate_type, share = class_of("rate", rate.name), None
    if law is not None and law.warmup is not None and "warmup" in arguments and rate_type.free_warmup:
        share = _rounded(min(LONGEST_WARMUP, max(law.warmup, WARMUP_UPDATES / max(updates, 1.0))))
        was = arguments["warmup"] or f"{arguments.get('warmup_steps', 0)} steps"
        if arguments.get("warmup_steps"):
            yield ChangedValue(f"{path}.warmup_steps", arguments["warmup_steps"], 0, "replaced by a fraction, below")
        yield ChangedValue(f"{path}.warmup", was, share, f"{share * updates:,.0f} updates")
    if arguments.get("floor"):
        yield ChangedValue(f"{path}.floor", arguments["floor"], 0.0, "a short run ends best at a rate of zero")
    for argument, (here, why) in rate_type.in_short_runs(share).items():
        yield ChangedValue(f"{path}.{argument}", arguments[argument], here, why)


def _optimizer(recipe: Recipe, updates: float) -> Iterator[ChangedValue]:
    """Adam's second moments must settle within the run."""
    optimizer = recipe.training.optimizer
    betas = optimizer.arguments.get("betas")
    if updates < FEW_UPDATES and betas is not None and betas[1] > BETA:
        path = f"training.optimizer.{optimizer.name}.betas"
        yield ChangedValue(path, list(betas), [betas[0], BETA], "the published average is too long for so few updates")


def _growth_and_mean(recipe: Recipe, updates: float) -> Iterator[ChangedValue]:
    """A fitted batch is small and need not grow; a mean of the weights reaches back over a part of the run (gpt-bert: 1/15.6)."""
    training = recipe.training
    if (growth := training.batch_warmup) is not None and {"start", "end"} <= growth.arguments.keys():
        start, end = growth.arguments["start"], growth.arguments["end"]
        yield ChangedValue(
            f"training.batch_warmup.{growth.name}.start", start, max(start, end), "the fitted batch is small already"
        )
    if training.average is not None:
        decay = training.average["decay"]
        most = round(max(1 - MEANS / max(updates, MEANS), 0.0), 4)
        yield ChangedValue(
            "training.average.decay", decay, min(decay, most), f"the mean reaches back over a {MEANS}th of the run"
        )


def _evaluations(recipe: Recipe, facts: BudgetFacts, length: int) -> Iterator[ChangedValue]:
    """Measure less often if measuring would take too much of a small budget, or if there are hundreds of epochs.

    A forward pass takes a third of the time of a training step. A method that reads these losses gets the maximum number.
    """
    every = recipe.training.evaluate_every
    if isinstance(every, str) or every == 0:
        return
    paid = int(3 * HELD_OUT_SHARE * facts.budget_tokens / (HELD_OUT_ROWS * length))
    times = EVALUATIONS if recipe.follows_losses else min(EVALUATIONS, max(FEWEST_EVALUATIONS, paid))
    if every < 1 / times:
        yield ChangedValue("training.evaluate_every", every, round(1 / times, 4), f"{times} evaluations are enough")


def _dropouts(recipe: Recipe, facts: BudgetFacts) -> Iterator[ChangedValue]:
    read = facts.budget_tokens / max(facts.text_tokens, 1)
    if read >= READ_OFTEN:
        return
    why = f"the budget is {read:.2g} times the text: too few passes to overfit"
    twins = reading_twins(recipe)
    for name, network in recipe.networks.items():
        if name in twins:
            continue
        arguments = network.part.arguments if network.part is not None else {}
        rates = {key: value for key, value in arguments.items() if key == "dropout" or key.endswith("_dropout")}
        several = rates.get("dropout")
        if isinstance(several, Mapping):
            rates |= {"dropout": 0.0, **{f"dropout.{key}": value for key, value in several.items()}}
        for key, rate in sorted(rates.items()):
            if isinstance(rate, float) and rate:
                yield ChangedValue(f"networks.{name}.{key}", rate, 0.0, why)


def _first_weights(recipe: Recipe) -> Iterator[ChangedValue]:
    """Initial weights published for BERT's width, scaled by one over the root of the width, so that outputs keep their size."""
    for name, network in recipe.networks.items():
        arguments = network.part.arguments if network.part is not None else {}
        width = arguments.get("width") or STD_WIDTH
        initial = arguments.get("initial")
        drawn = isinstance(initial, PartSpec) and initial.arguments.get("std") == STD
        if drawn and width < STD_WIDTH:
            here = _rounded(STD * math.sqrt(STD_WIDTH / width))
            yield ChangedValue(f"networks.{name}.initial.std", STD, here, f"{STD} is for a width of {STD_WIDTH}")
        if network.part is not None and (offsets := _offsets(recipe, network.part)):
            why = "randomly drawn heads take long to find the neighbours of a mask"
            yield ChangedValue(f"networks.{name}.initial.offsets", offsets_of(network.part), offsets, why)


def _starts(recipe: Recipe, facts: BudgetFacts) -> Iterator[ChangedValue]:
    """Count so much of a text before training that it takes a small share of a small budget."""
    most = int(_rounded(STARTING * facts.budget_tokens))
    for name, network in recipe.networks.items():
        published = None if network.start is None else network.start.arguments.get("tokens")
        if network.start is not None and published is not None and most < facts.text_tokens:
            why = f"{STARTING} tokens for each of the budget, which takes a few hundredths of its time"
            yield ChangedValue(f"networks.{name}.start.{network.start.name}.tokens", published, min(published, most), why)


def _offsets(recipe: Recipe, part: PartSpec) -> list[int]:
    """The offsets that the heads of a network begin at: those of the recipe; else `OFFSETS`, if its positions are learned, every
    token sees the whole row and hidden ones have neighbours. Others learn no faster with offsets (reproductions/budgets.md)."""
    learned, initial = learned_positions(part), part.arguments.get("initial")
    drawn = isinstance(initial, PartSpec) and "offsets" in parameters(builder_of("initial", initial.name))
    bidirectional = all(entry.order == "open" for entry in recipe.entries.values())
    edits = [edit.part for entry in recipe.entries.values() for edit in entry.exercise]
    runs = any(edit.arguments.get("unit") in RUNS for edit in edits)
    shared = (part.arguments.get("attention") or {}).get("key_value_heads")
    fits = class_of("network", part.name).fits_offsets and learned and drawn and bidirectional and not runs and not shared
    return offsets_of(part) or (OFFSETS[: part.arguments.get("heads") or 1] if fits else [])  # within the first layer


def _parts(recipe: Recipe) -> list[PartSpec]:
    return [network.part for network in recipe.networks.values() if network.part is not None]


def _rounded(value: float) -> float:
    """Rounded to two significant digits; more would be noise."""
    return float(f"{value:.1e}")


def short(number: float) -> str:
    """A number to three significant figures, and a unit.

    >>> short(12_345_678)
    '12.3 M'
    """
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"
