"""An overview of the recipes, read from their files without loading their parts and therefore without torch."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from cloze.document import Node
from cloze.recipe.faults import Faults
from cloze.recipe.load import pretraining_recipe_names, read_tree
from cloze.recipe.paths import NEXT_TO_PART
from cloze.recipe.stages import stage_trees


@dataclass(frozen=True)
class Outline:
    """One recipe in one row: names of parts, no values but the sizes of its networks."""

    name: str
    paper: str
    notes: str
    tokenizer: str
    source: str
    networks: tuple[str, ...]
    order: str
    exercise: tuple[str, ...]
    objectives: tuple[str, ...]

    @property
    def authors(self) -> str:
        """`Devlin et al., 2019` from the end of the reference."""
        match = re.search(r"\(([^()]*\d{4}[^()]*)\)\s*$", self.paper)
        return match[1] if match else self.paper

    def data(self) -> dict[str, Any]:
        """The outline as plain data."""
        return asdict(self)


def outlines() -> list[Outline]:
    """Every recipe that comes with cloze."""
    return [outline(name) for name in pretraining_recipe_names()]


def outline(name_or_path: str) -> Outline:
    """The outline of one recipe. Absent or malformed values are left empty; `cloze check` reports them."""
    root = read_tree(name_or_path)
    if _get(root, "stages") is not None:  # the row of the last stage, which is what is left in the end
        _drop_changes(root)  # they are not shown, and reading them imports torch
        trees = stage_trees(root, None, Faults())
        root = next((written.tree for written, _ in reversed(trees.values())), root)
    networks = _named(root, "network", "networks")
    entries = [node for _, node in _pairs(_get(root, "mixture"))] or [root]
    exercise = [_name(item) for entry in entries for item in _list(_get(entry, "exercise") or _get(root, "exercise"))]
    return Outline(
        name=_text(_get(root, "name")),
        paper=_text(_get(root, "paper")),
        notes=_text(_get(root, "notes")),
        tokenizer=", ".join(_name(_get(text, "tokenizer")) for _, text in _named(root, "text", "texts")),
        source=", ".join(_name(source) for _, source in _named(root, "corpus", "sources")),
        networks=tuple(_network(name, node, only=len(networks) == 1) for name, node in networks),
        order=", ".join(dict.fromkeys(_name(_get(e, "order") or _get(root, "order")) or "open" for e in entries)),
        exercise=tuple(dict.fromkeys(exercise)),
        objectives=tuple(dict.fromkeys(name for entry in entries for name in _objectives(entry, root))),
    )


def _drop_changes(node: Node) -> None:
    """Leave out, in place, the changes of all networks."""
    if node.is_mapping:
        node.value.pop("change", None)
        for _, inner in node.items():
            _drop_changes(inner)
    for inner in _list(node):
        _drop_changes(inner)


def _objectives(entry: Node, root: Node) -> list[str]:
    has_objectives = any(_get(entry, key) for key in ("passes", "objectives"))
    owner = entry if has_objectives else root
    runs = _list(_get(owner, "passes"))
    lists = [_get(run, "objectives") for run in runs] if runs else [_get(owner, "objectives")]
    return [_name(item) for node in lists for item in _list(node)]


def _network(name: str, node: Node, *, only: bool) -> str:
    kind = _name(node)
    if not kind:  # from a checkpoint
        changes = [_name(item) for item in _list(_get(node, "change"))]
        kind = ", ".join([f"from {_text(_get(node, 'from'))}", *changes])
    inner = _get(node, kind)
    size = "x".join(_text(_get(inner, key)) for key in ("layers", "width") if _get(inner, key) is not None)
    return f"{kind} {size}".strip() if only else f"{name}: {kind} {size}".strip()


def _get(node: Node | None, key: str) -> Node | None:
    child = node.value.get(key) if node is not None and node.is_mapping else None
    return child if isinstance(child, Node) else None


def _pairs(node: Node | None) -> list[tuple[str, Node]]:
    return [] if node is None else [(str(key), inner) for key, inner in node.items()]


def _named(root: Node, singular: str, plural: str) -> list[tuple[str, Node]]:
    node = _get(root, singular)
    return [("main", node)] if node is not None else _pairs(_get(root, plural))


def _list(node: Node | None) -> list[Node]:
    return node.value if node is not None and node.is_list else []


def _name(node: Node | None) -> str:
    if node is None:
        return ""
    keys = [key for key in node.value if key not in NEXT_TO_PART - {"average"}] if node.is_mapping else []
    return str(keys[0]) if keys else "" if node.is_mapping else _text(node)


def _text(node: Node | None) -> str:
    return "" if node is None or node.value is None else str(node.value).strip()
