"""ALBERT ↔ transformers' `Albert*`.

Source: ALBERT (Lan et al., 2020) and google-research/albert. Layers share all their parameters in groups; the file contains each
group once. Embeddings are always projected to the width of the layers, even if the two are equal.

Differs: transformers has no dropout after the feed-forward map and one in front of the sentence-order head; outputs without
dropout agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import ACTIVATIONS_BACK, Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.classification import ALBERT_CHOOSER, chooser_class
from cloze.interop.mapping import STACKED, MappingLine
from cloze.interop.question_answering import ANSWER, answers_questions
from cloze.interop.tagging import TAGGER, tagger_class

MASKED_LM = HeadTable(
    role="masked_lm",
    part="token_prediction",
    sign=("predictions.dense.weight",),
    lines=(
        MappingLine("head.dense.*", "predictions.dense.*", "E D"),
        MappingLine("head.norm.*", "predictions.LayerNorm.*", "E"),
        MappingLine("head.bias", "predictions.bias", "V"),
    ),
    repeats={
        "predictions.decoder.weight": "{base}embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    objections=lambda head, arguments: (
        encoder.prediction_objections(head, arguments, arguments["feed_forward.activation"])
        + ([] if head.argument("tie") else ["its output weights are its own, transformers' ALBERT has the token table"])
    ),
    arguments=lambda config, tensors: {
        "transform": ACTIVATIONS_BACK[config.get("hidden_act", "gelu_new")], "bias": True,
        "norm_epsilon": config.get("layer_norm_eps", 1e-12),
    },
)

SENTENCE_ORDER = encoder.pooled_head(
    "sentence_order", pool="{base}pooler", output="sop_classifier.classifier", classes=2, set="order", own_name=True
)
CLASSIFIER = encoder.pooled_head("classifier", pool="{base}pooler", output="classifier")


def _groups(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    """The layers that hold parameters, the first of each group: layer i of L is in group i·groups // L."""
    lines = []
    for group in range(arguments["share.groups"]):
        ours = f"layers.{-(-group * arguments['layers'] // arguments['share.groups'])}."
        upstream = f"{{base}}encoder.albert_layer_groups.{group}.albert_layers.0."
        parts = tuple(upstream + f"attention.{name}.*" for name in ("query", "key", "value"))
        lines += [
            MappingLine(ours + "attention.projections.*", parts, "3D D", STACKED),
            MappingLine(ours + "attention.out.*", upstream + "attention.dense.*", "D D"),
            MappingLine(ours + "attention_norm.*", upstream + "attention.LayerNorm.*", "D"),
            MappingLine(ours + "inner.*", upstream + "ffn.*", "I D"),
            MappingLine(ours + "outer.*", upstream + "ffn_output.*", "D I"),
            MappingLine(ours + "inner_norm.*", upstream + "full_layer_layer_norm.*", "D"),
        ]
    return (*lines, MappingLine("project.*", "{base}encoder.embedding_hidden_mapping_in.*", "D E"))


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    layers, groups = config.get("num_hidden_layers", 12), config.get("num_hidden_groups", 1)
    if groups > layers:
        raise ValueError(f"num_hidden_groups is {groups} for {layers} layers; some groups would never be read.")
    return {}


def _settings() -> tuple[Setting, ...]:
    """The settings of the encoders; transformers' defaults are those of the xxlarge model."""
    defaults = {"feed_forward.activation": "gelu_new", "dropout.hidden": 0.0, "dropout.attention": 0.0}
    shared = encoder.settings(layers=12, width=4096, heads=64, inner=16384)
    return (
        *(replace(setting, default=defaults.get(setting.ours, setting.default)) for setting in shared),
        Setting("embedding.width", "embedding_size", 128),
        Setting("share.groups", "num_hidden_groups", 1),
    )


ALBERT = add(Architecture(
    name="albert",
    title="ALBERT",
    settings=_settings(),
    fixed={**encoder.FIXED, "share.weights": "all", "embedding.project": True},
    assumed=encoder.ASSUMED,
    legal={**encoder.LEGAL, "inner_group_num": (1,), "tie_word_embeddings": (True,)},
    base="albert.",
    body=(
        MappingLine("embeddings.tokens.weight", "{base}embeddings.word_embeddings.weight", "V E"),
        MappingLine("embeddings.positions.weight", "{base}embeddings.position_embeddings.weight", "P E"),
        MappingLine("embeddings.norm.*", "{base}embeddings.LayerNorm.*", "E"),
    ),
    further=_groups,
    segments=encoder.SEGMENTS,
    heads=(MASKED_LM, SENTENCE_ORDER, CLASSIFIER, TAGGER, ANSWER, ALBERT_CHOOSER),
    classes=(
        ModelClass("AlbertForPreTraining", frozenset({"masked_lm", "sentence_order"}), "AutoModelForPreTraining", "fill-mask"),
        ModelClass("AlbertForMaskedLM", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask"),
        ModelClass(
            "AlbertForSequenceClassification",
            frozenset({"classifier"}),
            "AutoModelForSequenceClassification",
            "text-classification",
        ),
        tagger_class("Albert"),
        answers_questions("AlbertForQuestionAnswering"),
        chooser_class("Albert"),
        ModelClass("AlbertModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="BertTokenizer",
    reading=encoder.READING,
    from_config=_read,
    recipe=lambda model: "albert-base",
    tokens={"bos_token_id": ("[BOS]", "[CLS]"), "eos_token_id": ("[EOS]", "[SEP]")},
    ignored=encoder.IGNORED,
    has_pooler=True,
))
