"""Label every token: replaced or original (ELECTRA), or one of several classes."""

from __future__ import annotations

from typing import Literal

from torch import nn

from cloze.bounds import BelowOne, Count
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.clock import Clock
from cloze.objectives.classify import Classify
from cloze.objectives.heads import ClassHead
from cloze.objectives.objective import Kind
from cloze.objectives.transforms import Nonlinearity, plain_transform
from cloze.registry import Given, register


class ClassifyTokens(Classify):
    """`Classify` that decides for every token whether it belongs there."""

    kind: Kind | None = "token_labelling"


@register("objective", "token_labelling")
def token_labelling(
    *,
    set: str = "replaced",
    classes: Count = 2,
    transform: Nonlinearity | None = "gelu",
    dropout: BelowOne = 0.0,
    initial: Literal["truncated", "glorot"] = "truncated",
    width: Given[int],
    clock: Given[Clock],
) -> ClassifyTokens:
    """A label per token: with two classes one output and binary cross-entropy, as in ELECTRA (Clark et al., 2020, §2).

    Without `positions/<set>` every position that is not padding has a target, special tokens included, and `targets/<set>` is
    (B*L,). `initial` is the initialisation of `output`: `truncated`, as all other weights of BERT, or `glorot`, uniform in
    ±√(6 / (inputs + outputs)), as in ELECTRA (`run_pretraining.py` leaves it to TensorFlow). Parameters: `head.dense.*` (with a
    transform), `head.output.*`.
    """
    head = ClassHead(
        width=width, classes=1 if classes == 2 else classes, transform=plain_transform(transform),
        dropout=Dropout(dropout, clock),
    )
    if initial == "glorot":
        nn.init.xavier_uniform_(head.output.weight)
    objective = ClassifyTokens(head, set=set, everywhere=True)
    objective.kind = "token_labelling" if classes == 2 else None
    return objective
