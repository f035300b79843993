"""What task.json must be for the commands that read it: every entry of the type that cloze writes.

`runs/recipe_tasks.py` writes what is known before training: the task and its options, head, labels, length, and facts about the
rows. `runs/finetuning/finetune.py` adds the result: seeds, the best evaluation, `dev`, `spread`, remarks.
`runs/finetuning/measure_result.py` adds what is measured afterwards: `dev_report`, `ngrams`, `mixture`, test metrics. Of several
tasks, each has its entries under its name in `tasks`, and the keys of `dev` and `spread` begin with `NAME/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Fits = Callable[[Any], bool]


def _of(kind: type) -> Fits:
    return lambda value: isinstance(value, kind)


def _all(kind: type, fits: Fits) -> Fits:
    """Whether a value is a list or an object, of which every member or entry fits."""
    members: Callable[[Any], Iterable[Any]] = dict.values if kind is dict else iter
    return lambda value: isinstance(value, kind) and all(map(fits, members(value)))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


_text, _object = _of(str), _of(dict)
_texts, _measured = _all(list, _text), _all(dict, lambda metric: metric is None or _number(metric))
_trials = _all(list, lambda trial: _object(trial) and _measured(trial.get("metrics")))
_columns = _all(dict, lambda item: item is None or isinstance(item, (str, int, float, list)))


def _distinct(value: Any) -> bool:
    return _texts(value) and 0 < len(set(value)) == len(value)


def _mixed(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_number, (value.get("share"), value.get("sharpness"))))


#: Entries of one task, with what they must be where they are not null.
_ENTRIES: Mapping[str, tuple[Fits, str]] = {
    "task": (_text, "the name of a task"), "columns": (_columns, "an object with names of columns"),
    "head": (_text, "the name of a head"), "length": (_whole, "a whole number"), "stride": (_whole, "a whole number"),
    "target_length": (_whole, "a whole number"), "longest": (_whole, "a whole number"), "numbered": (_of(bool), "true or false"),
    "ideographs": (_number, "a number"), "annotated": (_texts, "a list of texts"),
    "labels": (_distinct, "a list of different names"), "constant_answer": (_text, "a text"),
    "label_counts": (_all(dict, _number), "an object with numbers"),
    "files": (_object, "an object"), "dev": (_measured, "an object with numbers"),
    "spread": (_all(dict, _measured), "an object with numbers"),
    "trials": (_trials, "a list of objects with metrics"), "baseline": (_object, "an object"), "base": (_object, "an object"),
    "examples": (_object, "an object"), "remarks": (_texts, "a list of texts"), "dev_report": (_object, "an object"),
    "towers": (_object, "an object"), "ngrams": (_object, "an object"),
    "mixture": (_mixed, "an object with two numbers: share and sharpness"),
    "seed": (_whole, "a whole number"), "evaluation": (_number, "a number"),
    "frozen_start": (_measured, "an object with numbers"),
}  # fmt: skip


def constant_answer_of(task_json: Mapping[str, Any]) -> str | None:
    """The answer whose metrics stand next to those of the model: the most frequent one of the training rows; None if it is not
    known."""
    answer: str | None = task_json.get("constant_answer")
    return (task_json.get("baseline") or {}).get("always") if answer is None else answer


def fault_of(contents: Any) -> str:
    """What is wrong with the contents of a task.json; empty if nothing is."""
    if not isinstance(contents, dict):
        return f"holds {_shown(contents)}; expected an object"
    tasks = contents.get("tasks", {})
    if not isinstance(tasks, dict) or not all(map(_object, tasks.values())):
        return f"tasks is {_shown(tasks)}; expected an object with an object for each task"
    faults = [fault for name, description in tasks.items() if (fault := _fault(description, f"tasks.{name}."))]
    return next(iter(faults), "") or _fault(contents, "")


def _fault(entries: Mapping[str, Any], lead: str) -> str:
    for name, (fits, expected) in _ENTRIES.items():
        if entries.get(name) is not None and not fits(entries[name]):
            return f"{lead}{name} is {_shown(entries[name])}; expected {expected}"
    if entries.get("columns", {}) is None:
        return f"{lead}columns is null; expected {_ENTRIES['columns'][1]}"
    return ""


def _shown(value: Any) -> str:
    text = ascii(value) if not isinstance(value, int) or abs(value) < 1 << 64 else "a huge number"
    return text if len(text) <= 60 else text[:60] + "…"
