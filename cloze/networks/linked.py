"""KnowBert: a Transformer that links names to entities after some of its layers, and reads the vectors of these entities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cloze.bounds import Depth, Width
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


def most_names(items: Tensor, rows: int, counts: Tensor) -> int:
    """How many names a row may have: the width of `items` (E, R) where each row is one text, so that a GPU is not asked; else the
    largest of the `counts`."""
    return max(items.shape[1] if len(items) == rows else int(counts.max()), 1)


def way_back(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The weight and the bias with which `outward` starts, from those of `inward`: the pseudo-inverse, and its product with the
    bias, with the sign that it has in the authors' code (allenai/kb, kb/knowbert.py, `_init_kg_to_bert_projection`)."""
    inverse = torch.linalg.pinv(weight)
    return inverse, inverse @ bias


class Linker(nn.Module):
    """Knowledge attention and recontextualisation (Peters et al., 2019, §3.3), on states (B, L, D).

    `name` is its set of names: it reads `items/<name>` and `links/<name>`. The vectors of entities are not trained.

    Parameters: `inward.*` (D to the width W of entities), `pool.*` (scores of a name's tokens), `span_norm.*`, `entity_norm.*`,
    `encoder.*` (a layer among names), `score_inner.*`, `score_outer.*` (from product and prior to a score), `mixed_norm.*`,
    `reader.*` (a layer in which tokens read names), `outward.*` (W to D), `norm.*`.
    """

    def __init__(
        self, *, name: str, width: int, entities: choices.LinkedEntities, tables: Mapping[str, Any] | None, epsilon: float,
        rates: choices.Dropouts, clock: Clock,
    ) -> None:
        super().__init__()
        self.name, self.after_layer, inner_width = name, entities.after_layer, entities.width
        part = f"network.linked.linkers.{name}"
        self.entities = KnownVectors(
            name=entities.table, width=inner_width, tables=tables, part=part, option=f"network.linkers.{name}.width"
        )
        self.candidates = Candidates(name=entities.table, tables=tables, part=part)

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

    @property
    def null_vector(self) -> Tensor:
        """The vector of no entity (W,): the last but one."""
        return self.entities.weight[-2]

    def invert(self) -> None:
        """Make `outward` the pseudo-inverse of `inward`."""
        if not self.inward.weight.is_meta:
            with torch.no_grad():
                weight, bias = way_back(self.inward.weight, self.inward.bias)
                self.outward.weight.copy_(weight)
                self.outward.bias.copy_(bias)

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

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """Count the products of linking names in a sequence of this size."""
        length, links, pairs = 1, 0, 0
        if f"items/{self.name}" in counted.fields:
            items = counted.fields[f"items/{self.name}"]
            length, links = most_names(items, size.rows, (items > 0).sum(1)), len(counted.fields[f"links/{self.name}"])
            pairs = len(self.candidates(items).item)
        of_names = SequenceSize(size.rows, size.rows * length, length)
        branch = counted.branch()
        branch.add(size, self.inward)
        names = branch.branch()
        names.add(links, self.pool, self.span_norm)
        names.add(of_names, self.encoder)
        scores = names.branch()
        scores.add(pairs, self.entity_norm, self.score_inner, self.score_outer)
        names.add_branches(scores)
        names.pass_through(self.mixed_norm)
        self.reader.count_operations(branch, size, names.source(of_names))
        branch.add_branches(names)
        branch.add(size, self.outward, self.norm)
        counted.add_branches(branch)


class LinkerHook(LayerHook):
    """Runs a `Linker` after its layer. `items` (E, R) are names, `links` (N, 2) the flat positions of a token and of its name;
    `scores` (P,) are those of the candidates, once the layer has been computed."""

    def __init__(self, linker: Linker, items: Tensor, links: Tensor, block: Tensor | None) -> None:
        self.linker, self.items, self.links, self.block = linker, items, links, block
        self.scores: Tensor | None = None

    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """x after knowledge attention, which follows its layer."""
        linker = self.linker
        if number != linker.after_layer:
            return x
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
        pairs = linker.candidates(self.items)
        vectors = linker.entity_norm(linker.entities(pairs.entity).to(spans.dtype))  # (P, W)
        self.scores = linker.scores(spans_by_item[pairs.item], vectors, pairs.prior)
        mixed = linker.mixed(self.scores, pairs.item, vectors, linker.null_vector, count)
        mixed = torch.cat([mixed, mixed.new_zeros(1, mixed.shape[1])])[names]  # (count, W) to (B, K, W)
        read = linker.mixed_norm(spans + linker.entity_dropout(mixed))
        knowledge = linker.reader(projected, AttentionInputs(seen_by_tokens, source=read))
        output: Tensor = linker.norm(x + linker.dropout(linker.outward(knowledge)))
        return output

    def _laid_out(self, x: Tensor) -> tuple[Tensor, Visibility, Visibility]:
        """The flat numbers of names in each row (B, K), `count` in an empty cell, and what names and tokens see of names.

        K is the number of names that a row has room for, at least 1. A name belongs to the row of its first token; names that
        cover no token, and the ids 0, are left out.
        """
        batch, length = x.shape[:2]
        count = self.items.numel()
        first, linked = first_tokens(self.links, count)
        # Names by row, in their own order inside it; those that are left out have a row behind the others.
        row, order = torch.where(linked & (self.items.flatten() > 0), first // length, batch).sort(stable=True)
        counts = torch.zeros(batch + 1, dtype=torch.long, device=x.device).index_add_(0, row, torch.ones_like(row))
        slot = torch.arange(count, device=x.device) - (counts.cumsum(0) - counts)[row]  # counts them from 0 in each row
        slot = torch.where(row < batch, slot, 0)
        names = torch.full((batch + 1, most_names(self.items, batch, counts[:-1])), count, device=x.device)
        names[row, slot] = order
        blocks = torch.zeros_like(names)
        blocks[row, slot] = 1 if self.block is None else self.block.flatten()[first[order]].long()
        names, blocks = names[:-1], blocks[:-1]
        token_blocks = blocks.new_ones(batch, length) if self.block is None else self.block.long()
        # A token sees the names of its own block: (B, L, K).
        seen = (token_blocks[:, :, None] == blocks[:, None, :]) & (blocks > 0)[:, None, :]
        among = visibility("open", blocks, length=names.shape[1], past=0, device=x.device)
        return names, among, Visibility("mask", seen[:, None], may_see_nothing=True)


@register("network", "linked")
class LinkedTransformer(Bert):
    """BERT with entity linkers, each after a layer; tokens then attend to what it links (Peters et al., 2019, §3).

    Each of the `linkers` has the name of a set of names. `items/<name>` (E, R) are names, ids of the linker's table, 0 for none;
    `links/<name>` (N, 2) pairs the flat positions of a token and of a name that covers it. The table gives the candidates of a
    name with their priors. Linkers after the same layer follow each other in the order of the recipe. States are
    mapped to the width of entities; a name is a weighted mean of its tokens; names see each other in one layer. A candidate is
    scored from the product of name and entity and from its prior. The name adds a mean of its candidates, weighted by a softmax
    of those scores that reach `threshold` (none: of all), or the vector of no entity if there is none. Tokens attend to the names
    of their text, and the result is mapped back and added before a norm. With `outward` at zero, this is the norm alone.

    **States.** Those of `transformer`, and for each linker `linking/<name>` (P,), the scores of every candidate of every name.

    Vectors of entities are not trained. `outward` starts as the pseudo-inverse of `inward`, as does that of a trained linker with
    the change `invert_linkers`.

    Differs: the authors' code inverts WᵀW, whose rank is too low, so that rounding decides the result. In a row without names
    tokens read zeros; there they read padding. `pool` has no bias, which would change nothing.

    Parameters: those of `transformer`, and `linkers.<name>.*`, 2,422,153 at the size of the authors' Wikipedia linker.
    """

    looks_up = ("linkers.*.table",)

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        linkers: dict[str, choices.LinkedEntities],
        tables: Given[Mapping[str, Any] | None] = None,
        **bert: Any,
    ) -> None:
        super().__init__(layers=layers, width=width, heads=heads, **bert)
        if not linkers:
            raise RecipeError("network.linked.linkers: expected one linker or more, each under the name of its set of names.")
        for name, entities in linkers.items():
            if not name.isidentifier() or name in dir(nn.ModuleDict()):
                raise RecipeError(
                    f"network.linked.linkers: a linker cannot be called {name!r}. Use a word of letters, digits and "
                    "underscores, such as surface."
                )
            if entities.after_layer >= layers:
                raise RecipeError(
                    f"network.linked.linkers.{name}.after_layer: got {entities.after_layer}, expected 0 to {layers - 1}, a layer."
                )
        self.linkers: Mapping[str, Linker] = nn.ModuleDict({  # type: ignore[assignment]
            name: Linker(
                name=name, width=width, entities=entities, tables=tables, epsilon=self.made.epsilon, rates=self.rates,
                clock=self.clock,
            )
            for name, entities in linkers.items()
        })
        self.may_be_missing = (*Bert.may_be_missing, *(f"linkers.{name}" for name in linkers))
        self.takes = self.takes | {f"{field}/{name}" for name in linkers for field in ("items", "links")}
        self.gives = {**self.gives, **{f"linking/{name}": StateKind("P", "order") for name in linkers}}
        self.reset_parameters()
        for linker in self.linkers.values():
            linker.invert()
        name_dropouts(self)

    def linkers_after(self, number: int) -> list[Linker]:
        """The linkers that follow the layer `number`."""
        return [linker for linker in self.linkers.values() if linker.after_layer == number]

    def depth_groups(self) -> list[nn.Module]:
        """The embeddings, then the layers in order, each with the linkers that follow it."""
        return [
            self.embeddings,
            *(nn.ModuleList([layer, *self.linkers_after(number)]) for number, layer in enumerate(self.layers)),
        ]

    def read(self, inputs: BertInputs) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L), as `transformer` gives them, and the scores of the linkers."""
        tokens, hooks = inputs.tokens, dict[str, LinkerHook]()
        for name, linker in self.linkers.items():
            items, links = inputs.linked(name) or (tokens.new_zeros(len(tokens), 0), tokens.new_zeros(0, 2).long())
            hooks[f"linking/{name}"] = LinkerHook(linker, items, links, inputs.block)
        plain = inputs._replace(want=inputs.want - hooks.keys(), layer_hooks=[*hooks.values(), *inputs.layer_hooks])
        states = super().read(plain)
        scores = {state: hook.scores for state, hook in hooks.items() if state in inputs.want and hook.scores is not None}
        return {**states, **scores}

    def count_layer(self, counted: Operations, number: int, size: SequenceSize) -> None:
        """Also the linkers that follow the layer."""
        super().count_layer(counted, number, size)
        for linker in self.linkers_after(number):
            linker.count_operations(counted, size)
