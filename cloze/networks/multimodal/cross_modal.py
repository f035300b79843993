"""Three stacks of layers: one of text, one of items, and one in which both read each other (LXMERT)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import Depth, OptionalDepth, Width
from cloze.networks import item_config as choices
from cloze.networks.bert import Bert, BertInputs
from cloze.networks.blocks.attention import AttentionInputs
from cloze.networks.blocks.cross import CROSS_KINDS, CrossLayer, CrossRecords, CrossVisibility, TextAndItems
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.inputs.embeddings import to_residual_dtype
from cloze.networks.blocks.inputs.items import ItemVectors
from cloze.networks.blocks.layer import Layer
from cloze.networks.cost import Operations, SequenceSize, size_of_items
from cloze.networks.network import named_sizes, require_order
from cloze.registry import register


@register("network", "cross_modal")
class CrossModal(Bert):
    """A stack for text, a stack for items, and cross-modal layers above both (LXMERT; Tan & Bansal, 2019, §2).

    `layers` are those of the text, `item_layers` those of the items; in each of `cross_layers` text and items first read each
    other through one shared attention (as in the authors' code), then themselves. The fields of items are those of `visual`.

    **States.** `hidden` (B, L, D) of the text and `item_hidden` (B, R, D) after the last cross layer, `layers` (N+1, B, L, D) of
    the text, `summary`, `pooled` (E, D), a dense map and tanh of the summary, and the states of attention of the text's stack;
    with `items.transform` also `item_transformed` (B, R, D), what heads read of the items. The states of attention of the items
    among themselves, in their stack and in the cross layers, begin with `item_`, of the text to the items with `crossing_`, and
    of the items to the text with `item_crossing_`.

    A text without items passes all layers of the text; where it would read items, the cross layers only add a bias.

    Parameters: those of `transformer`, `items.*`, `item_layers.<n>.*`, `cross_layers.<n>.*`, `pooler.*`; 207,936,768 at the
    published size. With `items.transform` also `item_map.*` and `item_norm.*`.
    """

    may_be_missing: tuple[str, ...] = (
        *Bert.may_be_missing, "items", "item_layers", "cross_layers", "pooler", "item_map", "item_norm",
    )
    sizes = named_sizes(
        "layers width heads item_layers cross_layers", tiny=(2, 128, 2, 1, 1), mini=(4, 256, 4, 2, 2), small=(4, 512, 8, 2, 2),
        medium=(6, 512, 8, 3, 3), base=(9, 768, 12, 5, 5), large=(18, 1024, 16, 10, 10),
    )

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        item_layers: OptionalDepth = 5,
        cross_layers: Depth = 5,
        items: choices.TransformedItems = choices.TransformedItems(),
        **bert: Any,
    ) -> None:
        super().__init__(layers=layers, width=width, heads=heads, **bert)
        factory = self.made
        self.items = ItemVectors(items, width, epsilon=factory.epsilon, dropout=Dropout(factory.rates.hidden, factory.clock))
        self.item_layers: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            factory.layer() for _ in range(item_layers)
        )
        self.cross_layers: Sequence[CrossLayer] = nn.ModuleList(  # type: ignore[assignment]
            CrossLayer(factory) for _ in range(cross_layers)
        )
        self.pooler = nn.Linear(width, width)
        self.item_map = nn.Linear(width, width) if items.transform else None
        self.item_norm = nn.LayerNorm(width, eps=factory.epsilon) if items.transform else None
        transformed = {"item_transformed": "B R D"} if items.transform else {}
        self.take_items(items, {"item_hidden": "B R D", "pooled": "E D", **transformed})
        self.gives = {**self.gives, **CROSS_KINDS}
        self.reset_parameters()
        self.items.reset_parameters()
        name_dropouts(self)

    def depth_groups(self) -> list[nn.Module]:
        """The embeddings of tokens and items, the layers of the text, the last ones with those of the items, then the others."""
        apart = len(self.layers) - len(self.item_layers)
        both = [*self.layers[: max(apart, 0)], *self.item_layers[: max(-apart, 0)]]
        shared = zip(self.layers[max(apart, 0) :], self.item_layers[max(-apart, 0) :], strict=True)
        return [
            nn.ModuleList([self.embeddings, self.items]), *both, *map(nn.ModuleList, shared), *self.cross_layers,
        ]

    @property
    def layer_state_count(self) -> int:
        """The embeddings, the layers of the text, and the cross layers."""
        return 1 + len(self.layers) + len(self.cross_layers)

    def read(self, inputs: BertInputs) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L) and of their items (B, R)."""
        require_order("cross_modal", inputs.order, "open")
        want, tokens = inputs.want, inputs.tokens
        below = (want - {"item_hidden", "item_transformed", "pooled", "summary", *CROSS_KINDS}) | {"hidden"}
        records = CrossRecords.of(want)
        states = super().read(inputs._replace(want=below, positions=None))
        rows = inputs.item_rows(self.items.items.set) or self.items.padding(len(tokens), 1)
        seen = rows.among()
        x = to_residual_dtype(self.items(rows))  # (B, R, D), where R is 1 in a batch without items
        for layer in self.item_layers:
            x = layer(x, AttentionInputs(seen, record=records.items))
        pair, views = TextAndItems(states["hidden"], x), CrossVisibility.of(
            inputs.text_visibility(), inputs.block, seen, rows.real
        )
        above = []
        for cross in self.cross_layers:
            pair = cross(pair, views, records)
            above.append(pair.text)
        if "layers" in want:
            states["layers"] = torch.cat([states["layers"], torch.stack(above)])  # along the axis of layers
        item_states = pair.items if inputs.item_vectors is not None else pair.items[:, :0]  # (B, 0, D) without items
        outputs = {**states, **records.stacked(), "hidden": pair.text, "item_hidden": item_states}
        if self.item_map is not None and self.item_norm is not None and "item_transformed" in want:
            outputs["item_transformed"] = self.item_norm(F.gelu(self.item_map(item_states)))
        if want & {"summary", "pooled"}:
            outputs["summary"] = self.summarise(pair.text, tokens=tokens, block=inputs.block, summaries=inputs.summaries)
            outputs["pooled"] = torch.tanh(self.pooler(outputs["summary"]))
        return {name: state for name, state in outputs.items() if name in want}

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The way of the text, and of the items, through their layers, and of both through the cross layers."""
        super().count_operations(counted, size)
        rows = size_of_items(counted.fields, self.items.items.set) or SequenceSize(size.rows, size.rows, 1)
        items = counted.side("items")
        items.add(rows, self.items, *self.item_layers)
        for cross in self.cross_layers:
            cross.count_both(counted, items, (size, rows))
        if "item_transformed" in counted.want:
            items.add(rows, self.item_map, self.item_norm)
        counted.join(items)
        if "pooled" in counted.want:
            counted.add(size.rows, self.pooler)
