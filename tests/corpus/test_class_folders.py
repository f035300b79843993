"""A folder per class as a set of labelled texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloze.errors import TaskError
from cloze.tasks import pair_classification, sentence_classification


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        label, _, file = name.partition("__")
        (folder / label).mkdir(parents=True, exist_ok=True)
        (folder / label / file.replace("_", ".")).write_text(text, encoding="utf-8")
    return folder


def test_a_folder_per_class_is_labelled_text(tmp_path: Path) -> None:
    write(tmp_path, pos__1_txt="Good film.\n", neg__2_txt="Bad.\nVery bad.\n", neg__1_txt="Poor.")
    (tmp_path / "pos" / ".hidden").write_text("no")
    (tmp_path / "README.md").write_text("no class")
    found = sentence_classification().read(tmp_path)
    assert (found.texts, found.labels) == (["Poor.", "Bad.\nVery bad.", "Good film."], ["neg", "neg", "pos"])


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ({}, "this folder has no subfolders; expected one per class, such as neg/1.txt and pos/1.txt, or a file"),
        ({"neg__1_txt": " \n"}, r"neg/1\.txt: the file is empty"),
        ({"neg__1_html": "<p>"}, r"neg/1\.html: expected a text file \(\.txt\) in the folder of a class"),
        ({"neg__1_txt": "x", "pos__": ""}, r"pos: this class has no texts; expected \.txt files"),
    ],
)
def test_what_is_no_text_in_a_class_is_told(tmp_path: Path, texts: dict[str, str], told: str) -> None:
    (tmp_path / "pos").mkdir() if "pos__" in texts else None
    write(tmp_path, **{name: text for name, text in texts.items() if text})
    with pytest.raises(TaskError, match=told):
        sentence_classification().read(tmp_path)


def test_pairs_have_no_folders(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="is a folder, expected a file. A folder per class is read by"):
        pair_classification().read(write(tmp_path, neg__1_txt="x"), labelled=True)
