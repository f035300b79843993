"""ERNIE of Tsinghua as its authors released it: `ernie_base` with the vectors of entities, `kg_embed` (thunlp/ERNIE)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cloze.errors import CheckpointError
from cloze.interop import encoder
from cloze.interop.architecture import Architecture, HeadTable
from cloze.interop.architectures.bert import NEXT_SENTENCE
from cloze.interop.architectures.visual_bert import settings
from cloze.interop.mapping import STACKED, MappingLine
from cloze.interop.model import Annotating, PortableTable
from cloze.interop.released.bert_system import FIXED, TABLE, BertBased, Files, words_head
from cloze.knowledge.entities import BoundEntities

_WIDTH = 100  # of entities and of their attention with 4 heads, in code/knowledge_bert/modeling.py
_VECTORS, _IDS = "entity2vec.vec", "entity2id.txt"


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    """The first layer with entities, from `layer_types`: plain layers, one without attention of entities, and those with it."""
    kinds = config.get("layer_types")
    first = kinds.index("mix") if isinstance(kinds, list) and "mix" in kinds else 0
    if not isinstance(kinds, list) or kinds != ["sim"] * first + ["mix"] + ["norm"] * (len(kinds) - first - 1) or (
        len(kinds) != config.get("num_hidden_layers", 12)
    ):
        raise ValueError(f"layer_types is {kinds!r}; expected a kind for each layer: sim …, one mix, and norm to the last.")
    return {"mix_at": first}


def _entity_layers(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    lines: list[MappingLine] = []
    for number in range(arguments["mix_at"], arguments["layers"]):
        ours, upstream = f"entity_layers.{number - arguments['mix_at']}.", f"{{base}}encoder.layer.{number}."
        if number > arguments["mix_at"]:
            queries = tuple(f"{upstream}attention.self_ent.{name}.*" for name in ("query", "key", "value"))
            lines += [
                MappingLine(f"{ours}attention.projections.*", queries, "3W W", STACKED),
                MappingLine(f"{ours}attention.out.*", f"{upstream}attention.output_ent.dense.*", "W W"),
                MappingLine(f"{ours}attention_norm.*", f"{upstream}attention.output_ent.LayerNorm.*", "W"),
            ]
        lines += [
            MappingLine(f"{ours}inward.*", f"{upstream}intermediate.dense_ent.*", "I W"),
            MappingLine(f"{ours}outward.*", f"{upstream}output.dense_ent.*", "W I"),
            MappingLine(f"{ours}norm.*", f"{upstream}output.LayerNorm_ent.*", "W"),
        ]
    return tuple(lines)


def _knowledge(files: Files) -> dict[str, Any]:
    """The vectors of entities, and how a text whose mentions are given is read. Errors: `CheckpointError`."""
    folder = files.folder
    tables = folder / "kg_embed" if (folder / "kg_embed").is_dir() else folder
    try:
        rows = (tables / _IDS).read_text(encoding="utf-8").splitlines()[1:]  # the first line is their number
        numbers = {identifier: int(number) for identifier, number in (row.split() for row in rows if row.strip())}
        vectors = np.loadtxt(tables / _VECTORS, dtype=np.float32, ndmin=2)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{error.filename}: there is no such file; the network reads the vectors of entities.\n"
            f"  Put {_VECTORS} and {_IDS} of the authors' kg_embed into {folder}."
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{tables}: {_VECTORS} or {_IDS} cannot be read ({error}). Copy both files again.") from None
    ids = sorted(numbers, key=numbers.__getitem__)
    if [numbers[identifier] for identifier in ids] != list(range(len(vectors))) or vectors.shape[1] != _WIDTH:
        raise CheckpointError(
            f"{tables / _VECTORS}: {len(vectors):,} vectors of width {vectors.shape[1]}; {_IDS} numbers {len(ids):,} entities, "
            f"and the network reads width {_WIDTH}.\n  The files belong to different models: copy both again."
        )
    table = BoundEntities(ids, matrix=np.concatenate([np.zeros((1, _WIDTH), np.float32), vectors]))
    arrays = {name: torch.from_numpy(array) for name, array in table.arrays.items()}
    link = {"table": "entities", "layer": "entity", "give": "entity", "tokens": "first"}
    return {
        "tables": {"entities": PortableTable("entities", arrays)}, "input_edits": (("link", link),),
        "annotators": {"entity": Annotating("mentions", {})},
    }


_TRANSFORM = "cls.predictions_ent.transform."
_ENTITIES = HeadTable(
    role="entity_prediction", part="entity_prediction", sign=(f"{_TRANSFORM}dense.weight",),
    lines=(
        MappingLine("head.dense.*", f"{_TRANSFORM}dense.*", "W D"), MappingLine("head.norm.*", f"{_TRANSFORM}LayerNorm.*", "W"),
    ),
    objections=lambda head, arguments: [],
    arguments=lambda config, tensors: {"set": "entity", "entities": "entities", "entity_width": _WIDTH},
)  # fmt: skip

ERNIE_THU = BertBased(
    ".intermediate.dense_ent.weight", config="ernie_config.json", bert="bert-base-uncased", knowledge=_knowledge,
    architecture=Architecture(
        name="ernie-thu", title="ERNIE (Tsinghua)", part="knowledge_fusion", base="bert.", recipe=lambda model: "ernie-thu",
        settings=settings(layers="num_hidden_layers"), legal={}, from_config=_read,
        fixed={"entities.table": "entities", "entities.width": _WIDTH, "entities.heads": 4, **FIXED},
        body=(*encoder.body(), encoder.SEGMENTS), further=_entity_layers,
        sizes=lambda arguments: {"P": arguments["max_length"], "W": _WIDTH},
        heads=(words_head(), replace(NEXT_SENTENCE, role="relation_prediction"), _ENTITIES), **TABLE,
    ),
)  # fmt: skip
