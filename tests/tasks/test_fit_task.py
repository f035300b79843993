"""How a recipe of a task is fitted to a checkpoint: its peak rate, and how what is new starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloze.budget.fit_task import TaskFacts, facts_of, fit_changes, fit_task, fit_texts
from cloze.budget.row_counts import RowCounts
from cloze.checkpoint.build import load_checkpoint, plain_arguments
from cloze.recipe.load import load_recipe, scratch_task_recipe_names, task_recipe_names
from cloze.runs.finetuning.task_recipe import recipe_onto


def test_the_peak_of_a_task_is_a_share_of_the_one_that_the_checkpoint_was_trained_with() -> None:
    plain = load_recipe("sentence_classification")

    def peak(recipe: dict[str, Any] | None, width: int = 192) -> float:
        facts = facts_of(recipe, row_counts=None, width=width)
        return next(float(change.fitted) for change in fit_task(plain, facts) if change.path.endswith(".peak"))

    adam = {"optimizer": {"adamw": {}}, "rate": {"linear": {"peak": 1e-4}}, "batch": 256}
    assert peak(None) == pytest.approx(2e-4)
    assert peak({"training": adam}) == pytest.approx(2.1e-5)
    assert peak({"training": adam, "task": {"type": "x"}}) == pytest.approx(3.5e-5)
    assert peak({"training": {**adam, "batch": 16}}) == pytest.approx(8.5e-5)
    assert peak({"training": {**adam, "batch": 4}}) == pytest.approx(1e-4)  # not above the checkpoint's own
    assert peak({"training": {**adam, "optimizer": {"lamb": {}}}}) == pytest.approx(2e-4)
    assert peak({"stages": {"one": {"training": {**adam, "batch": 4}}, "two": {"training": adam}}}) == pytest.approx(2.1e-5)
    electra = load_recipe("electra-base").canonical()
    assert peak(electra, 768) == pytest.approx(1e-4, rel=0.02)  # the authors' for 32 rows
    assert peak(electra, 256) == pytest.approx(2e-4, rel=0.02)
    staged = facts_of(load_recipe("ulmfit").canonical(), row_counts=None, width=192)
    assert (staged.peak, staged.batch) == (4e-3, 64)  # of the stage on the text of the task
    made = fit_task(load_recipe("token_labelling_crf"), TaskFacts(None, 192, peak=2.4e-3, batch=32))
    found = {change.path: change.fitted for change in made}
    network, times = found["training.rate.linear.peak"], found["training.layerwise_rates.heads.times"]
    assert network == pytest.approx(1.4e-3) and network * max(times, 1.0) == pytest.approx(1.4e-3)
    assert not [change for change in fit_task(load_recipe("distilled-bilstm"), TaskFacts(None, 192)) if "peak" in change.path]
    slow = {change.path: change.fitted for change in fit_task(load_recipe("token_labelling_crf"), TaskFacts(None, 384))}
    assert slow["training.layerwise_rates.heads.times"] == 10 and slow["training.rate.linear.peak"] == pytest.approx(1e-4)


def test_a_network_of_a_short_training_gets_a_mean_layer_where_heads_read_the_summary_token(
    folder: Callable[..., Path]
) -> None:
    def changes(recipe: str, system: str = "bert", *, facts: TaskFacts | None = None, layers: int = 2) -> list[Any]:
        made = recipe_onto(recipe, load_checkpoint(folder(system, layers=layers)))
        return [change.fitted for change in fit_changes(load_recipe(recipe), made, facts or short)]

    short = TaskFacts(None, 128, peak=1e-3, batch=32)
    for recipe in ("sentence_classification", "regression", "multi_label"):
        assert changes(recipe) == ["mean_layer"]
    for recipe in ("pair_classification", "multiple_choice"):  # two texts, whose mean would mix them
        assert changes(recipe) == []
    assert changes("sentence_classification", "electra") == changes("sentence_classification", "roberta") == ["mean_layer"]
    for recipe in ("token_labelling", "question_answering", "frozen_features", "retrieval"):  # they read other states
        assert changes(recipe) == []
    for system in ("gpt2", "modern"):  # the last token, the mean
        assert changes("sentence_classification", system) == []
    loaded = load_checkpoint(folder("bert", layers=2))
    meant = recipe_onto("sentence_classification", loaded, overrides=["objectives.0.pool=mean"])
    assert fit_changes(load_recipe("sentence_classification"), meant, short) == []
    for facts in (TaskFacts(None, 128), short._replace(width=768), short._replace(tuned=True)):  # trained for long, or tuned
        assert changes("sentence_classification", facts=facts) == []
    assert changes("sentence_classification", layers=1) == []
    encoder = TaskFacts(None, 384, means=True)
    assert changes("sentence_classification", facts=encoder, layers=1) == ["mean_layer=above"]
    assert changes("regression", facts=encoder) == ["mean_layer=above"]
    assert changes("pair_classification", facts=encoder) == changes("sentence_classification", "modern", facts=encoder) == []


def test_where_positions_weigh_tokens_by_distance_heads_read_the_mean_themselves(
    folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloze.runs.finetuning.task_recipe.is_sentence_encoder", lambda loaded: True)
    near = load_checkpoint(folder("bert", layers=2, positions="learned_with_buckets"))

    def fitted(recipe: str, *overrides: str) -> tuple[list[Any], str]:
        told: list[str] = []
        made = recipe_onto(recipe, near, overrides=overrides, report=told.append)
        heads = [plain_arguments(spec.part.arguments) for entry in made.entries.values() for _, spec in entry.objectives()]
        return [arguments.get("reading", arguments.get("pool")) for arguments in heads], "".join(told)

    for recipe in ("sentence_classification", "regression", "multi_label"):
        reading, told = fitted(recipe)
        assert reading == ["mean"]
        assert "objectives[0].pool" in told and "auto → mean" in told and "it was trained for the mean of its tokens" in told
        assert "objectives[0].pool=mean" in told.partition("as options: ")[2] and "mean_layer" not in told
    assert fitted("sentence_classification", "objectives.0.pool=summary")[0] == [True]
    assert fitted("pair_classification")[0] == [True]
    plain = recipe_onto("sentence_classification", load_checkpoint(folder("bert", layers=2)), report=lambda line: None)
    assert [change.name for change in plain.exported.change] == ["mean_layer"]



def test_heads_start_fitted_where_all_of_them_are_linear_models_of_a_trained_network() -> None:
    def start(recipe: str, facts: TaskFacts | None = None, *, random: bool = False) -> str:
        changes = fit_task(load_recipe(recipe), (facts or TaskFacts(None, 192))._replace(random=random))
        return next((str(change.fitted) for change in changes if change.path.endswith("new_heads")), "drawn")

    fitted = ("sentence_classification", "pair_classification", "regression", "multi_label", "multiple_choice", "token_labelling",
              "token_labelling_crf", "question_answering", "span_classification")  # fmt: skip
    for recipe in fitted:
        assert (start(recipe), start(recipe, random=True)) == ("fitted", "drawn")
    short = TaskFacts({"main": RowCounts(1000, 2)}, 192, peak=1e-3, batch=32)
    assert start("sentence_classification", short) == "drawn"
    fewer_rows = short._replace(row_counts={"main": RowCounts(999, 2)})
    for facts in (short._replace(tuned=True), short._replace(width=768), fewer_rows):
        assert start("sentence_classification", facts) == "fitted"
    for recipe in ("dependency_parsing", "frozen_features", "retrieval", "text_to_text", "ulmfit_classification", "chain_thaw"):
        assert start(recipe) == "drawn"


def test_the_change_that_fits_a_checkpoint_is_printed_as_an_option_and_not_made_for_heads_whose_pool_is_set(
    folder: Callable[..., Path]
) -> None:
    lines: list[str] = []
    loaded = replace(load_checkpoint(folder("electra", layers=2)), recipe=load_recipe("electra-small").canonical())
    made = recipe_onto("sentence_classification", loaded, report=lines.append)
    assert [change.name for change in made.exported.change] == ["mean_layer"] and made.training.new_heads == "fitted"
    assert "\n  change  " in lines[0] and "none → mean_layer" in lines[0] and "as options: --change mean_layer --set " in lines[0]
    again = recipe_onto("sentence_classification", replace(loaded, recipe=None), changes=["mean_layer"])
    assert again.exported.change == made.exported.change
    for own in ({"overrides": ["objectives.0.pool=summary"]}, {"changes": ["lora=2"]}, {"from_scratch": True}):
        kept = recipe_onto("sentence_classification", loaded, **own)  # type: ignore[arg-type]
        assert "mean_layer" not in [change.name for change in kept.exported.change]
        assert kept.training.new_heads == ("scaled" if "from_scratch" in own else "fitted")
    drawn = recipe_onto("sentence_classification", loaded, overrides=["training.new_heads=drawn"])
    assert drawn.training.new_heads == "drawn"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(300, {"epochs": 100, "peak": 0.5}), (1400, {"epochs": 25, "peak": 0.5}), (7000, {"peak": 0.5}), (100_000, {})],
)
def test_a_classifier_of_word_vectors_takes_more_steps_where_there_are_few_texts(rows: int, expected: dict[str, float]) -> None:
    changes = fit_texts(load_recipe("fasttext-supervised"), {"main": RowCounts(rows, 2)})
    assert {change.path.rpartition(".")[2]: change.fitted for change in changes} == expected
    assert fit_texts(load_recipe("sentence_classification"), {"main": RowCounts(rows, 2)}) == []


def test_a_recipe_that_keeps_the_last_epoch_reaches_it() -> None:
    tasks = [load_recipe(name) for name in (*task_recipe_names(), *scratch_task_recipe_names())]
    last = {recipe.name: recipe.task.patience for recipe in tasks if recipe.task is not None and recipe.task.keep == "last"}
    assert last == dict.fromkeys(("fasttext-supervised", "fasttext-supervised_multi_label", "patentbert"), 0)
