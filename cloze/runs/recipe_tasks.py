"""The tasks of a recipe with a `task:`: the head that solves each, their entries of task.json, and how a run is measured on their
dev rows.

A recipe has one task, or one for each of several entries. A checkpoint is selected by the metric of the one task, or by the mean
of the metrics of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from cloze.checkpoint.annotators import annotators_in, entry_annotations, read_layers
from cloze.checkpoint.build import Loaded, build_part
from cloze.checkpoint.publish import input_edits, reading_edits
from cloze.corpus import RecordStore, Store
from cloze.decoding.pictures import Pictures
from cloze.errors import RecipeError, TaskError
from cloze.exercises.retokenize import OtherReading, reading_of
from cloze.networks.blocks.dropout import name_dropouts
from cloze.reading import Reading
from cloze.recipe.builders import with_label_names
from cloze.recipe.origins import borrowed
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import EntrySpec, EntryTaskSpec, ObjectiveSpec, PartSpec, PassSpec, Recipe
from cloze.recipe.towers import describe_towers, read_heads
from cloze.registry import lookup, parameters
from cloze.tasks import Task
from cloze.tasks.task import chosen_metric, join_examples
from cloze.tasks.task import task as make_task
from cloze.tasks.tuned_folder import FILES
from cloze.text import Tokenizer
from cloze.training.selection import Selection
from cloze.training.step import StepModule

MEAN = "mean"  # the metric of several tasks
ANSWER_FIELDS = ("column/", "numbers/")  # how the names of fields begin of which an edit makes targets


class TaskHead(NamedTuple):
    """A task of a recipe, with the entry, the pass and the objective whose head solves it."""

    spec: EntryTaskSpec
    entry: EntrySpec
    pass_: PassSpec
    objective: ObjectiveSpec

    @property
    def source(self) -> str:
        """The source of its text."""
        return self.entry.source


def task_heads(recipe: Recipe) -> dict[str, TaskHead]:
    """The tasks of a recipe by name: those of its entries, or the only one, which has an empty name.

    A task is solved by the first objective of the exported network that learns a column of its entry's text.
    """
    assert recipe.task is not None
    if recipe.tasks:
        return {
            name: TaskHead(spec, *_answering_objective(recipe, {name: recipe.entries[name]}))
            for name, spec in recipe.tasks.items()
        }
    assert recipe.task.type is not None  # the structure is checked
    return {"": TaskHead(EntryTaskSpec(recipe.task.type, recipe.task.metric), *_answering_objective(recipe, recipe.entries))}


def _answering_objective(recipe: Recipe, entries: Mapping[str, EntrySpec]) -> tuple[EntrySpec, PassSpec, ObjectiveSpec]:
    for entry in entries.values():
        sets = answer_sets(recipe, entry)
        for pass_, objective in entry.objectives():
            is_of_records = class_of("objective", objective.part.name).of_records
            if pass_.network == recipe.export and (objective.set in sets or is_of_records):
                return entry, pass_, objective
    where = "" if not recipe.tasks else f" of {next(iter(entries))!r}"
    raise RecipeError(
        f"{recipe.name}: task{where}: no objective of {recipe.export!r} learns a column of the labelled text.\n"
        "  Add the edit `label: {set: label}` and an objective with the same set."
    )


def answer_sets(recipe: Recipe, entry: EntrySpec) -> set[str]:
    """The sets of targets that come from the answers of an entry's records: those of edits that make targets of an answer
    (`Edit.targets_of_answer`), or all sets if no field holds the answer, as where it is a text."""
    edits = [edit.part for edit in entry.exercise if "set" in edit.part.arguments]
    answer = build_part(recipe.sources[entry.source]).answer
    in_field = answer is None or any(name.startswith(ANSWER_FIELDS) for name in answer.gives)
    return {
        str(edit.arguments["set"]) for edit in edits if class_of("edit", edit.name).targets_of_answer or not in_field
    }


def task_of_head(recipe: Recipe, head: TaskHead, store: Store) -> Task:
    """A task of a recipe, which reads files as its source does. The beam search of the recipe becomes an option of the task."""
    assert isinstance(store, RecordStore)
    return _make_task(recipe, head, store.about["read"], stores_answer=bool(store.columns))


def task_of_recipe(recipe: Recipe) -> Task:
    """The only task of a recipe, which reads files as its source is written to."""
    head = task_heads(recipe)[""]
    source = build_part(recipe.sources[head.source])
    return _make_task(recipe, head, asdict(source.columns), stores_answer=bool(source.answer.columns))


def _make_task(recipe: Recipe, head: TaskHead, read: Mapping[str, Any], *, stores_answer: bool) -> Task:
    """The task of a head, which reads files as `read` says, a `Columns` as plain data.

    Its options are the columns of texts and label and of pictures, and those arguments of the answer that the task takes, too.
    `stores_answer`: the answers are stored values, as classes, numbers and texts are, and come from the column `label`. Where
    the answer is another text of the same row, as in retrieval, there is no such column.
    """
    assert recipe.task is not None
    accepted, answer = parameters(lookup("task", head.spec.type)), recipe.sources[head.source].arguments["answer"]
    names = ("text", "text_b", *(["label"] if stores_answer and "label" in accepted else []))
    options = {name: read[name] for name in names if read[name] is not None}
    if recipe.sources[head.source].arguments.get("items"):
        keys = {name: recipe.sources[head.source].arguments[name] for name in ("picture", "picture_b") if name in accepted}
        options |= {name: column for name, column in keys.items() if column is not None}
    answer_arguments = answer.arguments if isinstance(answer, PartSpec) else {}
    options |= {name: value for name, value in answer_arguments.items() if name in accepted}
    task = make_task(head.spec.type, **options).for_files(
        columns=read["names"], format=read["format"], quoting=read["quoting"]
    )
    return task.with_beam_search(beams=recipe.task.beams, length_penalty=recipe.task.length_penalty)


def task_json_entries(recipe: Recipe, stores: Mapping[str, Store]) -> dict[str, Any]:
    """The contents of `cloze/task.json` that are known before training; several tasks are listed by name."""
    tasks = {name: _describe_task(recipe, head, stores[head.source]) for name, head in task_heads(recipe).items()}
    return {"version": 1, **tasks.get("", {"tasks": tasks})}


def _describe_task(recipe: Recipe, head: TaskHead, store: Store) -> dict[str, Any]:
    assert isinstance(store, RecordStore)  # it has columns
    contents: dict[str, Any] = {"task": head.spec.type, **task_of_head(recipe, head, store).description()}
    contents |= {"head": head.objective.state, **_describe_towers(recipe, head)}
    read = store.about["read"]
    files = {"columns": read["names"], "format": read["format"], "quoting": read["quoting"]}
    options = {name: value for name, value in files.items() if value not in (None, "auto")}
    contents |= {FILES: options} if options else {}
    contents |= {name: recipe.sources[head.source].arguments[name] for name in ("length", "stride")}
    contents |= {} if store.about.get("constant_answer") is None else {"constant_answer": store.about["constant_answer"]}
    contents |= store.about.get("described", {})
    layers = [layer for layer in annotators_in(recipe, head.entry) if layer in store.layers]
    contents |= {"annotated": layers} if layers else {}
    answer = build_part(recipe.sources[head.source]).answer
    answers = answer.description(store.stored, store.classes)
    for name in [name for name, value in answers.items() if isinstance(value, np.ndarray)]:  # tokens become text
        answers[name] = store.tokenizer().decode(answers[name], skip_special=False)
    for edit in head.entry.exercise:
        described_arguments = class_of("edit", edit.part.name).described
        answers |= {name: edit.part.arguments[argument] for argument, name in described_arguments.items()}
    return {**contents, **answers}


def _describe_towers(recipe: Recipe, head: TaskHead) -> dict[str, Any]:
    """The network and the head behind each vector that an objective compares, or that the head of the task reads, by the names of
    its readings; empty if there are none."""
    answers = f"{head.pass_.name}.{head.objective.state}"
    for objective, towers in read_heads(head.entry):
        pairs = {(pass_.network, tower.state) for pass_, tower in towers.values()}
        compares = answers in objective.read.values() and len(pairs) > 1
        if not (compares or objective is head.objective):
            continue
        for pass_, _ in towers.values():
            if pass_.network in borrowed(recipe):
                raise RecipeError(
                    f"{recipe.name}: networks.{pass_.network}: only passes with `grad: false` use it, so no head is kept for "
                    f"it, which the task {head.spec.type} needs.\n"
                    "  Leave `grad: false` out. `train: none` keeps the network as it is."
                )
        return {"towers": describe_towers(recipe, towers)}
    return {}


def entries_of(task_json: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The entries of task.json about one task; those of the only one, which has no name, are at the top."""
    entries: Mapping[str, Any] = task_json["tasks"][name] if name else task_json
    return entries


def with_example_facts(
    recipe: Recipe, task_json: Mapping[str, Any], stores: Mapping[str, Store], dev: Mapping[str, Store],
    max_tokens: Mapping[str, tuple[int, int | None]],
) -> dict[str, Any]:
    """`task_json` with facts about the examples: their number, how many rows are cut, and the dev metrics of the most
    frequent answer. `max_tokens` holds, for every entry, the tokens of text in a row, and in each text if texts are apart."""
    tasks = {}
    for name, head in task_heads(recipe).items():
        entries = entries_of(task_json, name)
        parts = {"train": stores[head.source], "dev": _dev_store(recipe, name, head, dev)}
        record_stores = {part: store for part, store in parts.items() if isinstance(store, RecordStore)}
        task = task_of_head(recipe, head, stores[head.source])
        facts: dict[str, Any] = {
            "examples": {part: store.documents for part, store in record_stores.items()},
            "cut": {  # windows lose nothing, and words are always measured in windows
                part: store.cut(*max_tokens[head.entry.name]) for part, store in record_stores.items()
                if entries["stride"] is None and not (part == "dev" and task.of_words)
            },
        }
        answer, (most, _) = build_part(recipe.sources[head.source]).answer, max_tokens[head.entry.name]
        lost = {part: answer.lost(store.stored, most) for part, store in record_stores.items()}
        if None not in lost.values():  # some rows may lose their targets because they are cut
            facts["lost"] = lost
        if "constant_answer" in entries:
            examples = join_examples([task.read(file) for file in record_stores["dev"].about["files"]])
            constant_answer, labels = entries["constant_answer"], entries.get("labels", ())
            facts["baseline"] = {
                "always": constant_answer, **task.constant_metrics(constant_answer, task.truth(examples, labels), labels)
            }
        tasks[name] = {**entries, **facts}
    return {**task_json, **tasks.get("", {"tasks": tasks})}


def _dev_store(recipe: Recipe, name: str, head: TaskHead, dev: Mapping[str, Store]) -> Store:
    if head.source not in dev:
        raise TaskError(f"{recipe.name}: the task {name or head.spec.type!r} has no dev set: its source is {head.source!r}.")
    return dev[head.source]


def selection_of(
    recipe: Recipe, step: StepModule, tokenizer: Tokenizer, stores: Mapping[str, Store], dev: Mapping[str, Store],
    task_json: Mapping[str, Any], folder: Path, *, tables: Mapping[str, Any] = MappingProxyType({}),
) -> Selection:
    """How a recipe with a `task:` is measured: by the learners that `predict` uses, on all examples of the dev sets.

    With several tasks, the name of each metric begins with that of its task. `mean` is the mean of the selecting metrics; a
    metric of which less is better enters with its sign reversed.
    """
    assert recipe.task is not None
    tasks = task_heads(recipe)
    options: dict[str, Any] = {"best": recipe.task.keep == "best", "patience": recipe.task.patience}
    dev_sets: dict[str, _DevSet] = {}
    selecting: dict[str, tuple[str, bool]] = {}  # the metric, and whether higher is better
    for name, head in tasks.items():
        task = task_of_head(recipe, head, stores[head.source])
        metric = chosen_metric(task, head.spec.metric)
        selecting[name] = metric, task.metrics[metric]
        dev_store = _dev_store(recipe, name, head, dev)
        loaded = as_loaded(recipe, step, tokenizer, head.entry, recipe.export, folder, tables=tables)
        if (
            isinstance(dev_store, RecordStore) and dev_store.items is not None
            and recipe.sources[head.source].arguments.get("items")
        ):
            loaded = replace(loaded, pictures=Pictures.of_store(dev_store.items))
        dev_sets[name] = _DevSet(task, loaded, entries_of(task_json, name), dev_store, recipe.training.batch, metric)
    name_dropouts(step)  # the learners have renamed the dropouts of their parts

    def outputs() -> dict[str, Any]:
        return {name: dev_set.learner.last_outputs for name, dev_set in dev_sets.items()}

    if "" in tasks:
        metric, higher = selecting[""]
        constant_metric = task_json.get("baseline", {}).get(metric)
        options |= {"higher_is_better": higher, "constant_metric": constant_metric, "outputs": outputs}
        return Selection(dev_sets[""], metric, **options)

    def mean(metrics: Mapping[str, Mapping[str, float]]) -> float:
        signed = [metrics[name][metric] * (1 if higher else -1) for name, (metric, higher) in selecting.items()]
        return sum(signed) / len(selecting)

    def measure() -> dict[str, float]:
        metrics = {name: dev_sets[name]() for name in dev_sets}
        flat = {f"{name}/{metric}": value for name, task_metrics in metrics.items() for metric, value in task_metrics.items()}
        return {MEAN: mean(metrics), **flat}

    baselines = {name: entries_of(task_json, name).get("baseline", {}) for name in selecting}
    constant_metric = mean(baselines) if all(metric in baselines[name] for name, (metric, _) in selecting.items()) else None
    return Selection(measure, MEAN, constant_metric=constant_metric, outputs=outputs, **options)


class _DevSet:
    """The dev set of a task: measures the current parameters on all its examples, which are read once. The metrics are the
    selecting `metric`, and all that cost no more."""

    def __init__(
        self, task: Task, loaded: Loaded, task_json: Mapping[str, Any], dev: Store, batch: int, metric: str
    ) -> None:
        assert isinstance(dev, RecordStore)
        self.learner = task.load(loaded, task_json)
        self.task, self.files, self.size, self.metric = task, dev.about["files"], 2 * batch, metric
        self.rows: list[Any] = []

    def __call__(self) -> dict[str, float]:
        if not self.rows:
            for file in self.files:
                self.rows.extend(self.learner.encode_labelled(self.task.read(file)))
        return self.learner.measure(self.rows, self.metric, size=self.size)


def as_loaded(
    recipe: Recipe, step: StepModule, tokenizer: Tokenizer, entry: EntrySpec, name: str, folder: Path, *,
    tables: Mapping[str, Any] = MappingProxyType({}),
) -> Loaded:
    """The network `name` of a step, with the heads of an entry, as if they had been loaded from a folder. `tables` are those of
    `make_tables`."""
    part = recipe.networks[name].part
    assert part is not None  # the recipe is built
    network: Any = step.networks[name]
    heads: dict[str, Any] = {}
    reads: dict[str, dict[str, str]] = {}
    for pass_, objective in entry.objectives():
        if pass_.network == name:
            heads[objective.state] = step.objectives[recipe.head_key(pass_, objective)]
            readings = {reading: path for reading, path in objective.read.items() if "." not in path}
            reads |= {objective.state: readings} if readings else {}
    annotations = entry_annotations(recipe, entry, read_layers(input_edits(recipe)))
    tables_by_name = with_label_names(recipe.tables, tables, annotations.labels)
    return Loaded(
        recipe=None, network=network, heads=heads, tokenizer=tokenizer, reading=recipe.reading, order=str(entry.order),
        folder=folder, network_arguments=part.arguments, clock=step.clock, imported=None, reads=reads,
        input_edits=reading_edits(recipe, tokenizer, tables_by_name), tables=tables_by_name, annotations=annotations,
        others=lambda network_name: _with_reading(
            as_loaded(recipe, step, tokenizer, entry, network_name, folder, tables=tables), reading_of(network_name, tables)
        ),
    )


def _with_reading(loaded: Loaded, reading: OtherReading | None) -> Loaded:
    """A network that reads texts with the tokenizer and the template of its checkpoint (`reading`), or with those of the run."""
    if reading is None:
        return loaded
    return replace(loaded, tokenizer=reading.tokenizer, reading=Reading(reading.template))
