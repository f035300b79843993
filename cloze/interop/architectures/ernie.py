"""ERNIE 2.0 of Baidu ↔ transformers' `Ernie*`: BERT with a table of tasks, which `use_task_id` turns on.

Source: ERNIE 2.0 (Sun et al., 2020); transformers adds task 0 where it is given no `task_type_ids`, as cloze does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop.architecture import add
from cloze.interop.architectures.bert import BERT
from cloze.interop.mapping import MappingLine


def _tasks(arguments: Mapping[str, Any]) -> int:
    return int((arguments.get("embedding.inputs") or {}).get("task", 0))


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    if not config.get("use_task_id", False):
        return {"embedding.inputs": None}
    tasks = config.get("task_type_vocab_size", 3)
    if not isinstance(tasks, int) or tasks < 1:
        raise ValueError(f"task_type_vocab_size is {tasks!r}; expected the number of tasks.")
    return {"embedding.inputs": {"task": tasks}}


def _against(arguments: Mapping[str, Any]) -> list[str]:
    inputs = arguments.get("embedding.inputs")
    if inputs and set(inputs) != {"task"}:
        return [f"embedding.inputs is {dict(inputs)}, transformers' ERNIE has tasks or no further inputs"]
    return []


ERNIE = add(replace(
    BERT,
    name="ernie",
    title="ERNIE",
    base="ernie.",
    resemblance=lambda model, kind: 2 if _tasks(model.flat) else 0,
    from_config=_read,
    to_config=lambda arguments, order: {"use_task_id": _tasks(arguments) > 0, "task_type_vocab_size": _tasks(arguments) or 3},
    further_objections=_against,
    further=lambda arguments: (
        (MappingLine("embeddings.inputs.task.weight", "{base}embeddings.task_type_embeddings.weight", "G D"),)
        if _tasks(arguments) else ()
    ),
    sizes=lambda arguments: {"G": _tasks(arguments)},
    classes=tuple(replace(cls, name=cls.name.replace("Bert", "Ernie")) for cls in BERT.classes),
))
