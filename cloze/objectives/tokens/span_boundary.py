"""Predict the tokens of a span from its two boundary tokens and each token's position in the span (SpanBERT)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Count, Positive, Width
from cloze.networks.blocks.initial import Law, draw
from cloze.networks.cost import Operations
from cloze.objectives.classify import Classify
from cloze.objectives.heads import VocabularyHead, dense
from cloze.objectives.transforms import Nonlinearity, transformed
from cloze.registry import Given, register


class SpanBoundary(Classify):
    """Cross-entropy of `targets/<set>`, read from three vectors: the states left and right of a span, and a position.

    `positions/<set>` and `positions/<set>_right` are the flat positions of the two boundaries, `targets/<set>_right` the token's
    number in its span, from 1; all have the same length. Metrics: `correct`.
    """

    of_tokens = True

    def __init__(
        self, head: VocabularyHead, *, set: str, width: int, position_width: int, max_length: int, transform: Nonlinearity,
        norm_epsilon: float, initial: Law,
    ) -> None:
        super().__init__(head, set=set)
        self.right, self.offsets = f"positions/{set}_right", f"targets/{set}_right"
        self.at = (self.positions_field, self.right)
        self.takes = frozenset({self.targets_field, self.positions_field, self.right, self.offsets})
        self.transform = transform
        self.positions = nn.Embedding(max_length, position_width)
        draw(self.positions.weight, initial, 0.02)
        self.join = dense(2 * width + position_width, width, initial=initial)
        self.norm = nn.LayerNorm(width, eps=norm_epsilon)

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """The first layer, then the head."""
        counted.add(self.head_rows(batch), self.positions, self.join, self.norm, self.head)

    def rows(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The first layer's output for every target, (M, D)."""
        state = states[self.reads[0]].flatten(0, -2)
        left, right = (state.index_select(0, batch[name].long()) for name in self.at)
        offsets = (batch[self.offsets].long() - 1).clamp(min=0)  # targets of weight 0 are padded with zeros
        joined = torch.cat([left, right, self.positions(offsets).to(left.dtype)], dim=-1)
        return self.norm(transformed(self.join(joined), self.transform))


@register("objective", "span_boundary")
def span_boundary(
    *,
    set: str = "boundary",
    max_length: Count = 15,
    position_width: Width = 200,
    transform: Nonlinearity = "gelu",
    tie: bool = True,
    bias: bool = True,
    norm_epsilon: Positive = 1e-12,
    initial: Law = "truncated",
    width: Given[int],
    vocab_size: Given[int],
    table: Given[nn.Embedding | None] = None,
) -> SpanBoundary:
    """The span boundary objective (Joshi et al., SpanBERT, 2020, §3.2), with at most `max_length` targets in a span.

    h1 = norm(f(W1 [left; right; position])), h2 = norm(f(W2 h1)), scores = h2 · table + bias. Weights start with
    standard deviation 0.02, truncated at two, or not with `initial: normal` (the authors' code). Parameters: `positions.*`,
    `join.*`, `norm.*`, `head.dense.*`, `head.norm.*`, `head.bias`, `head.output.weight` if not tied.
    """
    if tie and table is None:
        raise ValueError("span_boundary: tie is true, but the network it reads has no token table")
    head = VocabularyHead(
        width=width, vocab_size=vocab_size, transform=transform, table=table if tie else None, bias=bias,
        norm_epsilon=norm_epsilon, initial=initial,
    )
    return SpanBoundary(
        head, set=set, width=width, position_width=position_width, max_length=max_length, transform=transform,
        norm_epsilon=norm_epsilon, initial=initial,
    )
