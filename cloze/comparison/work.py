"""The work of one cell, in a process of its own: `python -m cloze.comparison.work CELL`, or `… CELL 0.3` up to that share of the
budget.

It calls `pretrain` and `finetune` as their verbs do. A run that was killed resumes; one process at a time works on a cell.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cloze.budget.fit import fit_vocabulary
from cloze.budget.fit_text import fit_normalisation, sample_for
from cloze.budget.fitted import apply_unless_overridden, text_bytes
from cloze.checkpoint.build import load_checkpoint
from cloze.comparison.best import answers
from cloze.comparison.cell import CELL, FAILED, read_json, result_file, result_of, write_json
from cloze.comparison.design import FROZEN, FROZEN_RECIPES
from cloze.comparison.spending import spent
from cloze.errors import ClozeError
from cloze.jobs import end_with_parent
from cloze.recipe.recipe import Recipe
from cloze.recipe.user_files import import_files
from cloze.runs.corpora import open_corpus
from cloze.runs.finetuning.finetune import row_counts_of, run_finetuning
from cloze.runs.finetuning.task_recipe import recipe_maker
from cloze.runs.options import FinetuneOptions, PretrainOptions
from cloze.runs.planning import fitted_recipe
from cloze.runs.request import to_be_fitted
from cloze.runs.run import pretrain
from cloze.tasks.evaluation import evaluate
from cloze.tasks.remarks import is_constant
from cloze.tasks.task import Evaluation, Learner
from cloze.tasks.task_json import constant_answer_of
from cloze.tasks.tuned_folder import load_tuned
from cloze.text.encodings import reading_as
from cloze.training.run import PAUSED

GROUPS = 1000  # at most so many scores of examples; more examples are put into groups


class Stopped(Exception):
    """A signal stopped the run; it has a checkpoint."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def store(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """The text as a token store, with the tokenizer of a recipe."""
    options = PretrainOptions(
        request["recipe"], (), size=request["size"], budget=request["budget"], overrides=request["values"],
        with_files=[Path(file) for file in request["with"]], fit=request["fit"],
    )
    recipe = options.load()
    size = text_bytes(request["corpus"])
    if request["tokenizer"] is None and size is not None and to_be_fitted(options, recipe):
        sample = sample_for(recipe, request["corpus"], request["format"])
        proposals = [*fit_vocabulary(recipe, size, sample), *fit_normalisation(recipe, sample)]
        _, recipe = apply_unless_overridden(options.load, proposals)
    token_store, tokenizer = open_corpus(
        recipe, request["corpus"], folder / "run", tokenizer=request["tokenizer"], text_format=request["format"], report=print
    )
    return {
        "store": "run/store", "tokens": token_store.size, "documents": token_store.documents, "vocabulary": tokenizer.size,
        "bytes": token_store.report.get("bytes"),
    }  # fmt: skip


def pre_train(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """A run of pre-training: what it spent, and its held-out loss along the way."""
    values = [*request["values"], *_rate(folder, request["factor"], lambda: _fitted(request))]
    outcome = pretrain(
        request["recipe"], corpus=[request["store"]], out=folder / "run", budget=request["budget"], size=request["size"],
        overrides=values, seed=request["seed"], device=request["device"], report=print,
        with_files=[Path(file) for file in request["with"]], until=request["until"],
        fit=request["fit"], track=_tracked(folder, request),
    )
    if not outcome.finished and outcome.reason != PAUSED:
        raise Stopped(outcome.exit_code)
    return spent(folder / "run", request["until"])


def fine_tune(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """A run of fine-tuning: its metrics on the dev and the test set, and a score for each example of the test set."""
    options = _tuning(folder, request)
    rate = _rate(folder, request["factor"], lambda: _onto(options))
    tuned = run_finetuning(replace(options, overrides=[*options.overrides, *rate]))
    stopped = [outcome for outcome in tuned.outcomes.values() if not outcome.finished]
    if stopped:
        raise Stopped(stopped[0].exit_code)
    learner, task_json = load_tuned(load_checkpoint(folder / "run", request["device"]))
    evaluation = evaluate(learner, learner.task.read(request["test"]), constant_answer=constant_answer_of(task_json))
    metric = request["metric"]
    return {
        "metric": metric, "dev": tuned.task_json["dev"][metric], "test": evaluation.metrics[metric],
        "metrics": evaluation.metrics, "examples": evaluation.examples,
        "baseline": None if evaluation.baseline is None else evaluation.baseline.get(metric),
        "constant": gives_one_answer(learner, evaluation), "scores": example_scores(learner, evaluation, metric),
        "trained": trained_parameters(learner, frozen=_frozen_recipe(request) is not None),
        "seconds": spent(folder / "run")["seconds"],
    }


def _tuning(folder: Path, request: Mapping[str, Any]) -> FinetuneOptions:
    """What a cell of fine-tuning asks for, at the fitted rate."""
    return FinetuneOptions(
        request["checkpoint"], folder / "run", request["train"], request["dev"], task=request["type"],
        recipe=_frozen_recipe(request), overrides=request["values"],
        changes=request["changes"], seeds=[request["seed"]], device=request["device"],
        with_files=[Path(file) for file in request["with"]], baselines=False, report=print,
        track=_tracked(folder, request),
    )


def _frozen_recipe(request: Mapping[str, Any]) -> str | None:
    """The recipe that reads a frozen network, if a cell asks for one and its type of task has it."""
    return FROZEN_RECIPES.get(request["type"]) if request["transfer"] == FROZEN else None


def _tracked(folder: Path, request: Mapping[str, Any]) -> list[str]:
    """The trackers of a cell, whose run is named after the comparison and the cell."""
    return [f"{tracker}={folder.parent.parent.name}/{folder.name}" for tracker in request["track"]]


def _rate(folder: Path, factor: float, fitted: Callable[[], Recipe]) -> tuple[str, ...]:
    """The override that multiplies the fitted peak rate. It is kept in the cell, because measuring again could fit another."""
    if factor == 1:
        return ()
    stored = read_json(folder / "rate.json")
    if stored is None:
        rate = fitted().training.rate
        peak = float(f"{rate.arguments['peak'] * factor:.3g}")
        stored = {"value": f"training.rate.{rate.name}.peak={peak}"}
        write_json(folder / "rate.json", stored)
    return (str(stored["value"]),)


def _fitted(request: Mapping[str, Any]) -> Recipe:
    fitted, _ = fitted_recipe(
        request["recipe"], request["budget"], corpus=request["store"], size=request["size"], overrides=request["values"],
        device=request["device"], with_files=[Path(file) for file in request["with"]], fit=request["fit"],
    )
    return fitted.recipe


def _onto(options: FinetuneOptions) -> Recipe:
    loaded = load_checkpoint(options.checkpoint)
    make_recipe = recipe_maker(options, loaded)
    return make_recipe(row_counts=row_counts_of(make_recipe(), options, loaded.tokenizer))


def trained_parameters(learner: Learner, *, frozen: bool) -> int:
    """How many parameters fine-tuning has moved: those that learn, without the network of a recipe that reads it `frozen`."""
    still = {id(p) for p in learner.network.parameters()} if frozen else set()
    return sum(p.numel() for p in learner.parameters() if p.requires_grad and id(p) not in still)


def gives_one_answer(learner: Learner, evaluation: Evaluation) -> bool:
    """Whether a run gives one answer to every example although the right answers differ."""
    if (pairs := learner.truth_and_predictions(evaluation.per_example)) is not None:
        return is_constant(pairs)
    constant_metrics = {name: value for name, value in (evaluation.baseline or {}).items() if name in evaluation.metrics}
    metrics = evaluation.metrics
    return bool(constant_metrics) and all(
        math.isclose(metrics[name], value, abs_tol=1e-9) for name, value in constant_metrics.items()
    )


def example_scores(learner: Learner, evaluation: Evaluation, metric: str) -> list[float] | None:
    """A score for each example of the test set: the jackknife's pseudo-values of the metric (Tukey, 1958).

    Of a metric that is a mean over examples they are the examples' own scores; of others, such as F1 and correlations, what each
    example contributes. Above `GROUPS` examples they are those of groups of examples. None: the task has no scores by example.
    """
    per_example = evaluation.per_example
    count = len(per_example)
    if count < 2:
        return None
    groups = np.arange(count) % min(count, GROUPS)
    number_of = int(groups.max()) + 1
    full_value = evaluation.metrics[metric]
    values = []
    for group in range(number_of):
        indices = np.flatnonzero(groups != group)
        rest = learner.compute_metrics(
            per_example[indices] if isinstance(per_example, np.ndarray) else [per_example[i] for i in indices.tolist()]
        )
        values.append(number_of * full_value - (number_of - 1) * float(rest.get(metric, math.nan)))
    return values if all(map(math.isfinite, values)) else None


WORK = {
    "corpus": store, "pretrain": pre_train, "finetune": fine_tune, "ngrams": answers.answer_by_ngrams,
    "texts": answers.answer_by_texts, "fasttext": answers.answer_by_fasttext, "network": answers.answer_by_network,
    "curve": answers.learn_from_parts, "tune": answers.tune,
}  # fmt: skip


def run(folder: Path, until: float = 1.0) -> int:
    """Do the work of a cell unless it is done, and return the exit code; another process on the same cell is waited for.

    A run of pre-training pauses at the share `until` of its budget.
    """
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        task_json = read_json(folder / CELL)
        if task_json is None or result_of(folder, until) is not None:
            return 0
        try:
            import_files(task_json["request"]["with"])
            with reading_as(task_json["request"].get("encoding"), print):
                result = WORK[task_json["kind"]](folder, {**task_json["request"], "until": until})
        except Stopped as stopped:
            return stopped.code
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        except Exception as error:
            expected = isinstance(error, ClozeError)
            reason = str(error) if expected else f"{type(error).__name__}: {error}"
            sys.stderr.write(f"failed: {reason}\n" if expected else traceback.format_exc())
            write_json(folder / FAILED, {"reason": reason})
            return 1
        write_json(folder / result_file(until), result)
        (folder / FAILED).unlink(missing_ok=True)
        if task_json["kind"] != "pretrain":  # cells are many; `run` holds the best network itself
            shutil.rmtree(folder / "run" / "cloze" / "checkpoints", ignore_errors=True)
        return 0


def main() -> None:
    """The process of a job."""
    end_with_parent()
    code = run(Path(sys.argv[1]), *map(float, sys.argv[2:]))
    sys.stdout.flush()
    os._exit(code)  # the thread that watches standard input needs no farewell


if __name__ == "__main__":
    main()
