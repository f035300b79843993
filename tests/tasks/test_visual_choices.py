"""Multiple choice about pictures as VCR publishes it: objects in texts, answers and rationales."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cloze.cli.main import main
from cloze.corpus.readers.pictured.task_rows import NAMES, choice_row
from cloze.errors import TaskError
from cloze.tasks import task
from tests.tasks.pictured import pretrain, write_items

COUNT = 24
KIND = np.arange(COUNT) % 3
ROW = {
    "objects": ["person", "car", "person"], "question": ["Why", "is", [2], "in", [1], "?"], "img_id": "train-0",
    "answer_choices": [[[0, 2], "wait", "."], [[1], "is", "red", "."], ["no", "."], ["yes", "."]], "answer_label": 1,
    "rationale_choices": [["so", "."], [[0], "told", [2], "."], ["no", "."], ["yes", "."]], "rationale_label": 3,
}  # fmt: skip


def test_objects_become_classes_and_people_names() -> None:
    """`objects_replace_name` and `retokenize_and_convert_to_ids_with_tag` of VL-BERT's vcr.py."""
    row = choice_row(ROW)
    assert row is not None
    assert row["text"] == f"Why is {NAMES[1]} in car ?" and row["image"] == "train-0"
    assert row["choices"] == [f"{NAMES[0]} and {NAMES[1]} wait .", "car is red .", "no .", "yes ."] and row["label"] == 1
    assert row["question_answer"] == f"Why is {NAMES[1]} in car ? car is red ." and row["rationale_label"] == 3
    assert row["rationales"][1] == f"{NAMES[0]} told {NAMES[1]} ."
    bare = choice_row({name: value for name, value in ROW.items() if not name.endswith("label")})
    assert bare is not None and "label" not in bare and "question_answer" not in bare
    with pytest.raises(TaskError, match="a text names object 3 of 3"):
        choice_row({**ROW, "question": [[3]]})
    assert choice_row({"objects": "x", "question": ["a"]}) is None


def test_answers_and_rationales_are_columns_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "val.jsonl"
    path.write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    asked = task("multiple_choice", picture="image").read(path)
    assert asked.labels == [1] and asked.others is not None and len(asked.others[0]) == 4 and asked.pictures == ["train-0"]
    columns = {"text": "question_answer", "text_b": "rationales", "label": "rationale_label"}
    why = task("multiple_choice", picture="image", **columns).read(path)
    assert why.labels == [3] and why.others is not None and why.others[0][0] == "so ."


def test_a_file_of_vcr_is_trained_on_measured_and_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_items(tmp_path / "f.npz", KIND)
    start = pretrain("uniter", tmp_path, [{"image": str(n), "text": ["what is it", "it is here"]} for n in range(COUNT)])
    rows = [{**ROW, "img_id": str(n), "answer_label": int(KIND[n])} for n in range(COUNT)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    files = ["--train", str(tmp_path / "train.jsonl"), "--dev", str(tmp_path / "train.jsonl"), "--out", str(tmp_path / "out")]
    items = ["--items", str(tmp_path / "f.npz")]
    given = [*files, *items, "--set", "training.epochs=1", "--device", "cpu"]
    assert main(["finetune", str(start), "--task", "multiple_choice", *given]) == 0
    described = json.loads((tmp_path / "out/cloze/task.json").read_text(encoding="utf-8"))
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "out"), str(tmp_path / "train.jsonl"), *items, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["metrics"] == pytest.approx({"accuracy": described["dev"]["accuracy"]})
    assert main(["predict", str(tmp_path / "out"), str(tmp_path / "train.jsonl"), *items]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == COUNT and all(len(answer["probabilities"]) == 4 for answer in answers)
