"""DeBERTa-v2 and v3 ↔ transformers' `DebertaV2*`.

Source: DeBERTa (He et al., 2021), DeBERTaV3 (He et al., 2023) and microsoft/DeBERTa. v3 has v2's network. The masked-LM head of
transformers (`cls.predictions`) is also read under the authors' names, which published files have (`lm_predictions.lm_head`,
transformers' `legacy: false`); the folders that cloze writes have the first.

Differs: transformers drops states in front of the pooler, too (`pooler_dropout`, 0 in published models); cloze only behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import ACTIVATIONS, ACTIVATIONS_BACK, Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.architectures import bert
from cloze.interop.classification import AUTO, PIPELINE, ROLE, chooser, chooser_class, summary_objections
from cloze.interop.mapping import MappingLine
from cloze.interop.model import PortableHead, PortableModel
from cloze.interop.question_answering import ANSWER, answers_questions
from cloze.interop.tagging import TAGGER, tagger_class
from cloze.objectives.transforms import Nonlinearity

_TERMS = {"both": {"c2p", "p2c"}, "content_to_position": {"c2p"}, "position_to_content": {"p2c"}}
#: A non-linearity of ours → the name in config.json.
_POOLED = {**ACTIVATIONS, "tanh": "tanh"}
_POOLED_BACK: Mapping[str, Nonlinearity] = {**ACTIVATIONS_BACK, "tanh": "tanh"}  # type: ignore[dict-item]


def _epsilon(config: Mapping[str, Any]) -> float:
    return float(config.get("layer_norm_eps", 1e-7))


def _masked_lm(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    if "decoded" in head.read.values():
        return ["it reads the mask decoder, which transformers' DeBERTa lacks"]
    return bert.MASKED_LM.objections(head, arguments)


MASKED_LM = replace(
    bert.MASKED_LM,
    objections=_masked_lm,
    arguments=lambda config, tensors: {
        "transform": ACTIVATIONS_BACK[config.get("hidden_act", "gelu")], "bias": True, "norm_epsilon": _epsilon(config),
    },
)
#: The authors' names of the same head, whose output rows are always the table of tokens.
AUTHORS_LM = replace(
    MASKED_LM,
    role="authors_masked_lm",
    sign=("lm_predictions.lm_head.dense.weight",),
    lines=(
        MappingLine("head.dense.*", "lm_predictions.lm_head.dense.*", "D D"),
        MappingLine("head.norm.*", "lm_predictions.lm_head.LayerNorm.*", "D"),
        MappingLine("head.bias", "lm_predictions.lm_head.bias", "V"),
    ),
    tied=(), untied=(), repeats={}, copies={},
    objections=lambda head, arguments: [
        *_masked_lm(head, arguments), *([] if head.argument("tie") else ["its output rows are not the table of tokens"])
    ],
)

#: The head of replaced-token detection in the authors' files of v3, for which transformers has no class.
REPLACED = HeadTable(
    role="replaced",
    part="token_labelling",
    sign=("mask_predictions.classifier.weight",),
    lines=(
        MappingLine("head.dense.*", "mask_predictions.dense.*", "D D"),
        MappingLine("head.output.*", "mask_predictions.classifier.*", "1 D"),
        MappingLine("context_norm.*", "mask_predictions.LayerNorm.*", "D"),
    ),
    objections=lambda head, arguments: [] if head.argument("context") else ["it does not read the summary"],
    arguments=lambda config, tensors: {
        "classes": 2, "set": "replaced", "transform": ACTIVATIONS_BACK[config.get("hidden_act", "gelu")], "context": True,
        "norm_epsilon": _epsilon(config),
    },
)


def _pooled(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    transform = head.transform
    if transform is None:
        return ["it has no dense map, transformers' DeBERTa has one with an activation before the outputs"]
    return summary_objections(head, transform.kind)


def _pooled_arguments(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {"set": "label", "reading": "summary", "transform": _POOLED_BACK[config.get("pooler_hidden_act", "gelu")]}


def _pooled_keys(head: PortableHead) -> dict[str, Any]:
    assert head.transform is not None  # as `_pooled` says
    return {"pooler_hidden_act": _POOLED[head.transform.kind], "cls_dropout": head.argument("dropout")}


CLASSIFIER = HeadTable(
    role=ROLE,
    part="classify",
    sign=("pooler.dense.weight", "classifier.weight"),
    lines=(MappingLine("head.dense.*", "pooler.dense.*", "D D"), MappingLine("head.output.*", "classifier.*", "C D")),
    objections=_pooled,
    arguments=lambda config, tensors: {
        **_pooled_arguments(config, tensors), "classes": int(tensors["classifier.weight"].shape[0]),
    },
    to_config=_pooled_keys,
)
CHOOSER = replace(
    chooser(MappingLine("head.dense.*", "pooler.dense.*", "D D"), "classifier.weight", transform="gelu"),
    objections=_pooled, to_config=_pooled_keys,
    arguments=lambda config, tensors: {key: v for key, v in _pooled_arguments(config, tensors).items() if key != "reading"},
)


def body(query: str, key: str, value: str) -> tuple[MappingLine, ...]:
    """The lines of BERT's body, without positions, with these names of the maps in attention."""
    lines = [line for line in encoder.body() if ".positions." not in line.ours]
    names = tuple(f"{{base}}encoder.layer.{{i}}.attention.self.{name}.*" for name in (query, key, value))
    return tuple(replace(line, theirs=names) if ".projections." in line.ours else line for line in lines)


def terms_of(config: Mapping[str, Any]) -> list[str]:
    """The terms in `pos_att_type`, a list or names between bars."""
    value = config.get("pos_att_type") or []
    names = value.lower().split("|") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"pos_att_type is {value!r}; expected c2p, p2c or both.")
    return [name.strip() for name in names]


def read_positions(config: Mapping[str, Any], *, no_terms: tuple[list[str], ...] = ([], ["none"])) -> dict[str, Any]:
    """The arguments of positions that v1 and v2 have in common. `no_terms`: what `pos_att_type` may be without relative
    attention, because it leaves scores as they are."""
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    for key, usual in (("embedding_size", width), ("pooler_hidden_size", width), ("attention_head_size", None)):
        usual = width // heads if usual is None and isinstance(width, int) and isinstance(heads, int) and heads else usual
        if config.get(key, usual) != usual:
            raise ValueError(f"{key} is {config[key]!r}; cloze's network has {usual} there.")
    if config.get("pooler_hidden_act", "gelu") not in _POOLED_BACK:
        raise ValueError(f"pooler_hidden_act is {config['pooler_hidden_act']!r}; cloze has {', '.join(_POOLED_BACK)} there.")
    if config.get("type_vocab_size", 0) == 1:
        raise ValueError("type_vocab_size is 1; cloze's network has no segments, or two.")
    terms, absolute = terms_of(config), bool(config.get("position_biased_input", True))
    longest = config.get("max_position_embeddings", 512)
    if not config.get("relative_attention", False):
        if terms not in no_terms:
            raise ValueError(f"pos_att_type is {'|'.join(terms)} without relative_attention; cloze's network has no such scale.")
        return {"positions": "learned", "positions.max_length": longest} if absolute else {"positions": "none"}
    matches = [ours for ours, upstream in _TERMS.items() if set(terms) == upstream and len(terms) == len(upstream)]
    if not matches:
        raise ValueError(f"pos_att_type is {'|'.join(terms) or None}; expected c2p, p2c or both with relative_attention.")
    relative = config.get("max_relative_positions", -1)
    if not isinstance(longest, int) or not isinstance(relative, int):
        raise ValueError(f"max_relative_positions is {relative!r}; expected a number.")
    if absolute and relative not in (longest, *range(-1, 1)):
        raise ValueError(
            f"max_relative_positions is {relative} and max_position_embeddings {longest}; cloze has one number for both."
        )
    return {
        "positions": "disentangled", "positions.max_length": longest if relative < 1 else relative, "positions.terms": matches[0],
        "positions.beyond": True, "positions.drop_as": "hidden", "positions.absolute": "embeddings" if absolute else None,
    }


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not in a single key."""
    positions = read_positions(config)
    if positions["positions"] == "disentangled":
        buckets, norms = config.get("position_buckets", -1), str(config.get("norm_rel_ebd", "none")).lower().split("|")
        longest = positions["positions.max_length"]
        if not isinstance(buckets, int) or (buckets > 0 and (buckets % 2 or not 4 <= buckets < longest)):
            raise ValueError(f"position_buckets is {buckets!r}; expected an even number from 4 to {longest - 1}, or -1 for none.")
        positions |= {
            "positions.buckets": buckets if buckets > 0 else None,
            "positions.maps": "shared" if config.get("share_att_key", False) else "own",
            "positions.norm": "layer_norm" in [norm.strip() for norm in norms],
        }
    kernel = config.get("conv_kernel_size", 0)
    if not kernel or kernel < 1:
        return {**positions, "embedding.convolution": None}
    activation, groups = config.get("conv_act", "tanh"), config.get("conv_groups", 1)
    if kernel % 2 == 0 or activation not in _POOLED_BACK:
        raise ValueError(
            f"conv_kernel_size is {kernel} and conv_act {activation!r}; cloze's convolution has an odd size and one of "
            f"{', '.join(_POOLED_BACK)}."
        )
    return {
        **positions, "embedding.convolution.kernel": kernel, "embedding.convolution.groups": groups,
        "embedding.convolution.activation": _POOLED_BACK[activation],
    }


def write_positions(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that `read_positions` reads."""
    relative = arguments["positions"] == "disentangled"
    terms = _TERMS[arguments["positions.terms"]] if relative else set()
    return {
        "relative_attention": relative,
        "pos_att_type": "|".join(sorted(terms, reverse=True)) or None,
        "max_relative_positions": -1,
        "max_position_embeddings": arguments.get("positions.max_length") or 512,
        "position_biased_input": arguments["positions"] == "learned" or arguments.get("positions.absolute") == "embeddings",
        "pooler_hidden_size": arguments["width"],
    }


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    convolution = {} if arguments.get("embedding.convolution.kernel") is None else {
        "conv_kernel_size": arguments["embedding.convolution.kernel"], "conv_groups": arguments["embedding.convolution.groups"],
        "conv_act": _POOLED[arguments["embedding.convolution.activation"]],
    }  # fmt: skip
    return {
        **write_positions(arguments), **convolution,
        "position_buckets": arguments.get("positions.buckets") or -1,
        "share_att_key": arguments.get("positions.maps") == "shared",
        "norm_rel_ebd": "layer_norm" if arguments.get("positions.norm") else "none",
    }


def against(arguments: Mapping[str, Any]) -> list[str]:
    """Why positions do not fit."""
    if arguments["positions"] not in ("disentangled", "learned", "none"):
        return [f"positions is {arguments['positions']!r}, transformers' DeBERTa has 'disentangled', 'learned' or 'none'"]
    if arguments["positions"] != "disentangled":
        return []
    wrong = [] if arguments["positions.beyond"] else ["positions.beyond is False, transformers' DeBERTa has a row for such keys"]
    if arguments["positions.drop_as"] != "hidden" and arguments["dropout.hidden"] != arguments["dropout.attention"]:
        wrong.append("the vectors of distances have attention's dropout, in transformers' DeBERTa that of the states")
    return wrong


def distances(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    """The lines of absolute positions and of the table of distances, where a network has them."""
    lines: tuple[MappingLine, ...] = ()
    if arguments["positions"] == "learned" or arguments.get("positions.absolute") == "embeddings":
        lines += (MappingLine("embeddings.positions.weight", "{base}embeddings.position_embeddings.weight", "P D"),)
    elif arguments.get("positions.absolute") == "decoder":  # transformers ignores the tensor, which the authors' files have, too
        lines += (MappingLine("mask_decoder.positions.weight", "{base}embeddings.position_embeddings.weight", "P D"),)
    if arguments.get("segments"):
        lines += (encoder.SEGMENTS,)
    if arguments["positions"] == "disentangled":
        lines += (MappingLine("distances.table.weight", "{base}encoder.rel_embeddings.weight", "R D"),)
        if arguments["positions.norm"]:
            lines += (MappingLine("distances.norm.*", "{base}encoder.LayerNorm.*", "D"),)
    return lines


def _further(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    lines, attention = distances(arguments), "{base}encoder.layer.{i}.attention.self."
    if arguments.get("positions.maps") == "own":
        for ours, upstream, without in (("keys", "key", "position_to_content"), ("queries", "query", "content_to_position")):
            if arguments["positions.terms"] != without:
                lines += (MappingLine(f"layers.{{i}}.attention.distance_{ours}.*", f"{attention}pos_{upstream}_proj.*", "D D"),)
    if arguments.get("embedding.convolution.kernel"):
        lines += (
            MappingLine("convolution.map.*", "{base}encoder.conv.conv.*", "D G K"),
            MappingLine("convolution.norm.*", "{base}encoder.conv.LayerNorm.*", "D"),
        )
    return lines


def sizes(arguments: Mapping[str, Any]) -> dict[str, int]:
    """The letters of the lines: rows of distances, heads, and the convolution's."""
    sides = arguments.get("positions.buckets") or arguments.get("positions.max_length") or 0
    kernel, groups = arguments.get("embedding.convolution.kernel") or 0, arguments.get("embedding.convolution.groups") or 1
    return {"R": 2 * sides, "K": kernel, "G": arguments["width"] // groups, "H": arguments["heads"]}


def _resemblance(model: PortableModel, kind: str) -> int:
    """DeBERTa is a network with its positions; other networks are rather another system's."""
    return 3 if model.flat.get("positions") == "disentangled" else -1


def _recipe(model: PortableModel) -> str:
    return "deberta-base" if any(head.kind == "token_prediction" for head in model.heads.values()) else "deberta-v3-base"


def classes(prefix: str) -> tuple[ModelClass, ...]:
    """The classes of transformers whose names begin so, which v1 and v2 have; both tables of the masked-LM head belong to one."""
    masked = ModelClass(f"{prefix}ForMaskedLM", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask")
    return (
        masked, replace(masked, roles=frozenset({AUTHORS_LM.role})),
        ModelClass(f"{prefix}ForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE),
        tagger_class(prefix), answers_questions(f"{prefix}ForQuestionAnswering"),
    )


def last(prefix: str) -> ModelClass:
    """The class without heads."""
    return ModelClass(f"{prefix}Model", frozenset(), "AutoModel", "feature-extraction")


def settings(*, layers: int, width: int, heads: int, inner: int) -> tuple[Setting, ...]:
    """The keys of config.json; the numbers are transformers' own defaults."""
    shared = encoder.settings(layers=layers, width=width, heads=heads, inner=inner)
    apart = {"positions.max_length", "segments", "norm.epsilon"}
    return (
        *(setting for setting in shared if setting.ours not in apart),
        Setting("segments", "type_vocab_size", 0), Setting("norm.epsilon", "layer_norm_eps", 1e-7),
    )


DEBERTA_V2 = add(Architecture(
    name="deberta-v2",
    title="DeBERTa-v2",
    settings=settings(layers=24, width=1536, heads=24, inner=6144),
    fixed={"norm": "post", "norm.embedding": True, "norm.final": False},
    assumed={**encoder.ASSUMED, "initial": "normal", "positions.decoder_steps": 2},
    legal={"is_decoder": (False,), "add_cross_attention": (False,)},
    base="deberta.",
    body=body("query_proj", "key_proj", "value_proj"),
    further=_further,
    sizes=sizes,
    heads=(MASKED_LM, AUTHORS_LM, REPLACED, CLASSIFIER, TAGGER, ANSWER, CHOOSER),
    classes=(*classes("DebertaV2"), chooser_class("DebertaV2"), last("DebertaV2")),
    tokenizer_class="DebertaV2Tokenizer",
    reading=encoder.READING,
    recipe=_recipe,
    resemblance=_resemblance,
    from_config=_read,
    to_config=_write,
    further_objections=against,
    ignored=(*encoder.IGNORED, "{base}embeddings.position_embeddings.weight"),
))  # fmt: skip
