"""The card, README.md, of a folder of peft: what it was trained on, and the lines of Python that open it with its labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from cloze.interop.choice import Choice

#: peft's classes that open a folder, by its type of task; all others are opened by `AutoPeftModel`.
_CLASSES: Mapping[str | None, str] = {
    "SEQ_CLS": "AutoPeftModelForSequenceClassification", "TOKEN_CLS": "AutoPeftModelForTokenClassification",
    "QUESTION_ANS": "AutoPeftModelForQuestionAnswering",
}  # fmt: skip


def write_adapter_card(
    path: Path, choice: Choice, base: Path, *, folder: str, task: str | None, labels: Sequence[str], problem: Mapping[str, str],
    changes: str,
) -> None:
    """Write README.md; `folder` is the name of the model in its code, and `changes` are what was trained.

    peft's files have no place for the names of classes, so the lines of Python give them.
    """
    cls, quoted = _CLASSES.get(task, "AutoPeftModel"), json.dumps(folder, ensure_ascii=False)
    label = {"id2label": repr(dict(enumerate(labels)))} if labels else {"num_labels": "1"} if problem else {}
    arguments = {**label, **{key: repr(value) for key, value in problem.items()}}
    options = "".join(f", {key}={value}" for key, value in arguments.items())
    lines = [
        "---", f"base_model: {json.dumps(str(base.resolve()), ensure_ascii=False)}", "library_name: peft", "tags:", "- cloze",
        f"- {choice.architecture.name}", *([f"pipeline_tag: {choice.cls.pipeline}"] if choice.cls.pipeline else []), "---", "",
        f"What was trained ({changes}) on the network in `{base.name}`, for {choice.cls.name}; written by cloze.", "",
        "## Use", "", "```python", f"from peft import {cls}", "from transformers import AutoTokenizer", "",
        f"tokenizer = AutoTokenizer.from_pretrained({quoted})", f"model = {cls}.from_pretrained({quoted}{options})", "```", "",
    ]  # fmt: skip
    path.write_text("\n".join(lines), encoding="utf-8")
