"""Predict the relation of a pair, or the class of a text, from its summary: next sentence, swapped order, relation of a graph."""

from __future__ import annotations

from collections.abc import Sequence

from cloze.bounds import BelowOne, Count
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.initial import Law
from cloze.networks.clock import Clock
from cloze.objectives.classify import ClassifySummary
from cloze.objectives.heads import ClassHead
from cloze.objectives.objective import ClassWeights, weights_of
from cloze.objectives.transforms import Tanh
from cloze.registry import Given, register


@register("objective", "relation_prediction")
def relation_prediction(
    *,
    classes: Count = 2,
    set: str = "next",
    pool: bool = True,
    dropout: BelowOne = 0.0,
    class_weights: ClassWeights = None,
    initial: Law = "truncated",
    width: Given[int],
    clock: Given[Clock],
) -> ClassifySummary:
    """Cross-entropy over `classes` at each example's summary; `pool` puts BERT's pooler (dense, tanh) before it.

    Positions are examples: rows of `summary` (E, D). Dropout before the output serves fine-tuning (0.1 in BERT's
    classifiers, none in next-sentence prediction). Weights start with standard deviation 0.02, truncated at two, or not with
    `initial: normal`. Parameters: `head.pool.*`, `head.output.*`.

    `class_weights` weigh the loss of each class's targets, as `weight` of torch's CrossEntropyLoss does: the mean is that of the
    weighted losses, divided by the sum of the weights. `balanced` means n / (C · n_c) for the n_c of n training labels, as in
    scikit-learn; a run writes the numbers in its recipe.
    """
    transform = Tanh() if pool else None
    head = ClassHead(
        width=width, classes=classes, transform=transform, dropout=Dropout(dropout, clock), pool=True, initial=initial
    )
    objective = ClassifySummary(head, set=set)
    objective.class_weights = weights_of(class_weights, classes)
    return objective


class RelationClassification(ClassifySummary):
    """`ClassifySummary` whose classes are the relations of a graph; `relations` are their ids."""

    def __init__(self, head: ClassHead, *, set: str, relations: Sequence[str]) -> None:
        super().__init__(head, set=set)
        self.relations = tuple(relations)


@register("objective", "relation_classification")
def relation_classification(
    *, set: str = "relation", relations: list[str] | None = None, dropout: BelowOne = 0.1, width: Given[int], clock: Given[Clock],
) -> RelationClassification:
    """Which relation of a graph holds between two entities, from the summary of their texts (KG-BERT (b), Yao et al., 2019).

    Cross-entropy over `relations`, the ids of the graph, which a run takes from it. The head is that of `relation_prediction`
    with a pooler and a class for each of them.
    """
    classes = max(len(relations or ()), 2)
    head = ClassHead(width=width, classes=classes, transform=Tanh(), dropout=Dropout(dropout, clock), pool=True)
    return RelationClassification(head, set=set, relations=relations or ())
