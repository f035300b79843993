"""The parts of a network that say how it knows positions, as a recipe writes them (`positions: {rotary: {base: 160000}}`).

Dataclasses that do nothing but check their values; `choices.py` has them with the other parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cloze.bounds import Count, Natural, Positive
from cloze.errors import RecipeError
from cloze.networks.blocks.positions.scaling import LinearScaling, LlamaScaling
from cloze.registry import PartMark, register


@register("positions", "learned")
@dataclass(frozen=True, kw_only=True)
class LearnedPositions:
    """A trained vector for each of `max_length` positions, added to the embeddings (Devlin et al., 2019, §3.2)."""

    max_length: Count = 512


@register("positions", "learned_with_buckets")
@dataclass(frozen=True, kw_only=True)
class LearnedWithBuckets(LearnedPositions):
    """`learned` positions, and a learned number for each head and bucket of distances, added to the scores of every layer
    (microsoft/MPNet, `pretraining/fairseq/modules/transformer_sentence_encoder.py`). The buckets are those of `buckets`."""

    buckets: Count = 32
    farthest: Count = 128


@register("positions", "sinusoid")
@dataclass(frozen=True, kw_only=True)
class Sinusoid:
    """A fixed vector of sines and cosines for each of `max_length` positions, added to the embeddings (Vaswani et al., 2017,
    §3.5).

    `layout`: `interleaved` alternates sines and cosines; `halves` has all sines first (Marian); so has `tensor2tensor`, whose
    slowest wave turns by 1/10000 from one position to the next (fairseq). `first` is the number of the first position (fairseq:
    2).
    """

    max_length: Count = 512
    layout: Literal["interleaved", "halves", "tensor2tensor"] = "interleaved"
    first: Natural = 0


@register("positions", "rotary")
@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Queries and keys are rotated by angles proportional to the position (Su et al., 2021, §3.2).

    `local_base` is the base of layers with banded attention (ModernBERT; Warner et al., 2024), `base` if not given. `scaling`
    slows the angles for longer texts. With `skip_every: n`, every nth layer rotates nothing (SmolLM3). With `values`, values are
    rotated, too (`rotary_value` of transformers' RoFormer). `max_length` is the longest text that the network is meant to read.
    """

    base: Positive = 10000.0
    local_base: Positive | None = None
    scaling: Annotated[LinearScaling | LlamaScaling | None, PartMark("scaling")] = None
    skip_every: Count | None = None
    values: bool = False
    max_length: Count = 512

    def rotates_in(self, layer: int) -> bool:
        """Whether a layer, counted from 0, rotates queries and keys."""
        return self.skip_every is None or (layer + 1) % self.skip_every > 0


@register("positions", "rotary_table")
@dataclass(frozen=True, kw_only=True)
class RotaryTable:
    """`rotary` with angles per position that the checkpoint holds, so that their rounding is kept: those of ESM-2 may have been
    rounded to half precision in training. New networks have those of `base`."""

    base: Positive = 10000.0
    max_length: Count = 512


@register("positions", "functional")
@dataclass(frozen=True, kw_only=True)
class FunctionalPositions:
    """A fixed vector for each distance, clipped to `limit`, is added to keys and values (NEZHA; Wei et al., 2019, §2.1).

    `max_length` is the longest text that the network is meant to read.
    """

    limit: Count = 64
    max_length: Count = 512


@register("positions", "disentangled")
@dataclass(frozen=True, kw_only=True)
class Disentangled:
    """A learned vector for each bucket of distances is, in every layer, a key for the queries and a query for the keys (DeBERTa;
    He et al., 2021, §3.1); with t of these two `terms`, scores are divided by √(1 + t) more.

    Distances below half of the `buckets` have one each, in both directions; the others grow up to `max_length`, the longest text
    that the network is meant to read, and farther ones share the last (ltgoslo/ltg-bert, `make_log_bucket_position`). With
    `buckets: null` every distance below `max_length` has its own (DeBERTa v1). With `beyond` there is one bucket more, for keys
    `max_length` or more tokens ahead, as in transformers' DeBERTa (the table of microsoft/DeBERTa has that row, too, but from v2
    on its code never reads it).

    `maps`: the layers map the vectors by their own maps to queries and keys, which are `shared` (v2, v3), or by `own` ones (v1).
    `norm`: whether a layer norm follows the table. `drop_as`: whether the vectors have the rate of `attention` or of `hidden`
    states (DeBERTa). `absolute`: learned vectors of positions are also added to the `embeddings`, or to what the last layer reads
    when it runs again as a `decoder` (DeBERTa's enhanced mask decoder, §3.2): the network then also gives the state `decoded`,
    after `decoder_steps` runs of that layer, and objectives read it with `read: decoded`.
    """

    buckets: Count | None = 32
    max_length: Count = 512
    terms: Literal["both", "content_to_position", "position_to_content"] = "both"
    maps: Literal["shared", "own"] = "shared"
    norm: bool = True
    beyond: bool = False
    drop_as: Literal["attention", "hidden"] = "attention"
    absolute: Literal["embeddings", "decoder"] | None = None
    decoder_steps: Count = 2

    def __post_init__(self) -> None:
        if self.buckets is not None and not 4 <= self.buckets < self.max_length:
            raise RecipeError(
                f"positions.disentangled: {self.buckets} buckets for texts of {self.max_length} tokens. Give at least 4 buckets, "
                "and fewer than max_length."
            )
        if self.beyond and self.buckets is not None and self.buckets % 2:
            raise RecipeError(
                f"positions.disentangled: {self.buckets} buckets, and beyond: true. Give an even number, as DeBERTa has."
            )

    @property
    def rows(self) -> int:
        """How many vectors there are."""
        return 2 * (self.buckets or self.max_length) - 1 + self.beyond

    @property
    def as_keys(self) -> bool:
        """Whether the vectors are keys for the queries of tokens."""
        return self.terms != "position_to_content"

    @property
    def as_queries(self) -> bool:
        """Whether the vectors are queries for the keys of tokens."""
        return self.terms != "content_to_position"

@register("positions", "buckets")
@dataclass(frozen=True, kw_only=True)
class DistanceBuckets:
    """A learned number for each head and bucket of distances is added to the scores of a stack (T5; Raffel et al., 2020, §2.1).

    Half of the `buckets` of a side are single distances, the others grow up to `farthest`. The layers of a stack have the same
    numbers, or with `shared: false` each its own (umT5; Chung et al., 2023).
    """

    buckets: Count = 32
    farthest: Count = 128
    shared: bool = True


@register("positions", "none")
@dataclass(frozen=True, kw_only=True)
class NoPositions:
    """No positions: attention depends only on which tokens it may see."""


@register("positions", "relative")
@dataclass(frozen=True, kw_only=True)
class RelativeDistances:
    """A projected sinusoid for each distance joins the scores (Transformer-XL; Dai et al., 2019, §3.3).

    `clamp` limits distances to that number; with `untie` every layer has its own biases u and v.
    """

    clamp: Natural | None = None
    untie: bool = False
