"""The names of tensors in the files of UNITER's authors (ChenRocks/UNITER, model/model.py and model/pretrain.py)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cloze.interop import encoder
from cloze.interop.architecture import HeadTable
from cloze.interop.architectures.visual_bert import MASKED_LM, MATCHED, settings, sizes
from cloze.interop.mapping import MappingLine, Move, TableSizes
from cloze.interop.released.bert_system import BertBased, classes_head, system_table


class _NotHidden(Move):
    """The row of what is not hidden is zero, as UNITER's code sets it before it is read (`UniterImageEmbeddings.forward`)."""

    def back(self, tensors: tuple[Tensor, ...], facts: TableSizes) -> Tensor:
        return torch.cat([torch.zeros_like(tensors[0][:1]), tensors[0][1:]])


_REGIONS = "{base}img_embeddings."
_FEATURES = HeadTable(
    role="features", part="regress", sign=("feat_regress.bias",), read={"hidden": "item_hidden"},
    objections=lambda head, arguments: [],
    lines=(
        MappingLine("head.dense.*", "feat_regress.net.0.*", "D D"), MappingLine("head.norm.*", "feat_regress.net.2.*", "D"),
        MappingLine("head.bias", "feat_regress.bias", "F"),
    ),
    arguments=lambda config, tensors: {
        "set": "features", "numbers": int(tensors["feat_regress.bias"].shape[0]), "reading": "hidden", "deviation": "squared",
        "tied_map": "regions", "transform": {"gelu": {"norm_epsilon": 1e-12}},
    },
)  # fmt: skip
_UNITER = system_table(
    "uniter", "UNITER", part="visual", base="uniter.",
    settings=settings(layers="num_hidden_layers"),
    fixed={
        "items": "appended", "items.set": "regions", "items.width": 2048, "items.boxes": 7, "items.norm": "both",
        "items.hidden": True, "items.segment": True, "norm_epsilon": 1e-12, "initial": "normal",
    },
    body=(
        *encoder.body(), encoder.SEGMENTS,
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
        replace(MASKED_LM, role="token_prediction"),
        replace(
            MATCHED, role="match", sign=("itm_output.weight", "{base}pooler.dense.weight"),
            lines=(MATCHED.lines[0], MappingLine("head.output.*", "itm_output.*", "2 D")),
        ),
        _FEATURES,
        classes_head("region_classifier.net.0", "region_classifier.net.2", "region_classifier.net.3", divergence="kl_mean"),
    ),
)  # fmt: skip

UNITER = BertBased("uniter.img_embeddings.img_linear.weight", _UNITER, config="uniter-base.json", bert="bert-base-cased")
