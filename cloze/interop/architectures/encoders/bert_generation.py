"""BERT without segments and pooler for generation ↔ transformers' `BertGenerationEncoder` and `BertGenerationDecoder`.

Source: Leveraging Pre-trained Checkpoints for Sequence Generation Tasks (Rothe et al., 2020) and transformers' classes. A decoder
(`is_decoder`) reads from left to right; one that reads an encoder, too, is refused (`add_cross_attention`). The tokenizer adds no
special tokens.
"""

from __future__ import annotations

from dataclasses import replace

from cloze.interop import encoder
from cloze.interop.architecture import HeadTable, ModelClass, add
from cloze.interop.architectures.bert import BERT
from cloze.interop.mapping import MappingLine
from cloze.interop.model import PortableHead
from cloze.reading import Reading


def _objections(head: PortableHead) -> list[str]:
    wrong = []
    if head.argument("transform"):
        wrong.append("it has a transform, transformers' BERT for generation projects straight onto the vocabulary")
    if "head.bias" not in head.state:
        wrong.append("it has no bias, transformers has one")
    return wrong


CAUSAL_LM = HeadTable(
    role="causal_lm",
    part="token_prediction",
    sign=("lm_head.bias",),
    lines=(),
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
    objections=lambda head, arguments: _objections(head),
    arguments=lambda config, tensors: {"transform": None, "bias": True},
)

BERT_GENERATION = add(replace(
    BERT,
    name="bert-generation",
    title="BERT for generation",
    settings=tuple(
        line for line in encoder.settings(layers=24, width=1024, heads=16, inner=4096) if line.ours != "segments"
    ),
    assumed={**encoder.ASSUMED, "segments": 0},
    legal={key: values for key, values in encoder.LEGAL.items() if key != "is_decoder"},
    to_config=lambda arguments, order: {"is_decoder": order == "left_to_right"},
    order_of=lambda config: "left_to_right" if config.get("is_decoder", False) else "open",
    orders=("left_to_right", "open"),
    segments=None,
    heads=(CAUSAL_LM,),
    classes=(
        ModelClass("BertGenerationDecoder", frozenset({"causal_lm"}), "AutoModelForCausalLM", "text-generation"),
        ModelClass("BertGenerationEncoder", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="BertGenerationTokenizer",
    reading=Reading("{A}", None, "last"),
    recipe=lambda model: "gpt" if model.order == "left_to_right" else "bert",
    resemblance=lambda model, kind: 0,
    tokens={"bos_token_id": ("[BOS]", "[CLS]", "[EOS]"), "eos_token_id": ("[EOS]", "[SEP]", "[BOS]")},
    has_pooler=False,
    generates=True,
))
