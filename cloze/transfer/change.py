"""Changes of a network that comes from an earlier run or from a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cloze.registry import register


@register("change", "vocabulary")
@dataclass(frozen=True)
class Vocabulary:
    """The run has a vocabulary of its own: rows of words that both know are kept, see `transfer_rows` for the `new` ones."""

    new: Literal["mean", "random"] = "mean"


@register("change", "arguments")
@dataclass(frozen=True)
class Arguments:
    """The network has the shape of the checkpoint that it comes from, and these arguments in place of the checkpoint's: dropouts,
    where gradients end. Once the checkpoint is known they are ordinary values: `--set network.dropout=0.2`."""

    to: dict[str, Any]
