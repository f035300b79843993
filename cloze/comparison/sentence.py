"""The answer in a sentence, and as a table in a terminal and as CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cloze.comparison.answer import OVERALL, Answer, System
from cloze.comparison.costs import Cost
from cloze.comparison.design import Design
from cloze.comparison.statistics import summary
from cloze.errors import counted
from cloze.reports.figures import duration, plain
from cloze.tasks.worth import not_above


def sentence(answer: Answer) -> str:
    """Which system is best, by how much, and from which others it does not differ significantly; and on how many tasks a linear
    model on n-grams is better than the best one."""
    return f"{_of_networks(answer)} {ngrams_sentence(answer)}".rstrip()


def ngrams_sentence(answer: Answer) -> str:
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


def ngrams_better(answer: Answer) -> list[str]:
    """The tasks on which a linear model on n-grams is better than the best system on average over seeds."""
    best = answer.systems[0].scores if answer.systems else {}
    return [
        name for name, own in answer.ngrams.items()
        if name in best and (1 if answer.design.metrics[name].more else -1) * (own["test"] - summary(best[name].runs).mean) > 0
    ]  # fmt: skip


def _of_networks(answer: Answer) -> str:
    tasks = answer.ranked
    there = [one for one in answer.systems if one.overall(tasks)]
    if not there:
        return "No answer yet: no candidate has been measured on every task."
    best, *others = there
    score = f"{shown(best, tasks)} {measure(answer)}"
    if not others:
        return f"{best.name} scores {score}."
    of_networks = " of the networks" if ngrams_better(answer) else ""
    pairs = {one.name: answer.pair(best.name, one.name) for one in others}
    apart = [one for one in others if (pair := pairs[one.name]) is not None and pair.apart]
    level = [one for one in others if one not in apart]
    if not apart:
        low, high = shown(others[-1], tasks), shown(best, tasks)
        scores = high if low == high else f"{low} to {high}"
        names = listed([system.name for system in there])
        return f"No significant difference: {names} score {scores} {measure(answer)}. {power(answer)}".strip()
    if level:
        return (
            f"{best.name} scores highest{of_networks}, {score}, but not significantly higher than "
            f"{listed([system.name for system in level])}; "
            f"it is better than {listed([one.name for one in apart])}."
        )
    nearest = pairs[others[0].name]
    assert nearest is not None  # both have scores on every task
    d = nearest.difference
    return (
        f"{best.name} is best{of_networks}: {score}, {points(d.value)} points above {others[0].name} "
        f"(95 % interval {points(d.low)} to {points(d.high)}; corrected p {probability(nearest.adjusted)})."
    )


def caveats(answer: Answer) -> list[str]:
    """What to know about the answer: runs that learned nothing, cells that failed or are not finished, too few seeds."""
    scores = [one for system in answer.systems for one in system.scores.values()]
    constant, runs = sum(one.constant for one in scores), sum(len(one.runs) for one in scores)
    found = [f"{constant} of {runs} runs give one answer to every example: they have learned nothing"] if constant else []
    level = sum(
        not_above({metric.name: score}, {metric.name: answer.baselines.get(name)}, {metric.name: metric.more}) is not None
        for system in answer.systems for name, one in system.scores.items()
        for metric in [answer.design.metrics[name]] for score in one.runs
    )  # fmt: skip
    found += [f"{level} of {runs} runs are no better than the usual answer"] if level else []
    found += unequal(answer.design)
    found += [f"{counted(len(answer.failures), 'cell')} failed"] if answer.failures else []
    found += [f"{counted(answer.unfinished, 'cell')} not finished"] if answer.unfinished else []
    alone = answer.seeds < 2 and len(answer.systems) > 1
    return found + (["significant differences need 3 or more seeds; finished runs are kept"] if alone else [])


def unequal(design: Design) -> list[str]:
    """What is not equal for all candidates of a design."""
    written = design.as_written()
    if not written:
        return []
    is_are = "is" if len(written) == 1 else "are"
    return [f"{listed(written)} {is_are} trained as written, the others are fitted to the budget; --fit fits all"]


def measure(answer: Answer) -> str:
    """What the scores are, in words: `mean accuracy over 4 tasks, 3 seeds, after 20Mtokens`."""
    tasks = answer.ranked
    metrics = list(dict.fromkeys(answer.design.metrics[name].name.replace("_", " ") for name in tasks))
    named = metrics[0] if len(metrics) == 1 else "score"
    what = f"({named} on {tasks[0]}" if len(tasks) == 1 else f"(mean {named} over {len(tasks)} tasks"
    budget = next((one.budget for one in answer.systems if one.budget), None)
    asked = counted(answer.design.seeds, "seed")
    seeds = asked if answer.seeds in (0, answer.design.seeds) else f"{answer.seeds} of {asked}"
    return f"{what}, {seeds}{'' if budget is None else f', {spoken(budget)} each'})"


def spoken(budget: str) -> str:
    """A budget for a sentence.

    >>> spoken("20Mtokens"), spoken("150000tokens"), spoken("1e+16flops"), spoken("10m")
    ('20M tokens', '150,000 tokens', '1e+16 FLOPs', '10m')
    """
    found = re.fullmatch(r"([0-9.e+]+)([A-Z]?)([a-z]{4,})", budget)
    if found is None:
        return budget
    amount = f"{int(found[1]):,}" if found[1].isdigit() else found[1]
    return f"{amount}{found[2]} {'FLOPs' if found[3] == 'flops' else found[3]}"


def power(answer: Answer) -> str:
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
    found, scale = summary(runs), 100 if percent else 1
    digits = 1 if percent else 3
    spread = "" if math.isnan(found.deviation) else f" ± {scale * found.deviation:.{digits}f}"
    return f"{scale * found.mean:.{digits}f}{spread}"


def rows(answer: Answer) -> tuple[list[str], list[list[str]]]:
    """The columns and the rows of the table: scores by task, whether significantly below the best, constant answers, cost."""
    tasks = [one.name for one in answer.design.tasks]
    several = len(answer.ranked) > 1
    constant = any(one.constant for system in answer.systems for one in system.scores.values())
    columns = ["", *([OVERALL] if several else []), *tasks, "against the best", *(["constant"] if constant else [])]
    columns += ["tokens", "FLOPs", "time"] if any(one.cost for one in answer.systems) else []
    made = []
    for system in answer.systems:
        row = [system.name, *([cell(system.overall(answer.ranked))] if several else [])]
        row += [
            cell(system.scores[name].runs, percent=answer.design.metrics[name].more) if name in system.scores else "–"
            for name in tasks
        ]
        row.append(against_best(answer, system))
        if constant:
            runs = [(one.constant, len(one.runs)) for one in system.scores.values()]
            row.append(f"{sum(c for c, _ in runs)} of {sum(n for _, n in runs)}" if any(c for c, _ in runs) else "")
        if any(one.cost for one in answer.systems):
            cost = system.cost
            row += ["–"] * 3 if cost is None else [plain(cost.tokens), plain(cost.flops), duration(cost.seconds)]
        made.append(row)
    ngrams = {name: float(own["test"]) for name, own in answer.ngrams.items()}
    for name, scores in (("n-grams", ngrams), ("usual answer", answer.baselines)):
        row = [name, *_simple_row(answer, scores)]
        made += [[*row, *[""] * (len(columns) - len(row))]] if scores else []
    return columns, made


def _simple_row(answer: Answer, scores: Mapping[str, float]) -> list[str]:
    """The cells of an answer without training, or of a model that is fitted once: the mean where there are several tasks, then
    the tasks."""
    own = [
        cell([scores[task.name]], percent=answer.design.metrics[task.name].more) if task.name in scores else "–"
        for task in answer.design.tasks
    ]
    known = [scores[name] for name in answer.ranked if name in scores]
    mean = points(sum(known) / len(known)) if known and len(known) == len(answer.ranked) else "–"
    return [*([mean] if len(answer.ranked) > 1 else []), *own]


def against_best(answer: Answer, system: System) -> str:
    """Whether a system differs significantly from the best one."""
    best = answer.systems[0]
    if system is best:
        return "best" if system.overall(answer.ranked) else "failed"
    pair = answer.pair(best.name, system.name)
    if pair is None:
        return "failed" if not system.overall(answer.ranked) else ""
    return f"{points(-pair.difference.value)} (p {probability(pair.adjusted)})" if pair.apart else "not significant"


def table(answer: Answer) -> str:
    """The finding for a terminal."""
    columns, made = rows(answer)
    widths = [max(len(row[i]) for row in (columns, *made)) for i in range(len(columns))]
    lines = ["  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
             for row in (columns, *made)]
    lines += ["", *costs_to_reach(answer), sentence(answer), *(f"note: {one}" for one in caveats(answer))]
    for one in answer.failures:
        reason = "\n  ".join(one.reason.splitlines())
        lines += [f"  {one.cell} ({one.kind}): {reason}", f"    log: {one.log}", f"    again: {one.again}"]
    return "\n".join(lines)


def costs_to_reach(answer: Answer) -> list[str]:
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


def as_data(answer: Answer) -> dict[str, Any]:
    """Plain values for `--json`: the sentence, then the figures."""
    return {"answer": sentence(answer), **answer.data()}


def as_records(answer: Answer) -> list[dict[str, Any]]:
    """A row for every run that counts, with its seed and what its pre-training cost on average; None where there was none."""
    made = []
    for system in (*answer.systems, *answer.smaller):
        cost = dict.fromkeys(Cost._fields) if system.cost is None else system.cost._asdict()
        for name, scores in system.scores.items():
            metric = answer.design.metrics[name].name
            own = {"system": system.name, "budget": system.budget, "task": name, "metric": metric}
            made += [{**own, "seed": seed, "score": score, **cost} for seed, score in scores.by_seed.items()]
    return made


def as_csv(answer: Answer) -> str:
    """`as_records` as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["system", "budget", "task", "metric", "seed", "score", *Cost._fields])
    for row in as_records(answer):
        *names, score = (row[name] for name in ("system", "budget", "task", "metric", "seed", "score"))
        costs = ("" if row[name] is None else f"{row[name]:.6g}" for name in Cost._fields)
        writer.writerow(["" if name is None else name for name in names] + [f"{score:.6f}", *costs])
    return file.getvalue()
