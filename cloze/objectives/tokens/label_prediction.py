"""Predict the labels of a further input, by the table of vectors that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from cloze.bounds import Positive
from cloze.errors import RecipeError, propose
from cloze.objectives.classify import Classify
from cloze.objectives.heads import VocabularyHead
from cloze.registry import Given, register


@register("objective", "label_prediction")
def label_prediction(
    *,
    table: str,
    set: str,
    reading: Literal["hidden", "summary"] = "hidden",
    transform: Literal["gelu", "gelu_tanh", "relu"] = "gelu",
    norm_epsilon: Positive = 1e-5,
    width: Given[int],
    vector_tables: Given[Mapping[str, Any] | None] = None,
) -> Classify:
    """A softmax over the rows of the network's further input `table`, which are the output weights as well (SentiLARE; Ke et al.,
    2020, §3.3): a dense map, a non-linearity and a norm, then the product with the table, plus a bias.

    `reading` is the state that is read; with `summary` the label of the whole row is predicted. Parameters: `head.dense.*`,
    `head.norm.*`, `head.bias`.
    """
    tables = vector_tables or {}
    if table not in tables:
        raise RecipeError(f"label_prediction: the network has no table of further inputs {table!r}. {propose(table, tables)}")
    rows = tables[table]
    head = VocabularyHead(
        width=width, vocab_size=rows.num_embeddings, transform=transform, table=rows, bias=True, norm_epsilon=norm_epsilon,
    )
    return Classify(head, set=set, reading=reading)
