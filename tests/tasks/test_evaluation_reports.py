"""The report of a classifier: what `cloze evaluate` prints, its JSON and its page, and what Python shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cloze as package
from cloze.tasks.task import Evaluation, task

Tuned = Callable[..., Path]
ROWS = [
    ("the cat sleeps", "animal"), ("rain on the garden", "weather"), ("the dog and the mice", "animal"), ("a river", "weather"),
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    return path


def test_evaluate_reports_classes_confusions_calibration_and_a_threshold(cloze: Any, tuned: Tuned, rows: Path) -> None:
    made = json.loads(cloze("evaluate", tuned(), rows, "--json").out)[str(rows)]
    answers = [json.loads(line) for line in cloze("predict", tuned(), rows).out.splitlines()]
    counts = {true: dict.fromkeys(("animal", "weather"), 0) for true in ("animal", "weather")}
    for (_, true), answer in zip(ROWS, answers, strict=True):
        counts[true][answer["label"]] += 1
    assert made["confusion"] == {true: {given: n for given, n in row.items() if n} for true, row in counts.items()}
    assert [row["label"] for row in made["averages"]] == ["micro avg", "macro avg", "weighted avg"]
    assert made["averages"][1]["f1"] == made["metrics"]["macro_f1"] and made["averages"][0]["f1"] == made["metrics"]["accuracy"]
    shares = [answer["probabilities"]["weather"] for answer in answers]
    squares = [(share - (true == "weather")) ** 2 for share, (_, true) in zip(shares, ROWS, strict=True)]
    assert made["calibration"]["brier"] == pytest.approx(sum(squares) / 4, abs=1e-5)
    assert made["ranking"]["positive"] == "weather"
    shown = cloze("evaluate", tuned(), rows).out
    assert "label         precision  recall      f1  support" in shown and "right \\ given  animal  weather" in shown
    assert f"calibration: expected error {made['calibration']['expected_error']:.4f}, Brier score" in shown
    threshold = made["ranking"]["threshold"]
    assert f"highest F1 of 'weather' on these rows: {made['ranking']['f1']:.4f} with --threshold {threshold!r}" in shown

    at_it = json.loads(cloze("evaluate", tuned(), rows, "--json", "--threshold", threshold).out)[str(rows)]
    assert next(row["f1"] for row in at_it["report"] if row["label"] == "weather") == made["ranking"]["f1"]
    chosen = [json.loads(line) for line in cloze("predict", tuned(), rows, "--threshold", threshold).out.splitlines()]
    assert [one["label"] for one in chosen] == ["weather" if share >= threshold else "animal" for share in shares]
    assert all(one["probability"] == one["probabilities"][one["label"]] for one in chosen)


def test_texts_without_a_known_word_are_told(cloze: Any, tuned: Tuned, tmp_path: Path) -> None:
    said = "1 of 2 texts have no word that the vocabulary knows: their answers say nothing of them"
    assert f"note: {said}" in cloze("predict", tuned(), "猫 犬", "the cat").err
    (tmp_path / "rows.tsv").write_text("text\tlabel\n猫 犬\tanimal\nthe cat\tanimal\n", encoding="utf-8")
    assert f"note: {said}" in cloze("evaluate", tuned(), tmp_path / "rows.tsv").out
    with pytest.warns(UserWarning, match=said):
        package.load(tuned()).predict(["猫 犬", "the cat"])


def test_a_threshold_is_for_two_classes_and_a_probability(cloze: Any, tuned: Tuned, rows: Path) -> None:
    refused = cloze("predict", tuned(), rows, "--threshold", "1.5")
    assert refused.code == 2 and "--threshold 1.5: expected a probability between 0 and 1, such as 0.5." in refused.err

    from cloze.checkpoint.build import load_checkpoint
    from cloze.errors import TaskError

    described = {"head": None, "labels": ["a", "b", "c"]}
    with pytest.raises(TaskError, match=r"--threshold 0.3: is for two classes; this model has 3. Leave it out."):
        task("sentence_classification", threshold=0.3).load(load_checkpoint(Path(tuned())), described)


def test_the_page_shows_the_report_and_replaces_no_other_file(cloze: Any, tuned: Tuned, rows: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert cloze("evaluate", tuned(), rows, "--page", page).code == 0
    text = page.read_text()
    for words in ("By class", "Confusion matrix", "Calibration", "<svg class=\"chart\"", "Highest F1 of &#39;weather&#39;"):
        assert words in text
    assert "http://" not in text and "https://" not in text
    assert cloze("evaluate", tuned(), rows, "--page", page).code == 0  # its own is replaced
    page.write_text("<html>mine</html>")
    refused = cloze("evaluate", tuned(), rows, "--page", page)
    assert refused.code == 2 and "already exists, and cloze evaluate did not write it. Choose another name." in refused.err
    assert page.read_text() == "<html>mine</html>"
    refused = cloze("evaluate", tuned(), rows, "--page", tmp_path / "page.txt")
    assert refused.code == 2 and "expected a name that ends in .html." in refused.err


def test_markup_in_labels_stays_text_on_the_page() -> None:
    from cloze.reports.evaluation import render

    labels = [{"label": "<b>x</b>", "precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 2}]
    one = Evaluation(2, {"accuracy": 1.0}, None, by_class=labels)
    assert "<b>x</b>" not in render({"a.tsv": one}, title="<i>m</i>") and "<b>x</b>" not in one._repr_html_()


def test_evaluations_show_as_tables_in_python(tuned: Tuned, rows: Path) -> None:
    made = package.load(tuned()).evaluate(rows)
    lines = repr(made).splitlines()
    assert lines[0] == "Evaluation: 4 examples" and max(len(line) for line in lines if "note:" not in line) < 100
    assert any(line.split()[:1] == ["weather"] for line in lines)
    html = made._repr_html_()
    assert html.count("<table>") == 2 and "<td>animal</td>" in html and "right \\ given" in html


def test_predictions_show_as_a_table_and_as_an_array(tuned: Tuned) -> None:
    model = package.load(tuned())
    made = model.predict([text for text, _ in ROWS])
    assert isinstance(made, list) and len(made) == 4
    assert made.probabilities.shape == (4, 2)
    assert made.probabilities.sum(1).tolist() == pytest.approx([1.0] * 4, abs=1.5e-6)  # of numbers with six digits
    assert [model.labels[number] for number in made.probabilities.argmax(1)] == [one.label for one in made]
    html = made._repr_html_()
    assert html.count("<tr>") == 5 and "<td>rain on the garden</td>" in html and "<th>probabilities.animal</th>" in html
    many = model.predict(["<i>a</i>"] * 25)
    assert "25 predictions, the first 20 rows are shown." in many._repr_html_() and "<i>" not in many._repr_html_()
    assert model.predict([]).probabilities.shape == (0, 2)


def test_predictions_without_classes_have_no_probabilities() -> None:
    from cloze.api.predictions import Predictions
    from cloze.errors import UserError
    from cloze.tasks.kinds.text_to_text import GeneratedAnswer

    with pytest.raises(UserError, match="these predictions have none for every class"):
        _ = Predictions([GeneratedAnswer(1, "a", "b", True)], ()).probabilities


def test_of_many_classes_those_with_most_examples_are_printed() -> None:
    from cloze.tasks.evaluation_text import CLASSES, evaluation_lines

    count = CLASSES + 10
    report = [{"label": f"c{n:02}", "precision": 0.5, "recall": 0.5, "f1": 0.5, "support": n} for n in range(count)]
    lines = list(evaluation_lines("a.tsv", Evaluation(count, {"accuracy": 0.5}, None, by_class=report)))
    assert [line.split()[0] for line in lines if line.startswith("  c")] == [f"c{n:02}" for n in range(10, count)]
    assert "  and 10 more: --json and --page have all" in lines


def test_the_short_form_names_the_worst_classes_the_confusions_and_the_threshold() -> None:
    from cloze.tasks.evaluation_text import short_lines

    report = [{"label": f"c{n}", "precision": 0.0, "recall": 0.0, "f1": n / 10, "support": n} for n in range(7)]
    details = {
        "report": report, "confusion": {"c0": {"c0": 9, "c1": 2}, "c1": {"c2": 5}},
        "ranking": {"positive": "yes", "f1": 0.9, "threshold": 0.25},
    }
    assert list(short_lines(details)) == [
        "lowest F1: c0 0.0000 of 0, c1 0.1000 of 1, c2 0.2000 of 2, c3 0.3000 of 3, c4 0.4000 of 4",
        "confused (right → given): c1 → c2 5, c0 → c1 2",
        "highest F1 of 'yes': 0.9000 with --threshold 0.25 of predict",
    ]
