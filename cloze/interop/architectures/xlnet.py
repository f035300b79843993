"""XLNet ↔ transformers' `XLNet*`.

Source: XLNet: Generalized Autoregressive Pretraining for Language Understanding (Yang et al., 2019) and zihangdai/xlnet.
transformers keeps the projections in TensorFlow's layout, (D, heads, head width). Without a permutation both classes read in both
directions. transformers' `gelu` is the erf form; the authors train with the tanh form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cloze.interop import encoder
from cloze.interop.architecture import ACTIVATIONS, ACTIVATIONS_BACK, Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.classification import AUTO, PIPELINE, ROLE, chooser, chooser_class
from cloze.interop.mapping import MappingLine, Move, TableSizes
from cloze.interop.model import PortableHead
from cloze.interop.question_answering import ANSWER, answers_questions
from cloze.interop.tagging import TAGGER, tagger_class
from cloze.reading import Reading


class Kernels(Move):
    """Ours is one tensor with all parts, (W, D) each; theirs are several (D, heads, head width)."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        heads, width = sizes.letters["N"], sizes.letters["D"]
        return tuple(part.t().reshape(width, heads, -1) for part in ours.chunk(parts, dim=0))

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return torch.cat([kernel.flatten(1).t() for kernel in tensors], dim=0)


class OutputMap(Move):
    """Ours is (D, W), theirs (D, heads, head width)."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return (ours.reshape(ours.shape[0], sizes.letters["N"], -1),)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return tensors[0].flatten(1)


class Wrapped(Move):
    """Ours is (D,), theirs (1, 1, D)."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return (ours[None, None],)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return tensors[0].flatten()


def _prediction(head: PortableHead) -> list[str]:
    wrong = []
    if head.argument("transform"):
        wrong.append("it has a transform, transformers' XLNet projects straight onto the vocabulary")
    if "head.bias" not in head.state:
        wrong.append("it has no bias, transformers' XLNet has one")
    return wrong


PREDICTION = HeadTable(
    role="causal_lm",
    part="token_prediction",
    sign=("lm_loss.bias",),
    lines=(MappingLine("head.bias", "lm_loss.bias", "V"),),
    untied=(MappingLine("head.output.weight", "lm_loss.weight", "V D"),),
    repeats={"lm_loss.weight": "{base}word_embedding.weight"},
    objections=lambda head, arguments: _prediction(head),
    arguments=lambda config, tensors: {"transform": None, "bias": True},
    read={"": "query"},
)

CLASSIFIER = encoder.pooled_head(
    ROLE, pool="sequence_summary.summary", output="logits_proj",
    required={"summary_type": "last", "summary_use_proj": True, "summary_activation": "tanh"},
)


CHOOSER = replace(
    chooser(
        MappingLine("head.pool.*", "sequence_summary.summary.*", "D D"), "logits_proj.weight",
        pooler="sequence_summary.summary.weight"
    ),
    required=CLASSIFIER.required,
)


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    width, heads = config.get("d_model", 1024), config.get("n_head", 16)
    clamp, memory = config.get("clamp_len", -1), config.get("mem_len") or None
    if not isinstance(clamp, int):
        raise ValueError(f"clamp_len is {clamp!r}; expected a number of tokens, or -1 for none.")
    return {
        "head_width": width // heads,
        "memory.size": memory,
        "memory.reuse": None if memory is None else config.get("reuse_len") or 0,
        "positions.clamp": clamp if clamp > 0 else None,
    }


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    return {
        "d_model": arguments["width"],
        "n_head": arguments["heads"],
        "d_head": arguments["head_width"],
        "mem_len": arguments.get("memory.size"),
        "reuse_len": arguments.get("memory.reuse") or None,
        "clamp_len": arguments["positions.clamp"] or -1,
        "untie_r": True,
        "attn_type": "bi",
        "summary_type": "last",
    }


def _against(arguments: Mapping[str, Any]) -> list[str]:
    if arguments["head_width"] * arguments["heads"] == arguments["width"]:
        return []
    return [f"head_width is {arguments['head_width']}, transformers' XLNet divides the width by the heads"]


_LAYER = "{base}layer.{i}."
_ATTENTION = _LAYER + "rel_attn."

XLNET = add(Architecture(
    name="xlnet",
    title="XLNet",
    settings=(
        Setting("layers", "n_layer", 24),
        Setting("width", "d_model", 1024),
        Setting("heads", "n_head", 16),
        Setting("feed_forward.inner", "d_inner", 4096),
        Setting("feed_forward.activation", "ff_activation", "gelu", ACTIVATIONS.__getitem__, ACTIVATIONS_BACK.__getitem__),
        Setting("norm_epsilon", "layer_norm_eps", 1e-12),
        Setting("dropout.hidden", "dropout", 0.1),
        Setting("init_std", "initializer_range", 0.02),
    ),
    fixed={"positions.untie": True, "relative_segments": True},
    assumed={"dropout.attention": None},
    legal={"attn_type": ("bi",), "same_length": (False,), "untie_r": (True,)},
    base="transformer.",
    body=(
        MappingLine("embeddings.tokens.weight", "{base}word_embedding.weight", "V D"),
        MappingLine("unknown", "{base}mask_emb", "D", Wrapped()),
        MappingLine("layers.{i}.attention.projections.weight", tuple(_ATTENTION + name for name in "qkv"), "3W D", Kernels()),
        MappingLine("layers.{i}.attention.distances.weight", _ATTENTION + "r", "W D", Kernels()),
        MappingLine("layers.{i}.attention.out.weight", _ATTENTION + "o", "D W", OutputMap()),
        MappingLine("layers.{i}.attention.content_bias", _ATTENTION + "r_w_bias", "N K"),
        MappingLine("layers.{i}.attention.distance_bias", _ATTENTION + "r_r_bias", "N K"),
        MappingLine("layers.{i}.attention.segment_bias", _ATTENTION + "r_s_bias", "N K"),
        MappingLine("layers.{i}.attention.segments", _ATTENTION + "seg_embed", "2 N K"),
        MappingLine("layers.{i}.attention_norm.*", _ATTENTION + "layer_norm.*", "D"),
        MappingLine("layers.{i}.inner.*", _LAYER + "ff.layer_1.*", "I D"),
        MappingLine("layers.{i}.outer.*", _LAYER + "ff.layer_2.*", "D I"),
        MappingLine("layers.{i}.inner_norm.*", _LAYER + "ff.layer_norm.*", "D"),
    ),
    heads=(PREDICTION, CLASSIFIER, TAGGER, ANSWER, CHOOSER),
    classes=(
        ModelClass("XLNetLMHeadModel", frozenset({"causal_lm"}), "AutoModelForCausalLM", "text-generation"),
        ModelClass("XLNetForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE),
        tagger_class("XLNet"),
        answers_questions("XLNetForQuestionAnsweringSimple"),
        chooser_class("XLNet"),
        ModelClass("XLNetModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="XLNetTokenizer",
    reading=Reading("{A} [SEP] [CLS]", "{A} [SEP] {B} [SEP] [CLS]", "last"),
    recipe=lambda model: "xlnet-base",
    part="two_stream",
    orders=("open",),
    from_config=_read,
    to_config=_write,
    further_objections=_against,
    tokens={"bos_token_id": ("[BOS]", "[CLS]"), "eos_token_id": ("[EOS]", "[SEP]")},
    sizes=lambda arguments: {
        "N": arguments["heads"], "K": arguments["head_width"], "W": arguments["heads"] * arguments["head_width"],
    },
))
