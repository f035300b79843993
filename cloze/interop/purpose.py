"""What the head of a class of transformers is for: its task in cloze, the labels, and the head's name and part here.

config.json says it: the class in `architectures`, for whole texts also `problem_type` and the number of labels. As in
transformers, a classifier with one output predicts a number if `problem_type` says nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from cloze.errors import CheckpointError
from cloze.interop.config import architecture_of, classes_of, config_file, has_config, read_config
from cloze.interop.model import PortableHead

_ONE = "single_label_classification"  # what a classifier does if nothing else is said, for any number of labels but one


class Purpose(NamedTuple):
    """The task (None: classes of one text or of two), and the name that its recipe gives the head; the objective to which the
    parameters of a classifier belong if that is another one than the table of the architecture says, and what it calls their
    number."""

    task: str | None
    head: str
    part: str | None = None
    outputs: str = "classes"


_ROLES: Mapping[str, Purpose] = MappingProxyType({
    "classifier": Purpose(None, "classification"), "tagger": Purpose("token_labelling", "classification"),
    "question_answering": Purpose("question_answering", "answer"), "chooser": Purpose("multiple_choice", "multiple_choice"),
})
#: By `problem_type`; see `PROBLEMS` for what is written.
_PROBLEMS: Mapping[str, Purpose] = MappingProxyType({
    _ONE: _ROLES["classifier"], "multi_label_classification": Purpose("multi_label", "multi_label", "several"),
    "regression": Purpose("regression", "regression", "regress", "numbers"),
})


def purpose_of(role: str, config: Mapping[str, Any]) -> Purpose | None:
    """What a head of this role is for in a folder with this config; None for heads of pre-training."""
    if role != "classifier":
        return _ROLES.get(role)
    problem = config.get("problem_type") or ("regression" if _number_of_labels(config) == 1 else _ONE)
    if not isinstance(problem, str) or problem not in _PROBLEMS:
        raise CheckpointError(f"config.json: problem_type is {problem!r}; expected {', '.join(_PROBLEMS)}. Copy the file again.")
    return _PROBLEMS[problem]


def as_meant(head: PortableHead, purpose: Purpose | None) -> PortableHead:
    """A classifier as the objective that it was trained with: the reverse of `as_classifier`."""
    if purpose is None or purpose.part is None:
        return head
    rest = {name: value for name, value in head.arguments.items() if name != "classes"}
    return PortableHead(purpose.part, {**rest, purpose.outputs: head.argument("classes")}, head.state, head.read)


def labels_of(folder: Path, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the classes in their order: LABEL_0, LABEL_1, … where config.json names none, as in transformers."""
    mapping = config.get("id2label")
    if mapping is None:
        return tuple(f"LABEL_{number}" for number in range(_number_of_labels(config)))
    numbers = [str(number) for number in range(len(mapping))] if isinstance(mapping, dict) else []
    if not isinstance(mapping, dict) or set(mapping) != set(numbers):
        raise CheckpointError(
            f'{config_file(folder)}: id2label is {mapping!r}; expected the name of each class by its number, such as '
            '{"0": "no", "1": "yes"}.\n  Copy the file again.'
        )
    labels = [mapping[number] for number in numbers]
    if any(isinstance(label, bool) or not isinstance(label, (str, int, float)) for label in labels) or _repeated(labels):
        raise CheckpointError(
            f"{config_file(folder)}: id2label is {mapping!r}; expected a name for each class that no other has.\n"
            "  Give the classes names of their own there."
        )
    return tuple(map(str, labels))


def _repeated(labels: Sequence[Any]) -> bool:
    """Whether two classes have one name."""
    return len(set(map(str, labels))) < len(labels)


def task_of_config(folder: Path) -> dict[str, Any] | None:
    """The contents that a task.json would have for a folder that cloze did not write, read from its config; None if its class has
    no task."""
    config = read_config(folder)
    roles = {role for cls in classes_of(architecture_of(folder, config), config) for role in cls.roles}
    purpose = next((candidate for role in sorted(roles) if (candidate := purpose_of(role, config)) is not None), None)
    if purpose is None:
        return None
    described: dict[str, Any] = {"task": purpose.task, "columns": {}, "labels": None, "head": purpose.head, "length": None}
    if purpose.task in ("question_answering", "multiple_choice"):
        return described
    labels = labels_of(folder, config)
    if purpose.task == "regression":
        if len(labels) != 1:
            raise CheckpointError(f"{folder}: predicts {len(labels)} numbers of a text; cloze's regression predicts one.")
        return described
    described |= {"labels": list(labels), "numbered": True}
    return described | ({"constant_answer": "O" if "O" in labels else labels[0]} if purpose.task == "token_labelling" else {})


def unread_head(folder: Path) -> str:
    """Why the config of a folder that cloze did not write names no task; empty for a class of pre-training, and for a folder of
    cloze."""
    if not has_config(folder) or (folder / "cloze").is_dir():
        return ""
    config = read_config(folder)
    architecture = architecture_of(folder, config)
    architectures, class_names = config.get("architectures") or [], sorted(cls.name for cls in architecture.classes)
    if not architectures:
        example = next((cls for cls in architecture.classes if cls.roles & _ROLES.keys()), architecture.classes[0])
        return f'{config_file(folder)} names no class, such as "architectures": ["{example.name}"]'
    if not classes_of(architecture, config):
        return f"cloze does not read the head of {architectures[0]}; of {architecture.title} it reads {', '.join(class_names)}"
    return ""


def _number_of_labels(config: Mapping[str, Any]) -> int:
    """How many outputs a classifier has; two if config.json does not say."""
    labels, number = config.get("id2label"), config.get("num_labels", config.get("_num_labels"))
    if isinstance(labels, dict):
        return len(labels)
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 < number < 1 << 20 else 2

