"""Predict the relation of a pair, or the class of a text, from its summary: next sentence, swapped order, sentiment."""

from __future__ import annotations

from cloze.bounds import BelowOne, Count
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.clock import Clock
from cloze.objectives.classify import RelationPrediction
from cloze.objectives.heads import ClassHead
from cloze.objectives.transforms import Tanh
from cloze.registry import Given, register


@register("objective", "relation_prediction")
def relation_prediction(
    *,
    classes: Count = 2,
    set: str = "next",
    pool: bool = True,
    dropout: BelowOne = 0.0,
    width: Given[int],
    clock: Given[Clock],
) -> RelationPrediction:
    """Cross-entropy over `classes` at each example's summary; `pool` puts BERT's pooler (dense, tanh) before it.

    Positions are examples: rows of `summary` (E, D). Dropout before the output serves fine-tuning (0.1 in BERT's
    classifiers, none in next-sentence prediction). Parameters: `head.pool.*`, `head.output.*`.
    """
    transform = Tanh() if pool else None
    head = ClassHead(width=width, classes=classes, transform=transform, dropout=Dropout(dropout, clock), pool=True)
    return RelationPrediction(head, set=set)
