"""NEZHA ↔ transformers' `Nezha*`; transformers 4.57 is the last version with it.

Source: NEZHA (Wei et al., 2019) and huawei-noah/Pretrained-Language-Model: BERT with fixed vectors of distances in attention
in place of a table of positions, so a folder holds no positions at all.
"""

from __future__ import annotations

from dataclasses import replace

from cloze.interop import encoder
from cloze.interop.architecture import Setting, add
from cloze.interop.architectures.bert import BERT


def _settings() -> tuple[Setting, ...]:
    """BERT's; a single segment stays one, since there is no table of positions that could take it up."""
    shared = encoder.settings(layers=12, width=768, heads=12, inner=3072)
    segments = Setting("segments", "type_vocab_size", 2, lambda rows: max(1, rows))
    return (
        *(segments if setting.ours == "segments" else setting for setting in shared),
        Setting("positions.limit", "max_relative_position", 64),
    )


NEZHA = add(replace(
    BERT,
    name="nezha",
    title="NEZHA",
    until="4.57",
    recipe=lambda model: "nezha",
    settings=_settings(),
    fixed={**encoder.FIXED, "positions": "functional"},
    base="nezha.",
    body=tuple(line for line in encoder.body() if line.ours != "embeddings.positions.weight"),
    classes=tuple(replace(cls, name=cls.name.replace("Bert", "Nezha")) for cls in BERT.classes),
))
