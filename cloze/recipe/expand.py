"""A recipe as written → the same tree with every short form written out.

Keys become plural, parts become `{name: {argument: value}}`, and a network's `from`, `change`, `train`, … move from its arguments
to the level of its name. `--set` is applied to this form, before `read_recipe.py` reads it, so a value path does
not depend on the form that the author chose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cloze.document import Node
from cloze.errors import did_you_mean, nearest
from cloze.recipe.faults import Faults
from cloze.recipe.grammar import ENTRY, KEYS, NETWORK, PASS, RECIPE, SINGULAR, TEXT, VALUES
from cloze.recipe.schema import arguments_of_part, expand_arguments, expand_part

_PARTS_OF_TEXT = frozenset({"normalise", "tokenizer", "annotate"})
_PARTS_OF_NETWORK = frozenset({"average", "change", "start"})
_PARTS_OF_PASS = frozenset({"take", "objectives"})
_INHERITING = frozenset({"base", "bases", "extends", "inherit", "inherits", "parent", "recipe", "defaults", "include", "_base_"})
_STRUCTURAL_KEYS = frozenset(KEYS) - VALUES.keys() - {"order"}


def expand(root: Node, faults: Faults) -> None:
    """Write out every short form, in place."""
    if not root.is_mapping:
        faults.add(root.where, "", "a recipe is a mapping of keys such as name, network and training.")
        return
    _report_unknown_keys(root, KEYS, "", faults, elsewhere=lambda: _paths_of_arguments(root))
    for singular, plural in SINGULAR.items():
        node, where = root.get(singular), root.place(singular)
        if node is not None and plural in root.value:
            faults.add(where, singular, f"{singular} and {plural} are both written.", f"Keep {plural}.")
        elif node is not None:
            del root.value[singular]
            root.put(plural, Node({"main": node}, where, {"main": where}))
    for name, text in _named_children(root, "texts", faults):
        if _is_mapping_or_fault(text, f"texts.{name}", faults):
            normalise = text.get("normalise")
            if normalise is not None and normalise.value is None:
                normalise.value = {}
            expand_arguments(TEXT, text, f"texts.{name}", faults)
    for key in ("sources", "tables"):
        if _named_children(root, key, faults):
            expand_arguments({key: RECIPE[key]}, root, "", faults)
    for name, network in _named_children(root, "networks", faults):
        _expand_network(network, f"networks.{name}", faults)
    _expand_entry(root, "", faults)
    for name, entry in _named_children(root, "mixture", faults):
        if entry.value is None:
            entry.value = {}
        if _is_mapping_or_fault(entry, f"mixture.{name}", faults):
            _report_unknown_keys(entry, tuple(ENTRY), f"mixture.{name}", faults)
            _expand_entry(entry, f"mixture.{name}.", faults)
    if "training" in root.value:
        expand_arguments({"training": RECIPE["training"]}, root, "", faults)


def structure_holders(root: Node) -> list[tuple[Node, frozenset[str] | None]]:
    """The mappings of an expanded recipe, each with the keys whose values `--set` must not replace as a whole; None: all keys."""
    sections = [root.value[key] for key in ("texts", "sources", "tables", "networks", "mixture") if key in root.value]
    texts, networks, mixture = (
        [node for _, node in root.pairs_at(key) if node.is_mapping] for key in ("texts", "networks", "mixture")
    )
    passes = [pass_ for entry in (root, *mixture) for pass_ in entry.items_at("passes")]
    layers = [text.value["annotate"] for text in texts if "annotate" in text.value]
    return [
        *((node, _STRUCTURAL_KEYS) for node in (root, *mixture)),
        *((node, _PARTS_OF_TEXT) for node in texts),
        *((node, _PARTS_OF_NETWORK) for node in networks),
        *((node, _PARTS_OF_PASS) for node in passes),
        *((node, None) for node in (*sections, *layers)),
    ]


def _named_children(root: Node, key: str, faults: Faults) -> list[tuple[str, Node]]:
    """The pairs under a key. Adds a fault if there is no mapping or an empty one, or for a name with other characters."""
    node = root.value.get(key)
    if node is None or not _is_mapping_or_fault(node, key, faults):
        return []
    if not node.value:
        faults.add(node.where, key, "is empty.", f"Name at least one under {key}.")
    for name in node.value:
        if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
            faults.add(node.place(name), f"{key}.{name}", "a name has letters, digits, _ and - only.")
    return [(str(name), inner) for name, inner in node.items()]


def _is_mapping_or_fault(node: Node, path: str, faults: Faults) -> bool:
    """Whether the node is a mapping; adds a fault if it is not."""
    if not node.is_mapping:
        faults.add(node.where, path, f"expected a mapping, got {node.plain()!r}.")
    return node.is_mapping


def _expand_network(network: Node, path: str, faults: Faults) -> None:
    """Write out the part of a network, and move the keys of `NETWORK` from its arguments to the level of its name."""
    keys = set(network.value) if network.is_mapping else set()
    writes_no_part = keys <= NETWORK.keys() and not keys.isdisjoint({"from", "average"})
    if not writes_no_part:
        for inner in [node for key, node in network.items() if key not in NETWORK and node.is_mapping]:
            for key in sorted(NETWORK.keys() & inner.value.keys()):
                network.put(key, inner.value.pop(key))
        expand_part("network", network, path, faults, sibling_keys=NETWORK)
    if network.is_mapping:
        expand_arguments(NETWORK, network, path, faults)


def _expand_entry(node: Node, prefix: str, faults: Faults) -> None:
    """Write out the parts of an entry or of the root; their value paths begin with `prefix`."""
    parts = {key: ENTRY[key] for key in ("order", "exercise", "objectives") if key in node.value}
    expand_arguments(parts, node, prefix.rstrip("."), faults)
    passes = node.get("passes")
    if passes is None:
        return
    if "objectives" in node.value:
        faults.add(node.place("objectives"), f"{prefix}objectives", "objectives and passes are both written.",
                   "`objectives` is short for one pass; keep `passes`.")
    if not passes.is_list:
        faults.add(passes.where, f"{prefix}passes", "expected a list of passes.", "For example `- {network: main}`.")
        return
    for index, pass_ in enumerate(passes.value):
        path = f"{prefix}passes[{index}]"
        if not _is_mapping_or_fault(pass_, path, faults):
            continue
        if "objectives" in pass_.value:
            expand_arguments({"objectives": PASS["objectives"]}, pass_, path, faults)
        if "take" in pass_.value and _is_mapping_or_fault(pass_.value["take"], f"{path}.take", faults):
            for name, value in list(pass_.value["take"].items()):
                if value.is_mapping and value.part_kind is None:  # else `field: pass.state`
                    part = Node({name: value}, value.where, {name: pass_.value["take"].place(name)})
                    expand_part("rewriter", part, f"{path}.take", faults)
                    pass_.value["take"].value[name] = part


def _paths_of_arguments(root: Node) -> list[str]:
    """The value paths of the arguments of an expanded recipe's networks: `network.dropout`."""
    networks = root.pairs_at("networks")
    owners = {"network" if name == "main" or len(networks) == 1 else f"networks.{name}": node for name, node in networks}
    parts = [
        (owner, str(key)) for owner, node in owners.items() if node.part_kind for key in node.value if key not in NETWORK
    ]
    return [f"{owner}.{argument}" for owner, part in parts for argument in arguments_of_part("network", part)]


def _report_unknown_keys(
    node: Node, keys: tuple[str, ...], path: str, faults: Faults, elsewhere: Callable[[], Sequence[str]] = tuple
) -> None:
    """Report keys of a section that the language does not have; for one that ends a path `elsewhere`, name that path."""
    for key in node.value:
        if key not in keys:
            same = [other for other in elsewhere() if other.rpartition(".")[2] == key]
            hint = did_you_mean(same[:3] or nearest(str(key), keys))
            way_out = f"{path or 'A recipe'} has the keys: {', '.join(keys)}. {hint}".rstrip()
            if not path and key in _INHERITING and not same:
                copy = "Change a copy: cloze show NAME > mine.yaml; or values alone: --set PATH=VALUE"
                way_out = f"A recipe builds on no other. {copy}"
            faults.add(node.place(key), f"{path}.{key}".lstrip("."), f'unknown key "{key}".', way_out)
