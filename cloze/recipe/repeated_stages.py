"""Stages that are repeated: `each: depth_group` stands for one stage per depth group of the checkpoint's network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloze.document import Key, Node
from cloze.errors import RecipeError

EACH, GROUP, PREVIOUS = "each", "depth_group", "previous"


def repeats(root: Node) -> bool:
    """Whether a recipe has a stage that is repeated."""
    stages = root.value.get("stages") if root.is_mapping else None
    return stages is not None and any(stage.is_mapping and EACH in stage.value for _, stage in stages.items())


def repeat_stages(root: Node, groups: Sequence[str | int] = ("embeddings",)) -> Node:
    """The recipe with a stage for each of the depth `groups` in place of every stage with `each: depth_group`.

    In such a stage the value `depth_group` stands for the group. In every stage `from: previous` stands for the stage before it.
    A recipe whose checkpoint is not known yet has one such stage, for the embeddings. A `RecipeError` for any other `each`, and
    for a first stage that comes from the previous one.
    """
    stages = root.value.get("stages") if root.is_mapping else None
    if stages is None or not stages.is_mapping:
        return root
    new_stages: dict[Key, Node] = {}
    for name, stage in stages.items():
        repetition = stage.value.get(EACH) if stage.is_mapping else None
        if repetition is not None and repetition.value != GROUP:
            raise RecipeError(f"{repetition.where}: stages.{name}.each: got {repetition.value!r}, expected {GROUP}.")
        for group in [None] if repetition is None else groups:
            before = next(reversed(new_stages), None)
            named = {} if before is None else {PREVIOUS: before}
            repeated = _put(stage, "from", named)
            if group is not None:
                del repeated.value[EACH]
                repeated = _put(repeated, None, {GROUP: group})
            if before is None and _names(stage, PREVIOUS):
                raise RecipeError(
                    f"{stage.where}: stages.{name}: is the first stage, so `from: {PREVIOUS}` has no stage to begin with. "
                    "Name a checkpoint."
                )
            new_stages[name if group is None else f"{name}_{group}"] = repeated
    whole = root.copy()
    whole.value["stages"] = Node(new_stages, stages.where, dict.fromkeys(new_stages, stages.where))
    return whole


def repeat_overrides(root: Node, overrides: Sequence[str], groups: Sequence[str | int] = ("embeddings",)) -> list[str]:
    """Overrides of the stages that `repeat_stages` makes: a value of a repeated stage, by the name that it is written with
    (`stages.layers.training.batch=8`), is one of each repetition."""
    stages = root.value.get("stages") if root.is_mapping else None
    written = {} if stages is None or not stages.is_mapping else dict(stages.items())
    repeated = {f"stages.{name}.": name for name, stage in written.items() if stage.is_mapping and EACH in stage.value}
    new_overrides: list[str] = []
    for override in overrides:
        lead = next((lead for lead in repeated if override.startswith(lead)), None)
        if lead is None:
            new_overrides.append(override)
        else:
            new_overrides += [f"stages.{repeated[lead]}_{group}.{override.removeprefix(lead)}" for group in groups]
    return new_overrides


def _put(node: Node, key: str | None, values: Mapping[str, Key]) -> Node:
    """A copy in which the values of `key`, or of any key if it is None, that are among `values` are replaced."""
    copy = node.copy()
    todo: list[tuple[Key | None, Node]] = [(None, copy)]
    while todo:
        above, inner = todo.pop()
        if inner.is_mapping:
            todo += list(inner.items())
        elif inner.is_list:
            todo += [(above, child) for child in inner.value]
        elif isinstance(inner.value, str) and inner.value in values and key in (None, above):
            inner.value = values[inner.value]
    return copy


def _names(node: Node, value: str) -> bool:
    """Whether a `from` anywhere in a tree has this value."""
    marked = _put(node, "from", {value: f"{value}."})
    return marked.plain() != node.plain()
