"""MPNet ↔ transformers' `MPNet*`: RoBERTa with a learned number for each head and bucket of distances in every layer's scores.

Source: MPNet (Song et al., 2020) and transformers' class, which has 32 buckets up to the distance 128 and counts positions from
2, whatever config.json says.
"""

from __future__ import annotations

from dataclasses import replace

from cloze.interop import encoder
from cloze.interop.architecture import Setting, add
from cloze.interop.architectures.roberta import ROBERTA, kin_classes
from cloze.interop.mapping import SHIFTED, STACKED, MappingLine

_BUCKETS = 32
_LAYER = "{base}encoder.layer.{i}."


def _settings() -> tuple[Setting, ...]:
    """BERT's; there are no segments."""
    return tuple(line for line in encoder.settings(layers=12, width=768, heads=12, inner=3072) if line.ours != "segments")


def _body() -> tuple[MappingLine, ...]:
    attention = ("layers.{i}.attention.projections.*", "layers.{i}.attention.out.*")
    lines = encoder.body(SHIFTED, attention_norm="attention.LayerNorm")
    return (
        *(line for line in lines if line.ours not in attention),
        MappingLine(attention[0], tuple(f"{_LAYER}attention.attn.{name}.*" for name in "qkv"), "3D D", STACKED),
        MappingLine(attention[1], _LAYER + "attention.attn.o.*", "D D"),
        MappingLine("distances.table.weight", "{base}encoder.relative_attention_bias.weight", "R H"),
    )


MPNET = add(replace(
    ROBERTA,
    name="mpnet",
    title="MPNet",
    settings=_settings(),
    fixed={**encoder.FIXED, "positions": "learned_with_buckets", "positions.buckets": _BUCKETS, "positions.farthest": 128},
    assumed={**encoder.ASSUMED, "initial": "normal", "segments": 0},
    legal={"relative_attention_num_buckets": (_BUCKETS,), "pad_token_id": (1,)},
    to_config=lambda arguments, order: {"relative_attention_num_buckets": _BUCKETS},
    base="mpnet.",
    body=_body(),
    sizes=lambda arguments: {"R": _BUCKETS, "H": arguments["heads"]},
    segments=None,
    classes=kin_classes("MPNet"),
    tokenizer_class="MPNetTokenizer",
    recipe=lambda model: "roberta",
    resemblance=lambda model, kind: 1,
    paddings=(1,),
))
