"""Predict tokens: masked, next-token or permuted language modelling, as the exercise sets the targets."""

from __future__ import annotations

from typing import Literal

from torch import nn

from cloze.bounds import BelowOne, NonNegative, Positive
from cloze.errors import RecipeError
from cloze.networks.blocks.initial import Law
from cloze.objectives.classify import Classify
from cloze.objectives.heads import VocabularyHead
from cloze.objectives.objective import Kind
from cloze.registry import Given, register


class TokenPrediction(Classify):
    """`Classify` where the classes are the tokens of a vocabulary."""

    kind: Kind | None = "token_prediction"
    fittable = False
    of_tokens = True
    over_vocabulary = True


@register("objective", "token_prediction")
def token_prediction(
    *,
    transform: Literal["gelu", "gelu_tanh", "relu"] | None = None,
    tie: bool | Literal["widened"] = False,
    bias: bool = True,
    biases: bool | Literal["map"] = True,
    norm_epsilon: Positive = 1e-12,
    scale: bool = False,
    initial: Law | Literal["fan_in"] = "truncated",
    smoothing: BelowOne = 0.0,
    z_loss: NonNegative = 0.0,
    init_std: NonNegative = 0.02,
    bound: Positive | None = None,
    set: str = "main",
    width: Given[int],
    vocab_size: Given[int],
    table: Given[nn.Embedding | None] = None,
) -> TokenPrediction:
    """Cross-entropy over the vocabulary at the positions of the targets; only those rows reach the projection.

    `transform` puts a dense map to the table's width, a non-linearity and a norm before the projection (BERT's code,
    `get_masked_lm_output`); with `biases: false` the dense map and its norm have no biases (ModernBERT), with
    `biases: map` the map has one and the norm has no weights at all (ltgoslo/ltg-bert). `tie` uses the network's
    token table as output weights (Press & Wolf, 2017). GPT-2: no transform, tied, no bias. With `tie: widened` the rows of a
    table that is narrower than the state get further numbers, and the dense map keeps the width (MobileBERT's code,
    `get_masked_lm_output`). `scale` multiplies the rows by the table's width to the power -1/2 before the table (T5 v1.0, whose
    tied table has standard deviation 1).

    `smoothing` is label smoothing over all ids (0.1 in sequence to sequence fine-tuning). `z_loss` times the squared logarithm of
    the softmax's denominator is added to every target's loss in training, which keeps scores near 0 (1e-4 in T5's configurations,
    from Mesh TensorFlow); held-out losses do not include it.

    `init_std` is the initial standard deviation of the dense map and of untied output rows, truncated at two standard
    deviations, or not with `initial: normal` (RoBERTa's code). With `initial: fan_in` untied rows have 1/√width after truncation,
    so that untrained scores have standard deviation 1 (T5 v1.1, from google-research/t5x). `bound` draws the head's own rows and
    biases uniformly between ±`bound` instead, as recurrent language models do.

    `sampled_prediction` is for large vocabularies: a softmax over a sample, or over the most frequent ids.

    Parameters: `head.dense.*`, `head.norm.*`, `head.bias`, `head.output.weight` if not tied, `head.extra` if widened.
    """
    if tie and table is None:
        raise ValueError("token_prediction: tie is true, but the network it reads has no token table")
    if tie and initial == "fan_in":
        raise RecipeError("token_prediction.initial: fan_in is for output rows of its own; with tie: true leave it out.")
    head = VocabularyHead(
        width=width, vocab_size=vocab_size, transform=transform, table=table if tie else None, bias=bias,
        widened=tie == "widened", norm_epsilon=norm_epsilon, scale=scale, biases=biases, init_std=init_std, initial=initial,
    )
    if bound is not None:
        for parameter in head.parameters():
            nn.init.uniform_(parameter, -bound, bound)
    return TokenPrediction(head, set=set, smoothing=smoothing, z_loss=z_loss)
