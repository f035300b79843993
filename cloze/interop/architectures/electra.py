"""ELECTRA ↔ transformers' `Electra*`: the discriminator as `ElectraForPreTraining`, the generator as `ElectraForMaskedLM`.

Source: ELECTRA (Clark et al., 2020). Embeddings of a width of their own are projected after their norm
(`embeddings_project`). Each of the two networks is a whole folder with the embeddings in it, although training shares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import ACTIVATIONS_BACK, Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.classification import ELECTRA_CHOOSER, ELECTRA_CLASS, ELECTRA_CLASSIFIER, chooser_class
from cloze.interop.mapping import MappingLine
from cloze.interop.model import PortableHead, PortableModel
from cloze.interop.question_answering import ANSWER, answers_questions
from cloze.interop.tagging import TAGGER, tagger_class


def _labelling_objections(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    wrong = []
    if head.argument("classes") != 2:
        wrong.append(f"it has {head.argument('classes')} classes, transformers has original and replaced")
    if head.argument("transform") != arguments["feed_forward.activation"]:
        activation = arguments["feed_forward.activation"]
        wrong.append(f"its transform is not the network's activation {activation}, as it is in transformers")
    return wrong


def _labelling_arguments(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {"classes": 2, "set": "replaced", "transform": ACTIVATIONS_BACK[config.get("hidden_act", "gelu")]}


REPLACED = HeadTable(
    role="replaced",
    part="token_labelling",
    sign=("discriminator_predictions.dense_prediction.weight",),
    lines=(
        MappingLine("head.dense.*", "discriminator_predictions.dense.*", "D D"),
        MappingLine("head.output.*", "discriminator_predictions.dense_prediction.*", "1 D"),
    ),
    objections=_labelling_objections,
    arguments=_labelling_arguments,
)

MASKED_LM = HeadTable(
    role="masked_lm",
    part="token_prediction",
    sign=("generator_predictions.dense.weight",),
    lines=(
        MappingLine("head.dense.*", "generator_predictions.dense.*", "E D"),
        MappingLine("head.norm.*", "generator_predictions.LayerNorm.*", "E"),
        MappingLine("head.bias", "generator_lm_head.bias", "V"),
    ),
    untied=(MappingLine("head.output.weight", "generator_lm_head.weight", "V E"),),
    repeats={"generator_lm_head.weight": "{base}embeddings.word_embeddings.weight"},
    # transformers fixes the erf form in this head, whatever hidden_act says
    objections=lambda head, arguments: encoder.prediction_objections(head, arguments, "gelu"),
    arguments=lambda config, tensors: {
        "transform": "gelu", "bias": True, "norm_epsilon": config.get("layer_norm_eps", 1e-12)
    },
)


def _resemblance(model: PortableModel, kind: str) -> int:
    """How much a model resembles ELECTRA: narrower embeddings, or a head that labels tokens without one that predicts them."""
    parts = {head.part for head in model.heads.values()}
    narrower = model.flat.get("embedding.project", False)
    return 3 if narrower or ("token_labelling" in parts and "token_prediction" not in parts) else 0


PROJECT = MappingLine("project.*", "{base}embeddings_project.*", "D E")

ELECTRA = add(Architecture(
    name="electra",
    title="ELECTRA",
    settings=(
        *encoder.settings(layers=12, width=256, heads=4, inner=1024),
        Setting("embedding.width", "embedding_size", 128),
    ),
    fixed=encoder.FIXED,
    assumed=encoder.ASSUMED,
    legal=encoder.LEGAL,
    base="electra.",
    body=encoder.body(),
    segments=encoder.SEGMENTS,
    project=PROJECT,
    heads=(REPLACED, MASKED_LM, ELECTRA_CLASSIFIER, TAGGER, ANSWER, ELECTRA_CHOOSER),
    classes=(
        ModelClass("ElectraForPreTraining", frozenset({"replaced"}), "AutoModelForPreTraining"),
        ModelClass("ElectraForMaskedLM", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask"),
        ELECTRA_CLASS,
        tagger_class("Electra"),
        answers_questions("ElectraForQuestionAnswering"),
        chooser_class("Electra"),
        ModelClass("ElectraModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="ElectraTokenizer",
    reading=encoder.READING,
    recipe=lambda model: "bert" if any(head.kind == "token_prediction" for head in model.heads.values()) else "electra-small",
    resemblance=_resemblance,
    ignored=encoder.IGNORED,
))
