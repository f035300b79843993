"""Two streams: a Transformer over text and one over items, joined by layers in which each reads the other (ViLBERT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from cloze.bounds import Depth, Width
from cloze.errors import RecipeError
from cloze.networks import item_config as choices
from cloze.networks.bert import Bert, BertInputs
from cloze.networks.blocks.attention import AttentionInputs
from cloze.networks.blocks.cross import CROSS_KINDS, CoAttentionLayer, CrossRecords, CrossVisibility, TextAndItems
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.inputs.embeddings import to_residual_dtype
from cloze.networks.blocks.inputs.items import ItemRows, ItemVectors
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.selected import Selected
from cloze.networks.cost import Operations, SequenceSize, size_of_items
from cloze.networks.network import named_sizes, require_order
from cloze.registry import register


class ItemStream(LayerHook):
    """The stream of items next to that of the text: before the layer `first` of the text and before each later one, a co-layer
    joins both streams; then the items pass a layer of their own. `x` (B, 1 + R, W) are the whole picture and
    the items."""

    def __init__(
        self, network: CoAttentionTransformer, x: Tensor, views: CrossVisibility, records: CrossRecords
    ) -> None:
        self.network, self.x, self.views, self.records = network, x, views, records

    def enter(self, x: Tensor) -> Tensor:
        """The text after the first co-layer, if that stands before all layers of the text."""
        return self._joined(0, x) if self.network.first == 0 else x

    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """The text after the co-layer that follows a layer; the items pass their own layer."""
        done = number - self.network.first
        if done >= 0:
            self.x = self.network.item_layers[done](self.x, AttentionInputs(self.views.items, record=self.records.items))
        return self._joined(done + 1, x) if 0 <= done + 1 < len(self.network.co_layers) else x

    def _joined(self, number: int, x: Tensor) -> Tensor:
        text, self.x = self.network.co_layers[number](TextAndItems(x, self.x), self.views, self.records)
        return text


@register("network", "co_attention")
class CoAttentionTransformer(Bert):
    """BERT and a stack for items, which attend to each other in the upper layers (ViLBERT; Lu et al., 2019, §2.1).

    `item_stack` are the layers of the items, one for each of the last layers of the text; a co-layer comes before each pair.
    In a co-layer, each stream has queries for the keys and values of the other, and a feed-forward of its own. The whole picture
    stands in front of the items: the mean of their features, with a box around everything; hidden features count as zeros. The
    fields of items are those of `visual`.

    **States.** Those of `transformer`, `item_hidden` (B, R, W), and `pooled` (E, C), the product of the summary and of the whole
    picture, each after a dense map and ReLU. The states of attention of the items among themselves begin with `item_`, of the
    text to the items with `crossing_`, and of the items to the text with `item_crossing_`; the whole picture is the first item.

    A text without items reads nothing in the co-layers, which then add a bias and pass their feed-forward; with `co_layers` whose
    maps are zero, this is `transformer` with further norms.

    Parameters: those of `transformer`, `items.*`, `item_layers.<n>.*`, `co_layers.<n>.*`, `text_pooler.*`, `item_pooler.*`.
    """

    may_be_missing: tuple[str, ...] = (
        *Bert.may_be_missing, "items", "item_layers", "co_layers", "text_pooler", "item_pooler",
    )
    sizes = named_sizes(
        "layers width heads item_stack.layers item_stack.width item_stack.heads item_stack.inner crossing.width crossing.heads",
        tiny=(2, 128, 2, 1, 128, 2, 128, 128, 2), mini=(4, 256, 4, 2, 256, 4, 256, 256, 4),
        small=(4, 512, 8, 2, 512, 8, 512, 512, 8), medium=(8, 512, 8, 4, 512, 8, 512, 512, 8),
        base=(12, 768, 12, 6, 1024, 8, 1024, 1024, 8), large=(24, 1024, 16, 6, 1024, 16, 1024, 1024, 16),
    )

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        item_stack: choices.ItemStack = choices.ItemStack(),
        crossing: choices.CoAttention = choices.CoAttention(),
        items: choices.Items = choices.Items(),
        **bert: Any,
    ) -> None:
        super().__init__(layers=layers, width=width, heads=heads, **bert)
        text = self.made
        if item_stack.layers > layers:
            raise RecipeError(
                f"network.co_attention.item_stack.layers: got {item_stack.layers}, expected 1 to {layers}, as the text has."
            )
        item = text._replace(width=item_stack.width, heads=item_stack.heads, inner=item_stack.inner)
        self.first = layers - item_stack.layers
        self.items = ItemVectors(items, item.width, epsilon=item.epsilon, dropout=Dropout(item.rates.hidden, item.clock))
        self.item_layers: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            item.layer() for _ in range(item_stack.layers)
        )
        self.co_layers: Sequence[CoAttentionLayer] = nn.ModuleList(  # type: ignore[assignment]
            CoAttentionLayer(text, item, crossing) for _ in range(item_stack.layers)
        )
        self.text_pooler, self.item_pooler = nn.Linear(width, crossing.width), nn.Linear(item.width, crossing.width)
        self.take_items(items, {"item_hidden": "B R W", "pooled": "E C"})
        self.gives = {**self.gives, **CROSS_KINDS}
        self.widths = {"item_hidden": item.width, "pooled": crossing.width}
        self.reset_parameters()
        self.items.reset_parameters()
        name_dropouts(self)

    def depth_groups(self) -> list[nn.Module]:
        """The embeddings of tokens and items, then the layers of the text, the last ones with a co-layer and a layer of items."""
        upper = zip(self.layers[self.first :], self.item_layers, self.co_layers, strict=True)
        return [nn.ModuleList([self.embeddings, self.items]), *self.layers[: self.first], *map(nn.ModuleList, upper)]

    def read(self, inputs: BertInputs) -> dict[str, Tensor]:
        """Also the states of items, and `pooled`."""
        require_order("co_attention", inputs.order, "open")
        want, tokens = inputs.want, inputs.tokens
        rows = self._with_whole(inputs.item_rows(self.items.items.set), tokens)
        views = CrossVisibility.of(inputs.text_visibility(), inputs.block, rows.among(), rows.real)
        stream = ItemStream(self, to_residual_dtype(self.items(rows)), views, CrossRecords.of(want))
        # The pass of the text, (B, L, D), moves the stream of items, (B, 1 + R, W), on as well.
        below = (want - {"item_hidden", "pooled", *CROSS_KINDS}) | ({"summary"} if "pooled" in want else set())
        states = super().read(inputs._replace(want=below, layer_hooks=[stream, *inputs.layer_hooks]))
        outputs = {**states, **stream.records.stacked(), "item_hidden": stream.x[:, 1:]}
        if "pooled" in want:
            picture = self.item_pooler(stream.x[:, 0]).relu()  # (B, C)
            if inputs.summaries is not None:  # texts that are packed share the picture of their row: (E, C)
                picture = picture[torch.div(inputs.summaries, tokens.shape[1], rounding_mode="floor")]
            outputs["pooled"] = self.text_pooler(states["summary"]).relu() * picture
        return {name: state for name, state in outputs.items() if name in want}

    def _with_whole(self, rows: ItemRows | None, tokens: Tensor) -> ItemRows:
        """The items with the whole picture in front, (B, 1 + R, ·); it is real in rows that have items. Without any, R is 0."""
        rows = rows or self.items.padding(len(tokens), 0)
        boxes = rows.boxes
        if boxes is not None:
            picture = torch.cat([boxes.new_zeros(2), boxes.new_ones(2)]).expand(len(boxes), 1, 4)
            boxes = torch.cat([picture, boxes[..., :4]], 1)
        has_items = rows.real.any(1, keepdim=True)
        return replace(
            rows, features=torch.cat([rows.whole(of_shown=False)[:, None], rows.features], 1), boxes=boxes,
            real=torch.cat([has_items, rows.real], 1), hidden=torch.cat([torch.zeros_like(has_items), rows.hidden], 1),
        )

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The way of the text and of the items through their layers, and through those that join them."""
        items = counted.side("items")
        items.add(self._item_size(counted, size), self.items)
        if self.first == 0:
            counted.pass_through(self.embeddings)
            self.co_layers[0].count_both(counted, items, (size, self._item_size(counted, size)))
        super().count_operations(counted, size)
        counted.join(items)
        if "pooled" in counted.want:
            counted.add(size.rows, self.text_pooler, self.item_pooler)

    def count_layer(self, counted: Operations, number: int, size: SequenceSize) -> None:
        """Also the layer of the items, and the co-layer that follows."""
        super().count_layer(counted, number, size)
        items, rows, done = counted.side("items"), self._item_size(counted, size), number - self.first
        if done >= 0:
            items.add(rows, self.item_layers[done])
        if 0 <= done + 1 < len(self.co_layers):
            self.co_layers[done + 1].count_both(counted, items, (size, rows))

    def _item_size(self, counted: Operations, size: SequenceSize) -> SequenceSize:
        """The size of the items with the whole picture in front."""
        _, items, length = size_of_items(counted.fields, self.items.items.set) or SequenceSize(0, 0, 0)
        return SequenceSize(size.rows, items + size.rows, length + 1)
