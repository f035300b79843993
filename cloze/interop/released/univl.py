"""UniVL as its authors released it, `univl.pretrained.bin` (microsoft/UniVL, modules/modeling.py). The recipe is `univilm`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import Architecture, HeadTable, Setting
from cloze.interop.architectures.visual_bert import settings, sizes
from cloze.interop.mapping import STACKED, MappingLine
from cloze.interop.released.bert_system import FIXED, TABLE, BertBased, stack, words_head

#: The prefix of a stack's keys → its config in the authors' folder `modules`.
_STACKS = MappingProxyType({
    "visual_": "visual_config.json", "cross_": "cross_config.json", "decoder_": "decoder_config.json",
})
_FRAMES, _JOINT, _WRITER = "visual.embeddings.", "cross.embeddings.", "decoder.decoder.layer.{l}."


def _check(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing; the stacks must be equal in what cloze's network has once. Errors: `ValueError`."""
    for prefix, file in _STACKS.items():
        for key in ("hidden_size", "num_attention_heads", "intermediate_size", "hidden_act"):
            if (value := config.get(f"{prefix}{key}")) != config.get(key):
                raise ValueError(f"{key} is {config.get(key)!r}, and {value!r} in {file}; cloze's stacks have the same.")
    places = {prefix: config.get(f"{prefix}max_position_embeddings", 512) for prefix in ("", "visual_")}
    texts, frames, both = *places.values(), config.get("cross_max_position_embeddings", 512)
    if both != texts + frames:
        raise ValueError(f"there are {texts} positions of a text, {frames} of a film and {both} of both, which is not their sum.")
    if not config["cross_num_hidden_layers"]:
        raise ValueError("the weights have no joint layers, so they are those of the first stage; take those of the second.")
    return {}


def _attention(ours: str, upstream: str) -> tuple[MappingLine, ...]:
    """The output map of an attention of the decoder, and its norm."""
    lead = f"{_WRITER}{upstream}.output."
    return (
        MappingLine(f"decoder.layers.{{l}}.{ours}.out.*", f"{lead}dense.*", "D D"),
        MappingLine(f"decoder.layers.{{l}}.{ours}_norm.*", f"{lead}LayerNorm.*", "D"),
    )


def _decoder(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    """The lines of the decoder, where there is one; it reads the tables of the text."""
    if not arguments["decoder_layers"]:
        return ()
    itself, joint = (
        tuple(f"{_WRITER}{name}.att.{part}.*" for part in ("query", "key", "value")) for name in ("slf_attn", "enc_attn")
    )
    ours = "decoder.layers.{l}."
    return (
        MappingLine("decoder.norm.*", "decoder.embeddings.LayerNorm.*", "D"),
        MappingLine(f"{ours}attention.projections.*", itself, "3D D", STACKED), *_attention("attention", "slf_attn"),
        MappingLine(f"{ours}crossing.query.*", joint[0], "D D"),
        MappingLine(f"{ours}crossing.memory.*", joint[1:], "2D D", STACKED), *_attention("crossing", "enc_attn"),
        MappingLine(f"{ours}inner.*", f"{_WRITER}intermediate.dense.*", "I D"),
        MappingLine(f"{ours}outer.*", f"{_WRITER}output.dense.*", "D I"),
        MappingLine(f"{ours}inner_norm.*", f"{_WRITER}output.LayerNorm.*", "D"),
    )


_WRITTEN = words_head("decoder.classifier.cls.")
UNIVL = BertBased(
    f"{_FRAMES}word_embeddings.weight", config="bert_config.json", bert="bert-base-uncased", stacks=_STACKS,
    counted={
        "num_hidden_layers": "bert.encoder.layer.", "visual_num_hidden_layers": "visual.encoder.layer.",
        "cross_num_hidden_layers": "cross.encoder.layer.", "decoder_num_decoder_layers": "decoder.decoder.layer.",
    },
    repeats={
        f"decoder.embeddings.{table}_embeddings.weight": f"bert.embeddings.{table}_embeddings.weight"
        for table in ("word", "position")
    },
    architecture=Architecture(
        name="univl", title="UniVL", part="joint_modal", base="bert.", recipe=lambda model: "univilm", legal={},
        from_config=_check,
        settings=(
            *settings(layers="num_hidden_layers"), Setting("items.width", "visual_vocab_size", 1024),
            Setting("items.most", "visual_max_position_embeddings", 512),
            Setting("items.layers", "visual_num_hidden_layers", 6), Setting("joint_layers", "cross_num_hidden_layers", 0),
            Setting("decoder_layers", "decoder_num_decoder_layers", 0),
        ),
        fixed={"items.set": "frames", "items.normed": True, "items.after": 48, **FIXED},
        body=(
            *encoder.body(), encoder.SEGMENTS,
            MappingLine("items.features_norm.*", "normalize_video.visual_norm2d.*", "F"),
            MappingLine("items.features.*", f"{_FRAMES}word_embeddings.*", "D F"),
            MappingLine("items.positions.weight", f"{_FRAMES}position_embeddings.weight", "M D"),
            MappingLine("items.norm.*", f"{_FRAMES}LayerNorm.*", "D"),
            *stack("item_layers.{j}.", "visual.encoder.layer.{j}."),
            MappingLine("joint_positions.weight", f"{_JOINT}position_embeddings.weight", "N D"),
            MappingLine("joint_segments.weight", f"{_JOINT}token_type_embeddings.weight", "2 D"),
            MappingLine("joint_norm.*", f"{_JOINT}LayerNorm.*", "D"),
            *stack("joint_layers.{k}.", "cross.encoder.layer.{k}."), MappingLine("pooler.*", "cross.pooler.dense.*", "D D"),
        ),
        further=_decoder,
        counts=lambda arguments: {
            "i": arguments["layers"], "j": arguments["items.layers"], "k": arguments["joint_layers"],
            "l": arguments["decoder_layers"],
        },
        sizes=lambda arguments: {
            **sizes(arguments), "M": arguments["items.most"], "N": arguments["max_length"] + arguments["items.most"],
        },
        ignored=(  # poolers that nothing reads, and a number that is the same for all pairs
            *(f"{lead}pooler.dense.{kind}" for lead in ("{base}", "visual.") for kind in ("weight", "bias")),
            "similarity_dense.bias",
        ),
        heads=(
            words_head(),
            replace(
                _WRITTEN, role="decoder", read={"": "decoder_hidden"},
                arguments=lambda config, tensors: {**_WRITTEN.arguments(config, tensors), "set": "decoder"},
            ),
            HeadTable(
                role="pairs", part="contrast_pairs", sign=("similarity_dense.weight",), read={"pairs": "pair_pooled"},
                lines=(MappingLine("head.weight", "similarity_dense.weight", "1 D"),), objections=lambda head, arguments: [],
                arguments=lambda config, tensors: {"among": "items"},
            ),
        ),
        **TABLE,
    ),
)  # fmt: skip
