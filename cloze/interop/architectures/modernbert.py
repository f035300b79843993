"""ModernBERT ↔ transformers' `ModernBert*`.

Source: Smarter, Better, Faster, Longer (Warner et al., 2024), and transformers' class: rotary positions with one base for
global and one for local layers, a gated feed-forward map whose first half is activated, no offsets in norms, no norm in front
of the first attention.

Differs: transformers applies dropout after the gate (`mlp_dropout`), and `attention_dropout` also to attention's output; cloze
applies dropout to the input of the residual. All of these are 0 in the published models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop import encoder, question_answering, tagging
from cloze.interop.architecture import ACTIVATIONS, ACTIVATIONS_BACK, Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.classification import AUTO, PIPELINE, ROLE, chooser_class, summary_objections
from cloze.interop.mapping import MappingLine
from cloze.interop.model import PortableHead
from cloze.objectives.transforms import Gelu

GLOBAL, LOCAL = "full_attention", "sliding_attention"


def _prediction(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    wrong = encoder.prediction_objections(head, arguments, "gelu")
    if head.argument("transform") and {"head.dense.bias", "head.norm.bias"} & set(head.state):
        wrong.append("its dense map or its norm has a bias, transformers' ModernBERT has neither")
    return wrong


def dense_lines(name: str) -> tuple[MappingLine, ...]:
    """The dense map and the norm without offsets in front of the outputs; `name` is their name in transformers."""
    return (
        MappingLine("head.dense.weight", f"{name}.dense.weight", "D D"),
        MappingLine("head.norm.weight", f"{name}.norm.weight", "D"),
    )


MASKED_LM = HeadTable(
    role="masked_lm",
    part="token_prediction",
    sign=("head.dense.weight", "decoder.bias"),
    lines=(*dense_lines("head"), MappingLine("head.bias", "decoder.bias", "V")),
    untied=(MappingLine("head.output.weight", "decoder.weight", "V D"),),
    repeats={"decoder.weight": "{base}embeddings.tok_embeddings.weight"},
    objections=_prediction,
    arguments=lambda config, tensors: {
        "transform": "gelu", "bias": True, "biases": False,
        "norm_epsilon": config.get("norm_eps", 1e-5),
    },
)


def _transform(config: Mapping[str, Any]) -> dict[str, Any]:
    """The dense map, GELU and norm without offsets that transformers' ModernBERT has before the outputs."""
    return {"gelu": {"norm_epsilon": config.get("norm_eps", 1e-5), "biases": False}}


def _same_transform(head: PortableHead, arguments: Mapping[str, Any]) -> bool:
    return head.transform == Gelu(norm_epsilon=arguments["norm.epsilon"], biases=False)


#: The `classifier_pooling` of transformers for each state that a classifier of cloze reads.
POOLING = {"summary": "cls", "mean": "mean"}


def classifier_objections(
    head: PortableHead, arguments: Mapping[str, Any], readings: tuple[str, ...] = tuple(POOLING)
) -> list[str]:
    """The reasons why a head is not dense, GELU, norm and output on one of the `readings`."""
    wrong = summary_objections(head, "gelu", norm=True, readings=readings)
    epsilon = None if head.transform is None else head.transform.norm_epsilon
    if epsilon != arguments["norm.epsilon"]:
        wrong.append(f"norm_epsilon is {epsilon}, transformers' ModernBERT has the network's there")
    if head.transform is not None and head.transform.biases:
        wrong.append("its dense map has a bias, transformers' ModernBERT has none there")
    return wrong


CLASSIFIER = HeadTable(
    role=ROLE,
    part="classify",
    sign=("head.dense.weight", "classifier.weight"),
    lines=(*dense_lines("head"), MappingLine("head.output.*", "classifier.*", "C D")),
    objections=classifier_objections,
    arguments=lambda config, tensors: {
        "classes": int(tensors["classifier.weight"].shape[0]), "set": "label", "transform": _transform(config),
        "reading": "mean" if config.get("classifier_pooling") == POOLING["mean"] else "summary",
    },
    to_config=lambda head: {"classifier_pooling": POOLING[str(head.argument("reading"))]},
)


def _tagger(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    if head.argument("mixed") or head.argument("encoder"):
        return ["it reads more than the states of the network, transformers' ModernBERT has a dense map on them"]
    if not _same_transform(head, arguments):
        return ["it has no dense map with GELU and a norm without offsets, which transformers' ModernBERT has before the classes"]
    return []


TAGGER = HeadTable(
    role=tagging.ROLE,
    part="sequence_labelling",
    sign=("head.dense.weight", "classifier.weight"),
    lines=CLASSIFIER.lines,
    objections=_tagger,
    arguments=lambda config, tensors: {
        "classes": int(tensors["classifier.weight"].shape[0]), "set": "label", "transform": _transform(config),
    },
    by_class=True,
)


def _lines(rows: int) -> tuple[MappingLine, ...]:
    """A dense map and a norm without offsets, and so many outputs."""
    return (*dense_lines("head"), MappingLine("head.output.*", "classifier.*", f"{rows} D"))


def _answer(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    if _same_transform(head, arguments):
        return []
    return ["it has no dense map with GELU and a norm without offsets, which transformers' ModernBERT has before the two scores"]


ANSWER = HeadTable(
    role=question_answering.ROLE,
    part="span_extraction",
    sign=CLASSIFIER.sign,
    lines=_lines(2),
    objections=_answer,
    arguments=lambda config, tensors: {"set": "answer", "transform": _transform(config)},
    by_class=True,
)


def _choice(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    arguments = CLASSIFIER.arguments(config, tensors)
    del arguments["classes"]
    return arguments


CHOOSER = replace(CLASSIFIER, role="chooser", part="choose", lines=_lines(1), arguments=_choice, by_class=True)


def read(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not in a single key."""
    layers = config.get("num_hidden_layers", 22)
    every = config.get("global_attn_every_n_layers", 3)
    types = config.get("layer_types") or _types(layers, 1, every)
    if "global_attn_every_n_layers" not in config or types != _types(layers, 1, every):
        every = _every(types)
    width = config.get("local_attention", 128)
    if LOCAL in types and not isinstance(width, int):
        raise ValueError(f"local_attention is {width!r}; cloze's transformer needs a number of tokens for its local layers.")
    band = width if LOCAL in types else None
    return {
        "attention.biases": bool(config.get("attention_bias", False)),
        "feed_forward.biases": bool(config.get("mlp_bias", False)),
        "attention.band.width": band, "attention.band.dense_every": every if band is not None else None,
        "positions.base": _base(config, GLOBAL, "global_rope_theta", 160000.0),
        "positions.local_base": _base(config, LOCAL, "local_rope_theta", 10000.0),
    }


def _types(layers: int, band: int | None, every: int | None) -> list[str]:
    """The type of each layer: all global without a band, every nth global with one."""
    return [GLOBAL if band is None or (every and layer % every == 0) else LOCAL for layer in range(layers)]


def _every(types: list[str]) -> int | None:
    """Every how many layers a layer is global, starting with layer 0; None if none is."""
    if GLOBAL not in types:
        return None
    every = next((number for number, kind in enumerate(types) if number and kind == GLOBAL), len(types))
    if types != _types(len(types), 1, every):
        raise ValueError(f"layer_types is {types}; cloze's transformer has a global layer at equal steps from the first.")
    return every


def _base(config: Mapping[str, Any], kind: str, old: str, default: float) -> float:
    rope = (config.get("rope_parameters") or {}).get(kind) or {}
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"rope_type is {rope['rope_type']!r}; cloze's transformer has 'default'.")
    return float(rope.get("rope_theta", config.get(old, default)))


def write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    """The keys that say more or less than one argument."""
    band, every = arguments.get("attention.band.width"), arguments.get("attention.band.dense_every")
    bases = {GLOBAL: arguments.get("positions.base", 10000.0), LOCAL: arguments.get("positions.local_base", 10000.0)}
    return {
        "attention_bias": arguments["attention.biases"],
        "mlp_bias": arguments["feed_forward.biases"],
        "norm_bias": False,
        "local_attention": band or 128,
        "layer_types": _types(arguments["layers"], band, every),
        **({"global_attn_every_n_layers": every} if every else {}),
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        "global_rope_theta": bases[GLOBAL], "local_rope_theta": bases[LOCAL],  # what transformers 4 reads
        "num_hidden_layers": arguments["layers"],
    }


def body(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    """The maps, with their biases or without."""
    attention, dense = ("*" if arguments[name] else "weight" for name in ("attention.biases", "feed_forward.biases"))
    prefix = "{base}layers.{i}."
    return (
        MappingLine(f"layers.{{i}}.attention.projections.{attention}", f"{prefix}attn.Wqkv.{attention}", "3D D"),
        MappingLine(f"layers.{{i}}.attention.out.{attention}", f"{prefix}attn.Wo.{attention}", "D D"),
        MappingLine(f"layers.{{i}}.inner.{dense}", f"{prefix}mlp.Wi.{dense}", "2I D"),
        MappingLine(f"layers.{{i}}.outer.{dense}", f"{prefix}mlp.Wo.{dense}", "D I"),
    )


MODERNBERT = add(Architecture(
    name="modernbert",
    title="ModernBERT",
    settings=(
        Setting("layers", "num_hidden_layers", 22),
        Setting("width", "hidden_size", 768),
        Setting("heads", "num_attention_heads", 12),
        Setting("feed_forward.inner", "intermediate_size", 1152),
        Setting("positions.max_length", "max_position_embeddings", 8192),
        Setting("feed_forward.activation", "hidden_activation", "gelu", ACTIVATIONS.__getitem__, ACTIVATIONS_BACK.__getitem__),
        Setting("norm.epsilon", "norm_eps", 1e-5),
        Setting("dropout.hidden", "embedding_dropout", 0.0),
        Setting("dropout.hidden", "mlp_dropout", 0.0),
        Setting("dropout.attention", "attention_dropout", 0.0),
        Setting("initial.std", "initializer_range", 0.02),
    ),
    fixed={
        "norm": "pre", "positions": "rotary", "norm.embedding": True, "norm.final": True, "norm.first": False,
        "norm.kind": "layer_without_biases", "feed_forward": "gated",
    },
    assumed={"initial": "truncated", "initial.residual": "scaled", "initial.positions": None, "segments": 0},
    legal={
        "norm_bias": (False,), "classifier_bias": (False,), "decoder_bias": (True,), "classifier_activation": ("gelu",),
        "classifier_pooling": tuple(POOLING.values()),
    },
    base="model.",
    body=(
        MappingLine("embeddings.tokens.weight", "{base}embeddings.tok_embeddings.weight", "V D"),
        MappingLine("embeddings.norm.weight", "{base}embeddings.norm.weight", "D"),
        MappingLine("layers.{i}.attention_norm.weight", "{base}layers.{i}.attn_norm.weight", "D", first=1),
        MappingLine("layers.{i}.inner_norm.weight", "{base}layers.{i}.mlp_norm.weight", "D"),
        MappingLine("norm.weight", "{base}final_norm.weight", "D"),
    ),
    further=body,
    heads=(MASKED_LM, CLASSIFIER, TAGGER, ANSWER, CHOOSER),
    classes=(
        ModelClass("ModernBertForMaskedLM", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask"),
        ModelClass("ModernBertForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE),
        tagging.tagger_class("ModernBert"),
        question_answering.answers_questions("ModernBertForQuestionAnswering"),
        chooser_class("ModernBert"),
        ModelClass("ModernBertModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="PreTrainedTokenizerFast",
    reading=encoder.READING,
    recipe=lambda model: "modern",
    from_config=read,
    to_config=write,
    tokens={
        "bos_token_id": ("[BOS]", "[CLS]"), "eos_token_id": ("[EOS]", "[SEP]"), "cls_token_id": ("[CLS]",),
        "sep_token_id": ("[SEP]",),
    },
))
