"""`finetune`: makes a recipe from a checkpoint, a task and labelled text, and trains it like any other."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cloze.budget.row_counts import RowCounts, count_rows, training_classes
from cloze.checkpoint.build import Loaded, load_checkpoint
from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.several import START, LabelledFiles
from cloze.corpus.readers.not_text import require_apart
from cloze.corpus.readers.text_files import require_files
from cloze.errors import CheckpointError, Say, TaskError
from cloze.processes import rank
from cloze.recipe.load import scratch_task_recipe_names
from cloze.recipe.origins import bound_checkpoints, checkpoint_names
from cloze.recipe.recipe import Recipe
from cloze.recipe.stages import stage_recipes
from cloze.recipe.user_files import import_files
from cloze.runs.binds import check_binds, parse_binds
from cloze.runs.finetuning.leakage import Hashes, hash_training_texts, shared_row_notes, write_training_hashes
from cloze.runs.finetuning.measure_result import FinetuningResult, measure_on_dev, write_task_json
from cloze.runs.finetuning.ngrams import require_mixable, require_mixture
from cloze.runs.finetuning.task_checks import (
    blind_task_notes,
    require_checkpoint_classes,
    require_metrics,
    require_picture_tasks,
    require_readable_rows,
    require_same_classes,
    require_same_seed_folders,
    require_task,
    require_task_type,
    unlabelled_notes,
    unread_text_notes,
)
from cloze.runs.finetuning.task_recipe import is_recipe_without_checkpoint, recipe_maker
from cloze.runs.options import FinetuneOptions, PretrainOptions, accepts_fields_of, say_of
from cloze.runs.out_folder import SEEDS, claimed, has_checkpoint, has_finished, require_usable
from cloze.runs.request import Request, choose_budget, run_origins
from cloze.runs.run import keep_with_trackers, run_stages, train_recipe
from cloze.tasks.measures.metrics import spread
from cloze.tasks.tuned_folder import read_task_json
from cloze.text import Tokenizer
from cloze.text.normalise import Normalise
from cloze.text.words import Words
from cloze.training.checkpoints.checkpoint import Checkpoints, publish
from cloze.training.precision import choose_device
from cloze.training.run import Outcome
from cloze.training.schedule.budget import Budget
from cloze.training.trackers import require_trackers

_REMOVED = ".checkpoints.removed"


def run_finetuning(options: FinetuneOptions) -> FinetuningResult:
    """Fine-tune a checkpoint on labelled text, once per seed; dev files select the best checkpoint.

    One seed is a run in `out`; several are runs in `out/cloze/seeds/SEED`. The folder of a run is a Hugging Face folder with
    `cloze/task.json`; a run that was stopped resumes. A recipe of a task that begins at random may be named in place of a
    checkpoint; its tokenizer is trained on the training text. `overwrite` replaces a result in `out` (`out_folder.py`).
    `keep_checkpoints` keeps what only `extend` reads: the weights twice and the optimizer's state, several times the size of the
    model. Raises a `ClozeError` before training if the recipe cannot be trained.
    """
    assert options.out is not None
    out, outcomes, say = options.out, dict[int, Outcome](), say_of(options.report)
    command = options.words()
    claim_options: dict[str, Any] = {"overwrite": options.overwrite and not options.extend, "command": command}
    require_usable(out, **claim_options)
    require_trackers(options.track, model=options.track_model)
    prepared = prepare_finetuning(options)
    recipe = prepared.recipe
    require_mixable(recipe, options)
    with claimed(out, **claim_options, say=say):
        was_finished, closed = has_finished(out), is_closed(out, options.seeds, extend=options.extend)
        if closed:
            require_mixture(out, options)
            say(f"{out}: has finished; nothing is trained.")
        require_same_seed_folders(out, options.seeds)
        for seed in options.seeds:
            folder = out if len(options.seeds) == 1 else out / SEEDS / str(seed)
            request = replace(prepared.request, closed=closed, command=command).replaced(seed=seed, extend=options.extend)
            if len(options.seeds) > 1:
                request.say(f"seed {seed}")
            outcomes[seed] = _run(recipe, request, folder, options.within)
            if not outcomes[seed].finished:
                break
        if closed:
            published = FinetuningResult(outcomes, out, read_task_json(out) if rank() == 0 else {})
        else:
            published = _publish_result(outcomes, out, prepared)
        if published.task_json:
            write_training_hashes(out, prepared.training_hashes)
        # An earlier run with --keep-checkpoints keeps its checkpoints.
        if published.task_json and not options.keep_checkpoints and (options.extend or not was_finished):
            drop_checkpoints(out)
    if closed:
        return published
    measured = measure_on_dev(published, recipe, prepared.files, options, say)
    if measured.task_json:
        keep_with_trackers(options, outcomes[measured.task_json["seed"]], out, say)
    return measured


#: `run_finetuning` with the fields of its options as arguments: `finetune(RUN, train=[A], dev=[B], out=C)`.
finetune = accepts_fields_of(FinetuneOptions)(run_finetuning)


def drop_checkpoints(out: Path) -> None:
    """Remove the checkpoints of a finished run, of its stages and of its seeds; each folder of them disappears in one step."""
    inner = out / "cloze"
    for folder in [*inner.glob("**/checkpoints")]:
        hidden = folder.with_name(_REMOVED)
        shutil.rmtree(hidden, ignore_errors=True)
        os.replace(folder, hidden)
    for hidden in [*inner.glob(f"**/{_REMOVED}")]:  # also those of a process that was killed
        shutil.rmtree(hidden, ignore_errors=True)


def is_closed(out: Path, seeds: Sequence[int], *, extend: bool) -> bool:
    """Whether a run is closed: it has finished and keeps no checkpoints, so nothing more can be trained.

    Raises `CheckpointError` if `extend` or other `seeds` ask for more training.
    """
    if not has_finished(out) or has_checkpoint(out):
        return False
    trained = [int(trial["seed"]) for trial in read_task_json(out)["trials"]]
    if not extend and set(seeds) == set(trained):
        return True
    what = "--extend" if extend else f"--seeds {','.join(map(str, seeds))}"
    raise CheckpointError(
        f"{out}: has finished with --seeds {','.join(map(str, trained))} and keeps no checkpoints, which {what} needs.\n"
        "  Train again, in another --out or with --overwrite. To be able to go on later, add --keep-checkpoints."
    )


class PreparedFinetuning(NamedTuple):
    """What a run of fine-tuning is made of: the checked recipe, fitted to checkpoint and rows, the files of its sources with
    their counts and the hashes of their training texts, and the request (of any seed). `from_scratch`: no network takes weights
    of the checkpoint. `base`: what the card says of the checkpoint. `remarks`: which dev and test rows are among those of
    training."""

    recipe: Recipe
    files: Mapping[str, LabelledFiles]
    row_counts: Mapping[str, RowCounts]
    training_hashes: Mapping[str, Hashes]
    request: Request
    from_scratch: bool
    base: Mapping[str, str]
    remarks: tuple[str, ...]


def prepare_finetuning(options: FinetuneOptions) -> PreparedFinetuning:
    """What `run_finetuning` trains. Reads the files, writes nothing; raises a `ClozeError` for what cannot be trained."""
    say, seeds, checkpoint = say_of(options.report), options.seeds, options.checkpoint
    if not seeds or len(set(seeds)) < len(seeds):
        raise TaskError(f"seeds {','.join(map(str, seeds)) or '(none)'}: expected one or more different numbers.")
    choose_device(options.device)  # refuses a missing device before anything is read or printed
    import_files(options.with_files)
    without_checkpoint = is_recipe_without_checkpoint(checkpoint)
    loaded = None if without_checkpoint else load_checkpoint(checkpoint)
    make_recipe = recipe_maker(options, loaded)
    recipe = make_recipe()
    recipe_name = str(options.recipe or recipe.name)
    _check_task(recipe, options, loaded, say)
    files = _files(recipe, options)
    row_counts = count_rows(recipe, files, None if loaded is None else loaded.tokenizer)
    _require_rows(recipe, files, options, loaded)
    training_hashes = hash_training_texts(recipe, files)
    shared = tuple(shared_row_notes(recipe, files, training_hashes, test=options.test))
    for line in (*(unread_text_notes(recipe, files) if loaded is not None else ()), *shared):
        say(line)
    recipe = make_recipe(row_counts=row_counts, report=say)
    recipe = _from_scratch(recipe) if options.from_scratch else recipe
    # also true of a recipe that takes no weights of the checkpoint by itself
    from_scratch = START not in {n.origin for stage in stage_recipes(recipe) for n in stage.networks.values()}
    check_recipe(recipe)
    bound = parse_binds([*options.binds, *([] if without_checkpoint else [f"{START}={checkpoint}"])])
    checkpoints = bound_checkpoints(recipe, bound)
    check_binds(recipe, bound.keys() - {START}, checkpoint_names(recipe))
    run_options = PretrainOptions(
        recipe_name, (), options.out, overrides=tuple(options.overrides), seed=seeds[0], device=options.device,
        report=options.report, track=options.track, track_model=options.track_model,
        tokenizer=Path(checkpoint) if from_scratch and not without_checkpoint else None,
    )
    request = Request(
        run_options, [], checkpoints=checkpoints, binds={name: labelled.train for name, labelled in files.items()},
        dev={name: labelled.dev for name, labelled in files.items()}, command=options.words(),
    )
    base = {} if without_checkpoint else base_of(Path(checkpoint))
    remarks = tuple(line.removeprefix("note: ") for line in shared)
    return PreparedFinetuning(recipe, files, row_counts, training_hashes, request, from_scratch, base, remarks)


def _check_task(recipe: Recipe, options: FinetuneOptions, loaded: Loaded | None, say: Say) -> None:
    """Refuse, or remark on, what is seen without reading labelled text."""
    require_task(recipe, options)
    require_task_type(recipe, options)
    require_metrics(recipe)
    require_picture_tasks(recipe, options.items)
    if loaded is not None:
        blind = blind_task_notes(recipe) if loaded.order == "left_to_right" else ()
        for line in (*blind, *unlabelled_notes(loaded.imported.model.annotators, options.annotate)):
            say(line)


def _require_rows(
    recipe: Recipe, files: Mapping[str, LabelledFiles], options: FinetuneOptions, loaded: Loaded | None
) -> None:
    """Refuse labelled rows that cannot be used, and classes that do not fit a checkpoint's."""
    any_tokenizer = Words(min_count=1).of_words(["a"], Normalise())  # answers are checked, and the tokens do not matter
    classes = training_classes(recipe, files)
    require_readable_rows(recipe, files, classes, any_tokenizer if loaded is None else loaded.tokenizer)
    require_same_classes([source for stage in classes for source in stage.values()], options.checkpoints)
    if loaded is not None and str(options.recipe) in scratch_task_recipe_names():  # the checkpoint's own head is trained further
        require_checkpoint_classes(recipe, classes[-1].values(), Path(options.checkpoint))


def _run(recipe: Recipe, request: Request, folder: Path, within: float | None = None) -> Outcome:
    """Train the recipe, or its stages one after another, with the seed of the request; a recipe without stages for at most
    `within` seconds."""
    if recipe.stages:
        return run_stages(recipe, request, folder, None)
    budget = choose_budget(recipe, None, folder, extend=request.options.extend)
    if within is not None and recipe.training.epochs:
        budget = Budget("seconds", within, max_epochs=float(recipe.training.epochs))
    return train_recipe(recipe, request, folder, budget, run_origins(recipe, request, {}))


def _files(recipe: Recipe, options: FinetuneOptions) -> dict[str, LabelledFiles]:
    """The files of every source of a recipe. Raises a `TaskError` for a source without files, files without a source, and missing
    files."""
    sources, files = _source_names(recipe), _files_by_name(recipe, options)
    for name in [name for name in files if name not in sources]:
        raise TaskError(f"{recipe.name}: has no source {name!r} for the task of that name. Its sources: {', '.join(sources)}.")
    for name in sources:
        if name not in files or not files[name].train or not files[name].dev:
            option = f"--task {name}=TYPE:TRAIN,DEV" if len(sources) > 1 else "--train FILE --dev FILE"
            raise TaskError(f"{recipe.name}: the source {name!r} has no labelled text. Give it with {option}.")
    paths = [file for labelled in files.values() for file in (*labelled.train, *labelled.dev)]
    require_files(paths)
    require_apart(paths, options.out or Path("out"))
    return files


def _source_names(recipe: Recipe) -> list[str]:
    return list(dict.fromkeys(name for stage in stage_recipes(recipe) for name in stage.sources))


def _files_by_name(recipe: Recipe, options: FinetuneOptions) -> dict[str, LabelledFiles]:
    """The files that the options give; those of `train` and `dev` belong to the source `main`, or else to the first one."""
    sources = _source_names(recipe)
    return options.files("main" if "main" in sources else sources[0])


def row_counts_of(recipe: Recipe, options: FinetuneOptions, tokenizer: Tokenizer | None) -> dict[str, RowCounts] | None:
    """The counts of every source (`count_rows`); None if a source has no files."""
    files = _files_by_name(recipe, options)
    has_files = all(name in files and files[name].train for name in _source_names(recipe))
    return count_rows(recipe, files, tokenizer) if has_files else None


def _from_scratch(recipe: Recipe) -> Recipe:
    """The recipe with random weights in place of those of the checkpoint."""
    networks = {name: replace(n, origin=None) if n.origin == START else n for name, n in recipe.networks.items()}
    stages = tuple(replace(stage, recipe=_from_scratch(stage.recipe)) for stage in recipe.stages)
    return replace(recipe, networks=networks, stages=stages)


def base_of(checkpoint: Path) -> dict[str, str]:
    """The name of a checkpoint, and its identifier on the Hub where it lies in the cache of huggingface_hub."""
    path = checkpoint.resolve()
    cached = re.search(r"/models--([^/]+)--([^/]+)/snapshots/", f"{path}/")
    return {"name": cached[2], "hub": f"{cached[1]}/{cached[2]}"} if cached else {"name": path.name}


def _publish_result(outcomes: Mapping[int, Outcome], out: Path, prepared: PreparedFinetuning) -> FinetuningResult:
    """Publish the best of all seeds in `out`, and complete its task.json with the results."""
    assert prepared.recipe.task is not None  # it is the recipe of a task
    keeps_best = prepared.recipe.task.keep == "best"
    results = {
        seed: outcome.standing.result(keep_best=keeps_best) for seed, outcome in outcomes.items()
        if outcome.finished and outcome.standing is not None
    }
    if not results or len(results) < len(outcomes) or rank() != 0:
        return FinetuningResult(outcomes, out, {})
    best = max(results, key=lambda seed: results[seed].worth)
    result, folder = results[best], outcomes[best].folder
    if folder != out:
        step = result.step if keeps_best else outcomes[best].step
        publish(Checkpoints(folder).path(step), out)
    path = out / "cloze" / "task.json"
    task_json = {
        **json.loads(path.read_text(encoding="utf-8")), "seed": best, "evaluation": result.evaluation,
        "evaluate_every": prepared.recipe.training.evaluate_every, "dev": result.metrics,
        "trials": [
            {"seed": seed, "evaluation": trial.evaluation, "evaluations": trial.evaluations, "metrics": trial.metrics}
            for seed, trial in results.items()
        ],
        **({} if result.start is None else {"frozen_start": result.start}),
        "spread": spread([trial.metrics for trial in results.values()]), "from_scratch": prepared.from_scratch,
        **({"base": prepared.base} if prepared.base and not prepared.from_scratch else {}),
        "remarks": [
            *json.loads((out / "cloze" / "network.json").read_text(encoding="utf-8")).get("remarks", []), *prepared.remarks
        ],
    }  # fmt: skip
    write_task_json(path, task_json)
    return FinetuningResult(outcomes, out, task_json)
