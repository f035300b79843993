"""MobileBERT ↔ transformers' `MobileBert*`: BERT's heads, without a pooler in front of classes unless `classifier_activation`.

Source: MobileBERT (Sun et al., 2020), google-research/mobilebert. The teacher IB-BERT has no class in transformers, whose queries
cannot be made of the layer's input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cloze.interop import encoder
from cloze.interop.architecture import ACTIVATIONS, ACTIVATIONS_BACK, Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.architectures import bert
from cloze.interop.classification import AUTO, CHOOSER, PIPELINE, ROLE, chooser, chooser_class, summary_objections
from cloze.interop.mapping import STACKED, TURNED, MappingLine, Move, TableSizes
from cloze.interop.model import PortableHead
from cloze.interop.question_answering import ANSWER, answers_questions
from cloze.interop.tagging import TAGGER, tagger_class

_LAYER = "{base}encoder.layer.{i}."
_NORMS = {"none": "no_norm", "layer": "layer_norm"}
_NORMS_BACK = {upstream: ours for ours, upstream in _NORMS.items()}
_IMPLIED = 1e-5  # two norms of a layer, and that of the embeddings, have torch's epsilon whatever config.json says


class Widened(Move):
    """Output rows of our own are two tensors in theirs: columns as wide as the table of tokens, and further ones, transposed."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        first, further = ours.split([sizes.letters["E"], sizes.letters["X"]], dim=1)
        return first, further.t()

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return torch.cat([tensors[0], tensors[1].t()], dim=1)


def _masked_lm(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    as_wide = {**arguments, "embedding.width": arguments["width"]}  # here output rows are as wide as the layers, tied or not
    wrong = encoder.prediction_objections(head, as_wide, arguments["feed_forward.activation"])
    if head.argument("tie") is True:
        wrong.append("its output rows are the table of tokens, transformers' MobileBERT widens them: write tie: widened")
    elif arguments["embedding.width"] == arguments["width"]:
        wrong.append("the table of tokens is as wide as the layers, transformers' MobileBERT has a narrower one")
    return wrong


MASKED_LM = replace(
    bert.MASKED_LM,
    tie="widened",
    tied=(*bert.MASKED_LM.tied, MappingLine("head.extra", "cls.predictions.dense.weight", "V X", TURNED)),
    untied=(
        MappingLine("head.bias", "cls.predictions.decoder.bias", "V"),
        MappingLine("head.output.weight", ("cls.predictions.decoder.weight", "cls.predictions.dense.weight"), "V D", Widened()),
    ),
    objections=_masked_lm,
)

#: What makes a class of transformers put a dense map and tanh on the summary, and its value where config.json lacks it.
_POOLED, _BARE, _UNSAID = ({"classifier_activation": value} for value in (True, False, True))


def _bare(table: HeadTable) -> HeadTable:
    """A head on the summary itself."""
    return replace(table, required=_BARE, if_absent=_UNSAID)


NEXT_SENTENCE = _bare(replace(
    bert.NEXT_SENTENCE,
    lines=bert.NEXT_SENTENCE.lines[1:],
    objections=lambda head, arguments: ["it has a pooling layer"] if head.argument("pool") else [],
    arguments=lambda config, tensors: {"classes": 2, "set": "next", "pool": False},
))  # fmt: skip

CLASSIFIER = _bare(HeadTable(
    role=ROLE,
    part="classify",
    sign=("classifier.weight",),
    lines=(MappingLine("head.output.*", "classifier.*", "C D"),),
    objections=lambda head, arguments: summary_objections(head, None, bias=True),
    arguments=lambda config, tensors: {
        "classes": int(tensors["classifier.weight"].shape[0]), "set": "label", "reading": "summary", "transform": None,
    },
))  # fmt: skip

#: Heads behind a pooler first: one without is recognised by the lack of it.
HEADS = (
    MASKED_LM,
    replace(bert.NEXT_SENTENCE, sign=(*bert.NEXT_SENTENCE.sign, "{base}pooler.dense.weight"), required=_POOLED), NEXT_SENTENCE,
    replace(bert.CLASSIFIER, required=_POOLED), CLASSIFIER,
    replace(CHOOSER, required=_POOLED), _bare(chooser(None, "classifier.weight")),
    TAGGER, ANSWER,
)  # fmt: skip


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    shared, narrow = config.get("key_query_shared_bottleneck", True), config.get("use_bottleneck_attention", False)
    if bool(shared) == bool(narrow):
        raise ValueError(
            f"key_query_shared_bottleneck is {shared} and use_bottleneck_attention is {narrow}; cloze's network has one of them."
        )
    return {"bottleneck.reads": "shared" if shared else "layer"}


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    shared = arguments["bottleneck.reads"] == "shared"
    return {
        "key_query_shared_bottleneck": shared, "use_bottleneck_attention": not shared, "use_bottleneck": True,
        "trigram_input": True, "classifier_activation": False,
    }


def _against(arguments: Mapping[str, Any]) -> list[str]:
    wrong = []
    if not arguments["segments"]:
        wrong.append("segments is 0, transformers' MobileBERT has at least one")
    if arguments["bottleneck.reads"] == "input":
        wrong.append("bottleneck.reads is 'input', transformers' MobileBERT makes queries and keys of a bottleneck")
    if arguments["norm.kind"] == "layer" and arguments["norm.epsilon"] != _IMPLIED:
        wrong.append(f"norm.epsilon is {arguments['norm.epsilon']}, transformers' MobileBERT has {_IMPLIED} in some of its norms")
    return wrong


def _further(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    """The feed-forwards, of which transformers names the last one differently, and the bottleneck of queries and keys."""
    last, lines = arguments["feed_forwards"] - 1, list[MappingLine]()
    for number in range(last + 1):
        ours, part = f"layers.{{i}}.feed_forwards.{number}.", _LAYER if number == last else f"{_LAYER}ffn.{number}."
        lines += [
            MappingLine(ours + "inner.*", part + "intermediate.dense.*", "I W"),
            MappingLine(ours + "outer.*", part + "output.dense.*", "W I"),
            MappingLine(ours + "norm.*", part + "output.LayerNorm.*", "W"),
        ]
    if arguments["bottleneck.reads"] == "shared":
        lines += [
            MappingLine("layers.{i}.shared.*", _LAYER + "bottleneck.attention.dense.*", "W D"),
            MappingLine("layers.{i}.shared_norm.*", _LAYER + "bottleneck.attention.LayerNorm.*", "W"),
        ]
    values = "W D" if arguments["bottleneck.reads"] == "shared" else "W W"
    return (*lines, MappingLine("layers.{i}.attention.value.*", _LAYER + "attention.self.value.*", values))


def _beware(arguments: Mapping[str, Any]) -> list[str]:
    return [
        "transformers' MobileBERT mixes the vector of [PAD] into the last token of a padded row; cloze does not. Rows without "
        "padding are equal in both."
    ]


MOBILEBERT = add(Architecture(
    name="mobilebert",
    title="MobileBERT",
    part="mobile_transformer",
    settings=(
        Setting("layers", "num_hidden_layers", 24),
        Setting("width", "hidden_size", 512),
        Setting("heads", "num_attention_heads", 4),
        Setting("bottleneck.width", "intra_bottleneck_size", 128),
        Setting("feed_forward.inner", "intermediate_size", 512),
        Setting("feed_forwards", "num_feedforward_networks", 4),
        Setting("embedding.width", "embedding_size", 128),
        Setting("positions.max_length", "max_position_embeddings", 512),
        Setting("segments", "type_vocab_size", 2),
        Setting("feed_forward.activation", "hidden_act", "relu", ACTIVATIONS.__getitem__, ACTIVATIONS_BACK.__getitem__),
        Setting("norm.kind", "normalization_type", "no_norm", _NORMS.__getitem__, _NORMS_BACK.__getitem__),
        Setting("norm.epsilon", "layer_norm_eps", 1e-12),
        Setting("dropout.hidden", "hidden_dropout_prob", 0.0),
        Setting("dropout.attention", "attention_probs_dropout_prob", 0.1),
        Setting("initial.std", "initializer_range", 0.02),
    ),
    fixed={"positions": "learned", "embedding.trigrams": True},
    assumed=encoder.ASSUMED,
    legal={"use_bottleneck": (True,), "trigram_input": (True,), "normalization_type": ("no_norm", "layer_norm")},
    from_config=_read,
    to_config=_write,
    further_objections=_against,
    remarks=_beware,
    base="mobilebert.",
    body=(
        MappingLine("embeddings.tokens.weight", "{base}embeddings.word_embeddings.weight", "V E"),
        MappingLine("embeddings.project.*", "{base}embeddings.embedding_transformation.*", "D 3E"),
        MappingLine("embeddings.positions.weight", "{base}embeddings.position_embeddings.weight", "P D"),
        MappingLine("embeddings.norm.*", "{base}embeddings.LayerNorm.*", "D"),
        MappingLine("layers.{i}.enter.*", _LAYER + "bottleneck.input.dense.*", "W D"),
        MappingLine("layers.{i}.enter_norm.*", _LAYER + "bottleneck.input.LayerNorm.*", "W"),
        MappingLine(
            "layers.{i}.attention.query_key.*", tuple(_LAYER + f"attention.self.{name}.*" for name in ("query", "key")), "2W W",
            STACKED,
        ),
        MappingLine("layers.{i}.attention.out.*", _LAYER + "attention.output.dense.*", "W W"),
        MappingLine("layers.{i}.attention_norm.*", _LAYER + "attention.output.LayerNorm.*", "W"),
        MappingLine("layers.{i}.leave.*", _LAYER + "output.bottleneck.dense.*", "D W"),
        MappingLine("layers.{i}.leave_norm.*", _LAYER + "output.bottleneck.LayerNorm.*", "D"),
    ),
    further=_further,
    segments=MappingLine("embeddings.segments.weight", "{base}embeddings.token_type_embeddings.weight", "S D"),
    sizes=lambda arguments: {
        "W": arguments["bottleneck.width"], "X": arguments["width"] - (arguments["embedding.width"] or arguments["width"]),
    },
    heads=HEADS,
    classes=(
        ModelClass("MobileBertForPreTraining", frozenset({"masked_lm", "next_sentence"}), "AutoModelForPreTraining", "fill-mask"),
        ModelClass("MobileBertForMaskedLM", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask"),
        ModelClass(
            "MobileBertForNextSentencePrediction", frozenset({"next_sentence"}), "AutoModelForNextSentencePrediction"
        ),
        ModelClass("MobileBertForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE),
        tagger_class("MobileBert"),
        answers_questions("MobileBertForQuestionAnswering"),
        chooser_class("MobileBert"),
        ModelClass("MobileBertModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="MobileBertTokenizer",
    reading=encoder.READING,
    recipe=lambda model: "ib-bert",  # `mobilebert` needs a teacher
    resemblance=lambda model, kind: 1,
    ignored=("{base}embeddings.position_ids",),
))  # fmt: skip
