"""ERNIE (Tsinghua): a Transformer whose upper layers also read vectors of the entities that the text names, and update them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import Depth, Natural, Width
from cloze.errors import RecipeError
from cloze.networks import choices
from cloze.networks.bert import Bert, BertInputs
from cloze.networks.blocks.attention import Attention, AttentionInputs
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.inputs.embeddings import to_residual_dtype
from cloze.networks.blocks.inputs.items import first_tokens
from cloze.networks.blocks.inputs.known_vectors import KnownVectors
from cloze.networks.blocks.visibility import visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.registry import Given, register


class EntityLayer(nn.Module):
    """What one layer does with entities: attention among them, except in the first such layer, and maps that join them to tokens.

    Parameters: `attention.*`, `attention_norm.*`, `inward.*` (from an entity to the inner numbers of the feed-forward),
    `outward.*` (back), `norm.*`.
    """

    def __init__(
        self, *, width: int, inner: int, heads: int | None, epsilon: float, rates: choices.Dropouts, clock: Clock
    ) -> None:
        super().__init__()
        self.attention: Attention | None = None
        if heads is not None:
            self.attention = Attention(width=width, heads=heads, dropout=Dropout(rates.of_attention, clock))
            self.attention_norm = nn.LayerNorm(width, eps=epsilon)
            self.attention_dropout = Dropout(rates.hidden, clock)
        self.inward, self.outward = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm, self.dropout = nn.LayerNorm(width, eps=epsilon), Dropout(rates.hidden, clock)

    def meet(self, x: Tensor, inputs: AttentionInputs) -> Tensor:
        """Entities (E, R, W) after attention among those of the same text."""
        if self.attention is None:
            return x
        entities: Tensor = self.attention_norm(x + self.attention_dropout(self.attention(x, inputs)))
        return entities


class EntityFusion(LayerHook):
    """Joins entities to the feed-forward of layers, from the layer `first` on.

    `x` (E, R, W) are the entities, `real` (E, R, 1) those that exist, `inputs` the inputs of attention among them. `pairs` (N, 2)
    are the flat positions of a token and of its entity, which adds zero if it does not exist, `home` (E·R,) the flat position of
    the token that each entity reads.
    """

    def __init__(
        self, layers: Sequence[EntityLayer], first: int, x: Tensor, real: Tensor, inputs: AttentionInputs, pairs: Tensor,
        home: Tensor,
    ) -> None:
        self.layers, self.first, self.x, self.real = layers, first, x, real
        self.inputs, self.pairs, self.home = inputs, pairs, home

    def before(self, number: int, layer: Any, x: Tensor, inputs: Any) -> Any:
        """The feed-forward of a layer with entities is called through a `FusionMaps`."""
        if number < self.first:
            return inputs
        entity_layer = self.layers[number - self.first]
        self.x = entity_layer.meet(self.x, self.inputs) * self.real
        return replace(inputs, host=FusionMaps(layer, entity_layer, self))


class FusionMaps:
    """A layer's maps of the feed-forward, where entities join: h = f(W w + U e + b), read by tokens and entities alike."""

    def __init__(self, layer: Any, entity_layer: EntityLayer, entities: EntityFusion) -> None:
        self.layer, self.own, self.entities = layer, entity_layer, entities

    def inner(self, w: Tensor) -> Tensor:
        """(…, D) to (…, inner), before the activation; the bias of U is added at every token, with or without an entity."""
        projected, pairs = self.layer.inner(w), self.entities.pairs
        projected = projected + self.own.inward.bias.to(projected.dtype)
        joining = F.linear(self.entities.x.flatten(0, 1).index_select(0, pairs[:, 1]), self.own.inward.weight)
        return projected.flatten(0, -2).index_add(0, pairs[:, 0], joining.to(projected.dtype)).view_as(projected)

    def outer(self, h: Tensor) -> Tensor:
        """(…, inner) to (…, D); the entities are updated on the way."""
        entity_layer, entities = self.own, self.entities
        if entity_layer is not entities.layers[-1]:
            read = entity_layer.dropout(entity_layer.outward(h.flatten(0, -2).index_select(0, entities.home)).view_as(entities.x))
            entities.x = entity_layer.norm(entities.x + read)
        output: Tensor = self.layer.outer(h)
        return output


@register("network", "knowledge_fusion")
class KnowledgeFusion(Bert):
    """BERT whose layers from `mix_at` on fuse vectors of entities into tokens that name them (Zhang et al., ERNIE, 2019, §3.3).

    `items/entity` (E, R) are ids of the recipe's table `entities`, 0 for none, `links/entity` (N, 2) pairs the flat position of a
    token with that of its entity. The summary token of every text is aligned with an entity, too, whose vector starts at zero
    (thunlp/ERNIE). In each of these layers, with tokens w and entities e after attention: h = f(W w + U e + b), w becomes
    LN(w + W' h) and e becomes LN(e + U' h). Without an entity U e is zero, but its bias is not. In the first of these layers
    entities have no attention.

    An entity that is linked to several tokens reads the first of them. The vectors are not trained; neither are the maps that
    update entities in the last layer, because nothing reads the result.

    Differs: the formulas of the paper have no residual connections and no norms around h; the code has both.

    Parameters: those of `transformer`, and `entity_layers.<n>.*`, 4,568,004 at the published size.
    """

    may_be_missing = (*Bert.may_be_missing, "entity_layers")
    looks_up = ("entities.table",)
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        name: {**size, "mix_at": (5 * size["layers"]) // 12} for name, size in Bert.sizes.items()
    }

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        mix_at: Natural = 5,
        entities: choices.EntityVectors = choices.EntityVectors(),
        tables: Given[Mapping[str, Any] | None] = None,
        **bert: Any,
    ) -> None:
        super().__init__(layers=layers, width=width, heads=heads, **bert)
        if mix_at >= layers:
            raise RecipeError(f"network.knowledge_fusion.mix_at: got {mix_at}, expected 0 to {layers - 1}, a layer.")
        self.mix_at = mix_at
        self.entities = KnownVectors(
            name=entities.table, width=entities.width, tables=tables, part="network.knowledge_fusion.entities",
            option="network.entities.width",
        )
        self.entity_layers: Sequence[EntityLayer] = nn.ModuleList(  # type: ignore[assignment]
            EntityLayer(
                width=entities.width, inner=self.inner, heads=entities.heads if number > mix_at else None,
                epsilon=self.made.epsilon, rates=self.rates, clock=self.clock,
            )
            for number in range(mix_at, layers)
        )
        last = self.entity_layers[-1]
        self.unread = (f"entity_layers.{len(self.entity_layers) - 1}.outward",)
        for unread in (last.outward, last.norm):
            unread.requires_grad_(False)
        self.takes = self.takes | {"items/entity", "links/entity"}
        self.reset_parameters()
        name_dropouts(self)

    def depth_groups(self) -> list[nn.Module]:
        """The embeddings, then the layers in order, each with its entity layer."""
        partners = [*[nn.Identity()] * self.mix_at, *self.entity_layers]
        return [self.embeddings, *map(nn.ModuleList, zip(self.layers, partners, strict=True))]

    def read(self, inputs: BertInputs) -> dict[str, Tensor]:
        """As `transformer`, with the entities around the layers."""
        return super().read(inputs._replace(layer_hooks=[self._entities(inputs), *inputs.layer_hooks]))

    def _entities(self, inputs: BertInputs) -> EntityFusion:
        """The entities of each text (E, 1 + R): first the one of its summary token, which starts at zero."""
        tokens, summaries = inputs.tokens, inputs.summaries
        if summaries is None:
            summaries = torch.arange(len(tokens), device=tokens.device) * tokens.shape[1]
        items, pairs = inputs.linked("entity") or (tokens.new_zeros(len(summaries), 0), summaries.new_zeros(0, 2))
        texts, count = items.shape  # (E, R)
        ids = torch.cat([items.new_zeros(texts, 1), items], 1)  # (E, 1 + R)
        real = ids > 0
        real[:, 0] = True
        text, item = torch.arange(texts, device=tokens.device), pairs[:, 1]
        # Flat positions in (E, R) as those in (E, 1 + R): each text has one more in front.
        moved = item + torch.div(item, max(count, 1), rounding_mode="floor") + 1
        first = torch.stack([summaries.long(), text * (count + 1)], 1)
        pairs = torch.cat([first, torch.stack([pairs[:, 0], moved], 1)])  # (E + N, 2)
        home, linked = first_tokens(pairs, ids.numel())
        real = real & linked.view_as(real)
        seen = visibility("open", real.long(), length=count + 1, past=0, device=tokens.device)
        x = to_residual_dtype(self.entities(ids))
        return EntityFusion(self.entity_layers, self.mix_at, x, real[..., None].to(x.dtype), AttentionInputs(seen), pairs, home)

    def count_layer(self, counted: Operations, number: int, size: SequenceSize) -> None:
        """Also what entities do next to the layer."""
        super().count_layer(counted, number, size)
        if number < self.mix_at:
            return
        layer, side = self.entity_layers[number - self.mix_at], counted.side("entities")
        entities, joins = _sizes(counted.fields)
        if layer.attention is not None:
            side.add(entities, layer.attention, layer.attention_norm)
        side.add(joins, layer.inward)
        counted.join(side)
        if layer is not self.entity_layers[-1]:
            side.join(counted)
            side.add(entities, layer.outward, layer.norm)
            counted.join(side)


def _sizes(fields: Mapping[str, Tensor]) -> tuple[SequenceSize, int]:
    """The size of the entities in the fields of a pass, with one for each text's summary, and how many of them join a token."""
    rows = len(fields["summaries"]) if "summaries" in fields else fields["tokens"].shape[0]
    if "items/entity" not in fields:
        return SequenceSize(rows, rows, 1), rows
    items, pairs = fields["items/entity"], fields["links/entity"].long()
    length = items.shape[1] + 1
    return SequenceSize(len(items), len(items) * length, length), len(items) + len(pairs)
