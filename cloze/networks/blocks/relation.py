"""How attention knows where a key stands relative to a query. To add a way, write a file with a subclass of `Relation`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cloze.networks.blocks.selected import Selected


class Relation:
    """No relation at all. Subclasses override what they add to attention; all shapes are those of (B, H, queries, W) queries.

    `by_kernel`: a kernel that hides its scores can be used, because there are no terms but a rotation and a `bias`.
    """

    by_kernel: bool = True
    bias: Tensor | None = None  # (1, H, Lq, Lk), added to the scores of every layer

    def bind(self, attention: Any) -> Relation:
        """The relation with what one layer's `attention` has learned about it; it is called once per layer."""
        return self

    def at(self, selected: Selected) -> Relation:
        """The same where only the tokens in `selected` ask."""
        return self

    def rotate(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and new keys as they enter the product."""
        return query, key

    def content(self, query: Tensor) -> Tensor:
        """The query that is multiplied with the keys."""
        return query

    def scores(self, query: Tensor, scale: float) -> Tensor | None:
        """What is added to the scores, (B, H, Lq, Lk)."""
        return self.bias

    def values(self, probabilities: Tensor) -> Tensor | None:
        """What is added to the heads' outputs, (B, H, Lq, W)."""
        return None


#: Attention by content alone.
NONE = Relation()
