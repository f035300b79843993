"""Not the network of the recipe `bert`, which is `transformer`, but a base class: BERT's Transformer for networks that add items,
recordings, entities or further stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from cloze.bounds import BelowOne, Count, Depth, Natural, Positive, Width
from cloze.errors import RecipeError
from cloze.networks import choices
from cloze.networks.blocks.cross import LayerSettings
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.inputs.items import ItemRows, fields_of
from cloze.networks.blocks.stack import Cache
from cloze.networks.blocks.visibility import AnyOrder, Visibility, visibility
from cloze.networks.clock import Clock
from cloze.networks.network import StateKind, TokenSequence
from cloze.networks.transformer import Transformer
from cloze.registry import Given, PartMark


class BertInputs(NamedTuple):
    """What a pass gives to a network that is built on `Bert`: what `transformer` takes, items, and the sequence of a decoder.

    `item_vectors`, `items`, `item_length` and `links` are the fields of items, by the name of the set.
    """

    want: frozenset[str]
    tokens: Tensor
    segments: Tensor | None = None
    position_ids: Tensor | None = None
    order: AnyOrder = "open"
    block: Tensor | None = None
    summaries: Tensor | None = None
    vectors: Tensor | None = None
    cache: Cache | None = None
    positions: Tensor | None = None
    gates: Tensor | None = None
    layer_hooks: Sequence[LayerHook] = ()
    item_vectors: Mapping[str, Tensor] | None = None
    items: Mapping[str, Tensor] | None = None
    item_length: Mapping[str, Tensor] | None = None
    links: Mapping[str, Tensor] | None = None
    decoder: TokenSequence | None = None

    def item_rows(self, name: str) -> ItemRows | None:
        """The items of the set of that name; None if the batch has no features of them.

        Raises `RecipeError` if a row of tokens holds several texts, each with items of its own.
        """
        if self.item_vectors is None or name not in self.item_vectors:
            return None
        features, rows = self.item_vectors[name], len(self.tokens)
        batch, count = features.shape[:2]
        if batch != rows:
            raise RecipeError(f"{batch} texts with items {name!r} are packed into {rows} rows: write training.packing: false.")
        real = torch.ones(batch, count, dtype=torch.bool, device=features.device)
        if self.item_length is not None and name in self.item_length:
            real = torch.arange(count, device=features.device) < self.item_length[name][:, None]
        masked = None if self.items is None else self.items.get(f"{name}/masked")
        hidden = torch.zeros_like(real) if masked is None else (masked > 0) & real & (features == 0).all(-1)
        features = features.masked_fill(~real[..., None], 0.0)
        links = None if self.links is None or name not in self.links else self.links[name].long()
        picture = None if self.items is None else self.items.get(f"{name}/picture")
        return ItemRows(features, self.item_vectors.get(f"{name}/boxes"), real, hidden, links, picture)

    def linked(self, name: str) -> tuple[Tensor, Tensor] | None:
        """The ids of things that the texts name (E, R), and their links with tokens (N, 2); None without any."""
        if self.items is None or self.links is None or name not in self.items or name not in self.links:
            return None
        return self.items[name], self.links[name].long()

    def text_visibility(self) -> Visibility:
        """What tokens see of their text, in the open order."""
        return visibility("open", self.block, length=self.tokens.shape[1], past=0, device=self.tokens.device)


class Bert(Transformer):
    """`transformer` with norms behind the layers and learned positions (Devlin et al., 2019, §3).

    A network that is built on it takes its own arguments and `**bert`, and overrides `read`. `made` is what the layers are made
    of.
    """

    compatible_parts = frozenset({"transformer"})
    max_length: int

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        feed_forward: Annotated[choices.PlainFeedForward, PartMark("feed_forward")] = choices.PlainFeedForward(),
        max_length: Count = 512,
        segments: Natural = 2,
        norm_epsilon: Positive = 1e-12,
        dropout: BelowOne | choices.Dropouts = 0.1,
        initial: Annotated[choices.Truncated | choices.Normal, PartMark("initial")] = choices.Normal(),
        vocab_size: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__(
            layers=layers, width=width, heads=heads, feed_forward=feed_forward, norm=choices.PostNorm(epsilon=norm_epsilon),
            positions=choices.LearnedPositions(max_length=max_length), segments=segments, dropout=dropout, initial=initial,
            vocab_size=vocab_size, clock=clock,
        )
        self.segments = segments
        self.made = LayerSettings(width, heads, self.inner, feed_forward.activation, norm_epsilon, self.rates, clock)

    def take_items(self, items: Any, states: Mapping[str, str]) -> None:
        """Take the fields of a set of items, and give these states, each of a shape, in which all is seen."""
        self.item_sets = {items.set: items.width}
        self.takes = (self.takes | fields_of(items.set)) - {"visible"}
        self.gives = {**self.gives, **{name: StateKind(shape, "order") for name, shape in states.items()}}

    def forward(self, **fields: Any) -> dict[str, Tensor]:
        """The wanted states of a pass; `fields` are those of `BertInputs`."""
        return self.read(BertInputs(**fields))

    def read(self, inputs: BertInputs) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L), as `transformer` gives them."""
        values = inputs._asdict()
        return super().forward(**{name: values[name] for name in _TEXT})


#: What `Transformer.forward` takes of a pass.
_TEXT = BertInputs._fields[: BertInputs._fields.index("item_vectors")]
