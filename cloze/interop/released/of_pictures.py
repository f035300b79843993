"""The names of tensors in the files of the authors of UNITER, ViLBERT, VL-BERT and VisualBERT, from their code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cloze.interop import encoder
from cloze.interop.architecture import Architecture, Setting
from cloze.interop.architectures.visual_bert import MATCHED, Exchanged, settings, sizes
from cloze.interop.mapping import STACKED, MappingLine, Move, TableSizes
from cloze.interop.released.bert_system import FIXED, TABLE, BertBased, regression, words_head

_TEXT = (*encoder.body(), encoder.SEGMENTS)
_PLAIN = settings(layers="num_hidden_layers")


class _NotHidden(Move):
    """The row of what is not hidden is zero, as UNITER's code sets it before it is read (`UniterImageEmbeddings.forward`)."""

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return torch.cat([torch.zeros_like(tensors[0][:1]), tensors[0][1:]])


def _transformed(dense: str, norm: str, width: str = "D") -> tuple[MappingLine, ...]:
    return (MappingLine("head.dense.*", f"{dense}.*", f"{width} {width}"), MappingLine("head.norm.*", f"{norm}.*", width))


# ChenRocks/UNITER, model/model.py and model/pretrain.py
_REGIONS, _CLASSES = "{base}img_embeddings.", "region_classifier.net."
UNITER = BertBased(
    ".img_embeddings.img_linear.weight", config="uniter-base.json", bert="bert-base-cased",
    architecture=Architecture(
        name="uniter", title="UNITER", part="visual", base="uniter.", recipe=lambda model: "uniter", settings=_PLAIN, legal={},
        fixed={
            "items": "appended", "items.set": "regions", "items.width": 2048, "items.boxes": 7, "items.norm": "both",
            "items.hidden": True, "items.segment": True, **FIXED,
        },
        body=(
            *_TEXT,
            MappingLine("items.vectors.features.*", f"{_REGIONS}img_linear.*", "D F"),
            MappingLine("items.vectors.features_norm.*", f"{_REGIONS}img_layer_norm.*", "D"),
            MappingLine("items.vectors.boxes.*", f"{_REGIONS}pos_linear.*", "D 7"),
            MappingLine("items.vectors.boxes_norm.*", f"{_REGIONS}pos_layer_norm.*", "D"),
            MappingLine("items.vectors.norm.*", f"{_REGIONS}LayerNorm.*", "D"),
            MappingLine("items.vectors.hidden.weight", f"{_REGIONS}mask_embedding.weight", "2 F", _NotHidden()),
        ),
        sizes=sizes,
        ignored=("feat_regress.weight",),  # the map of features
        heads=(
            words_head(),
            replace(
                MATCHED, role="match", sign=("itm_output.weight", "{base}pooler.dense.weight"),
                lines=(MATCHED.lines[0], MappingLine("head.output.*", "itm_output.*", "2 D")),
            ),
            regression(
                "features", "feat_regress.bias", set="features", deviation="squared", tied_map="regions",
                lines=(
                    *_transformed("feat_regress.net.0", "feat_regress.net.2"), MappingLine("head.bias", "feat_regress.bias", "F"),
                ),
            ),
            regression("classes", f"{_CLASSES}3.weight", deviation="kl_mean", lines=(
                *_transformed(f"{_CLASSES}0", f"{_CLASSES}2"), MappingLine("head.output.*", f"{_CLASSES}3.*", "C D"),
            )),
        ),
        **TABLE,
    ),
)  # fmt: skip


def _places(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing; co-attention must stand before the last layers of the text, one for each layer of regions."""
    layers, regions = config.get("num_hidden_layers", 12), config.get("v_num_hidden_layers", 3)
    places = [config.get("v_biattention_id", [0, 1]), config.get("t_biattention_id", [10, 11])]
    expected = [list(range(regions)), list(range(layers - regions, layers))]
    if places != expected:
        raise ValueError(
            f"co-attention stands before the layers {places[0]} of regions and {places[1]} of text; cloze's network has it "
            f"before {expected[0]} and {expected[1]}."
        )
    if config.get("v_hidden_act", "gelu") != config.get("hidden_act", "gelu"):
        raise ValueError("v_hidden_act and hidden_act differ; cloze's network has one activation.")
    return {}


def _layer(ours: str, names: tuple[str, ...], width: str, inner: str, inside: str) -> tuple[MappingLine, ...]:
    """What follows queries, keys and values; `names` are those of the output map, its norm, and both maps of the feed-forward."""
    out, norm, first, second = (f"{{base}}encoder.{name}" for name in names)
    return (
        MappingLine(f"{ours}attention.out.*", f"{out}.*", f"{width} {inside}"),
        MappingLine(f"{ours}attention_norm.*", f"{norm}.*", width),
        MappingLine(f"{ours}inner.*", f"{first}.dense.*", f"{inner} {width}"),
        MappingLine(f"{ours}outer.*", f"{second}.dense.*", f"{width} {inner}"),
        MappingLine(f"{ours}inner_norm.*", f"{second}.LayerNorm.*", width),
    )


def _crossing(side: str, reader: int, letter: str, sizes: tuple[str, str, str]) -> tuple[MappingLine, ...]:
    """A side of co-attention: its number in the names, its letter there, its width, inner width and the width of the other."""
    ours, lead, other = f"co_layers.{{j}}.{side}.", "{base}encoder.c_layer.{j}.biattention.", 3 - reader
    width, inner, read = sizes
    rest = tuple(f"c_layer.{{j}}.{part}" for part in (
        f"biOutput.dense{reader}", f"biOutput.LayerNorm{reader}", f"{letter}_intermediate", f"{letter}_output",
    ))
    return (
        MappingLine(f"{ours}attention.query.*", f"{lead}query{reader}.*", f"B {width}"),
        MappingLine(f"{ours}attention.memory.*", (f"{lead}key{other}.*", f"{lead}value{other}.*"), f"2B {read}", STACKED),
        *_layer(ours, rest, width, inner, "B"),
    )


# jiasenlu/vilbert_beta and facebookresearch/vilbert-multi-task, vilbert/vilbert.py
_OWN, _VIEW, _REGION = "v_layer.{j}.", "{base}v_embeddings.", "cls.imagePredictions."
VILBERT = BertBased(
    ".v_embeddings.image_location_embeddings.weight", config="bert_base_6layer_6conect.json", bert="bert-base-uncased",
    unsupported={".task_embeddings.weight": "holds vectors of tasks (12-in-1)"},
    architecture=Architecture(
        name="vilbert", title="ViLBERT", part="co_attention", base="bert.", recipe=lambda model: "vilbert",
        settings=(
            *_PLAIN,
            Setting("items.width", "v_feature_size", 2048), Setting("item_stack.layers", "v_num_hidden_layers", 3),
            Setting("item_stack.width", "v_hidden_size", 768), Setting("item_stack.heads", "v_num_attention_heads", 12),
            Setting("item_stack.inner", "v_intermediate_size", 3072), Setting("crossing.width", "bi_hidden_size", 1024),
            Setting("crossing.heads", "bi_num_attention_heads", 16),
        ),
        fixed={"items.set": "regions", "items.boxes": 5, "items.norm": "sum", "items.hidden": False, **FIXED},
        legal={"fusion_method": ("mul",), "dynamic_attention": (False,), "with_coattention": (True,), "model": ("bert",)},
        from_config=_places,
        body=(
            *_TEXT,
            MappingLine("items.features.*", f"{_VIEW}image_embeddings.*", "W F"),
            MappingLine("items.boxes.*", f"{_VIEW}image_location_embeddings.*", "W 5"),
            MappingLine("items.norm.*", f"{_VIEW}LayerNorm.*", "W"),
            MappingLine("item_layers.{j}.attention.projections.*", tuple(
                f"{{base}}encoder.{_OWN}attention.self.{name}.*" for name in ("query", "key", "value")
            ), "3W W", STACKED),
            *_layer("item_layers.{j}.", (
                f"{_OWN}attention.output.dense", f"{_OWN}attention.output.LayerNorm", f"{_OWN}intermediate", f"{_OWN}output",
            ), "W", "K", "W"),
            *_crossing("items", 1, "v", ("W", "K", "D")), *_crossing("text", 2, "t", ("D", "I", "W")),
            MappingLine("text_pooler.*", "{base}t_pooler.dense.*", "B D"),
            MappingLine("item_pooler.*", "{base}v_pooler.dense.*", "B W"),
        ),
        counts=lambda arguments: {"i": arguments["layers"], "j": arguments["item_stack.layers"]},
        sizes=lambda arguments: {
            **sizes(arguments), "W": arguments["item_stack.width"], "K": arguments["item_stack.inner"],
            "B": arguments["crossing.width"],
        },
        ignored=tuple(  # maps that `BertBiOutput` has and never calls
            f"{{base}}encoder.c_layer.{{i}}.biOutput.q_dense{side}.{kind}" for side in (1, 2) for kind in ("weight", "bias")
        ),
        heads=(
            words_head(),
            # 1 stands for an exchanged caption (`random_cap` in concept_cap_dataset.py), in the recipe for one that belongs
            replace(
                MATCHED, role="match", sign=("cls.bi_seq_relationship.weight",), read={"": "pooled"},
                lines=(MappingLine("head.output.*", "cls.bi_seq_relationship.*", "2 B", Exchanged()),),
                arguments=lambda config, tensors: {"classes": 2, "set": "match", "pool": False, "dropout": 0.1},
                objections=lambda head, arguments: [],
            ),
            regression("classes", f"{_REGION}decoder.weight", deviation="kl", lines=(
                *_transformed(f"{_REGION}transform.dense", f"{_REGION}transform.LayerNorm", "W"),
                MappingLine("head.output.*", f"{_REGION}decoder.*", "C W"),
            )),
        ),
        **TABLE,
    ),
)  # fmt: skip

_EMBEDDINGS = {"embedding_LayerNorm.": "embeddings.LayerNorm."} | {
    f"{name}_embeddings.": f"embeddings.{name}_embeddings." for name in ("word", "position", "token_type")
}


def _embedding(name: str) -> str:
    """The name of a tensor in BERT's tables."""
    lead = next((lead for lead in _EMBEDDINGS if name.startswith(lead)), "")
    return name.replace(lead, _EMBEDDINGS[lead]) if lead else name


# jackroos/VL-BERT, common/visual_linguistic_bert.py, common/fast_rcnn.py and pretrain/modules/
_UNLIKE = "is of a variant that the options of NETWORK choose"
VL_BERT = BertBased(
    "object_linguistic_embeddings.weight", config="bert_config.json", bert="bert-base-uncased",
    unsupported={
        "image_feature_extractor.backbone.conv1.weight": "is of a detector that was trained along (take a model …-prec)",
        ".visual_1x1_text.weight": _UNLIKE, ".visual_scale_text": _UNLIKE, ".special_word_embeddings.weight": _UNLIKE,
        "image_feature_extractor.object_embed.weight": _UNLIKE,
    },
    architecture=Architecture(
        name="vl-bert", title="VL-BERT", part="visual", base="vlbert.", recipe=lambda model: "vl-bert", renamed=_embedding,
        settings=tuple(setting for setting in _PLAIN if setting.ours != "segments"), legal={},
        fixed={"items": "elements", "items.set": "regions", "items.width": 2048, "items.waves": 256, "segments": 3, **FIXED},
        body=(
            *_TEXT,
            MappingLine("items.map.*", "image_feature_extractor.obj_downsample.1.*", "D G"),
            MappingLine("items.text_norm.*", "{base}visual_ln_text.*", "D"),
            MappingLine("items.item_norm.*", "{base}visual_ln_object.*", "D"),
            MappingLine("items.item.weight", "object_linguistic_embeddings.weight", "1 D"),
            MappingLine("items.hidden.weight", "object_mask_word_embedding.weight", "1 D"),
            MappingLine("items.hidden_features.weight", "object_mask_visual_embedding.weight", "1 F"),
            MappingLine("items.no_picture.weight", "aux_text_visual_embedding.weight", "1 D"),
            MappingLine("items.end.weight", "{base}end_embedding.weight", "1 D"),
        ),
        sizes=lambda arguments: {**sizes(arguments), "G": arguments["items.width"] + 8 * arguments["items.waves"]},
        heads=(
            words_head("vlbert.mlm_head."),
            regression("classes", "vlbert.mvrc_head.region_cls_pred.weight", norm=False, deviation="kl", lines=(
                MappingLine("head.dense.*", "vlbert.mvrc_head.transform.dense.*", "D D"),
                MappingLine("head.output.*", "vlbert.mvrc_head.region_cls_pred.*", "C D"),
            )),
        ),
        **TABLE,
    ),
)  # fmt: skip

# uclanlp/visualbert, visualbert/pytorch_pretrained_bert/modeling.py, in the model of visualbert/models/model.py. 1 stands for a
# caption that belongs to the picture (`coco_dataset.py`), and regions have row 0 of their segments.
_TABLES, _HEADS = "{base}embeddings.", "bert.cls."
VISUAL_BERT = BertBased(
    ".embeddings.token_type_embeddings_visual.weight", config="bert_config.json", bert="bert-base-uncased",
    measured={"visual_embedding_dim": (".embeddings.projection.weight", 1)},
    unsupported={
        "detector.obj_downsample.1.weight": "is of a detector that was trained along (take a model of NLVR2 or VQA)",
        ".additional_layer.output.dense.weight": "is of the variant bypass_transformer",
    },
    architecture=Architecture(
        name="visualbert", title="VisualBERT", part="visual", base="bert.bert.", recipe=lambda model: "visualbert", legal={},
        settings=(*_PLAIN, Setting("items.width", "visual_embedding_dim", 2048)),
        fixed={"items": "with_tables", "items.set": "regions", **FIXED},
        body=(
            *_TEXT,
            MappingLine("items.features.*", f"{_TABLES}projection.*", "D F"),
            MappingLine("items.positions.weight", f"{_TABLES}position_embeddings_visual.weight", "P D"),
            MappingLine("items.segments.weight", f"{_TABLES}token_type_embeddings_visual.weight", "S D"),
        ),
        sizes=sizes,
        heads=(
            words_head(_HEADS),
            replace(
                MATCHED, role="match", sign=(f"{_HEADS}seq_relationship.weight", "{base}pooler.dense.weight"),
                lines=(MATCHED.lines[0], MappingLine("head.output.*", f"{_HEADS}seq_relationship.*", "2 D")),
            ),
        ),
        **TABLE,
    ),
)  # fmt: skip
