"""Token classification in transformers: the heads of `…ForTokenClassification`, one linear map on every token.

transformers has no class for a tagger with LSTMs above the network, with mixed layers or with a conditional random field. Its
ModernBERT puts a dense map, GELU and a norm in front of the classes (`architectures/modernbert.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.interop.architecture import HeadTable, ModelClass
from cloze.interop.mapping import MappingLine
from cloze.interop.model import PortableHead

ROLE = "tagger"


def _objections(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    wrong = []
    if head.argument("mixed"):
        wrong.append("it reads all layers mixed, transformers the last one")
    if head.argument("encoder"):
        wrong.append("it has LSTMs above the network, transformers has one linear map")
    if head.argument("transform"):
        wrong.append("it has a dense map in front of its output, transformers has one linear map")
    return wrong


#: The map is called `classifier` in every class. BERT and ALBERT call that of a whole text so, too: config.json tells which.
TAGGER = HeadTable(
    role=ROLE,
    part="sequence_labelling",
    sign=("classifier.weight",),
    lines=(MappingLine("head.output.*", "classifier.*", "C D"),),
    objections=_objections,
    arguments=lambda config, tensors: {"classes": int(tensors["classifier.weight"].shape[0]), "set": "label"},
    by_class=True,
)


def tagger_class(prefix: str) -> ModelClass:
    """transformers' class of a tagger."""
    return ModelClass(
        f"{prefix}ForTokenClassification", frozenset({ROLE}), "AutoModelForTokenClassification", "token-classification"
    )
