"""The Transformer of BERT as the base of networks that add something to it: items, recordings, entities, further stacks."""

from __future__ import annotations

from typing import Annotated

from cloze.bounds import BelowOne, Count, Depth, Natural, Positive, Width
from cloze.networks import config as choices
from cloze.networks.blocks.cross import Made
from cloze.networks.clock import Clock
from cloze.networks.transformer import Transformer
from cloze.registry import Given, PartMark


class Bert(Transformer):
    """`transformer` with norms behind the layers and learned positions (Devlin et al., 2019, §3).

    A network that is built on it takes its own arguments and `**bert`. `made` is what the layers are made of.
    """

    grafts = frozenset({"transformer"})
    max_length: int

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        feed_forward: Annotated[choices.FeedForward, PartMark("feed_forward")] = choices.FeedForward(),
        max_length: Count = 512,
        segments: Natural = 2,
        norm_epsilon: Positive = 1e-12,
        dropout: BelowOne | choices.Dropouts = 0.1,
        initial: Annotated[choices.Truncated | choices.Normal, PartMark("initial")] = choices.Normal(),
        vocab_size: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__(
            layers=layers, width=width, heads=heads, feed_forward=feed_forward, norm=choices.Post(epsilon=norm_epsilon),
            positions=choices.Learned(max_length=max_length), segments=segments, dropout=dropout, initial=initial,
            vocab_size=vocab_size, clock=clock,
        )
        self.segments = segments
        self.made = Made(width, heads, self.inner, feed_forward.activation, norm_epsilon, self.rates, clock)
