"""ModernBERT read from left to right ↔ transformers' `ModernBertDecoder*`.

Source: Seq vs Seq: An Open Suite of Paired Encoders and Decoders (Weller et al., 2025), and transformers' class: the layers of
ModernBERT with queries, keys and values apart, and the same dense map in front of the outputs. From left to right, a local layer
of cloze with `width` n sees the last n tokens, one of transformers with `local_attention` n the last n / 2.

Differs: as for ModernBERT, transformers applies dropout at other places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop.architecture import ModelClass, add
from cloze.interop.architectures import modernbert
from cloze.interop.classification import ABSENT, AUTO, PIPELINE, ROLE
from cloze.interop.mapping import STACKED, MappingLine
from cloze.interop.model import PortableHead
from cloze.reading import Reading

_BEGINS, _ENDS = ("[BOS]", "[CLS]", "[EOS]", "[SEP]"), ("[EOS]", "[SEP]", "[BOS]", "[CLS]")

CAUSAL_LM = replace(
    modernbert.MASKED_LM,
    role="causal_lm",
    sign=("lm_head.dense.weight", "decoder.bias"),
    lines=(*modernbert.dense_lines("lm_head"), MappingLine("head.bias", "decoder.bias", "V")),
)


def _classifier(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    wrong = modernbert.classifier_objections(head, arguments, ("summary",))
    if bool(head.state["head.output.bias"].any()):
        wrong.append("it has a bias, transformers' ModernBERT decoder has none")
    return wrong


CLASSIFIER = replace(
    modernbert.CLASSIFIER,
    lines=(
        *modernbert.dense_lines("head"), MappingLine("head.output.weight", "classifier.weight", "C D"),
        MappingLine("head.output.bias", (), "C", ABSENT),
    ),
    objections=_classifier,
    to_config=lambda head: {},
)


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    arguments = modernbert.read(config)
    if arguments["attention.band.width"] is not None:
        arguments["attention.band.width"] //= 2
    return arguments


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    band = arguments.get("attention.band.width")
    return {**modernbert.write(arguments, order), "local_attention": 2 * (band or 64)}


def _body(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    """The maps, with their biases or without."""
    ending = "*" if arguments["attention.biases"] else "weight"
    prefix = "{base}layers.{i}.attn."
    apart = tuple(f"{prefix}{letter}_proj.{ending}" for letter in "qkv")
    fused, *rest = modernbert.body(arguments)
    return (replace(fused, theirs=apart, move=STACKED), *rest)


MODERNBERT_DECODER = add(replace(
    modernbert.MODERNBERT,
    name="modernbert-decoder",
    title="ModernBERT decoder",
    legal={key: values for key, values in modernbert.MODERNBERT.legal.items() if key != "classifier_pooling"},
    further=_body,
    heads=(CAUSAL_LM, CLASSIFIER),
    classes=(
        ModelClass("ModernBertDecoderForCausalLM", frozenset({"causal_lm"}), "AutoModelForCausalLM", "text-generation"),
        ModelClass("ModernBertDecoderForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE),
        ModelClass("ModernBertDecoderModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    reading=Reading("{A}", None, "last"),
    recipe=lambda model: "quick-gpt",
    orders=("left_to_right",),
    from_config=_read,
    to_config=_write,
    tokens={  # transformers wants a number for each
        "bos_token_id": (*_BEGINS, "[PAD]"), "eos_token_id": (*_ENDS, "[PAD]"), "cls_token_id": (*_BEGINS, "[PAD]"),
        "sep_token_id": (*_ENDS, "[PAD]"),
    },
    generates=True,
))
