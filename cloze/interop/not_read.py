"""Networks of texts that transformers has and cloze does not read, with what they have and no network of cloze has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_APPROXIMATE = "replaces attention by an approximation"
_PLACES = "reads the places of words on a page with the text"

#: model_type → how a sentence goes on that begins with the name of the network.
NOT_READ: Mapping[str, str] = MappingProxyType({
    "bros": _PLACES,
    "canine": "reads hashed characters and shortens rows between its stacks",
    "convbert": "has convolutions next to attention",
    "dpr": "puts two BERTs into one architecture; save each as a BertModel: DPRQuestionEncoder.question_encoder.bert_model",
    "ernie_m": "was dropped by transformers 5",
    "esmc": "is another network than those of ESM-2: norms of queries and keys, and gated maps",
    "fnet": "mixes tokens by Fourier transforms in place of attention",
    "funnel": "shortens rows between its blocks",
    "gemma3_text": "has norms before and after each branch, and windows with a rotary base of their own in most layers",
    "ibert": "computes in integers, with scales of its own in every layer",
    "layoutlm": _PLACES,
    "layoutlmv2": _PLACES,
    "layoutlmv3": _PLACES,
    "led": "has windows of attention and global tokens with maps of their own",
    "lilt": _PLACES,
    "longformer": "has windows of attention and global tokens with maps of their own",
    "luke": "reads entities next to words, with queries of their own for each kind",
    "markuplm": "reads the paths of words in a page of HTML with the text",
    "mega": "has moving averages in front of gated attention",
    "mra": _APPROXIMATE,
    "nomic_bert": "is a BERT with rotary positions, gated feed-forward layers and no biases in its layers",
    "nystromformer": _APPROXIMATE,
    "perceiver": "reads a text through a fixed number of learned vectors",
    "phi": "computes attention and feed-forward layer side by side, and turns only a part of each head by position",
    "qdqbert": "quantises every map; read the BERT that it was made of",
    "reformer": "replaces attention by hashing",
    "rembert": "has output rows of another width than its input rows",
    "roc_bert": "adds vectors of the shape and the sound of every character",
    "splinter": "selects answers by vectors of [QUESTION]",
    "squeezebert": "has grouped convolutions in place of linear maps",
    "tapas": "reads the rows and columns of tables with the text",
    "xmod": "has an adapter for each language in every layer",
    "yoso": _APPROXIMATE,
})
