"""cloze/network.json, the description that cloze keeps next to config.json, and the files that it names.

Every value must have the type that cloze writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.export import OWN_ANNOTATORS, OWN_CHANGED, OWN_TABLES
from cloze.interop.files import DESCRIPTION, read_json, read_tensors
from cloze.interop.model import Annotating, PortableTable
from cloze.reading import Reading


def own_description(folder: Path) -> dict[str, Any] | None:
    """The description that cloze wrote with the model; None for any other folder."""
    path = folder / DESCRIPTION
    if not path.exists():
        return None
    description = read_json(path, "what cloze knows of the model in addition to config.json")
    expected = ("version", "part", "arguments", "order", "architecture", "reading", "heads")
    missing = [key for key in expected if key not in description]
    if missing:
        raise CheckpointError(f"{path}: {', '.join(missing)} missing; expected what cloze writes. Copy the file again.")
    if description["version"] != 1:
        raise CheckpointError(f"{path}: version {description['version']!r}; this cloze reads version 1. Use a newer cloze.")
    wrong = _of_wrong_kind(description)
    if wrong:
        raise CheckpointError(f"{path}: {wrong[0]} is not what cloze writes there. Copy the file again.")
    return description


def _of_wrong_kind(data: Mapping[str, Any]) -> list[str]:
    """The keys of the description whose values have a type that cloze never writes."""
    def named(value: Any, *, empty: bool = False) -> bool:
        return (empty and value is None) or (isinstance(value, str) and value.isprintable())

    def heads(value: Any) -> bool:
        return isinstance(value, dict) and all(
            isinstance(head, dict) and "role" in head and named(head.get("part")) and isinstance(head.get("arguments"), dict)
            and named(head.get("role"), empty=True) and isinstance(head.get("read") or {}, dict)
            for head in value.values()
        )

    step, edits, annotators = data.get("step") or 0, data.get("input_edits", ()), data.get("annotators", {})
    right = {
        "part": named(data["part"]), "arguments": isinstance(data["arguments"], dict), "order": named(data["order"]),
        "architecture": named(data["architecture"], empty=True), "reading": _is_reading(data["reading"]),
        "heads": heads(data["heads"]), "step": isinstance(step, int) and step >= 0,
        "tables": isinstance(data.get("tables", {}), dict) and all(map(named, data.get("tables", {}).values())),
        "input_edits": isinstance(edits, (list, tuple)) and all(isinstance(edit, dict) for edit in edits),
        "changes": isinstance(data.get("changes", ()), (list, tuple)) and all(map(_is_part, data.get("changes", ()))),
        "annotators": isinstance(annotators, dict) and all(
            name.isidentifier() and _is_part(annotator) and named(next(iter(annotator.values())).get("file"), empty=True)
            for name, annotator in annotators.items()
        ),
        "languages": isinstance(data.get("languages", ()), (list, tuple)) and all(map(named, data.get("languages", ()))),
        "labels": isinstance(data.get("labels") or (), (list, tuple)),
    }  # fmt: skip
    return [key for key, good in right.items() if not good]


def _is_reading(value: Any) -> bool:
    if not isinstance(value, dict) or not (
        {"single", "pair", "summary"} <= value.keys() <= {field.name for field in fields(Reading)}
    ):
        return False
    texts = [value["pair"], value.get("start")]
    return (
        all(isinstance(value[key], str) for key in ("single", "summary"))
        and all(text is None or isinstance(text, str) for text in texts)
        and isinstance(value.get("shift", 0), int)
        and isinstance(value.get("max_length"), int | None)
        and all(isinstance(order, str) for order in _items(value.get("orders")))
        and all(isinstance(segment, int) for segment in _items(value.get("segments")))
    )


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and all(
        isinstance(name, str) and isinstance(arguments, dict) for name, arguments in value.items()
    )


def _items(value: Any) -> list[Any]:
    """The items of a list; none for None. Any other value gives one item that no check accepts."""
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [None]


def read_own_parts(folder: Path, description: Mapping[str, Any]) -> dict[str, Any]:
    """What only the description and the files next to it say of a model, as fields of `PortableModel`."""
    input_edits, tables = _read_input_edits(folder, description)
    changes, changed = _read_changes(folder, description)
    return {
        "input_edits": input_edits, "tables": tables, "annotators": _read_annotators(folder, description),
        "languages": tuple(description.get("languages", ())), "changes": changes, "changed": changed,
    }


def _read_input_edits(
    folder: Path, description: Mapping[str, Any]
) -> tuple[tuple[tuple[str, Mapping[str, Any]], ...], dict[str, PortableTable]]:
    """The edits that compute the network's further inputs, and their look-up tables."""
    tables = {}
    for name, part in description.get("tables", {}).items():
        path = folder / OWN_TABLES / f"{name}.safetensors"
        if not path.is_file():
            raise CheckpointError(
                f"{path}: there is no such file; {DESCRIPTION} says that the network looks up the table {name!r} to read text.\n"
                "  The copy is incomplete: copy the whole folder again."
            )
        tables[name] = PortableTable(part, read_tensors(path))
    return tuple((part, arguments) for edit in description.get("input_edits", ()) for part, arguments in edit.items()), tables


def _read_annotators(folder: Path, description: Mapping[str, Any]) -> dict[str, Annotating]:
    """How the labelled layers that the network reads are made."""
    annotators = {}
    for name, described in description.get("annotators", {}).items():
        ((part, arguments),) = described.items()
        rest = {key: _as_mapping(value) for key, value in arguments.items() if key != "file"}
        path = None if "file" not in arguments else folder / OWN_ANNOTATORS / Path(arguments["file"]).name
        if path is not None and not path.is_file():
            raise CheckpointError(
                f"{path}: there is no such file; {DESCRIPTION} says that the layer {name!r} of a text is made with it.\n"
                "  The copy is incomplete: copy the whole folder again."
            )
        annotators[name] = Annotating(part, rest, path)
    return annotators


def _as_mapping(value: Any) -> Any:
    """A mapping that the description holds as pairs; any other value unchanged."""
    pairs = isinstance(value, list) and value and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    return dict(value) if pairs else value


def _read_changes(
    folder: Path, description: Mapping[str, Any]
) -> tuple[tuple[tuple[str, Mapping[str, Any]], ...], Mapping[str, Tensor]]:
    """The lasting changes of the network, and the tensors that are new or different in the changed network."""
    changes = tuple((part, arguments) for change in description.get("changes", ()) for part, arguments in change.items())
    path = folder / OWN_CHANGED
    if description.get("no_plain_form"):
        return changes, {}
    if changes and not path.is_file():
        raise CheckpointError(
            f"{path}: there is no such file; {DESCRIPTION} says that the network was changed ({changes[0][0]}).\n"
            "  The copy is incomplete: copy the whole folder again."
        )
    return changes, read_tensors(path) if changes else {}
