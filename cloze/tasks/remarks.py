"""Whether the figures of a result show that anything was learned: one sentence, wherever a metric is printed.

`evaluate` adds it to the remarks of an `Evaluation`, `cloze finetune` to those of task.json, `cloze compare` counts such runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cloze.html_parts import metric_text
from cloze.objectives.objective import Objective
from cloze.tasks.task import Learner

#: The remark of a learner that cannot be right on a file; then figures no better than a constant answer's say nothing of it.
NONE_KNOWN = "training saw none of the labels of this file, so no answer is right: is the file for another model?"
_EQUAL = 0.002  # a loss so close to that of equal probabilities, in shares of it, is no better
_WEIGHTS = "; for rare classes, --set objectives[0].class_weights=balanced"
_ADVICE = (
    "Try more epochs (--set training.epochs=N), another rate (--set training.rate.peak=X) or more pre-training; for "
    "fasttext-supervised, --tune 5m"
)
_BETTER_THAN_NGRAMS = (
    "What helps a network most: pre-training on more text like these rows, a larger checkpoint, more epochs "
    "(--set training.epochs=N), or more labelled rows."
)


def remark_on(
    learner: Learner, per_example: Any, metrics: Mapping[str, float], baseline: Mapping[str, Any] | None
) -> str | None:
    """A sentence if a learner gives one answer to all examples, or is no better than a constant answer; else None. Where all
    right answers are the same, no figures show what was learned.

    `per_example` are the items of `Learner.per_example`, `metrics` and `baseline` the figures of the learner and of always giving
    `baseline["always"]`.
    """
    pairs = learner.truth_and_predictions(per_example)
    if is_constant(pairs):
        head = learner.head  # of a prompt or an ONNX file, no objective
        weights = _WEIGHTS if isinstance(head, Objective) and head.weighs_classes and head.class_weights is None else ""
        return f"one answer for all {len(per_example):,} examples: the network has learned nothing. {_ADVICE}{weights}."
    if pairs is not None and len(np.unique(np.asarray(pairs[0]), axis=0)) < 2:
        return None
    worse = not_above(metrics, baseline or {}, learner.task.metrics)
    if worse is None:
        return None
    value_text, constant_text = metric_text(metrics[worse]), metric_text((baseline or {})[worse])
    always = f"always {str((baseline or {})['always'])[:40]!r}"
    side = "below" if learner.task.metrics[worse] else "above"
    relation = "that of" if value_text == constant_text else f"{side} the {constant_text} of"
    return f"{worse} {value_text} is {relation} a constant answer ({always}): the network has learned nothing of use. {_ADVICE}."


def remark_on_ngrams(metrics: Mapping[str, float], ngrams: Mapping[str, float], more: Mapping[str, bool]) -> str | None:
    """A sentence if a linear model on n-grams has a better first metric on the same examples; else None."""
    first = next((name for name in more if name in metrics and name in ngrams), None)
    if first is None or (1 if more[first] else -1) * (ngrams[first] - metrics[first]) <= 1e-9:
        return None
    both = f"{metric_text(ngrams[first])} against {metric_text(metrics[first])}"
    return f"a linear model on n-grams is better: {first} {both}. {_BETTER_THAN_NGRAMS}"


def is_constant(pairs: tuple[Sequence[Any], Sequence[Any]] | None) -> bool:
    """Whether all answers of pairs (right answers, answers) are the same, although the right ones differ."""
    if pairs is None:
        return False
    truth, answers = (np.asarray(side) for side in pairs)
    return len(answers) > 1 and len(np.unique(answers, axis=0)) == 1 < len(np.unique(truth, axis=0))


def not_above(metrics: Mapping[str, float], baseline: Mapping[str, Any], more: Mapping[str, bool]) -> str | None:
    """The first metric that is no better than that of a constant answer; None if there is none.

    Looked at are the first metric that both have, and every error, of which less is better. `more`: for each metric, whether more
    is better. Where the constant answer is always right, nothing can be better.
    """
    common = [name for name in more if name in metrics and isinstance(baseline.get(name), (int, float))]
    for name in [*common[:1], *(name for name in common[1:] if not more[name])]:
        best = 1.0 if more[name] else 0.0
        sign = 1 if more[name] else -1
        if sign * metrics[name] <= sign * baseline[name] + 1e-9 and not math.isclose(baseline[name], best, abs_tol=1e-9):
            return name
    return None


def remark_on_loss(loss: float, classes: int) -> str | None:
    """A sentence if a training loss, in nats, is that of equal probabilities for so many classes; else None.

    A higher loss says less: a network that is sure and sometimes wrong has it, too.
    """
    equal = math.log(classes) if classes > 1 else 0.0
    if not equal or not equal * (1 - _EQUAL) <= loss <= equal * (1 + _EQUAL):
        return None
    return (
        f"the training loss of {loss:.4f} is that of equal probabilities for {classes} classes (ln {classes} = {equal:.4f}): "
        f"the network has not begun to tell them apart. {_ADVICE}."
    )
