"""Label tokens by a small model of their sequence, on a network's states or on its mixed layers (ELMo's taggers)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import BelowOne, Count, OptionalWidth
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.clock import Clock
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.heads import dense, dense_and_norm
from cloze.objectives.labels.mixed import BidirectionalLSTM, MixedLayers, MixedReader
from cloze.objectives.objective import SEQUENCES, ClassWeights, Loss, TargetsAtPositions, weights_of
from cloze.objectives.transforms import Transform, transformed
from cloze.registry import Given, register


class LabellingHead(nn.Module):
    """[LSTM in each direction,] [dense, transform, [norm,]] dropout, output: (B, L, D) to scores (B, L, classes).

    Parameters: `encoder.*`, `dense.*`, `norm.*`, `output.*`.
    """

    def __init__(
        self, *, width: int, classes: int, encoder: int, dropout: float, clock: Clock, transform: Transform = None
    ) -> None:
        super().__init__()
        self.encoder = BidirectionalLSTM(width, encoder, clock) if encoder else None
        read = 2 * encoder if encoder else width
        self.transform = None if transform is None else transform.kind
        self.dense, self.norm = dense_and_norm(read, transform)
        self.dropout = Dropout(dropout, clock)
        self.output = dense(read, classes)

    @property
    def first(self) -> nn.Linear | None:
        """The dense map, if there is one."""
        return self.dense

    def forward(self, states: Tensor, block: Tensor | None) -> Tensor:
        """Scores of every token; those of padding are meaningless."""
        x = states if self.encoder is None else self.encoder(states, None if block is None else (block > 0).sum(1))
        if self.dense is not None and self.transform is not None:
            x = transformed(self.dense(x), self.transform)
        x = x if self.norm is None else self.norm(x)
        scores: Tensor = self.output(self.dropout(x))
        return scores


class MixedLabellingHead(MixedReader):
    """`MixedReader` → dropout → output: layers (N, B, L, D) to scores (B, L, classes). Parameters: those of
    `MixedReader`, `output.*`."""

    def __init__(
        self, mixed: MixedLayers, *, classes: int, width: int, encoder: int, vocab_size: int, dropout: float, clock: Clock
    ) -> None:
        super().__init__(mixed, width=width, encoder=encoder, vocab_size=vocab_size, dropout=dropout, clock=clock)
        self.dropout = Dropout(dropout, clock)
        self.output = dense(self.read, classes)

    def forward(self, layers: Tensor, tokens: Tensor | None, block: Tensor | None) -> Tensor:
        """Scores of every token; those of padding are meaningless."""
        scores: Tensor = self.output(self.dropout(self.mixed(layers, tokens, block)[0]))
        return scores


class SequenceLabelling(TargetsAtPositions):
    """Sum of cross-entropies of `targets/<set>` at flat `positions/<set>`, plus the penalty on mixes for each target.

    Reads `hidden` (B, L, D), or `layers` (N, B, L, D) if they are mixed, and `tokens` if the task has a table of its own
    words. Metrics: `correct`.
    `chained`: the label of a word depends on those of its neighbours.
    """

    chained = False
    weighs_classes = True
    fittable = True

    head: LabellingHead | MixedLabellingHead

    def __init__(self, head: LabellingHead | MixedLabellingHead, *, set: str) -> None:
        super().__init__(set=set)
        self.head, self.by_row = head, head.encoder is not None
        self.reads: tuple[str, ...] = ("layers" if isinstance(head, MixedReader) else "hidden",)
        self.takes |= head.takes if isinstance(head, MixedReader) else frozenset()
        self.optional |= SEQUENCES | {"block"}

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, C)."""
        head, state, block = self.head, states[self.reads[0]], batch.get("block")
        scored: Tensor = head(state, batch.get("tokens"), block) if isinstance(head, MixedReader) else head(state, block)
        return scored.flatten(0, 1).index_select(0, batch[self.positions_field].long())

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in float32."""
        total, correct = cross_entropy_sum(scores, batch[self.targets_field].long(), self.target_weights(batch))
        if isinstance(self.head, MixedReader):
            total = total + self.count(batch).to(total.device) * self.head.cost().to(total.device)
        return self.with_accuracy(total, correct, scores, batch)

    def decided(self, scores: Tensor, sizes: Tensor, names: Sequence[str]) -> tuple[Tensor, Tensor]:
        """The label of each word (M,) as a number, and its probability, from the scores (M, C) of all words of some texts.

        `sizes` (N,) are the words of each text, all above 0, and `names` the labels. Each word is labelled independently.
        """
        best, which = scores.softmax(-1).max(-1)
        return which, best


@register("objective", "sequence_labelling")
def sequence_labelling(
    *,
    classes: Count = 2,
    set: str = "label",
    mixed: MixedLayers | None = None,
    encoder: OptionalWidth = 0,
    dropout: BelowOne = 0.0,
    transform: Transform = None,
    class_weights: ClassWeights = None,
    width: Given[int],
    vocab_size: Given[int],
    clock: Given[Clock],
) -> SequenceLabelling:
    """A label for each token at `positions`: one linear map on `hidden` (Devlin et al., 2019), or on a task model's LSTMs.

    `encoder` is the width of an LSTM in each direction above the network. `mixed` reads mixed layers instead of `hidden`.
    `dropout` acts on mixes and on the classified states. Each word is labelled independently; `crf_labelling` labels a text as a
    whole. Without mixed layers, a `transform` comes before the output as in `classify`. `class_weights` are as in
    `relation_prediction`.
    """
    if mixed is None:
        head = LabellingHead(
            width=width, classes=classes, encoder=encoder, dropout=dropout, clock=clock, transform=transform
        )
        return _weighed(SequenceLabelling(head, set=set), class_weights, classes)
    if transform is not None:
        raise RecipeError("sequence_labelling: a `transform` is for the head without mixed layers. Leave it or `mixed` out.")
    reader = MixedLabellingHead(
        mixed, classes=classes, width=width, encoder=encoder, vocab_size=vocab_size, dropout=dropout, clock=clock
    )
    return _weighed(SequenceLabelling(reader, set=set), class_weights, classes)


def _weighed(head: SequenceLabelling, class_weights: ClassWeights, classes: int) -> SequenceLabelling:
    head.class_weights = weights_of(class_weights, classes)
    return head
