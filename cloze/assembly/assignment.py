"""What a checkpoint is fine-tuned for: tasks with their files, and the recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloze.assembly.binding import parse_binds
from cloze.assembly.build import Loaded
from cloze.assembly.load import own_task_recipe_names, pretraining_recipe_names, sentence_recipe_names, task_recipe_names
from cloze.assembly.recipe import Recipe
from cloze.assembly.several import FIRST, START, Labelled, after, several, similar_task
from cloze.assembly.showing import ShownItems
from cloze.errors import TaskError, propose

KEEP_CHECKPOINTS = "--keep-checkpoints"


@dataclass(frozen=True)
class Assignment:
    """The `task` with its `train` and `dev` files, or several `tasks` by name; `first` is a task that is trained before them.
    Without a `task` it is that of the recipe, or sentence_classification.

    `recipe` replaces the one that cloze has for the task; `overrides` set values in it, `with_files` register parts for it,
    `binds` are `NAME=FOLDER` for further checkpoints that its networks come from (a teacher), `changes` are done to the
    checkpoint's network (`lora=8`), `auxiliary` is the weight of the checkpoint's language model, which is trained along,
    `annotate` are `NAME=PART:FILE` for the labelled layers that the checkpoint reads, and `shown` are the items of the pictures
    that rows are about. `init` are vectors from which the rows of words begin, for a recipe that begins without a checkpoint.
    `encoding` is the one that the command line names for the files (`cloze.text.encodings.reading_as`).
    `test` is the file that the result is measured on. `baselines`: a linear model on n-grams is fitted for comparison,
    and with `mix_ngrams` its answers are mixed with those of the network.
    """

    task: str | None = None
    train: Sequence[str] = ()
    dev: Sequence[str] = ()
    tasks: Mapping[str, Labelled] = field(default_factory=dict)
    first: Labelled | None = None
    recipe: str | Path | None = None
    overrides: Sequence[str] = ()
    binds: Sequence[str] = ()
    changes: Sequence[str] = ()
    with_files: Sequence[Path] = ()
    auxiliary: str | None = None
    annotate: Sequence[str] = ()
    shown: ShownItems = ShownItems()
    init: Path | None = None
    encoding: str | None = None
    test: str | None = None
    baselines: bool = True
    mix_ngrams: bool = False

    @property
    def kind(self) -> str:
        """The type of the task."""
        return self.task or "sentence_classification"

    def require_task(self, recipe: Recipe, checkpoint: str | Path) -> None:
        """Raise a `TaskError` if the recipe has no task; for one of cloze's for pre-training, with the command that it is for."""
        if recipe.task is not None:
            return
        shown = str(self.recipe or recipe.name)
        if shown in pretraining_recipe_names():
            bound = f"--bind {START}={checkpoint} " if shown in sentence_recipe_names() else ""
            raise TaskError(
                f"{shown}: this recipe is for pre-training, on text without labels.\n"
                f"  cloze pretrain {shown} {bound}--corpus TEXT --out DIR"
            )
        raise TaskError(
            f"{shown}: this recipe has no `task:`. Add one; it states how the recipe is measured: `task: {{type: {self.kind}}}`."
        )

    def require_kinds(self, recipe: Recipe) -> None:
        """Raise a `TaskError` if the recipe that was named teaches another type of task than `task` or `tasks` name."""
        asked = {name: one.type for name, one in self.tasks.items()} if self.tasks else {"": self.task}
        own = {spec.source: spec.task.type for spec in recipe.entries.values() if spec.task is not None}
        taught = own if self.tasks else {"": None if recipe.task is None else recipe.task.type}
        for name, kind in asked.items() if self.recipe is not None else ():
            if kind not in (None, str(self.recipe)) and taught.get(name) not in (None, kind):
                way = "Name the task of the recipe." if name else f"Leave out --task, or leave out --recipe to train for {kind}."
                asked_for = f"{name}={kind}" if name else kind
                raise TaskError(f"--task {asked_for}: the recipe {self.recipe} teaches {taught[name]}.\n  {way}")

    def recipe_for(self, loaded: Loaded) -> str | Path | dict[str, Any]:
        """The recipe: the named one, a built-in one, or one that combines the recipes of several tasks.

        If the task has a recipe of its own for the checkpoint's recipe (ulmfit: ulmfit_classification), that one is used.
        """
        if self.recipe is not None:
            return self.recipe
        if self.first is not None:
            return after(self.first, self.tasks or {"main": Labelled(self.kind, (), ())})
        if self.tasks:
            return several(self.tasks)
        if self.kind not in task_recipe_names():
            raise TaskError(f"--task {self.kind}: unknown task. {similar_task(self.kind)}")
        own = f"{(loaded.recipe or {}).get('name')}_{self.kind.removeprefix('sentence_')}"
        return own if own in task_recipe_names() else self.kind

    def own_recipe(self, name: str) -> str | Path:
        """The recipe for this task of a system that begins without a checkpoint, by the name of the system."""
        changed = {
            "--first": self.first, "--change": self.changes, "--auxiliary": self.auxiliary, "--task NAME=": self.tasks,
            "--items": self.shown.given,
        }  # fmt: skip
        for option, given in changed.items():
            if given:
                raise TaskError(f"{name}: starts without a checkpoint, so {option} does not apply. Omit {option}.")
        if self.recipe is not None:
            return self.recipe
        own = name if self.kind == "sentence_classification" else f"{name}_{self.kind}"
        if own not in own_task_recipe_names():
            known = [one.removeprefix(f"{name}_") for one in own_task_recipe_names() if one.startswith(f"{name}_")]
            raise TaskError(
                f"{name}: has no recipe for --task {self.kind}. {propose(self.kind, ['sentence_classification', *known])}"
            )
        return own

    def files(self, sources: Sequence[str]) -> dict[str, Labelled]:
        """The files that were given, by the source of a recipe that reads them."""
        alone = "main" if "main" in sources else sources[0]
        own = self.tasks or {alone: Labelled(self.kind, tuple(map(str, self.train)), tuple(map(str, self.dev)))}
        return {**({} if self.first is None else {FIRST: self.first}), **own}

    def words(self, checkpoint: str | Path, out: Path, seeds: Sequence[int], *options: str) -> tuple[str, ...]:
        """The equivalent command line, with further `options`; empty if there is none (several files of one kind)."""
        one = [Labelled(self.kind, tuple(map(str, self.train)), tuple(map(str, self.dev)))]
        if any(len(files) != 1 for task in (self.tasks.values() or one) for files in (task.train, task.dev)):
            return ()
        words = ["cloze", "finetune", str(checkpoint)]
        if self.first is not None:
            words += ["--first", _typed(self.first)]
        if self.tasks:
            words += [word for name, task in self.tasks.items() for word in ("--task", f"{name}={_typed(task)}")]
        else:
            words += ["--task", self.kind] if self.task is not None or self.recipe is None else []
            words += ["--train", *one[0].train, "--dev", *one[0].dev]
        words += ["--init", str(self.init)] if self.init is not None else []
        words += ["--encoding", self.encoding] if self.encoding is not None else []
        words += ["--recipe", str(self.recipe)] if self.recipe is not None else []
        words += [word for override in self.overrides for word in ("--set", override)]
        words += [word for bind in self.binds for word in ("--bind", bind)]
        words += [word for one in self.annotate for word in ("--annotate", one)]
        words += [word for one in self.shown.given for word in ("--items", one)]
        words += ["--picture", self.shown.picture] if self.shown.picture is not None else []
        words += [word for change in self.changes for word in ("--change", change)]
        words += ["--auxiliary", self.auxiliary] if self.auxiliary is not None else []
        words += [word for file in self.with_files for word in ("--with", str(file))]
        words += ["--seeds", ",".join(map(str, seeds))] if tuple(seeds) != (1,) else []
        words += ["--test", self.test] if self.test is not None else []
        words += [] if self.baselines else ["--no-baselines"]
        words += ["--mix-ngrams"] if self.mix_ngrams else []
        return (*words, *options, "--out", str(out))

    @property
    def checkpoints(self) -> dict[str, Path]:
        """The folders that are bound, by name."""
        return {name: Path(given[0]) for name, given in parse_binds(self.binds).items()}


def _typed(task: Labelled) -> str:
    """A task as it is typed: TYPE:TRAIN,DEV."""
    return f"{task.type}:{','.join(task.train)},{','.join(task.dev)}"
