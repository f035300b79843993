"""The one layer: attention, attention to another sequence where there is one, a feed-forward, each in a residual connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from cloze.networks.blocks.attention import Attention, AttentionInputs, Reading
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.feed_forward import FeedForward, Feeding
from cloze.networks.blocks.norm_place import NormPlace
from cloze.networks.fast.choose import choose


class Drops(NamedTuple):
    """The dropouts of one pass through a layer: attention probabilities, attention's output, between the maps, their output."""

    probabilities: Dropout
    attention: Dropout
    active: Dropout
    inner: Dropout


class Layer(nn.Module):
    """A Transformer layer (Vaswani et al., 2017, §3.1).

    Parameters: `attention.*`, `attention_norm`, with `crossing` (attention to another sequence) `crossing.*` and `crossing_norm`,
    the maps of `feed_forward` (`inner`, `outer`, …) and `inner_norm`. `norm` and `dropout` make one of theirs; `place` says where
    norms stand; without `first_norm` attention reads its input as it is, where the embeddings have just had a norm.
    """

    inner: nn.Linear
    outer: nn.Linear
    query_drops: Any  # of a second stream, where the network has one

    def __init__(
        self,
        *,
        width: int,
        attention: Attention,
        feed_forward: FeedForward,
        norm: Callable[[], nn.Module],
        place: NormPlace,
        dropout: Callable[[], Dropout],
        active_dropout: Dropout,
        crossing: Attention | None = None,
        first_norm: bool = True,
    ) -> None:
        super().__init__()
        self.place, self.feed_forward = place, feed_forward
        self.lends = False  # whether other layers use maps of this one
        self.attention = attention
        self.attention_norm = norm() if first_norm else nn.Identity()
        self.attention_dropout = dropout()
        self.crossing = crossing
        if crossing is not None:
            self.crossing_norm, self.crossing_dropout = norm(), dropout()
        for name, linear in feed_forward.maps(width).items():
            setattr(self, name, linear)
        self.inner_norm = norm()
        self.active_dropout = active_dropout
        self.inner_dropout = dropout()

    @property
    def drops(self) -> Drops:
        """The dropouts of the layer's own stream."""
        return Drops(self.attention.dropout, self.attention_dropout, self.active_dropout, self.inner_dropout)

    @property
    def feed_forward_maps(self) -> list[nn.Linear]:
        """The maps of the feed-forward, the one into the residual connection last."""
        return [getattr(self, name) for name in self.feed_forward.names]

    def forward(
        self, x: Tensor, given: AttentionInputs, across: AttentionInputs | None = None, *, drops: Drops | None = None
    ) -> Tensor:
        """(B, L, D) to (B, L, D), or to (M, D) where only some tokens ask; `across` is what a decoder reads of its source.

        A second stream has `drops` of its own.
        """
        drops = self.drops if drops is None else drops
        x = self._around(x, Reading(self.attention, given, drops.probabilities), self.attention_norm, drops.attention, given)
        if self.crossing is not None and across is not None:
            reading = Reading(self.crossing, across, self.crossing.dropout)
            x = self._around(x, reading, self.crossing_norm, self.crossing_dropout, across)
        feeding = Feeding(self.feed_forward, self, drops.active, given.positions)
        return self._around(x, feeding, self.inner_norm, drops.inner, given)

    def _around(self, x: Tensor, change: Reading | Feeding, norm: nn.Module, dropout: Dropout, given: AttentionInputs) -> Tensor:
        """The residual connection around `change`, by a fast function where one fits."""
        fast = choose(x, change, norm, dropout, self.place)
        if fast is not None:
            return fast(x, change, norm, dropout, self.place)
        return self.place.around(x, change, norm, lambda made: dropout(made, given.positions), given.take)
