"""MobileBERT ↔ transformers' `MobileBertModel`.

Source: MobileBERT (Sun et al., 2020), google-research/mobilebert. The teacher IB-BERT has no class in transformers, whose queries
cannot be made of the layer's input. Heads of transformers' classes are carried along and not read: its output rows are the table
of tokens and further numbers for each token, which no head of cloze has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import ACTIVATIONS, ACTIVATIONS_BACK, Architecture, ModelClass, Setting, add
from cloze.interop.mapping import STACKED, Line

_LAYER = "{base}encoder.layer.{i}."
_NORMS = {"none": "no_norm", "layer": "layer_norm"}
_NORMS_BACK = {theirs: ours for ours, theirs in _NORMS.items()}
_IMPLIED = 1e-5  # two norms of a layer, and that of the embeddings, have torch's epsilon whatever config.json says


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    shared, narrow = config.get("key_query_shared_bottleneck", True), config.get("use_bottleneck_attention", False)
    if bool(shared) == bool(narrow):
        raise ValueError(
            f"key_query_shared_bottleneck is {shared} and use_bottleneck_attention is {narrow}; cloze's network has one of them."
        )
    return {"bottleneck.reads": "shared" if shared else "layer"}


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    shared = arguments["bottleneck.reads"] == "shared"
    return {
        "key_query_shared_bottleneck": shared, "use_bottleneck_attention": not shared, "use_bottleneck": True,
        "trigram_input": True, "classifier_activation": False,
    }


def _against(arguments: Mapping[str, Any]) -> list[str]:
    wrong = []
    if not arguments["segments"]:
        wrong.append("segments is 0, transformers' MobileBERT has at least one")
    if arguments["bottleneck.reads"] == "input":
        wrong.append("bottleneck.reads is 'input', transformers' MobileBERT makes queries and keys of a bottleneck")
    if arguments["norm.kind"] == "layer" and arguments["norm.epsilon"] != _IMPLIED:
        wrong.append(f"norm.epsilon is {arguments['norm.epsilon']}, transformers' MobileBERT has {_IMPLIED} in some of its norms")
    return wrong


def _further(arguments: Mapping[str, Any]) -> tuple[Line, ...]:
    """The feed-forwards, of which transformers names the last one differently, and the bottleneck of queries and keys."""
    last, lines = arguments["feed_forwards"] - 1, list[Line]()
    for number in range(last + 1):
        ours, part = f"layers.{{i}}.feed_forwards.{number}.", _LAYER if number == last else f"{_LAYER}ffn.{number}."
        lines += [
            Line(ours + "inner.*", part + "intermediate.dense.*", "I W"),
            Line(ours + "outer.*", part + "output.dense.*", "W I"),
            Line(ours + "norm.*", part + "output.LayerNorm.*", "W"),
        ]
    if arguments["bottleneck.reads"] == "shared":
        lines += [
            Line("layers.{i}.shared.*", _LAYER + "bottleneck.attention.dense.*", "W D"),
            Line("layers.{i}.shared_norm.*", _LAYER + "bottleneck.attention.LayerNorm.*", "W"),
        ]
    values = "W D" if arguments["bottleneck.reads"] == "shared" else "W W"
    return (*lines, Line("layers.{i}.attention.value.*", _LAYER + "attention.self.value.*", values))


def _beware(arguments: Mapping[str, Any]) -> list[str]:
    return [
        "transformers' MobileBERT mixes the vector of [PAD] into the last token of a padded row; cloze does not. Rows without "
        "padding are equal in both."
    ]


MOBILEBERT = add(Architecture(
    name="mobilebert",
    title="MobileBERT",
    part="mobile_transformer",
    settings=(
        Setting("layers", "num_hidden_layers", 24),
        Setting("width", "hidden_size", 512),
        Setting("heads", "num_attention_heads", 4),
        Setting("bottleneck.width", "intra_bottleneck_size", 128),
        Setting("feed_forward.inner", "intermediate_size", 512),
        Setting("feed_forwards", "num_feedforward_networks", 4),
        Setting("embedding.width", "embedding_size", 128),
        Setting("positions.max_length", "max_position_embeddings", 512),
        Setting("segments", "type_vocab_size", 2),
        Setting("feed_forward.activation", "hidden_act", "relu", ACTIVATIONS.__getitem__, ACTIVATIONS_BACK.__getitem__),
        Setting("norm.kind", "normalization_type", "no_norm", _NORMS.__getitem__, _NORMS_BACK.__getitem__),
        Setting("norm.epsilon", "layer_norm_eps", 1e-12),
        Setting("dropout.hidden", "hidden_dropout_prob", 0.0),
        Setting("dropout.attention", "attention_probs_dropout_prob", 0.1),
        Setting("initial.std", "initializer_range", 0.02),
    ),
    fixed={"positions": "learned", "embedding.trigrams": True},
    assumed=encoder.ASSUMED,
    legal={"use_bottleneck": (True,), "trigram_input": (True,), "normalization_type": ("no_norm", "layer_norm")},
    read=_read,
    write=_write,
    against=_against,
    beware=_beware,
    base="mobilebert.",
    body=(
        Line("embeddings.tokens.weight", "{base}embeddings.word_embeddings.weight", "V E"),
        Line("embeddings.project.*", "{base}embeddings.embedding_transformation.*", "D 3E"),
        Line("embeddings.positions.weight", "{base}embeddings.position_embeddings.weight", "P D"),
        Line("embeddings.norm.*", "{base}embeddings.LayerNorm.*", "D"),
        Line("layers.{i}.enter.*", _LAYER + "bottleneck.input.dense.*", "W D"),
        Line("layers.{i}.enter_norm.*", _LAYER + "bottleneck.input.LayerNorm.*", "W"),
        Line(
            "layers.{i}.attention.query_key.*", tuple(_LAYER + f"attention.self.{name}.*" for name in ("query", "key")), "2W W",
            STACKED,
        ),
        Line("layers.{i}.attention.out.*", _LAYER + "attention.output.dense.*", "W W"),
        Line("layers.{i}.attention_norm.*", _LAYER + "attention.output.LayerNorm.*", "W"),
        Line("layers.{i}.leave.*", _LAYER + "output.bottleneck.dense.*", "D W"),
        Line("layers.{i}.leave_norm.*", _LAYER + "output.bottleneck.LayerNorm.*", "D"),
    ),
    further=_further,
    segments=Line("embeddings.segments.weight", "{base}embeddings.token_type_embeddings.weight", "S D"),
    sizes=lambda arguments: {"W": arguments["bottleneck.width"]},
    heads=(),
    classes=(ModelClass("MobileBertModel", frozenset(), "AutoModel", "feature-extraction"),),
    tokenizer_class="MobileBertTokenizer",
    reading=encoder.READING,
    recipe=lambda model: "mobilebert",
    usual=lambda model, kind: 1,
    ignored=("{base}embeddings.position_ids",),
))  # fmt: skip
