"""Value paths: `training.batch`, `exercise.mask.rate`, `text.tokenizer.size`, `networks.generator.layers`.

A list item is addressed by part name where that is unique, else by index: `exercise[2].rate`. The name of a part may be
left out: `training.rate.peak` is `training.rate.linear.peak`. Errors, `--set`, `--vary` and phases use the same paths.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cloze.assembly.recipe import TrainingSpec
from cloze.document import Key, Node
from cloze.errors import RecipeError, propose

_step = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,6})\]")

#: The keys of a network that stand next to its part: they belong to the network, not to the part.
NEXT_TO_PART = frozenset({"from", "average", "change", "train", "architecture", "start"})
SINGULAR = {"text": "texts", "corpus": "sources", "network": "networks"}


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


def find(root: Node, path: str) -> Location:
    """The place that a value path names in an expanded recipe; a step that leads nowhere is a `RecipeError`."""
    steps = _unabbreviated(root, split(path))
    node, walked = root, ""
    for place, step in enumerate(steps):
        last = place == len(steps) - 1
        container, key = _enter(node, step, walked, path)
        shown = f"[{key}]" if isinstance(container.value, list) else f".{key}"
        if container is not node:
            walked += f".{_part_name(node)}"
        if last:
            return Location(container, key, (walked + shown).lstrip("."))
        inner = Location(container, key, "").node
        if inner is None:
            inside = (walked + shown).lstrip(".")
            if walked == ".training" and step in TrainingSpec.__dataclass_fields__:
                raise RecipeError(
                    f"{path!r}: {inside} is null in this recipe, and a path sets values inside what is there.\n"
                    "  Write it in a recipe of your own: cloze show NAME > mine.yaml"
                )
            raise RecipeError(f"{path!r}: {inside} is not in the recipe. {_known(container)}")
        node, walked = inner, walked + shown
    raise RecipeError(f"{path!r} is not a value path.")


def lengths(root: Node) -> list[str]:
    """The paths that `length` stands for: the length of every source."""
    sources = root.value.get("sources")
    return [f"sources.{name}.length" for name, node in sources.items() if node.part] if sources else []


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
    passes = entry.value.get("passes")
    return passes is not None and passes.is_list and len(passes.value) == 1


def _enter(node: Node, step: str | int, walked: str, path: str) -> tuple[Node, Key]:
    """The container and key that one step means, passing over a part's name where it is left out."""
    if node.is_list:
        return node, _item(node, step, walked, path)
    if not node.is_mapping and node.first is not None:
        node.value = {node.first: Node(node.value, node.where)}  # the number that stands for a section, written out
    if not node.is_mapping:
        raise RecipeError(f"{path!r}: {walked.lstrip('.')} is a value and has nothing inside.")
    own = node.part == "network" and step in NEXT_TO_PART  # `train` belongs to the network, not to its part
    if node.part is not None and step not in node.value and not own:
        name = _part_name(node)
        inner = node.value.get(name)
        if inner is not None and inner.is_mapping:
            return inner, step
    return node, step


def _item(node: Node, step: str | int, walked: str, path: str) -> int:
    where = walked.lstrip(".")
    if isinstance(step, int) or (step.isdecimal() and len(step) < 7):
        index = int(step)
        if index >= len(node.value):
            raise RecipeError(f"{path!r}: {where} has {len(node.value)} items, the last is {where}[{len(node.value) - 1}].")
        return index
    names = [_item_names(item) for item in node.value]
    found = [index for index, known in enumerate(names) if step in known]
    if len(found) == 1:
        return found[0]
    if found:
        options = " or ".join(f"{where}[{index}]" for index in found)
        raise RecipeError(f"{path!r}: {where} has {len(found)} items named {step!r}. Write {options}.")
    raise RecipeError(f"{path!r}: {where} has no item {step!r}. {propose(step, [n for known in names for n in known])}")


def _item_names(item: Node) -> list[str]:
    if item.part is not None:
        return [_part_name(item)]
    named = item.value.get("name") or item.value.get("network") if item.is_mapping else None
    return [str(named.value)] if named is not None else []


def _part_name(node: Node) -> str:
    return next((str(key) for key, inner in node.items() if inner.is_mapping), "")


def _known(container: Node) -> str:
    keys = [str(key) for key in container.value] if container.is_mapping else []
    return f"There is: {', '.join(keys)}." if keys else ""
