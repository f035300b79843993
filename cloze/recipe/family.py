"""An overview of the recipes, read from their files without loading their parts and therefore without torch."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from cloze.document import Node
from cloze.recipe.faults import Faults
from cloze.recipe.grammar import NETWORK
from cloze.recipe.load import pretraining_recipe_names, read_tree
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
    if root.get("stages") is not None:  # the row of the last stage, which is what is left in the end
        _drop_changes(root)  # they are not shown, and reading them imports torch
        trees = stage_trees(root, None, Faults())
        root = next((stage_tree.tree for stage_tree, _ in reversed(trees.values())), root)
    networks = _named(root, "network", "networks")
    entries = [node for _, node in root.pairs_at("mixture")] or [root]
    owners = [entry if entry.get("exercise") else root for entry in entries]
    exercise = [_name(item) for owner in owners for item in owner.items_at("exercise")]
    return Outline(
        name=_text(root.get("name")),
        paper=_text(root.get("paper")),
        notes=_text(root.get("notes")),
        tokenizer=", ".join(_name(text.get("tokenizer")) for _, text in _named(root, "text", "texts")),
        source=", ".join(_name(source) for _, source in _named(root, "corpus", "sources")),
        networks=tuple(_network(name, node, only=len(networks) == 1) for name, node in networks),
        order=", ".join(dict.fromkeys(_name(e.get("order") or root.get("order")) or "open" for e in entries)),
        exercise=tuple(dict.fromkeys(exercise)),
        objectives=tuple(dict.fromkeys(name for entry in entries for name in _objectives(entry, root))),
    )


def _drop_changes(node: Node) -> None:
    """Leave out, in place, the changes of all networks."""
    if node.is_mapping:
        node.value.pop("change", None)
        for _, inner in node.items():
            _drop_changes(inner)
    for inner in node.value if node.is_list else ():
        _drop_changes(inner)


def _objectives(entry: Node, root: Node) -> list[str]:
    owner = entry if entry.get("passes") or entry.get("objectives") else root
    return [_name(item) for pass_ in owner.items_at("passes") or [owner] for item in pass_.items_at("objectives")]


def _network(name: str, node: Node, *, only: bool) -> str:
    kind = _name(node)
    if not kind:  # from a checkpoint
        changes = [_name(item) for item in node.items_at("change")]
        kind = ", ".join([f"from {_text(node.get('from'))}", *changes])
    arguments = dict(node.pairs_at(kind))
    size = "x".join(_text(arguments[key]) for key in ("layers", "width") if key in arguments)
    return f"{kind} {size}".strip() if only else f"{name}: {kind} {size}".strip()


def _named(root: Node, singular: str, plural: str) -> list[tuple[str, Node]]:
    node = root.get(singular)
    return [("main", node)] if node is not None else root.pairs_at(plural)


def _name(node: Node | None) -> str:
    if node is None:
        return ""
    keys = [key for key in node.value if key not in NETWORK.keys() - {"average"}] if node.is_mapping else []
    return str(keys[0]) if keys else "" if node.is_mapping else _text(node)


def _text(node: Node | None) -> str:
    return "" if node is None or node.value is None else str(node.value).strip()
