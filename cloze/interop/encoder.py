"""What BERT, RoBERTa and ELECTRA have in common: a post-norm encoder with learned positions and segments; and pooled heads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cloze.interop.architecture import ACTIVATIONS, ACTIVATIONS_BACK, HeadTable, Setting
from cloze.interop.mapping import SAME, STACKED, MappingLine, Move
from cloze.interop.model import PortableHead
from cloze.reading import Reading

SEGMENTS = MappingLine("embeddings.segments.weight", "{base}embeddings.token_type_embeddings.weight", "S E")

FIXED: Mapping[str, Any] = MappingProxyType(
    {"norm": "post", "positions": "learned", "norm.embedding": True, "norm.final": False}
)
ASSUMED: Mapping[str, Any] = MappingProxyType(
    {"initial": "truncated", "initial.residual": "as_drawn", "initial.positions": None}
)
LEGAL: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {"position_embedding_type": ("absolute",), "is_decoder": (False,), "add_cross_attention": (False,)}
)
READING = Reading("[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]", "first")
IGNORED = ("{base}embeddings.position_ids", "{base}embeddings.token_type_ids")


def body(
    positions: Move = SAME, *, attention_norm: str = "attention.output.LayerNorm", inner_norm: str = "output.LayerNorm"
) -> tuple[MappingLine, ...]:
    """Embeddings and layers. Query, key and value are separate in transformers, and one fused matrix in that order in cloze.

    The two norms of a layer have other names where they stand before what is added.
    """
    prefix = "{base}encoder.layer.{i}."
    return (
        MappingLine("embeddings.tokens.weight", "{base}embeddings.word_embeddings.weight", "V E"),
        MappingLine("embeddings.positions.weight", "{base}embeddings.position_embeddings.weight", "P E", positions),
        MappingLine("embeddings.norm.*", "{base}embeddings.LayerNorm.*", "E"),
        MappingLine(
            "layers.{i}.attention.projections.*",
            tuple(prefix + f"attention.self.{name}.*" for name in ("query", "key", "value")),
            "3D D",
            STACKED,
        ),
        MappingLine("layers.{i}.attention.out.*", prefix + "attention.output.dense.*", "D D"),
        MappingLine("layers.{i}.attention_norm.*", f"{prefix}{attention_norm}.*", "D"),
        MappingLine("layers.{i}.inner.*", prefix + "intermediate.dense.*", "I D"),
        MappingLine("layers.{i}.outer.*", prefix + "output.dense.*", "D I"),
        MappingLine("layers.{i}.inner_norm.*", f"{prefix}{inner_norm}.*", "D"),
    )


def settings(
    *, layers: int, width: int, heads: int, inner: int, longest: int = 512, segments: int = 2, epsilon: float = 1e-12,
    activation: str = "gelu",
) -> tuple[Setting, ...]:
    """The keys of config.json that the encoders share; the values are transformers' own defaults."""
    return (
        Setting("layers", "num_hidden_layers", layers),
        Setting("width", "hidden_size", width),
        Setting("heads", "num_attention_heads", heads),
        Setting("feed_forward.inner", "intermediate_size", inner),
        Setting("positions.max_length", "max_position_embeddings", longest),
        Setting("segments", "type_vocab_size", segments, lambda rows: max(1, rows), lambda rows: 0 if rows == 1 else rows),
        Setting("feed_forward.activation", "hidden_act", activation, ACTIVATIONS.__getitem__, ACTIVATIONS_BACK.__getitem__),
        Setting("norm.epsilon", "layer_norm_eps", epsilon),
        Setting("dropout.hidden", "hidden_dropout_prob", 0.1),
        Setting("dropout.attention", "attention_probs_dropout_prob", 0.1),
        Setting("initial.std", "initializer_range", 0.02),
    )


def prediction_objections(head: PortableHead, arguments: Mapping[str, Any], activation: str) -> list[str]:
    """The reasons why a masked-LM head is not dense, `activation`, norm, table, bias."""
    wrong = []
    if head.argument("transform") != activation:
        wrong.append(f"its transform is {head.argument('transform') or 'absent'}, transformers has {activation} there")
    elif head.argument("norm_epsilon") != arguments["norm.epsilon"]:
        wrong.append("the epsilon of its norm differs from the network's, transformers has one for both")
    if "head.bias" not in head.state:
        wrong.append("it has no bias, transformers has one")
    if not head.argument("tie") and arguments.get("embedding.width", arguments["width"]) != arguments["width"]:
        wrong.append(
            f"its output rows are its own and as wide as the layers ({arguments['width']}), transformers has rows as wide as "
            f"the embeddings ({arguments['embedding.width']})"
        )
    return wrong


def pooled_head(
    role: str, *, pool: str, output: str, classes: int | None = None, set: str = "label", own_name: bool = False,
    required: Mapping[str, Any] = MappingProxyType({}),
) -> HeadTable:
    """A head on the summary: the map `pool` and tanh, then the map `output` to `classes` (None: any number).

    The tensors of both show that a file contains it, or that of `output` alone if it has a name of its own.
    """
    weight = f"{output}.weight"

    def arguments(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {"classes": classes or int(tensors[weight].shape[0]), "set": set, "pool": True}

    return HeadTable(
        role=role,
        part="relation_prediction",
        sign=(weight,) if own_name else (weight, f"{pool}.weight"),
        lines=(
            MappingLine("head.pool.*", f"{pool}.*", "D D"),
            MappingLine("head.output.*", f"{output}.*", f"{classes or 'C'} D")
        ),
        objections=lambda head, _: _pooled_objections(head, classes),
        arguments=arguments,
        required=required,
    )


def _pooled_objections(head: PortableHead, classes: int | None) -> list[str]:
    """The reasons why a head on the summary is not dense, tanh, linear to `classes` (None: any number)."""
    wrong = []
    if not head.argument("pool"):
        wrong.append("it has no pooling layer, transformers has dense and tanh there")
    if classes is not None and head.argument("classes") != classes:
        wrong.append(f"it has {head.argument('classes')} classes, transformers has {classes}")
    return wrong
