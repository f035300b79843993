"""The design of a comparison: candidates, tasks, ways of transferring, budgets, seeds; each read from the command line."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.several import similar_task
from cloze.checkpoint.uses import require_change
from cloze.corpus import Store
from cloze.corpus.readers.text_files import require_files
from cloze.corpus.records import check_records
from cloze.errors import (
    BudgetError,
    CheckpointError,
    CorpusError,
    Phrase,
    RecipeError,
    Spelling,
    TaskError,
    propose,
    spelled_by,
)
from cloze.hub import local_folder
from cloze.recipe.builders import build
from cloze.recipe.changes import check_change
from cloze.recipe.load import folders_of_recipes, load_recipe, load_sources, recipe_names, task_recipe_names, unknown_recipe
from cloze.recipe.parts import builder_of, names
from cloze.recipe.recipe import Recipe, as_plain_data
from cloze.recipe.user_files import import_files, require_parts
from cloze.reports.page import unique_names
from cloze.runs.options import PretrainOptions
from cloze.runs.request import to_be_fitted
from cloze.tasks.task import chosen_metric
from cloze.tasks.task import task as make_task
from cloze.text import Tokenizer
from cloze.training.schedule.budget import Budget
from cloze.training.trackers import require_trackers

FULL, FROZEN = "full", "frozen"
#: The recipe that reads a frozen network, by the type of task; other types have the change `features`.
FROZEN_RECIPES = {"sentence_classification": "frozen_features", "token_labelling": "frozen_labelling"}


class CandidateSystem(NamedTuple):
    """A recipe that is pre-trained with some values set, or an existing checkpoint. `varied` are the values in which it differs
    from other candidates of the same recipe."""

    name: str
    recipe: str | None = None
    values: tuple[str, ...] = ()
    checkpoint: Path | None = None
    varied: tuple[str, ...] = ()


class Transfer(NamedTuple):
    """A way of fine-tuning: everything (`full`), nothing but a head (`frozen`), or a change such as `lora=8`."""

    name: str

    @property
    def changes(self) -> list[str]:
        """The changes of the network, as `cloze finetune --change` has them."""
        return [] if self.name in (FULL, FROZEN) else [self.name]

    def changes_for(self, type: str) -> list[str]:
        """The changes for this type of task; if it has no recipe for a frozen network, its own recipe reads a mix of layers."""
        return ["features"] if self.name == FROZEN and type not in FROZEN_RECIPES else self.changes


class TaskFiles(NamedTuple):
    """A task by name: its type, and the files of its training, dev and test sets."""

    name: str
    type: str
    train: str
    dev: str
    test: str


class Metric(NamedTuple):
    """What a task is measured by, and whether more of it is better."""

    name: str
    more: bool


@dataclass(frozen=True)
class Design:
    """The experimental design of a comparison.

    `tuning` are values set in the recipes of tasks (`tuning_of`); `rates` is how many peak rates each candidate is tried with.
    `budgets` are in ascending order, and the answer is about the last one. `shared`: splits of a task may share rows. `fit`:
    whether recipes are fitted to their budget; None: built-in ones are. `encoding` is that of the tasks' files. `baselines`: a
    linear model on n-grams is fitted for each task. `track`: where the numbers of the cells' runs also go. `checked` adds the
    `recipes` and, by task, the `metrics` and the `task_recipes`.
    """

    candidates: Sequence[CandidateSystem]
    tasks: Sequence[TaskFiles]
    corpus: Sequence[str] = ()
    budgets: Sequence[Budget] = ()
    seeds: int = 3
    size: str | None = None
    transfers: Sequence[Transfer] = (Transfer(FULL),)
    rates: int = 1
    tuning: Sequence[str] = ()
    tokenizer: Path | None = None
    text_format: str = "auto"
    device: str = "auto"
    with_files: Sequence[Path] = ()
    shared: bool = False
    fit: bool | None = None
    encoding: str | None = None
    baselines: bool = True
    track: Sequence[str] = ()
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    task_recipes: Mapping[str, Recipe] = field(default_factory=dict)

    @property
    def factors(self) -> list[float]:
        """What the fitted peak rate is multiplied by: powers of two around 1, which comes first."""
        around = self.rates // 2
        return sorted((2.0**k for k in range(-around, around + 1)), key=lambda factor: (abs(factor - 1), factor))

    def command(self, candidate: CandidateSystem, budget: Budget) -> PretrainOptions:
        """The command that pre-trains a recipe within a budget."""
        return PretrainOptions(
            candidate.recipe or "", (), size=self.size, budget=str(budget), overrides=candidate.values,
            with_files=self.with_files, fit=self.fit,
        )

    def as_written(self) -> list[str]:
        """The recipes that are trained as written, if others are fitted to the budget: that compares more than systems."""
        trained = [candidate for candidate in self.candidates if candidate.name in self.recipes]
        fitted = [to_be_fitted(self.command(candidate, self.budgets[-1]), self.recipes[candidate.name]) for candidate in trained]
        candidate_names = [candidate.name for candidate, is_fitted in zip(trained, fitted, strict=True) if not is_fitted]
        return candidate_names if any(fitted) else []

    def tuning_of(self, task: TaskFiles) -> list[str]:
        """The values for the recipe of a task: PATH=VALUE for all tasks, NAME:PATH=VALUE for one."""
        return [value for name, value in map(_of_task, self.tuning) if name in (None, task.name)]


def _of_task(value: str) -> tuple[str | None, str]:
    """NAME:PATH=VALUE as the task's name and PATH=VALUE; without a name, None."""
    path, equals, setting = value.partition("=")
    name, colon, override = path.partition(":")
    return (name, f"{override}{equals}{setting}") if colon else (None, value)


def _local(argument: str) -> str:
    """A candidate; a model of the hub as its folder."""
    try:
        return str(local_folder(argument))
    except CheckpointError:
        if Path(argument).name in folders_of_recipes():
            raise unknown_recipe(argument) from None
        raise


def candidates_of(arguments: Sequence[str], *, vary: Sequence[str] = (), values: Sequence[str] = ()) -> list[CandidateSystem]:
    """Recipes by name or file, folders of checkpoints, and each recipe with every combination of the values to `vary`."""
    arguments = [_local(argument) for argument in arguments]
    folders = [Path(argument) for argument in arguments if Path(argument).is_dir()]
    folder_names = dict(zip(folders, unique_names(folders), strict=True)) if folders else {}
    varied = [_values(option) for option in vary]
    candidates: list[CandidateSystem] = []
    for argument in arguments:
        if Path(argument) in folder_names:
            candidates.append(CandidateSystem(folder_names[Path(argument)], checkpoint=Path(argument)))
            continue
        for combination in product(*varied):
            name = Path(argument).stem if argument.endswith((".yaml", ".yml")) else argument
            candidate = CandidateSystem(
                " ".join([name, *combination]), known_recipe(argument), (*values, *combination), varied=combination
            )
            candidates.append(candidate)
    if not candidates:
        raise RecipeError(
            "nothing to compare: name recipes (see `cloze list`), files of recipes, or checkpoints.\n"
            "  To find the best model for a text and a few labelled rows: cloze best --corpus TEXT --train ROWS --out DIR"
        )
    options = (("--vary", vary), ("--set", values))
    if unused := [f"{option} {setting}" for option, all_of in options for setting in all_of if len(candidates) == len(folders)]:
        raise RecipeError(
            f"{unused[0]}: values of recipes; these candidates are checkpoints, which are only fine-tuned.\n"
            "  Values of fine-tuning are for --tune, such as --tune training.epochs=3."
        )
    twice = {first.name for first in candidates if sum(first.name == other.name for other in candidates) > 1}
    if twice:
        raise RecipeError(f"{', '.join(sorted(twice))}: named twice. Give each candidate once, and files different names.")
    return candidates


def is_recipe(name: str) -> bool:
    """Whether a candidate of this name is a recipe of cloze where no folder has the name."""
    return not {name, f"{name}-base", f"{name}-small"}.isdisjoint(recipe_names())


def known_recipe(name: str) -> str:
    """The name of a recipe, or the absolute path of its file.

    The name of a family stands for its base-sized recipe, or its only one: electra for electra-base.
    """
    if Path(name).is_file():
        return os.path.abspath(name)
    recipes = recipe_names()
    family = [base for base in (f"{name}-base", f"{name}-small") if base in recipes]
    if name in recipes or family:
        return name if name in recipes else family[0]
    if name in folders_of_recipes():
        raise RecipeError(
            f"{name}: this recipe begins with a checkpoint. Candidates are checkpoints, and recipes that pre-train from scratch."
        )
    raise unknown_recipe(name)


def _values(option: str) -> list[str]:
    """PATH=A,B as PATH=A and PATH=B."""
    path, equals, rest = option.partition("=")
    values = [value.strip() for value in rest.split(",")]
    if not equals or not path or not all(values):
        raise RecipeError(f"--vary {option}: expected PATH=VALUE,VALUE, such as exercise.mask.rate=0.15,0.3.")
    return [f"{path}={value}" for value in values]


def transfers_of(option: str, *, with_files: Sequence[Path] = ()) -> list[Transfer]:
    """Ways of fine-tuning from `full,frozen,lora=8,keep_layers=[0,2]`; the files may register changes."""
    import_files(with_files)
    transfers = [Transfer(way.strip()) for way in _split(option)]
    expected = (FULL, FROZEN, *names("change"))
    for transfer in transfers:
        name = transfer.name.partition("=")[0]
        if name not in expected:
            raise RecipeError(
                f"--transfer {transfer.name}: expected {FULL}, {FROZEN} or a change, such as lora=8. {propose(name, expected)}"
            )
        if transfer.changes:
            check_change(transfer.name, option="--transfer")
    if len({transfer.name for transfer in transfers}) < len(transfers):
        raise RecipeError(f"--transfer {option}: a way of fine-tuning is named twice.")
    return transfers


def _split(option: str) -> list[str]:
    """What commas separate; those within brackets belong to a value."""
    parts, depth = [""], 0
    for letter in option:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def tasks_of(options: Sequence[str]) -> list[TaskFiles]:
    """Tasks from NAME=TRAIN,DEV,TEST or NAME=TYPE:TRAIN,DEV,TEST. Without a type, a name that is one counts as the type, and
    otherwise it is sentence_classification."""
    tasks: list[TaskFiles] = []
    for option in options:
        name, equals, rest = option.partition("=")
        kind, colon, files = rest.partition(":")
        if not colon or kind not in task_recipe_names() and Path(rest.split(",")[0]).exists():
            kind, files = name if name in task_recipe_names() else "sentence_classification", rest
        if kind not in task_recipe_names():
            raise TaskError(f"--task {option}: unknown task {kind!r}. {similar_task(kind)}")
        parts = files.split(",")
        if not equals or not name.replace("_", "").replace("-", "").isalnum() or len(parts) != 3 or not all(parts):
            raise TaskError(
                f"--task {option}: expected NAME=TRAIN,DEV,TEST or NAME=TYPE:TRAIN,DEV,TEST; "
                "a name has letters, digits, _ and -.\n"
                "  The dev set selects the epoch and the rate; the test set is read once, at the end."
            )
        if name in {other.name for other in tasks}:
            raise TaskError(f"--task {option}: the name {name!r} is used twice. Give each task its own name.")
        tasks.append(TaskFiles(name, kind, *map(os.path.abspath, parts)))
    if not tasks:
        raise TaskError(
            "--task NAME=TRAIN,DEV,TEST is missing: what candidates are compared by.\n"
            "  To compare values of one recipe by the loss on held-out text, without a task: cloze sweep"
        )
    return tasks


def budgets_of(amounts: Sequence[str]) -> list[Budget]:
    """Budgets of one kind, in ascending order."""
    budgets = sorted((Budget.parse(amount) for amount in amounts), key=lambda budget: budget.amount)
    if len({budget.kind for budget in budgets}) > 1:
        raise BudgetError(f"--budget {' '.join(amounts)}: several budgets must be of one kind, all tokens or all flops.")
    if len({budget.amount for budget in budgets}) < len(budgets):
        raise BudgetError(f"--budget {' '.join(amounts)}: a budget is given twice.")
    return budgets


def checked(design: Design) -> Design:
    """The same with its recipes loaded. Whatever cannot be compared is refused before anything is trained or written."""
    import_files(design.with_files)
    require_trackers(design.track)
    if design.seeds < 1:
        raise TaskError(f"--seeds {design.seeds}: expected 1 or more, better 3 or more.")
    if design.rates < 1 or design.rates % 2 == 0:
        raise TaskError(f"--rates {design.rates}: expected an odd number, so that the fitted rate is in the middle: 1, 3 or 5.")
    for name, value in map(_of_task, design.tuning):
        if name is not None and name not in {task.name for task in design.tasks}:
            raise TaskError(f"--tune {name}:{value}: no task of that name. {propose(name, [task.name for task in design.tasks])}")
    if "-" in design.corpus:
        raise CorpusError("--corpus -: standard input can be read only once. Write the text into a file.")
    trained = [candidate for candidate in design.candidates if candidate.recipe is not None]
    if trained and not design.budgets:
        raise BudgetError(
            f"{trained[0].name}: --budget is missing: what each recipe may spend on pre-training, such as 20Mtokens or 1e16flops."
        )
    if trained and not design.corpus:
        raise CorpusError(f"{trained[0].name}: --corpus is missing: the text to pre-train on.")
    pretraining = {"--budget": design.budgets, "--corpus": design.corpus, "--size": design.size, "--tokenizer": design.tokenizer}
    unused = [option for option, value in pretraining.items() if value]
    if unused and not trained:
        raise BudgetError(f"{', '.join(unused)}: for recipes that are pre-trained; these candidates are checkpoints. Omit it.")
    if design.tokenizer is not None:
        tokenizer = Tokenizer.load(design.tokenizer)
        if len(design.corpus) == 1 and Store.is_store(design.corpus[0]):
            Store.open(design.corpus[0]).require_tokenizer(tokenizer.hash, whose=f"--tokenizer {design.tokenizer}")
    recipes = {}
    for candidate in trained:
        with spelled_by(as_varied(candidate.varied)):
            recipes[candidate.name] = load_recipe(
                candidate.recipe or "", size=design.size, overrides=list(candidate.values), with_files=design.with_files
            )
            check_recipe(recipes[candidate.name])
    for candidate in design.candidates:
        holds = candidate.checkpoint is None or any(
            (candidate.checkpoint / name).is_file() for name in ("config.json", "cloze/run.json")
        )
        if not holds:
            raise CheckpointError(
                f"{candidate.checkpoint}: holds no checkpoint. Candidates are recipes, their files, or checkpoints."
            )
        if candidate.checkpoint is not None:
            require_parts(candidate.checkpoint)
    with spelled_by(_as_tuned("")):
        tuned = {task.name: load_recipe(task.type, overrides=design.tuning_of(task)) for task in design.tasks}
    for task in design.tasks:
        with spelled_by(_as_tuned(f"{task.name}:")):
            _check_task(task, design)
    for name, recipe in recipes.items():
        for change in {name: None for way in design.transfers for task in design.tasks for name in way.changes_for(task.type)}:
            _require_change(name, recipe, change)
    metrics = {task.name: _metric(task.type, tuned[task.name]) for task in design.tasks}
    return replace(design, recipes=recipes, metrics=metrics, task_recipes=tuned)


def as_varied(values: Collection[str]) -> Spelling:
    """How the values of a recipe that are varied are written, each as `path=value`."""
    def written(phrase: Phrase) -> str | None:
        assignment = phrase.parameter.assignment
        return phrase.naming(f"--vary {assignment}") if assignment in values else None

    return written


def _as_tuned(task: str) -> Spelling:
    """How values of the recipe of a task are written, which begin with the name of the task."""
    def written(phrase: Phrase) -> str | None:
        parameter = phrase.parameter
        return phrase.naming(f"--tune {task}{parameter.assignment}") if parameter.style == "set" else None

    return written


def _require_change(name: str, recipe: Recipe, change: str) -> None:
    try:
        require_change(recipe, change)
    except CheckpointError as error:
        reason = str(error).removeprefix(f"{recipe.name}: ")
        reason = reason.replace(" Leave the change out.", "\n  Remove this way from --transfer, or this candidate.")
        raise CheckpointError(f"--transfer {change}, candidate {name}: {reason}") from None


def _metric(task: str, recipe: Recipe) -> Metric:
    head: Any = recipe.task
    task_kind = make_task(task)
    name = chosen_metric(task_kind, head.metric)
    return Metric(name, task_kind.metrics[name])


def _check_task(task: TaskFiles, design: Design) -> None:
    """Refuse files that cannot be read, rows that cannot be used, and rows that the training set shares with another."""
    files = (task.train, task.dev, task.test)
    require_files(files)
    if len(set(files)) < len(files) and not design.shared:
        twice = next(file for file in files if files.count(file) > 1)
        raise TaskError(f"--task {task.name}: {twice} is given twice. Training, dev and test sets must be different texts.")
    if any(Store.is_store(file) for file in files):
        return
    sources = load_sources(task.type, overrides=design.tuning_of(task))
    spec = next(iter(sources.values()))
    source: Any = build(builder_of(spec.kind, spec.name), as_plain_data(spec.arguments), {})
    report = check_records([task.dev, task.test], source.answer, source.columns, against=[task.train])
    if report.unusable:
        listing = "\n  ".join(str(problem).splitlines()[0] for problem in report.unusable[:3])
        more = f"\n  and {len(report.unusable) - 3:,} more" if len(report.unusable) > 3 else ""
        raise TaskError(f"--task {task.name}: rows cannot be used:\n  {listing}{more}\n  cloze corpus check lists all of them.")
    test_overlaps = check_records([task.test], source.answer, source.columns, against=[task.dev]).shared
    shared = [overlap for overlap in (*report.shared, *test_overlaps) if overlap.rows]
    if shared and not design.shared:
        listing = "\n  ".join(map(str, shared))
        raise TaskError(
            f"--task {task.name}: the splits share rows, so the test set would measure what was memorised:\n  {listing}\n"
            "  Remove them from one of the files. To compare all the same: --allow-shared."
        )
