"""The names of tensors in the files of ViLBERT's authors (jiasenlu/vilbert_beta and facebookresearch/vilbert-multi-task)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import Setting
from cloze.interop.architectures.visual_bert import MASKED_LM, MATCHED, Exchanged, settings
from cloze.interop.mapping import STACKED, MappingLine
from cloze.interop.released.bert_system import BertBased, classes_head, system_table


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing; co-attention must stand before the last layers of the text, one for each layer of regions."""
    layers, regions = config.get("num_hidden_layers", 12), config.get("v_num_hidden_layers", 3)
    expected = [list(range(regions)), list(range(layers - regions, layers))]
    places = [config.get("v_biattention_id", [0, 1]), config.get("t_biattention_id", [10, 11])]
    if places != expected:
        raise ValueError(
            f"co-attention stands before the layers {places[0]} of regions and {places[1]} of text; cloze's network has it "
            f"before {expected[0]} and {expected[1]}."
        )
    if config.get("v_hidden_act", "gelu") != config.get("hidden_act", "gelu"):
        raise ValueError("v_hidden_act and hidden_act differ; cloze's network has one activation.")
    return {}


def _rest(ours: str, names: tuple[str, str, str, str], width: str, inner: str) -> tuple[MappingLine, ...]:
    """What follows the attention of a layer; `names` are theirs of its output map and norm, and of both further parts."""
    out, out_norm, inner_name, outer_name = (f"{{base}}encoder.{name}" for name in names)
    return (
        MappingLine(f"{ours}attention_norm.*", f"{out_norm}.*", width),
        MappingLine(f"{ours}attention.out.*", f"{out}.*", f"{width} {'B' if 'c_layer' in out else width}"),
        MappingLine(f"{ours}inner.*", f"{inner_name}.dense.*", f"{inner} {width}"),
        MappingLine(f"{ours}outer.*", f"{outer_name}.dense.*", f"{width} {inner}"),
        MappingLine(f"{ours}inner_norm.*", f"{outer_name}.LayerNorm.*", width),
    )


def _crossing(side: str, reader: int, widths: tuple[str, str]) -> tuple[MappingLine, ...]:
    """The attention of a side; theirs are called 1 for regions and 2 for the text."""
    ours, theirs = f"co_layers.{{j}}.{side}.attention.", "{base}encoder.c_layer.{j}.biattention."
    read = 3 - reader
    return (
        MappingLine(f"{ours}query.*", f"{theirs}query{reader}.*", f"B {widths[0]}"),
        MappingLine(f"{ours}memory.*", (f"{theirs}key{read}.*", f"{theirs}value{read}.*"), f"2B {widths[1]}", STACKED),
    )


_VIEW, _LAYER, _CROSS = "{base}v_embeddings.", "v_layer.{j}.", "c_layer.{j}."
_OWN = tuple(f"{{base}}encoder.{_LAYER}attention.self.{name}.*" for name in ("query", "key", "value"))

VILBERT = BertBased(
    "bert.v_embeddings.image_location_embeddings.weight", config="bert_base_6layer_6conect.json", bert="bert-base-uncased",
    others={"bert.embeddings.task_embeddings": "holds vectors of tasks (12-in-1), which cloze's network lacks"},
    architecture=system_table(
        "vilbert", "ViLBERT", part="co_attention", base="bert.",
        settings=(
            *settings(layers="num_hidden_layers"),
            Setting("items.width", "v_feature_size", 2048), Setting("item_stack.layers", "v_num_hidden_layers", 3),
            Setting("item_stack.width", "v_hidden_size", 768), Setting("item_stack.heads", "v_num_attention_heads", 12),
            Setting("item_stack.inner", "v_intermediate_size", 3072), Setting("crossing.width", "bi_hidden_size", 1024),
            Setting("crossing.heads", "bi_num_attention_heads", 16),
        ),
        fixed={
            "items.set": "regions", "items.boxes": 5, "items.norm": "sum", "items.hidden": False, "norm_epsilon": 1e-12,
            "initial": "normal",
        },
        legal={
            "fusion_method": ("mul",), "dynamic_attention": (False,), "with_coattention": (True,), "model": ("bert",),
            "task_specific_tokens": (False,),
        },
        read=_read,
        body=(
            *encoder.body(), encoder.SEGMENTS,
            MappingLine("items.features.*", f"{_VIEW}image_embeddings.*", "W F"),
            MappingLine("items.boxes.*", f"{_VIEW}image_location_embeddings.*", "W 5"),
            MappingLine("items.norm.*", f"{_VIEW}LayerNorm.*", "W"),
            MappingLine("item_layers.{j}.attention.projections.*", _OWN, "3W W", STACKED),
            *_rest("item_layers.{j}.", (
                f"{_LAYER}attention.output.dense", f"{_LAYER}attention.output.LayerNorm", f"{_LAYER}intermediate",
                f"{_LAYER}output",
            ), "W", "K"),
            *_crossing("items", 1, ("W", "D")), *_crossing("text", 2, ("D", "W")),
            *_rest("co_layers.{j}.items.", (
                f"{_CROSS}biOutput.dense1", f"{_CROSS}biOutput.LayerNorm1", f"{_CROSS}v_intermediate", f"{_CROSS}v_output",
            ), "W", "K"),
            *_rest("co_layers.{j}.text.", (
                f"{_CROSS}biOutput.dense2", f"{_CROSS}biOutput.LayerNorm2", f"{_CROSS}t_intermediate", f"{_CROSS}t_output",
            ), "D", "I"),
            MappingLine("text_pooler.*", "{base}t_pooler.dense.*", "B D"),
            MappingLine("item_pooler.*", "{base}v_pooler.dense.*", "B W"),
        ),
        counts=lambda arguments: {"i": arguments["layers"], "j": arguments["item_stack.layers"]},
        sizes=lambda arguments: {
            "P": arguments["max_length"], "F": arguments["items.width"], "W": arguments["item_stack.width"],
            "K": arguments["item_stack.inner"], "B": arguments["crossing.width"],
        },
        heads=(
            replace(MASKED_LM, role="token_prediction"),
            # 1 stands for an exchanged caption (`random_cap` in concept_cap_dataset.py), in the recipe for one that belongs
            replace(
                MATCHED, role="match", sign=("cls.bi_seq_relationship.weight",), read={"": "pooled"},
                lines=(MappingLine("head.output.*", "cls.bi_seq_relationship.*", "2 B", Exchanged()),),
                arguments=lambda config, tensors: {"classes": 2, "set": "match", "pool": False, "dropout": 0.1},
                objections=lambda head, arguments: [],
            ),
            classes_head("cls.imagePredictions.transform.dense", "cls.imagePredictions.transform.LayerNorm",
                         "cls.imagePredictions.decoder", divergence="kl", width="W"),
        ),
        ignored=("{base}encoder.c_layer.{i}.biOutput.q_dense1.weight", "{base}encoder.c_layer.{i}.biOutput.q_dense1.bias",
                 "{base}encoder.c_layer.{i}.biOutput.q_dense2.weight", "{base}encoder.c_layer.{i}.biOutput.q_dense2.bias"),
    ),
)  # fmt: skip
