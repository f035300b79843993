"""T5 ↔ transformers' `T5*`, both v1.0 and v1.1, mT5 ↔ `MT5*` and umT5 ↔ `UMT5*`.

Source: Exploring the Limits of Transfer Learning (Raffel et al., 2020); google-research/text-to-text-transfer-transformer. v1.0
scales states by width^-1/2 and projects with the token table; v1.1 projects with a table of its own, without scaling.
`tie_word_embeddings` tells which; in configurations written by transformers 5 it is always true, and `scale_decoder_outputs`
tells. `gated-gelu` is the tanh form. There is one dropout rate for all places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop import seq2seq
from cloze.interop.architecture import ACTIVATIONS, ACTIVATIONS_BACK, Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.mapping import MappingLine
from cloze.interop.model import PortableHead
from cloze.reading import Reading

_NAMES = ("q", "k", "v", "o")


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(config.get("feed_forward_proj", "relu"))
    gated, name = kind.startswith("gated-"), kind.removeprefix("gated-")
    if name not in ACTIVATIONS_BACK:
        raise ValueError(f"feed_forward_proj is {kind!r}; cloze knows {', '.join(ACTIVATIONS_BACK)}, with gated- or without.")
    activation = "gelu_tanh" if kind == "gated-gelu" else ACTIVATIONS_BACK[name]
    rate = config.get("dropout_rate", 0.1)
    return {
        "feed_forward": "gated" if gated else "plain", "feed_forward.activation": activation, "dropout.attention": rate,
        "dropout.inner": rate,
    }


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    kind = ACTIVATIONS[arguments["feed_forward.activation"]]
    if arguments["feed_forward"] == "gated":
        kind = {"gelu_new": "gated-gelu", "gelu": "gated-gelu_python"}.get(kind, f"gated-{kind}")
    return {"feed_forward_proj": kind, "is_encoder_decoder": True}


def _ties(config: Mapping[str, Any]) -> bool:
    return bool(config.get("tie_word_embeddings", True)) and bool(config.get("scale_decoder_outputs", True))


def _prediction(head: PortableHead, arguments: Mapping[str, Any], title: str = "T5") -> list[str]:
    return seq2seq.prediction_objections(head, title, scaled=bool(head.argument("tie")))


def _further(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    """The tables of distances: that of a stack, which is in its first layer, or those of its layers. The inner map of each
    layer: `wi`, or with a gate `wi_0` and `wi_1`."""
    lines: list[MappingLine] = []
    for stack, letter in (("encoder", "i"), ("decoder", "j")):
        ours, layer = ("table", "0") if arguments["positions.shared"] else (f"{{{letter}}}.table", f"{{{letter}}}")
        upstream = f"{stack}.block.{layer}.layer.0.SelfAttention.relative_attention_bias.weight"
        lines.append(MappingLine(f"{stack}.buckets.{ours}.weight", upstream, "R H"))
    for stack, letter, index in (("encoder", "i", 1), ("decoder", "j", 2)):
        ours, upstream = f"{stack}.layers.{{{letter}}}.", f"{stack}.block.{{{letter}}}.layer.{index}.DenseReluDense."
        if arguments["feed_forward"] == "gated":
            lines.append(MappingLine(ours + "inner.weight", upstream + "wi_0.weight", "I D"))
            lines.append(MappingLine(ours + "gate.weight", upstream + "wi_1.weight", "I D"))
        else:
            lines.append(MappingLine(ours + "inner.weight", upstream + "wi.weight", "I D"))
    return tuple(lines)


def _body() -> tuple[MappingLine, ...]:
    lines = [MappingLine("embeddings.tokens.weight", "shared.weight", "V D")]
    for stack, letter in (("encoder", "i"), ("decoder", "j")):
        ours, upstream = f"{stack}.layers.{{{letter}}}.", f"{stack}.block.{{{letter}}}.layer.0."
        lines += [
            *seq2seq.attention(ours + "attention", upstream + "SelfAttention.", _NAMES, "weight"),
            MappingLine(ours + "attention_norm.weight", upstream + "layer_norm.weight", "D"),
            MappingLine(f"{stack}.norm.weight", f"{stack}.final_layer_norm.weight", "D"),
        ]
    for stack, letter, index in (("encoder", "i", 1), ("decoder", "j", 2)):
        ours, upstream = f"{stack}.layers.{{{letter}}}.", f"{stack}.block.{{{letter}}}.layer.{index}."
        lines += [
            MappingLine(ours + "outer.weight", upstream + "DenseReluDense.wo.weight", "D I"),
            MappingLine(ours + "inner_norm.weight", upstream + "layer_norm.weight", "D"),
        ]
    upstream = "decoder.block.{j}.layer.1."
    return (
        *lines,
        *seq2seq.crossing("decoder.layers.{j}.crossing", upstream + "EncDecAttention.", _NAMES, "weight"),
        MappingLine("decoder.layers.{j}.crossing_norm.weight", upstream + "layer_norm.weight", "D"),
    )


PREDICTION = HeadTable(
    role="seq2seq_lm",
    part="token_prediction",
    sign=("lm_head.weight",),
    lines=(),
    untied=(MappingLine("head.output.weight", "lm_head.weight", "V D"),),
    repeats={"lm_head.weight": "{base}shared.weight"},
    shares=("lm_head.weight",),
    read={"": "decoder_hidden"},
    objections=_prediction,
    arguments=lambda config, tensors: {"transform": None, "bias": False, "scale": _ties(config)},
)

T5 = add(Architecture(
    name="t5",
    title="T5",
    part="encoder_decoder",
    settings=(
        Setting("layers", "num_layers", 6),
        Setting("decoder_layers", "num_decoder_layers", None),
        Setting("width", "d_model", 512),
        Setting("heads", "num_heads", 8),
        Setting("head_width", "d_kv", 64),
        Setting("feed_forward.inner", "d_ff", 2048),
        Setting("positions.buckets", "relative_attention_num_buckets", 32),
        Setting("positions.farthest", "relative_attention_max_distance", 128),
        Setting("norm.epsilon", "layer_norm_epsilon", 1e-6),
        Setting("dropout.hidden", "dropout_rate", 0.1),
    ),
    from_config=_read,
    to_config=_write,
    ties=_ties,
    fixed={
        "norm": "pre", "norm.kind": "rms", "norm.embedding": False, "norm.final": True, "norm.first": True,
        "positions": "buckets", "positions.shared": True, "attention.biases": False, "attention.scaled": False,
        "feed_forward.biases": False,
        "embedding.scaled": False,
    },
    assumed={"initial": "t5", "dropout.mask": "position"},
    legal={"is_encoder_decoder": (True,)},
    base="",
    body=_body(),
    further=_further,
    counts=seq2seq.counts,
    sizes=seq2seq.sizes,
    copies=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
    ignored=("decoder.block.{i}.layer.1.EncDecAttention.relative_attention_bias.weight",),
    heads=(PREDICTION,),
    classes=(
        ModelClass("T5ForConditionalGeneration", frozenset({"seq2seq_lm"}), "AutoModelForSeq2SeqLM", "text2text-generation"),
        ModelClass("T5Model", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="T5Tokenizer",
    reading=Reading("{A} [EOS]", "{A} [EOS] {B} [EOS]", "last", start="[PAD]"),
    recipe=lambda model: "t5-v1.1-base" if model.flat["feed_forward"] == "gated" else "t5-base",
    tokens={"eos_token_id": ("[EOS]", "[SEP]"), "decoder_start_token_id": ("[PAD]",)},
    generates=True,
))

_MT5_SIZES = {"num_layers": 8, "num_heads": 6, "d_ff": 1024}  # transformers' own, where they differ from T5's

#: mT5 is T5 v1.1 with classes of its own: its scores are never scaled, whether its rows are tied or not.
MT5 = add(replace(
    T5,
    name="mt5",
    title="mT5",
    classes=(
        ModelClass("MT5ForConditionalGeneration", frozenset({"seq2seq_lm"}), "AutoModelForSeq2SeqLM", "text2text-generation"),
        ModelClass("MT5Model", frozenset(), "AutoModel", "feature-extraction"),
    ),
    heads=(replace(
        PREDICTION,
        objections=lambda head, arguments: seq2seq.prediction_objections(head, "mT5", scaled=False),
        arguments=lambda config, tensors: {"transform": None, "bias": False, "scale": False},
    ),),
    settings=tuple(
        replace(setting, default=_MT5_SIZES.get(setting.theirs, setting.default)) for setting in T5.settings
    ),
    from_config=lambda config: _read({"feed_forward_proj": "gated-gelu", **config}),
    ties=lambda config: bool(config.get("tie_word_embeddings", True)),
    tokenizer_class="PreTrainedTokenizerFast",
    recipe=lambda model: "t5-v1.1-base",
    resemblance=lambda model, kind: 0,
))  # fmt: skip

_RESCALED = (
    "transformers 5 multiplies what umT5's head reads by width^-1/2 even if the head has rows of its own, as in the published "
    "models; transformers 4 and cloze do that only for tied rows. The order of scores is the same, probabilities are not."
)

#: umT5 is mT5 whose layers have distances of their own (UniMax; Chung et al., 2023, §4; google-research/t5x).
UMT5 = add(replace(
    MT5,
    name="umt5",
    title="umT5",
    classes=(
        ModelClass("UMT5ForConditionalGeneration", frozenset({"seq2seq_lm"}), "AutoModelForSeq2SeqLM", "text2text-generation"),
        ModelClass("UMT5Model", frozenset(), "AutoModel", "feature-extraction"),
    ),
    heads=(replace(PREDICTION, objections=lambda head, arguments: _prediction(head, arguments, "umT5")),),
    ties=lambda config: bool(config.get("tie_word_embeddings", True)),
    fixed={**T5.fixed, "positions.shared": False},
    remarks=lambda arguments: [_RESCALED],
))  # fmt: skip
