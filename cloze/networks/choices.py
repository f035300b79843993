"""The parts and sections of networks as a recipe writes them: positions, norms, feed-forward maps, embeddings, dropout, …

A part is one of several alternatives (`positions: {rotary: {base: 160000}}`); a section groups settings and has no alternative
(`dropout: {hidden: 0.1, attention: 0.0}`). Both are dataclasses that do nothing but check their values. The constructors of
networks read them and build the modules in `blocks/`: `blocks/layer_inputs.py` builds the `Rotation` of a `Rotary`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from cloze.bounds import BelowOne, Count, Natural, NonNegative, Positive, Width
from cloze.errors import RecipeError
from cloze.networks.position_choices import (
    Disentangled as Disentangled,
)
from cloze.networks.position_choices import (
    DistanceBuckets as DistanceBuckets,
)
from cloze.networks.position_choices import (
    FunctionalPositions as FunctionalPositions,
)
from cloze.networks.position_choices import (
    LearnedPositions as LearnedPositions,
)
from cloze.networks.position_choices import (
    LearnedWithBuckets as LearnedWithBuckets,
)
from cloze.networks.position_choices import (
    NoPositions as NoPositions,
)
from cloze.networks.position_choices import (
    RelativeDistances as RelativeDistances,
)
from cloze.networks.position_choices import (
    Rotary as Rotary,
)
from cloze.networks.position_choices import (
    RotaryTable as RotaryTable,
)
from cloze.networks.position_choices import (
    Sinusoid as Sinusoid,
)
from cloze.registry import Given, PartMark, register

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
#: Layer norm, layer norm without offsets, without gains and offsets, and the norm by root mean square, which has no offsets.
Norm = Literal["layer", "layer_without_biases", "layer_without_weights", "rms"]

# ---- knowledge -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EntityVectors:
    """The look-up table of entities, the width of its vectors, and the number of heads of attention among entities."""

    table: str = "entities"
    width: Width = 100
    heads: Width = 4

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise RecipeError(f"entities: {self.heads} heads do not divide the width {self.width}.")


@dataclass(frozen=True, kw_only=True)
class LinkedEntities(EntityVectors):
    """An entity linker: the layer that it follows, the look-up table of names and their candidates, the width of the entities'
    vectors, and its sizes: heads and inner numbers of its two layers, and inner numbers of what scores a candidate. Candidates
    below the `threshold` are not read.
    """

    after_layer: Natural
    table: str = "surfaces"
    width: Width = 300
    inner: Width = 1024
    scorer: Width = 100
    threshold: float | None = 0.0


# ---- norms -----------------------------------------------------------------------------------------------------------


@register("norm", "post")
@dataclass(frozen=True, kw_only=True)
class PostNorm:
    """A norm of the sum after each residual branch (Vaswani et al., 2017; BERT).

    `embedding`: whether the embeddings have one (GPT's do not), `final`: whether there is one more after the last layer.
    """

    norms_sum: ClassVar[bool] = True
    kind: Norm = "layer"
    epsilon: Positive = 1e-12
    embedding: bool = True
    final: bool = False
    first: ClassVar[bool] = True
    depth_means: ClassVar[bool] = False


@register("norm", "pre")
@dataclass(frozen=True, kw_only=True)
class PreNorm:
    """A norm before each residual branch, and one after the last layer (GPT-2; Radford et al., 2019, §2.3).

    `embedding`: whether the embeddings have one; `first: false` leaves out the norm before the first attention, which would
    directly follow that of the embeddings (ModernBERT; Warner et al., 2024). With `depth_means`, the state after each residual
    branch is a learned mean of all states of the stack so far, its input among them (DenseFormer; Pagliardini et al., 2024; in
    GPT-BERT after attention, too).
    """

    norms_sum: ClassVar[bool] = False
    kind: Norm = "layer"
    epsilon: Positive = 1e-12
    embedding: bool = False
    final: bool = True
    first: bool = True
    depth_means: bool = False


@register("norm", "branch")
@dataclass(frozen=True, kw_only=True)
class BranchNorm:
    """A norm at the end of each residual branch, before the sum, and one after the last layer (Swin Transformer V2; Liu et al.,
    2022, §3.2; OLMo 2)."""

    norms_sum: ClassVar[bool] = False
    kind: Norm = "rms"
    epsilon: Positive = 1e-6
    embedding: bool = False
    final: bool = True
    first: ClassVar[bool] = True
    depth_means: ClassVar[bool] = False


Norms = Annotated[PostNorm | PreNorm | BranchNorm, PartMark("norm")]


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """The width inside the layers, and what queries and keys are made of: a bottleneck of their own that both share (MobileBERT,
    where values are made of the layer's input), the layer's `input` (its teacher IB-BERT), or the bottleneck of the `layer`, of
    which values are then made, too."""

    width: Width = 128
    reads: Literal["shared", "input", "layer"] = "shared"


@dataclass(frozen=True, kw_only=True)
class BottleneckNorm:
    """What stands in place of a norm in a network with bottlenecks: `none` multiplies by a gain and adds an offset (MobileBERT),
    `layer` is layer norm with this `epsilon` (its teacher)."""

    kind: Literal["none", "layer"] = "none"
    epsilon: Positive = 1e-12


# ---- maps and attention ----------------------------------------------------------------------------------------------


@register("feed_forward", "plain")
@dataclass(frozen=True, kw_only=True)
class PlainFeedForward:
    """Two linear maps with an activation between them (Vaswani et al., 2017, §3.3); `inner` is four times the width if not
    given."""

    inner: Width | None = None
    activation: Activation = "gelu"
    biases: bool = True


@register("feed_forward", "gated")
@dataclass(frozen=True, kw_only=True)
class GatedFeedForward:
    """Two linear maps to `inner`, one activated and multiplied by the other, and one back (Shazeer, 2020, eq. 5).

    `inner` is four times the width if not given. With `norm`, a layer norm without weights stands before the map back
    (NormFormer; Shleifer et al., 2021, §2; without weights in ltgoslo/ltg-bert).
    """

    inner: Width | None = None
    activation: Activation = "gelu"
    biases: bool = True
    norm: bool = False


FeedForwards = Annotated[PlainFeedForward | GatedFeedForward, PartMark("feed_forward")]


@dataclass(frozen=True, kw_only=True)
class Band:
    """Attention that sees `width` tokens. With `dense_every: n`, every nth layer sees all tokens, starting with layer 0; with
    `dense_first: n`, the first n layers do (Qwen2)."""

    width: Count
    dense_every: Count | None = None
    dense_first: Count | None = None

    def limits(self, layer: int) -> bool:
        """Whether tokens of a layer, counted from 0, see only their neighbourhood."""
        if layer < (self.dense_first or 0):
            return False
        return self.dense_every is None or layer % self.dense_every > 0


@dataclass(frozen=True, kw_only=True)
class BandedAttention:
    """Whether the linear maps of attention have biases, or all of them but those to keys (`not_keys`: DeBERTa v1), and the band
    that limits what layers see.

    With `gate`, the heads' outputs are multiplied by GELU of a further map of what the layer reads (ltgoslo/gpt-bert). With
    `norm`, a layer norm without weights stands before the map back (NormFormer; Shleifer et al., 2021, §2; ltgoslo/ltg-bert).

    `head_width` is the width of the heads, that of the layers divided by their number if not given. With `key_value_heads`, there
    are fewer heads of keys and values than of queries, and equally many heads of queries share each of them (Ainslie et al.,
    2023, §2.2). `output_bias`: whether the map back has a bias, as the others if not given (Qwen2 has biases of queries, keys and
    values only). With `query_key_norm`, queries and keys pass a norm, of the kind and epsilon of the network's others, before
    they are rotated: each `head` by itself (Qwen3), or `all` heads together (OLMo 2).
    """

    biases: bool | Literal["not_keys"] = True
    band: Band | None = None
    gate: bool = False
    norm: bool = False
    head_width: Width | None = None
    key_value_heads: Width | None = None
    output_bias: bool | None = None
    query_key_norm: Literal["head", "all"] | None = None


@dataclass(frozen=True, kw_only=True)
class ScaledAttention:
    """Whether the linear maps of attention have biases, and whether scores are divided by the square root of the heads' width."""

    biases: bool = True
    scaled: bool = True


@dataclass(frozen=True, kw_only=True)
class Share:
    """Consecutive layers, in `groups` of equal size, share the `weights` of attention, of the feed-forward maps, or all."""

    weights: Literal["all", "attention", "feed_forward"] = "all"
    groups: Width = 1


# ---- embeddings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution of what the first layer reads, over `kernel` tokens, is added to what it gives, in front of one more norm
    (DeBERTa v2's code, `ConvLayer`). `groups` of equal width are convolved apart."""

    kernel: Count = 3
    activation: Activation | Literal["tanh"] = "gelu"
    groups: Count = 1

    def __post_init__(self) -> None:
        if self.kernel % 2 == 0:
            raise RecipeError(f"convolution.kernel: {self.kernel} tokens have none in the middle. Give an odd number.")


@register("embedding", "table")
@dataclass(frozen=True, kw_only=True)
class TokenTable:
    """A vector for each token, as wide as the layers, or `width` wide with a map to theirs (ELECTRA, ALBERT).

    With `project` there is a map even if the widths are equal (ALBERT's code). `inputs` names further tables of ids and gives
    their sizes: `{language: 15}` reads the field `inputs/language` (XLM). `scaled` multiplies the vectors of tokens by the square
    root of their width (Vaswani et al., 2017, §3.4; Gemma). A `convolution` of the embeddings joins the output of the first
    layer; it needs the open order.
    """

    width: Width | None = None
    project: bool = False
    inputs: Mapping[str, int] | None = None
    scaled: bool = False
    convolution: Convolution | None = None


@register("embedding", "table_with_labels")
@dataclass(frozen=True, kw_only=True)
class TableWithLabels(TokenTable):
    """A `table` whose further `inputs` are labels, of which most tokens have none, as `show` gives them: reading id 0, no label,
    does not train its vector (SentiLARE's code; a head that is tied to the table does)."""


@register("embedding", "table_with_senses")
@dataclass(frozen=True, kw_only=True)
class TableWithSenses(TokenTable):
    """A `table`; to the vector of a token are added those of the senses that it may have, as the recipe's look-up table `senses`
    says (SenseBERT; Levine et al., 2020, §3.1)."""

    senses: str
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)


@register("embedding", "table_without_masks")
@dataclass(frozen=True, kw_only=True)
class TableWithoutMasks(TokenTable):
    """A `table` in which [MASK] has no vector, as if dropout had hit the token: all other vectors of a text are divided by the
    share of its tokens that are not masked, and multiplied by the usual one, 1 - `usual` (facebookresearch/esm, `token_dropout`).
    Only for texts that are read in the open order."""

    usual: BelowOne = 0.12
    spellings: Given[Sequence[str] | None] = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class TrigramTable:
    """A vector of `width` for each token, and a map from it to the width of the layers; with `trigrams`, from the vectors of the
    next, the same and the previous token side by side (MobileBERT; Sun et al., 2020, §3.1)."""

    width: Width | None = None
    trigrams: bool = True


@dataclass(frozen=True, kw_only=True)
class SharedTable:
    """The token table of both stacks: its vectors are `scaled` by the square root of the width or not; `inputs` as in
    `TokenTable`."""

    scaled: bool = False
    inputs: Mapping[str, int] | None = None


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
    """Rates of dropout: `hidden` of what is added to the residual stream, `attention` of its probabilities (`hidden` if not
    given)."""

    hidden: BelowOne = 0.1
    attention: BelowOne | None = None

    @property
    def of_attention(self) -> float:
        """The rate of attention probabilities."""
        return self.hidden if self.attention is None else self.attention


def dropouts(dropout: float | Dropouts) -> Dropouts:
    """The rates of a network's argument `dropout`; a number is the rate of all."""
    return dropout if isinstance(dropout, Dropouts) else Dropouts(hidden=dropout)


@dataclass(frozen=True, kw_only=True)
class SequenceDropouts(Dropouts):
    """Also the rate between the two maps of a layer, and that behind a final norm (`final`; `hidden` if not given); with
    `mask: row` all positions of a row drop the same numbers, and all queries the same keys (T5's noise shapes in Mesh
    TensorFlow)."""

    inner: BelowOne = 0.0
    final: BelowOne | None = None
    mask: Literal["position", "row"] = "position"

    @property
    def of_final(self) -> float:
        """The rate behind a final norm."""
        return self.hidden if self.final is None else self.final


@dataclass(frozen=True, kw_only=True)
class RecurrentDropouts:
    """The five dropouts of AWD-LSTM (Merity et al., 2018, §4): after the last layer, between layers, of recurrent weights, of
    the inputs' vectors, and of whole words.

    With `locked`, one mask serves all steps of a row; `locked_between` overrides it for dropout between layers.
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
    """How many earlier tokens of a lane are remembered, and how many at the end of a row are repeated in the next one."""

    size: Natural
    reuse: Natural = 0


@dataclass(frozen=True, kw_only=True)
class EvenMemory(SegmentMemory):
    """With `same_length` every token sees exactly `size` keys, itself included."""

    same_length: bool = False


# ---- initial weights ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    law: ClassVar[Literal["normal", "truncated"]]

    std: NonNegative = 0.02
    positions: NonNegative | None = None
    residual: Literal["as_drawn", "scaled", "scaled_by_depth", "feed_forward_by_depth"] = "as_drawn"
    offsets: tuple[int, ...] = ()


@register("initial", "normal")
@dataclass(frozen=True, kw_only=True)
class Normal(_Drawn):
    """Weights from a normal distribution with the standard deviation `std`; biases are zero.

    `positions` is the standard deviation of learned positions, `std` if not given (GPT-2's code: 0.01). `residual: scaled`
    divides the maps into the residual stream by the square root of their number (GPT-2; Radford et al., 2019, §2.3),
    `scaled_by_depth` by that of how many there are up to their layer (UniLM's code, `rescale_some_parameters`),
    `feed_forward_by_depth` both maps of the feed-forward by that of twice the number of their layer (ltgoslo/ltg-bert).

    `offsets` are distances in tokens. With them, the first heads of a network with learned positions, counted layer by layer,
    begin by attending to the tokens at these distances (-1: the one before), one distance for each head. Positions then begin as
    sines and cosines; the other heads are drawn as usual. This is cloze's own; the idea of setting the product of queries and
    keys is that of Trockman and Kolter (2023), "Mimetic Initialization of Self-Attention Layers".
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
    """Linear maps and biases uniform in ±1/√inputs, tables with standard deviation 1/√width (XLM's code: torch's defaults)."""


@register("initial", "t5")
@dataclass(frozen=True, kw_only=True)
class T5Initial:
    """Token table with standard deviation 1, linear maps with 1/√inputs, cut at two deviations in the feed-forward, queries with
    a still smaller one, and a uniform table of buckets (mesh_tensorflow)."""


Initials = Annotated[Truncated | Normal | Uniform, PartMark("initial")]
