"""Pre-training and fine-tuning as functions: text in memory or on disk in, a `Model` out."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from itertools import compress
from pathlib import Path
from typing import Any

from cloze import rng
from cloze.assembly import finetune as tuning
from cloze.assembly import run as running
from cloze.assembly.build import load_checkpoint
from cloze.assembly.finetune import measured_on
from cloze.corpus.readers.formats import with_column
from cloze.errors import TaskError
from cloze.notebook.model import Model
from cloze.notebook.texts import documents, keep, kept_in, paths_or_texts
from cloze.tasks.given import Named, as_records, naming_rows
from cloze.tasks.task import Task
from cloze.tasks.task import task as make_task
from cloze.training.run import Outcome

Corpus = str | Path | Iterable[Any]
Values = Mapping[str, Any] | Sequence[str]
Say = Callable[[str], None]


def pretrain(
    recipe: str | Path, *, corpus: Corpus, out: str | Path | None = None, budget: str | None = None, size: str | None = None,
    held_out: Corpus | None = None, text: str = "text", overrides: Values = (), init: Model | str | Path | None = None,
    tokenizer: str | Path | None = None, binds: Mapping[str, Any] | None = None, seed: int = 0, device: str = "auto",
    extend: bool = False, text_format: str = "auto", with_files: Sequence[str | Path] = (), as_published: bool = False,
    report: Say | None = print,
) -> Model:
    """Pre-train a recipe on texts within a budget; returns the model.

    recipe: a name (`cloze.load_recipe` knows them all) or a file. corpus: a path or paths, or texts: any iterable of strings,
    each a document; of rows, of a data frame or of a data set the column `text`. budget: "10m", "2000steps", "50Mtokens".
    out: the run's folder, in which a run that was stopped resumes when the same is given again; None: a temporary folder that
    is removed with the model (`model.save` keeps it). held_out: texts for the held-out loss in place of a share of the corpus.
    overrides: values of the recipe, {"training.batch": 64} or ["training.batch=64"]. init: a model to begin with. binds: by
    name paths, texts or models for what else the recipe reads. report: where lines go, None for nowhere.

    Raises a `ClozeError` for whatever cannot be run, before anything is trained. Ctrl-C stops after a checkpoint; what is
    returned then is the model so far, and its `outcome.finished` is False.
    """
    with _reporting(report) as stack:
        folder, temporary = stack.enter_context(_folder(out))
        kept = stack.enter_context(kept_in(folder))

        def given(what: str, value: Any) -> list[str]:
            paths = paths_or_texts(value, what)
            if paths is not None:
                return [f"{path}" for path in paths]
            return [str(keep(kept, what, documents(value, text, what), what))]

        bound = [f"{name}={path}" for name, value in (binds or {}).items() for path in _bound(name, value, given)]
        outcome = running.pretrain(
            recipe, corpus=given("corpus", corpus), out=folder, budget=budget, size=size, overrides=_overrides(overrides),
            tokenizer=None if tokenizer is None else Path(tokenizer),
            held_out=None if held_out is None else given("held_out", held_out), init=_checkpoint(init),
            text_format=with_column(text_format, _column(corpus, text), None), binds=bound, seed=seed, device=device,
            extend=extend, with_files=[Path(file) for file in with_files], as_published=as_published, report=report or _nothing,
        )
    return _trained(outcome, folder, temporary, device, report)


def finetune(
    model: Model | str | Path, *, train: Corpus, dev: Corpus | float, task: str = "sentence_classification",
    test: Corpus | None = None, out: str | Path | None = None, columns: Mapping[str, str] | None = None,
    seeds: Sequence[int] = (1,), recipe: str | Path | None = None, overrides: Values = (),
    binds: Mapping[str, Any] | None = None, device: str = "auto", extend: bool = False, from_scratch: bool = False,
    report: Say | None = print,
) -> Model:
    """Fine-tune a model on labelled text, chosen by its metric on `dev`; returns the model of the best epoch and seed.

    train, dev, test: a file, or rows: tuples of the task's columns, [(text, label), …], [(text, text_b, label), …]; or rows by
    column: dictionaries, a data frame, a data set. dev may be a share of the training rows, drawn by the first seed. columns:
    where rows name their columns otherwise: {"text": "review", "label": "stars"}. The rest is as in `pretrain`.

    `model.metrics` of the result are those on dev, `model.described["test"]` those on test, `model.described["spread"]` mean
    and deviation over the seeds. What the model was read from is not changed.
    """
    source = model.folder if isinstance(model, Model) else Path(model)
    read = make_task(task, **(columns or {}))
    values = [f"corpus.{kind}={json.dumps(name)}" for kind, name in (columns or {}).items()]
    if isinstance(dev, float):
        train, dev = _divided(train, dev, read, seeds[0])
    with _reporting(report) as stack:
        folder, temporary = stack.enter_context(_folder(out))
        kept = stack.enter_context(kept_in(folder))
        parts = {"train": train, "dev": dev} | ({} if test is None else {"test": test})
        files = {what: _rows_file(kept, what, value, read) for what, value in parts.items()}
        stack.enter_context(naming_rows({
            Path(file): Named(f"{what}: row ", what) for what, file in files.items() if Path(file).parent == kept
        }))  # fmt: skip
        bound = [f"{name}={path}" for name, value in (binds or {}).items() for path in _bound(name, value, _only_paths)]
        tuned = tuning.finetune(
            source, task=task, train=[files["train"]], dev=[files["dev"]], out=folder, seeds=seeds, recipe=recipe,
            overrides=[*values, *_overrides(overrides)], binds=bound, device=device, extend=extend, from_scratch=from_scratch,
            report=report or _nothing,
        )
        if test is not None:
            measured_on(tuned, [files["test"]], "test")
    best = tuned.described.get("seed", list(tuned.outcomes)[-1])
    return _trained(tuned.outcomes[best], folder, temporary, device, report)


def _column(corpus: Corpus, text: str) -> str | None:
    """The column to read of files; what was in memory has become files with the usual one."""
    return None if text == "text" or paths_or_texts(corpus, "corpus") is None else text


@contextmanager
def _reporting(report: Say | None) -> Iterator[ExitStack]:
    """What is entered for the time of a run; where nothing is reported, the line of progress goes, too."""
    with ExitStack() as stack:
        if report is None:
            stack.enter_context(redirect_stderr(stack.enter_context(open(os.devnull, "w", encoding="utf-8"))))
        yield stack


@contextmanager
def _folder(out: str | Path | None) -> Iterator[tuple[Path, Path | None]]:
    """The folder of a run, and the temporary one that it is in, which goes if the run fails; None where `out` is given."""
    if out is not None:
        yield Path(out), None
        return
    temporary = Path(tempfile.mkdtemp(prefix="cloze-"))
    try:
        yield temporary / "model", temporary
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _trained(outcome: Outcome, folder: Path, temporary: Path | None, device: str, report: Say | None) -> Model:
    if not outcome.finished and report is not None:
        again = "" if temporary is not None else " The same call resumes it."
        report(f"stopped at step {outcome.step:,} by {outcome.reason}.{again}")
    return Model(load_checkpoint(folder, device), outcome=outcome, temporary=temporary)


def _overrides(values: Values) -> list[str]:
    if isinstance(values, Mapping):
        return [f"{path}={json.dumps(value)}" for path, value in values.items()]
    return list(values)


def _checkpoint(init: Model | str | Path | None) -> Path | None:
    return init.folder if isinstance(init, Model) else None if init is None else Path(init)


def _bound(name: str, value: Any, given: Callable[[str, Any], list[str]]) -> list[str]:
    return [str(value.folder)] if isinstance(value, Model) else given(name, value)


def _only_paths(what: str, value: Any) -> list[str]:
    paths = paths_or_texts(value, what)
    if paths is None:
        raise TaskError(f"binds: {what}: expected a model or the path of one.")
    return paths


def _rows_file(folder: Path, what: str, given: Any, task: Task) -> str:
    """The file with the rows that were given."""
    if isinstance(given, (str, Path)):
        return str(given)
    return str(keep(folder, what, as_records(given, task, labelled=True), what))


def _divided(train: Any, share: float, task: Task, seed: int) -> tuple[list[Any], list[Any]]:
    """The training rows without a share of them, and that share; drawn by the seed."""
    if not 0 < share < 1:
        raise TaskError(f"dev={share}: expected rows, a file, or a share of the training rows between 0 and 1.")
    if isinstance(train, (str, Path)):
        raise TaskError(f"dev={share}: a share can be taken of rows in memory; {train} is a file. Give a file for dev, too.")
    rows = list(as_records(train, task, labelled=True))
    count = round(share * len(rows))
    if not 0 < count < len(rows):
        raise TaskError(f"dev={share}: {count} of {len(rows)} rows; expected at least one for dev and one to train on.")
    chosen = set(rng.permutation(len(rows), seed, "dev")[:count].tolist())
    inside = [number in chosen for number in range(len(rows))]
    return list(compress(rows, [not one for one in inside])), list(compress(rows, inside))


def _nothing(line: str) -> None:
    """Where nothing is reported."""
