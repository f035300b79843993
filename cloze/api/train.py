"""Pre-training and fine-tuning as functions: text in memory or on disk in, a `Model` out."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import fields, replace
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

from cloze import rng
from cloze.api.items import ItemFiles, item_files
from cloze.api.model import Model
from cloze.api.texts import documents, keep, kept_in, paths_or_texts
from cloze.arguments import check_arguments, require_known
from cloze.checkpoint.build import load_checkpoint
from cloze.corpus.readers.blocks import has_tables
from cloze.corpus.readers.hub_tables import local_table
from cloze.corpus.readers.report import TEXTS_FOLDER
from cloze.corpus.stores.store import Store
from cloze.display import silenced
from cloze.errors import Phrase, Say, TaskError, spelled_by
from cloze.hub import local_folder
from cloze.runs import planning
from cloze.runs import run as running
from cloze.runs.finetuning.finetune import run_finetuning
from cloze.runs.finetuning.measure_result import measure_on_files
from cloze.runs.finetuning.task_recipe import PICTURE
from cloze.runs.options import FinetuneOptions, PretrainOptions, quiet
from cloze.runs.plan import Plans
from cloze.tasks.given import Named, as_records, columns_of, naming_rows
from cloze.tasks.task import Task
from cloze.tasks.task import task as make_task
from cloze.text.encodings import reading_as
from cloze.training.run import Outcome

Corpus = str | Path | Iterable[Any]
Values = Mapping[str, Any] | Sequence[str]
Inits = Model | str | Path | Mapping[str, Model | str | Path] | None


@check_arguments
def pretrain(
    recipe: str | Path, *, corpus: Corpus, out: str | Path | None = None, budget: str | None = None, size: str | None = None,
    held_out: Corpus | None = None, text: str = "text", overrides: Values = (), init: Inits = None,
    tokenizer: str | Path | None = None, binds: Mapping[str, Any] | None = None, seed: int = 0, device: str = "auto",
    extend: bool = False, text_format: str = "auto", with_files: Sequence[str | Path] = (), fit: bool | None = None,
    track: Sequence[str] = (), track_model: bool = False, report: Say | None = print,
) -> Model:
    """Pre-train a recipe on text within a budget. All arguments but `recipe` and `corpus` are independent options.

    Args:
        recipe: The name of a recipe (`cloze list` prints them) or a file.
        corpus: A path or several; or an iterable of strings, each a document; or rows, a data frame or a data set.
        out: The run folder. The same call resumes a run that was stopped. None: a temporary folder, which is deleted together
            with the model; `model.save` keeps the model.
        budget: For example "10m", "2000steps" or "50Mtokens". None: the published budget.
        size: tiny, mini, small, medium, base or large: rescales the networks.
        held_out: Texts for the held-out loss. None: a fraction of the corpus.
        text: The column that holds the text of a row.
        overrides: Values of the recipe, `{"training.batch": 64}` or `["training.batch=64"]`.
        init: A model to start from, or a mapping from the names of networks to models.
        tokenizer: The folder of a tokenizer. None: one is trained on the corpus.
        binds: Paths, texts or models for the other inputs that the recipe names.
        seed: The seed of the run.
        device: auto, cpu, cuda or cuda:N.
        extend: Resume a finished run with a larger budget.
        text_format: How to read the files, if their names do not show it.
        with_files: Python files that register parts.
        fit: Whether to fit the recipe to the budget. None: a built-in recipe is fitted, one of your own is not.
        track: Where the numbers also go: "tensorboard", "wandb", "mlflow", "trackio"; "wandb=NAME" names the run there.
        track_model: Whether trackers also keep the finished model.
        report: Called with every line that a run prints. None prints nothing.

    Returns:
        The model. After Ctrl-C it is the model at that step, and `model.outcome.finished` is False.

    Raises:
        ClozeError: The run cannot start. Nothing has been trained.
    """
    with reporting(report) as stack:
        folder, temporary = stack.enter_context(_folder(out))
        corpus_folder = stack.enter_context(kept_in(folder))

        def given(what: str, value: Any) -> list[str]:
            paths = paths_or_texts(value, what)
            if paths is not None:
                return [f"{path}" for path in paths]
            return [str(keep(corpus_folder, what, documents(value, text, what), what))]

        bound = [f"{name}={path}" for name, value in (binds or {}).items() for path in _bound(name, value, given)]
        outcome = running.pretrain(
            recipe, corpus=given("corpus", corpus), out=folder, budget=budget, size=size, overrides=overrides_of(overrides),
            tokenizer=None if tokenizer is None else local_folder(tokenizer),
            held_out=None if held_out is None else given("held_out", held_out), init=_checkpoints(init),
            text_format=text_format, column=_column(text, (corpus, held_out), text_format), binds=bound, seed=seed, device=device,
            extend=extend, with_files=[Path(file) for file in with_files], fit=fit, track=track, track_model=track_model,
            report=report or quiet,
        )
    return _trained(outcome, folder, temporary, device, report)


@check_arguments
def plan(
    recipe: str | Path, *, corpus: Corpus, budget: str | None = None, size: str | None = None, held_out: Corpus | None = None,
    text: str = "text", overrides: Values = (), out: str | Path = "RUN", **options: Any,
) -> Plans:
    """What `pretrain` with these arguments would buy. Nothing is trained, and nothing is written.

    Args:
        recipe: As for `pretrain`, like `corpus`, `budget`, `size`, `held_out`, `text` and `overrides`.
        out: The folder that the commands in the plan name.
        options: Further `cloze.runs.options.PretrainOptions`.

    Returns:
        One plan per stage of the recipe. `str(plan)` is what `cloze pretrain --plan` prints.

    Raises:
        ClozeError: As `pretrain`.
    """
    require_known("plan", options, [option.name for option in fields(PretrainOptions)])
    with tempfile.TemporaryDirectory(prefix="cloze-plan-") as folder:

        def paths(what: str, value: Any) -> list[str]:
            texts = Path(folder) / TEXTS_FOLDER
            return paths_or_texts(value, what) or [str(keep(texts, what, documents(value, text, what), what))]

        if held_out is not None:
            options["held_out"] = paths("held_out", held_out)
        if (column := _column(text, (corpus, held_out), options.get("text_format", "auto"))) is not None:
            options["column"] = column
        plans = planning.plan(
            recipe, corpus=paths("corpus", corpus), out=out, budget=budget, size=size, overrides=overrides_of(overrides),
            **options,
        )
        in_folder = re.compile(rf"{re.escape(folder)}\S*")
        return Plans(replace(plan, ways=tuple(in_folder.sub("TEXT", way) for way in plan.ways)) for plan in plans)


@check_arguments
def finetune(
    model: Model | str | Path, *, train: Corpus, dev: Corpus | float, task: str | None = None,
    test: Corpus | None = None, out: str | Path | None = None, columns: Mapping[str, str] | None = None,
    seeds: Sequence[int] = (1,), recipe: str | Path | None = None, overrides: Values = (),
    binds: Mapping[str, Any] | None = None, changes: Sequence[str] = (), auxiliary: float | str | None = None,
    items: ItemFiles = None, init: Model | str | Path | None = None, device: str = "auto", extend: bool = False,
    keep_checkpoints: bool = False, from_scratch: bool = False, with_files: Sequence[str | Path] = (),
    encoding: str | None = None, baselines: bool = True, mix_ngrams: bool = False, fit: bool | None = None,
    track: Sequence[str] = (), track_model: bool = False, report: Say | None = print,
) -> Model:
    """Fine-tune a model on labelled text. The metric on `dev` selects the best epoch and seed.

    All arguments but `model`, `train` and `dev` are independent options; those that are not listed are as in `pretrain`.

    Args:
        model: A model, its folder, or its name on the Hugging Face Hub. It is not changed.
        train: A file; or tuples in the order of the task's columns, `[(text, label), …]` or `[(text, text_b, label), …]`; or
            dictionaries, a data frame or a data set.
        dev: As `train`, or the fraction of the training rows to hold out; the first seed draws them.
        task: The name of a task (`cloze list` prints them); default: sentence_classification.
        test: As `train`. Its metrics are in `described["test"]` of the result.
        columns: Your names of the task's columns, `{"text": "review", "label": "stars"}`.
        seeds: One run for each. `described["spread"]` of the result has the mean and the standard deviation.
        recipe: A recipe to use instead of the task's own.
        changes: Changes of the network, `["lora=8"]`.
        auxiliary: The weight of the model's own language model, which is trained along.
        items: The file with the items of the pictures that rows are about, or a file for each set of items, by name. A row then
            ends its texts with the key of its picture, `[(text, picture, label), …]`.
        init: With fasttext-supervised: vectors from which the rows of words start, a file or a model.
        extend: Resume a finished run for more epochs; it must have kept its checkpoints.
        keep_checkpoints: Keep the checkpoints of the finished run, which are several times as large as the model.
        from_scratch: Start from random weights instead of the model's.
        encoding: The encoding of the files. None: it is detected.
        baselines: Whether to fit a linear model on n-grams to the same rows, for comparison; `described["ngrams"]` of the result
            has its metrics. It takes seconds and needs scikit-learn.
        mix_ngrams: Whether the answers of the network are mixed with those of that linear model; `dev` chooses the share.
        fit: Whether to fit the recipe to the model and to the rows; False trains it as published. None: a built-in recipe is
            fitted, one of your own is not.

    Returns:
        The best model. Its `metrics` are those on `dev`.

    Raises:
        ClozeError: The run cannot start, or a row cannot be used; the message names the row.
    """
    source = model.folder if isinstance(model, Model) else local_folder(model)
    item_paths = item_files(items)
    columns = {**({"picture": PICTURE} if item_paths else {}), **(columns or {})}
    read = make_task(task or "sentence_classification", **columns)
    values = [f"corpus.{kind}={json.dumps(name)}" for kind, name in columns.items()]
    numbers: Mapping[str, list[int]] = {}
    if isinstance(dev, (int, float)):
        train, dev, numbers = _divided(train, dev, read, seeds[0])
    with reporting(report) as stack:
        stack.enter_context(reading_as(encoding, report or quiet))
        folder, temporary = stack.enter_context(_folder(out))
        corpus_folder = stack.enter_context(kept_in(folder))
        parts = {"train": train, "dev": dev} | ({} if test is None else {"test": test})
        in_memory = [what for what, value in parts.items() if not isinstance(value, (str, Path))]
        if encoding is not None and in_memory:
            raise TaskError(f"encoding={encoding!r}: is for files, and {in_memory[0]} is in memory. Give files, or omit it.")
        files = {what: _rows_file(corpus_folder, what, value, read) for what, value in parts.items()}
        stack.enter_context(naming_rows({
            Path(file): Named("train: row " if what in numbers else f"{what}: row ", what, numbers.get(what))
            for what, file in files.items() if Path(file).parent == corpus_folder
        }))  # fmt: skip
        stack.enter_context(spelled_by(_as_arguments))
        bound = [f"{name}={path}" for name, value in (binds or {}).items() for path in _bound(name, value, _only_paths)]
        tuned = run_finetuning(FinetuneOptions(
            source, folder, files["train"], files["dev"], task=task, test=files.get("test"), recipe=recipe, binds=bound,
            init=init.folder if isinstance(init, Model) else None if init is None else Path(init), changes=changes,
            overrides=[*values, *overrides_of(overrides)], auxiliary=None if auxiliary is None else str(auxiliary),
            items=item_paths, extend=extend, keep_checkpoints=keep_checkpoints, mix_ngrams=mix_ngrams, seeds=seeds,
            device=device, encoding=encoding, with_files=[Path(file) for file in with_files], baselines=baselines,
            from_scratch=from_scratch, fit=fit, track=track, track_model=track_model, report=report or quiet,
        ))
        if test is not None:
            measure_on_files(tuned, [files["test"]], "test", item_paths)
    best = tuned.task_json.get("seed", list(tuned.outcomes)[-1])
    return _trained(tuned.outcomes[best], folder, temporary, device, report)


def _as_arguments(phrase: Phrase) -> str | None:
    """How a phrase about the columns of a table is written with the arguments of `finetune`."""
    name, value = phrase.parameter.key, phrase.parameter.value
    if name in ("text", "text_b", "label"):
        return phrase.naming(f'columns={{"{name}": {value}}}')
    return phrase.naming(f'overrides={{"{phrase.parameter.path}": {json.dumps(value)}}}') if name == "columns" else None


def _column(text: str, inputs: Sequence[Corpus | None], text_format: str) -> str | None:
    """The column to read of files; None for the usual one, which texts in memory have as files, and where all files are running
    text next to texts in memory."""
    if text == "text":
        return None
    paths = [None if value is None else paths_or_texts(value, "corpus") for value in inputs]
    if paths[0] is not None or any(
        has_tables(files, text_format) for files in paths if files is not None and not Store.is_store(files[0])
    ):
        return text
    return None


@contextmanager
def reporting(report: Say | None) -> Iterator[ExitStack]:
    """What is entered for the time of a run; where nothing is reported, the line of progress goes, too."""
    with ExitStack() as stack:
        if report is None:
            stack.enter_context(silenced())
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


def overrides_of(values: Values) -> list[str]:
    """Values by path as the command line has them, `PATH=VALUE`."""
    if isinstance(values, Mapping):
        return [f"{path}={json.dumps(value)}" for path, value in values.items()]
    return list(values)


def _checkpoints(init: Inits) -> dict[str, Path]:
    """The folder for each network; the exported one has no name."""
    models = init if isinstance(init, Mapping) else {} if init is None else {"": init}
    return {name: model.folder if isinstance(model, Model) else Path(model) for name, model in models.items()}


def _bound(name: str, value: Any, words_of: Callable[[str, Any], list[str]]) -> list[str]:
    return [str(value.folder)] if isinstance(value, Model) else words_of(name, value)


def _only_paths(what: str, value: Any) -> list[str]:
    paths = paths_or_texts(value, what)
    if paths is None:
        raise TaskError(f"binds: {what}: expected a model or the path of one.")
    return paths


def _rows_file(folder: Path, what: str, rows: Any, task: Task) -> str:
    """The file with the rows that were given."""
    if rows is None or isinstance(rows, (int, float)):
        raise TaskError(f"{what}={rows}: expected rows or a file.")
    if isinstance(rows, (str, Path)):
        return str(local_table(str(rows)))
    return str(keep(folder, what, as_records(rows, task, labelled=True), what))


class _Division(NamedTuple):
    """The training rows without a share of them, and that share, each with the numbers of the rows that the user gave, from 1."""

    train: list[Any]
    dev: list[Any]
    numbers: Mapping[str, list[int]]


def _divided(train: Any, share: float, task: Task, seed: int) -> _Division:
    """Training rows divided by the seed. Rows with the same texts stay together. Where answers are classes (two rows for each on
    average), none loses its last row to the dev set if other rows can be taken."""
    if not 0 < share < 1:
        raise TaskError(f"dev={share}: expected rows, a file, or a share of the training rows between 0 and 1.")
    if isinstance(train, (str, Path)):
        raise TaskError(f"dev={share}: a share can be taken of rows in memory; {train} is a file. Give a file for dev, too.")
    rows = list(as_records(train, task, labelled=True))
    count = round(share * len(rows))
    if not 0 < count < len(rows):
        raise TaskError(f"dev={share}: {count} of {len(rows)} rows; expected at least one for dev and one to train on.")
    texts, answers = columns_of(task)
    keys = [json.dumps([row.get(name) for name in texts], default=str) for row in rows]
    rows_of_key: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        rows_of_key.setdefault(key, []).append(number)
    labels = [{str(label) for name in answers for label in _each_label(row.get(name))} for row in rows]
    left = Counter(label for of_row in labels for label in of_row)
    left = left if 2 * len(left) <= len(rows) else Counter()
    chosen: set[int] = set()
    for last_rows_too in (False, True):
        for number in rng.permutation(len(rows), seed, "dev").tolist():
            if len(chosen) >= count:
                break
            group = set(rows_of_key[keys[number]]) - chosen
            lost = Counter(label for member in group for label in labels[member] if label in left)
            if last_rows_too or all(left[label] > lost[label] for label in lost):
                chosen |= group
                left -= lost
    if len(chosen) == len(rows):
        raise TaskError(
            f"dev={share}: all rows have the same texts, so training would see every dev row. Give rows with different texts, or "
            "dev rows of their own."
        )
    inside = [number in chosen for number in range(len(rows))]
    outside = [not held_out for held_out in inside]
    numbers = range(1, len(rows) + 1)
    return _Division(
        list(compress(rows, outside)), list(compress(rows, inside)),
        {"train": list(compress(numbers, outside)), "dev": list(compress(numbers, inside))},
    )


def _each_label(answer: Any) -> Iterable[Any]:
    return answer if isinstance(answer, list) else [answer]
