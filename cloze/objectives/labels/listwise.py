"""Rank the passages of a query by a softmax over them, with a head that later scores each passage by itself."""

from __future__ import annotations

from typing import Any

from cloze.bounds import BelowOne
from cloze.networks.clock import Clock
from cloze.objectives.labels.choice import Choose, choose
from cloze.objectives.labels.head_from_checkpoint import HeadFacts, HeadFromCheckpoint, Pool, head_arguments
from cloze.objectives.summary import Read
from cloze.objectives.transforms import Transform
from cloze.registry import Given, register


@register("objective", "listwise")
def listwise(
    *,
    set: str = "label",
    reading: Read = "summary",
    pool: bool = False,
    transform: Transform = None,
    output_bias: bool = True,
    dropout: BelowOne = 0.0,
    width: Given[int],
    clock: Given[Clock],
) -> Choose:
    """The loss of `choose` over a relevant passage and others of its query: localized contrastive estimation (Gao et al., 2021,
    "Rethink Training of BERT Rerankers in Multi-Stage Retrieval Pipeline", §3).

    The head and its parameters are those of `regress` with one output. transformers has it as a classifier with one label.
    """
    return choose(
        set=set, reading=reading, pool=pool, transform=transform, output_bias=output_bias, dropout=dropout, width=width,
        clock=clock,
    )


@register("objective", "text_listwise")
class TextListwise(HeadFromCheckpoint):
    """The right one of the rows of a record (see the edit `spread`), by the head of `text_classification` with one output."""

    fittable = True

    def __init__(self, *, set: str = "label", dropout: BelowOne = 0.1, pool: Pool = "auto") -> None:
        self.set, self.dropout, self.pool = set, dropout, pool

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """`listwise` with the head of such a network."""
        return "listwise", {"set": self.set, "dropout": self.dropout, **head_arguments(facts, self.pool)}
