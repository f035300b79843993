"""One stream of text and items: a Transformer whose rows hold tokens and, behind them, items such as regions of a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from cloze.bounds import Depth, Width
from cloze.networks import item_config as choices
from cloze.networks.bert import Bert, BertInputs
from cloze.networks.blocks.attention import AttentionInputs, AttentionRecord
from cloze.networks.blocks.dropout import name_dropouts
from cloze.networks.blocks.inputs.embeddings import to_residual_dtype
from cloze.networks.blocks.inputs.items import ItemInputs, ItemRows, item_embeddings
from cloze.networks.blocks.stack import Stack, each_layer
from cloze.networks.blocks.visibility import Visibility, visibility
from cloze.networks.cost import Operations, SequenceSize, size_of_items
from cloze.networks.network import reading_states, require_order
from cloze.registry import PartMark, register

ItemKinds = Annotated[choices.Appended | choices.WithTables | choices.Elements | choices.Added, PartMark("items")]


@register("network", "visual")
class Visual(Bert):
    """BERT over rows of tokens and items, which all see each other.

    The part `items` says how items become vectors: `with_tables` is VisualBERT (Li et al., 2019, §3), `appended` Unicoder-VL
    (Li et al., 2020, §3) and UNITER (Chen et al., 2020, §3), `elements` VL-BERT (Su et al., 2020, §3), and `added` B2T2 (Alberti
    et al., 2019, §3), where items join tokens. `item_vectors/<set>` (B, R, F) are their features, `item_vectors/<set>/boxes`
    (B, R, 5) their boxes, `item_length/<set>` (B) says how many of a row are real, `items/<set>/masked` (B, R) which of them
    `mask_items` has chosen, `items/<set>/picture` (B, R) which of two pictures they are of, and `links/<set>` (N, 2) links tokens
    with items.

    **States.** Those of `transformer`, and `item_hidden` (B, R, D). States of attention are about tokens and items together.

    Without items this is `transformer`, number for number; in a row without items next to rows with some, nothing is added to
    it. Items have no order: the states of tokens do not depend on it.

    Differs: in VL-BERT's code the vector for the end also follows texts without a picture, and items stand before the padding.

    Parameters: those of `transformer`, and `items.*`.
    """

    may_be_missing: tuple[str, ...] = (*Bert.may_be_missing, "items")

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        items: ItemKinds = choices.Appended(),
        **bert: Any,
    ) -> None:
        super().__init__(layers=layers, width=width, heads=heads, **bert)
        self.items = item_embeddings(
            items, width, positions=self.max_length, segments=self.segments, epsilon=self.made.epsilon,
            rate=self.rates.hidden, clock=self.clock,
        )
        self.take_items(items, {"item_hidden": "B R D"})
        self.takes = self.takes | {"visible", f"links/{items.set}", f"items/{items.set}/picture"}
        self.reset_parameters()
        self.items.reset_parameters()
        name_dropouts(self)

    @property
    def maps(self) -> Mapping[str, nn.Linear]:
        """The map of features, by the name of the set."""
        return {} if self.items.feature_map is None else {self.items.set: self.items.feature_map}

    def depth_groups(self) -> list[nn.Module]:
        """The embeddings of tokens and items, then the layers in order."""
        return [nn.ModuleList([self.embeddings, self.items]), *self.layers]

    def initial_values(self, checkpoint: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Tables of items that begin as copies of those of the text."""
        return {f"items.{name}": tensor for name, tensor in self.items.initial_values(checkpoint).items()}

    def forward(self, *, positions: Tensor | None = None, **fields: Any) -> dict[str, Tensor]:
        """The wanted states of a pass; `positions` as in `transformer`."""
        return super().forward(positions=positions, **fields)

    def read(self, inputs: BertInputs) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L), as `transformer` gives them, and `item_hidden`."""
        want, tokens = inputs.want, inputs.tokens
        rows = inputs.item_rows(self.items.set)
        joined = self.items.join(self.embeddings, tokens, inputs.vectors, inputs.block, rows)
        if rows is None:
            text_states = super().read(inputs._replace(want=want - {"item_hidden"}, vectors=joined.vectors))
            nothing = self.embeddings.tokens.weight.new_zeros(len(tokens), 0, self.width)
            return {**text_states, "item_hidden": nothing} if "item_hidden" in want else text_states
        require_order("a row of tokens and items", inputs.order, "open")
        record, length = AttentionRecord.of(want), tokens.shape[1]
        x = self._embedded(inputs, joined)  # (B, L + S, D): the tokens, then the S positions that the items append
        seen = [AttentionInputs(self._seen(x, inputs.block, joined))] * len(self.layers)
        stack = Stack(self.layers, each_layer(seen, gates=inputs.gates, record=record), [*self.around, *inputs.layer_hooks])
        # Where states of items or of attention are wanted, the last layer computes all cells; else it may compute (M, D), those
        # that are read.
        reads_all = not stack.per_token or record is not None or "item_hidden" in want
        read = (_in_wide_rows(flat, length, x.shape[1]) for flat in (inputs.positions, inputs.summaries))
        selected = None if reads_all else self._read_tokens(x[..., 0], want, *read)
        passed = stack.run(x, selected=selected)
        last = passed[-1] if selected is None else selected.put_back(passed[-1])  # (B, L + S, D); below it is cut to (B, L, D)
        states = reading_states(want, last[:, :length], [x[:, :length] for x in passed[:-1]] + [last], inputs.summaries)
        if "item_hidden" in want:
            states["item_hidden"] = self._of_items(last, length, rows)
        return states if record is None else {**states, **record.stacked()}

    def _embedded(self, inputs: BertInputs, joined: ItemInputs) -> Tensor:
        """The row that the first layer reads (B, L + S, D)."""
        x = self.embeddings(inputs.tokens, inputs.position_ids, inputs.segments, joined.vectors)
        x = self.embedding_dropout(x)
        x = x if joined.summed is None else x + joined.summed
        return to_residual_dtype(x if joined.appended is None else torch.cat([x, joined.appended.to(x.dtype)], 1))

    def _seen(self, x: Tensor, block: Tensor | None, joined: ItemInputs) -> Visibility:
        """Who sees whom among tokens and items: all that are not padding."""
        real = block
        if joined.real is not None:
            text = x.shape[1] - joined.real.shape[1]
            text_mask = torch.ones_like(joined.real[:, :1]).expand(-1, text) if block is None else block > 0
            real = torch.cat([text_mask, joined.real], 1).long()
        return visibility("open", real, length=x.shape[1], past=0, device=x.device)

    def _of_items(self, last: Tensor, length: int, rows: ItemRows) -> Tensor:
        """The states of the items (B, R, D); zeros where they are no positions of the row."""
        if last.shape[1] == length:
            return last.new_zeros(len(last), rows.count, self.width)
        return last[:, length : length + rows.count]

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The way of tokens and items through the layers."""
        items = size_of_items(counted.fields, self.items.set)
        if items is None:
            super().count_operations(counted, size)
            return
        branch = counted.branch(needs_grad=False)
        branch.add(self.items.meets(items.tokens, size), self.items)
        counted.add_branches(branch)
        more, wider = self.items.appended(items.tokens, size.rows), self.items.appended(items.length, 1)
        counted.pass_through(self.embeddings)
        self.count_layers(counted, SequenceSize(size.rows, size.tokens + more, size.length + wider))


def _in_wide_rows(flat: Tensor | None, length: int, width: int) -> Tensor | None:
    """Flat positions in (B, L) as those of the same cells in (B, L + S): row · L + column moves on by row · S."""
    return None if flat is None else flat + torch.div(flat, length, rounding_mode="floor") * (width - length)
