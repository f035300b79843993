"""DistilBERT ↔ transformers' `DistilBert*`: BERT's layers under other names, without segments and without a pooling layer.

Source: DistilBERT, a distilled version of BERT (Sanh et al., 2019). Its classifier has a dense map with ReLU. With
`sinusoidal_pos_embds` transformers only starts the table of positions from sinusoids: the folder holds the table all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import ACTIVATIONS, ACTIVATIONS_BACK, Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.classification import chooser, summary_objections
from cloze.interop.mapping import STACKED, MappingLine
from cloze.interop.question_answering import ANSWER, answers_questions
from cloze.interop.tagging import TAGGER, tagger_class

_LAYER = "{base}transformer.layer.{i}."
_DENSE = MappingLine("head.dense.*", "pre_classifier.*", "D D")


def _masked_lm_arguments(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    activation = ACTIVATIONS_BACK[config.get("activation", "gelu")]
    return {"transform": activation, "bias": True, "norm_epsilon": 1e-12}


MASKED_LM = HeadTable(
    role="masked_lm",
    part="token_prediction",
    sign=("vocab_transform.weight",),
    lines=(
        MappingLine("head.dense.*", "vocab_transform.*", "D D"),
        MappingLine("head.norm.*", "vocab_layer_norm.*", "D"),
        MappingLine("head.bias", "vocab_projector.bias", "V"),
    ),
    untied=(MappingLine("head.output.weight", "vocab_projector.weight", "V D"),),
    repeats={"vocab_projector.weight": "{base}embeddings.word_embeddings.weight"},
    objections=lambda head, arguments: encoder.prediction_objections(head, arguments, arguments["feed_forward.activation"]),
    arguments=_masked_lm_arguments,
)

CLASSIFIER = HeadTable(
    role="classifier",
    part="classify",
    sign=("pre_classifier.weight", "classifier.weight"),
    lines=(_DENSE, MappingLine("head.output.*", "classifier.*", "C D")),
    objections=lambda head, arguments: summary_objections(head, "relu"),
    arguments=lambda config, tensors: {
        "classes": int(tensors["classifier.weight"].shape[0]), "set": "label", "reading": "summary", "transform": "relu",
    },
)

DISTILBERT = add(Architecture(
    name="distilbert",
    title="DistilBERT",
    settings=(
        Setting("layers", "n_layers", 6),
        Setting("width", "dim", 768),
        Setting("heads", "n_heads", 12),
        Setting("feed_forward.inner", "hidden_dim", 3072),
        Setting("positions.max_length", "max_position_embeddings", 512),
        Setting("feed_forward.activation", "activation", "gelu", ACTIVATIONS.__getitem__, ACTIVATIONS_BACK.__getitem__),
        Setting("dropout.hidden", "dropout", 0.1),
        Setting("dropout.attention", "attention_dropout", 0.1),
        Setting("initial.std", "initializer_range", 0.02),
    ),
    fixed={**encoder.FIXED, "norm.epsilon": 1e-12},
    assumed=encoder.ASSUMED,
    legal={},
    base="distilbert.",
    body=(
        MappingLine("embeddings.tokens.weight", "{base}embeddings.word_embeddings.weight", "V D"),
        MappingLine("embeddings.positions.weight", "{base}embeddings.position_embeddings.weight", "P D"),
        MappingLine("embeddings.norm.*", "{base}embeddings.LayerNorm.*", "D"),
        MappingLine(
            "layers.{i}.attention.projections.*",
            tuple(_LAYER + f"attention.{name}_lin.*" for name in "qkv"), "3D D", STACKED,
        ),
        MappingLine("layers.{i}.attention.out.*", _LAYER + "attention.out_lin.*", "D D"),
        MappingLine("layers.{i}.attention_norm.*", _LAYER + "sa_layer_norm.*", "D"),
        MappingLine("layers.{i}.inner.*", _LAYER + "ffn.lin1.*", "I D"),
        MappingLine("layers.{i}.outer.*", _LAYER + "ffn.lin2.*", "D I"),
        MappingLine("layers.{i}.inner_norm.*", _LAYER + "output_layer_norm.*", "D"),
    ),
    heads=(MASKED_LM, CLASSIFIER, TAGGER, ANSWER, chooser(_DENSE, "classifier.weight", transform="relu")),
    classes=(
        ModelClass("DistilBertForMaskedLM", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask"),
        ModelClass(
            "DistilBertForSequenceClassification",
            frozenset({"classifier"}),
            "AutoModelForSequenceClassification",
            "text-classification",
        ),
        tagger_class("DistilBert"),
        answers_questions("DistilBertForQuestionAnswering"),
        ModelClass("DistilBertForMultipleChoice", frozenset({"chooser"}), "AutoModelForMultipleChoice", "multiple-choice"),
        ModelClass("DistilBertModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="DistilBertTokenizer",
    reading=encoder.READING,
    recipe=lambda model: "bert",
    ignored=("{base}embeddings.position_ids",),
))  # fmt: skip
