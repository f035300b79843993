"""BigBird ↔ transformers' `BigBird*` with full attention.

Source: Big Bird (Zaheer et al., 2020) and transformers' class. With `block_sparse` attention transformers reads texts of up to
(5 + 2·`num_random_blocks`)·`block_size` tokens, 704 in the published models, with full attention: rows are cut to that length,
and a folder that cloze writes has `original_full` attention. `BigBirdForQuestionAnswering` has a head of its own, which is not
read.

Differs: transformers applies dropout to embeddings before their norm, cloze after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import ACTIVATIONS_BACK, Architecture, ModelClass, add
from cloze.interop.architectures.bert import MASKED_LM
from cloze.interop.classification import ALBERT_CHOOSER, AUTO, PIPELINE, chooser_class, dense_classifier
from cloze.interop.mapping import MappingLine
from cloze.interop.tagging import TAGGER, tagger_class

_ACTIVATION = "gelu_new"  # of a config that names none
_SPARSE, _FULL = "block_sparse", "original_full"


def _masked_lm(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    activation = ACTIVATIONS_BACK[config.get("hidden_act", _ACTIVATION)]
    return {"transform": activation, "bias": True, "norm_epsilon": config.get("layer_norm_eps", 1e-12)}


def _longest(config: Mapping[str, Any]) -> int | None:
    """The longest text that is read with full attention; None: every text."""
    if config.get("attention_type", _SPARSE) == _FULL:
        return None
    return int((5 + 2 * config.get("num_random_blocks", 3)) * config.get("block_size", 64))


NEXT_SENTENCE = encoder.pooled_head(
    "next_sentence", pool="{base}pooler", output="cls.seq_relationship", classes=2, set="next", own_name=True
)

BIG_BIRD = add(Architecture(
    name="big_bird",
    title="BigBird",
    settings=encoder.settings(layers=12, width=768, heads=12, inner=3072, longest=4096, activation=_ACTIVATION),
    fixed=encoder.FIXED,
    assumed=encoder.ASSUMED,
    legal={**encoder.LEGAL, "attention_type": (_SPARSE, _FULL), "rescale_embeddings": (False,), "use_bias": (True,)},
    to_config=lambda arguments, order: {"attention_type": _FULL},
    longest=_longest,
    base="bert.",
    body=encoder.body(),
    segments=encoder.SEGMENTS,
    heads=(
        replace(MASKED_LM, arguments=_masked_lm), NEXT_SENTENCE, dense_classifier(_ACTIVATION), TAGGER, ALBERT_CHOOSER,
    ),
    classes=(
        ModelClass("BigBirdForPreTraining", frozenset({"masked_lm", "next_sentence"}), "AutoModelForPreTraining", "fill-mask"),
        ModelClass("BigBirdForMaskedLM", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask"),
        ModelClass("BigBirdForSequenceClassification", frozenset({"classifier"}), AUTO, PIPELINE),
        tagger_class("BigBird"),
        chooser_class("BigBird"),
        ModelClass("BigBirdModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="BigBirdTokenizer",
    reading=encoder.READING,
    recipe=lambda model: "bert",
    tokens={"bos_token_id": ("[BOS]", "[CLS]"), "eos_token_id": ("[EOS]", "[SEP]"), "sep_token_id": ("[SEP]",)},
    ignored=encoder.IGNORED,
    unused=(MappingLine("", "{base}pooler.weight", "D D"), MappingLine("", "{base}pooler.bias", "D")),
    has_pooler=True,
))
