"""Texts about pictures as others publish them → rows.

COCO's captions are one object with the lists `images` and `annotations`, LXMERT's captions and questions an object for each
picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cloze.errors import TaskError

_SENTENCES, _ANSWERS = "sentf", "labelf"


def is_coco(record: Mapping[str, Any]) -> bool:
    """Whether an object of JSON holds the captions of COCO: no row has both lists."""
    return isinstance(record.get("images"), list) and isinstance(record.get("annotations"), list)


def captions_of(path: Path | str, content: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of the pictures in the order of `images`, numbered from 1: `image`, the name of the file; `image_id`; and
    `caption`, a list of texts in the order of `annotations` (Chen et al., Microsoft COCO Captions, 2015).

    A picture without captions is left out. Errors: `TaskError`.
    """
    names: dict[str, str] = {}
    for number, picture in enumerate(content["images"], 1):
        if not isinstance(picture, dict) or "id" not in picture or not isinstance(picture.get("file_name"), str):
            raise TaskError(f"{path}: entry {number} of images has no id and file_name; expected COCO's captions.")
        names[str(picture["id"])] = picture["file_name"]
    captions: dict[str, list[str]] = {}
    for number, annotation in enumerate(content["annotations"], 1):
        where = f"{path}: entry {number} of annotations"
        if not isinstance(annotation, dict) or not isinstance(annotation.get("caption"), str):
            raise TaskError(
                f"{where} has no caption. Is this COCO's file of objects or key points? Expected one such as "
                "captions_train2017.json."
            )
        image = str(annotation.get("image_id"))
        if image not in names:
            raise TaskError(f"{where} is about the picture {image}, which is not in images.")
        if caption := " ".join(annotation["caption"].split()):
            captions.setdefault(image, []).append(caption)
    rows = (image for image in names if image in captions)
    for number, image in enumerate(rows, 1):
        yield number, {"image": names[image], "image_id": image, "caption": captions[image]}


def is_lxmert(record: Mapping[str, Any]) -> bool:
    """Whether an object of JSON is a picture of LXMERT."""
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
