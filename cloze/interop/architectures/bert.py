"""BERT ↔ transformers' `Bert*`.

Source: BERT: Pre-training of Deep Bidirectional Transformers (Devlin et al., 2019); the published code's GELU is the tanh
form, which transformers calls `gelu_new`; transformers' `gelu` is the erf form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import ACTIVATIONS_BACK, Architecture, HeadTable, ModelClass, add
from cloze.interop.classification import CHOOSER, chooser_class
from cloze.interop.mapping import MappingLine
from cloze.interop.model import PortableHead
from cloze.interop.question_answering import ANSWER, answers_questions
from cloze.interop.tagging import TAGGER, tagger_class


def _masked_lm_objections(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    return encoder.prediction_objections(head, arguments, arguments["feed_forward.activation"])


def _masked_lm_arguments(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    activation = ACTIVATIONS_BACK[config.get("hidden_act", "gelu")]
    return {"transform": activation, "bias": True, "norm_epsilon": config.get("layer_norm_eps", 1e-12)}


MASKED_LM = HeadTable(
    role="masked_lm",
    part="token_prediction",
    sign=("cls.predictions.transform.dense.weight",),
    lines=(
        MappingLine("head.dense.*", "cls.predictions.transform.dense.*", "D D"),
        MappingLine("head.norm.*", "cls.predictions.transform.LayerNorm.*", "D"),
    ),
    tied=(MappingLine("head.bias", "cls.predictions.bias", "V"),),
    untied=(
        MappingLine("head.bias", "cls.predictions.decoder.bias", "V"),
        MappingLine("head.output.weight", "cls.predictions.decoder.weight", "V D"),
    ),
    repeats={
        "cls.predictions.decoder.weight": "{base}embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    copies={"cls.predictions.bias": "cls.predictions.decoder.bias"},
    objections=_masked_lm_objections,
    arguments=_masked_lm_arguments,
)

NEXT_SENTENCE = encoder.pooled_head(
    "next_sentence", pool="{base}pooler.dense", output="cls.seq_relationship", classes=2, set="next", own_name=True
)
CLASSIFIER = encoder.pooled_head("classifier", pool="{base}pooler.dense", output="classifier")

BERT = add(Architecture(
    name="bert",
    title="BERT",
    settings=encoder.settings(layers=12, width=768, heads=12, inner=3072),
    fixed=encoder.FIXED,
    assumed=encoder.ASSUMED,
    legal=encoder.LEGAL,
    base="bert.",
    body=encoder.body(),
    segments=encoder.SEGMENTS,
    heads=(MASKED_LM, NEXT_SENTENCE, CLASSIFIER, TAGGER, ANSWER, CHOOSER),
    classes=(
        ModelClass("BertForPreTraining", frozenset({"masked_lm", "next_sentence"}), "AutoModelForPreTraining", "fill-mask"),
        ModelClass("BertForMaskedLM", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask"),
        ModelClass("BertForNextSentencePrediction", frozenset({"next_sentence"}), "AutoModelForNextSentencePrediction"),
        ModelClass(
            "BertForSequenceClassification",
            frozenset({"classifier"}),
            "AutoModelForSequenceClassification",
            "text-classification",
        ),
        tagger_class("Bert"),
        answers_questions("BertForQuestionAnswering"),
        chooser_class("Bert"),
        ModelClass("BertModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="BertTokenizer",
    reading=encoder.READING,
    recipe=lambda model: "bert",
    resemblance=lambda model, kind: 1,
    ignored=encoder.IGNORED,
    has_pooler=True,
))
