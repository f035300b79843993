"""Predict tokens: masked, next-token or permuted language modelling, as the exercise sets the targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import nn

from cloze.bounds import BelowOne, Count, NonNegative, Positive
from cloze.errors import RecipeError
from cloze.networks.clock import Clock
from cloze.networks.spelling import unknown_id
from cloze.objectives.classify import TokenPrediction
from cloze.objectives.heads import VocabularyHead
from cloze.objectives.sampled import SampledPrediction
from cloze.registry import Given, register


@register("objective", "token_prediction")
def token_prediction(
    *,
    transform: Literal["gelu", "gelu_tanh", "relu"] | None = None,
    tie: bool = False,
    bias: bool = True,
    biases: bool = True,
    norm_epsilon: Positive = 1e-12,
    scale: bool = False,
    initial: Literal["truncated", "fan_in"] = "truncated",
    smoothing: BelowOne = 0.0,
    z_loss: NonNegative = 0.0,
    deviation: NonNegative = 0.02,
    bound: Positive | None = None,
    sampled: Count | None = None,
    most: Count | None = None,
    set: str = "main",
    width: Given[int],
    vocab_size: Given[int],
    table: Given[nn.Embedding | None] = None,
    clock: Given[Clock | None] = None,
    spellings: Given[Sequence[str] | None] = None,
) -> TokenPrediction:
    """Cross-entropy over the vocabulary at the positions of the targets; only those rows reach the projection.

    With `transform` a dense map to the table's width, the non-linearity and a norm come first (BERT's code,
    `get_masked_lm_output`). `tie` takes the network's token table as output weights (Press & Wolf, 2017). GPT-2: no
    transform, tied, no bias. `scale` multiplies the rows by the table's width to the power -1/2 before the table (T5 v1.0,
    whose tied table is drawn with deviation 1). `smoothing` is label smoothing over all ids (0.1 in sequence to sequence
    fine-tuning). `z_loss` times the squared logarithm of the softmax's denominator joins every target's loss while training,
    which keeps scores near 0 (1e-4 in T5's configurations, from Mesh TensorFlow); held-out losses are without it. Without
    `biases` the dense map and its norm have no offsets (ModernBERT).

    `deviation` is that of the dense map and of output rows of its own at the start (truncated at two deviations); with `initial:
    fan_in` such rows have deviation 1/√width after truncation instead, so that untrained scores have deviation 1 (T5 v1.1, from
    google-research/t5x). `bound` draws the head's own rows and biases between ±`bound` instead (recurrent language models begin
    so, in all their parameters).

    `sampled` trains by a sample of so many ids and `most` asks for the most frequent ids alone, the rest being [UNK], as ELMo
    does (see `SampledPrediction`); both want ids sorted by frequency, as the tokenizer `words` gives them.

    Parameters: `head.dense.*`, `head.norm.*`, `head.bias`, `head.output.weight` if not tied.
    """
    if tie and table is None:
        raise ValueError("token_prediction: tie is true, but the network it reads has no token table")
    if tie and initial == "fan_in":
        raise RecipeError("token_prediction.initial: fan_in is for output rows of its own; with tie: true leave it out.")
    rows = vocab_size if most is None else min(most, vocab_size)
    if sampled is not None or most is not None:
        _check_sampled(most, smoothing, z_loss, tied=tie)
    head = VocabularyHead(
        width=width, vocab_size=rows, transform=transform, table=table if tie else None, bias=bias,
        norm_epsilon=norm_epsilon, scale=scale, biases=biases, deviation=deviation, initial=initial,
    )
    if bound is not None:
        for parameter in head.parameters():
            nn.init.uniform_(parameter, -bound, bound)
    if sampled is None and rows == vocab_size:
        return TokenPrediction(head, set=set, smoothing=smoothing, z_loss=z_loss)
    return SampledPrediction(
        head, set=set, sampled=sampled, rows=rows, vocab_size=vocab_size, unknown=unknown_id(spellings), clock=clock or Clock()
    )


def _check_sampled(most: int | None, smoothing: float, z_loss: float, *, tied: bool) -> None:
    if smoothing:
        raise RecipeError("token_prediction: smoothing gives a share to every id, which a sample or `most` leaves out; write 0.")
    if z_loss:
        raise RecipeError("token_prediction: z_loss needs the scores of all ids, which a sample or `most` leaves out; write 0.")
    if most is not None and (most < 2 or tied):
        raise RecipeError(
            f"token_prediction.most: {most} with tie: {str(tied).lower()}; expected at least 2 ids, and output rows of their own."
        )
