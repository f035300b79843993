"""Rows of tasks about pictures as their authors publish them → rows with the columns of cloze's tasks.

The fields of the file stay, and those that tasks read by default are added: `image`, `text`, `label`, and what else a task needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from cloze.errors import TaskError

Row = dict[str, Any]
#: Of people in VCR's texts, in this order (jackroos/VL-BERT, `vcr/data/datasets/vcr.py`).
NAMES = (
    "Casey", "Riley", "Jessie", "Jackie", "Avery", "Jaime", "Peyton", "Kerry", "Jody", "Kendall", "Frankie", "Pat", "Quinn",
)
_CHOICES = {"choices": "answer_choices", "rationales": "rationale_choices"}


def question_row(record: Mapping[str, Any]) -> Row | None:
    """A question of VQA as in LXMERT's files: `img_id` names the picture, `sent` is the question, and `label` an object with the
    score of each answer (airsplay/lxmert, `src/tasks/vqa_data.py`); None for other objects."""
    if "img_id" not in record or not isinstance(record.get("sent"), str):
        return None
    return {"image": record["img_id"], "text": record["sent"], **record}


def pair_row(record: Mapping[str, Any]) -> Row | None:
    """A sentence of NLVR2 about two pictures, `image` and `image_b`; None for other objects.

    The authors' lines have an `identifier`, `train-10171-0-0`, whose pictures are `train-10171-0-img0` and `train-10171-0-img1`,
    and the `sentence` (Suhr et al., 2019; lil-lab/nlvr, `nlvr2/data`). LXMERT's files name both, `img0` and `img1`, and have
    `sent` (airsplay/lxmert, `data/nlvr2/process_raw_data_scripts/process_dataset.py`).
    """
    if isinstance(record.get("identifier"), str) and isinstance(record.get("sentence"), str):
        pair = record["identifier"].rpartition("-")[0]
        return {"image": f"{pair}-img0", "image_b": f"{pair}-img1", "text": record["sentence"], **record}
    if {"img0", "img1"} <= record.keys() and isinstance(record.get("sent"), str):
        return {"image": record["img0"], "image_b": record["img1"], "text": record["sent"], **record}
    return None


def choice_row(record: Mapping[str, Any]) -> Row | None:
    """A question of VCR with its `choices` and the number of the right one, `label`; for the second part of the task, which
    rationale explains the answer, `question_answer`, question and right answer, and `rationales` with `rationale_label`
    (Zellers et al., 2019). `image` is `img_id`. None for other objects.

    Texts are lists of words and of objects, `[[0, 2], "are", "here"]`. An object becomes its class, and a person a name: the
    first of `NAMES` is that of the first person among the objects, and so on. "and" stands between several.

    Differs: VL-BERT's code goes on with the names from row to row, ViLBERT's draws them and has no "and", and UNITER's adds 81
    tokens, whose use it does not show. Words are not linked to the regions of their objects. Question and answer are one text
    without [SEP] between them.
    """
    if not (isinstance(record.get("objects"), list) and isinstance(record.get("question"), list)):
        return None
    names = cycle(NAMES)
    objects = [next(names) if kind == "person" else str(kind) for kind in record["objects"]]
    texts = {name: _texts(record, field, objects) for name, field in _CHOICES.items() if field in record}
    row: Row = {**record, "text": _text(record["question"], objects), **texts}
    row |= {"image": record["img_id"]} if "img_id" in record else {}
    if "answer_label" in record and "choices" in texts:
        label, choices = record["answer_label"], texts["choices"]
        if not isinstance(label, int) or not 0 <= label < len(choices):
            raise TaskError(f"answer_label is {label!r}; expected 0 to {len(choices) - 1}, the number of the right answer.")
        row |= {"label": label, "question_answer": f"{row['text']} {choices[label]}"}
    return row


def _texts(record: Mapping[str, Any], field: str, objects: Sequence[str]) -> list[str]:
    """The texts of a field, each a list of words and objects; anything else is a `TaskError`."""
    texts = record[field]
    if not isinstance(texts, list) or not all(isinstance(words, list) for words in texts):
        raise TaskError(f"{field}: {str(texts)[:60]}; expected a list of texts, each a list of words, as in VCR.")
    return [_text(words, objects) for words in texts]


def _text(words: Sequence[Any], objects: Sequence[str]) -> str:
    """Words and objects as a text; a number without an object is a `TaskError`."""
    parts = []
    for word in words:
        if isinstance(word, list):
            unknown = next((number for number in word if not isinstance(number, int) or not 0 <= number < len(objects)), None)
            if unknown is not None:
                raise TaskError(f"a text names object {unknown!r} of {len(objects)}: {str(words)[:60]}; expected numbers from 0.")
            parts.append(" and ".join(objects[number] for number in word))
        else:
            parts.append(str(word))
    return " ".join(parts)


def task_row(record: Row) -> Row:
    """An object of a known form with the columns of cloze's tasks; any other as it is."""
    rows = (form(record) for form in (question_row, pair_row, choice_row))
    return next((row for row in rows if row is not None), record)
