"""The sentences of LXMERT: an object for each picture, with its captions and questions → a row for each sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cloze.errors import TaskError

_SENTENCES, _ANSWERS = "sentf", "labelf"


def is_lxmert(record: Mapping[str, Any]) -> bool:
    """Whether an object is a picture of such a file."""
    return "img_id" in record and isinstance(record.get(_SENTENCES), dict)


def sentences_of(path: Path | str, line: int, record: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The rows of a picture, for all kinds of its sentences in their order: `image`, `text`, and `label`, the answer with the
    highest score, empty for a caption and for a question without answers (Tan and Bansal, LXMERT, 2019; airsplay/lxmert,
    `src/pretrain/lxmert_data.py`).

    Raises `TaskError` where sentences or answers have another form.
    """
    answers_by_kind = record.get(_ANSWERS)
    for kind, sentences in record[_SENTENCES].items():
        answers = answers_by_kind.get(kind) if isinstance(answers_by_kind, dict) else None
        answers = [{}] * len(sentences) if answers is None else answers
        if not isinstance(sentences, list) or not isinstance(answers, list) or len(answers) != len(sentences):
            raise TaskError(
                f"{path}:{line}: {kind!r} of {record['img_id']}: expected a list of sentences in {_SENTENCES}, and as many "
                f"objects of answers with their scores in {_ANSWERS}, as in LXMERT's mscoco_train.json."
            )
        for sentence, scores in zip(sentences, answers, strict=True):
            label = max(scores, key=scores.get) if scores else ""
            yield {"image": str(record["img_id"]), "text": str(sentence), "label": label}
