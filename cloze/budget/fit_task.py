"""Fit the recipe of a task to a checkpoint and to its labelled rows, as `fit.py` fits a pre-training recipe to a budget.

Each function below is one law; the table in reproductions/budgets.md (Fine-tuning) lists what it says and why, with the evidence
for the constants. Rows get the length that nearly all of them need (`fit_length.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from cloze.budget.facts import ChangedValue, as_integer
from cloze.budget.row_counts import RowCounts
from cloze.changes import Shape
from cloze.changes.mean_layer import sees_alike
from cloze.checkpoint.build import build_part, plain_arguments
from cloze.checkpoint.several import START
from cloze.errors import CheckpointError
from cloze.recipe.changes import type_of
from cloze.recipe.parts import class_of, names
from cloze.recipe.recipe import PartSpec, Recipe
from cloze.recipe.stages import stages_with_prefix

SHARE, USUAL = 0.6, 5e-5  # share of the peak rate of pre-training; the published peak that it is for
DETECTED = 1.4  # the share for ELECTRA, whose authors tune the base model at 1e-4 and 32 rows (pre-trained at 2e-4 and 256)
DETECTED_NARROW = 2.8  # the same for networks below GRADUAL_WIDTH, whose peak the fit of pre-training lowers (`peaks.py`)
WIDTH = 768  # the width that the peaks of task recipes are for
UPDATES, MOST_EPOCHS = 400, 20
UPDATES_PER_CLASS, MOST_CLASS_EPOCHS = 8, 30
FEW, SMALL_BATCH, LEAST_BATCH = 1000, 16, 4  # rows below which the batch is small: an eighth of them, within these two
GRADUAL_WIDTH, AT_ONCE = 400, 0.001  # ULMFiT's width, below which layers are unfrozen after this share of the run
MANY_TEXTS = 100_000  # texts from which the published epochs and rate of a classifier of word vectors are enough
TEXT_STEPS, MOST_TEXT_EPOCHS, TEXT_PEAK = 35_000, 100, 0.5  # its steps, its epochs and its rate below that number
MEAN_LAYER, MEAN_ABOVE = PartSpec("change", "mean_layer", {}), PartSpec("change", "mean_layer", {"place": "above"})


class TaskFacts(NamedTuple):
    """The facts that a task recipe is fitted to.

    The `row_counts` of every source (None: not counted), the `width` of the network, and the peak rate and the batch
    of its training. `tuned`: the checkpoint has already been fine-tuned on a task; `detects`: it was trained to detect the tokens
    that another network replaced; `means`: it is a sentence encoder, which was trained for the mean of its tokens. `random`: the
    network starts at random instead.
    """

    row_counts: Mapping[str, RowCounts] | None
    width: int
    peak: float | None = None
    batch: int | None = None
    tuned: bool = False
    detects: bool = False
    means: bool = False
    random: bool = False

    @property
    def short(self) -> bool:
        """Whether it is a narrow network that cloze has trained, and so for a short time."""
        return self.peak is not None and not self.tuned and self.width < GRADUAL_WIDTH

    def rows(self, recipe: Recipe) -> int | None:
        """The labelled rows of a recipe's sources; None: not counted."""
        row_counts = self.row_counts
        return None if row_counts is None else sum(row_counts[name].rows for name in recipe.sources if name in row_counts)


def facts_of(
    recipe: Mapping[str, Any] | None, *, row_counts: Mapping[str, RowCounts] | None, width: int, means: bool = False,
    random: bool = False,
) -> TaskFacts:
    """The facts about a checkpoint, from the canonical recipe of its run (None: there is none), of stages from the last."""
    facts = TaskFacts(row_counts, width, means=means, random=random)
    if recipe is not None and recipe.get("stages"):
        recipe = {**recipe, **list(recipe["stages"].values())[-1]}
    training = (recipe or {}).get("training", {})
    optimizers, rates = training.get("optimizer", {}), training.get("rate", {})
    peak = next((arguments.get("peak") for arguments in rates.values() if isinstance(arguments, Mapping)), None)
    if recipe is None or not all(_family(name) == "adam" for name in optimizers) or not isinstance(peak, int | float):
        return facts
    return facts._replace(
        peak=float(peak), batch=int(training["batch"]), tuned=recipe.get("task") is not None,
        detects=detects(recipe),
    )


def detects(recipe: Mapping[str, Any]) -> bool:
    """Whether a canonical recipe trains a network on what another network wrote, to detect the tokens that it replaced."""
    sources = [source for pass_ in recipe.get("passes") or () for source in (pass_.get("take") or {}).items()]
    rewriters = {name for name, origin in sources if isinstance(origin, Mapping)} & set(names("rewriter"))
    return any(class_of("rewriter", name).replaces for name in rewriters)


def _family(optimizer: str) -> str | None:
    """The family of an optimizer; None for one of a file that is not imported."""
    return class_of("optimizer", optimizer).family if optimizer in names("optimizer") else None


def fit_task(recipe: Recipe, facts: TaskFacts, *, fixed_paths: Collection[str] = ()) -> list[ChangedValue]:
    """The changes that fit a task recipe, stage by stage; values only, so that `--set` of every change gives the same run.

    The values at `fixed_paths` stay, and the others are fitted to them. A recipe that freezes or unfreezes layers, in any of
    its stages, keeps its rates and epochs: those of its stages are chosen for each other.
    """
    frozen = any(stage.exported.train != "all" for _, stage in stages_with_prefix(recipe))
    changes = [
        change for at, stage in stages_with_prefix(recipe)
        for change in (_unfrozen(stage, facts, at) if frozen else _changes(stage, facts, at, fixed_paths))
    ]
    return [change for change in changes if change.published != change.fitted and change.path not in fixed_paths]


def laws_of_task(recipe: Recipe, *, detecting: bool = False) -> list[str]:
    """What the laws make of a task recipe for two sets of rows: versions of cloze that agree on it fit its runs alike.

    `detecting`: for a checkpoint that detects replaced tokens. The last item names what depends on the checkpoint.
    """
    facts = TaskFacts(None, WIDTH // 4, peak=1e-3, batch=32, detects=detecting)
    names = [name for _, stage in stages_with_prefix(recipe) for name in stage.sources]
    starts = ["new_heads=fitted", f"change={MEAN_LAYER.name}", f"change={MEAN_ABOVE.name}=above"] if _decided(recipe) else []
    return [
        change.override for counts in (RowCounts(200, 2), RowCounts(2000, 100))
        for change in fit_task(recipe, facts._replace(row_counts=dict.fromkeys(names, counts)))
    ] + starts  # fmt: skip


def fit_texts(recipe: Recipe, row_counts: Mapping[str, RowCounts]) -> list[ChangedValue]:
    """The changes that fit a recipe that takes a step of plain descent for every text (`divide: nothing`) to their number."""
    training = recipe.training
    texts = sum(row_counts[name].rows for name in recipe.sources if name in row_counts)
    if training.divide != "nothing" or not training.epochs or not 0 < texts < MANY_TEXTS or "peak" not in training.rate.arguments:
        return []
    epochs = min(MOST_TEXT_EPOCHS, max(math.ceil(training.epochs), math.ceil(TEXT_STEPS / texts)))
    changes = [
        ChangedValue("training.epochs", as_integer(training.epochs), epochs, f"{epochs * texts:,} steps, one for each text"),
        ChangedValue(f"training.rate.{training.rate.name}.peak", float(training.rate.arguments["peak"]), TEXT_PEAK,
               f"{texts:,} texts: the published rate hardly moves the words of so few"),
    ]  # fmt: skip
    return [change for change in changes if change.published != change.fitted]


def _changes(recipe: Recipe, facts: TaskFacts, at: str, fixed_paths: Collection[str]) -> Iterator[ChangedValue]:
    training, batch = recipe.training, recipe.training.batch
    rows = facts.rows(recipe)
    learns_more = facts.random or (facts.short and rows is not None and rows >= FEW)
    if recipe.exported.origin == START and not learns_more and _fittable(recipe):
        why = "new heads start from what a linear model says of the frozen network"
        yield ChangedValue(f"{at}training.new_heads", training.new_heads, "fitted", why)
    elif recipe.exported.origin == START and _maps_first(recipe):
        why = "a first map that takes over nothing would hardly tell the rows apart"
        yield ChangedValue(f"{at}training.new_heads", training.new_heads, "scaled", why)
    if "peak" not in training.rate.arguments:
        return
    if facts.row_counts is not None and rows is not None:
        classes = max((facts.row_counts[name].classes for name in recipe.sources if name in facts.row_counts), default=0)
        small = min(batch, SMALL_BATCH, max(LEAST_BATCH, rows // 8))
        if rows < FEW and small < batch and f"{at}training.batch" not in fixed_paths:
            batch = small
            yield ChangedValue(f"{at}training.batch", training.batch, batch, f"{rows:,} rows: smaller batches, more updates")
        yield from _epochs(recipe, math.ceil(rows / batch), 0 if facts.means else classes, at, fixed_paths)
    if recipe.exported.origin is None:
        return  # a network that starts at random has the published rate
    peak = _peak(recipe, facts, batch, at)
    yield peak
    faster = training.layerwise_rates
    argument = None if faster is None else class_of("layerwise", faster.name).times_argument
    times = 0.0 if faster is None or argument is None else float(faster.arguments[argument])
    if faster is not None and times and peak.path not in fixed_paths:  # whatever the rate of the network
        here = max(1.0, float(f"{times * peak.published / peak.fitted:.2g}"))
        path = f"{at}training.layerwise_rates.{faster.name}.{argument}"
        yield ChangedValue(path, as_integer(times), as_integer(here), "new layers keep their rate")


def fit_changes(open_recipe: Recipe, recipe: Recipe, facts: TaskFacts) -> list[ChangedValue]:
    """The changes of the network, as `--change` takes them, that fit a task recipe to a checkpoint.

    A network that a short training has taught gets a `mean_layer`, and a sentence encoder one above its own layers, if all heads
    of the recipe read the summary token of a single text; the mean of two texts would mix what is to be compared. `open_recipe`
    is the recipe before the checkpoint has decided its objectives: a head whose `pool` is set there keeps reading that.
    """
    if not _mean_helps(open_recipe, recipe, facts):
        return []
    part = recipe.exported.part
    assert part is not None  # it comes from a checkpoint
    change, here = (MEAN_ABOVE, f"{MEAN_ABOVE.name}=above") if facts.means else (MEAN_LAYER, MEAN_LAYER.name)
    try:
        build_part(change).shape(Shape("", part.name, plain_arguments(part.arguments)))
    except CheckpointError:
        return []
    return [ChangedValue("change", "none", here, _why_mean(facts))]


def fit_pools(open_recipe: Recipe, recipe: Recipe, facts: TaskFacts) -> list[ChangedValue]:
    """The values by which heads read the mean of the tokens themselves, where `fit_changes` would choose a `mean_layer` but the
    positions of the network weigh tokens by their distance (MPNet)."""
    part = recipe.exported.part
    passes = [pass_ for entry in open_recipe.entries.values() for pass_ in entry.passes]
    if part is None or len(passes) != 1 or not _mean_helps(open_recipe, recipe, facts):
        return []
    if sees_alike(part.name, plain_arguments(part.arguments)):
        return []
    heads = range(len(_objectives(open_recipe)))
    return [ChangedValue(f"objectives[{number}].pool", "auto", "mean", _why_mean(facts)) for number in heads]


def _mean_helps(open_recipe: Recipe, recipe: Recipe, facts: TaskFacts) -> bool:
    """Whether all heads read the summary token of single texts by the checkpoint's choice, and the mean would say more."""
    network = recipe.exported
    alone = len(recipe.networks) == 1 and not recipe.stages and not network.change and network.train == "all"
    single = not any(plain_arguments(source.arguments).get("text_b") for source in recipe.sources.values())
    both_ways = all(entry.order == "open" for entry in recipe.entries.values())
    if not (facts.short or facts.means) or not alone or not single or not both_ways or network.origin != START:
        return False
    return _decided(open_recipe) and _summarised(recipe)


def _why_mean(facts: TaskFacts) -> str:
    if facts.means:
        return "a sentence encoder: it was trained for the mean of its tokens"
    return f"width {facts.width}, below {GRADUAL_WIDTH}: the mean of its tokens says more than its summary token"


def _objectives(recipe: Recipe) -> list[Mapping[str, Any]]:
    """The arguments of every objective."""
    return [plain_arguments(spec.part.arguments) for entry in recipe.entries.values() for _, spec in entry.objectives()]


def _decided(recipe: Recipe) -> bool:
    """Whether the checkpoint decides how every head of a recipe reads a text."""
    return all(arguments.get("pool") == "auto" for arguments in _objectives(recipe))


def _summarised(recipe: Recipe) -> bool:
    """Whether every head of a recipe reads the summary token."""
    return all(arguments.get("pool") is True or arguments.get("reading") == "summary" for arguments in _objectives(recipe))


def _fittable(recipe: Recipe) -> bool:
    """Whether every head of a recipe can be fitted to the states of the frozen network."""
    specs = [spec for entry in recipe.entries.values() for _, spec in entry.objectives()]
    classes = [class_of("objective", spec.part.name) for spec in specs]
    return any(head.fittable for head in classes) and all(head.fittable or head.of_tokens for head in classes)


def _maps_first(recipe: Recipe) -> bool:
    """Whether some head has a dense map and a nonlinearity, with no norm between these and the classes."""
    def maps(arguments: Mapping[str, Any]) -> bool:
        transform = arguments.get("transform")
        normed = isinstance(transform, Mapping) and any(inner.get("norm_epsilon") for inner in transform.values())
        return arguments.get("pool") is True or (transform is not None and not normed)

    return any(maps(arguments) for arguments in _objectives(recipe))


def _unfrozen(recipe: Recipe, facts: TaskFacts, at: str) -> Iterator[ChangedValue]:
    """For a narrow network, train all layers from the beginning and at one rate, where a recipe unfreezes one after another."""
    train, rates = recipe.exported.train, recipe.training.layerwise_rates
    if not isinstance(train, PartSpec) or rates is None or facts.width >= GRADUAL_WIDTH:
        return
    opens, divisor = class_of("unfreezing", train.name).opens, class_of("layerwise", rates.name).divisor_argument
    if not opens or divisor is None or train.arguments["of"] != "budget":
        return
    every, by = f"{at}network.train.{train.name}.every", f"{at}training.layerwise_rates.{rates.name}.{divisor}"
    why = f"width {facts.width}, below {GRADUAL_WIDTH}:"
    yield ChangedValue(every, float(train.arguments["every"]), AT_ONCE, f"{why} all layers learn from the beginning")
    yield ChangedValue(by, float(rates.arguments[divisor]), 1.0, f"{why} all layers learn at one rate")


def _epochs(recipe: Recipe, per_epoch: int, classes: int, at: str, fixed_paths: Collection[str]) -> Iterator[ChangedValue]:
    published = recipe.training.epochs
    if published is None or not per_epoch:
        return
    path = f"{at}training.epochs"
    enough = min(MOST_EPOCHS, math.ceil(UPDATES / per_epoch))
    for_classes = min(MOST_CLASS_EPOCHS, math.ceil(UPDATES_PER_CLASS * classes / per_epoch))
    epochs = published if path in fixed_paths else max(published, enough, for_classes)
    many = f" for {classes} classes" if epochs == for_classes > enough else ""
    yield ChangedValue(path, as_integer(published), as_integer(epochs), f"{epochs * per_epoch:,.0f} updates{many}")
    if recipe.task is not None and recipe.task.patience:
        patience = max(recipe.task.patience, int(epochs) // 3)
        yield ChangedValue(f"{at}task.patience", recipe.task.patience, patience, "in proportion to the epochs")


def _peak(recipe: Recipe, facts: TaskFacts, batch: int, at: str) -> ChangedValue:
    published = float(recipe.training.rate.arguments["peak"])
    if facts.peak is not None and facts.batch is not None:
        again = facts.tuned or any(type_of(change.name).continues for change in recipe.exported.change)
        detected = DETECTED_NARROW if facts.width < GRADUAL_WIDTH else DETECTED
        share = 1.0 if again else (detected if facts.detects else SHARE) * published / USUAL
        scale = share * math.sqrt(batch / facts.batch)
        peak = facts.peak * (scale if again else min(scale, max(share, 1.0)))
        why = f"the checkpoint was trained at {facts.peak:g} in batches of {facts.batch}"
    else:
        peak, why = published * WIDTH / facts.width, f"width {facts.width}; the published peak is for {WIDTH}"
    times, name = max(((type_of(change.name).rate, change.name) for change in recipe.exported.change), default=(1.0, ""))
    if times != 1.0:
        peak, why = peak * times, f"{why}; {times:g} times that for {name}"
    return ChangedValue(f"{at}training.rate.{recipe.training.rate.name}.peak", published, float(f"{peak:.2g}"), why)
