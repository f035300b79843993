"""XLNet's network: a content stream that reads tokens, and a query stream that must guess them from their positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, Depth, Natural, NonNegative, Positive, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.embeddings import Embeddings
from cloze.networks.blocks.layer import Activation
from cloze.networks.blocks.memory import Memory, check_memory, recall, remember, with_memory
from cloze.networks.blocks.relative_layer import Bearings, Query, QueryPositions, RelativeLayer, StepDropout
from cloze.networks.blocks.relative_shift import distances_down, sinusoids
from cloze.networks.blocks.visibility import visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import shown
from cloze.networks.network import StateKind, last_positions, reading_states
from cloze.networks.transformer import Transformer
from cloze.networks.transformer_xl import causal
from cloze.registry import Given, register


@register("network", "two_stream")
class TwoStream(nn.Module):
    """Two-stream self-attention with relative distances, relative segments and a memory (Yang et al., 2019, §2.3-2.5).

    A token of the content stream sees what `order` lets it see, itself included; of the query stream what stands strictly
    before it in `order`, hence not its own id. Both use the same weights; keys and values come from the content stream alone.
    Queries run only at positions with targets. States that nobody wants are not computed: after pre-training only `hidden` is
    read, and there is no query stream. `memory` and `reuse` as in `transformer_xl`; remembered tokens count as segment 0. Rows in
    `reversed` were read from their end, so their distances are negated. `relative_segments: false` leaves the segments out.

    Differs: a query that sees nothing takes nothing (the authors' average over all keys would show it its own answer);
    dropout in the sinusoids of distances is the same for all rows of a step; a lane begins without memory, where the authors'
    begins with zeros, which are attended to.

    >>> network = TwoStream(layers=1, width=8, heads=2, vocab_size=10, clock=Clock()).eval()
    >>> tokens, order = torch.zeros(1, 3, dtype=torch.long), torch.tensor([[0, 2, 1]])
    >>> tuple(network(want=frozenset({"query"}), tokens=tokens, order=order)["query"].shape)
    (1, 3, 8)
    """

    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = Transformer.sizes
    #: The state whose rows at `positions` are all that is read, where the caller knows them.
    positions_state: ClassVar[str] = "query"

    def __init__(
        self,
        *,
        layers: Depth,
        width: Width,
        heads: Width,
        head_width: Width | None = None,
        inner: Width | None = None,
        relative_segments: bool = True,
        memory: Natural = 0,
        reuse: Natural = 0,
        clamp: Natural | None = None,
        untie: bool = True,
        activation: Activation = "gelu",
        norm_epsilon: Positive = 1e-12,
        dropout: BelowOne = 0.1,
        attention_dropout: BelowOne | None = None,
        deviation: NonNegative = 0.02,
        vocab_size: Given[int],
        clock: Given[Clock],
    ) -> None:
        super().__init__()
        check_memory("two_stream", memory, reuse)
        if head_width is None and width % heads:
            raise RecipeError(f"two_stream: width {width} is not a multiple of heads {heads}; write head_width.")
        self.width, self.inner = width, inner or 4 * width
        self.head_width = head_width or width // heads
        self.memory, self.reuse, self.clamp = memory, reuse, clamp
        self.relative_segments, self.deviation = relative_segments, deviation
        self.carries = memory > 0
        self.embeddings = Embeddings(
            vocab_size=vocab_size, width=width, longest=0, segments=0, positions=None, norm=False, norm_epsilon=norm_epsilon
        )
        self.unknown = nn.Parameter(torch.zeros(width))
        own = (heads, self.head_width)
        self.content_bias = None if untie else nn.Parameter(torch.zeros(own))
        self.distance_bias = None if untie else nn.Parameter(torch.zeros(own))
        self.layers: Sequence[RelativeLayer] = nn.ModuleList(  # type: ignore[assignment]
            RelativeLayer(
                width=width, heads=heads, head_width=self.head_width, inner=self.inner, activation=activation,
                norm_epsilon=norm_epsilon, dropout=dropout,
                attention_dropout=dropout if attention_dropout is None else attention_dropout, segments=relative_segments,
                own_biases=untie, streams=2, clock=clock,
            )
            for _ in range(layers)
        )
        self.embedding_dropout, self.unknown_dropout = Dropout(dropout, clock), Dropout(dropout, clock)
        self.distance_dropout = StepDropout(dropout, clock)
        self.final_dropout, self.query_dropout = Dropout(dropout, clock), Dropout(dropout, clock)
        self.needs = frozenset({"tokens"})
        optional = {"order", "block", "reversed", "restarts", "summaries"} | ({"segments"} if relative_segments else set())
        self.takes = self.needs | optional
        self.gives: Mapping[str, StateKind] = {
            "hidden": StateKind("B L D", "order"),
            "query": StateKind("B L D", "before"),
            "layers": StateKind("N B L D", "order"),
            "summary": StateKind("E D", "order"),
        }
        self.reset_parameters()
        name_dropouts(self)

    @property
    def tables(self) -> dict[str, nn.Embedding]:
        """The token table, for heads that tie to it."""
        return {"tokens": self.embeddings.tokens}

    def depth_groups(self) -> list[nn.Module]:
        """Embeddings first, then the layers in order."""
        return [self.embeddings, *self.layers]

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator; gains are one, offsets zero."""
        for name, parameter in self.named_parameters():
            if name.endswith("_norm.weight"):
                nn.init.ones_(parameter)
            elif name.endswith(".bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=self.deviation)

    def forward(
        self,
        *,
        want: frozenset[str],
        tokens: Tensor,
        segments: Tensor | None = None,
        order: Tensor | str = "open",
        block: Tensor | None = None,
        reversed: Tensor | None = None,
        restarts: Tensor | None = None,
        summaries: Tensor | None = None,
        positions: Tensor | None = None,
        carry: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Any]:
        """The wanted states of tokens (B, L): `hidden` and `query` (B, L, D), `summary` (E, D), the last token of each row
        unless `summaries` says otherwise, `layers` (N+1, B, L, D), and `carry`, for the rows that follow in the lanes.

        `positions` (M,) names the flat positions where `query` is read; it is zero elsewhere. Absent: it is made everywhere.
        """
        batch, length = tokens.shape
        memory = recall(carry, restarts)
        bearings = self._bearings(tokens, segments, order, block, reversed, memory)
        x = self.embedding_dropout(self.embeddings(tokens, None, None, None))
        query = self._query(positions, bearings, order, block, memory, batch, length) if "query" in want else None
        biases = None if self.content_bias is None else (self.content_bias, self.distance_bias)
        bare = want.isdisjoint({"hidden", "summary", "layers"})  # then the last layer's content is read by nobody
        passed = [x]
        for number, layer in enumerate(self.layers):
            remembered = None if memory is None else memory.states[:, number]
            content = not (bare and number == len(self.layers) - 1)
            x, rows = layer(passed[-1], remembered, bearings, biases, query, content=content)
            passed.append(x)
            query = None if query is None else query._replace(rows=rows)
        states: dict[str, Any] = {}
        if query is not None:
            rows = self.query_dropout(query.rows, query.positions.at)
            flat = rows.new_zeros(batch * length, self.width).index_copy(0, query.positions.flat, rows)
            states["query"] = flat.view(batch, length, self.width)
        hidden = passed[-1] if bare else self.final_dropout(passed[-1])
        if "summary" in want and summaries is None:
            summaries = last_positions(tokens, block)
        states |= reading_states(want, hidden, passed, summaries)
        if "carry" in want and self.carries:
            real = None if block is None else block > 0
            states["carry"] = remember(passed[:-1], real, memory, size=self.memory, reuse=self.reuse)
        return states

    def _bearings(
        self, tokens: Tensor, segments: Tensor | None, order: Tensor | str, block: Tensor | None, reversed: Tensor | None,
        memory: Memory | None,
    ) -> Bearings:
        length, device = tokens.shape[1], tokens.device
        past = 0 if memory is None else memory.states.shape[2]
        down = distances_down(length, past + length, ahead=True, clamp=self.clamp, device=device)
        distances = self.distance_dropout(sinusoids(down, self.width)[None])[0].to(self.unknown.dtype)
        if reversed is not None:  # the sine of the negated distance is the negated sine
            half = self.width // 2
            back = torch.cat([-distances[:, :half], distances[:, half:]], dim=-1)
            distances = torch.stack([distances, back])
        seen = visibility(order, block, length=length, past=0, device=device)
        mask = causal(length, None, device) if seen.kind == "causal" else seen.mask
        differs = None
        if self.relative_segments:
            kind = torch.zeros_like(tokens) if segments is None else segments
            kinds = torch.cat([kind.new_zeros(len(kind), past), kind], dim=1)
            differs = (kind[:, :, None] != kinds[:, None, :])[:, None]
        return Bearings(distances, with_memory(mask, memory, queries=length), differs, reversed)

    def _query(
        self, positions: Tensor | None, bearings: Bearings, order: Tensor | str, block: Tensor | None, memory: Memory | None,
        batch: int, length: int,
    ) -> Query:
        device = bearings.distances.device
        if isinstance(order, str):
            order = torch.arange(length, device=device)[None] * {"open": 0, "left_to_right": 1, "right_to_left": -1}[order]
        before = order[:, None, :] < order[:, :, None]
        if block is not None:
            before = before & (block[:, :, None] == block[:, None, :])
        mask = with_memory(before[:, None], memory, queries=length)
        positions = torch.arange(batch * length, device=device) if positions is None else positions
        chosen = QueryPositions.of(positions, batch, length)
        rows = self.unknown_dropout(self.unknown.expand(len(chosen.flat), -1), chosen.at)
        return Query(rows, chosen, bearings.at(chosen, mask))

    def flops(self, fields: Mapping[str, Tensor], *, want: frozenset[str], positions: Tensor | None) -> float:
        """Floating-point operations of forward and backward over a full memory; the query stream's where it is wanted."""
        size, last = shown(fields), len(self.layers) - 1
        far = len(distances_down(size.length, self.memory + size.length, ahead=True, clamp=None, device=torch.device("meta")))
        queries, block = None, 0
        if "query" in want:
            positions = torch.arange(size.rows * size.length) if positions is None else positions
            chosen = QueryPositions.of(positions, size.rows, size.length)
            queries, block = len(chosen.flat), chosen.columns.shape[1]
        bare = want.isdisjoint({"hidden", "summary", "layers"})
        return sum(
            layer.flops(size, past=self.memory, far=far, queries=queries, block=block, content=not (bare and number == last))
            for number, layer in enumerate(self.layers)
        )
