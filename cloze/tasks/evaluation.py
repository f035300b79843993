"""The evaluation of a `Learner` with all that stands next to its metrics: n-grams, remarks, intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cloze.errors import TaskError
from cloze.tasks.bootstrap import intervals
from cloze.tasks.linear.model import LinearModel, load_linear
from cloze.tasks.remarks import NONE_KNOWN, remark_on, remark_on_ngrams
from cloze.tasks.task import Evaluation, Learner, Report, silent


def evaluate(
    learner: Learner, examples: Any, *, constant_answer: str | None = None, size: int = 64, report: Report = silent,
    bootstrap: int | None = None, seed: int = 0,
) -> Evaluation:
    """All metrics of the task; `constant_answer` is the training text's most frequent answer, `size` the rows of a batch.

    `bootstrap`: adds intervals over this many resamples of the examples, drawn with `seed` (see `cloze.tasks.bootstrap`).
    """
    evaluation = learner.evaluate(examples, constant_answer, size=size, report=report)
    if learner.mixture is not None:
        evaluation = replace(evaluation, remarks=(learner.mixture.remark(), *evaluation.remarks))
    if (linear := linear_next_to(learner)) is not None:
        evaluation = replace(evaluation, ngrams=linear.measure(examples), linear=linear.fit.reads)
        if (remark := remark_on_ngrams(evaluation.metrics, evaluation.ngrams or {}, learner.task.metrics)) is not None:
            evaluation = replace(evaluation, remarks=(remark, *evaluation.remarks))
    remark = None
    if NONE_KNOWN not in evaluation.remarks:
        remark = remark_on(learner, evaluation.per_example, evaluation.metrics, evaluation.baseline)
    if remark is not None:
        evaluation = replace(evaluation, remarks=(remark, *evaluation.remarks))
    evaluation = replace(evaluation, remarks=(*evaluation.remarks, *learner.remarks_on_texts(examples)))
    if bootstrap is None:
        return evaluation
    if not len(evaluation.per_example):
        raise TaskError(f"--bootstrap: {learner.task.name} is not measured example by example. Leave it out.")
    by_metric = intervals(evaluation.per_example, learner.compute_metrics, resamples=bootstrap, seed=seed)
    return replace(evaluation, intervals=by_metric)


def linear_next_to(learner: Learner) -> LinearModel | None:
    """The linear model on n-grams in the folder of a learner, whose probabilities have the order of the learner's labels; None if
    there is none."""
    if learner.saved_in is None:
        return None
    folder, name = learner.saved_in
    return load_linear(folder / "cloze", learner.task, name, labels=learner.labels or ())
