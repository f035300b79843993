"""What `cloze finetune` looks at before it trains: rows, classes, metrics, pictures, seeds.

Functions that begin with `require_` refuse what cannot be trained; those that end in `_notes` give lines for the user.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from cloze.checkpoint.annotators import unlabelled_layers
from cloze.checkpoint.build import build_part
from cloze.checkpoint.several import START, LabelledFiles
from cloze.corpus import Store
from cloze.corpus.records.answer import Record
from cloze.corpus.records.build_records import batches
from cloze.errors import CheckpointError, TaskError
from cloze.interop.model import Annotating
from cloze.recipe.load import pretraining_recipe_names, sentence_recipe_names
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import Recipe
from cloze.recipe.stages import stage_recipes
from cloze.registry import lookup, names, parameters
from cloze.runs.options import FinetuneOptions
from cloze.runs.out_folder import SEEDS
from cloze.tasks.task import chosen_metric
from cloze.tasks.task import task as make_task
from cloze.tasks.tuned_folder import read_task_json
from cloze.text import Tokenizer
from cloze.training.run import read_run_record

SECOND_TEXT = "text_b"  # the usual name of the column with the second text of a pair
_PAIRED = {"premise": ("hypothesis",), "question": ("sentence",), "query": ("passage",)}  # in the columns of known sets


def require_task(recipe: Recipe, options: FinetuneOptions) -> None:
    """Raise a `TaskError` if the recipe has no task; for one of cloze's for pre-training, with the command that it is for."""
    if recipe.task is not None:
        return
    name = str(options.recipe or recipe.name)
    if name in pretraining_recipe_names():
        bound = f"--bind {START}={options.checkpoint} " if name in sentence_recipe_names() else ""
        raise TaskError(
            f"{name}: this recipe is for pre-training, on text without labels.\n"
            f"  cloze pretrain {name} {bound}--corpus TEXT --out DIR"
        )
    raise TaskError(
        f"{name}: this recipe has no `task:`. Add one; it states how the recipe is measured: "
        f"`task: {{type: {options.task_name}}}`."
    )


def require_task_type(recipe: Recipe, options: FinetuneOptions) -> None:
    """Raise a `TaskError` if `recipe` and `task` (or `tasks`) are both named and the recipe is for another type of task."""
    requested_types = {name: task.recipe for name, task in options.tasks.items()} if options.tasks else {"": options.task}
    source_types = {spec.source: spec.task.type for spec in recipe.entries.values() if spec.task is not None}
    recipe_types = source_types if options.tasks else {"": None if recipe.task is None else recipe.task.type}
    for name, task_type in requested_types.items() if options.recipe is not None else ():
        if task_type not in (None, str(options.recipe)) and recipe_types.get(name) not in (None, task_type):
            way = "Name the task of the recipe." if name else f"Leave out --task, or leave out --recipe to train for {task_type}."
            argument = f"{name}={task_type}" if name else task_type
            raise TaskError(f"--task {argument}: the recipe {options.recipe} is for the task {recipe_types[name]}.\n  {way}")


def require_readable_rows(
    recipe: Recipe, files: Mapping[str, LabelledFiles], classes: Sequence[Mapping[str, Sequence[str] | None]],
    tokenizer: Tokenizer,
) -> None:
    """Read the dev files of every source of all stages. Raises a `TaskError` for a row that cannot be used, or a label that is
    not among the `classes` (`training_classes`)."""
    for stage, stage_classes in zip(stage_recipes(recipe), classes, strict=True):
        for name, spec in stage.sources.items():
            source: Any = build_part(spec, {})
            encode = source.answer.encoder(tokenizer, stage_classes[name])
            if stage_classes[name] is None:  # the answer `scores` takes its classes from the first training row
                for records in islice(_batches_of(source, files[name].train[:1]), 1):
                    encode(*records)
            for records in _batches_of(source, files[name].dev):
                encode(*records)


def _batches_of(source: Any, files: Sequence[str]) -> Iterator[tuple[list[Record], str]]:
    """The records of files in batches, each with its file; stores have been read before."""
    for file in files:
        for records in () if Store.is_store(file) else batches(source.answer.read(file, source.columns)):
            yield records, file


def unread_text_notes(recipe: Recipe, files: Mapping[str, LabelledFiles]) -> Iterator[str]:
    """A note for every training file with a second text that the recipe does not read, if a task of its kind reads pairs."""
    for stage in stage_recipes(recipe):
        types = {entry.source: entry.task.type for entry in stage.entries.values() if entry.task is not None}
        for name, spec in stage.sources.items():
            source: Any = build_part(spec, {})
            task_type = types.get(name, None if stage.task is None else stage.task.type)
            pair_task = None if task_type is None else _pair_task(task_type)
            for file in files[name].train if pair_task is not None and source.columns.text_b is None else ():
                for second in () if Store.is_store(file) else second_texts(source.columns.text):
                    if source.answer.also_has(file, source.columns, second):
                        options = [f"--task {pair_task}"] if pair_task != task_type else []
                        options += [f"--set corpus.text_b={second}"] if not options or second != SECOND_TEXT else []
                        yield f"note: {file} has a column {second}, which is not read. To read pairs: {' '.join(options)}"


def _pair_task(task_type: str) -> str | None:
    """The task with the same answers that reads pairs: the task itself, or another one of its class."""
    pair_tasks = [
        name for name in names("task")
        if class_of("task", name) is class_of("task", task_type) and "text_b" in parameters(lookup("task", name))
    ]
    return task_type if task_type in pair_tasks else next(iter(pair_tasks), None)


def second_texts(first: str) -> tuple[str, ...]:
    """The usual names of the column with the second text of a pair whose first is in the column `first`: `sentence2` next to
    `sentence1`."""
    counted = {"1": "2", "a": "b", "A": "B"}.get(first[-1:]) if first[-1:].isdigit() or first[-2:-1] == "_" else None
    names = [SECOND_TEXT, *([] if counted is None else [first[:-1] + counted]), *_PAIRED.get(first, ())]
    return tuple(dict.fromkeys(name for name in names if name != first))


def require_same_classes(class_sets: Iterable[Sequence[str] | None], bound: Mapping[str, Path]) -> None:
    """Raise a `TaskError` if a bound checkpoint was tuned to other classes than those of the training files: its scores would be
    learned for the wrong ones."""
    for classes in class_sets:
        for teacher, folder in bound.items():
            task_path = folder / "cloze" / "task.json"
            labels = json.loads(task_path.read_text(encoding="utf-8")).get("labels") if task_path.is_file() else None
            if classes is not None and labels is not None and list(labels) != list(classes):
                raise TaskError(
                    f"--bind {teacher}={folder}: was tuned to the classes {', '.join(labels)}, and the training files have "
                    f"{', '.join(classes)}.\n  Use a teacher for the same task, or text with the same labels."
                )


def require_checkpoint_classes(recipe: Recipe, class_sets: Iterable[Sequence[str] | None], checkpoint: Path) -> None:
    """Raise a `TaskError` if a checkpoint whose head is trained further was tuned to other classes, or in another order."""
    labels = read_task_json(checkpoint).get("labels") or ()
    for classes in class_sets:
        if classes is not None and list(labels) != list(classes):
            other = "in another order than" if set(labels) == set(classes) else "other than"
            raise TaskError(
                f"{checkpoint}: its classes are {', '.join(labels)}, {other} those of the training files, {', '.join(classes)}.\n"
                "  A classifier is trained further on its own classes. To train another one: "
                f"cloze finetune {recipe.name} --train FILE --dev FILE --out DIR"
            )


def require_same_seed_folders(out: Path, seeds: Sequence[int]) -> None:
    """Refuse to resume a folder of one seed with several seeds, or one of several seeds with one."""
    several = (out / SEEDS).is_dir()
    old = read_run_record(out)
    if len(seeds) > 1 and old is not None or len(seeds) == 1 and several:
        old_seeds = "several seeds" if several else f"the seed {old['seed']}"  # type: ignore[index]
        raise CheckpointError(
            f"{out}: was started with {old_seeds}; now --seeds {','.join(map(str, seeds))} is given.\n"
            "  To resume, give the same --seeds. To train with others, choose another --out."
        )


def blind_task_notes(recipe: Recipe) -> Iterator[str]:
    """A note for a task that asks about each word, on a network that reads from left to right."""
    for spec in recipe.tasks.values() or ([] if recipe.task is None else [recipe.task]):
        if spec.type is not None and make_task(spec.type).of_words:
            yield (
                f"note: this network reads from left to right, so in {spec.type} it labels each word without seeing the words "
                "that follow. A bidirectional network, such as bert, usually does better."
            )
            return


def unlabelled_notes(saved_annotators: Mapping[str, Annotating], options: Sequence[str]) -> Iterator[str]:
    """A note for a network that reads labels of words and gets none."""
    if layers := unlabelled_layers(saved_annotators, options):
        yield (
            f"note: this network reads labels of words ({', '.join(layers)}), and no file gives any here, so every word counts "
            f"as unlabelled. To give them: --annotate {layers[0]}=PART:FILE"
        )


def require_metrics(recipe: Recipe) -> None:
    """Raise a `TaskError` for an unknown task or metric, before any file is read."""
    for stage in stage_recipes(recipe):
        for spec in stage.tasks.values() or ([] if stage.task is None else [stage.task]):
            if spec.type is not None:
                chosen_metric(make_task(spec.type), spec.metric)


def require_picture_tasks(recipe: Recipe, items: Sequence[str]) -> None:
    """Raise a `TaskError` if rows are to be about pictures and a task reads none."""
    for stage in stage_recipes(recipe) if items else ():
        for spec in stage.tasks.values() or ([] if stage.task is None else [stage.task]):
            if spec.type is not None and "picture" not in parameters(lookup("task", spec.type)):
                able = ", ".join(name for name in names("task") if "picture" in parameters(lookup("task", name)))
                raise TaskError(f"--items {items[0]}: {spec.type} reads no pictures; these tasks do: {able}.")
