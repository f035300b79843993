"""What `cloze finetune` prints: metrics over all seeds, next to those of simple answers, and remarks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloze.html_parts import metric_text


def print_result(task_json: Mapping[str, Any], out: Path, *, as_json: bool) -> None:
    """Print the result: the dev metrics over all seeds next to those of simple answers, and the metrics on a test set."""
    from cloze.tasks.evaluation_text import NGRAMS, short_lines, simple_answers

    if not task_json:  # the first of several ranks prints it
        return
    if as_json:
        print(json.dumps({"out": str(out), **task_json}, indent=2))
        return
    tasks = task_json.get("tasks", {"": task_json})  # the only task has no name
    width = max(11, *map(len, (*tasks, *(name.rpartition("/")[2] for name in task_json["dev"]))))
    if "" not in tasks:
        _print_metrics(task_json, {"mean": task_json["spread"]["mean"]}, {}, width=width)
    for name, entries in tasks.items():
        prefix = f"{name}/" if name else ""
        spread = {key.removeprefix(prefix): value for key, value in task_json["spread"].items() if key.startswith(prefix)}
        mixture = entries.get("mixture", {}).get("dev")
        simple = simple_answers(entries.get("baseline"), entries.get("ngrams", {}).get("dev"), mixture=mixture)
        _print_metrics(task_json, spread, simple, width=width, task=name)
        if not name:  # costly metrics, which were measured on the best seed only
            for metric in [metric for metric in task_json["dev"] if metric not in spread]:
                value = metric_text(task_json["dev"][metric])
                print(f"{metric:<{width}}  {value:<{_value_width(task_json)}}  {_simple_cells(simple, metric)}".rstrip())
        for line in short_lines(entries.get("dev_report", {})):
            print(f"  {'mixture: ' if mixture else ''}{line}")
        for part, cut in entries["cut"].items():
            if cut:
                print(f"note: {prefix}{part}: {cut} of {entries['examples'][part]} rows were too long and were cut "
                      "(--set length=N reads more tokens)")  # fmt: skip
        for part, lost in entries.get("lost", {}).items():
            if lost:
                rows = entries["examples"][part]
                print(f"note: {prefix}{part}: {lost} of {rows} rows lose a span by truncation and are not used")
    ngrams = task_json.get("ngrams", {}).get("test", {})
    if "frozen_start" in task_json:
        start = ", ".join(f"{name} {metric_text(value)}" for name, value in task_json["frozen_start"].items())
        print(f"frozen start: {start} (the network untouched, new heads fitted)")
    for name, value in task_json.get("test", {}).items():
        print(f"test {name}: {metric_text(value)}" + (f"  ({NGRAMS} {metric_text(ngrams[name])})" if name in ngrams else ""))
    for remark in task_json.get("remarks", ()):
        print(f"note: {remark}")
    best = next(trial for trial in task_json["trials"] if trial["seed"] == task_json["seed"])
    unit = "epoch" if task_json["evaluate_every"] == "epoch" else "evaluation"
    print(f"{out}: seed {best['seed']}, {_best_evaluation(best, unit)}")


def _best_evaluation(trial: Mapping[str, Any], unit: str) -> str:
    """The evaluation that a trial keeps, in words, as a number of `unit`s; the one before the first step has the number 0."""
    from cloze.errors import counted

    if trial["evaluation"] == 0:
        return f"frozen start: training for {counted(trial['evaluations'], unit)} was not better"
    return f"{unit} {trial['evaluation']} of {trial['evaluations']}"


def _print_metrics(
    task_json: Mapping[str, Any], spread: Mapping[str, Any], simple: Mapping[str, Mapping[str, Any]], *, width: int,
    task: str = "",
) -> None:
    """Print the metrics on the dev set over all seeds, next to those of `simple` answers; the column of names is `width` wide."""
    seeds, value_width = len(task_json["trials"]), _value_width(task_json)
    head = "dev" if seeds == 1 else f"dev, {seeds} seeds"
    print(f"{task:<{width}}  {head:<{value_width}}  {'  '.join(simple)}".rstrip())
    for name, figures in spread.items():
        value = _value_text(figures, several=seeds > 1)
        print(f"{name:<{width}}  {value:<{value_width}}  {_simple_cells(simple, name)}".rstrip())


def _value_text(figures: Mapping[str, float], *, several: bool) -> str:
    return metric_text(figures["mean"]) + (f" ± {metric_text(figures['deviation'])}" if several else "")


def _value_width(task_json: Mapping[str, Any]) -> int:
    """The characters of the column of values: `0.1234`, or with several seeds `0.1234 ± 0.0123`."""
    several = len(task_json["trials"]) > 1
    return max([15 if several else 8, *(len(_value_text(figures, several=several)) for figures in task_json["spread"].values())])


def _simple_cells(simple: Mapping[str, Mapping[str, Any]], metric: str) -> str:
    """A metric of the simple answers, each in its column; without any, an empty column of the width of a figure."""
    cells = [metric_text(metrics[metric]) if metric in metrics else "" for metrics in simple.values()]
    widths = [*map(len, list(simple)[:-1]), 6]  # the last column is as wide as a figure
    return "  ".join(cell.ljust(width) for cell, width in zip(cells or [""], widths, strict=True))
