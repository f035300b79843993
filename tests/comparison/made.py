"""A made-up finding with all that a page can show: five systems, two tasks, two budgets, a failed cell, constant answers."""

from __future__ import annotations

import numpy as np

from cloze.comparison.answer import ComparisonResult, Failure, Scores, System, pairs_of
from cloze.comparison.costs import Cost, reached
from cloze.comparison.design import Design, Metric, TaskFiles
from cloze.training.schedule.budget import Budget

QUALITY = {"electra-base": 0.78, "bert": 0.74, "roberta": 0.73, "xlnet-base": 0.66, "gpt2": 0.60}
TASKS = {"sentiment": "accuracy", "names": "span_f1"}


def finding(*, failed: bool = True, qualities: dict[str, float] | None = None, seeds: int = 3) -> ComparisonResult:
    """The finding; `qualities` are the mean scores of the systems at the larger budget."""
    generator, wanted = np.random.default_rng(0), QUALITY if qualities is None else qualities
    design = Design(
        [], [TaskFiles(name, "sentence_classification", "", "", "") for name in TASKS], seeds=seeds,
        budgets=[Budget.parse("5Mtokens"), Budget.parse("20Mtokens")],
        metrics={name: Metric(metric, True) for name, metric in TASKS.items()},
    )
    systems, smaller = [], []
    for number, (name, quality) in enumerate(sorted(wanted.items(), key=lambda item: -item[1])):
        for budget, lost in (("20Mtokens", 0.0), ("5Mtokens", 0.12)):
            tokens = 2e7 if not lost else 5e6
            scores = {}
            for task in TASKS:
                noise = generator.normal(0, 0.008, (seeds, 1)) + generator.normal(0, 0.3, (seeds, 400))
                runs = np.clip(quality - lost + noise, 0, 1)
                scores[task] = Scores(dict(enumerate(runs.mean(1).tolist(), 1)), int(name == "gpt2" and not lost), runs.mean(0))
            one = System(
                name, budget, scores, Cost(tokens, tokens * 6e7 * (1 + number / 4), tokens / 8e3 * (1 + number / 3)),
                3.4 + number / 5, [[tokens * i / 8, 0, 0, 6.5 - 0.4 * i + number / 5] for i in range(1, 9)], 11_000_000,
            )  # fmt: skip
            (smaller if lost else systems).append(one)
    reason = "loss is not finite at step 120.\n  Take a lower rate: --set training.rate.linear.peak=…"
    cell = "names-xlnet-base-20Mtokens-seed2"
    failure = Failure(cell, "finetune", reason, "COMPARE/cells/…/log.txt", "python -m cloze.comparison.work COMPARE/cells/…")
    failures = [failure] if failed else []
    return ComparisonResult(
        design, systems, smaller, pairs_of(systems, design, draws=1000), failures, 0, {"sentiment": 0.5, "names": 0.2},
        {"sentiment": 1821, "names": 400}, reached([*systems, *smaller], list(TASKS)),
    )
