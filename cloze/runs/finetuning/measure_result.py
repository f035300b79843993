"""The result of fine-tuning: its folder, and what is measured of it on dev and test files after the last step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from cloze.atomic import whole_file
from cloze.checkpoint.annotators import annotators_read
from cloze.checkpoint.build import Loaded, load_checkpoint
from cloze.checkpoint.several import LabelledFiles
from cloze.corpus import RecordStore, Store
from cloze.errors import Say
from cloze.interop.card_results import add_results
from cloze.recipe.recipe import Recipe
from cloze.recipe.stages import stage_recipes
from cloze.runs import recipe_tasks
from cloze.runs.finetuning.leakage import add_training_texts
from cloze.runs.finetuning.ngrams import compare_with_ngrams, mix_with_ngrams
from cloze.runs.options import FinetuneOptions
from cloze.tasks.evaluation import evaluate
from cloze.tasks.linear.model import LinearModel
from cloze.tasks.linear.shares import Shares
from cloze.tasks.mixture import ENTRY, Mixture
from cloze.tasks.pictures import show_pictures
from cloze.tasks.remarks import remark_on, remark_on_loss, remark_on_ngrams
from cloze.tasks.task import join_examples
from cloze.tasks.tuned_folder import LEARNED_DEV, TASK_FILE, load_tuned, task_in_folder
from cloze.training.run import Outcome


@dataclass(frozen=True)
class FinetuningResult:
    """The result of fine-tuning: one outcome per seed, in their order, the folder of the best, and the contents of its task.json.

    `task_json` is empty on ranks other than 0, and until all seeds have finished.
    """

    outcomes: Mapping[int, Outcome]
    folder: Path
    task_json: Mapping[str, Any]


#: Entries of task.json that are measured on the dev rows of the run.
_ON_DEV_ROWS = ("dev", "dev_report", "spread", "trials", "frozen_start", "baseline", "ngrams")


class DevFigures(NamedTuple):
    """What the answers to the dev rows of one task show: its metrics, further entries of task.json, and remarks."""

    metrics: Mapping[str, float]
    entries: Mapping[str, Any]
    remarks: Sequence[str]


def measure_on_dev(
    result: FinetuningResult, recipe: Recipe, files: Mapping[str, LabelledFiles], options: FinetuneOptions, say: Say
) -> FinetuningResult:
    """Add to task.json what the answers of the result to its dev sets show, task by task (`_measure_task`)."""
    if not result.task_json:
        return result
    task_json = deepcopy(dict(result.task_json))
    loaded = load_checkpoint(result.folder, annotate=annotators_read(result.folder, options.annotate))
    for name, head in recipe_tasks.task_heads(stage_recipes(recipe)[-1]).items():
        figures = _measure_task(result, loaded, name, files[head.source], options, say)
        prefix, entries = (f"{name}/", task_json["tasks"][name]) if name else ("", task_json)
        entries.update(figures.entries)
        task_json["dev"] = {**{prefix + metric: value for metric, value in figures.metrics.items()}, **task_json["dev"]}
        task_json["remarks"] = [*task_json["remarks"], *(f"{prefix}dev: {remark}" for remark in figures.remarks)]
    write_task_json(result.folder / "cloze" / "task.json", task_json)
    return replace(result, task_json=task_json)


def _measure_task(
    result: FinetuningResult, loaded: Loaded, name: str, files: LabelledFiles, options: FinetuneOptions, say: Say
) -> DevFigures:
    """All metrics of the task `name` ("" for the only one), the costly ones too, which did not help to select a checkpoint; the
    figures by class where answers are labels; a linear model on n-grams, with `mix_ngrams` its mixture with the network; and
    remarks if nothing was learned, or less than by n-grams. The dev rows are read once more unless the answers are known."""
    example_sets = [task_in_folder(result.folder, name or None).read(file) for file in text_files_of(files.dev)]
    examples = join_examples(example_sets)
    learner, task_entries = load_tuned(show_pictures(loaded, options.items, example_sets), name=name or None)
    outputs = result.outcomes[result.task_json["seed"]].outputs.get(name)
    entries: dict[str, Any] = {}
    if task_entries.get("labels"):
        evaluation = learner.evaluate(examples, outputs=outputs)
        per_example, metrics, details = evaluation.per_example, evaluation.metrics, evaluation.details()
        entries |= {"dev_report": details} if details else {}
    else:  # no table by class, so only the metrics, of rows that are read file by file, as training reads them
        rows = [row for example_set in example_sets for row in learner.encode_labelled(example_set)]
        per_example = learner.per_example(rows) if outputs is None else learner.per_example_of(rows, outputs)
        metrics = learner.compute_metrics(per_example)
    remark = remark_on(learner, per_example, metrics, task_entries.get("baseline"))
    # The loss of classes that may have weights is a cross-entropy: ln C for equal probabilities, whatever the weights.
    if remark is None and not name and learner.head.weighs_classes and learner.labels is not None:
        remark = _remark_on_loss(result, len(learner.labels))
    remarks = [remark]
    if options.baselines:
        linear = compare_with_ngrams(
            learner.task, text_files_of(files.train), examples, labels=learner.labels, folder=result.folder, name=name, say=say
        )
        if linear is not None:
            entries["ngrams"] = linear
            if options.mix_ngrams:
                entries[ENTRY] = mix_with_ngrams(learner, examples, say)
                if "dev_report" in entries:  # thresholds and calibration are those of what answers
                    entries["dev_report"] = learner.evaluate(examples).details()
            remarks.append(remark_on_ngrams(metrics, linear["dev"], learner.task.metrics))
        elif options.mix_ngrams:
            remarks.append("--mix-ngrams: no linear model was fitted, so the network answers alone")
    return DevFigures(metrics, entries, [text for text in remarks if text is not None])


def _remark_on_loss(result: FinetuningResult, classes: int) -> str | None:
    """A remark if the last loss of the best run is that of equal probabilities, unless what was trained is not what is kept."""
    if result.task_json.get("evaluation") == 0:  # the frozen start
        return None
    log = result.outcomes[result.task_json["seed"]].folder / "cloze" / "log.jsonl"
    events = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    losses = [event["loss"] for event in events if event["event"] == "train"]
    return remark_on_loss(losses[-1], classes) if losses else None


def text_files_of(files: Sequence[str]) -> list[str]:
    """The files of labelled text; for a store, the files that it was built from."""
    paths: list[str] = []
    for file in files:
        store = Store.open(file) if Store.is_store(file) else None
        paths += store.about["files"] if isinstance(store, RecordStore) else [file]
    return paths


def write_task_json(path: Path, task_json: Mapping[str, Any]) -> None:
    """Write a task.json, whole or not at all, and its metrics into the card next to it."""
    with whole_file(path) as fresh:
        fresh.write_text(json.dumps(task_json, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    add_results(path.parent.parent / "README.md", task_json)


def add_mixture(
    folder: Path, linear: LinearModel, shares: Shares, *, learned: Sequence[Path], mixed: Mapping[str, float] | None = None,
    **more: Any,
) -> None:
    """Save a linear model, which has learned from the dev rows of the run, too, next to the network of a fine-tuned folder, and
    mix their answers from now on. `learned` are the files of these rows: they count as training texts, and what was measured on
    them goes. `mixed` are the dev metrics of the mixture on other rows, `more` further entries of task.json."""
    linear.save(folder / "cloze")
    path = folder / TASK_FILE
    task_json = json.loads(path.read_text(encoding="utf-8"))
    task_json = {name: entry for name, entry in task_json.items() if name not in _ON_DEV_ROWS}
    record = {**Mixture(linear, *shares).record(), **({} if mixed is None else {"dev": dict(mixed)})}
    add_training_texts(folder, [str(file) for file in learned])
    write_task_json(path, {**task_json, ENTRY: record, LEARNED_DEV: True, **more})


def add_entries(folder: Path, **entries: Any) -> None:
    """Add entries to the task.json of a fine-tuned folder and to its card."""
    path = folder / TASK_FILE
    write_task_json(path, {**json.loads(path.read_text(encoding="utf-8")), **entries})


def measure_on_files(
    result: FinetuningResult, files: Sequence[str], part: str, items: Sequence[str] = (), annotate: Sequence[str] = ()
) -> FinetuningResult:
    """Add the metrics of the result on further files to task.json; only the first rank does so. `items` are the files with the
    items of the pictures that rows are about, `annotate` the annotators of the texts."""
    if not result.task_json:
        return result
    example_sets = [task_in_folder(result.folder).read(file) for file in files]
    loaded = load_checkpoint(result.folder, annotate=annotators_read(result.folder, annotate))
    learner, task_json = load_tuned(show_pictures(loaded, items, example_sets))
    evaluations = [evaluate(learner, examples, constant_answer=task_json.get("constant_answer")) for examples in example_sets]
    remarks = [f"{part}: {remark}" for evaluation in evaluations for remark in evaluation.remarks]
    task_json = {
        **task_json,
        part: evaluations[0].metrics if len(evaluations) == 1 else [evaluation.metrics for evaluation in evaluations],
    }
    if ngrams := [evaluation.ngrams for evaluation in evaluations if evaluation.ngrams is not None]:
        task_json["ngrams"] = {**task_json.get("ngrams", {}), part: ngrams[0] if len(evaluations) == 1 else ngrams}
    earlier = [remark for remark in task_json["remarks"] if not remark.startswith(f"{part}: ")]  # on other files than these
    task_json["remarks"] = [*earlier, *dict.fromkeys(remarks)]
    write_task_json(result.folder / "cloze" / "task.json", task_json)
    return replace(result, task_json=task_json)
