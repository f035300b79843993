"""ZEN: a Transformer over characters, to whose states a second one over n-grams adds what it knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from torch import Tensor, nn

from cloze.bounds import Depth, OptionalDepth, Width
from cloze.errors import RecipeError, require_table
from cloze.networks import choices
from cloze.networks.bert import Bert, BertInputs
from cloze.networks.blocks.attention import Attention, AttentionInputs
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.feed_forward import FeedForward
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.inputs.embeddings import Embeddings, to_residual_dtype
from cloze.networks.blocks.inputs.items import first_tokens
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.selected import Selected
from cloze.networks.blocks.visibility import visibility
from cloze.networks.cost import Operations, SequenceSize
from cloze.registry import Given, PartMark, register


class NGrams(LayerHook):
    """Adds to the states of tokens, after each layer, those of the n-grams that cover them, which run through `layers`.

    `x` (B, R, D) are the n-grams, `inputs` the inputs of attention among them, `pairs` (E, 2) the flat positions of a
    token and of an n-gram that covers it.
    """

    def __init__(self, layers: Sequence[Layer], x: Tensor, inputs: AttentionInputs, pairs: Tensor) -> None:
        self.layers, self.x, self.inputs, self.pairs = layers, x, inputs, pairs

    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """x plus the sums over n-grams."""
        if number < len(self.layers):
            self.x = self.layers[number](self.x, self.inputs)
        added = self.x.flatten(0, 1).index_select(0, self.pairs[:, 1])
        return x.flatten(0, 1).index_add(0, self.pairs[:, 0], added).view_as(x)


@register("network", "zen")
class Zen(Bert):
    """BERT over characters with an n-gram encoder next to it (Diao et al., ZEN, 2020, §2.2).

    `items/ngram` (B, R) are ids of the recipe's table `ngrams`, 0 for none; `links/ngram` (E, 2) pairs the flat place of a
    token with that of an n-gram that covers it. After each layer the states of the n-grams that cover a token are added to
    the token's (their sum, not their mean, as in the code). The n-grams have no positions, the segment of their first
    token, and `ngram_layers` layers of their own; the last state of those is added again after every later layer (so does
    the code). Without n-grams this is `transformer`, number for number.

    Parameters: those of `transformer`, `ngrams.*` (tables and norm) and `ngram_layers.<n>.*`.
    """

    may_be_missing = (*Bert.may_be_missing, "ngrams", "ngram_layers")
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = MappingProxyType(
        {name: {**size, "ngram_layers": size["layers"] // 2} for name, size in Bert.sizes.items()}
    )

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        ngram_layers: OptionalDepth = 6,
        ngrams: str = "ngrams",
        feed_forward: Annotated[choices.PlainFeedForward, PartMark("feed_forward")] = choices.PlainFeedForward(),
        tables: Given[Mapping[str, Any] | None] = None,
        **bert: Any,
    ) -> None:
        super().__init__(layers=layers, width=width, heads=heads, feed_forward=feed_forward, **bert)
        clock, norm = self.clock, choices.PostNorm(epsilon=self.made.epsilon)
        lookups = {} if tables is None else tables
        require_table("network.zen.ngrams", ngrams, lookups)
        if not 1 <= ngram_layers <= layers:
            raise RecipeError(f"network.zen.ngram_layers: got {ngram_layers}, expected 1 to {layers}, the number of layers.")
        self.ngrams = Embeddings(vocab_size=lookups[ngrams].size, width=width, segments=self.segments, norm=norm)
        self.ngram_dropout = Dropout(self.rates.hidden, clock)
        self.ngram_layers: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            Layer(
                width=width, attention=Attention(width=width, heads=heads, dropout=Dropout(self.rates.of_attention, clock)),
                feed_forward=FeedForward(self.inner, feed_forward.activation, feed_forward.biases), norm=norm,
                dropout=lambda: Dropout(self.rates.hidden, clock), active_dropout=Dropout(0.0, clock),
            )
            for _ in range(ngram_layers)
        )
        self.takes = self.takes | {"items/ngram", "links/ngram"}
        self.reset_parameters()
        name_dropouts(self)

    def depth_groups(self) -> list[nn.Module]:
        """Both kinds of embeddings first, then the layers in order, each with the n-gram layer next to it."""
        partners = [*self.ngram_layers, *[nn.Identity()] * (len(self.layers) - len(self.ngram_layers))]
        return [
            nn.ModuleList([self.embeddings, self.ngrams]),
            *(nn.ModuleList([layer, other]) for layer, other in zip(self.layers, partners, strict=True)),
        ]

    def read(self, inputs: BertInputs) -> dict[str, Tensor]:
        """As `transformer`, with the n-grams around the layers."""
        linked = inputs.linked("ngram")
        grams = [] if linked is None else [self._grams(*linked, inputs.segments, inputs.block)]
        return super().read(inputs._replace(layer_hooks=[*grams, *inputs.layer_hooks]))

    def count_layer(self, counted: Operations, number: int, size: SequenceSize) -> None:
        """Also the n-gram layer next to the layer, if there is one."""
        super().count_layer(counted, number, size)
        if "items/ngram" in counted.fields and number < len(self.ngram_layers):
            (rows, count), grams = counted.fields["items/ngram"].shape, counted.side("ngrams")
            grams.pass_through(self.ngrams)
            grams.add(SequenceSize(rows, rows * max(count, 1), max(count, 1)), self.ngram_layers[number])
            counted.join(grams)

    def _grams(self, items: Tensor, pairs: Tensor, segments: Tensor | None, block: Tensor | None) -> NGrams:
        """The n-grams (B, R) with their embeddings; those of the same example see each other."""
        if items.shape[1] == 0:  # layers need a row to work on
            items = items.new_zeros(len(items), 1)
        first, linked = first_tokens(pairs, items.numel())
        # An n-gram has the segment and the block of its first token: (B · R,), then (B, R).
        kinds = None if segments is None else segments.flatten()[first].view_as(items)
        blocks = linked.long() if block is None else block.flatten()[first].long() * linked
        seen = visibility("open", blocks.view_as(items), length=items.shape[1], past=0, device=items.device)
        x = to_residual_dtype(self.ngram_dropout(self.ngrams(items, None, kinds, None)))
        return NGrams(self.ngram_layers, x, AttentionInputs(seen), pairs)
