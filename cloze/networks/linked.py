"""KnowBert: a Transformer that links names to entities after one of its layers, and reads the vectors of these entities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import Depth, Natural, Width
from cloze.errors import RecipeError
from cloze.networks import choices
from cloze.networks.bert import Bert, BertInputs
from cloze.networks.blocks.attention import Attention, AttentionInputs
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.feed_forward import FeedForward
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.inputs.candidates import Candidates
from cloze.networks.blocks.inputs.items import first_tokens
from cloze.networks.blocks.inputs.known_vectors import KnownVectors
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.projections import Across, Projections, StackedProjections
from cloze.networks.blocks.selected import Selected
from cloze.networks.blocks.visibility import Visibility, visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import StateKind
from cloze.registry import Given, register

_EPSILON = 1e-5  # of the norms that are not inside layers


class Linker(nn.Module):
    """Knowledge attention and recontextualisation (Peters et al., 2019, §3.3), on states (B, L, D).

    Parameters: `inward.*` (D to the width W of entities), `pool.*` (scores of a name's tokens), `span_norm.*`, `entity_norm.*`,
    `encoder.*` (a layer among names), `score_inner.*`, `score_outer.*` (from product and prior to a score), `mixed_norm.*`,
    `reader.*` (a layer in which tokens read names), `outward.*` (W to D), `norm.*`.
    """

    def __init__(
        self, *, width: int, entities: choices.LinkedEntities, epsilon: float, rates: choices.Dropouts, clock: Clock
    ) -> None:
        super().__init__()
        inner_width = entities.width

        def layer(projections: Projections) -> Layer:
            return Layer(
                width=inner_width, norm=choices.PostNorm(epsilon=epsilon), feed_forward=FeedForward(entities.inner, "gelu", True),
                attention=Attention(
                    width=inner_width, heads=entities.heads, dropout=Dropout(rates.of_attention, clock), projections=projections
                ),
                dropout=lambda: Dropout(rates.hidden, clock), active_dropout=Dropout(0.0, clock),
            )

        self.threshold = entities.threshold
        self.inward, self.pool = nn.Linear(width, inner_width), nn.Linear(inner_width, 1, bias=False)
        self.span_norm, self.entity_norm = nn.LayerNorm(inner_width, eps=_EPSILON), nn.LayerNorm(inner_width, eps=_EPSILON)
        self.encoder = layer(StackedProjections())
        self.score_inner, self.score_outer = nn.Linear(2, entities.scorer), nn.Linear(entities.scorer, 1)
        self.entity_dropout, self.mixed_norm = Dropout(rates.hidden, clock), nn.LayerNorm(inner_width, eps=_EPSILON)
        self.reader = layer(Across())
        self.outward, self.dropout = nn.Linear(inner_width, width), Dropout(rates.hidden, clock)
        self.norm = nn.LayerNorm(width, eps=_EPSILON)

    def invert(self) -> None:
        """Make `outward` the pseudo-inverse of `inward`."""
        if not self.inward.weight.is_meta:
            with torch.no_grad():
                inverse = torch.linalg.pinv(self.inward.weight)
                self.outward.weight.copy_(inverse)
                self.outward.bias.copy_(-inverse @ self.inward.bias)

    def pooled(self, x: Tensor, links: Tensor, count: int) -> Tensor:
        """The names (count, W): means of their tokens' x (B, L, W), weighted by a softmax; links are (N, 2).

        A name without tokens is zero.
        """
        rows = x.flatten(0, 1).index_select(0, links[:, 0])  # (N, W), a row for each link; a softmax for each name follows
        scores = self.pool(rows).squeeze(-1)
        highest = scores.detach().new_full((count,), -torch.inf).scatter_reduce(0, links[:, 1], scores.detach(), "amax")
        weights = (scores - highest[links[:, 1]]).exp()
        sums = weights.new_zeros(count).index_add(0, links[:, 1], weights)
        weights = weights / sums[links[:, 1]]
        return rows.new_zeros(count, rows.shape[1]).index_add(0, links[:, 1], rows * weights[:, None])

    def scores(self, spans: Tensor, vectors: Tensor, prior: Tensor) -> Tensor:
        """The score of each candidate (P,): of its name and its normed vector (P, W), and of its prior."""
        product = (spans * vectors).sum(-1) / vectors.shape[-1] ** 0.5
        both = torch.stack([product, prior.to(product.dtype)], -1)
        logits: Tensor = self.score_outer(self.score_inner(both).relu()).squeeze(-1)
        return logits

    def mixed(self, scores: Tensor, item: Tensor, vectors: Tensor, null: Tensor, count: int) -> Tensor:
        """The entity of each name (count, W): a mean of its candidates, weighted by a softmax of the scores (P,) that reach the
        threshold; the vector `null` (W,) where none does. `item` (P,) is the number of a candidate's name."""
        eligible = torch.ones_like(scores, dtype=torch.bool) if self.threshold is None else scores >= self.threshold
        highest = scores.detach().new_full((count,), -torch.inf)
        highest = highest.scatter_reduce(0, item, scores.detach().masked_fill(~eligible, -torch.inf), "amax")
        has_candidate = highest > -torch.inf
        weights = (scores - highest.where(has_candidate, 0)[item]).masked_fill(~eligible, -torch.inf).exp()
        sums = weights.new_zeros(count).index_add(0, item, weights)
        weights = weights / sums.where(has_candidate, 1)[item]
        means = vectors.new_zeros(count, vectors.shape[1]).index_add(0, item, vectors * weights[:, None])
        return torch.where(has_candidate[:, None], means, null.to(means.dtype))


class LinkerHook(LayerHook):
    """Runs a `Linker` after the layer `link_after`. `items` (E, R) are names, `links` (N, 2) the flat positions of a token and of
    its name; `scores` (P,) are those of the candidates, once the layer has been computed."""

    def __init__(self, network: LinkedTransformer, items: Tensor, links: Tensor, block: Tensor | None) -> None:
        self.network, self.items, self.links, self.block = network, items, links, block
        self.scores: Tensor | None = None

    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """x after knowledge attention, which follows its layer."""
        if number != self.network.link_after:
            return x
        linker = self.network.linker
        projected = linker.inward(x)  # (B, L, W)
        names, seen_by_names, seen_by_tokens = self._laid_out(x)
        count = self.items.numel()
        pooled = linker.span_norm(linker.pooled(projected, self.links, count))  # (count, W)
        # Into rows: (B, K, W), where empty cells take the row of zeros behind the names.
        laid = torch.cat([pooled, pooled.new_zeros(1, pooled.shape[1])])[names]
        spans = linker.encoder(laid, AttentionInputs(seen_by_names))
        # Back to one row per name; the row behind them collects the empty cells and is not read.
        flat = names.flatten()
        spans_by_item = spans.new_zeros(count + 1, spans.shape[-1]).index_copy(0, flat, spans.flatten(0, 1))
        pairs = self.network.candidates(self.items)
        vectors = linker.entity_norm(self.network.entities(pairs.entity).to(spans.dtype))  # (P, W)
        self.scores = linker.scores(spans_by_item[pairs.item], vectors, pairs.prior)
        mixed = linker.mixed(self.scores, pairs.item, vectors, self.network.null_vector, count)
        mixed = torch.cat([mixed, mixed.new_zeros(1, mixed.shape[1])])[names]  # (count, W) to (B, K, W)
        read = linker.mixed_norm(spans + linker.entity_dropout(mixed))
        knowledge = linker.reader(projected, AttentionInputs(seen_by_tokens, source=read))
        output: Tensor = linker.norm(x + linker.dropout(linker.outward(knowledge)))
        return output

    def _laid_out(self, x: Tensor) -> tuple[Tensor, Visibility, Visibility]:
        """The flat numbers of names in each row (B, K), `count` in an empty cell, and what names and tokens see of names.

        K is the number of names in the row that has most, at least 1. A name belongs to the row of its first token; names
        that cover no token, and the ids 0, are left out.
        """
        batch, length = x.shape[:2]
        count = self.items.numel()
        first, linked = first_tokens(self.links, count)
        real = (linked & (self.items.flatten() > 0)).nonzero().squeeze(1)
        row = first[real] // length
        # Names by row, in their own order inside it; the slot counts them from 0 in each row.
        order = torch.argsort(row, stable=True)
        real, row = real[order], row[order]
        counts = torch.zeros(batch, dtype=torch.long, device=x.device).index_add_(0, row, torch.ones_like(row))
        slot = torch.arange(len(row), device=x.device) - (counts.cumsum(0) - counts)[row]
        names = torch.full((batch, max(int(counts.max()), 1)), count, device=x.device)
        names[row, slot] = real
        blocks = torch.zeros_like(names)
        blocks[row, slot] = 1 if self.block is None else self.block.flatten()[first[real]].long()
        token_blocks = blocks.new_ones(batch, length) if self.block is None else self.block.long()
        # A token sees the names of its own block: (B, L, K).
        seen = (token_blocks[:, :, None] == blocks[:, None, :]) & (blocks > 0)[:, None, :]
        among = visibility("open", blocks, length=names.shape[1], past=0, device=x.device)
        return names, among, Visibility("mask", seen[:, None], may_see_nothing=True)


@register("network", "linked")
class LinkedTransformer(Bert):
    """BERT with an entity linker after the layer `link_after`; tokens then attend to what it links (Peters et al., 2019, §3).

    `items/surface` (E, R) are names, ids of the recipe's table `surfaces`, 0 for none; `links/surface` (N, 2) pairs the flat
    positions of a token and of a name that covers it. The table gives the candidates of a name with their priors. States are
    mapped to the width of entities; a name is a weighted mean of its tokens; names see each other in one layer. A candidate is
    scored from the product of name and entity and from its prior. The name adds a mean of its candidates, weighted by a softmax
    of those scores that reach `threshold` (none: of all), or the vector of no entity if there is none. Tokens attend to the names
    of their text, and the result is mapped back and added before a norm. With `outward` at zero, this is the norm alone.

    **States.** Those of `transformer`, and `linking` (P,), the scores of every candidate of every name.

    Vectors of entities are not trained. `outward` starts as the pseudo-inverse of `inward`.

    Differs: the authors' code inverts WᵀW, whose rank is too low, and sets `outward` again when the second stage begins. In a row
    without names tokens read zeros; there they read padding. `pool` has no bias, which would change nothing. There is
    one linker; the code can stack several.

    Parameters: those of `transformer`, and `linker.*`, 2,422,153 at the size of the authors' Wikipedia linker.
    """

    may_be_missing = (*Bert.may_be_missing, "linker")
    looks_up = ("entities.table",)
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {**size, "link_after": (3 * size["layers"]) // 4} for name, size in Bert.sizes.items()
    }

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        link_after: Natural = 9,
        entities: choices.LinkedEntities = choices.LinkedEntities(),
        tables: Given[Mapping[str, Any] | None] = None,
        **bert: Any,
    ) -> None:
        super().__init__(layers=layers, width=width, heads=heads, **bert)
        if link_after >= layers:
            raise RecipeError(f"network.linked.link_after: got {link_after}, expected 0 to {layers - 1}, a layer.")
        self.link_after = link_after
        part = "network.linked.entities"
        self.entities = KnownVectors(
            name=entities.table, width=entities.width, tables=tables, part=part, option="network.entities.width",
        )
        self.candidates = Candidates(name=entities.table, tables=tables, part=part)
        self.linker = Linker(width=width, entities=entities, epsilon=self.made.epsilon, rates=self.rates, clock=self.clock)
        self.takes = self.takes | {"items/surface", "links/surface"}
        self.gives = {**self.gives, "linking": StateKind("P", "order")}
        self.reset_parameters()
        self.linker.invert()
        name_dropouts(self)

    @property
    def null_vector(self) -> Tensor:
        """The vector of no entity (W,): the last but one."""
        return self.entities.weight[-2]

    def depth_groups(self) -> list[nn.Module]:
        """The embeddings, then the layers in order, one of them with the linker."""
        partners = [self.linker if number == self.link_after else nn.Identity() for number in range(len(self.layers))]
        return [self.embeddings, *map(nn.ModuleList, zip(self.layers, partners, strict=True))]

    def read(self, inputs: BertInputs) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L), as `transformer` gives them, and `linking`."""
        want, tokens = inputs.want, inputs.tokens
        names, links = inputs.linked("surface") or (tokens.new_zeros(len(tokens), 0), tokens.new_zeros(0, 2).long())
        linked = LinkerHook(self, names, links, inputs.block)
        states = super().read(inputs._replace(want=want - {"linking"}, layer_hooks=[linked, *inputs.layer_hooks]))
        return {**states, "linking": linked.scores} if "linking" in want and linked.scores is not None else states

    def count_layer(self, counted: Operations, number: int, size: SequenceSize) -> None:
        """Also the linker, which follows its layer."""
        super().count_layer(counted, number, size)
        if number != self.link_after:
            return
        length, links, pairs = 1, 0, 0
        if "items/surface" in counted.fields:
            items = counted.fields["items/surface"]
            length, links = max(int((items > 0).sum(1).max()), 1), len(counted.fields["links/surface"])
            pairs = len(self.candidates(items).item)
        linker, of_names = self.linker, SequenceSize(size.rows, size.rows * length, length)
        branch = counted.branch()
        branch.add(size, linker.inward)
        names = branch.branch()
        names.add(links, linker.pool, linker.span_norm)
        names.add(of_names, linker.encoder)
        scores = names.branch()
        scores.add(pairs, linker.entity_norm, linker.score_inner, linker.score_outer)
        names.add_branches(scores)
        names.pass_through(linker.mixed_norm)
        linker.reader.count_operations(branch, size, names.source(of_names))
        branch.add_branches(names)
        branch.add(size, linker.outward, linker.norm)
        counted.add_branches(branch)
