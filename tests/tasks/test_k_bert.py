"""K-BERT as a way of fine-tuning: a task whose answer stands in the graph alone, and what the result keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.reader import Reader
from cloze.recipe.load import load_recipe
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto

FIRST, LAST = ["garden", "mat", "mice", "the", "and", "of", "on"], ["rose", "fell", "saw", "bar", "all", "che", "int", "gar"]
NAMES = [f"{first} {last}" for first in FIRST for last in LAST]


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names of cats and dogs, as only the facts tell; the dev set has others than the training set."""
    made, draw = tmp_path_factory.mktemp("town"), np.random.default_rng(0)
    rows = [(name, ("cat", "dog")[kind]) for name, kind in zip(draw.permutation(NAMES), draw.integers(0, 2, 56), strict=True)]
    for part, own in (("train", rows[:40]), ("dev", rows[40:])):
        (made / f"{part}.tsv").write_text("text\tlabel\n" + "".join(f"{name}\t{label}\n" for name, label in own))
    (made / "facts.tsv").write_text("".join(f"{name}\tis\t{label}\n" for name, label in rows))
    return made


def tuned(start: Path, town: Path, out: Path, recipe: str, *values: str, binds: tuple[str, ...] = ()) -> Any:
    fitted = ["length=16", "training.batch=8", "training.epochs=14", "training.rate.peak=3e-3", "training.evaluate_every=0.5"]
    return finetune(
        start, train=[str(town / "train.tsv")], dev=[str(town / "dev.tsv")], out=out, recipe=recipe, binds=binds,
        overrides=[*fitted, "network.dropout=0.0", *values], report=lambda line: None,
    )


@pytest.mark.parametrize("name", ["k-bert_classification", "k-bert_token_labelling"])
def test_the_gradient_of_each_tensor_is_clipped_as_in_the_authors_code(name: str) -> None:
    """`clip_grad_norm_(p, group['max_grad_norm'])` of uer/utils/optimizers.py, with its default of 1."""
    training = load_recipe(name).training
    assert training.clip is None and training.optimizer.arguments["tensor_clip"] == 1.0


def test_a_label_that_only_the_graph_tells_is_learned_for_unseen_names(
    folder: Callable[[str], Path], town: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, facts = folder("bert"), f"facts={town / 'facts.tsv'}"
    made = tuned(start, town, tmp_path / "k", "k-bert_classification", "exercise.inject.predicate=false", binds=(facts,))
    accuracy = made.task_json["dev"]["accuracy"]
    assert accuracy == 1.0
    without = tuned(start, town, tmp_path / "plain", "sentence_classification").task_json["dev"]["accuracy"]
    assert without <= 0.75
    assert main(["evaluate", str(tmp_path / "k"), str(town / "dev.tsv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[str(town / "dev.tsv")]["metrics"]["accuracy"] == accuracy  # it keeps the facts
    opened = load_checkpoint(tmp_path / "k")
    assert [edit.adds for edit in opened.input_edits] == [True] and len(opened.tables) == 1
    (row,) = Reader.of(opened).encode([NAMES[-1]])
    assert row.tree is not None and row.tree.branch.any()


def test_a_checkpoint_with_facts_is_tuned_further_with_its_own_or_with_others(
    folder: Callable[[str], Path], town: Path, tmp_path: Path
) -> None:
    small = ("training.epochs=1", "training.evaluate_every=epoch")
    tuned(folder("bert"), town, tmp_path / "k", "k-bert_classification", *small, binds=(f"facts={town / 'facts.tsv'}",))
    first = load_checkpoint(tmp_path / "k")
    for recipe in ("sentence_classification", "k-bert_classification"):
        made = recipe_onto(recipe, first, overrides=["length=24"])
        assert [edit.part.name for edit in made.entries["main"].exercise] == ["frame", "label", "inject"]
    tuned(tmp_path / "k", town, tmp_path / "again", "sentence_classification", *small)
    kept: Any = load_checkpoint(tmp_path / "again").tables["facts"]
    assert all(np.array_equal(kept.arrays[name], value) for name, value in first.tables["facts"].arrays.items())
    (tmp_path / "other.tsv").write_text("cat\tis\twarm\n")
    tuned(tmp_path / "k", town, tmp_path / "other", "sentence_classification", *small, binds=(f"facts={tmp_path / 'other.tsv'}",))
    assert len(load_checkpoint(tmp_path / "other").tables["facts"].first) == 2  # type: ignore[attr-defined]


def test_each_word_keeps_its_label_beside_facts(folder: Callable[[str], Path], town: Path, tmp_path: Path) -> None:
    rows = ["{}\tB-PER\n{}\tI-PER\nsleeps\tO\n".format(*name.split()) for name in NAMES]
    (tmp_path / "train.conll").write_text("\n".join(rows[:40]))
    (tmp_path / "dev.conll").write_text("\n".join(rows[40:]))
    made = finetune(
        folder("bert"), train=[str(tmp_path / "train.conll")], dev=[str(tmp_path / "dev.conll")], out=tmp_path / "ner",
        task="token_labelling", recipe="k-bert_token_labelling", binds=[f"facts={town / 'facts.tsv'}"], report=lambda line: None,
        overrides=["length=16", "training.epochs=3", "training.rate.peak=1e-2"],
    )
    assert made.task_json["dev"]["span_f1"] == 1.0


@pytest.mark.parametrize(("arguments", "expected"), [
    ([], "tables: triples: no file. Give one with a fact per line"),
    (["--bind", "fact=facts.tsv"], "--bind fact: k-bert_classification has no such source, table or checkpoint. "
     "Did you mean 'facts'?"),
    (["--bind", "facts=facts.tsv"], "facts.tsv:1: 2 columns, expected subject, predicate and object"),
])
def test_a_graph_that_is_missing_or_damaged_is_an_error_in_words(
    folder: Callable[[str], Path], town: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("facts.tsv").write_text("cat\twarm\n")
    files = ["--train", str(town / "train.tsv"), "--dev", str(town / "dev.tsv")]
    assert main(["finetune", str(folder("bert")), "--recipe", "k-bert_classification", *files, *arguments, "--out", "out"]) == 2
    assert expected in capsys.readouterr().err
