"""Sequence classification in transformers: the heads of `…ForSequenceClassification` where they differ from ours in name.

BERT and RoBERTa keep a dense layer with tanh (`relation_prediction` with `pool`) and have their tables with their other
heads. ELECTRA has dense, GELU, output: transformers added the first two, the authors' code has one linear map (Clark et
al., 2020; google-research/electra `finetune/classification`). GPT-2 has one linear map without a bias on the last token.
ModernBERT has dense, GELU, norm, output, the first three as in its masked-LM head; its table is with that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cloze.interop.architecture import ACTIVATIONS_BACK, HeadTable, ModelClass
from cloze.interop.mapping import MappingLine, Move, TableSizes
from cloze.interop.model import PortableHead

AUTO, PIPELINE, ROLE = "AutoModelForSequenceClassification", "text-classification", "classifier"


class Absent(Move):
    """A bias that transformers does not have: nothing is written, zeros are read."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return ()

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return torch.zeros(sizes.letters["C"])


ABSENT = Absent()


def summary_objections(
    head: PortableHead, transform: str | None, bias: bool = False, norm: bool = False, readings: tuple[str, ...] = ("summary",)
) -> list[str]:
    """The reasons why a head is not [dense, `transform`,] output on the summary; a head without a transform may lack a `bias`.

    With `norm`, the caller checks what follows the transform; otherwise nothing may follow it. `readings` are the ones that
    transformers supports.
    """
    wrong = []
    if head.argument("reading") == "hidden":
        wrong.append("it classifies tokens, not the whole text")
    elif head.argument("reading") not in readings:
        wrong.append("it classifies the mean of all tokens, transformers the one that sums them up")
    first = head.transform
    kind = None if first is None else first.kind
    if kind != transform:
        wrong.append(f"its transform is {kind}, transformers has {transform or 'none'} there")
    if transform is None and not bias and bool(head.state["head.output.bias"].any()):
        wrong.append("it has a bias, transformers has none")
    if not norm and first is not None and first.norm_epsilon is not None:
        wrong.append("it has a norm, transformers has none there")
    if not norm and first is not None and not first.biases:
        wrong.append("its dense map has no bias, transformers has one there")
    return wrong


def _arguments(sign: str, transform: str | None) -> Any:
    def arguments(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        classes = int(tensors[sign].shape[0])
        return {"classes": classes, "set": "label", "reading": "summary", "transform": transform}

    return arguments


ELECTRA_CLASSIFIER = HeadTable(
    role=ROLE,
    part="classify",
    sign=("classifier.out_proj.weight",),
    lines=(
        MappingLine("head.dense.*", "classifier.dense.*", "D D"),
        MappingLine("head.output.*", "classifier.out_proj.*", "C D"),
    ),
    objections=lambda head, arguments: summary_objections(head, "gelu"),
    arguments=_arguments("classifier.out_proj.weight", "gelu"),
)


def dense_classifier(activation: str) -> HeadTable:
    """ELECTRA's head with the activation of the layers, as RoFormer and BigBird have it; `activation`: that of a config without
    `hidden_act`."""
    def arguments(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        transform = ACTIVATIONS_BACK[config.get("hidden_act", activation)]
        return {**ELECTRA_CLASSIFIER.arguments(config, tensors), "transform": transform}

    return replace(
        ELECTRA_CLASSIFIER, arguments=arguments,
        objections=lambda head, network: summary_objections(head, network["feed_forward.activation"]),
    )


GPT2_CLASSIFIER = HeadTable(
    role=ROLE,
    part="classify",
    sign=("score.weight",),
    lines=(
        MappingLine("head.output.weight", "score.weight", "C D"),
        MappingLine("head.output.bias", (), "C", ABSENT),
    ),
    objections=lambda head, arguments: summary_objections(head, None),
    arguments=_arguments("score.weight", None),
)

ELECTRA_CLASS = ModelClass("ElectraForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE)
GPT2_CLASS = ModelClass("GPT2ForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE)


def chooser(body: MappingLine | None, sign: str, *, pooler: str | None = None, transform: str | None = None) -> HeadTable:
    """The head of `…ForMultipleChoice`: `body`, a pooler or a dense map with `transform`, and one output, the tensor `sign`.

    Its tensors are named as those of a classifier with one class: config.json tells which.
    """
    def objections(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
        if pooler is None:
            return summary_objections(head, transform, bias=True)
        return [] if head.argument("pool") else ["it has no pooling layer, transformers has dense and tanh there"]

    def arguments(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {"set": "label", "transform": transform} if pooler is None else {"set": "label", "pool": True}

    output = MappingLine("head.output.*", sign.replace(".weight", ".*"), "1 D")
    return HeadTable(
        role="chooser", part="choose", sign=(sign,) if pooler is None else (sign, pooler), by_class=True,
        lines=(output,) if body is None else (body, output), objections=objections, arguments=arguments,
    )


CHOOSER = chooser(
    MappingLine("head.pool.*", "{base}pooler.dense.*", "D D"), "classifier.weight", pooler="{base}pooler.dense.weight"
)
ALBERT_CHOOSER = chooser(MappingLine("head.pool.*", "{base}pooler.*", "D D"), "classifier.weight", pooler="{base}pooler.weight")
ELECTRA_CHOOSER = chooser(MappingLine("head.dense.*", "sequence_summary.summary.*", "D D"), "classifier.weight", transform="gelu")


def chooser_class(prefix: str) -> ModelClass:
    """transformers' class of a network that chooses among texts."""
    return ModelClass(f"{prefix}ForMultipleChoice", frozenset({"chooser"}), "AutoModelForMultipleChoice", "multiple-choice")
