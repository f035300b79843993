"""A recipe: a tree of frozen dataclasses. YAML is only one way to write it.

Every `arguments` mapping is complete: defaults are filled in, values are checked against the builder's signature.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from cloze.bounds import BelowOne, Count, Duration, Natural, Positive
from cloze.document import Where
from cloze.errors import RecipeError
from cloze.reading import FROM_CHECKPOINT, Reading
from cloze.recipe.canonical import to_json
from cloze.recipe.parts import builder_of, class_of
from cloze.registry import Part
from cloze.training.schedule.rates import follows_losses

LANES = 64  # of a store of several shards
Mixing = Literal["step", "row", "all"]


@dataclass(frozen=True)
class PartSpec:
    """A part by kind and name, its arguments (nested parts are `PartSpec`s), those that the recipe reads, and where it stands."""

    kind: str
    name: str
    arguments: Mapping[str, Any]
    where: Where = field(default=Where("<data>"), compare=False, repr=False)
    path: str = field(default="", compare=False, repr=False)
    reserved: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class WeightsAverage:
    """The exponential mean of all weights that a run measures and exports. The signature is the schema of `training.average`."""

    decay: BelowOne


if TYPE_CHECKING:
    OptimizerPart = PartSpec
    RatePart = PartSpec
    LayerwisePart = PartSpec | None
    AverageSection = Mapping[str, float] | None
    SchedulePart = PartSpec | None
else:  # what the schema of `training:` sees
    OptimizerPart = Part["optimizer"]
    RatePart = Part["rate"]
    LayerwisePart = Part["layerwise"]
    AverageSection = WeightsAverage | None
    SchedulePart = Part["schedule"]


@dataclass(frozen=True)
class TextSpec:
    """How strings become tokens: switches of the normaliser, the tokenizer, what the words are and what is annotated.

    `words` is a segmenter (None: words end at white space and punctuation). It makes the tokens of a tokenizer of whole words;
    for others it marks where words start. `annotate`: annotators by the name of their layer. `line_ends`: lines keep their ends.
    """

    normalise: Mapping[str, Any]
    tokenizer: PartSpec
    words: PartSpec | None = None
    annotate: Mapping[str, PartSpec] = field(default_factory=dict)
    line_ends: bool = False


@dataclass(frozen=True)
class AverageSpec:
    """The network that another averages, with this `decay` or over the `last` updates. The schema of `average:`."""

    of: str
    decay: BelowOne | None = None
    last: Count | None = None


@dataclass(frozen=True)
class NetworkSpec:
    """A network: its part, what it comes `from` (`origin`: an earlier stage or a bound checkpoint), its changes, what is trained.

    `train` is `all`, `none`, names of depth groups, or a way to unfreeze them. `architecture` is the one of transformers that its
    folder is written for where several fit, by its `model_type`. A network that is the `average` of another has the part and
    the changes of that one. `start` is what the rows of its token table start from (None: as drawn).
    """

    name: str
    part: PartSpec | None
    origin: str | None = None
    change: tuple[PartSpec, ...] = ()
    train: str | tuple[str | int, ...] | PartSpec = "all"
    architecture: str | None = None
    average: AverageSpec | None = None
    start: PartSpec | None = None


@dataclass(frozen=True)
class EditSpec:
    """An edit and the view it works on."""

    part: PartSpec
    view: str = "main"


@dataclass(frozen=True)
class RewriterSpec:
    """A part that turns earlier states into fields of a pass; `read` binds its readings, "" means the first of them."""

    part: PartSpec
    read: Mapping[str, str]


@dataclass(frozen=True)
class ObjectiveSpec:
    """An objective of a pass.

    `read` binds readings to states (the key "" means the first reading); unbound readings are states of that name in the
    pass itself. `head` names parameters shared with other objectives; None: one head for each network, named after the
    part. `name` is unique within the entry: it names the loss in the log.
    """

    part: PartSpec
    name: str
    read: Mapping[str, str] = field(default_factory=dict)
    head: str | None = None
    weight: Any = 1.0

    @property
    def set(self) -> str | None:
        """The set of targets it takes, if the builder has such an argument."""
        return self.part.arguments.get("set")

    @property
    def state(self) -> str:
        """The name under which its scores are a state of the pass."""
        return self.head or self.part.name


@dataclass(frozen=True)
class PassSpec:
    """One network run inside a step. `take` maps fields to `pass.state` or `view.field`, or rewriters by their name."""

    name: str
    network: str
    view: str = "main"
    take: Mapping[str, str | RewriterSpec] = field(default_factory=dict)
    objectives: tuple[ObjectiveSpec, ...] = ()
    grad: bool = True


@dataclass(frozen=True)
class EntryTaskSpec:
    """How one of several tasks is measured. The signature is the schema of an entry's `task:`.

    `type` is a registered kind of task. `metric` is the metric that selects a checkpoint (None: the first of the task).
    """

    type: str
    metric: str | None = None


@dataclass(frozen=True)
class EntrySpec:
    """One entry of the mixture: a source, who sees whom (a name, or a part that makes it row by row), an exercise, passes.

    `odds` is its share of the steps; `by_size`: in proportion to its corpus, or to a power of that, `{by_size: 0.5}`. `task` is
    what it is measured by, of several tasks.
    """

    name: str
    source: str
    order: str | PartSpec
    exercise: tuple[EditSpec, ...]
    passes: tuple[PassSpec, ...]
    odds: float | Literal["by_size"] | Mapping[str, float] = 1.0
    task: EntryTaskSpec | None = None

    def objectives(self) -> Iterator[tuple[PassSpec, ObjectiveSpec]]:
        """Every objective with its pass."""
        return ((pass_, objective) for pass_ in self.passes for objective in pass_.objectives)


@dataclass(frozen=True)
class Phase:
    """A stretch of training (`steps`, `epochs`, or a `share` of the budget) and the value paths it sets."""

    set: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    share: float | None = None
    epochs: float | None = None


@dataclass(frozen=True)
class TrainingSpec:
    """How the recipe is trained. The signature is the schema of `training:`.

    `batch` counts examples per update over all ranks, `batch_warmup` schedules the fraction that a step uses, and `micro_batch`
    is what one device holds. Rows are compared within a `group`, which is then the micro-batch, or within the whole step.
    `steps`, `epochs` or `tokens` is the published budget, `evaluate_every` a share of it or every `epoch`, `checkpoint_every` in
    steps or a duration. `divide` says what a loss sum is divided by. `new_heads` keep random weights, have their first map scaled
    by the states of the first rows, or are fitted to the frozen states. A compiled `engine` trains where one fits, always or
    never. Shards are read in `lanes`. A mean of the weights (`average`) or the best checkpoint (`keep_best`) is exported.
    """

    optimizer: OptimizerPart
    rate: RatePart
    batch: Count
    batch_warmup: SchedulePart = None
    micro_batch: Count | None = None
    group: Count | None = None
    steps: Count | None = None
    epochs: Positive | None = None
    tokens: Count | None = None
    clip: Positive | None = None
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compile: Literal["auto"] | bool = "auto"
    layerwise_rates: LayerwisePart = None
    divide: Literal["targets", "rows", "nothing"] = "targets"
    new_heads: Literal["drawn", "scaled", "fitted"] = "drawn"
    engine: Literal["auto", "loop", "compiled"] = "auto"
    packing: bool = False
    lanes: Count = LANES
    average: AverageSection = None
    keep_best: str | None = None
    workers: Natural = 0
    held_out: BelowOne = 0.01
    evaluate_every: BelowOne | Literal["epoch"] = 0.1
    checkpoint_every: Count | Duration | None = None
    keep: Natural = 2
    keep_steps: tuple[int, ...] = ()
    log_every: Count | None = None


@dataclass(frozen=True)
class TaskSpec:
    """How a recipe on labelled text is measured. The signature is the schema of `task:`.

    `type` is a registered kind of task. `metric` is one of its metrics (None: the first); it is measured on all examples of the
    dev set at every evaluation. If the entries of a mixture have a `task` each, those state type and metric, and the mean of
    their metrics counts. `keep`: the result is the `best` of the evaluated checkpoints, or the `last`. The run ends after
    `patience` evaluations without improvement (0: never), once the metric is better than that of a constant answer. Texts are
    generated with `beams` beams, where the log-probability of a finished text is divided by its length to the power
    `length_penalty`; without `beams`, greedily.
    """

    type: str | None = None
    metric: str | None = None
    keep: Literal["best", "last"] = "best"
    patience: Natural = 2
    beams: Count | None = None
    length_penalty: float | None = None


#: Optional keys of `training`: they are in the canonical form, and so in the hash, only where they differ from these values.
_OPTIONAL: Mapping[str, Any] = {"lanes": LANES, "batch_warmup": None, "average": None, "keep_best": None, "new_heads": "drawn"}
_OPTIONAL_OF_OBJECTIVES = (("class_weights", None),)  # the same of the arguments of objectives
# Not part of the hash: what changes no weight (as `evaluate_every` may: see `_identity`), or belongs to the run's record.
RECORD_ONLY = frozenset(
    {"steps", "epochs", "tokens", "workers", "evaluate_every", "checkpoint_every", "keep", "keep_steps", "log_every"}
)


@dataclass(frozen=True)
class Stage:
    """One of several runs that follow one another: its recipe, and its share of a budget for all stages."""

    name: str
    recipe: Recipe
    share: float


@dataclass(frozen=True)
class Recipe:
    """A recipe with valid values and references (`check_recipe` asks if its parts fit). With `stages`, it is the last one."""

    name: str
    paper: str | None
    notes: str | None
    texts: Mapping[str, TextSpec]
    sources: Mapping[str, PartSpec]
    tables: Mapping[str, PartSpec]
    networks: Mapping[str, NetworkSpec]
    tie: tuple[tuple[str, ...], ...]
    tie_detached: tuple[tuple[str, ...], ...]
    reading: Reading
    entries: Mapping[str, EntrySpec]
    mixing: Mixing
    schedule: tuple[Phase, ...]
    training: TrainingSpec
    export: str
    stages: tuple[Stage, ...] = ()
    task: TaskSpec | None = None

    @property
    def exported(self) -> NetworkSpec:
        """The network whose weights and heads are at the top of the run folder."""
        return self.networks[self.export]

    @property
    def tasks(self) -> Mapping[str, EntryTaskSpec]:
        """What each entry with a `task` of its own is measured by; empty where the recipe has one task or none."""
        return {name: entry.task for name, entry in self.entries.items() if entry.task is not None}

    @property
    def length(self) -> int | None:
        """Tokens per example that the networks see (the longest of the sources'); in a phase, see `phase_recipes`."""
        lengths = [source.arguments.get("length") for source in self.sources.values()]
        return max((length for length in lengths if length is not None), default=None)

    @property
    def is_complete(self) -> bool:
        """Whether the recipe is complete. One that starts from a checkpoint must first be completed by it (`complete.py`)."""
        return self.reading.single != FROM_CHECKPOINT and all(network.part is not None for network in self.networks.values())

    def canonical(self) -> dict[str, Any]:
        """The full form with every default filled in, as plain data that is itself a legal recipe; keys in a fixed order."""
        data: dict[str, Any] = {"name": self.name, "paper": self.paper, "notes": self.notes}
        if self.stages:
            return data | {"stages": {stage.name: _stage(stage, stage.recipe.canonical()) for stage in self.stages}}
        if self.texts:
            data["texts"] = {name: _text(text) for name, text in self.texts.items()}
        data["sources"] = as_plain_data(self.sources)
        if self.tables:
            data["tables"] = as_plain_data(self.tables)
        data["networks"] = {name: _network(network) for name, network in self.networks.items()}
        data["tie"] = as_plain_data(self.tie)
        data |= {"tie_detached": as_plain_data(self.tie_detached)} if self.tie_detached else {}
        if self.reading.single != FROM_CHECKPOINT:
            reading = as_plain_data(vars(self.reading))
            data["reading"] = {key: value for key, value in reading.items() if key != "max_length" or value is not None}
        entries = {name: _entry(entry) for name, entry in self.entries.items()}
        if list(entries) == ["main"] and len(self.sources) == 1 and not self.tasks:
            data |= {key: entries["main"][key] for key in ("order", "exercise", "passes")}
        else:
            data |= {"mixture": entries, "mixing": self.mixing}
        if not self.is_complete and data.get("order") == "open":
            del data["order"]  # it is the checkpoint's
        phases = as_plain_data([vars(phase) for phase in self.schedule])
        data["schedule"] = [{key: value for key, value in phase.items() if value is not None} for phase in phases]
        training = as_plain_data(vars(self.training))
        data["training"] = {key: value for key, value in training.items() if key not in _OPTIONAL or value != _OPTIONAL[key]}
        task = {} if self.task is None else {"task": as_plain_data(vars(self.task))}
        return {**data, **task, "export": self.export}

    @property
    def hash(self) -> str:
        """sha256 of what decides the result: the canonical form without name, paper, notes, budget and book-keeping."""
        return sha256(to_json(self._identity()).encode()).hexdigest()

    def _identity(self) -> dict[str, Any]:
        """What is hashed. Warm-up steps are a fraction of the published steps. `evaluate_every` is in it only if the optimizer
        (`follows_losses`) or the rate (`observe`) reads held-out losses, or they select the checkpoint (`task`, `keep_best`)."""
        if self.stages:
            return {"stages": {stage.name: _stage(stage, stage.recipe._identity()) for stage in self.stages}}
        data = {key: value for key, value in self.canonical().items() if key not in ("name", "paper", "notes")}
        selects = self.task is not None or self.training.keep_best is not None
        aside = RECORD_ONLY - {"evaluate_every"} if self.follows_losses or selects else RECORD_ONLY
        inner = [value.arguments for value in self.training.rate.arguments.values() if isinstance(value, PartSpec)]
        aside -= {"steps"} if any(arguments.get("warmup_steps") for arguments in inner) else set()
        training = {key: value for key, value in data["training"].items() if key not in aside}
        name, arguments = next(iter(training["rate"].items()))
        if self.training.steps and arguments.get("warmup_steps"):
            arguments = {**arguments, "warmup_steps": None, "warmup": arguments["warmup_steps"] / self.training.steps}
            training["rate"] = {name: arguments}
        return {**data, "training": training}

    @property
    def follows_losses(self) -> bool:
        """Whether held-out losses change the training itself: the optimizer or the rate reads them."""
        optimizer, rate = self.training.optimizer, self.training.rate
        follows = class_of(optimizer.kind, optimizer.name).follows_losses
        return bool(follows or follows_losses(builder_of(rate.kind, rate.name)))

    @property
    def mixes_rows(self) -> bool:
        """Whether the rows of one batch come from several entries."""
        return self.mixing == "row" and len(self.entries) > 1

    @property
    def step_entries(self) -> Mapping[str, EntrySpec]:
        """The entries from which a step takes its batch: if rows are mixed, one with the objectives of all, which have the same
        passes. An objective is computed on the rows that have targets for it."""
        if not self.mixes_rows:
            return self.entries
        first = next(iter(self.entries.values()))
        passes = []
        for index, pass_ in enumerate(first.passes):
            united: dict[str, ObjectiveSpec] = {}
            for entry in self.entries.values():
                united |= {spec.name: spec for spec in entry.passes[index].objectives if spec.name not in united}
            passes.append(replace(pass_, objectives=tuple(united.values())))
        order = first.order if len({entry.order for entry in self.entries.values()}) == 1 else "mixed"
        return {"main": replace(first, name="main", passes=tuple(passes), order=order)}

    def _objectives(self) -> Iterator[tuple[PassSpec, ObjectiveSpec]]:
        return (pair for entry in self.entries.values() for pair in entry.objectives())

    def head_name(self, pass_: PassSpec, objective: ObjectiveSpec) -> str:
        """The unique name of an objective's parameters: its `head`, else its part, behind its network if several have it."""
        if objective.head is not None:
            return objective.head
        part = objective.part.name
        owners = {owner.network for owner, spec in self._objectives() if spec.head is None and spec.part.name == part}
        return part if len(owners) == 1 else f"{pass_.network}.{part}"

    def head_key(self, pass_: PassSpec, objective: ObjectiveSpec) -> str:
        """The key of an objective's parameters in `StepModule.objectives`; a module's name cannot hold a dot."""
        return self.head_name(pass_, objective).replace(".", ":")

    def objective_key(self, pass_: PassSpec, objective: ObjectiveSpec) -> str:
        """The key of an objective in `StepModule.objectives`: its head, and its set if an earlier objective uses the head."""
        key = self.head_key(pass_, objective)
        first = next(spec for owner, spec in self._objectives() if self.head_key(owner, spec) == key)
        return key if first.set == objective.set else f"{key}:{objective.set}"


def parts_in(value: Any) -> Iterator[PartSpec]:
    """Every part inside a recipe, nested ones too."""
    if isinstance(value, PartSpec):
        yield value
    inner = vars(value) if dataclasses.is_dataclass(value) else value
    for child in inner.values() if isinstance(inner, Mapping) else inner if isinstance(inner, (list, tuple)) else ():
        yield from parts_in(child)


# ---- the canonical form ------------------------------------------------------------------------------------------------


def _stage(stage: Stage, form: dict[str, Any]) -> dict[str, Any]:
    return {"share": stage.share, **{key: value for key, value in form.items() if key not in ("name", "paper", "notes")}}


def _text(text: TextSpec) -> dict[str, Any]:
    optional = {"words": as_plain_data(text.words), "line_ends": text.line_ends, "annotate": as_plain_data(text.annotate)}
    chosen = {key: value for key, value in optional.items() if value}
    return {"normalise": as_plain_data(text.normalise), "tokenizer": _part(text.tokenizer), **chosen}


def _part(part: PartSpec, **reserved: Any) -> dict[str, Any]:
    return {part.name: {**as_plain_data(part.arguments), **reserved}}


def _network(network: NetworkSpec) -> dict[str, Any]:
    if network.average is not None:
        return {"average": dataclasses.asdict(network.average)}
    part = {} if network.part is None else _part(network.part)
    settings = {
        "from": network.origin, "change": as_plain_data(network.change) or None, "architecture": network.architecture,
        "start": as_plain_data(network.start),
    }
    return {**part, **{key: value for key, value in settings.items() if value is not None}, "train": as_plain_data(network.train)}


def _entry(entry: EntrySpec) -> dict[str, Any]:
    return {
        "odds": as_plain_data(entry.odds),
        **({} if entry.task is None else {"task": as_plain_data(vars(entry.task))}),
        "source": entry.source,
        "order": as_plain_data(entry.order),
        "exercise": [_part(edit.part, **{"in": edit.view}) for edit in entry.exercise],
        "passes": [_pass(pass_) for pass_ in entry.passes],
    }


def _pass(pass_: PassSpec) -> dict[str, Any]:
    rewriters = {name: taken for name, taken in pass_.take.items() if isinstance(taken, RewriterSpec)}
    fields = {name: {**as_plain_data(spec.part.arguments), "from": _read(spec.read)} for name, spec in rewriters.items()}
    objectives = [_objective(objective) for objective in pass_.objectives]
    return {**vars(pass_), "take": {**pass_.take, **fields}, "objectives": objectives}


def _objective(objective: ObjectiveSpec) -> dict[str, Any]:
    wiring = {"read": _read(objective.read), "head": objective.head, "weight": as_plain_data(objective.weight)}
    arguments = {key: value for key, value in objective.part.arguments.items() if (key, value) not in _OPTIONAL_OF_OBJECTIVES}
    return _part(replace(objective.part, arguments=arguments), **wiring)


def _read(bindings: Mapping[str, str]) -> str | dict[str, str] | None:
    return bindings[""] if set(bindings) == {""} else dict(bindings) or None


def as_plain_data(value: Any) -> Any:
    """A value of a recipe as plain data: mappings, lists, scalars."""
    if isinstance(value, PartSpec):
        return _part(value)
    if isinstance(value, Mapping):
        return {key: as_plain_data(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain_data(inner) for inner in value]
    if value is None or isinstance(value, (bool, int, float, str, set, frozenset)):
        return sorted(value) if isinstance(value, (set, frozenset)) else value
    raise RecipeError(f"a default of type {type(value).__name__} cannot be written in a recipe; make it Given[…].")
