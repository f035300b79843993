"""Linear models on n-grams: what they learn, their files, and where their figures stand next to those of networks."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.train.finetune_output import print_result
from cloze.errors import CheckpointError, MissingExtra, TaskError
from cloze.runs.finetuning.finetune import run_finetuning
from cloze.runs.finetuning.measure_result import measure_on_files
from cloze.runs.finetuning.ngrams import compare_with_ngrams
from cloze.runs.options import FinetuneOptions
from cloze.tasks.evaluation import evaluate
from cloze.tasks.evaluation_text import evaluation_lines
from cloze.tasks.linear.cutting import Cutter
from cloze.tasks.linear.estimators import Classes
from cloze.tasks.linear.features import FeatureSpace
from cloze.tasks.linear.fit import fit_linear, fold_numbers, fold_outputs
from cloze.tasks.linear.model import load_linear
from cloze.tasks.remarks import remark_on_ngrams
from cloze.tasks.task import Evaluation, Task, selected, task
from cloze.tasks.tuned_folder import load_tuned
from cloze.text.characters import IDEOGRAPHS

pytest.importorskip("sklearn")

WORDS = ["the", "a", "cat", "dog", "film", "is", "was", "good", "bad", "not", "very", "and", "old", "new"]


def texts(count: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choice(WORDS) for _ in range(6)) for _ in range(count)]


def rows_of(kind: str, count: int = 40) -> list[dict[str, Any]]:
    """Rows of a task that n-grams can learn."""
    own = texts(count)
    other = own[1:] + own[:1]
    make: Mapping[str, Callable[[int], dict[str, Any]]] = {
        "sentence_classification": lambda n: {"text": own[n], "label": f"{'good' in own[n]} {'bad' in own[n]}"},
        "pair_classification": lambda n: {
            "text": own[n], "text_b": other[n], "label": str("cat" in own[n] and "cat" in other[n])
        },
        "multi_label": lambda n: {"text": own[n], "label": [w for w in ("good", "bad", "film") if w in own[n].split()]},
        "regression": lambda n: {"text": own[n], "label": own[n].count("good") - own[n].count("bad")},
        "multiple_choice": lambda n: {
            "text": own[n], "choices": [own[n][:12], other[n][:12]][:: 1 if n % 3 else -1], "label": 0 if n % 3 else 1
        },
        "span_classification": lambda n: {"text": own[n], "spans": [[0, 3], [4, 7]], "label": own[n].split()[0]},
        "token_labelling": lambda n: {
            "text": own[n].split(), "label": ["B-X" if w in ("cat", "dog") else "O" for w in own[n].split()]
        },
    }  # fmt: skip
    return [make[kind](number) for number in range(count)]


def read(kind: str, folder: Path, rows: list[dict[str, Any]]) -> tuple[Task, Any]:
    made = task(kind)
    path = folder / f"{kind}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return made, made.read(path)


KINDS = (
    "sentence_classification", "pair_classification", "multi_label", "regression", "multiple_choice", "span_classification",
    "token_labelling",
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_task_on_texts_is_learned_by_n_grams_and_its_files_give_the_same_answers(kind: str, tmp_path: Path) -> None:
    made, examples = read(kind, tmp_path, rows_of(kind))
    linear = fit_linear(made, examples)
    assert linear.fit.chosen_on == "5 folds of the training rows" and linear.fit.rows == linear.fit.of_rows == 40
    metrics = linear.measure(examples)
    assert set(metrics) == {*made.metrics, *(["f1"] if kind == "pair_classification" else [])}  # F1 of two classes
    first, more = next(iter(made.metrics.items()))
    assert more and metrics[first] > 0.9
    assert linear.save(tmp_path) == sum((tmp_path / name).stat().st_size for name in ("ngrams.safetensors", "ngrams.json"))
    loaded = load_linear(tmp_path, made)
    assert loaded is not None and loaded.fit == linear.fit
    for ours, theirs in zip(linear.outputs(examples), loaded.outputs(examples), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_numbers_of_any_size_are_learned_as_well(scale: float, tmp_path: Path) -> None:
    made, examples = read("regression", tmp_path, rows_of("regression"))
    expected = fit_linear(made, examples).outputs(examples)
    rows = [{**row, "label": scale * row["label"]} for row in rows_of("regression")]
    linear = fit_linear(*read("regression", tmp_path, rows))
    linear.save(tmp_path)
    loaded = load_linear(tmp_path, made)
    assert loaded is not None
    for model in (linear, loaded):
        np.testing.assert_allclose(np.asarray(model.outputs(examples)) / scale, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["coreference", "dependency_parsing", "question_answering", "retrieval", "text_to_text"])
def test_tasks_without_a_sensible_linear_model_have_none(kind: str) -> None:
    assert task(kind).linear() is None


def test_tasks_about_pictures_have_none() -> None:
    assert task("sentence_classification", picture="image").linear() is None


def test_texts_are_weighted_and_classified_as_by_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline, make_union

    made, examples = read("sentence_classification", tmp_path, rows_of("sentence_classification", 60))
    train, dev = (selected(examples, numbers) for numbers in (range(40), range(40, 60)))
    monkeypatch.setattr(Classes, "constants", (10.0,))
    by_rows = fit_linear(made, train)
    monkeypatch.setattr("cloze.tasks.linear.estimators._FEW", 0)  # weights of features, as scikit-learn learns them
    monkeypatch.setattr("cloze.tasks.linear.estimators._FEW_OF_ONE", 0)
    linear = fit_linear(made, train)
    theirs = make_pipeline(
        make_union(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+"),
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True),
        ),
        LogisticRegression(C=10.0),
    )
    theirs.fit(train.texts, train.labels)
    expected = theirs.predict_proba(dev.texts)
    assert linear.task.labels == tuple(theirs.classes_)
    np.testing.assert_allclose(linear.outputs(dev), expected, atol=2e-3)
    assert linear.outputs(dev).argmax(1).tolist() == expected.argmax(1).tolist()
    np.testing.assert_allclose(by_rows.outputs(dev), expected, atol=0.02)  # the optimizer stops elsewhere
    assert by_rows.outputs(dev).argmax(1).tolist() == expected.argmax(1).tolist()


def test_rows_are_answered_by_weights_that_have_not_seen_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Classes, "constants", (100.0,))
    made, examples = read("sentence_classification", tmp_path, rows_of("sentence_classification"))
    chance = replace(examples, labels=[str(number % 2) for number in range(40)])  # nothing can be learned
    seen, unseen = fit_linear(made, chance).outputs(chance), fold_outputs(made, chance)
    truth = np.arange(40) % 2
    assert unseen.shape == (40, 2) and (seen.argmax(1) == truth).mean() > 0.9 > (unseen.argmax(1) == truth).mean()


def test_examples_that_share_a_text_are_in_one_fold_unless_it_is_in_many(tmp_path: Path) -> None:
    rows = [{"text": f"first {n // 2}", "text_b": f"second {n}", "label": n % 2} for n in range(40)]
    kind, pairs = read("pair_classification", tmp_path, rows)
    folds = fold_numbers(kind.linear(), pairs)
    assert (folds[::2] == folds[1::2]).all() and np.bincount(folds).tolist() == [8] * 5
    for row in rows:
        row["text_b"] = "the same of all"
    kind, pairs = read("pair_classification", tmp_path, rows)
    assert (fold_numbers(kind.linear(), pairs) == folds).all()
    for n, row in enumerate(rows):  # a chain that holds all examples
        row["text"], row["text_b"] = f"text {n}", f"text {n + 1}"
    kind, pairs = read("pair_classification", tmp_path, rows)
    assert np.bincount(fold_numbers(kind.linear(), pairs)).tolist() == [8] * 5


def test_the_order_of_labels_is_that_of_the_network_and_a_class_without_rows_is_never_likely(tmp_path: Path) -> None:
    made, examples = read("sentence_classification", tmp_path, rows_of("sentence_classification"))
    names = ("unseen", *sorted(set(examples.labels), reverse=True))
    linear = fit_linear(made, examples, labels=names)
    shares = linear.outputs(examples)
    assert linear.task.labels == names and shares.shape == (40, len(names))
    assert shares[:, 0].max() == 0.0
    np.testing.assert_allclose(shares.sum(1), 1.0, atol=1e-5)


def test_a_class_of_one_row_is_missing_in_the_training_rows_of_one_fold(tmp_path: Path) -> None:
    made, examples = read("sentence_classification", tmp_path, rows_of("sentence_classification", 20))
    linear = fit_linear(made, replace(examples, labels=["rare", *["usual"] * 19]))
    assert linear.task.labels == ("rare", "usual")


def test_enough_dev_rows_choose_the_constant(tmp_path: Path) -> None:
    made, examples = read("sentence_classification", tmp_path, rows_of("sentence_classification", 70))
    linear = fit_linear(made, selected(examples, range(20)), selected(examples, range(20, 70)))
    assert linear.fit.chosen_on == "dev rows" and linear.fit.rows == 20


def test_of_too_many_characters_some_rows_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloze.tasks.linear.fit.CHARACTERS", 700)
    made, examples = read("sentence_classification", tmp_path, rows_of("sentence_classification"))
    fit = fit_linear(made, examples).fit
    assert 20 <= fit.rows < 40 and fit.of_rows == 40


def test_what_cannot_be_fitted_is_said_in_a_line_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, examples = read("sentence_classification", tmp_path, rows_of("sentence_classification"))
    with pytest.raises(TaskError, match="^too few training rows for a comparison: 19 of at least 20$"):
        fit_linear(made, selected(examples, range(19)))
    alike = replace(examples, labels=["same"] * 40)
    with pytest.raises(TaskError, match="^all training rows have the same answer$"):
        fit_linear(made, alike)
    with pytest.raises(TaskError, match="^the training rows are empty$"):
        fit_linear(made, replace(examples, texts=[" "] * 40))
    train = [str(tmp_path / "sentence_classification.jsonl")]
    lines: list[str] = []

    def compared() -> Any:
        return compare_with_ngrams(made, train, examples, labels=None, folder=tmp_path, say=lines.append)

    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    assert compared() is None
    assert lines == [str(MissingExtra("scikit-learn", "baselines", "a linear model on n-grams to compare with"))]
    assert lines[0].endswith('pip install "cloze-lm[baselines]"')

    def broken(*given: Any, **named: Any) -> Any:
        raise FloatingPointError("overflow")

    monkeypatch.setattr("cloze.runs.finetuning.ngrams.fit_linear", broken)
    assert compared() is None and lines[1:] == ["no linear model on n-grams: FloatingPointError: overflow"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda one: one.pop("blocks"), "'blocks'"),
        (lambda one: one["blocks"][0]["features"].pop(), r"\d+ features of 'words' for \d+ weights"),
        (lambda one: one.update(version=9), "version 9; this cloze reads 1"),
        (lambda one: one.update(task="regression"), "it is for the task 'regression'"),
        (lambda one: one.update(fit=3), "argument after"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_an_error_that_names_it(damage: Any, said: str, tmp_path: Path) -> None:
    made, examples = read("sentence_classification", tmp_path, rows_of("sentence_classification", 20))
    fit_linear(made, examples).save(tmp_path)
    path = tmp_path / "ngrams.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    damage(settings)
    path.write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(CheckpointError, match=rf"ngrams.json: damaged, or of another model than ngrams.safetensors \(.*{said}"):
        load_linear(tmp_path, made)
    assert load_linear(tmp_path / "nowhere", made) is None


def test_coefficients_that_are_cut_off_and_labels_of_another_model_are_errors(tmp_path: Path) -> None:
    made, examples = read("sentence_classification", tmp_path, rows_of("sentence_classification", 20))
    fit_linear(made, examples).save(tmp_path)
    with pytest.raises(CheckpointError, match="its labels are not those of task.json"):
        load_linear(tmp_path, made, labels=("x", "y"))
    path = tmp_path / "ngrams.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="ngrams.safetensors: damaged or copied only in part"):
        load_linear(tmp_path, made)


def test_script_without_spaces_is_cut_into_characters() -> None:
    cutter = Cutter.of(["今天天气很好，我们出去玩吧。", "他说OK"])
    assert not cutter.spaced and cutter.words("今天") == []
    assert cutter.characters("今天 OK") == ["今", "天", " ", "o", "k", "今天", "天 ", " o", "ok", "今天 ", "天 o", " ok"]
    assert Cutter.of(["我 爱 北京 。"]).spaced and Cutter.of(["오늘 날씨가 좋다"]).spaced
    assert not Cutter.of(["สวัสดีครับ"]).spaced and IDEOGRAPHS


def test_words_are_cut_by_the_rule_of_cloze() -> None:
    assert Cutter().words("Don't go!") == ["don't", "go", "!", "don't go", "go !"]


def test_at_most_so_many_features_are_kept_the_most_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloze.tasks.linear.features.MOST", 2)
    features, rows = FeatureSpace.learned([("words", "binary")], [(["a", "b", "c"],), (["b", "c"],), (["c"],)])
    assert features.blocks[0].numbers == {"b": 0, "c": 1}
    np.testing.assert_array_equal(rows.product(np.array([[1.0], [10.0]], np.float32)), [[11.0], [11.0], [10.0]])


def test_rows_without_known_features_have_the_product_zero() -> None:
    features, _ = FeatureSpace.learned([("words", "tfidf")], [(["a", "b"],), (["a"],)])
    rows = features.rows([([],), (["a"],), (["z"],), (["b", "b"],), ([],)])
    assert rows.product(np.eye(2, dtype=np.float32)).tolist() == [[0, 0], [1, 0], [0, 0], [0, 1], [0, 0]]


def test_n_grams_that_win_are_remarked_on_with_what_helps() -> None:
    more = {"accuracy": True, "macro_f1": True}
    said = remark_on_ngrams({"accuracy": 0.674, "macro_f1": 0.9}, {"accuracy": 0.707, "macro_f1": 0.1}, more)
    assert said == (
        "a linear model on n-grams is better: accuracy 0.7070 against 0.6740. What helps a network most: pre-training on "
        "more text like these rows, a larger checkpoint, more epochs (--set training.epochs=N), or more labelled rows."
    )
    assert remark_on_ngrams({"accuracy": 0.7}, {"accuracy": 0.7}, more) is None
    assert remark_on_ngrams({"mse": 1.0}, {"mse": 0.5}, {"mse": False}) is not None
    assert remark_on_ngrams({"loss": 1.0}, {"accuracy": 0.5}, more) is None


def test_an_evaluation_has_a_column_of_n_grams() -> None:
    made = Evaluation(4, {"accuracy": 0.5, "f1": 0.25}, {"always": "x", "accuracy": 0.25}, ngrams={"accuracy": 0.75, "f1": 1.0})
    assert list(evaluation_lines("a", made)) == [
        "a: 4 examples",
        "                       always 'x'  n-grams",
        "  accuracy     0.5000  0.2500      0.7500",
        "  f1           0.2500              1.0000",
    ]
    assert made.record()["ngrams"] == {"accuracy": 0.75, "f1": 1.0}
    assert "<th>n-grams</th>" in made._repr_html_()


def test_a_fine_tuned_folder_holds_the_linear_model_and_shows_it_everywhere(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import cloze

    monkeypatch.setattr("cloze.runs.finetuning.measure_result.compare_with_ngrams", compare_with_ngrams)
    out, lines = tmp_path / "out", list[str]()
    options = FinetuneOptions(
        folder("bert"), out, str(tables / "train.tsv"), str(tables / "dev.tsv"), test=str(tables / "dev.tsv"),
        overrides=["corpus.length=24", "training.epochs=1", "training.rate.peak=1e-9", "training.batch=32"], report=lines.append,
    )
    tuned = measure_on_files(run_finetuning(options), [str(tables / "dev.tsv")], "test")
    ngrams = tuned.task_json["ngrams"]
    assert ngrams["dev"]["accuracy"] == ngrams["test"]["accuracy"] == 1.0 and ngrams["rows"] == 64
    assert ngrams["bytes"] == sum((out / "cloze" / name).stat().st_size for name in ("ngrams.safetensors", "ngrams.json"))
    assert any(line.startswith("n-grams: a linear model with ") and "fitted to 64 training rows" in line for line in lines)
    better = [one for one in tuned.task_json["remarks"] if "a linear model on n-grams is better: accuracy 1.0000" in one]
    assert [one.partition(":")[0] for one in better] == ["dev", "test"]
    assert "| n-grams (dev) | n-grams (test) |" in (out / "README.md").read_text(encoding="utf-8")
    print_result(tuned.task_json, out, as_json=False)
    shown = capsys.readouterr().out
    assert "dev       always 'animal'  n-grams\n" in shown and "(n-grams 1.0000)\n" in shown
    learner, _ = load_tuned(load_checkpoint(out))
    assert evaluate(learner, learner.task.read(tables / "dev.tsv")).ngrams == ngrams["dev"]
    assert " on dev (n-grams 1.0000)" in repr(cloze.load(out))
    again = run_finetuning(options)
    assert again.task_json["ngrams"] == ngrams  # a finished run fits nothing


def test_without_baselines_nothing_is_fitted(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloze.runs.finetuning.measure_result.compare_with_ngrams", compare_with_ngrams)
    options = FinetuneOptions(
        folder("bert"), tmp_path / "out", str(tables / "train.tsv"), str(tables / "dev.tsv"), baselines=False,
        overrides=["corpus.length=24", "training.epochs=1", "training.batch=64"],
    )
    assert "--no-baselines" in options.words()
    tuned = run_finetuning(options)
    assert "ngrams" not in tuned.task_json and not (tmp_path / "out" / "cloze" / "ngrams.json").exists()
