"""Mixtures of a network with a linear model: how they are pooled and chosen, and what a folder with one answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.onnx_file import companions
from cloze.checkpoint.share import share as export
from cloze.errors import CheckpointError, TaskError
from cloze.recipe.load import load_recipe
from cloze.runs.finetuning.finetune import finetune, run_finetuning
from cloze.runs.finetuning.measure_result import measure_on_files
from cloze.runs.finetuning.ngrams import compare_with_ngrams, require_mixable
from cloze.runs.options import FinetuneOptions
from cloze.tasks.evaluation import evaluate
from cloze.tasks.linear.estimators import Classes, GroupChoice, Numbers, Sets
from cloze.tasks.mixture import choose_mixture, pooled
from cloze.tasks.tuned_folder import load_tuned, task_in_folder

pytest.importorskip("sklearn")


def linear_of(estimator: Any, targets: Any, outputs: Any) -> Any:
    """A stand-in for a fitted model that gives these outputs."""
    task = SimpleNamespace(
        estimator=estimator, targets=lambda examples: targets, loss=lambda examples, own: estimator.loss(own, targets)
    )
    return SimpleNamespace(task=task, outputs=lambda examples: outputs)


@given(st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4))
def test_shares_of_none_and_all_give_one_model(numbers: list[float]) -> None:
    first, second = np.array(numbers).reshape(2, 2), np.array(numbers[::-1]).reshape(2, 2)
    for estimator in (Sets(), Numbers()):
        for share, expected in ((0.0, first), (1.0, second)):
            assert np.allclose(estimator.pooled(first, second, share, 1.0), expected, atol=2e-6)
    first, second = (Classes(2).outputs(one) for one in (first, second))
    assert np.allclose(Classes(2).pooled(first, second, 0.0, 1.0), first, atol=1e-5)
    assert np.allclose(GroupChoice().pooled(first, second, 1.0, 1.0), second, atol=1e-5)


def test_two_answers_that_agree_are_as_sure_and_sharpness_makes_them_surer() -> None:
    shares = np.array([[0.8, 0.2]])
    assert np.allclose(Classes(2).pooled(shares, shares, 0.3, 1.0), shares)
    assert np.allclose(Classes(2).pooled(shares, shares, 0.3, 2.0), [[16 / 17, 1 / 17]])
    assert np.allclose(Sets().pooled(shares, shares, 0.3, 2.0), [[16 / 17, 1 / 17]])


def test_many_rows_choose_the_model_that_is_right_and_few_leave_equal_shares() -> None:
    right, wrong = np.array([[0.7, 0.3]]), np.array([[0.4, 0.6]])
    for count, low, high in ((1000, 0.9, 1.0), (2, 0.5, 0.6)):
        targets = np.zeros(count, np.int64)
        linear = linear_of(Classes(2), targets, np.repeat(right, count, 0))
        assert low <= choose_mixture(linear, None, np.repeat(wrong, count, 0)).share <= high
    targets = np.array([0, 0, 0, 0, 1] * 40)
    sure = np.repeat([[0.999, 0.001]], 200, 0)  # right in four of five rows
    mixture = choose_mixture(linear_of(Classes(2), targets, sure), None, sure)
    assert mixture.share == 0.5 and mixture.sharpness == 0.25


def test_numbers_are_mixed_to_the_lowest_error() -> None:
    targets = np.linspace(0, 1, 400)
    mixture = choose_mixture(linear_of(Numbers(), targets, targets + 0.3), None, targets - 0.1)
    assert (mixture.share, mixture.sharpness) == (0.25, 1.0)


def test_lists_are_pooled_example_by_example() -> None:
    task = SimpleNamespace(estimator=GroupChoice())
    network, linear = [np.array([0.5, 0.5]), np.array([0.2, 0.3, 0.5])], [np.array([0.9, 0.1]), np.array([0.2, 0.3, 0.5])]
    mixed = pooled(task, network, linear, 0.5, 1.0)  # type: ignore[arg-type]
    assert np.allclose(mixed[0], [0.75, 0.25]) and np.allclose(mixed[1], linear[1])


WORDS = ("good film", "bad film", "fine cat", "old dog")


def write_rows(path: Path, kind: str, count: int) -> str:
    """Rows of a task, whose answers follow from words."""
    texts = [f"the {WORDS[n % 4]} was {'very' if n % 3 else 'not'} {n % 5}" for n in range(count)]
    rows: dict[str, Callable[[int], dict[str, Any]]] = {
        "sentence_classification": lambda n: {"text": texts[n], "label": "pos" if "good" in texts[n] else "neg"},
        "multi_label": lambda n: {"text": texts[n], "label": [word for word in ("film", "very") if word in texts[n]]},
        "regression": lambda n: {"text": texts[n], "label": float(n % 4)},
        "multiple_choice": lambda n: {
            "text": texts[n], "choices": [texts[n], "a b"][:: 1 if n % 2 else -1], "label": (n + 1) % 2
        },
        "span_classification": lambda n: {"text": texts[n], "spans": [[4, 7]], "label": texts[n][4:7]},
        "token_labelling": lambda n: {
            "text": texts[n].split(), "label": ["B-X" if word in ("film", "cat") else "O" for word in texts[n].split()]
        },
    }  # fmt: skip
    path.write_text("".join(f"{json.dumps(rows[kind](n))}\n" for n in range(count)), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "kind",
    ["sentence_classification", "multi_label", "regression", "multiple_choice", "span_classification", "token_labelling"],
)
def test_a_folder_with_a_mixture_answers_with_it_and_says_so(
    kind: str, folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # conftest.py leaves it out
    monkeypatch.setattr("cloze.runs.finetuning.measure_result.compare_with_ngrams", compare_with_ngrams)
    files = {part: write_rows(tmp_path / f"{part}.jsonl", kind, count) for part, count in (("train", 24), ("dev", 12))}
    lines: list[str] = []
    tuned = finetune(
        folder("bert"), tmp_path / "out", files["train"], files["dev"], task=kind, overrides=["training.epochs=1"],
        mix_ngrams=True, device="cpu", report=lines.append,
    )
    record = tuned.task_json["mixture"]
    assert any(line.startswith(f"mixture: {record['share']:.0%} of the linear model") for line in lines)
    earlier = {**tuned.task_json, "remarks": ["dev: of the dev file", "test: of another file"]}
    (tuned.folder / "cloze" / "task.json").write_text(json.dumps(earlier), encoding="utf-8")
    described = measure_on_files(tuned, [files["dev"]], "test").task_json
    assert {"dev: of the dev file", "test: of another file"} & {*described["remarks"]} == {"dev: of the dev file"}
    card = (tuned.folder / "README.md").read_text(encoding="utf-8")
    assert "| metric | dev | mixture (test) |" in card and "| mixture (dev) |" in card
    assert "name: test examples, mixed with n-grams" in card and "name: dev examples\n" in card
    assert f"{record['share']:.0%} those of a linear model on n-grams. transformers" in card
    assert described["test"] == pytest.approx(record["dev"], abs=1e-6)
    learner, _ = load_tuned(load_checkpoint(tuned.folder))
    examples = task_in_folder(tuned.folder).read(files["dev"])
    details = json.loads(json.dumps(learner.evaluate(examples).details()))
    assert described.get("dev_report", {}) == details, "thresholds and calibration are those of the mixture"
    assert any("a mixture" in remark for remark in evaluate(learner, examples).remarks)
    mixed = [one.record() for one in learner.predict(examples)]
    mixture, learner.mixture = learner.mixture, None
    assert mixture is not None and mixed != [one.record() for one in learner.predict(examples)]
    export(tuned.folder, tmp_path / "share")
    assert (tmp_path / "share/cloze/ngrams.json").read_bytes() == (tuned.folder / "cloze/ngrams.json").read_bytes()
    if kind == "sentence_classification":  # an ONNX file holds the network alone
        about = {"version": 1, "head": "classification", "int8": False}
        assert "mixture" not in json.loads(companions(tuned.folder, tmp_path / "onnx", None, about=about)["cloze/task.json"])
    (tuned.folder / "cloze/ngrams.json").unlink()
    with pytest.raises(CheckpointError, match=r"cloze/ngrams\.json is missing\.\n  Copy"):
        load_tuned(load_checkpoint(tuned.folder))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"baselines": False}, "--mix-ngrams: needs the linear model that --no-baselines leaves out. Leave one of the two out."),
        ({"task": "text_to_text"}, "--mix-ngrams: there is no linear model on n-grams for text_to_text. Leave it out."),
    ],
)
def test_a_mixture_that_cannot_be_made_is_refused(asked: dict[str, Any], message: str) -> None:
    options = FinetuneOptions("base", mix_ngrams=True, **asked)
    with pytest.raises(TaskError, match=f"^{re.escape(message)}$"):
        require_mixable(load_recipe(options.task_name), options)


def test_a_finished_run_without_a_mixture_is_not_given_one_silently(folder: Callable[[str], Path], tmp_path: Path) -> None:
    kind = "sentence_classification"
    train, dev = (write_rows(tmp_path / f"{part}.jsonl", kind, 24) for part in ("train", "dev"))
    options = FinetuneOptions(folder("bert"), tmp_path / "out", train, dev, overrides=["training.epochs=1"], device="cpu")
    run_finetuning(options)
    with pytest.raises(TaskError, match=r"out: has finished without --mix-ngrams\. To train again .*, add --overwrite"):
        run_finetuning(replace(options, mix_ngrams=True))
