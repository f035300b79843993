"""ESM-1b, ESM-1v and ESM-2, encoders of proteins ↔ transformers' `Esm*`.

Source: ESM-2 (Lin et al., 2022), ESM-1b (Rives et al., 2021) and transformers' class: norms in front, rotary positions (ESM-2) or
learned ones that begin after the id of [PAD], and with `token_dropout` no vector of masked tokens (`table_without_masks`).

The angles per position of ESM-2 are a tensor of the file, repeated in every layer; they may have been rounded. The head of
contacts, which reads the attention of all layers, is carried along.

Differs: transformers has no dropout of the embeddings, cloze has; the published rates are 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop import encoder
from cloze.interop.architecture import Architecture, ModelClass, Setting, add
from cloze.interop.architectures.roberta import CLASSIFIER, MASKED_LM
from cloze.interop.classification import AUTO, PIPELINE
from cloze.interop.mapping import SHIFTED, MappingLine
from cloze.interop.tagging import TAGGER, tagger_class
from cloze.reading import Reading

_POSITIONS = {"rotary": "rotary_table", "absolute": "learned"}
_ANGLES = "rotary_embeddings.inv_freq"
#: transformers 5 writes an asterisk for the number of the layer.
_ANGLES_OF_LAYER = re.compile(r"encoder\.layer\.(\d+|\*)\.attention\.self\.rotary_embeddings\.inv_freq")
#: The share of masked tokens in training, which transformers fixes: 15 % of the tokens were chosen, and 80 % of these masked.
_USUAL = 0.15 * 0.8


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    kind = config.get("position_embedding_type", "absolute")
    if kind not in _POSITIONS:
        raise ValueError(f"position_embedding_type is {kind!r}; expected {' or '.join(_POSITIONS)}.")
    return {
        "positions": _POSITIONS[kind],
        "norm.embedding": bool(config.get("emb_layer_norm_before")),
        "embedding": "table_without_masks" if config.get("token_dropout") else "table",
        "embedding.usual": _USUAL,
    }


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    return {
        "position_embedding_type": "absolute" if arguments["positions"] == "learned" else "rotary",
        "emb_layer_norm_before": arguments["norm.embedding"],
        "token_dropout": arguments.get("embedding") == "table_without_masks",
    }


def _against(arguments: Mapping[str, Any]) -> list[str]:
    wrong = []
    if arguments["positions"] not in _POSITIONS.values():
        kinds = " or ".join(map(repr, _POSITIONS.values()))
        wrong.append(f"positions is {arguments['positions']!r}, transformers' ESM has {kinds}")
    if arguments.get("embedding.usual", _USUAL) != _USUAL:
        wrong.append(f"embedding.usual is {arguments['embedding.usual']}, transformers' ESM has {_USUAL}")
    return wrong


def _further(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    embedded = (MappingLine("embeddings.norm.*", "{base}embeddings.layer_norm.*", "D"),) if arguments["norm.embedding"] else ()
    if arguments["positions"] == "learned":
        table = "embeddings.positions.weight", "{base}embeddings.position_embeddings.weight", "P D"
        return *embedded, MappingLine(*table, SHIFTED)
    return *embedded, MappingLine("distances.frequencies", "{base}" + _ANGLES, "F")


def _repeated(arguments: Mapping[str, Any]) -> dict[str, list[str]]:
    """Every layer has the angles, as transformers 4 expects and 5 understands."""
    if arguments["positions"] == "learned":
        return {}
    return {_ANGLES: [f"encoder.layer.{layer}.attention.self.{_ANGLES}" for layer in range(arguments["layers"])]}


def _body() -> tuple[MappingLine, ...]:
    embedded = ("embeddings.positions.weight", "embeddings.norm.*")
    lines = encoder.body(attention_norm="attention.LayerNorm", inner_norm="LayerNorm")
    return (
        *(line for line in lines if line.ours not in embedded),
        MappingLine("norm.*", "{base}encoder.emb_layer_norm_after.*", "D"),
    )


def _settings() -> tuple[Setting, ...]:
    """BERT's without segments and with one activation, and the base of the angles."""
    shared = encoder.settings(layers=12, width=768, heads=12, inner=3072, longest=1026)
    return (
        *(setting for setting in shared if setting.ours not in ("segments", "feed_forward.activation")),
        Setting("positions.base", "rope_theta", 10000.0),
    )


_MASKED_LM = replace(
    MASKED_LM,
    tied=(),
    lines=(*MASKED_LM.lines, MappingLine("head.bias", "lm_head.bias", "V")),
    untied=(MappingLine("head.output.weight", "lm_head.decoder.weight", "V D"),),
    repeats={"lm_head.decoder.weight": "{base}embeddings.word_embeddings.weight"},
    copies={},
)

ESM = add(Architecture(
    name="esm",
    title="ESM",
    settings=_settings(),
    fixed={"norm": "pre", "norm.final": True, "feed_forward.activation": "gelu"},
    assumed={**encoder.ASSUMED, "initial": "normal", "segments": 0},
    legal={"is_folding_model": (False, None), "is_decoder": (False,), "add_cross_attention": (False,)},
    from_config=_read,
    to_config=_write,
    further_objections=_against,
    embeddings=("table", "table_without_masks"),
    base="esm.",
    body=_body(),
    further=_further,
    sizes=lambda arguments: {
        "F": arguments["width"] // arguments["heads"] // 2, "N": arguments["layers"] * arguments["heads"],
    },
    renamed=lambda name: _ANGLES if _ANGLES_OF_LAYER.fullmatch(name) else name,
    repeated=_repeated,
    heads=(_MASKED_LM, CLASSIFIER, TAGGER),
    classes=(
        ModelClass("EsmForMaskedLM", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask"),
        ModelClass("EsmForSequenceClassification", frozenset({"classifier"}), AUTO, PIPELINE),
        tagger_class("Esm"),
        ModelClass("EsmModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="EsmTokenizer",
    reading=Reading("[CLS] {A} [EOS]", "[CLS] {A} [EOS] {B} [EOS]", "first"),
    recipe=lambda model: "roberta",
    resemblance=lambda model, kind: 1 if model.flat["positions"] == "rotary_table" or kind == "words" else 0,
    tokens={"bos_token_id": (), "eos_token_id": ("[EOS]",), "mask_token_id": ("[MASK]",)},
    ignored=(*encoder.IGNORED, "{base}embeddings.position_embeddings.weight"),
    paddings=range(16),
    has_pooler=True,
    carried=("pooler", "encoder", "contact_head"),
    unused=(
        MappingLine("", "{base}contact_head.regression.weight", "1 N"),
        MappingLine("", "{base}contact_head.regression.bias", "1"),
    ),
    remarks=lambda arguments: [
        "transformers' ESM also has a head of contacts (predict_contacts): cloze carries its parameters along, does not train "
        "them, and writes zeros where a model brings none."
    ],
))
