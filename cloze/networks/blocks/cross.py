"""Layers in which two sequences, a text and its items, read each other."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor, nn

from cloze.networks import choices
from cloze.networks.blocks.attention import Attention, AttentionCall, AttentionInputs, AttentionRecord
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.feed_forward import FeedForward
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.norm import Post
from cloze.networks.blocks.projections import Across, StackedProjections
from cloze.networks.blocks.visibility import Visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.item_config import CoAttention
from cloze.networks.network import attention_kinds


class LayerSettings(NamedTuple):
    """What the layers of a stack are made of: width, heads, inner numbers and activation, the epsilon of norms, dropout."""

    width: int
    heads: int
    inner: int
    activation: choices.Activation
    epsilon: float
    rates: choices.Dropouts
    clock: Clock

    def attention(
        self, projections: StackedProjections | Across, *, heads: int | None = None, inside: int | None = None
    ) -> Attention:
        """An attention of this stack; `inside` is its inner width, if that is not the width."""
        heads = heads or self.heads
        return Attention(
            width=self.width, heads=heads, head_width=None if inside is None else inside // heads, projections=projections,
            dropout=Dropout(self.rates.of_attention, self.clock),
        )

    def layer(self, attention: Attention | None = None, *, crossing: Attention | None = None) -> Layer:
        """A layer with attention among its own states, or with the one that is given, and maybe with one to other states."""
        return Layer(
            width=self.width, attention=self.attention(StackedProjections()) if attention is None else attention,
            feed_forward=FeedForward(self.inner, self.activation, True), norm=choices.PostNorm(epsilon=self.epsilon),
            dropout=lambda: Dropout(self.rates.hidden, self.clock), active_dropout=Dropout(0.0, self.clock),
            crossing=crossing,
        )


class TextAndItems(NamedTuple):
    """The states of a text (B, L, D) and of its items (B, R, W)."""

    text: Tensor
    items: Tensor


class CrossVisibility(NamedTuple):
    """What is seen: of the text by itself and by the items, of the items by themselves and by the text."""

    text: Visibility
    text_by_items: Visibility
    items: Visibility
    items_by_text: Visibility

    @classmethod
    def of(cls, text: Visibility, block: Tensor | None, items: Visibility, real: Tensor) -> CrossVisibility:
        """From the visibilities inside both sequences; `block` (B, L) is 0 at padding, `real` (B, R) false."""
        by_items = Visibility("all") if block is None else Visibility("mask", (block > 0)[:, None, None])
        return cls(text, by_items, items, Visibility("mask", real[:, None, None], may_see_nothing=True))


class CrossRecords(NamedTuple):
    """What is kept of attention: of items among themselves, of the text to the items, and of the items to the text."""

    items: AttentionRecord | None = None
    text_to_items: AttentionRecord | None = None
    items_to_text: AttentionRecord | None = None

    @classmethod
    def of(cls, want: frozenset[str]) -> CrossRecords:
        """For the wanted states, whose names begin with `PREFIXES`."""
        return cls(*(AttentionRecord.of(want, prefix) for prefix in PREFIXES))

    def stacked(self) -> dict[str, Tensor]:
        """The states of all layers, (N, B, H, ·, ·)."""
        records = zip(PREFIXES, self, strict=True)
        return {name: state for prefix, record in records if record for name, state in record.stacked(prefix).items()}


#: Nothing is kept.
UNRECORDED = CrossRecords()
#: How the names of these states begin, in the order of `CrossRecords`.
PREFIXES = ("item_", "crossing_", "item_crossing_")


#: The states of attention that a network with a stack of items gives besides those of its text.
CROSS_KINDS = MappingProxyType({
    name: kind for prefix in PREFIXES for name, kind in attention_kinds("order", prefix).items()
})  # fmt: skip


class CrossLayer(nn.Module):
    """Text and items read each other through one and the same attention, then themselves (LXMERT; Tan & Bansal, 2019, §2.2).

    In a row without items, attention to them adds nothing but its bias. Parameters: `crossing.*`, `crossing_norm.*`, and the
    layers `text.*` and `items.*`.
    """

    def __init__(self, settings: LayerSettings) -> None:
        super().__init__()
        self.crossing = settings.attention(Across())
        self.crossing_norm = nn.LayerNorm(settings.width, eps=settings.epsilon)
        self.dropouts = nn.ModuleList(Dropout(settings.rates.hidden, settings.clock) for _ in range(2))
        self.item_attention_dropout = Dropout(settings.rates.of_attention, settings.clock)
        self.text, self.items = settings.layer(), settings.layer()

    def forward(
        self, states: TextAndItems, views: CrossVisibility, records: CrossRecords = UNRECORDED
    ) -> TextAndItems:
        """Both sequences after the layer."""
        of_items = AttentionInputs(views.items_by_text, source=states.items, record=records.text_to_items)
        of_text = AttentionInputs(views.text_by_items, source=states.text, record=records.items_to_text)
        text = self._read(states.text, of_items, self.crossing.dropout, 0)
        items = self._read(states.items, of_text, self.item_attention_dropout, 1)
        of_itself = AttentionInputs(views.items, record=records.items)
        return TextAndItems(self.text(text, AttentionInputs(views.text)), self.items(items, of_itself))

    def _read(self, x: Tensor, inputs: AttentionInputs, dropout: Dropout, number: int) -> Tensor:
        call = AttentionCall(self.crossing, inputs, dropout)
        return Post().connect(x, call, self.crossing_norm, self.dropouts[number], lambda rows: rows)

    def count_both(self, text: Operations, items: Operations, sizes: tuple[SequenceSize, SequenceSize]) -> None:
        """The products of a layer, in the counts of both sequences, for the sizes of text and items."""
        sources = items.source(sizes[1]), text.source(sizes[0])
        for counted, layer, size, source in zip((text, items), (self.text, self.items), sizes, sources, strict=True):
            self.crossing.count_operations(counted, size, source)
            counted.add(size, self.crossing_norm, layer)


class CoAttentionLayer(nn.Module):
    """Each of two sequences reads the other, through layers of its own (ViLBERT; Lu et al., 2019, §2.1).

    Parameters: the layers `text.*` and `items.*`, whose attention has queries of `width`.
    """

    def __init__(self, text: LayerSettings, items: LayerSettings, crossing: CoAttention) -> None:
        super().__init__()
        heads, inside = crossing.heads, crossing.width
        self.text = text.layer(text.attention(Across(items.width), heads=heads, inside=inside))
        self.items = items.layer(items.attention(Across(text.width), heads=heads, inside=inside))

    def forward(
        self, states: TextAndItems, views: CrossVisibility, records: CrossRecords = UNRECORDED
    ) -> TextAndItems:
        """Both sequences after the layer."""
        of_items = AttentionInputs(views.items_by_text, source=states.items, record=records.text_to_items)
        of_text = AttentionInputs(views.text_by_items, source=states.text, record=records.items_to_text)
        return TextAndItems(self.text(states.text, of_items), self.items(states.items, of_text))

    def count_both(self, text: Operations, items: Operations, sizes: tuple[SequenceSize, SequenceSize]) -> None:
        """The products of a layer, in the counts of both sequences, for the sizes of text and items."""
        sources = items.source(sizes[1]), text.source(sizes[0])
        for counted, layer, size, source in zip((text, items), (self.text, self.items), sizes, sources, strict=True):
            layer.count_operations(counted, size, source)

