"""The choices that networks leave to a recipe, each with the arguments that it alone has: positions, norms, maps, first weights.

A choice between several is a union of parts (`positions: {rotary: {base: 160000}}`); what belongs together and has no
alternative is a section (`dropout: {hidden: 0.1, attention: 0.0}`). All are plain data: the networks read them when they are
made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from cloze.bounds import BelowOne, Count, Natural, NonNegative, Positive, Width
from cloze.registry import PartMark, register

Activation = Literal["gelu", "gelu_tanh", "relu"]
#: Layer norm, layer norm without offsets, and the norm by root mean square, which has none.
Norm = Literal["layer", "layer_without_biases", "rms"]

# ---- positions -------------------------------------------------------------------------------------------------------


@register("positions", "learned")
@dataclass(frozen=True, kw_only=True)
class Learned:
    """A trained vector for each of `max_length` positions, added to the embeddings (Devlin et al., 2019, §3.2)."""

    max_length: Count = 512


@register("positions", "sinusoid")
@dataclass(frozen=True, kw_only=True)
class Sinusoid:
    """A fixed vector of sines and cosines for each of `max_length` positions, added as well (Vaswani et al., 2017, §3.5)."""

    max_length: Count = 512


@register("positions", "rotary")
@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Queries and keys are turned by angles that grow with the position (Su et al., 2021, §3.2).

    `local_base` is the base of layers with banded attention (ModernBERT; Warner et al., 2024), `base` if not given.
    `max_length` is the longest text that the network is meant to read.
    """

    base: Positive = 10000.0
    local_base: Positive | None = None
    max_length: Count = 512


@register("positions", "functional")
@dataclass(frozen=True, kw_only=True)
class Functional:
    """A fixed vector for each distance, clipped to `limit`, is added to keys and values (NEZHA; Wei et al., 2019, §2.1).

    `max_length` is the longest text that the network is meant to read.
    """

    limit: Count = 64
    max_length: Count = 512


@register("positions", "buckets")
@dataclass(frozen=True, kw_only=True)
class DistanceBuckets:
    """A learned number for each head and bucket of distances is added to the scores of a stack (T5; Raffel et al., 2020, §2.1).

    Half of the `buckets` of a side are single distances, the others grow up to `farthest`.
    """

    buckets: Count = 32
    farthest: Count = 128


@register("positions", "none")
@dataclass(frozen=True, kw_only=True)
class NoPositions:
    """Attention does not know where a token stands, apart from what it may see."""


@register("positions", "relative")
@dataclass(frozen=True, kw_only=True)
class RelativeDistances:
    """A projected sinusoid for each distance joins the scores (Transformer-XL; Dai et al., 2019, §3.3).

    `clamp` holds distances at most that large; with `untie` every layer has biases u and v of its own.
    """

    clamp: Natural | None = None
    untie: bool = False


# ---- norms -----------------------------------------------------------------------------------------------------------


@register("norm", "post")
@dataclass(frozen=True, kw_only=True)
class Post:
    """A norm of the sum behind each residual branch (Vaswani et al., 2017; BERT).

    `embedding`: whether the embeddings have one (GPT's do not), `final`: whether there is one more behind the last layer.
    """

    kind: Norm = "layer"
    epsilon: Positive = 1e-12
    embedding: bool = True
    final: bool = False
    first: ClassVar[bool] = True


@register("norm", "pre")
@dataclass(frozen=True, kw_only=True)
class Pre:
    """A norm in front of each residual branch, and one behind the last layer (GPT-2; Radford et al., 2019, §2.3).

    `embedding`: whether the embeddings have one; `first: false` leaves out the one in front of the first attention, where the
    embeddings have just had one (ModernBERT; Warner et al., 2024).
    """

    kind: Norm = "layer"
    epsilon: Positive = 1e-12
    embedding: bool = False
    final: bool = True
    first: bool = True


Norms = Annotated[Post | Pre, PartMark("norm")]


# ---- maps and attention ----------------------------------------------------------------------------------------------


@register("feed_forward", "plain")
@dataclass(frozen=True, kw_only=True)
class FeedForward:
    """Two maps with an activation between them (Vaswani et al., 2017, §3.3); `inner` is four times the width if not given."""

    inner: Width | None = None
    activation: Activation = "gelu"
    biases: bool = True


@register("feed_forward", "gated")
@dataclass(frozen=True, kw_only=True)
class GatedFeedForward:
    """Two maps inward, one activated and multiplied by the other, and one outward (Shazeer, 2020, eq. 5).

    `inner` is four times the width if not given.
    """

    inner: Width | None = None
    activation: Activation = "gelu"
    biases: bool = True


FeedForwards = Annotated[FeedForward | GatedFeedForward, PartMark("feed_forward")]


@dataclass(frozen=True, kw_only=True)
class Band:
    """Attention that sees `width` tokens; each nth layer, the first of them layer 0, sees everything where `dense_every` is n."""

    width: Count
    dense_every: Count | None = None


@dataclass(frozen=True, kw_only=True)
class BandedAttention:
    """Whether the maps of attention have biases, and the band that its layers see, if any."""

    biases: bool = True
    band: Band | None = None


@dataclass(frozen=True, kw_only=True)
class ScaledAttention:
    """Whether the maps of attention have biases, and whether its scores are divided by the root of the heads' width."""

    biases: bool = True
    scaled: bool = True


@dataclass(frozen=True, kw_only=True)
class Share:
    """Layers in `groups` runs of equal length share the `weights` of attention, of the feed-forward maps, or of both."""

    weights: Literal["all", "attention", "feed_forward"] = "all"
    groups: Width = 1


# ---- embeddings ------------------------------------------------------------------------------------------------------


@register("embedding", "table")
@dataclass(frozen=True, kw_only=True)
class Table:
    """A vector for each token, as wide as the layers, or `width` wide with a map to theirs (ELECTRA, ALBERT).

    `project`: there is a map where the widths are equal, too (ALBERT's code).
    """

    width: Width | None = None
    project: bool = False


@dataclass(frozen=True, kw_only=True)
class AdaptiveTable:
    """Vectors that are narrower for rare ids (Baevski & Auli, 2019): each of the clusters between `cutoffs` is `divide` times
    narrower than the one before, the first `width` wide, or as wide as the layers."""

    width: Width | None = None
    cutoffs: tuple[int, ...] = ()
    divide: Count = 1


# ---- dropout ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Dropouts:
    """Rates of dropout: of what enters the residual stream, and of attention probabilities, `hidden` if not given."""

    hidden: BelowOne = 0.1
    attention: BelowOne | None = None

    @property
    def of_attention(self) -> float:
        """The rate of attention probabilities."""
        return self.hidden if self.attention is None else self.attention


@dataclass(frozen=True, kw_only=True)
class SequenceDropouts(Dropouts):
    """Also the rate between the two maps of a layer; with `mask: row` all positions of a row drop the same numbers, and all
    queries the same keys (T5's noise shapes in Mesh TensorFlow)."""

    inner: BelowOne = 0.0
    mask: Literal["position", "row"] = "position"


@dataclass(frozen=True, kw_only=True)
class RecurrentDropouts:
    """The five dropouts of AWD-LSTM (Merity et al., 2018, §4): behind the last layer, between layers, of recurrent weights, of
    the inputs' vectors, and of whole words.

    With `locked` masks stay for all steps of a row; `locked_between` is the same for dropout between layers, where that differs.
    """

    output: BelowOne = 0.0
    hidden: BelowOne = 0.0
    weight: BelowOne = 0.0
    input: BelowOne = 0.0
    word: BelowOne = 0.0
    locked: bool = True
    locked_between: bool | None = None


# ---- memory ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SegmentMemory:
    """How many tokens of a lane are remembered, and how many at the end of a row the next one brings again."""

    size: Natural
    reuse: Natural = 0


@dataclass(frozen=True, kw_only=True)
class EvenMemory(SegmentMemory):
    """With `same_length` every token sees exactly `size` keys, itself included."""

    same_length: bool = False


# ---- first weights ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    law: ClassVar[Literal["normal", "truncated"]]

    std: NonNegative = 0.02
    positions: NonNegative | None = None
    residual: Literal["as_drawn", "scaled", "scaled_by_depth"] = "as_drawn"


@register("initial", "normal")
@dataclass(frozen=True, kw_only=True)
class Normal(_Drawn):
    """Weights from a normal distribution with the standard deviation `std`; biases are zero.

    `positions` is the deviation of learned positions, `std` if not given (GPT-2's code: 0.01). `residual: scaled` divides the
    maps into the residual stream by the root of their number (GPT-2; Radford et al., 2019, §2.3), `scaled_by_depth` by the root
    of how many there are up to their layer (UniLM's code, `rescale_some_parameters`).
    """

    law = "normal"


@register("initial", "truncated")
@dataclass(frozen=True, kw_only=True)
class Truncated(_Drawn):
    """As `normal`, cut at two standard deviations (BERT's code)."""

    law = "truncated"


@register("initial", "uniform")
@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Maps and their biases from ±1/√inputs, tables with standard deviation 1/√width (XLM's code: torch's defaults)."""


@register("initial", "t5")
@dataclass(frozen=True, kw_only=True)
class T5Initial:
    """The token table with deviation 1, every map with the root of what it reads, queries smaller still (mesh_tensorflow)."""


Initials = Annotated[Truncated | Normal | Uniform, PartMark("initial")]
