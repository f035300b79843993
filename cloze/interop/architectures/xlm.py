"""XLM ↔ transformers' `XLM*`.

Source: Cross-lingual Language Model Pretraining (Lample & Conneau, 2019) and facebookresearch/XLM. transformers has one class for
masked and causal models (`causal`); GELU is the erf form; the states of padding are zeroed in every layer.

Differs: transformers adds no language vector when it is given no languages, cloze takes language 0. It would add segments
through the table of words, which cloze never does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop.architecture import Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.classification import AUTO, PIPELINE, ROLE, chooser, chooser_class, summary_objections
from cloze.interop.mapping import STACKED, MappingLine
from cloze.interop.model import PortableHead, PortableModel
from cloze.interop.question_answering import ANSWER, answers_questions
from cloze.interop.tagging import TAGGER, tagger_class
from cloze.reading import Reading


def _prediction(head: PortableHead) -> list[str]:
    wrong = []
    if head.argument("transform"):
        wrong.append("it has a transform, transformers' XLM projects straight onto the vocabulary")
    if "head.bias" not in head.state:
        wrong.append("it has no bias, transformers' XLM has one")
    return wrong


PREDICTION = HeadTable(
    role="masked_lm",
    part="token_prediction",
    sign=("pred_layer.proj.bias",),
    lines=(MappingLine("head.bias", "pred_layer.proj.bias", "V"),),
    untied=(MappingLine("head.output.weight", "pred_layer.proj.weight", "V D"),),
    repeats={"pred_layer.proj.weight": "{base}embeddings.weight"},
    objections=lambda head, arguments: _prediction(head),
    arguments=lambda config, tensors: {"transform": None, "bias": True},
)

CLASSIFIER = HeadTable(
    role=ROLE,
    part="classify",
    sign=("sequence_summary.summary.weight",),
    lines=(MappingLine("head.output.*", "sequence_summary.summary.*", "C D"),),
    objections=lambda head, arguments: summary_objections(head, None, bias=True),
    arguments=lambda config, tensors: {
        "classes": int(tensors["sequence_summary.summary.weight"].shape[0]), "set": "label", "reading": "summary",
        "transform": None,
    },
    required={"summary_type": "first", "summary_use_proj": True, "summary_activation": None, "summary_proj_to_labels": True},
)


#: Its summary is as wide as the number of labels, here as the states: a dense map with tanh, and one output.
CHOOSER = replace(
    chooser(
        MappingLine("head.pool.*", "sequence_summary.summary.*", "D D"), "logits_proj.weight",
        pooler="sequence_summary.summary.weight"
    ),
    required={**CLASSIFIER.required, "summary_activation": "tanh"},
    if_absent={"summary_activation": None},
    to_config=lambda head: {"num_labels": len(head.state["head.pool.bias"])},
)


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    languages = config.get("n_langs", 1) if config.get("use_lang_emb", True) else 1
    if not isinstance(languages, int) or languages < 1:
        raise ValueError(f"n_langs is {languages!r}; expected the number of languages.")
    return {
        "feed_forward.inner": 4 * config.get("emb_dim", 2048),
        "feed_forward.activation": "gelu" if config.get("gelu_activation", True) else "relu",
        "positions": "sinusoid" if config.get("sinusoidal_embeddings", False) else "learned",
        "embedding.inputs": {"language": languages} if languages > 1 else None,
    }


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    return {
        "emb_dim": arguments["width"],
        "gelu_activation": arguments["feed_forward.activation"] == "gelu",
        "sinusoidal_embeddings": arguments["positions"] == "sinusoid",
        "causal": order == "left_to_right",
        "n_langs": _languages(arguments) or 1,
        "use_lang_emb": True,
        "embed_init_std": arguments["width"] ** -0.5,
    }


def _languages(arguments: Mapping[str, Any]) -> int:
    return int((arguments.get("embedding.inputs") or {}).get("language", 0))


def recipe_of(model: PortableModel, single: str) -> str:
    """The recipe for such a model, by its order and its languages; `single` if it reads one language in both directions."""
    if model.order == "left_to_right":
        return "xlm-15-clm"
    return "xlm-15-mlm" if _languages(model.flat) else single


def _against(arguments: Mapping[str, Any]) -> list[str]:
    wrong = []
    if arguments["feed_forward.inner"] != 4 * arguments["width"]:
        inner, four = arguments["feed_forward.inner"], 4 * arguments["width"]
        wrong.append(f"inner is {inner}, transformers' XLM has four times the width, {four}")
    if arguments["feed_forward.activation"] not in ("gelu", "relu"):
        wrong.append(f"activation is {arguments['feed_forward.activation']!r}, transformers' XLM has 'gelu' (erf) or 'relu'")
    if arguments["positions"] not in ("learned", "sinusoid"):
        wrong.append(f"positions is {arguments['positions']!r}, transformers' XLM has 'learned' or 'sinusoid'")
    inputs = arguments.get("embedding.inputs")
    if inputs and (set(inputs) != {"language"} or inputs["language"] < 2):
        wrong.append(f"embedding.inputs is {dict(inputs)}, transformers' XLM has two or more languages or no further inputs")
    return wrong


def _beware(arguments: Mapping[str, Any]) -> list[str]:
    if not _languages(arguments):
        return []
    return ["transformers adds a language's vector only where it is given `langs`; cloze reads language 0 unless told another."]


def _tables(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    if not _languages(arguments):
        return ()
    return (MappingLine("embeddings.inputs.language.weight", "{base}lang_embeddings.weight", "G D"),)


XLM = add(Architecture(
    name="xlm",
    title="XLM",
    settings=(
        Setting("layers", "n_layers", 12),
        Setting("width", "emb_dim", 2048),
        Setting("heads", "n_heads", 16),
        Setting("positions.max_length", "max_position_embeddings", 512),
        Setting("norm.epsilon", "layer_norm_eps", 1e-12),
        Setting("dropout.hidden", "dropout", 0.1),
        Setting("dropout.attention", "attention_dropout", 0.1),
        Setting("initial.std", "init_std", 0.02),
    ),
    fixed={"norm": "post", "norm.embedding": True, "norm.final": False},
    assumed={"initial": "uniform", "initial.residual": "as_drawn", "initial.positions": None, "segments": 0},
    legal={"asm": (False,), "is_encoder": (True,)},
    base="transformer.",
    body=(
        MappingLine("embeddings.tokens.weight", "{base}embeddings.weight", "V D"),
        MappingLine("embeddings.positions.weight", "{base}position_embeddings.weight", "P D"),
        MappingLine("embeddings.norm.*", "{base}layer_norm_emb.*", "D"),
        MappingLine(
            "layers.{i}.attention.projections.*",
            tuple(f"{{base}}attentions.{{i}}.{name}_lin.*" for name in "qkv"),
            "3D D",
            STACKED,
        ),
        MappingLine("layers.{i}.attention.out.*", "{base}attentions.{i}.out_lin.*", "D D"),
        MappingLine("layers.{i}.attention_norm.*", "{base}layer_norm1.{i}.*", "D"),
        MappingLine("layers.{i}.inner.*", "{base}ffns.{i}.lin1.*", "I D"),
        MappingLine("layers.{i}.outer.*", "{base}ffns.{i}.lin2.*", "D I"),
        MappingLine("layers.{i}.inner_norm.*", "{base}layer_norm2.{i}.*", "D"),
    ),
    further=_tables,
    sizes=lambda arguments: {"G": _languages(arguments)},
    heads=(PREDICTION, CLASSIFIER, TAGGER, ANSWER, CHOOSER),
    classes=(
        ModelClass("XLMWithLMHeadModel", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask"),
        ModelClass("XLMForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE),
        tagger_class("XLM"),
        answers_questions("XLMForQuestionAnsweringSimple"),
        chooser_class("XLM"),
        ModelClass("XLMModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="XLMTokenizer",
    reading=Reading("[BOS] {A} [SEP]", "[BOS] {A} [SEP] {B} [SEP]", "first"),
    recipe=lambda model: recipe_of(model, "xlm-en"),
    orders=("open", "left_to_right"),
    order_of=lambda config: "left_to_right" if config.get("causal", False) else "open",
    from_config=_read,
    to_config=_write,
    further_objections=_against,
    remarks=_beware,
    tokens={
        "bos_token_id": ("[BOS]", "[CLS]"), "eos_token_id": ("[EOS]", "[SEP]"), "mask_token_id": ("[MASK]",),
        "mask_index": ("[MASK]",), "unk_index": ("[UNK]",),
    },
    ignored=("{base}position_ids",),
))
