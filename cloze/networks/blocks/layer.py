"""The Transformer layer: attention, in decoders attention to another sequence, and a feed-forward, each in a residual connection.

`Stack` calls it with the layer's `AttentionInputs`. A fast function computes a residual connection where one supports the call
(`networks/fast/choose.py`); elsewhere the plain modules do. Both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cloze.networks.blocks.attention import Attention, AttentionCall, AttentionInputs
from cloze.networks.blocks.computed import SurroundedLinear
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.feed_forward import FeedForward, FeedForwardCall
from cloze.networks.blocks.norm import NormPlace, make_norm, norm_place
from cloze.networks.choices import Norms
from cloze.networks.cost import EncodedSource, Operations, SequenceSize
from cloze.networks.fast.choose import choose


class Drops(NamedTuple):
    """The dropouts of one pass through a layer: of attention probabilities, of attention's output, between the linear maps of the
    feed-forward, and of its output."""

    probabilities: Dropout
    attention: Dropout
    between: Dropout
    feed_forward: Dropout


class DepthMean(nn.Module):
    """The sum of so many states, each times a learned number (Pagliardini et al., 2024, §3; here after every residual connection,
    as in ltgoslo/gpt-bert, `DWAModules`).

    Parameter: `weight` (states,), at first 1 for the last state and 0 for the others, so that nothing is mixed.
    """

    def __init__(self, states: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(states))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Nothing is mixed."""
        with torch.no_grad():
            self.weight.zero_()
            self.weight[-1:].fill_(1.0)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """States of one shape, (B, L, D) or (M, D), the last of them the newest, to one of that shape."""
        weights = self.weight.to(states[-1].dtype)
        mixed = states[0] * weights[0]
        for number, state in enumerate(states[1:], 1):
            mixed = mixed + state * weights[number]
        return mixed


class Layer(nn.Module):
    """A Transformer layer (Vaswani et al., 2017, §3.1).

    Parameters: `attention.*`, `attention_norm`, with `crossing` (attention to another sequence) `crossing.*` and `crossing_norm`,
    the maps of `feed_forward` (`inner`, `outer`, …) and `inner_norm`. `dropout` is called once for each dropout of the layer.
    `number` counts the layers of its stack from 0, where `norm` may leave out the norm before attention in the first.

    With `norm.depth_means`, the state after each residual connection is a mean over all states of the stack so far (`DepthMean`);
    parameters `means.attention.weight`, `means.crossing.weight` and `means.inner.weight`.

    The layer has a residual connection for each of `attention`, `crossing` and the feed-forward, which is called `inner` in the
    names of its norm, its dropout and its mean. A module in `around` replaces the `NormPlace` of one of them, by that name. It
    has the same method `connect`; adapters are such modules.
    """

    inner: nn.Linear
    outer: nn.Linear
    query_drops: Any  # the dropouts of a second stream, which `TwoStream` sets

    def __init__(
        self, *, width: int, attention: Attention, feed_forward: FeedForward, norm: Norms, dropout: Callable[[], Dropout],
        active_dropout: Dropout, crossing: Attention | None = None, number: int | None = None,
    ) -> None:
        super().__init__()
        make = partial(make_norm, norm.kind, width, norm.epsilon)
        self.place: NormPlace = norm_place(norm)
        self.feed_forward = feed_forward
        self.around = nn.ModuleDict()
        self.means = nn.ModuleDict()
        if number is not None and norm.depth_means:  # the input of the stack, and the states of the layers below
            branches = ["attention", "inner"] if crossing is None else ["attention", "crossing", "inner"]
            below = 1 + len(branches) * number
            self.means.update({name: DepthMean(below + index) for index, name in enumerate(branches, 1)})
        self.lends = False  # whether other layers share linear maps of this one
        self.attention = attention
        self.attention_norm = nn.Identity() if number == 0 and not norm.first else make()
        self.attention_dropout = dropout()
        self.crossing = crossing
        if crossing is not None:
            self.crossing_norm, self.crossing_dropout = make(), dropout()
        for name, linear in feed_forward.maps(width).items():
            setattr(self, name, linear)
        self.inner_norm = make()
        self.active_dropout = active_dropout
        self.inner_dropout = dropout()

    @property
    def drops(self) -> Drops:
        """The layer's own dropouts, as opposed to those of a second stream."""
        return Drops(self.attention.dropout, self.attention_dropout, self.active_dropout, self.inner_dropout)

    @property
    def feed_forward_maps(self) -> list[nn.Linear]:
        """The maps of the feed-forward, the one into the residual connection last."""
        return [self.get_submodule(name) for name in self.feed_forward.names]  # type: ignore[misc]

    @property
    def surrounded(self) -> bool:
        """Whether something reads what goes into a map of the layer, such as a range that is learned of it."""
        linears = (*self.attention.projection_maps, self.attention.out, *self.feed_forward_maps)
        return any(isinstance(linear, SurroundedLinear) for linear in linears)

    def count_operations(self, counted: Operations, size: SequenceSize, source: EncodedSource | None = None) -> None:
        """The products of a sequence. `source` is the sequence that a decoder reads, or attention in a layer that reads another
        sequence alone."""
        self._count_attention(counted, "attention", size, None if self.crossing is not None else source)
        if self.crossing is not None and source is not None:
            self._count_attention(counted, "crossing", size, source)
        self.count_feed_forward(counted, size)

    def _count_attention(self, counted: Operations, name: str, size: SequenceSize, source: EncodedSource | None) -> None:
        norm, place = self.get_submodule(f"{name}_norm"), self.place_of(name)
        inside = [part for part in place.modules() if hasattr(part, "count_inside")] if isinstance(place, nn.Module) else []
        counted.pass_through(norm if self.place.pre else None)
        attention: Any = self.get_submodule(name)
        attention.count_operations(counted, size, source, inside)
        counted.add(size, place)
        counted.pass_through(norm)

    def count_feed_forward(self, counted: Operations, size: SequenceSize) -> None:
        """The products of the layer's second half."""
        counted.pass_through(self.inner_norm if self.place.pre else None)
        counted.add(size, *self.feed_forward_maps, self.place_of("inner"))
        counted.pass_through(self)

    def place_of(self, name: str) -> Any:
        """The place of the norm at a residual connection, or what a change put there, such as an adapter."""
        return self.around[name] if name in self.around else self.place  # noqa: SIM401  a ModuleDict has no `get`

    def forward(
        self, x: Tensor, inputs: AttentionInputs, across: AttentionInputs | None = None, *, drops: Drops | None = None
    ) -> Tensor:
        """(B, L, D) to (B, L, D), or to (M, D) if only some tokens have queries.

        `across`: the inputs of a decoder's attention to its source. `drops`: the dropouts of a second stream.
        """
        drops = self.drops if drops is None else drops
        attention = AttentionCall(self.attention, inputs, drops.probabilities)
        x = self._residual("attention", x, attention, drops.attention, inputs)
        if self.crossing is not None and across is not None:
            crossing = AttentionCall(self.crossing, across, self.crossing.dropout)
            x = self._residual("crossing", x, crossing, self.crossing_dropout, across)
        host = self if inputs.host is None else inputs.host
        feed_forward = FeedForwardCall(self.feed_forward, host, drops.between, inputs.positions)
        return self._residual("inner", x, feed_forward, drops.feed_forward, inputs)

    def _residual(
        self, name: str, x: Tensor, sublayer: AttentionCall | FeedForwardCall, dropout: Dropout, inputs: AttentionInputs
    ) -> Tensor:
        """x plus `sublayer` of it, with norm and dropout: by a fast function where one supports the call."""
        norm = self.get_submodule(f"{name}_norm")
        placement = self.place_of(name)
        fast = choose(x, sublayer, norm, dropout, placement)
        if fast is not None:
            return self._mean(name, fast(x, sublayer, norm, dropout, placement), inputs)
        states: Tensor = placement.connect(x, sublayer, norm, lambda output: dropout(output, inputs.positions), inputs.take)
        return self._mean(name, states, inputs)

    def _mean(self, name: str, x: Tensor, inputs: AttentionInputs) -> Tensor:
        """The mean of the states so far, of which x becomes one; x itself in a layer without means."""
        if name not in self.means or inputs.earlier is None:
            return x
        inputs.earlier.append(x)
        mean: Tensor = self.means[name]([inputs.take(state) for state in inputs.earlier])
        return mean
