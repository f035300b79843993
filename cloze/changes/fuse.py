"""`change: [fuse: {network: bert}]`: every layer of a translator also reads the states of another network (BERT-fused)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import Share, Width
from cloze.changes.change import Change
from cloze.errors import CheckpointError, RecipeError
from cloze.networks.blocks.attention import Attention, AttentionCall, AttentionInputs
from cloze.networks.blocks.dropout import Dropout, uniform_by_row
from cloze.networks.blocks.hooks import NetworkHook
from cloze.networks.blocks.projections import Across
from cloze.networks.blocks.visibility import Visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import EncodedSource, Operations, SequenceSize, size_of
from cloze.networks.network import TokenSequence
from cloze.registry import register

VIEW = "fused"  # the sequence that the other network reads
Function = Callable[..., Any]


class Averaged(nn.Module):
    """A `NormPlace` that averages the layer's attention with attention to the states of another network, each after its dropout.

    In training, drop-net draws a number u in [0, 1) for each layer and step: below `drop_net`/2 the layer uses its own attention
    alone, from 1 - `drop_net`/2 on the other one alone, otherwise the mean of both, as it always does outside of training.
    """

    def __init__(
        self, norm_place: Any, attention: Attention, dropout: Dropout, *, drop_net: float, clock: Clock, name: str
    ) -> None:
        super().__init__()
        self.place, self.pre, self.attention, self.dropout = norm_place, norm_place.pre, attention, dropout
        self.norms_sum: bool = norm_place.norms_sum
        self.drop_net, self.clock, self.name = drop_net, clock, name

    def shares(self) -> tuple[Tensor | float, Tensor | float]:
        """The weights of the layer's own attention and of the other one in this step; they add up to 1."""
        if not self.training or self.drop_net == 0.0:
            return 0.5, 0.5
        first = self.clock.first_row  # taken off again, so that all micro-batches of a step draw the same number
        drawn = uniform_by_row(self.clock, f"drop_net:{self.name}", -first[None], torch.zeros_like(first)[None])
        alone, other = drawn < self.drop_net / 2, drawn >= 1.0 - self.drop_net / 2
        weight = torch.where(alone, 1.0, torch.where(other, 0.0, 0.5))
        return weight, 1.0 - weight

    def connect(self, x: Tensor, attention: AttentionCall, norm: Function, drop: Function, take: Function) -> Tensor:
        """As in `NormPlace`."""
        inputs, further = attention.inputs, attention.inputs.further
        if further is None:
            raise RecipeError(f"a fused network reads the states of another one, and the pass has none. {_TAKE}")
        full_cache = inputs.cache
        cache = None if full_cache is None else full_cache[2:]  # behind the keys and values of the layer's own attention
        further = replace(further, rows=inputs.rows, cache=cache)
        own_weight, other_weight = self.shares()

        def both(states: Tensor) -> Tensor:
            own_output, other_output = drop(attention(states)), self.dropout(self.attention(states, further), inputs.positions)
            return own_output * own_weight + other_output * other_weight

        fused: Tensor = self.place.connect(x, both, norm, lambda output: output, take)
        if full_cache is not None and cache is not None:
            full_cache[2:] = cache
        return fused

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """Attention to the other network's states, which has not learned from these."""
        counted.add(size, self.place)
        self.attention.count_operations(counted, size, EncodedSource(size_of(counted.fields, f"{VIEW}."), needs_grad=False))


class Fused(nn.Module, NetworkHook):
    """Gives the layers of both stacks the states of the network `reads`: the `vectors` (B, S, W) of the view `fused`."""

    view = VIEW

    def __init__(self, reads: str, places: list[Averaged]) -> None:
        super().__init__()
        self.reads = reads
        self.places = tuple(places)  # they belong to the layers

    def call(
        self, network: Any, forward: Callable[..., Mapping[str, Any]], *, want: frozenset[str], **inputs: Any
    ) -> Mapping[str, Any]:
        """The states of the network, whose layers read what is given as `fused`."""
        read: TokenSequence | None = inputs.pop(VIEW, None)
        if read is None or read.vectors is None:
            raise RecipeError(f"this network reads the states of {self.reads!r}, and the pass has none. {_TAKE}")
        seen = Visibility("all") if read.block is None else Visibility("mask", (read.block > 0)[:, None, None])
        return forward(want=want, further=AttentionInputs(seen, source=read.vectors), **inputs)


_TAKE = f"Give the pass `take: {{{VIEW}.vectors: PASS.hidden}}`, where PASS runs the other network on the view {VIEW!r}."


@register("change", "fuse")
@dataclass(frozen=True)
class Fuse(Change):
    """BERT-fused translation (Zhu et al., 2020, §4): each layer of an encoder-decoder also reads the states of another network.

    In the encoder, attention to the states of `network`, of width `width`, is averaged with attention to the own sequence; in the
    decoder, with attention to the encoder. Both begin from the same states of the layer, and their mean is what is added at the
    residual connection. `drop_net` is the paper's p_net; `--encoder-bert-dropout-ratio` of the authors' code
    (bert-nmt/bert-nmt) is half of it. What is added starts as in the authors' code: maps by Xavier's uniform distribution,
    biases zero.

    The pass takes the states of the other network: `take: {fused.vectors: bert.hidden}`. That network reads the view `fused`. A
    folder of the changed network holds the other network, too; cloze alone opens it.

    Differs: the authors draw drop-net in every forward pass. Here a step has one draw for each layer, however many
    micro-batches it has.
    """

    network: str
    width: Width | None = None
    drop_net: Share = 1.0

    lasts: ClassVar[bool] = True
    continues: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        """The other network."""
        return (self.network,)

    def among(self, networks: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """The width of the other network's states, where the recipe leaves it out."""
        width = networks.get(self.network, {}).get("width")
        return {} if self.width is not None or width is None else {"width": width}

    def apply(self, network: Any) -> None:
        """Add an attention to every layer of both stacks."""
        if not network.encoder_and_decoder:
            raise CheckpointError(
                f"fuse: {type(network).__name__} is not an encoder-decoder of Transformer layers.\n"
                "  Use a translator with such a network, or leave the change out."
            )
        if self.width is None:
            raise CheckpointError(
                f"fuse: the recipe has no network {self.network!r} of known width.\n"
                f"  Add it: `networks: {{{self.network}: {{from: NAME, train: none}}, …}}`, or write `width:`."
            )
        networks = [module.reads for module in network.outside if isinstance(module, Fused)]
        if networks:
            raise CheckpointError(
                f"fuse: the layers of this network already read the states of {networks[0]!r}.\n"
                "  To train it longer, resume its run with --extend; to read another network, start from the plain translator."
            )
        places: list[Averaged] = []
        for coder, where in zip(network.encoder_and_decoder, ("attention", "crossing"), strict=True):
            for number, layer in enumerate(coder.layers):
                places.append(self._averaged(network.clock, layer, where, f"{where}:{number}"))
                layer.around[where] = places[-1]
        network.add_network_hook(Fused(self.network, places))
        network.needs = network.needs | {f"{VIEW}.vectors"}
        network.takes = network.takes | {f"{VIEW}.{name}" for name in ("tokens", "block", "vectors")}

    def _averaged(self, clock: Clock, layer: Any, where: str, name: str) -> Averaged:
        """What replaces the place of the residual connection `where`."""
        attention = layer.get_submodule(where)
        like = attention.out.weight
        cross_attention = Attention(
            width=like.shape[0], heads=attention.heads, head_width=attention.head_width, projections=Across(self.width),
            bias=attention.out.bias is not None, scale=attention.scale,
            dropout=type(attention.dropout)(attention.dropout.rate, clock),
        ).to(like.device, like.dtype)  # fmt: skip
        keys, values = cross_attention.memory.weight.chunk(2)
        for weight in (cross_attention.query.weight, keys, values, cross_attention.out.weight):
            nn.init.xavier_uniform_(weight)
        for linear in (cross_attention.query, cross_attention.memory, cross_attention.out):
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        dropout = type(layer.attention_dropout)(layer.attention_dropout.rate, clock)
        return Averaged(layer.place_of(where), cross_attention, dropout, drop_net=self.drop_net, clock=clock, name=name)

    def plain(self, network: Any) -> None:
        """Refused."""
        raise CheckpointError(
            f"the layers of this network read the states of {self.network!r}, so it cannot be written as an ordinary network."
        )
