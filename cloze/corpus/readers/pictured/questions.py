"""Rows of tasks about pictures as their authors publish them → rows with the columns of cloze's tasks.

The fields of the file stay, and those that tasks read by default are added: `image`, `text`, `label`, and what else a task needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]


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


def task_row(record: Row) -> Row:
    """An object of a known form with the columns of cloze's tasks; any other as it is."""
    rows = (form(record) for form in (question_row, pair_row))
    return next((row for row in rows if row is not None), record)
