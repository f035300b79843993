"""Value paths: `training.batch`, `exercise.mask.rate`, `text.tokenizer.size`, `networks.generator.layers`.

A list item is addressed by part name where that is unique, else by index: `exercise[2].rate`. The name of a part may be
left out: `training.rate.peak` is `training.rate.linear.peak`. Errors, `--set`, `--vary` and phases use the same paths. `locate`
looks one up; `apply_override` (`--set`) and `apply_phase` set values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from cloze.document import Key, Node, Where, from_data, parse_value
from cloze.errors import RecipeError, did_you_mean, nearest, propose
from cloze.recipe.expand import structure_holders
from cloze.recipe.faults import Faults
from cloze.recipe.grammar import NETWORK, SINGULAR
from cloze.recipe.recipe import TrainingSpec
from cloze.recipe.schema import arguments_of_part, expand_part

_step = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,6})\]")

class Location(NamedTuple):
    """A place in the tree: a container, a key in it, and the full path."""

    container: Node
    key: Key
    path: str

    @property
    def node(self) -> Node | None:
        """What stands there now, if anything does."""
        value = self.container.value
        if isinstance(value, list):
            return value[int(self.key)]
        return value.get(self.key)


def split(path: str) -> list[str | int]:
    """`exercise[2].mask.rate` → ["exercise", 2, "mask", "rate"]."""
    steps: list[str | int] = []
    position = 0
    for match in _step.finditer(path):
        if match.start() != position:
            break
        steps.append(int(match[2]) if match[2] is not None else match[1])
        position = match.end()
    if not steps or position != len(path) or path.startswith("."):
        raise RecipeError(f"{path!r} is not a value path. Write it like training.batch or exercise[2].mask.rate.")
    return steps


def locate(root: Node, path: str) -> Location:
    """The place that a value path names in an expanded recipe. A step before the last that leads nowhere is a `RecipeError`.

    The last step may name a key that is not there; `Location.node` is None then.

    A number on the way that stands for a section is read as `{field: number}`; the tree stays as it is.
    """
    return _walk(root, path, in_place=False)


def locate_for_setting(root: Node, path: str) -> Location:
    """`locate`, for a place that is set next: a number on the way that stands for a section is written out in the tree."""
    return _walk(root, path, in_place=True)


def _walk(root: Node, path: str, *, in_place: bool) -> Location:
    steps = _unabbreviated(root, split(path))
    node, walked = root, ""
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        node = _section(node, in_place=in_place)
        container, key = _enter(node, step, walked, path)
        suffix = f"[{key}]" if isinstance(container.value, list) else f".{key}"
        if container is not node:
            walked += f".{_part_name(node)}"
        if last:
            return Location(container, key, (walked + suffix).lstrip("."))
        inner = Location(container, key, "").node
        if inner is None:
            inside = (walked + suffix).lstrip(".")
            if walked == ".training" and step in TrainingSpec.__dataclass_fields__:
                raise RecipeError(
                    f"{path!r}: {inside} is null in this recipe, and a path sets values inside what is there.\n"
                    "  Write it in a recipe of your own: cloze show NAME > mine.yaml"
                )
            raise RecipeError(f"{path!r}: {inside} is not in the recipe. {_keys_sentence(container, key)}".rstrip())
        node, walked = inner, walked + suffix
    raise RecipeError(f"{path!r} is not a value path.")


def meant_by(root: Node, path: str) -> list[str]:
    """The paths that a path stands for: `length` is the length of every source."""
    return [f"sources.{name}.length" for name, node in root.pairs_at("sources") if node.part_kind] if path == "length" else [path]


def _unabbreviated(root: Node, steps: list[str | int]) -> list[str | int]:
    """Singular forms, `batch`, `odds.<entry>` and `objectives` written out."""
    first = steps[0]
    if isinstance(first, str) and first in SINGULAR and first not in root.value:
        plural = SINGULAR[first]
        owners = list(root.value[plural].value) if plural in root.value else []
        return [plural, "main" if "main" in owners or len(owners) != 1 else owners[0], *steps[1:]]
    if first == "batch" and len(steps) == 1:
        return ["training", "batch"]
    if first == "odds" and len(steps) == 2:
        return ["mixture", steps[1], "odds"]
    if first == "objectives" and "objectives" not in root.value:
        return ["passes", 0, *steps] if _single(root) else steps
    if first == "mixture" and len(steps) > 2 and steps[2] == "objectives":
        entry = root.value.get("mixture", root).value.get(steps[1])
        if isinstance(entry, Node) and "objectives" not in entry.value and _single(entry):
            return [*steps[:2], "passes", 0, *steps[2:]]
    return steps


def _single(entry: Node) -> bool:
    return len(entry.items_at("passes")) == 1


def _enter(node: Node, step: str | int, walked: str, path: str) -> tuple[Node, Key]:
    """The container and key that one step means, passing over a part's name where it is left out."""
    if node.is_list:
        return node, _item(node, step, walked, path)
    if not node.is_mapping:
        raise RecipeError(f"{path!r}: {walked.lstrip('.')} is a value and has nothing inside.")
    of_network = node.part_kind == "network" and step in NETWORK  # `train` belongs to the network, not to its part
    if node.part_kind is not None and step not in node.value and not of_network:
        name = _part_name(node)
        inner = node.value.get(name)
        if inner is not None and inner.is_mapping:
            return inner, step
    return node, step


def _section(node: Node, *, in_place: bool) -> Node:
    """The section that a number stands for; any other node as it is."""
    if node.is_list or node.is_mapping or node.shorthand_field is None:
        return node
    fields = {node.shorthand_field: Node(node.value, node.where)}
    if not in_place:
        return Node(fields, node.where, part_kind=node.part_kind)
    node.value = fields
    return node


def _item(node: Node, step: str | int, walked: str, path: str) -> int:
    where = walked.lstrip(".")
    if isinstance(step, int) or (step.isdecimal() and len(step) < 7):
        index = int(step)
        if index >= len(node.value):
            raise RecipeError(f"{path!r}: {where} has {len(node.value)} items, the last is {where}[{len(node.value) - 1}].")
        return index
    names = [_item_names(item) for item in node.value]
    matches = [index for index, item_names in enumerate(names) if step in item_names]
    if len(matches) == 1:
        return matches[0]
    if matches:
        options = " or ".join(f"{where}[{index}]" for index in matches)
        raise RecipeError(f"{path!r}: {where} has {len(matches)} items named {step!r}. Write {options}.")
    raise RecipeError(f"{path!r}: {where} has no item {step!r}. {propose(step, [n for item_names in names for n in item_names])}")


def _item_names(item: Node) -> list[str]:
    if item.part_kind is not None:
        return [_part_name(item)]
    name_node = item.value.get("name") or item.value.get("network") if item.is_mapping else None
    return [str(name_node.value)] if name_node is not None else []


def _part_name(node: Node) -> str:
    return next((str(key) for key, inner in node.items() if inner.is_mapping), "")


def _keys_sentence(container: Node, missing: Key) -> str:
    """The keys of a mapping most like one that is missing, and all of its keys."""
    keys = [str(key) for key in container.value] if container.is_mapping else []
    short_forms = [singular for singular, plural in SINGULAR.items() if plural in keys]
    hint = did_you_mean(nearest(str(missing), [*keys, *short_forms]))
    return f"{hint} It has: {', '.join(keys)}.".lstrip() if keys else ""


# ---- setting values --------------------------------------------------------------------------------------------------


def apply_override(root: Node, override: str, faults: Faults) -> None:
    """Apply one `path=value`; a phase that sets the same path takes the new value too."""
    path, equals, text = override.partition("=")
    where = Where.of_override(override)
    value = from_data(parse_value(text, where, option="--set", prefix=f"{path}=").plain() if equals else None, where)
    with faults.catching(where, ""):
        if not equals:
            raise RecipeError("a value is set as path=value, for example training.batch=64.")
        path = path.strip()
        for full_path in meant_by(root, path):
            _set(root, full_path, value.copy())
            target = locate(root, full_path).path
            for phase in root.items_at("schedule"):
                for key, _ in phase.pairs_at("set"):
                    if target in _targets(root, key):
                        phase.value["set"].put(key, value.copy())


def _annotator(old: Node, new: Node, path: str) -> Node:
    """Another annotator of a layer, with what it leaves out from the old one, above all the labels that count."""
    faults = Faults()
    expand_part("annotator", new, path, faults)
    faults.raise_if_any()
    (before,), ((part, after),) = (inner for _, inner in old.items()), new.items()
    for key in (arguments_of_part("annotator", str(part)).keys() & before.value.keys()) - {"file"} - after.value.keys():
        after.put(key, before.value[key])
    return new


def _set(root: Node, path: str, value: Node) -> None:
    """Put a value at a path, unless that would change the structure of the recipe. Reading the recipe refuses an unknown key."""
    location = locate_for_setting(root, path)
    old = location.node
    may_replace = False
    if old is not None and old.shorthand_field is not None:  # one number may take the place of this section
        value.shorthand_field, may_replace = old.shorthand_field, True
    holders = structure_holders(root)
    holds_parts = any(location.container is node and (keys is None or location.key in keys) for node, keys in holders)
    _require_shape(root, location)
    # Annotators and segmenters may be replaced: neither the network nor the exercise depends on which one is used.
    other_segmenter = old is not None and old.part_kind == "segmenter" and not value.is_mapping
    replaces_part = old is not None and not may_replace and (old.part_kind is not None or _structural(old))
    if old is not None and old.part_kind == "annotator" and value.is_mapping:
        value = _annotator(old, value, location.path)
    elif not other_segmenter and (holds_parts or _structural(value) or replaces_part):
        raise RecipeError(
            f"{location.path} is structure, not a value: a path sets numbers, names and lists of them.\n"
            f"  Change it in a recipe of your own: cloze show NAME > mine.yaml"
        )
    if isinstance(location.container.value, list):
        location.container.value[int(location.key)] = value
    else:
        location.container.put(location.key, value)
        location.container.key_places[location.key] = value.where


def _require_shape(root: Node, location: Location) -> None:
    """Raise a `RecipeError` for an argument of a network that is not written out, as it comes from elsewhere."""
    for name, network in root.pairs_at("networks"):
        if location.container is network and network.part_kind is None and location.key not in NETWORK:
            if "from" not in network.value:
                raise RecipeError(f"networks.{name} averages another network, which decides its arguments.\n  Set them there.")
            origin = network.value["from"].plain()
            raise RecipeError(
                f"networks.{name} has only `from: {origin}`, which decides its arguments.\n"
                f"  Bind the checkpoint first: --bind {origin}=FOLDER."
            )


def _structural(node: Node) -> bool:
    return node.is_mapping or (node.is_list and any(item.is_mapping or item.part_kind is not None for item in node.value))


def _targets(root: Node, path: str) -> list[str]:
    """The full paths that a phase's path means; none for an unknown path, which `_check_phases` reports."""
    try:
        return [locate(root, full_path).path for full_path in meant_by(root, path)]
    except RecipeError:
        return []


def apply_phase(root: Node, values: Mapping[str, Any], where: Where, prefix: str, faults: Faults) -> None:
    """Set the values of a phase, whose own path is `prefix`, and drop the schedule."""
    for path, value in values.items():
        with faults.catching(where, f"{prefix}.{path}"):
            for full_path in meant_by(root, path):
                _set(root, full_path, from_data(value, where))
    root.value.pop("schedule", None)
