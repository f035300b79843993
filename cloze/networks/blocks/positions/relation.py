"""How attention knows where a key stands relative to a query. To add a way, write a file with a subclass of `Relation`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cloze.networks.blocks.selected import Selected


class Relation:
    """No relation at all. Subclasses override what they add to attention; queries are (B, H, Lq, W).

    `by_kernel`: a GPU kernel that does not return scores can be used, because the relation is only a rotation or a `bias`.
    """

    by_kernel: bool = True
    bias: Tensor | None = None  # (1 or B, H, Lq, Lk), added to the scores of every layer

    def bind(self, attention: Any) -> Relation:
        """The relation with the parameters that one layer's `attention` has learned for it; called once per layer."""
        return self

    def select(self, selected: Selected) -> Relation:
        """The same for the queries of the selected tokens only."""
        return self

    def rotate(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and new keys after rotation."""
        return query, key

    def rotate_values(self, value: Tensor) -> Tensor:
        """New values after rotation."""
        return value

    def content(self, query: Tensor) -> Tensor:
        """The query that is multiplied with the keys."""
        return query

    def scores(self, query: Tensor, key: Tensor, scale: float) -> Tensor | None:
        """What is added to the scores, (B, H, Lq, Lk); keys are (B, H, Lk, W)."""
        return self.bias

    def values(self, probabilities: Tensor) -> Tensor | None:
        """What is added to the heads' outputs, (B, H, Lq, W)."""
        return None


#: Attention by content alone.
NONE = Relation()
