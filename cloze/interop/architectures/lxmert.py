"""LXMERT ↔ transformers' `Lxmert*`.

Source: LXMERT (Tan & Bansal, 2019), airsplay/lxmert. The pooler and the map in front of the heads of regions belong to the
network here, because several heads read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.architectures.visual_bert import MASKED_LM, settings, sizes
from cloze.interop.mapping import STACKED, MappingLine
from cloze.interop.model import PortableHead

_EPSILON = 1e-12  # of all norms, whatever config.json says
_ITEM_HEADS = ("object", "attribute", "features")
_POOLED, _TRANSFORMED = {"": "pooled"}, {"": "item_transformed"}


def _layer(ours: str, prefix: str, names: tuple[str, str, str, str]) -> tuple[MappingLine, ...]:
    """A layer; `names` are theirs of attention, of what follows it, and of both maps of the feed-forward."""
    attention, out, inner, outer = names
    return (
        MappingLine(
            f"{ours}attention.projections.*",
            tuple(f"{prefix}{attention}.{name}.*" for name in ("query", "key", "value")), "3D D", STACKED,
        ),
        MappingLine(f"{ours}attention.out.*", f"{prefix}{out}.dense.*", "D D"),
        MappingLine(f"{ours}attention_norm.*", f"{prefix}{out}.LayerNorm.*", "D"),
        MappingLine(f"{ours}inner.*", f"{prefix}{inner}.dense.*", "I D"),
        MappingLine(f"{ours}outer.*", f"{prefix}{outer}.dense.*", "D I"),
        MappingLine(f"{ours}inner_norm.*", f"{prefix}{outer}.LayerNorm.*", "D"),
    )


def _cross() -> tuple[MappingLine, ...]:
    ours, upstream = "cross_layers.{k}.", "{base}encoder.x_layers.{k}."
    reading = f"{upstream}visual_attention."
    return (
        MappingLine(f"{ours}crossing.query.*", f"{reading}att.query.*", "D D"),
        MappingLine(f"{ours}crossing.memory.*", (f"{reading}att.key.*", f"{reading}att.value.*"), "2D D", STACKED),
        MappingLine(f"{ours}crossing.out.*", f"{reading}output.dense.*", "D D"),
        MappingLine(f"{ours}crossing_norm.*", f"{reading}output.LayerNorm.*", "D"),
        *_layer(f"{ours}text.", upstream, ("lang_self_att.self", "lang_self_att.output", "lang_inter", "lang_output")),
        *_layer(f"{ours}items.", upstream, ("visn_self_att.self", "visn_self_att.output", "visn_inter", "visn_output")),
    )


def _body() -> tuple[MappingLine, ...]:
    embedding = "{base}encoder.visn_fc."
    return (
        *encoder.body(), encoder.SEGMENTS,
        MappingLine("items.features.*", f"{embedding}visn_fc.*", "D F"),
        MappingLine("items.features_norm.*", f"{embedding}visn_layer_norm.*", "D"),
        MappingLine("items.boxes.*", f"{embedding}box_fc.*", "D 4"),
        MappingLine("items.boxes_norm.*", f"{embedding}box_layer_norm.*", "D"),
        *_layer("item_layers.{j}.", "{base}encoder.r_layers.{j}.", (
            "attention.self", "attention.output", "intermediate", "output",
        )),
        *_cross(),
        MappingLine("pooler.*", "{base}pooler.dense.*", "D D"),
    )  # fmt: skip


_TRANSFORM = (
    MappingLine("item_map.*", "obj_predict_head.transform.dense.*", "D D"),
    MappingLine("item_norm.*", "obj_predict_head.transform.LayerNorm.*", "D"),
)


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    pretraining = "LxmertForPreTraining" in config.get("architectures", ())
    transform = config.get("item_transform", pretraining and config.get("task_obj_predict", True))
    return {"items.transform": bool(transform)}


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    off = ("task_obj_predict", "task_qa", "visual_obj_loss", "visual_attr_loss", "visual_feat_loss")
    return {**dict.fromkeys(off, False), "item_transform": arguments["items.transform"], "visual_pos_dim": 4}


def _item_objections(head: PortableHead, which: str) -> list[str]:
    """The reasons why a head of regions is not the one that predicts `which` of them by a linear map."""
    wrong = []
    if head.argument("reading") != "hidden" or not set(head.read.values()) <= {"item_transformed"}:
        wrong.append("it does not read item_transformed, as transformers' heads of regions do")
    if head.transform is not None:
        wrong.append("it has a transform of its own, transformers has one for all heads of regions")
    if (head.argument("set") == "attribute") != (which == "attribute") and which != "features":
        wrong.append(f"it does not predict the {which} of a region")
    if which == "features" and (head.argument("tied_map") or head.argument("pool")):
        wrong.append("it is tied or has a pooler, transformers has an output of its own there")
    return wrong


def _of_items(role: str, name: str, says: tuple[str, str | None]) -> HeadTable:
    """A head of regions: its tensors are called `name`, and `says` are the keys that turn it on and that give its size."""
    sign = f"obj_predict_head.decoder_dict.{name}.weight"
    loss, count = says
    features = role == "features"

    def told(head: PortableHead) -> dict[str, Any]:
        size = {} if count is None else {count: head.argument("classes")}
        return {loss: True, "task_obj_predict": True, **size}

    def arguments(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        head_arguments = {"numbers" if features else "classes": int(tensors[sign].shape[0]), "set": role, "reading": "hidden"}
        return {**head_arguments, "deviation": "smooth_l1"} if features else head_arguments

    return HeadTable(
        role=role, part="regress" if features else "classify", sign=(sign,), read=_TRANSFORMED, to_config=told,
        arguments=arguments,
        lines=(MappingLine("head.output.*", sign.replace("weight", "*"), "F D" if features else "C D"),),
        objections=lambda head, arguments: _item_objections(head, role),
    )


def _answers(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    transform, wrong = head.transform, []
    options = None if transform is None else (transform.kind, transform.times, transform.norm_epsilon, transform.biases)
    if options != ("gelu", 2, _EPSILON, True):
        wrong.append("its transform is not transform: {gelu: {times: 2, norm_epsilon: 1e-12}}, which transformers has there")
    if head.argument("reading") != "summary" or not set(head.read.values()) <= {"pooled"}:
        wrong.append("it does not read pooled, as transformers' answers do")
    return wrong


def _matched(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    wrong = ["it has a pooling layer of its own"] if head.argument("pool") else []
    if head.argument("classes") != 2:
        wrong.append(f"it has {head.argument('classes')} classes, transformers has 2")
    return wrong


HEADS = (
    replace(
        MASKED_LM,
        untied=(
            MappingLine("head.bias", "cls.predictions.bias", "V"),
            MappingLine("head.output.weight", "cls.predictions.decoder.weight", "V D"),
        ),
        repeats={"cls.predictions.decoder.weight": "{base}embeddings.word_embeddings.weight"},
        copies={},
    ),
    HeadTable(
        role="matched", part="relation_prediction", sign=("cls.seq_relationship.weight",), read=_POOLED, objections=_matched,
        lines=(MappingLine("head.output.*", "cls.seq_relationship.*", "2 D"),),
        arguments=lambda config, tensors: {"classes": 2, "set": "match", "pool": False},
    ),
    _of_items("object", "obj", ("visual_obj_loss", "num_object_labels")),
    _of_items("attribute", "attr", ("visual_attr_loss", "num_attr_labels")),
    _of_items("features", "feat", ("visual_feat_loss", None)),
    HeadTable(
        role="answer", part="classify", sign=("answer_head.logit_fc.3.weight",), read=_POOLED, objections=_answers,
        lines=(
            MappingLine("head.dense.*", "answer_head.logit_fc.0.*", "2D D"),
            MappingLine("head.norm.*", "answer_head.logit_fc.2.*", "2D"),
            MappingLine("head.output.*", "answer_head.logit_fc.3.*", "C 2D"),
        ),
        to_config=lambda head: {"task_qa": True, "num_qa_labels": head.argument("classes")},
        arguments=lambda config, tensors: {
            "classes": int(tensors["answer_head.logit_fc.3.weight"].shape[0]), "set": "label", "reading": "summary",
            "transform": {"gelu": {"times": 2, "norm_epsilon": _EPSILON}},
        },
    ),
)  # fmt: skip

LXMERT = add(Architecture(
    name="lxmert",
    title="LXMERT",
    part="cross_modal",
    settings=(
        *(replace(setting, default=9) if setting.ours == "layers" else setting for setting in settings(layers="l_layers")),
        Setting("item_layers", "r_layers", 5),
        Setting("cross_layers", "x_layers", 5),
        Setting("items.width", "visual_feat_dim", 2048),
    ),
    fixed={"norm_epsilon": _EPSILON, "items.boxes": 4, "items.norm": "terms", "items.hidden": False},
    assumed={"initial": "normal", "initial.residual": "as_drawn", "initial.positions": None, "items.set": "regions"},
    legal={"visual_pos_dim": (4,)},
    base="lxmert.",
    body=_body(),
    further=lambda arguments: _TRANSFORM if arguments["items.transform"] else (),
    from_config=_read,
    to_config=_write,
    further_objections=lambda arguments: [] if arguments.get("segments") else ["transformers' LXMERT always has segments"],
    counts=lambda arguments: {"i": arguments["layers"], "j": arguments["item_layers"], "k": arguments["cross_layers"]},
    sizes=sizes,
    heads=HEADS,
    classes=(
        *(
            ModelClass(
                "LxmertForPreTraining", frozenset({"masked_lm", "matched", *of_items, *answer}), "AutoModelForPreTraining"
            )
            for answer in (("answer",), ())
            for number in (3, 2, 1, 0) for of_items in combinations(_ITEM_HEADS, number)
        ),
        ModelClass("LxmertModel", frozenset(), "AutoModel"),
    ),
    tokenizer_class="LxmertTokenizer",
    reading=encoder.READING,
    recipe=lambda model: "lxmert",
    resemblance=lambda model, kind: 1,
    ignored=encoder.IGNORED,
))
