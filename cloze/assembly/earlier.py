"""The recipe of a run folder that an earlier version wrote, under the names of this one.

A recipe that a user writes is refused if it has an old name, because its author can correct it. That of a finished run is not:
it says what was trained.
"""

from __future__ import annotations

from cloze.assembly.schema import RESERVED
from cloze.document import Node, from_data
from cloze.renamed import RENAMED, current_head, translated


def rename(tree: Node) -> None:
    """Replace the old names of arguments of networks, objectives, edits and sources in place, at any depth: passes, stages."""
    for key, inner in tree.items():
        if key == "objectives" and inner.is_list:
            for objective in inner.value:
                _rename_objective(objective)
        elif key == "networks" and inner.is_mapping:
            for network in inner.value.values():
                _rename_network(network)
        elif key == "exercise" and inner.is_list:
            for edit in inner.value:
                _rename_edit(edit)
        elif key == "sources" and inner.is_mapping:
            for source in inner.value.values():
                _drop(source, "passages", "put_back")
        elif key == "training" and inner.is_mapping:
            _rename_training(inner)
        else:
            rename(inner)
    for one in tree.value if tree.is_list else ():
        rename(one)


def _rename_training(node: Node) -> None:
    divide = node.value.get("divide")
    if divide is not None and divide.value == "answers":
        node.put("divide", from_data("targets", divide.where))


def _drop(node: Node, part: str, argument: str) -> None:
    """Leave out an argument that a part no longer has, because it always does what the argument asked for."""
    inner = node.value.get(part) if node.is_mapping else None
    if inner is not None and inner.is_mapping:
        inner.value.pop(argument, None)


def _rename_edit(node: Node) -> None:
    _drop(node, "pair", "planned")
    mask = node.value.get("mask") if node.is_mapping else None
    if mask is None or not mask.is_mapping or "one_in" not in mask.value:
        return
    one_in = mask.value.pop("one_in").value
    if one_in is not None:  # it replaced the rate, and the number was rounded down
        rate = mask.value["rate"].value if "rate" in mask.value else None
        if not isinstance(rate, float) or round(1 / rate) != one_in:
            mask.put("rate", from_data(1 / one_in, mask.where))
        mask.put("rounding", from_data("down", mask.where))


def _rename_objective(node: Node) -> None:
    for part, inner in list(node.items()):
        if not inner.is_mapping:
            continue
        given = inner.plain()
        apart = {key: given.pop(key) for key in RESERVED["objective"] if key in given}
        current, arguments = current_head(str(part), given)
        if (current, arguments) != (part, given):
            del node.value[part]
            node.put(current, from_data({**arguments, **apart}, inner.where))


def _rename_network(node: Node) -> None:
    for part, inner in list(node.items()):
        if part in RENAMED and inner.is_mapping:
            given = inner.plain()
            arguments = translated(str(part), given)
            if arguments != given:
                node.put(part, from_data(arguments, inner.where))
