"""The answer in a sentence, and as a table in a terminal and as CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cloze.comparison.answer import OVERALL, ComparisonResult, System
from cloze.comparison.costs import Cost
from cloze.comparison.design import Design, is_recipe
from cloze.comparison.statistics import summary
from cloze.errors import counted
from cloze.reports.figures import duration, plain
from cloze.tasks.remarks import not_above


def sentence(answer: ComparisonResult) -> str:
    """Which system is best, by how much, and from which others it does not differ significantly; and on how many tasks a linear
    model on n-grams is better than the best one."""
    return f"{_of_networks(answer)} {ngrams_sentence(answer)}".rstrip()


def ngrams_sentence(answer: ComparisonResult) -> str:
    """On how many tasks a linear model on n-grams is better than the best system; empty where none was fitted."""
    best = answer.systems[0] if answer.systems else None
    both = [name for name in answer.ngrams if best is not None and name in best.scores]
    if best is None or not both:
        return ""
    better = ngrams_better(answer)
    if len(both) == 1:
        score = cell([answer.ngrams[both[0]]["test"]], percent=answer.design.metrics[both[0]].more)
        return f"A linear model on n-grams is {'better' if better else 'not better'}: {score}."
    return f"A linear model on n-grams is better on {len(better) or 'none'} of {len(both)} tasks."


def ngrams_better(answer: ComparisonResult) -> list[str]:
    """The tasks on which a linear model on n-grams is better than the best system on average over seeds."""
    best = answer.systems[0].scores if answer.systems else {}
    return [
        name for name, result in answer.ngrams.items()
        if name in best and (1 if answer.design.metrics[name].more else -1) * (result["test"] - summary(best[name].runs).mean) > 0
    ]  # fmt: skip


def _of_networks(answer: ComparisonResult) -> str:
    tasks = answer.ranked
    systems = [system for system in answer.systems if system.overall(tasks)]
    if not systems:
        return "No answer yet: no candidate has been measured on every task."
    best, *rivals = systems
    score = f"{shown(best, tasks)} {measure(answer)}"
    if not rivals:
        return f"{best.name} scores {score}."
    of_networks = " of the networks" if ngrams_better(answer) else ""
    pairs = {system.name: answer.pair(best.name, system.name) for system in rivals}
    apart = [system for system in rivals if (pair := pairs[system.name]) is not None and pair.apart]
    level = [system for system in rivals if system not in apart]
    if not apart:
        low, high = shown(rivals[-1], tasks), shown(best, tasks)
        scores = high if low == high else f"{low} to {high}"
        names = listed([system.name for system in systems])
        return f"No significant difference: {names} score {scores} {measure(answer)}. {power(answer)}".strip()
    if level:
        return (
            f"{best.name} scores highest{of_networks}, {score}, but not significantly higher than "
            f"{listed([system.name for system in level])}; "
            f"it is better than {listed([system.name for system in apart])}."
        )
    nearest = pairs[rivals[0].name]
    assert nearest is not None  # both have scores on every task
    d = nearest.difference
    return (
        f"{best.name} is best{of_networks}: {score}, {points(d.value)} points above {rivals[0].name} "
        f"(95 % interval {points(d.low)} to {points(d.high)}; corrected p {probability(nearest.adjusted)})."
    )


def caveats(answer: ComparisonResult) -> list[str]:
    """What to know about the answer: runs that learned nothing, cells that failed or are not finished, too few seeds."""
    scores = [task_scores for system in answer.systems for task_scores in system.scores.values()]
    constant, runs = sum(task_scores.constant for task_scores in scores), sum(len(task_scores.runs) for task_scores in scores)
    lines = [f"{constant} of {runs} runs give one answer to every example: they have learned nothing"] if constant else []
    level = sum(
        not_above({metric.name: score}, {metric.name: answer.baselines.get(name)}, {metric.name: metric.more}) is not None
        for system in answer.systems for name, task_scores in system.scores.items()
        for metric in [answer.design.metrics[name]] for score in task_scores.runs
    )  # fmt: skip
    lines += [f"{level} of {runs} runs are no better than the constant answer"] if level else []
    lines += unequal(answer.design)
    lines += [f"{counted(len(answer.failures), 'cell')} failed"] if answer.failures else []
    lines += [f"{counted(answer.unfinished, 'cell')} not finished"] if answer.unfinished else []
    alone = answer.seeds < 2 and len(answer.systems) > 1
    return lines + (["significant differences need 3 or more seeds; finished runs are kept"] if alone else [])


def unequal(design: Design) -> list[str]:
    """What is not equal for all candidates of a design, and which of them are folders with the name of a recipe."""
    checkpoints, names = [candidate for candidate in design.candidates if candidate.checkpoint is not None], design.as_written()
    lines = [
        f"{candidate.name} is the checkpoint in the folder of that name, not the recipe"
        for candidate in checkpoints if is_recipe(str(candidate.checkpoint))
    ]  # fmt: skip
    if 0 < len(checkpoints) < len(design.candidates):
        only_tuned = _are([candidate.name for candidate in checkpoints])
        lines.append(f"{only_tuned} only fine-tuned; the budget is that of the others' pre-training")
    return lines + ([f"{_are(names)} trained as written, the others are fitted to the budget; --fit fits all"] if names else [])


def _are(names: Sequence[str]) -> str:
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def measure(answer: ComparisonResult) -> str:
    """What the scores are, in words: `mean accuracy over 4 tasks, 3 seeds, after 20Mtokens`."""
    tasks = answer.ranked
    metrics = list(dict.fromkeys(answer.design.metrics[name].name.replace("_", " ") for name in tasks))
    metric = metrics[0] if len(metrics) == 1 else "score"
    what = f"({metric} on {tasks[0]}" if len(tasks) == 1 else f"(mean {metric} over {len(tasks)} tasks"
    budget = next((system.budget for system in answer.systems if system.budget), None)
    planned = counted(answer.design.seeds, "seed")
    seeds = planned if answer.seeds in (0, answer.design.seeds) else f"{answer.seeds} of {planned}"
    share = "each" if all(system.budget for system in answer.systems) else "for each recipe"
    return f"{what}, {seeds}{'' if budget is None else f', {spoken(budget)} {share}'})"


def spoken(budget: str) -> str:
    """A budget for a sentence.

    >>> spoken("20Mtokens"), spoken("150000tokens"), spoken("1e+16flops"), spoken("10m")
    ('20M tokens', '150,000 tokens', '1e+16 FLOPs', '10m')
    """
    match = re.fullmatch(r"([0-9.e+]+)([A-Z]?)([a-z]{4,})", budget)
    if match is None:
        return budget
    amount = f"{int(match[1]):,}" if match[1].isdigit() else match[1]
    return f"{amount}{match[2]} {'FLOPs' if match[3] == 'flops' else match[3]}"


def power(answer: ComparisonResult) -> str:
    """Which differences these seeds and examples can detect."""
    if answer.seeds < 2:
        return "With one seed, the spread over seeds is unknown."
    least = answer.least
    if least is None or not math.isfinite(least):
        return ""
    if least < 0.0005:
        return "All runs of a candidate score the same."
    if least > 0.5:
        return "The seeds are too few, or differ too much, to detect any but huge differences."
    return f"With this many seeds and examples, differences below about {points(least)} points cannot be detected."


def listed(words: Sequence[str]) -> str:
    """Words as a list: `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def points(value: float) -> str:
    """A share as points of a hundred."""
    return f"{100 * value:.1f}"


def probability(value: float) -> str:
    """A p value."""
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def shown(system: System, tasks: Sequence[str]) -> str:
    """The mean over seeds in points."""
    return points(summary(system.overall(tasks)).mean)


def cell(runs: Sequence[float], *, percent: bool = True) -> str:
    """Mean and deviation: `71.2 ± 0.8`."""
    if not runs:
        return "–"
    estimate, scale = summary(runs), 100 if percent else 1
    digits = 1 if percent else 3
    spread = "" if math.isnan(estimate.deviation) else f" ± {scale * estimate.deviation:.{digits}f}"
    return f"{scale * estimate.mean:.{digits}f}{spread}"


def rows(answer: ComparisonResult) -> tuple[list[str], list[list[str]]]:
    """The columns and the rows of the table: scores by task, whether significantly below the best, constant answers, cost."""
    tasks = [task.name for task in answer.design.tasks]
    several = len(answer.ranked) > 1
    constant = any(scores.constant for system in answer.systems for scores in system.scores.values())
    columns = ["", *([OVERALL] if several else []), *tasks, "against the best", *(["constant"] if constant else [])]
    columns += ["tokens", "FLOPs", "time"] if any(system.cost for system in answer.systems) else []
    body = []
    for system in answer.systems:
        row = [system.name, *([cell(system.overall(answer.ranked))] if several else [])]
        row += [
            cell(system.scores[name].runs, percent=answer.design.metrics[name].more) if name in system.scores else "–"
            for name in tasks
        ]
        row.append(against_best(answer, system))
        if constant:
            runs = [(scores.constant, len(scores.runs)) for scores in system.scores.values()]
            row.append(f"{sum(c for c, _ in runs)} of {sum(n for _, n in runs)}" if any(c for c, _ in runs) else "")
        if any(other.cost for other in answer.systems):
            cost = system.cost
            row += ["–"] * 3 if cost is None else [plain(cost.tokens), plain(cost.flops), duration(cost.seconds)]
        body.append(row)
    ngrams = {name: float(result["test"]) for name, result in answer.ngrams.items()}
    for name, scores in (("n-grams", ngrams), ("constant answer", answer.baselines)):
        row = [name, *_simple_row(answer, scores)]
        body += [[*row, *[""] * (len(columns) - len(row))]] if scores else []
    return columns, body


def _simple_row(answer: ComparisonResult, scores: Mapping[str, float]) -> list[str]:
    """The cells of an answer without training, or of a model that is fitted once: the mean where there are several tasks, then
    the tasks."""
    cells = [
        cell([scores[task.name]], percent=answer.design.metrics[task.name].more) if task.name in scores else "–"
        for task in answer.design.tasks
    ]
    ranked = [scores[name] for name in answer.ranked if name in scores]
    mean = points(sum(ranked) / len(ranked)) if ranked and len(ranked) == len(answer.ranked) else "–"
    return [*([mean] if len(answer.ranked) > 1 else []), *cells]


def against_best(answer: ComparisonResult, system: System) -> str:
    """Whether a system differs significantly from the best one."""
    best = answer.systems[0]
    if system is best:
        return "best" if system.overall(answer.ranked) else "failed"
    pair = answer.pair(best.name, system.name)
    if pair is None:
        return "failed" if not system.overall(answer.ranked) else ""
    return f"{points(-pair.difference.value)} (p {probability(pair.adjusted)})" if pair.apart else "not significant"


def table(answer: ComparisonResult) -> str:
    """The finding for a terminal."""
    columns, body = rows(answer)
    widths = [max(len(row[i]) for row in (columns, *body)) for i in range(len(columns))]
    lines = ["  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
             for row in (columns, *body)]
    return "\n".join([*lines, "", *remarks(answer)])


def remarks(answer: ComparisonResult) -> list[str]:
    """The lines below the table: costs, the sentence, caveats and failures."""
    lines = [*costs_to_reach(answer), sentence(answer), *(f"note: {caveat}" for caveat in caveats(answer))]
    for failure in answer.failures:
        reason = "\n  ".join(failure.reason.splitlines())
        lines += [f"  {failure.cell} ({failure.kind}): {reason}", f"    log: {failure.log}", f"    again: {failure.again}"]
    return lines


def costs_to_reach(answer: ComparisonResult) -> list[str]:
    """What each system spends until it has the quality of `--reach`, by default that which all reach; of several budgets."""
    if answer.reach is None or (len(answer.design.budgets) < 2 and not answer.reach.wanted):
        return []
    lines = [f"cost of a mean score of {points(answer.reach.quality)}:"]
    for name in answer.reach.points:
        cost = answer.reach.cost(name)
        spent = "not reached" if cost is None else (
            f"{plain(cost.tokens)} tokens, {plain(cost.flops)} FLOPs, {duration(cost.seconds)}"
        )  # fmt: skip
        lines.append(f"  {name}: {spent}")
    return [*lines, ""]


def as_data(answer: ComparisonResult) -> dict[str, Any]:
    """Plain values for `--json`: the sentence, then the figures."""
    return {"answer": sentence(answer), **answer.data()}


def as_records(answer: ComparisonResult) -> list[dict[str, Any]]:
    """A row for every run that counts, with its seed and what its pre-training cost on average; None where there was none."""
    records = []
    for system in (*answer.systems, *answer.smaller):
        cost = dict.fromkeys(Cost._fields) if system.cost is None else system.cost._asdict()
        for name, scores in system.scores.items():
            metric = answer.design.metrics[name].name
            labels = {"system": system.name, "budget": system.budget, "task": name, "metric": metric}
            records += [{**labels, "seed": seed, "score": score, **cost} for seed, score in scores.by_seed.items()]
    return records


def as_csv(answer: ComparisonResult) -> str:
    """`as_records` as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["system", "budget", "task", "metric", "seed", "score", *Cost._fields])
    for row in as_records(answer):
        *names, score = (row[name] for name in ("system", "budget", "task", "metric", "seed", "score"))
        costs = ("" if row[name] is None else f"{row[name]:.6g}" for name in Cost._fields)
        writer.writerow(["" if name is None else name for name in names] + [f"{score:.6f}", *costs])
    return file.getvalue()
