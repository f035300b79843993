"""What `cloze finetune` refuses or remarks on before it trains: rows, classes, metrics, pictures, seeds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from cloze.budget.row_counts import classes_of, stage_recipes
from cloze.checkpoint.annotators import unlabelled_layers
from cloze.checkpoint.build import build_part
from cloze.checkpoint.several import START, LabelledFiles
from cloze.corpus import Store
from cloze.corpus.records.build_records import batches
from cloze.errors import CheckpointError, TaskError
from cloze.interop.model import Annotating
from cloze.recipe.load import pretraining_recipe_names, sentence_recipe_names
from cloze.recipe.recipe import Recipe
from cloze.registry import lookup, names, parameters
from cloze.runs.options import FinetuneOptions
from cloze.runs.out_folder import SEEDS
from cloze.tasks.result import contents_of
from cloze.tasks.task import chosen_metric
from cloze.tasks.task import task as make_task
from cloze.text import Tokenizer
from cloze.training.run import read_run_record

SECOND = "text_b"  # the usual name of the column with the second text of a pair


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


def require_kinds(recipe: Recipe, options: FinetuneOptions) -> None:
    """Raise a `TaskError` if the recipe that was named is for another type of task than `task` or `tasks` name."""
    requested_types = {name: task.type for name, task in options.tasks.items()} if options.tasks else {"": options.task}
    source_types = {spec.source: spec.task.type for spec in recipe.entries.values() if spec.task is not None}
    recipe_types = source_types if options.tasks else {"": None if recipe.task is None else recipe.task.type}
    for name, kind in requested_types.items() if options.recipe is not None else ():
        if kind not in (None, str(options.recipe)) and recipe_types.get(name) not in (None, kind):
            way = "Name the task of the recipe." if name else f"Leave out --task, or leave out --recipe to train for {kind}."
            asked_for = f"{name}={kind}" if name else kind
            raise TaskError(f"--task {asked_for}: the recipe {options.recipe} is for the task {recipe_types[name]}.\n  {way}")


def require_readable(recipe: Recipe, files: Mapping[str, LabelledFiles], tokenizer: Tokenizer) -> None:
    """Read the dev files of every source of all stages. Raises a `TaskError` for a row that cannot be used, or an unknown
    label."""
    for stage in stage_recipes(recipe):
        for name, spec in stage.sources.items():
            source: Any = build_part(spec, {})
            classes = classes_of(source, files[name].train)
            encode = source.answer.encoder(tokenizer, classes)
            for file in files[name].train[:1] if classes is None else ():  # the classes of `scores`
                for records in () if Store.is_store(file) else islice(batches(source.answer.read(file, source.columns)), 1):
                    encode(records, file)
            for file in files[name].dev:
                for records in () if Store.is_store(file) else batches(source.answer.read(file, source.columns)):
                    encode(records, file)


def unread_texts(recipe: Recipe, files: Mapping[str, LabelledFiles]) -> Iterator[str]:
    """A note for every training file with a second text that the recipe does not read."""
    for stage in stage_recipes(recipe):
        for name, spec in stage.sources.items():
            source: Any = build_part(spec, {})
            for file in files[name].train if source.columns.text_b is None else ():
                if not Store.is_store(file) and source.answer.also_has(file, source.columns, SECOND):
                    yield f"note: {file} has a column {SECOND}, which is not read. To read pairs: --set corpus.text_b={SECOND}"


def require_same_classes(recipe: Recipe, files: Mapping[str, LabelledFiles], bound: Mapping[str, Path]) -> None:
    """Raise a `TaskError` if a bound checkpoint was tuned to other classes than those of the training files: its scores would be
    learned for the wrong ones."""
    for stage in stage_recipes(recipe):
        for name, spec in stage.sources.items():
            classes = classes_of(build_part(spec, {}), files[name].train)
            for teacher, folder in bound.items():
                task_path = folder / "cloze" / "task.json"
                labels = json.loads(task_path.read_text(encoding="utf-8")).get("labels") if task_path.is_file() else None
                if classes is not None and labels is not None and list(labels) != list(classes):
                    raise TaskError(
                        f"--bind {teacher}={folder}: was tuned to the classes {', '.join(labels)}, and the training files have "
                        f"{', '.join(classes)}.\n  Use a teacher for the same task, or text with the same labels."
                    )


def require_checkpoint_classes(recipe: Recipe, files: Mapping[str, LabelledFiles], checkpoint: Path) -> None:
    """Raise a `TaskError` if a checkpoint whose head is trained further was tuned to other classes, or in another order."""
    labels = contents_of(checkpoint).get("labels") or ()
    for name, spec in recipe.sources.items():
        classes = classes_of(build_part(spec, {}), files[name].train)
        if classes is not None and list(labels) != list(classes):
            other = "in another order than" if set(labels) == set(classes) else "other than"
            raise TaskError(
                f"{checkpoint}: its classes are {', '.join(labels)}, {other} those of the training files, {', '.join(classes)}.\n"
                "  A classifier is trained further on its own classes. To train another one: "
                f"cloze finetune {recipe.name} --train FILE --dev FILE --out DIR"
            )


def require_same_layout(out: Path, seeds: Sequence[int]) -> None:
    """Refuse to resume a folder of one seed with several seeds, or one of several seeds with one."""
    several = (out / SEEDS).is_dir()
    old = read_run_record(out)
    if len(seeds) > 1 and old is not None or len(seeds) == 1 and several:
        old_seeds = "several seeds" if several else f"the seed {old['seed']}"  # type: ignore[index]
        raise CheckpointError(
            f"{out}: was started with {old_seeds}; now --seeds {','.join(map(str, seeds))} is given.\n"
            "  To resume, give the same --seeds. To train with others, choose another --out."
        )


def blind_tasks(recipe: Recipe) -> Iterator[str]:
    """A note for a task that asks about each word, on a network that reads from left to right."""
    for spec in recipe.tasks.values() or ([] if recipe.task is None else [recipe.task]):
        if spec.type is not None and make_task(spec.type).of_words:
            yield (
                f"note: this network reads from left to right, so in {spec.type} it labels each word without seeing the words "
                "that follow. A bidirectional network, such as bert, usually does better."
            )
            return


def unlabelled_note(saved_annotators: Mapping[str, Annotating], options: Sequence[str]) -> Iterator[str]:
    """A note for a network that reads labels of words and gets none."""
    if layers := unlabelled_layers(saved_annotators, options):
        yield (
            f"note: this network reads labels of words ({', '.join(layers)}), and no file gives any here, so every word counts "
            f"as unlabelled. To give them: --annotate {layers[0]}=PART:FILE"
        )


def check_metrics(recipe: Recipe) -> None:
    """Raise a `TaskError` for an unknown task or metric, before any file is read."""
    for stage in stage_recipes(recipe):
        for spec in stage.tasks.values() or ([] if stage.task is None else [stage.task]):
            if spec.type is not None:
                chosen_metric(make_task(spec.type), spec.metric)


def check_pictures(recipe: Recipe, items: Sequence[str]) -> None:
    """Raise a `TaskError` if rows are to be about pictures and a task reads none."""
    for stage in stage_recipes(recipe) if items else ():
        for spec in stage.tasks.values() or ([] if stage.task is None else [stage.task]):
            if spec.type is not None and "picture" not in parameters(lookup("task", spec.type)):
                able = ", ".join(name for name in names("task") if "picture" in parameters(lookup("task", name)))
                raise TaskError(f"--items {items[0]}: {spec.type} reads no pictures; these tasks do: {able}.")
