"""VisualBERT ↔ transformers' `VisualBert*`.

Source: VisualBERT (Li et al., 2019), uclanlp/visualbert. In transformers 1 stands for a caption that does not belong to the
picture, in the recipe for one that does: the two outputs of that head are exchanged on the way. transformers reads regions with
row 1 of their table of segments unless `visual_token_type_ids` says otherwise, the authors' code and cloze with row 0: these rows
are exchanged, too, so that both compute the same from one folder.

`VisualBertForQuestionAnswering` reads the state before the last [SEP], as the authors' code does, which puts a [MASK] there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cloze.interop import encoder
from cloze.interop.architecture import (
    ACTIVATIONS,
    ACTIVATIONS_BACK,
    Architecture,
    HeadTable,
    ModelClass,
    ReadingFacts,
    Setting,
    add,
)
from cloze.interop.architectures import bert
from cloze.interop.classification import chooser, summary_objections
from cloze.interop.mapping import MappingLine, Move, TableSizes
from cloze.interop.model import PortableHead
from cloze.reading import Reading
from cloze.text.tokenizer import Tokenizer


class Exchanged(Move):
    """The first two rows in the other order."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return (torch.cat([ours[:2].flip(0), ours[2:]]),)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return self.there(tensors[0], sizes, 1)[0]


def settings(*, layers: str, longest: str = "max_position_embeddings") -> tuple[Setting, ...]:
    """The keys of config.json that networks of text and items share with BERT; `layers` is the key of the text's layers."""
    return (
        Setting("layers", layers, 12),
        Setting("width", "hidden_size", 768),
        Setting("heads", "num_attention_heads", 12),
        Setting("feed_forward.inner", "intermediate_size", 3072),
        Setting("max_length", longest, 512),
        Setting("segments", "type_vocab_size", 2),
        Setting("feed_forward.activation", "hidden_act", "gelu", ACTIVATIONS.__getitem__, ACTIVATIONS_BACK.__getitem__),
        Setting("dropout.hidden", "hidden_dropout_prob", 0.1),
        Setting("dropout.attention", "attention_probs_dropout_prob", 0.1),
        Setting("initial.std", "initializer_range", 0.02),
    )


def masked_lm_objections(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    """The reasons why a head is not that of masked words."""
    head_arguments = {**arguments, "norm.epsilon": arguments["norm_epsilon"]}
    return encoder.prediction_objections(head, head_arguments, arguments["feed_forward.activation"])


def sizes(arguments: Mapping[str, Any]) -> dict[str, int]:
    """P positions, F features."""
    return {"P": arguments["max_length"], "F": arguments["items.width"]}


MASKED_LM = replace(bert.MASKED_LM, objections=masked_lm_objections)
MATCHED = replace(
    bert.NEXT_SENTENCE,
    role="matched",
    lines=(bert.NEXT_SENTENCE.lines[0], MappingLine("head.output.*", "cls.seq_relationship.*", "2 D", Exchanged())),
    arguments=lambda config, tensors: {"classes": 2, "set": "match", "pool": True},
)
ANSWERS = HeadTable(
    role="answers", part="classify", sign=("cls.weight",), by_class=True, at_mask=True,
    lines=(MappingLine("head.output.*", "cls.*", "C D"),),
    objections=lambda head, arguments: summary_objections(head, None, bias=True),
    arguments=lambda config, tensors: {
        "classes": int(tensors["cls.weight"].shape[0]), "set": "label", "reading": "summary", "transform": None,
    },
)  # fmt: skip
REASONING = replace(encoder.pooled_head("classifier", pool="{base}pooler.dense", output="cls"), by_class=True)
CHOOSER = chooser(MappingLine("head.pool.*", "{base}pooler.dense.*", "D D"), "cls.weight", pooler="{base}pooler.dense.weight")
ANSWERING = "VisualBertForQuestionAnswering"
_VISUAL = "{base}embeddings.visual_"


def _reading_of(facts: ReadingFacts) -> tuple[Reading, Tokenizer, list[str]] | None:
    """Texts with a [MASK] at their end where answers are read."""
    if ANSWERING not in (facts.config.get("architectures") or ()):
        return None
    return replace(encoder.READING, single="[CLS] {A} [MASK] [SEP]", summary="mask"), facts.tokenizer, []


VISUAL_BERT = add(Architecture(
    name="visual_bert",
    title="VisualBERT",
    part="visual",
    settings=(
        *settings(layers="num_hidden_layers"), Setting("norm_epsilon", "layer_norm_eps", 1e-12),
        Setting("items.width", "visual_embedding_dim", 512),
    ),
    fixed={"items": "with_tables"},
    assumed={"initial": "truncated", "initial.residual": "as_drawn", "initial.positions": None, "items.set": "regions"},
    legal={"bypass_transformer": (False,)},
    base="visual_bert.",
    body=(
        *encoder.body(), encoder.SEGMENTS,
        MappingLine("items.features.*", f"{_VISUAL}projection.*", "D F"),
        MappingLine("items.positions.weight", f"{_VISUAL}position_embeddings.weight", "P D"),
        MappingLine("items.segments.weight", f"{_VISUAL}token_type_embeddings.weight", "S D", Exchanged()),
    ),
    sizes=sizes,
    heads=(MASKED_LM, MATCHED, ANSWERS, REASONING, CHOOSER),
    classes=(
        ModelClass("VisualBertForPreTraining", frozenset({"masked_lm", "matched"}), "AutoModelForPreTraining"),
        ModelClass(ANSWERING, frozenset({"answers"}), ANSWERING),
        *(
            ModelClass(f"VisualBertFor{name}", frozenset({role}), f"VisualBertFor{name}")
            for name, role in (("VisualReasoning", "classifier"), ("MultipleChoice", "chooser"))
        ),
        ModelClass("VisualBertModel", frozenset(), "AutoModel"),
    ),
    tokenizer_class="BertTokenizer",
    reading=encoder.READING,
    reading_of=_reading_of,
    recipe=lambda model: "visualbert",
    resemblance=lambda model, kind: 1,
    ignored=encoder.IGNORED,
    unused=(MappingLine("", "{base}pooler.dense.weight", "D D"), MappingLine("", "{base}pooler.dense.bias", "D")),
    has_pooler=True,
))
