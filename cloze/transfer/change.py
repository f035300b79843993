"""Changes of a network that comes from an earlier run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cloze.registry import register


@register("change", "vocabulary")
@dataclass(frozen=True)
class Vocabulary:
    """The run has a vocabulary of its own: rows of words that both know are kept, see `transfer_rows` for the `new` ones."""

    new: Literal["mean", "random"] = "mean"
