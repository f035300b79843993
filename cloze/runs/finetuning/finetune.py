"""`finetune`: makes a recipe from a checkpoint, a task and labelled text, and trains it like any other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, Protocol

from cloze.budget.fit_length import fit_lengths, fit_targets
from cloze.budget.fit_task import facts_of, fit_changes, fit_task, fit_texts
from cloze.budget.fitted import holding, table_of
from cloze.budget.label_counts import Counts, count_labels, stage_recipes
from cloze.checkpoint.annotators import Given, add_annotators, parse_annotators
from cloze.checkpoint.build import Loaded, load_checkpoint
from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.complete import Origin, depth_groups, put_onto
from cloze.checkpoint.new_heads import is_sentence_encoder
from cloze.checkpoint.references import BoundCheckpoints
from cloze.checkpoint.several import START, Labelled
from cloze.corpus.readers.not_text import require_apart
from cloze.corpus.readers.text_files import require_files
from cloze.decoding.reader import Reader
from cloze.errors import TaskError
from cloze.processes import rank
from cloze.recipe.load import load_recipe, named_recipes, overrides_of_heads, own_task_recipe_names, read_tree
from cloze.recipe.origins import add_changes, bound_checkpoints, checkpoint_names, origins_in
from cloze.recipe.recipe import Recipe
from cloze.recipe.stages import repeat_overrides, repeat_stages, repeats
from cloze.recipe.user_files import import_files
from cloze.runs.binds import bound_tables, check_binds, parse_binds
from cloze.runs.finetuning.assignment import KEEP_CHECKPOINTS, Assignment
from cloze.runs.finetuning.auxiliary import add_language_model
from cloze.runs.finetuning.cold_start import going_on, with_vectors
from cloze.runs.finetuning.item_options import ShownItems, add_items
from cloze.runs.finetuning.leakage import Hashes, notes, record, training_texts
from cloze.runs.finetuning.ngrams import require_mixable, require_mixture
from cloze.runs.finetuning.task_checks import (
    blind_tasks,
    check_metrics,
    check_pictures,
    require_own_classes,
    require_readable,
    require_same_classes,
    require_same_layout,
    unread_texts,
)
from cloze.runs.finetuning.tuned import Tuned, judged_on_dev, write_description
from cloze.runs.finished_run import drop_checkpoints, is_closed
from cloze.runs.out_folder import SEEDS, claimed, is_tuned, require_usable
from cloze.runs.request import CommandLine, Request, begin_of, the_budget
from cloze.runs.run import run_stage, run_stages
from cloze.tasks.measures.metrics import spread
from cloze.tasks.result import contents_of
from cloze.text import Tokenizer
from cloze.text.normalise import Normalise
from cloze.text.words import Words
from cloze.training.checkpoints.checkpoint import Checkpoints, publish
from cloze.training.precision import choose_device
from cloze.training.run import Outcome
from cloze.training.schedule.budget import Budget

Say = Callable[[str], None]


def recipe_onto(
    recipe: str | Path | Mapping[str, Any], loaded: Loaded, *, overrides: Sequence[str] = (), changes: Sequence[str] = (),
    auxiliary: str | None = None, annotate: Given | None = None, shown: ShownItems | None = None, with_files: Sequence[Path] = (),
    checkpoints: Mapping[str, Path] | None = None, teachers: Mapping[str, Origin] | None = None,
    labels: Mapping[str, Counts] | None = None, from_scratch: bool = False, report: Say = lambda line: None,
) -> Recipe:
    """A recipe that begins with a checkpoint, completed by the checkpoint's own description.

    A recipe of cloze's own is fitted to the checkpoint (`fit_task.py`), and to the `labels` of every source where they are
    given; `report` gets the table of what was changed. `changes` are done to the checkpoint's network; `auxiliary` is the
    weight of its language model, which is trained along. `annotate` are annotators of its labelled text by layer, `shown` the
    items of the pictures that its rows are about. `checkpoints` are further ones that it asks for, and `teachers` describes them.
    With `from_scratch` the network will start at random, so the fit makes no change of its weights. A stage that begins with an
    earlier one reads text as the checkpoint does, too.
    """
    tree = read_tree(recipe)
    if repeats(tree):
        overrides = repeat_overrides(tree, overrides, depth_groups(loaded))
        tree = repeat_stages(tree, depth_groups(loaded))
    add_changes(tree, changes, START)
    if auxiliary is not None:
        add_language_model(tree, auxiliary, START, loaded)
    add_annotators(tree, annotate or {})
    add_items(tree, (shown or ShownItems()).arguments(loaded))
    stages = tree.value["stages"].value if tree.is_mapping and "stages" in tree.value else {}
    origins = {**dict.fromkeys([START, *map(str, stages or ())], Origin.of(loaded)), **(teachers or {})}

    def load(values: Sequence[str]) -> Recipe:
        return load_recipe(
            tree, overrides=[*values, *overrides], with_files=with_files,
            checkpoints=BoundCheckpoints({**(checkpoints or {}), START: Path(loaded.folder)}),
            complete=lambda root, faults: put_onto(root, origins, faults),
        )

    if not isinstance(recipe, Mapping) and str(recipe) not in named_recipes():
        return load([])
    written = load_recipe(tree, overrides=overrides_of_heads(tree, overrides))
    most = Reader.of(loaded).max_length
    source_lengths = {name: counts.lengths for name, counts in (labels or {}).items() if counts.lengths}
    # First, because longer rows are illegal.
    lengths = [*fit_lengths(written, {}, most), *fit_targets(written, source_lengths, most)]
    lengths += fit_lengths(load([change.override for change in lengths]), source_lengths, most)
    plain = load([change.override for change in lengths])
    width = int(loaded.network.width)  # type: ignore[arg-type]
    facts = facts_of(loaded.recipe, labels=labels, width=width, means=is_sentence_encoder(loaded), random=from_scratch)
    of_network = [] if from_scratch else fit_changes(written, plain, facts)
    if of_network:
        add_changes(tree, [str(change.here) for change in of_network], START)
    proposals = [*lengths, *fit_task(plain, facts)]
    held, fitted_recipe = holding(load, proposals)
    if undone := [change.path for change in proposals if change not in held]:  # the user's values win: fit the others to them
        held, fitted_recipe = holding(load, [*lengths, *fit_task(plain, facts, kept=undone)])
    if held or of_network:
        counted = "" if labels is None else f"{sum(counts.rows for counts in labels.values()):,} rows and "
        title = f"{fitted_recipe.name} fitted to {counted}this checkpoint (published → fitted; --set overrides):"
        report(table_of(title, held, [change.override for change in held], of_network=of_network))
    return fitted_recipe


def finetune(
    checkpoint: str | Path, *, out: Path, seeds: Sequence[int] = (1,), device: str = "auto", extend: bool = False,
    from_scratch: bool = False, report: Say | None = None, keep_checkpoints: bool = False, **assignment: Any,
) -> Tuned:
    """`learn` with the fields of its `Assignment` as arguments: `finetune(RUN, train=[A], dev=[B], out=C)`."""
    return learn(
        checkpoint, Assignment(**assignment), out=out, seeds=seeds, device=device, extend=extend, from_scratch=from_scratch,
        report=report, keep_checkpoints=keep_checkpoints,
    )


def learn(
    checkpoint: str | Path, assignment: Assignment, *, out: Path, seeds: Sequence[int] = (1,), device: str = "auto",
    extend: bool = False, from_scratch: bool = False, report: Say | None = None, within: float | None = None,
    overwrite: bool | None = None, keep_checkpoints: bool = False,
) -> Tuned:
    """Fine-tune a checkpoint on the labelled text of an `assignment`, once per seed; dev files select the best checkpoint.

    One seed is a run in `out`; several are runs in `out/cloze/seeds/SEED`. The folder of a run is a Hugging Face folder with
    `cloze/task.json`; a run that was stopped resumes. A recipe of a task that begins at random may be named in place of a
    checkpoint; its tokenizer is trained on the training text. `from_scratch` starts from random weights in the shape of the
    checkpoint, for comparison; `device`, `extend` and `report` are as in `pretrain`. `within` are the most seconds of training.
    `overwrite` replaces a result in `out` (`out_folder.py`), and `keep_checkpoints` keeps what `extend` needs
    (`finished_run.py`). Raises a `ClozeError` before training if the recipe cannot be trained.
    """
    outcomes = dict[int, Outcome]()
    note = _notes(report)
    command = assignment.words(checkpoint, out, seeds, *[KEEP_CHECKPOINTS] * keep_checkpoints)
    taking: dict[str, Any] = {"overwrite": overwrite and not extend, "command": command}
    require_usable(out, **taking)
    assigned = assign(checkpoint, assignment, out=out, seeds=seeds, device=device, from_scratch=from_scratch, report=report)
    recipe = assigned.recipe
    require_mixable(recipe, assignment)
    with claimed(out, **taking, say=note):
        before, closed = is_tuned(out), is_closed(out, seeds, extend=extend)
        if closed:
            require_mixture(out, assignment)
            note(f"{out}: has finished; nothing is trained.")
        require_same_layout(out, seeds)
        for seed in seeds:
            folder = out if len(seeds) == 1 else out / SEEDS / str(seed)
            request = replace(assigned.request, seed=seed, extend=extend, closed=closed, command=command)
            if len(seeds) > 1:
                request.say(f"seed {seed}")
            outcomes[seed] = _run(recipe, request, folder, within)
            if not outcomes[seed].finished:
                break
        if closed:
            published = Tuned(outcomes, out, contents_of(out) if rank() == 0 else {})
        else:
            published = _published(
                outcomes, out, recipe, from_scratch=assigned.from_scratch, base=assigned.base, remarks=assigned.remarks
            )
        if published.described:
            record(out, assigned.texts)
        if published.described and not keep_checkpoints and (extend or not before):  # else they were kept on purpose
            drop_checkpoints(out)
    return published if closed else judged_on_dev(published, recipe, assigned.files, assignment, note)


def _notes(report: Say | None) -> Say:
    """Where notes go: to `report`, of one process only."""
    return report if report is not None and rank() == 0 else lambda line: None


class Assigned(NamedTuple):
    """What a run of fine-tuning is made of: the checked recipe, fitted to checkpoint and rows, the files of its sources with
    their counts, and the request (of any seed). `from_scratch`: no network takes weights of the checkpoint. `base`: what the card
    says of the checkpoint. `remarks`: which dev and test rows are among those of training."""

    recipe: Recipe
    files: Mapping[str, Labelled]
    labels: Mapping[str, Counts]
    texts: Mapping[str, Hashes]
    request: Request
    from_scratch: bool
    base: Mapping[str, str]
    remarks: tuple[str, ...]


def assign(
    checkpoint: str | Path, assignment: Assignment, *, out: Path, seeds: Sequence[int] = (1,), device: str = "auto",
    from_scratch: bool = False, report: Say | None = None,
) -> Assigned:
    """What `learn` trains with the same arguments. Reads the files, writes nothing; raises a `ClozeError` for what cannot be
    trained."""
    note = _notes(report)
    if not seeds or len(set(seeds)) < len(seeds):
        raise TaskError(f"seeds {','.join(map(str, seeds)) or '(none)'}: expected one or more different numbers.")
    choose_device(device)  # refuses a missing device before anything is read or printed
    import_files(assignment.with_files)
    alone = begins_alone(checkpoint)
    loaded = None if alone else load_checkpoint(checkpoint)
    bound = parse_binds([*assignment.binds, *([] if alone else [f"{START}={checkpoint}"])])
    make_recipe = maker_of(checkpoint, assignment, loaded, from_scratch=from_scratch)
    recipe = make_recipe()
    recipe_name = str(assignment.recipe or recipe.name)
    assignment.require_task(recipe, checkpoint)
    assignment.require_kinds(recipe)
    check_metrics(recipe)
    check_pictures(recipe, assignment)
    if loaded is not None and loaded.order == "left_to_right":
        for line in blind_tasks(recipe):
            note(line)
    files = _files(recipe, assignment)
    named = [file for labelled in files.values() for file in (*labelled.train, *labelled.dev)]
    require_files(named)
    require_apart(named, out)
    labels = count_labels(recipe, files, None if loaded is None else loaded.tokenizer)
    require_readable(recipe, files, Words(min_count=1).of_words(["a"], Normalise()) if loaded is None else loaded.tokenizer)
    require_same_classes(recipe, files, assignment.checkpoints)
    if loaded is not None and str(assignment.recipe) in own_task_recipe_names():
        require_own_classes(recipe, files, Path(checkpoint))
    texts = training_texts(recipe, files)
    shared = tuple(notes(recipe, files, texts, test=assignment.test))
    for line in (*unread_texts(recipe, files), *shared):
        note(line)
    recipe = make_recipe(labels=labels, report=note)
    recipe = _from_scratch(recipe) if from_scratch else recipe
    from_scratch = START not in {n.origin for stage in stage_recipes(recipe) for n in stage.networks.values()}
    check_recipe(recipe)
    checkpoints = bound_checkpoints(recipe, bound)
    check_binds(recipe, {name: paths for name, paths in bound.items() if name != START}, checkpoint_names(recipe))
    request = Request(
        CommandLine(recipe_name, out=str(out), overrides=tuple(assignment.overrides)), [], checkpoints=checkpoints,
        binds={name: labelled.train for name, labelled in files.items()},
        dev={name: labelled.dev for name, labelled in files.items()},
        tokenizer=Path(checkpoint) if from_scratch and not alone else None, seed=seeds[0], device=device, report=report,
        command=assignment.words(checkpoint, out, seeds),
    )
    base = {} if alone else base_of(Path(checkpoint))
    remarks = tuple(line.removeprefix("note: ") for line in shared)
    return Assigned(recipe, files, labels, texts, request, from_scratch, base, remarks)


def _run(made: Recipe, request: Request, folder: Path, within: float | None = None) -> Outcome:
    if made.stages:
        return run_stages(made, request, folder, None)
    spend = the_budget(made, None, folder, extend=request.extend)
    if within is not None and made.training.epochs:
        spend = Budget("seconds", within, passes=float(made.training.epochs))
    return run_stage(made, request, folder, spend, begin_of(made, request, {}))


def begins_alone(checkpoint: str | Path) -> bool:
    """Whether a recipe is named in place of a checkpoint: one of a task that begins at random."""
    return str(checkpoint) in own_task_recipe_names() and not Path(checkpoint).is_dir()


def maker_of(
    checkpoint: str | Path, assignment: Assignment, loaded: Loaded | None, *, from_scratch: bool = False
) -> RecipeMaker:
    """`recipe_maker` for a checkpoint; of a task that begins at random, its recipe as it is written."""
    if loaded is not None:
        if assignment.init is not None:
            raise TaskError(
                f"--init {assignment.init}: is for a recipe that starts without a checkpoint, such as fasttext-supervised; "
                f"{checkpoint} has weights. Leave --init out."
            )
        return recipe_maker(assignment, loaded, from_scratch=from_scratch)
    name = assignment.own_recipe(str(checkpoint))
    recipe = name if assignment.init is None else with_vectors(name, assignment.init)

    def load(values: Sequence[str]) -> Recipe:
        return load_recipe(recipe, overrides=[*values, *assignment.overrides], with_files=assignment.with_files)

    def make(*, labels: Mapping[str, Counts] | None = None, report: Say = lambda line: None) -> Recipe:
        plain = load([])
        changes = fit_texts(plain, labels) if labels is not None and assignment.recipe is None else []
        if not changes:
            return plain
        held, fitted_recipe = holding(load, changes)
        if held:
            rows = sum(counts.rows for counts in labels.values()) if labels is not None else 0
            title = f"{fitted_recipe.name} fitted to {rows:,} rows (published → fitted; --set overrides):"
            report(table_of(title, held, [change.override for change in held]))
        return fitted_recipe

    return make


class RecipeMaker(Protocol):
    """`recipe_onto` with all but its last arguments."""

    def __call__(self, *, labels: Mapping[str, Counts] | None = None, report: Say = ...) -> Recipe: ...


def recipe_maker(assignment: Assignment, loaded: Loaded, *, from_scratch: bool = False) -> RecipeMaker:
    """`recipe_onto` for the recipe of an assignment. Rows that belong to documents cannot be tuned: a `TaskError`."""
    network: Any = loaded.network
    if network.of_documents:
        raise TaskError(
            f"{loaded.folder}: holds vectors of documents, and a task has no documents of that corpus to tune.\n"
            f"  Use vectors of the task's texts as features of a classifier: cloze embed {quote(str(loaded.folder))} "
            "--file TEXTS --out VECTORS.npy"
        )
    recipe: Any = assignment.recipe_for(loaded)
    recipe = going_on(str(recipe), loaded) if str(recipe) in own_task_recipe_names() else recipe
    named = origins_in(read_tree(recipe))
    bound = {name: folder for name, folder in assignment.checkpoints.items() if name in named}
    make = partial(
        recipe_onto, recipe, loaded, teachers={name: Origin.of(load_checkpoint(folder)) for name, folder in bound.items()},
        overrides=assignment.overrides, changes=assignment.changes, auxiliary=assignment.auxiliary,
        annotate=parse_annotators(assignment.annotate), shown=assignment.shown, with_files=assignment.with_files,
        checkpoints=assignment.checkpoints, from_scratch=from_scratch,
    )
    tables = bound_tables(make(), parse_binds(assignment.binds)) if assignment.binds else {}
    return partial(make, overrides=[*assignment.overrides, *tables.values()])


def _files(made: Recipe, assignment: Assignment) -> dict[str, Labelled]:
    """The files of every source of a recipe. A source without files, or files without a source, are a `TaskError`."""
    sources = _sources(made)
    files = assignment.files(sources)
    for name in [name for name in files if name not in sources]:
        raise TaskError(f"{made.name}: has no source {name!r} for the task of that name. Its sources: {', '.join(sources)}.")
    for name in sources:
        if name not in files or not files[name].train or not files[name].dev:
            option = f"--task {name}=TYPE:TRAIN,DEV" if len(sources) > 1 else "--train FILE --dev FILE"
            raise TaskError(f"{made.name}: the source {name!r} has no labelled text. Give it with {option}.")
    return files


def _sources(made: Recipe) -> list[str]:
    return list(dict.fromkeys(name for stage in stage_recipes(made) for name in stage.sources))


def labels_of(made: Recipe, assignment: Assignment, tokenizer: Tokenizer | None) -> dict[str, Counts] | None:
    """The counts of every source (`count_labels`); None if a source has no files."""
    files = assignment.files(_sources(made))
    has_files = all(name in files and files[name].train for name in _sources(made))
    return count_labels(made, files, tokenizer) if has_files else None


def _from_scratch(made: Recipe) -> Recipe:
    """The recipe with random weights in place of those of the checkpoint."""
    networks = {name: replace(n, origin=None) if n.origin == START else n for name, n in made.networks.items()}
    stages = tuple(replace(stage, recipe=_from_scratch(stage.recipe)) for stage in made.stages)
    return replace(made, networks=networks, stages=stages)


def base_of(checkpoint: Path) -> dict[str, str]:
    """The name of a checkpoint, and its identifier on the Hub where it lies in the cache of huggingface_hub."""
    path = checkpoint.resolve()
    cached = re.search(r"/models--([^/]+)--([^/]+)/snapshots/", f"{path}/")
    return {"name": cached[2], "hub": f"{cached[1]}/{cached[2]}"} if cached else {"name": path.name}


def _published(
    outcomes: Mapping[int, Outcome], out: Path, recipe: Recipe, *, from_scratch: bool, base: Mapping[str, str],
    remarks: Sequence[str],
) -> Tuned:
    """Publish the best of all seeds in `out`, and complete its task.json with the results."""
    assert recipe.task is not None  # it is the recipe of a task
    keeps_best = recipe.task.keep == "best"
    done = {
        seed: outcome.standing.given(best=keeps_best) for seed, outcome in outcomes.items()
        if outcome.finished and outcome.standing is not None
    }
    if not done or len(done) < len(outcomes) or rank() != 0:
        return Tuned(outcomes, out, {})
    best = max(done, key=lambda seed: done[seed].worth)
    standing, folder = done[best], outcomes[best].folder
    if folder != out:
        step = standing.step if keeps_best else outcomes[best].step
        publish(Checkpoints(folder).path(step), out)
    path = out / "cloze" / "task.json"
    described = {
        **json.loads(path.read_text(encoding="utf-8")), "seed": best, "epoch": standing.evaluation, "dev": standing.metrics,
        "trials": [
            {"seed": seed, "epoch": trial.evaluation, "epochs": trial.evaluations, "metrics": trial.metrics}
            for seed, trial in done.items()
        ],
        **({} if standing.start is None else {"frozen": standing.start}),
        "spread": spread([trial.metrics for trial in done.values()]), "from_scratch": from_scratch,
        **({"base": base} if base and not from_scratch else {}),
        "remarks": [
            *json.loads((out / "cloze" / "network.json").read_text(encoding="utf-8")).get("remarks", []), *remarks
        ],
    }  # fmt: skip
    write_description(path, described)
    return Tuned(outcomes, out, described)
