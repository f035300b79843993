"""RoBERTa ↔ transformers' `Roberta*`, its network under the names `XLMRoberta*`, `Camembert*` and `Data2VecText*`, and with norms
in front of what is added `RobertaPreLayerNorm*` (fairseq's `--encoder-normalize-before`) and `XLMRobertaXL*`.

Source: RoBERTa (Liu et al., 2019). In fairseq and transformers, the positions of real tokens begin at `pad + 1`, so their table
begins with `pad + 1` rows for padding; ours begins with the first real position. The single segment row is a constant: it is
added to the positions when read, and written as zeros.

Differs: transformers' `XLMRobertaXL*` has no dropout behind the feed-forward; cloze has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import Architecture, HeadTable, ModelClass, add
from cloze.interop.classification import CHOOSER, chooser_class
from cloze.interop.mapping import SHIFTED, MappingLine
from cloze.interop.question_answering import ANSWER, answers_questions
from cloze.interop.tagging import TAGGER, tagger_class
from cloze.reading import Reading

MASKED_LM = HeadTable(
    role="masked_lm",
    part="token_prediction",
    sign=("lm_head.dense.weight",),
    lines=(
        MappingLine("head.dense.*", "lm_head.dense.*", "D D"),
        MappingLine("head.norm.*", "lm_head.layer_norm.*", "D"),
    ),
    tied=(MappingLine("head.bias", "lm_head.bias", "V"),),
    untied=(
        MappingLine("head.bias", "lm_head.decoder.bias", "V"),
        MappingLine("head.output.weight", "lm_head.decoder.weight", "V D"),
    ),
    repeats={
        "lm_head.decoder.weight": "{base}embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    copies={"lm_head.bias": "lm_head.decoder.bias"},
    # transformers fixes the erf form in this head, whatever hidden_act says
    objections=lambda head, arguments: encoder.prediction_objections(head, arguments, "gelu"),
    arguments=lambda config, tensors: _masked_lm_arguments(config, 1e-12),
)

CLASSIFIER = encoder.pooled_head("classifier", pool="classifier.dense", output="classifier.out_proj", own_name=True)


def _masked_lm_arguments(config: Mapping[str, Any], epsilon: float) -> dict[str, Any]:
    """`epsilon`: the one of a config without that key."""
    return {"transform": "gelu", "bias": True, "norm_epsilon": config.get("layer_norm_eps", epsilon)}


def kin_classes(prefix: str) -> tuple[ModelClass, ...]:
    """The classes of transformers whose names begin so."""
    return (
        ModelClass(f"{prefix}ForMaskedLM", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask"),
        ModelClass(
            f"{prefix}ForSequenceClassification",
            frozenset({"classifier"}),
            "AutoModelForSequenceClassification",
            "text-classification",
        ),
        tagger_class(prefix),
        answers_questions(f"{prefix}ForQuestionAnswering"),
        chooser_class(prefix),
        ModelClass(f"{prefix}Model", frozenset(), "AutoModel", "feature-extraction"),
    )


ROBERTA = add(Architecture(
    name="roberta",
    title="RoBERTa",
    settings=encoder.settings(layers=12, width=768, heads=12, inner=3072),
    fixed=encoder.FIXED,
    assumed={**encoder.ASSUMED, "initial": "normal"},
    legal=encoder.LEGAL,
    base="roberta.",
    body=encoder.body(SHIFTED),
    segments=encoder.SEGMENTS,
    heads=(MASKED_LM, CLASSIFIER, TAGGER, ANSWER, CHOOSER),
    classes=kin_classes("Roberta"),
    tokenizer_class="RobertaTokenizer",
    reading=Reading("[CLS] {A} [SEP]", "[CLS] {A} [SEP] [SEP] {B} [SEP]", "first"),
    recipe=lambda model: "roberta",
    resemblance=lambda model, kind: 2 if kind == "byte_bpe" and not model.arguments["segments"] else 0,
    tokens={"bos_token_id": ("[BOS]", "[CLS]"), "eos_token_id": ("[EOS]", "[SEP]")},
    ignored=encoder.IGNORED,
    paddings=range(16),
    has_pooler=True,
))


def kin(name: str, title: str, prefix: str, recipe: str = "roberta", **differing: Any) -> Architecture:
    """A system with RoBERTa's heads and reading, for which transformers has classes of its own. `differing`: what else it has."""
    return add(replace(
        ROBERTA, name=name, title=title, classes=kin_classes(prefix), recipe=lambda model: recipe,
        resemblance=lambda model, kind: 0, **differing,
    ))  # fmt: skip


XLM_ROBERTA = kin("xlm-roberta", "XLM-RoBERTa", "XLMRoberta", tokenizer_class="XLMRobertaTokenizer")
CAMEMBERT = kin("camembert", "CamemBERT", "Camembert", "camembert", tokenizer_class="CamembertTokenizer")
DATA2VEC = kin("data2vec-text", "data2vec for text", "Data2VecText", base="data2vec_text.")

_PRE = {**encoder.FIXED, "norm": "pre", "norm.final": True}
PRE_LAYER_NORM = kin(
    "roberta-prelayernorm", "RoBERTa with norms in front", "RobertaPreLayerNorm", base="roberta_prelayernorm.", fixed=_PRE,
    body=(
        *encoder.body(SHIFTED, attention_norm="attention.LayerNorm", inner_norm="intermediate.LayerNorm"),
        MappingLine("norm.*", "{base}LayerNorm.*", "D"),
    ),
)
XLM_ROBERTA_XL = kin(
    "xlm-roberta-xl", "XLM-RoBERTa-XL", "XLMRobertaXL", tokenizer_class="XLMRobertaTokenizer",
    settings=encoder.settings(layers=36, width=2560, heads=32, inner=10240, longest=514, segments=1, epsilon=1e-5),
    fixed={**_PRE, "norm.embedding": False},
    heads=(
        replace(MASKED_LM, arguments=lambda config, tensors: _masked_lm_arguments(config, 1e-5)),
        CLASSIFIER, TAGGER, ANSWER, CHOOSER,
    ),
    body=(
        *(
            line for line in encoder.body(SHIFTED, attention_norm="attention.self_attn_layer_norm", inner_norm="LayerNorm")
            if line.ours != "embeddings.norm.*"
        ),
        MappingLine("norm.*", "{base}encoder.LayerNorm.*", "D"),
    ),
)
