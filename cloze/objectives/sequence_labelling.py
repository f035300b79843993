"""Label tokens by a small model of their sequence, on a network's states or on its mixed layers (ELMo's taggers)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import BelowOne, Count, NonNegative, OptionalDepth, OptionalWidth, Positive
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.mix import Combine
from cloze.networks.clock import Clock
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.heads import Transform, dense, transformed
from cloze.objectives.mixed import Encoder, Mixed, Where
from cloze.objectives.objective import Loss, TargetsAtPositions
from cloze.registry import Given, register


class LabellingHead(nn.Module):
    """[LSTM in each direction,] [dense, transform, [norm,]] dropout, output: (B, L, D) to scores (B, L, classes).

    Parameters: `encoder.*`, `dense.*`, `norm.*`, `output.*`.
    """

    def __init__(
        self, *, width: int, classes: int, encoder: int, dropout: float, clock: Clock, transform: Transform | None = None,
        norm_epsilon: float | None = None, biases: bool = True,
    ) -> None:
        super().__init__()
        self.encoder = Encoder(width, encoder, clock) if encoder else None
        read = 2 * encoder if encoder else width
        self.transform = transform
        self.dense = dense(read, read, bias=biases) if transform is not None else None
        self.norm = nn.LayerNorm(read, eps=norm_epsilon, bias=biases) if norm_epsilon is not None else None
        self.dropout = Dropout(dropout, clock)
        self.output = dense(read, classes)

    def forward(self, states: Tensor, tokens: Tensor, block: Tensor | None) -> Tensor:
        """Scores of every token; those of padding are meaningless."""
        x = states if self.encoder is None else self.encoder(states, None if block is None else (block > 0).sum(1))
        if self.dense is not None and self.transform is not None:
            x = transformed(self.dense(x), self.transform)
        x = x if self.norm is None else self.norm(x)
        scores: Tensor = self.output(self.dropout(x))
        return scores


class MixedLabellingHead(Mixed):
    """`Mixed` → dropout → output: layers (N, B, L, D) to scores (B, L, classes). Parameters: those of `Mixed`, `output.*`."""

    def __init__(self, *, classes: int, dropout: float, clock: Clock, **mixed: Any) -> None:
        super().__init__(dropout=dropout, clock=clock, **mixed)
        self.dropout = Dropout(dropout, clock)
        self.output = dense(self.read, classes)

    def forward(self, layers: Tensor, tokens: Tensor, block: Tensor | None) -> Tensor:
        """Scores of every token; those of padding are meaningless."""
        scores: Tensor = self.output(self.dropout(self.mixed(layers, tokens, block)[0]))
        return scores


class SequenceLabelling(TargetsAtPositions):
    """Sum of cross-entropies of `targets/<set>` at flat `positions/<set>`, plus the penalty on mixes for each target.

    Reads `hidden` (B, L, D), or `layers` (N, B, L, D) if they are mixed, and the field `tokens`. Metrics: `correct`.
    `chained`: the label of a word depends on those of its neighbours.
    """

    chained = False

    head: LabellingHead | MixedLabellingHead

    def __init__(self, head: LabellingHead | MixedLabellingHead, *, set: str) -> None:
        super().__init__(set=set)
        self.head = head
        self.reads: tuple[str, ...] = ("layers" if isinstance(head, Mixed) else "hidden",)
        self.takes |= {"tokens"}
        self.optional |= {"block"}

    def scores(self, readings: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, C)."""
        scored = self.head(readings[self.reads[0]], batch["tokens"], batch.get("block"))
        return scored.flatten(0, 1).index_select(0, batch[self.target_positions].long())

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in float32."""
        total, correct = cross_entropy_sum(scores, batch[self.targets].long(), batch.get(self.weights))
        if isinstance(self.head, Mixed):
            total = total + self.count(batch).to(total.device) * self.head.cost().to(total.device)
        return Loss(total, {"correct": correct})

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
    layers: OptionalDepth = 0,
    use: tuple[int, ...] | None = None,
    combine: Combine = "mix",
    mix: Where = "input",
    encoder: OptionalWidth = 0,
    embedding_width: OptionalWidth = 0,
    penalty: NonNegative = 0.001,
    norm: bool = False,
    dropout: BelowOne = 0.0,
    transform: Transform | None = None,
    norm_epsilon: Positive | None = None,
    biases: bool = True,
    width: Given[int],
    vocab_size: Given[int],
    clock: Given[Clock],
) -> SequenceLabelling:
    """A label for each token at `positions`: one linear map on `hidden` (Devlin et al., 2019), or on a task model's LSTMs.

    `encoder` is the width of an LSTM in each direction above the network. `layers` is the number of mixed layers, embeddings
    included (Peters et al., 2018, §3.2, §3.3); `use`, `combine`, `mix`, `embedding_width`, `penalty` and `norm` are then those
    of `mixed_classification`. `dropout` acts on mixes and on the classified states. Each word is labelled independently;
    `crf_labelling` labels a text as a whole. Without mixed layers a `transform` puts a dense map and a non-linearity before the
    output, `norm_epsilon` a norm after them; with `biases: false` neither has a bias (ModernBERT's head).
    """
    if transform is None and (norm_epsilon is not None or not biases):
        raise RecipeError("sequence_labelling: norm_epsilon and biases belong to the dense map of a `transform`; choose one.")
    if not layers:
        if use is not None or combine != "mix":
            raise RecipeError("sequence_labelling: use and combine belong to mixed `layers`; write how many there are.")
        head = LabellingHead(
            width=width, classes=classes, encoder=encoder, dropout=dropout, clock=clock, transform=transform,
            norm_epsilon=norm_epsilon, biases=biases,
        )
        return SequenceLabelling(head, set=set)
    if transform is not None:
        raise RecipeError("sequence_labelling: a `transform` is for the head without mixed layers. Leave it or `layers` out.")
    mixed = MixedLabellingHead(
        classes=classes, mix=mix, layers=layers, width=width, encoder=encoder, embedding_width=embedding_width,
        vocab_size=vocab_size, penalty=penalty, norm=norm, dropout=dropout, clock=clock, use=use, combine=combine,
    )
    return SequenceLabelling(mixed, set=set)
