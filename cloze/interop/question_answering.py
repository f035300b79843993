"""Span question answering in transformers: one linear map to a score as the first token and one as the last (`qa_outputs`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.interop.architecture import HeadTable, ModelClass
from cloze.interop.mapping import MappingLine
from cloze.interop.model import PortableHead

ROLE = "question_answering"


def _objections(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    return [] if head.transform is None else [f"its transform is {head.transform.kind}, transformers has none there"]


ANSWER = HeadTable(
    role=ROLE,
    part="span_extraction",
    sign=("qa_outputs.weight",),
    lines=(MappingLine("head.output.*", "qa_outputs.*", "2 D"),),
    objections=_objections,
    arguments=lambda config, tensors: {"set": "answer"},
)


def answers_questions(name: str) -> ModelClass:
    """The class of that name."""
    return ModelClass(name, frozenset({ROLE}), "AutoModelForQuestionAnswering", "question-answering")
