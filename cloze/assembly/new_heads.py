"""Initialises new heads from layers of the checkpoint: its pooler, or the dense map and norm of its head that predicts tokens."""

from __future__ import annotations

from typing import Any

from cloze.assembly.build import Loaded
from cloze.objectives import Classify
from cloze.objectives.heads import ClassHead, VocabularyHead


def plain_head(loaded: Loaded) -> Any:
    """The layers of the checkpoint's head with a dense map and a norm without offsets; None if it has none."""
    found = [head.layers for head in loaded.heads.values() if isinstance(head.layers, (VocabularyHead, ClassHead))]
    return next((head for head in found if head.norm is not None and head.norm.bias is None), None)


def start_head(head: Any, loaded: Loaded) -> None:
    """Start the layers of a new head from those of the checkpoint: its pooler, or a dense map and a norm."""
    if isinstance(head.layers, ClassHead):
        copy_pool(head, loaded)
        copy_transform(head, loaded)


def copy_transform(head: Any, loaded: Loaded) -> None:
    """Copy the dense map and norm of the head that predicts tokens, as transformers does, where both have the same names."""
    plain = plain_head(loaded)
    if plain is not None and isinstance(head.head, ClassHead) and head.head.norm is not None:
        for name in ("dense", "norm"):
            head.head.get_submodule(name).load_state_dict(plain.get_submodule(name).state_dict())


def copy_pool(head: Classify, loaded: Loaded) -> None:
    """Copy the pooler that was pre-trained with a relation objective into the dense layer of a head, as BERT does.

    If the folder keeps BERT's pooler without such an objective, that one is copied; without a pooler, the layer stays random.
    """
    mine = head.head.pool if isinstance(head.head, ClassHead) else None
    if mine is None:
        return
    others = [other.layers for other in loaded.heads.values()]
    found = [other.pool.state_dict() for other in others if isinstance(other, ClassHead) and other.pool is not None]
    if loaded.imported.architecture == "bert":
        spare = loaded.imported.model.spare
        found.append({key: spare[f"pooler.dense.{key}"] for key in ("weight", "bias") if f"pooler.dense.{key}" in spare})
    for state in found:
        if "weight" in state and state["weight"].shape == mine.weight.shape:
            mine.load_state_dict(state)
            return
