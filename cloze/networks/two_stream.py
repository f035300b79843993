"""XLNet's network: a content stream that reads tokens, and a query stream that must guess them from their positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, Depth, NonNegative, Positive, Width
from cloze.networks import choices
from cloze.networks.blocks.attention import AttentionInputs, AttentionRecord, QueryKeyValue
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.hooks import LayerHook, count_hooks
from cloze.networks.blocks.inputs.embeddings import Embeddings
from cloze.networks.blocks.layer import Drops, Layer
from cloze.networks.blocks.memory import Memory, recall, with_memory
from cloze.networks.blocks.positions.distances import Distances, LearnedDistances, distances_down
from cloze.networks.blocks.selected import Selected
from cloze.networks.blocks.visibility import Visibility, visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import StateKind, attention_kinds, reading_kinds
from cloze.networks.transformer import Transformer
from cloze.networks.transformer_xl import EARLIER_NAMES, RelativeTransformer, causal, count_relative
from cloze.registry import Given, PartMark, register

#: The dropouts of a layer's query stream, in the order of `Drops`.
QUERY_DROPS = ("shares", "attention", "activation", "inner")


class QueryStream(LayerHook):
    """The query stream: its states know their position, but not the token at that position (Yang et al., 2019, §2.3).

    `rows` (M, D) are its states at the selected tokens; `inputs` and `distances` are the inputs of their attention, of which
    `record` collects states. Keys and values are those of the content stream.
    """

    def __init__(self, rows: Tensor, inputs: AttentionInputs, distances: Distances) -> None:
        self.rows, self.inputs, self.distances = rows, inputs, distances
        self.record: AttentionRecord | None = None

    def before(self, number: int, layer: Layer, x: Tensor, inputs: AttentionInputs) -> AttentionInputs:
        """Run the query stream through the layer; the layer reuses the projections of x that this computes."""
        # Keys and values (B, H, Lk, W) are those of the content stream, memory included; queries are (B, H, K, W), laid out from
        # the rows (M, D), where K is the number of cells for the chosen tokens of a row.
        content, selected = layer.attention.project(x, inputs), self.inputs.selected
        assert selected is not None and isinstance(content.relation, LearnedDistances)
        query = layer.attention.project_queries(self.rows, selected)
        projected = QueryKeyValue(query, content.key, content.value, replace(content.relation, view=self.distances))
        drops = Drops(*layer.query_drops.values())
        own_inputs = replace(self.inputs, projected=projected, gates=inputs.gates, record=self.record)
        self.rows = layer(self.rows, own_inputs, drops=drops)
        return replace(inputs, projected=content)


@register("network", "two_stream")
class TwoStream(RelativeTransformer):
    """Two-stream self-attention with relative distances, relative segments and a memory (Yang et al., 2019, §2.3-2.5).

    A token of the content stream sees what `order` lets it see, itself included; of the query stream what stands strictly before
    it in `order`, hence not its own id. Both use the same weights; keys and values come from the content stream alone. Queries
    run only at positions with targets. States that are not wanted are not computed: after pre-training only `hidden` is read, and
    there is no query stream. `memory` is as in `transformer_xl`; remembered tokens count as segment 0. Rows in `reversed` were
    read from their end, so their distances are negated. `relative_segments: false` leaves the segments out.

    Differs: a query that sees nothing takes nothing (the authors' average over all keys would show it its own answer);
    dropout in the sinusoids of distances is the same for all rows of a step; a lane begins without memory, where the authors'
    begins with zeros, which are attended to; `unknown` is a vector and as such has no weight decay, where the authors' has.

    >>> network = TwoStream(layers=1, width=8, heads=2, vocab_size=10, clock=Clock()).eval()
    >>> tokens, order = torch.zeros(1, 3, dtype=torch.long), torch.tensor([[0, 2, 1]])
    >>> tuple(network(want=frozenset({"query"}), tokens=tokens, order=order)["query"].shape)
    (1, 3, 8)
    """

    stack = "attention"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = Transformer.sizes
    #: The state whose rows at `positions` are all that is read, where the caller knows them.
    positions_state: ClassVar[str] = "query"

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        head_width: Width | None = None,
        feed_forward: Annotated[choices.PlainFeedForward, PartMark("feed_forward")] = choices.PlainFeedForward(),
        positions: Annotated[choices.RelativeDistances, PartMark("positions")] = choices.RelativeDistances(untie=True),
        relative_segments: bool = True,
        memory: choices.SegmentMemory | None = None,
        norm_epsilon: Positive = 1e-12,
        dropout: BelowOne | choices.Dropouts = 0.1,
        init_std: NonNegative = 0.02,
        vocab_size: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__(
            "two_stream", embeddings=Embeddings(vocab_size=vocab_size, width=width), layers=layers, width=width, heads=heads,
            head_width=head_width, feed_forward=feed_forward, positions=positions, memory=memory, segments=relative_segments,
            norm_epsilon=norm_epsilon, dropout=dropout, init_std=init_std, clock=clock,
        )
        self.relative_segments = relative_segments
        self.unknown = nn.Parameter(torch.zeros(width))
        for layer in self.layers:
            query_rates = zip(QUERY_DROPS, (drop.rate for drop in layer.drops), strict=True)
            layer.query_drops = nn.ModuleDict({name: Dropout(rate, clock) for name, rate in query_rates})
        self.unknown_dropout, self.query_dropout = (Dropout(self.final_dropout.rate, clock) for _ in range(2))
        optional = {"order", "block", "reversed", "restarts", "summaries"} | ({"segments"} if relative_segments else set())
        self.takes = self.needs | optional
        self.gives = {**reading_kinds("order"), "query": StateKind("B L D", "before"), **attention_kinds("order"),
                      **attention_kinds("before", "query_")}  # fmt: skip
        self.reset_parameters()
        name_dropouts(self, EARLIER_NAMES)

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator; gains are one, offsets zero.

        `unknown` is uniform in ±√(6 / (1 + width)), since the authors' `mask_emb` is left to TensorFlow.
        """
        for name, parameter in self.named_parameters():
            if name.endswith("_norm.weight"):
                nn.init.ones_(parameter)
            elif name.endswith(".bias"):
                nn.init.zeros_(parameter)
            elif parameter is self.unknown:
                nn.init.xavier_uniform_(parameter[None])
            else:
                nn.init.normal_(parameter, std=self.init_std)

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, segments: Tensor | None = None, order: Tensor | str = "open",
        block: Tensor | None = None, reversed: Tensor | None = None, restarts: Tensor | None = None,
        summaries: Tensor | None = None, positions: Tensor | None = None, carry: Mapping[str, Tensor] | None = None,
        gates: Tensor | None = None, layer_hooks: Sequence[LayerHook] = (),
    ) -> dict[str, Any]:
        """The wanted states of tokens (B, L): `hidden` and `query` (B, L, D), `summary` (E, D), the last token of each row
        unless `summaries` says otherwise, `layers` (N+1, B, L, D), and `carry`, for the rows that follow in the lanes; states of
        attention (of the content stream; `query_attention` and so on are of the query stream), `gates` (of both streams) and
        `around` as in `transformer_xl`.

        `positions` (M,) names the flat positions where `query` is read; it is zero elsewhere. Absent: it is made everywhere.
        """
        memory = recall(carry, restarts)
        inputs, relation = self._content(tokens, segments, order, block, reversed, memory)
        x = self.embedding_dropout(self.embeddings(tokens))
        record, stream = AttentionRecord.of(want, "query_"), None
        if "query" in want or record is not None:
            stream = self._query(tokens, positions, relation, order, block, memory)
            stream.record = record
        is_unread = want.isdisjoint({"hidden", "summary", "layers"})  # the last content state is not read
        passed, states = self._run(
            x, inputs, memory, want, gates, [*layer_hooks, *([] if stream is None else [stream])], unread=is_unread
        )
        if record is not None:
            states |= record.stacked("query_")
        if stream is not None and "query" in want:
            chosen = stream.inputs.selected
            assert chosen is not None  # a query stream is made of some tokens
            states["query"] = chosen.put_back(self.query_dropout(stream.rows, chosen.positions))
        return states | self._read(want, passed, memory, tokens, block, summaries)

    def _content(
        self, tokens: Tensor, segments: Tensor | None, order: Tensor | str, block: Tensor | None, reversed: Tensor | None,
        memory: Memory | None,
    ) -> tuple[AttentionInputs, Distances]:
        """What attention of the content stream is given in every layer."""
        length, device = tokens.shape[1], tokens.device
        relation = self._distances(length, memory, ahead=True, like=self.unknown)
        if reversed is not None:  # the sine of the negated distance is the negated sine
            sines, cosines = relation.sinusoids.chunk(2, dim=-1)  # (R, D/2) each; of both directions (2, R, D)
            both = torch.stack([relation.sinusoids, torch.cat([-sines, cosines], dim=-1)])
            relation = replace(relation, sinusoids=both, reversed=reversed)
        seen = visibility(order, block, length=length, past=0, device=device)
        mask = with_memory(causal(length, None, device) if seen.kind == "causal" else seen.mask, memory, queries=length)
        if self.relative_segments:
            # Segments of queries (B, L) and of keys (B, M + L), remembered ones first: where they differ, (B, 1, L, M + L).
            kind = torch.zeros_like(tokens) if segments is None else segments
            kinds = torch.cat([kind.new_zeros(len(kind), relation.keys - length), kind], dim=1)
            relation = replace(relation, differs=(kind[:, :, None] != kinds[:, None, :])[:, None])
        return AttentionInputs(Visibility("all") if mask is None else Visibility("mask", mask), relation), relation

    def _query(
        self, tokens: Tensor, positions: Tensor | None, relation: Distances, order: Tensor | str, block: Tensor | None,
        memory: Memory | None,
    ) -> QueryStream:
        """The query stream at the positions tokens, which see what stands strictly before them in `order`."""
        batch, length = tokens.shape
        if isinstance(order, str):
            ranks = {"open": 0, "left_to_right": 1, "right_to_left": -1}
            order = torch.arange(length, device=tokens.device)[None] * ranks[order]
        before = order[:, None, :] < order[:, :, None]
        if block is not None:
            before = before & (block[:, :, None] == block[:, None, :])
        mask = with_memory(before[:, None], memory, queries=length)  # (B or 1, 1, L, M + L); at the chosen (B, 1, K, M + L)
        every = torch.arange(batch * length, device=tokens.device)
        chosen = Selected.of(every if positions is None else positions, batch, length)
        # Every chosen token begins with the same vector, (D,); only the distances say where it stands.
        rows = self.unknown_dropout(self.unknown.expand(len(chosen.flat), -1), chosen.positions)
        seen = Visibility("mask", mask, may_see_nothing=True)
        return QueryStream(rows, AttentionInputs(seen.select(chosen), selected=chosen), relation.select(chosen))

    def count_layers(self, counted: Operations, size: SequenceSize) -> None:
        """The layers over a full memory; those of the query stream, too, where it is wanted."""
        device, (rows, _, length), last = torch.device("meta"), size, len(self.layers) - 1
        far = len(distances_down(length, self.memory + length, ahead=True, clamp=None, device=device))
        queries, block = None, 0
        if "query" in counted.want:
            chosen = Selected.of(torch.arange(rows * length) if counted.positions is None else counted.positions, rows, length)
            queries, block = len(chosen.flat), chosen.across
        is_unread = counted.want.isdisjoint({"hidden", "summary", "layers"})
        for number, layer in enumerate(self.layers):
            content = not (is_unread and number == last)
            count_relative(counted, layer, size, past=self.memory, far=far, queries=queries, block=block, content=content)
            count_hooks(counted, self.around, number, size)
