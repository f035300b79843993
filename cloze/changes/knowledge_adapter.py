"""`change: [knowledge_adapter: {name: facts}]`: Transformer layers next to a frozen network, which read it (K-Adapter)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, Depth, NonNegative, Width
from cloze.changes.change import Change
from cloze.errors import CheckpointError
from cloze.networks.blocks.attention import Attention, AttentionInputs
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.feed_forward import FeedForward
from cloze.networks.blocks.hooks import NetworkHook
from cloze.networks.blocks.initial import draw
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.visibility import visibility
from cloze.networks.choices import PostNorm
from cloze.networks.clock import Clock
from cloze.networks.network import Network, StateKind
from cloze.registry import register


class AdapterModule(nn.Module):
    """x + up(layers(down x)), (B, L, D) to (B, L, D), with Transformer layers of width W between both maps."""

    def __init__(
        self, width: int, inner: int, *, heads: int, layers: int, dropout: float, std: float, clock: Clock
    ) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, inner), nn.Linear(inner, width)
        for linear in (self.down, self.up):
            draw(linear.weight, "normal", std)
            nn.init.zeros_(linear.bias)
        self.layers: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            Layer(
                width=inner, norm=PostNorm(epsilon=1e-5), feed_forward=FeedForward(4 * inner),
                attention=Attention(width=inner, heads=heads, dropout=Dropout(dropout, clock)),
                dropout=lambda: Dropout(dropout, clock), active_dropout=Dropout(0.0, clock),
            )
            for _ in range(layers)
        )

    def forward(self, x: Tensor, inputs: AttentionInputs) -> Tensor:
        """`given`: who sees whom, as in the network next to it."""
        inside = self.down(x)
        for layer in self.layers:
            inside = layer(inside, inputs)
        output: Tensor = x + self.up(inside)
        return output


class KnowledgeAdapted(nn.Module, NetworkHook):
    """An adapter next to a network: its first module reads the layer `at[0]` of the network, each further one the layer `at[k]`
    plus the output of the module before it. What heads read is a map of [top layer; output of the last module].

    With an earlier adapter around the same network, `both` maps [what heads read there; this map] to what they read now. The
    states of the earlier one do not change. Gives `<name>_hidden` (B, L, D), what this adapter alone makes. `rates` are the
    dropouts that were turned off for it, with their rates.

    Parameters: `blocks.<n>.*`, `join.*`, with an earlier adapter `both.*`.
    """

    def __init__(
        self, name: str, blocks: Sequence[AdapterModule], at: tuple[int, ...], width: int,
        rates: Sequence[tuple[Dropout, float]], *, second: bool,
    ) -> None:
        super().__init__()
        self.name, self.at, self.rates = name, at, rates
        self.blocks: Any = nn.ModuleList(blocks)
        self.join = nn.Linear(2 * width, width)
        self.both = nn.Linear(2 * width, width) if second else None
        self.own = f"{name}_hidden"
        self.makes = frozenset({"hidden", "summary", self.own})

    def call(
        self, network: Any, forward: Callable[..., Mapping[str, Any]], *, want: frozenset[str], **inputs: Any
    ) -> Mapping[str, Any]:
        """`hidden` (B, L, D) and `summary` (E, D) are those with the adapter; `layers` and all others are the network's own."""
        if not want & self.makes:
            return forward(want=want, **inputs)
        if inputs.get("cache") is not None:
            raise CheckpointError("knowledge_adapter: an adapter reads whole texts and writes none. Use fill or embed.")
        inputs.pop("positions", None)  # the adapter reads every token
        below = frozenset({"layers"} if self.both is None else {"layers", "hidden"})
        states = dict(forward(want=want - self.makes | below, **inputs))
        layers, tokens, block = states["layers"], inputs["tokens"], inputs.get("block")
        seen = visibility(inputs.get("order", "open"), block, length=tokens.shape[1], past=0, device=tokens.device)
        x = torch.zeros_like(layers[0])
        for number, module in zip(self.at, self.blocks, strict=True):
            x = module(layers[number] + x, AttentionInputs(seen))
        adapted = hidden = self.join(torch.cat([layers[-1], x], dim=-1))
        if self.both is not None:
            hidden = self.both(torch.cat([states["hidden"], adapted], dim=-1))
        outputs = {**states, "hidden": hidden, self.own: adapted}
        if "summary" in want:
            outputs["summary"] = network.summarise(hidden, tokens=tokens, block=block, summaries=inputs.get("summaries"))
        return {name: state for name, state in outputs.items() if name in want}


@register("change", "knowledge_adapter")
@dataclass(frozen=True)
class KnowledgeAdapter(Change):
    """Transformer layers next to a frozen Transformer, trained for one kind of knowledge (K-Adapter; Wang et al., 2020).

    `at`: the layers of the network that its modules read, from 0, the embeddings; None: the embeddings, the layer below the
    middle and that two below the top, 0, 11 and 22 of 24 as in the authors' code (microsoft/K-Adapter). Each module is a map to
    `width`, `layers` layers of that width with `heads`, and a map back, added to what it reads. Trained are the adapter and the
    heads. The network is frozen and has no dropout, and so has every earlier adapter: a further one, of another `name`, leaves
    their states as they are.

    Differs: the authors' adapters attend to padding, so that their outputs depend on the batch; these do not. As in the authors'
    code, a module adds the output of the one before to the layer that it reads; the paper concatenates them.

    An adapter cannot be merged into weights: cloze alone opens the folder.
    """

    name: str = "knowledge"
    at: tuple[int, ...] | None = None
    width: Width = 768
    heads: Width = 12
    layers: Depth = 2
    dropout: BelowOne = 0.1
    std: NonNegative = 2e-4

    lasts: ClassVar[bool] = True
    rate: ClassVar[float] = 5.0

    def apply(self, network: Any) -> None:
        """Freeze the network, turn its dropout off, and add the adapter."""
        if not network.one_stack:
            raise CheckpointError(f"knowledge_adapter: {type(network).__name__} is not a Transformer encoder. Use adapters.")
        if not self.name.isidentifier():
            raise CheckpointError(f"knowledge_adapter.name: {self.name!r}. Expected a word of letters, such as facts.")
        if self.width % self.heads:
            raise CheckpointError(f"knowledge_adapter: {self.heads} heads do not divide the width {self.width}.")
        top, names = len(network.layers), [module.name for module in network.outside if isinstance(module, KnowledgeAdapted)]
        at = (0, top // 2 - 1, top - 2) if self.at is None else self.at
        at = tuple(max(number, 0) for number in at) if self.at is None else at
        if not at or not all(0 <= number <= top for number in at):
            raise CheckpointError(f"knowledge_adapter.at: {list(at)}. Expected layers from 0, the embeddings, to {top}, the top.")
        if self.name in names:
            raise CheckpointError(f"knowledge_adapter: there is an adapter {self.name!r} already. Give this one another name.")
        network.requires_grad_(False)
        rates = [(module, module.rate) for module in network.modules() if isinstance(module, Dropout)]
        for dropout, _ in rates:
            dropout.set_rate(0.0)
        blocks = [
            AdapterModule(
                network.width, self.width, heads=self.heads, layers=self.layers, dropout=self.dropout, std=self.std,
                clock=network.clock,
            )
            for _ in at
        ]
        like = next(network.parameters())
        adapter = KnowledgeAdapted(self.name, blocks, at, network.width, rates, second=bool(names))
        network.add_network_hook(adapter.to(like.device, like.dtype))
        network.gives = {**network.gives, adapter.own: StateKind("B L D", "order")}

    def plain(self, network: Any) -> None:
        """Refused."""
        raise CheckpointError("a knowledge adapter is a stack of layers of its own, which cannot be merged into weights.")


@register("change", "tune_trunk")
@dataclass(frozen=True)
class TuneTrunk(Change):
    """Train a network that has knowledge adapters, and freeze the adapters, as K-Adapter does on tasks (Wang et al., 2020, §3.4).

    The network has its dropout again, which its adapters had turned off, and so has every adapter: the authors freeze the weights
    of theirs, and leave them in training mode (microsoft/K-Adapter, `examples/run_finetune_openentity_adapter.py`). The maps that
    join the adapters to what heads read are trained, too.
    """

    def apply(self, network: Any) -> None:
        """Exchange what is frozen."""
        around = network.outside if isinstance(network, Network) else ()
        adapters = [module for module in around if isinstance(module, KnowledgeAdapted)]
        if not adapters:
            raise CheckpointError(f"tune_trunk: {type(network).__name__} has no knowledge adapters. Leave the change out.")
        fixed = [name for name, _ in network.named_parameters() if name.rpartition(".")[0] in network.unread]
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name not in fixed)
        # The first adapter recorded the rates of the network; each later one recorded those of the adapters before it.
        for adapter in reversed(adapters):
            adapter.blocks.requires_grad_(False)
            for dropout, rate in adapter.rates:
                dropout.set_rate(rate)
