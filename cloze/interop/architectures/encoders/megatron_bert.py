"""Megatron-LM's BERT ↔ transformers' `MegatronBert*`: BERT with norms in front of what is added, and none of the embeddings.

Source: Megatron-LM (Shoeybi et al., 2019, §5.3) and transformers' class.
"""

from __future__ import annotations

from dataclasses import replace

from cloze.interop import encoder
from cloze.interop.architecture import add
from cloze.interop.architectures.bert import BERT
from cloze.interop.mapping import MappingLine

MEGATRON_BERT = add(replace(
    BERT,
    name="megatron-bert",
    title="Megatron-BERT",
    settings=encoder.settings(layers=24, width=1024, heads=16, inner=4096),
    fixed={**encoder.FIXED, "norm": "pre", "norm.embedding": False, "norm.final": True},
    body=(
        *(line for line in encoder.body(attention_norm="attention.ln", inner_norm="ln") if line.ours != "embeddings.norm.*"),
        MappingLine("norm.*", "{base}encoder.ln.*", "D"),
    ),
    classes=tuple(replace(cls, name=f"Megatron{cls.name}") for cls in BERT.classes),
    resemblance=lambda model, kind: 0,
))
