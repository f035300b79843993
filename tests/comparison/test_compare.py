"""Comparisons: which cells there are, that none is repeated, what happens to a broken one, and what is refused."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloze.api.best import _row_files
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.comparison.answer import answer_of
from cloze.comparison.cell import planned, read_json
from cloze.comparison.compare import Interrupted, finish, require_own, run
from cloze.comparison.design import Design, budgets_of, candidates_of, checked, tasks_of, transfers_of
from cloze.comparison.grid import Grid
from cloze.comparison.progress import StatusLine
from cloze.comparison.sentence import as_csv, table
from cloze.corpus.stores.build import build_store
from cloze.corpus.stores.writer import saving
from cloze.errors import BudgetError, CheckpointError, CorpusError, RecipeError, TaskError, UserError
from cloze.tasks.tuned_folder import load_tuned
from cloze.text.normalise import Normalise
from cloze.text.words import Words
from cloze.training.trackers import TRACKERS, TrackedRun

from .conftest import WORDS, Here, stub

Make = Callable[..., Design]


class NamesOfRuns:
    """A tracker that keeps the names of the runs that it was opened for."""

    id, names = None, list[str]()

    def __init__(self, run: TrackedRun) -> None:
        self.names.append(run.name)

    def log(self, values: Any, step: int) -> None:
        assert values

    def close(self) -> None:
        """Nothing is left."""


class Killed(BaseException):
    """The process is gone."""


def killed_after(cells: int) -> Callable[[Path], int]:
    left = [cells]

    def work(folder: Path) -> int:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return stub(folder)

    return work


@pytest.fixture(scope="module")
def real(files: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Design, Path, list[str]]:
    """Two recipes, pre-trained and fine-tuned with one seed."""
    from .conftest import TUNING

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(files)
        design = Design(
            candidates_of(["a.yaml", "b.yaml"]), tasks_of(["mood=train.tsv,dev.tsv,test.tsv"]), ["text.txt"],
            budgets_of(["4steps"]), 1, tuning=TUNING, device="cpu", fit=True, track=["tensorboard"],
        )
        workers, out = Here(), tmp_path_factory.mktemp("real") / "out"
        patch.setitem(TRACKERS, "tensorboard", (NamesOfRuns, "json"))  # type: ignore[index]
        finish(design, out, workers, command="cloze compare …")
    return design, out, workers.started


def test_a_comparison_trains_every_cell_once_and_scores_every_example(real: tuple[Design, Path, list[str]]) -> None:
    design, out, started = real
    kinds = [name.split("-")[0] for name in started]
    assert kinds == ["corpus"] + ["pretrain"] * 2 + ["finetune"] * 2 and len(set(started)) == 5
    results = [read_json(path) or {} for path in sorted((out / "cells").glob("finetune-*/result.json"))]
    for result in results:
        assert result["examples"] == len(result["scores"]) == 16
        assert sum(result["scores"]) / 16 == pytest.approx(result["test"]) and set(result["scores"]) <= {0.0, 1.0}
    found = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    assert {one["name"] for one in found["systems"]} == {"a", "b"} and found["failed"] == []
    assert all(one["cost"]["tokens"] > 0 and one["cost"]["flops"] > 0 for one in found["systems"])
    assert found["answer"].startswith("No significant difference: ")
    ngrams = found["tasks"][0]["ngrams"]  # the 24 rows tell nothing but the words that decide: n-grams learn them
    assert ngrams["test"] == ngrams["metrics"]["accuracy"] and ngrams["rows"] == 24
    assert "A linear model on n-grams is " in found["answer"]
    runs = [read_json(path) or {} for path in (out / "cells").glob("pretrain-*/run/cloze/run.json")]
    assert len(runs) == 2 and all("training.batch=4" in run["fitted"] for run in runs)  # recipes of one's own, with --fit


def test_every_run_of_a_comparison_is_tracked_under_the_name_of_its_cell(real: tuple[Design, Path, list[str]]) -> None:
    _, out, started = real
    assert NamesOfRuns.names == [f"{out.name}/{cell}" for cell in started if not cell.startswith("corpus")]


def test_a_finished_comparison_runs_nothing_again_not_even_where_its_folder_was_copied(
    real: tuple[Design, Path, list[str]], files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    design, out, _ = real
    monkeypatch.chdir(files)
    shutil.copytree(out, tmp_path / "copy")
    workers = Here()
    finish(design, tmp_path / "copy", workers)
    assert workers.started == []


def test_the_linear_model_of_a_task_is_fitted_once_and_left_out_on_request(design: Make, tmp_path: Path) -> None:
    lines: list[str] = []
    finish(design(), tmp_path / "out", Here(stub), say=lines.append)
    fitted = [line for line in lines if "n-grams" in line]
    assert len(fitted) == 1 and fitted[0].startswith("mood: a linear model on n-grams, fitted in ")
    finish(design(), tmp_path / "out", Here(stub), say=lines.append)
    assert [line for line in lines if "n-grams" in line] == fitted
    answer, _ = finish(replace(design(), baselines=False), tmp_path / "without", Here(stub))
    assert answer.ngrams == {} and "n-grams" not in table(answer)


def test_a_result_that_was_copied_in_part_is_measured_again(design: Make, tmp_path: Path) -> None:
    run(design(), tmp_path, Here(stub))
    assert planned(Grid(checked(design()), tmp_path)) == [
        "corpus       1 cell, 1 finished", "pretrain     4 cells, 4 finished", "finetune     4 cells, 4 finished"
    ]  # fmt: skip
    cut = sorted((tmp_path / "cells").glob("finetune-*/result.json"))[1]
    cut.write_text(cut.read_text(encoding="utf-8")[:40], encoding="utf-8")
    assert planned(Grid(checked(design()), tmp_path))[2] == "finetune     4 cells, 3 finished"
    again = Here(stub)
    run(design(), tmp_path, again)
    assert again.started == [cut.parent.name]


def test_a_further_seed_and_a_further_task_reuse_what_is_there(design: Make, tmp_path: Path) -> None:
    run(design(), tmp_path, Here(stub))
    more = Here(stub)
    run(design(seeds=3, tasks=("mood=train.tsv,dev.tsv,test.tsv", "back=test.tsv,dev.tsv,train.tsv")), tmp_path, more)
    kinds = [(name.split("-")[0], name.split("-")[1]) for name in more.started]
    assert sorted(kinds) == sorted(
        [("pretrain", "a"), ("pretrain", "b")] + [("finetune", "mood")] * 2 + [("finetune", "back")] * 6
    )


def test_runs_that_other_laws_would_fit_otherwise_are_made_again(
    design: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads at offsets are a matter of BERT, not of GPT-2, and of no recipe of the user's own."""
    values = {"size": "tiny", "budgets": budgets_of(["1Mtokens"]), "seeds": 1}
    run(design("bert", "gpt2", "a.yaml", **values), tmp_path, Here(stub))
    monkeypatch.setattr("cloze.budget.fit.OFFSETS", [-2, 2])
    unchanged, changed = Here(stub), Here(stub)
    run(design("gpt2", "a.yaml", **values), tmp_path, unchanged)
    run(design("bert", **values), tmp_path, changed)
    assert (unchanged.started, [name.split("-")[0] for name in changed.started]) == ([], ["pretrain", "finetune"])
    monkeypatch.setattr("cloze.budget.fit_task.SHARE", 0.5)
    tuned = Here(stub)
    run(design("bert", **values), tmp_path, tuned)
    assert [name.split("-")[0] for name in tuned.started] == ["finetune"]


def test_a_comparison_that_is_killed_twice_repeats_no_cell(design: Make, tmp_path: Path) -> None:
    started: list[str] = []
    for cells in (3, 4, 99):
        workers = Here(killed_after(cells))
        try:
            run(design(rates=3), tmp_path, workers)
        except Killed:
            workers.started.pop()  # the cell that was at work
        started += workers.started
    assert len(started) == len(set(started)) == 1 + 8 + 8  # a store; 2 recipes: 3 rates and another seed, twice


def test_a_comparison_that_is_interrupted_shows_what_its_finished_cells_say(design: Make, tmp_path: Path) -> None:
    """The first seed comes first, so after its cells both recipes have a score on the task."""
    left = [5]

    def work(folder: Path) -> int:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return stub(folder)

    with pytest.raises(Interrupted):
        finish(design(seeds=3), tmp_path, Here(work))
    found = read_json(tmp_path / "compare.json") or {}
    assert found["unfinished"] > 0 and "1 of 3 seeds" in found["answer"]
    assert {one["name"]: len(one["tasks"]["mood"]["runs"]) for one in found["systems"]} == {"a": 1, "b": 1}
    assert "not finished" in (tmp_path / "compare.html").read_text(encoding="utf-8")


def test_an_interrupted_comparison_without_a_finished_cell_still_stops_in_words(design: Make, tmp_path: Path) -> None:
    def work(folder: Path) -> int:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        finish(design(), tmp_path, Here(work))
    assert (read_json(tmp_path / "compare.json") or {})["systems"] != []


def test_rates_are_tried_with_the_first_seed_and_the_best_is_used_with_the_others(design: Make, tmp_path: Path) -> None:
    def work(folder: Path) -> int:
        code = stub(folder, score=lambda request: 0.9 if request.get("factor") == 2 else 0.4)
        result: Any = read_json(folder / "result.json")
        if "held_out" in result:
            factor = (read_json(folder / "cell.json") or {})["request"]["factor"]
            (folder / "result.json").write_text(json.dumps({**result, "held_out": 2.0 if factor == 0.5 else 3.0}))
        return code

    workers = Here(work)
    grid = run(design("a.yaml", rates=3, seeds=3), tmp_path, workers)
    tried = [name.rsplit("-", 1)[0] for name in workers.started if not name.startswith("corpus")]
    first = ["seed1", "seed1-rate0.5", "seed1-rate2"]
    assert tried[:6] == [*(f"pretrain-a-4steps-{own}" for own in first), *(f"finetune-mood-a-4steps-{own}" for own in first)]
    assert tried[6:] == [f"{kind}-a-4steps-{own}" for seed in (2, 3) for kind, own in (
        ("pretrain", f"seed{seed}-rate0.5"), ("finetune-mood", f"seed{seed}-rate2")
    )]  # fmt: skip
    (system,) = answer_of(grid).systems
    assert system.rates == {"pre-training": 0.5, "mood": 2.0} and system.scores["mood"].runs == (0.9, 0.9, 0.9)


def test_a_broken_cell_is_shown_with_its_reason_and_the_rest_is_compared(
    real: tuple[Design, Path, list[str]], design: Make, tmp_path: Path
) -> None:
    _, out, _ = real
    good, broken = tmp_path / "good", tmp_path / "broken"
    shutil.copytree(next((out / "cells").glob("pretrain-a-*seed1-*")) / "run", good)
    shutil.copytree(good, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    said: list[str] = []
    answer, page = finish(
        design(str(good), str(broken), corpus=[], budgets=[], seeds=1), tmp_path / "out", Here(), say=said.append
    )
    (failure,) = answer.failures
    assert failure.cell.startswith("mood-broken-seed1") and "model.safetensors" in failure.reason
    assert said[-1] == f"failed: {failure.cell} (finetune): {failure.reason.splitlines()[0]}"
    assert all(line.startswith("mood: a linear model on n-grams, fitted in ") for line in said[:-1])
    shown = table(answer)
    assert "note: 1 cell failed\n" in shown and all(line in shown for line in failure.reason.splitlines())
    assert next(line for line in shown.splitlines() if line.startswith("broken")).split()[1:] == ["–", "failed"]
    assert f"    again: {failure.again}" in shown.splitlines() and failure.again in page.read_text(encoding="utf-8")
    assert failure.log in page.read_text(encoding="utf-8")
    assert [row.split(",")[0] for row in as_csv(answer).splitlines()] == ["system", "good"]


def test_a_first_seed_that_fails_leaves_the_others_to_be_finished(design: Make, tmp_path: Path) -> None:
    def work(folder: Path) -> int:
        return 1 if folder.name.startswith(("pretrain-a-4steps-seed1", "finetune-mood-b-4steps-seed1")) else stub(folder)

    workers = Here(work)
    grid = run(design(seeds=3), tmp_path, workers)
    assert len(workers.started) == 1 + 6 + 5  # all but the fine-tuning of what was not pre-trained
    answer = answer_of(grid)
    assert {one.name: tuple(one.scores["mood"].by_seed) for one in answer.systems} == {"a": (2, 3), "b": (2, 3)}
    assert sorted(one.cell for one in answer.failures) == ["a-4steps-seed1", "mood-b-4steps-seed1"]
    again = Here(stub)
    run(design(seeds=3), tmp_path, again)
    assert sorted(name.split("-")[0] for name in again.started) == ["finetune", "finetune", "pretrain"]


def test_budgets_are_runs_of_their_own_and_give_the_cost_of_a_score(design: Make, tmp_path: Path) -> None:
    workers = Here(stub)
    grid = run(design("a.yaml", seeds=1, budgets=budgets_of(["8steps", "4steps"])), tmp_path, workers)
    assert [name.split("-")[0] for name in workers.started] == ["corpus", "pretrain", "pretrain", "finetune", "finetune"]
    answer = answer_of(grid, reach=0.5)
    assert answer.reach is not None and answer.reach.cost("a") == (64.0, 1e6, 1.0)
    assert [one.budget for one in (*answer.systems, *answer.smaller)] == ["8steps", "4steps"]


def test_candidates_vary_values_and_families_stand_for_their_recipe() -> None:
    found = candidates_of(["bert", "electra"], vary=["training.batch=8,16"])
    assert found[1].varied == ("training.batch=16",)
    assert [(one.name, one.recipe, one.values) for one in found] == [
        ("bert training.batch=8", "bert", ("training.batch=8",)), ("bert training.batch=16", "bert", ("training.batch=16",)),
        ("electra training.batch=8", "electra-base", ("training.batch=8",)),
        ("electra training.batch=16", "electra-base", ("training.batch=16",)),
    ]  # fmt: skip


def test_a_way_of_transferring_is_full_frozen_or_a_change() -> None:
    assert [(one.name, one.changes) for one in transfers_of("full, lora=8,frozen")] == [
        ("full", []), ("lora=8", ["lora=8"]), ("frozen", [])
    ]  # fmt: skip
    assert [one.name for one in transfers_of("keep_layers=[0,2],lora={rank: 4, on: [query, value]}")] == [
        "keep_layers=[0,2]", "lora={rank: 4, on: [query, value]}"
    ]  # fmt: skip
    assert [one.changes for one in transfers_of("lora,adapters")] == [["lora"], ["adapters"]]
    frozen = transfers_of("frozen")[0]
    assert (frozen.changes_for("token_labelling"), frozen.changes_for("regression")) == ([], ["features"])
    for wrong, said in (("lora=x", 'change.lora.rank: got "x", expected a whole number'),
                        ("keep_layers", 'change.keep_layers: keep_layers needs "layers"'),
                        ("lora=", "expected a value after =, such as lora=8, or the name alone"),
                        ("loar=8", "expected full, frozen or a change, such as lora=8. Did you mean 'lora'")):
        with pytest.raises(RecipeError, match=f"--transfer {wrong}: {said}"):
            transfers_of(f"full,{wrong}")


@pytest.mark.parametrize(("way", "said"), [
    ("adapters=4", "--transfer adapters=4, candidate word2vec-cbow: adapters: WordVectors has no layers that adapters can follow."
                   "\n  Remove this way from --transfer, or this candidate."),
    ("keep_layers=[0,3]", "--transfer keep_layers=[0,3], candidate a: keep_layers: [0, 3]; expected layers from 0 to 0, in "
                          "ascending order."),
])  # fmt: skip
def test_a_change_that_a_candidate_cannot_take_is_refused_before_anything_is_trained(
    design: Callable[..., Design], tmp_path: Path, way: str, said: str
) -> None:
    own = ["a.yaml", "word2vec-cbow"] if "word2vec" in said else ["a.yaml"]
    with pytest.raises(CheckpointError, match=f"^{re.escape(said)}"):
        run(design(*own, transfers=transfers_of(f"full,{way}")), tmp_path / "out", Here())
    assert not (tmp_path / "out").exists()


def test_tasks_are_named_after_their_type_or_name_it(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    found = tasks_of(["mood=train.tsv,dev.tsv,test.tsv", "token_labelling=a,b,c", "names=token_labelling:a,b,c"])
    assert [(one.name, one.type, Path(one.test).name) for one in found] == [
        ("mood", "sentence_classification", "test.tsv"), ("token_labelling", "token_labelling", "c"),
        ("names", "token_labelling", "c"),
    ]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "said"), [
    ({"budgets": ()}, BudgetError, "a: --budget is missing: what each recipe may spend on pre-training, such as 20Mtokens"),
    ({"corpus": ["txet.txt"]}, UserError, "txet.txt"),
    ({"corpus": ["-"]}, CorpusError, "--corpus -: standard input can be read only once"),
    ({"tuning": ["modd:length=8"]}, TaskError, "--tune modd:length=8: no task of that name. Did you mean .mood"),
    ({"corpus": ()}, CorpusError, "a: --corpus is missing: the text to pre-train on"),
    ({"seeds": 0}, TaskError, "--seeds 0: expected 1 or more, better 3 or more"),
    ({"rates": 2}, TaskError, "--rates 2: expected an odd number, so that the fitted rate is in the middle: 1, 3 or 5"),
    ({"tasks": ("mood=train.tsv,dev.tsv,tset.tsv",)}, UserError, "tset.tsv: no such file"),
    ({"tasks": ("mood=train.tsv,dev.tsv",)}, TaskError, "expected NAME=TRAIN,DEV,TEST or NAME=TYPE:TRAIN,DEV,TEST"),
    ({"tasks": ("mood=moods:a,b,c",)}, TaskError, "unknown task 'moods'"),
    ({"tasks": ("mood=train.tsv,dev.tsv,./train.tsv",)}, TaskError, r"--task mood: .*/train.tsv is given twice"),
    ({"tasks": ("mood=train.tsv,dev.tsv,copy.tsv",)}, TaskError, "the splits share rows, so the test set would measure what"),
    (
        {"candidates": candidates_of(["bert"], vary=["exercise.mask.rat=0.1"], values=["training.batch=4"])}, RecipeError,
        r"--vary exercise.mask.rat=0.1: exercise\[2\].mask.rat: unknown argument .rat.",
    ),
    ({"tuning": ["training.epoch=2"]}, RecipeError, "--tune training.epoch=2: training.epoch: unknown argument"),
    ({"tuning": ["corpus.text=words"]}, UserError, "no column 'words'(.|\n)*Choose a column with --tune mood:corpus.text=NAME"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused_before_anything_is_written(
    change: dict[str, Any], error: type[UserError], said: str, design: Make, tmp_path: Path
) -> None:
    workers = Here(stub)
    with pytest.raises(error, match=said):
        run(design(**change), tmp_path / "out", workers)
    assert workers.started == [] and not (tmp_path / "out").exists()


def test_a_store_of_another_tokenizer_is_refused_before_anything_is_written(design: Make, tmp_path: Path) -> None:
    tokenizers = [Words(min_count=1).of_words(words, Normalise()) for words in (WORDS, WORDS[1:])]
    build_store(["text.txt"], tokenizers[0], tmp_path / "store")
    for number, tokenizer in enumerate(tokenizers):
        saving(tokenizer)(tmp_path / str(number))
    given = {"corpus": [str(tmp_path / "store")], "tokenizer": tmp_path / "0"}
    assert checked(design(**given)).recipes.keys() == {"a", "b"}
    with pytest.raises(CorpusError, match=r"was built with another tokenizer \(hash .*\) than --tokenizer .*/1 \(hash"):
        run(design(**{**given, "tokenizer": tmp_path / "1"}), tmp_path / "out", Here(stub))
    assert not (tmp_path / "out").exists()


def test_splits_that_share_rows_are_compared_if_that_is_allowed(design: Make) -> None:
    assert checked(design(tasks=("mood=train.tsv,dev.tsv,train.tsv",), shared=True)).metrics["mood"] == ("accuracy", True)


@pytest.mark.parametrize(("given", "said"), [
    ("brt", "unknown recipe 'brt'. Did you mean"), ("mine.yaml", "mine.yaml: there is no such file. "),
    ("runs/bert", "runs/bert: there is no such file. cloze has a recipe of this name: write bert."),
    ("distilbert", "distilbert: this recipe begins with a checkpoint."),
])  # fmt: skip
def test_an_unknown_candidate_names_the_way_out(given: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        candidates_of([given])


@pytest.mark.parametrize(("given", "said"), [
    ({"vary": ["training.batch=8,16"]}, "--vary training.batch=8,16: values of recipes; these candidates are checkpoints"),
    ({"values": ["training.batch=8"]}, "--set training.batch=8: values of recipes; .*\n.* are for --tune, such as"),
])  # fmt: skip
def test_values_of_recipes_are_refused_where_all_candidates_are_checkpoints(
    given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=said):
        candidates_of([str(tmp_path)], **given)
    assert len(candidates_of([str(tmp_path), "bert"], **given)) == 1 + (2 if "vary" in given else 1)


@pytest.mark.parametrize("option", ["size", "tokenizer", "corpus"])
def test_what_only_pre_training_reads_is_refused_where_all_candidates_are_checkpoints(
    option: str, design: Make, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"corpus": [], "size": None, "tokenizer": None} | {
        option: {"size": "tiny", "tokenizer": tmp_path, "corpus": ["text.txt"]}[option]
    }
    with pytest.raises(BudgetError, match=f"^--{option}: for recipes that are pre-trained; these candidates are checkpoints"):
        checked(design(candidates=candidates_of([str(tmp_path)]), budgets=(), **given))


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Two links, `minilm` and `bert`, to folders that are both called `model`, and the second of these itself."""
    for name in ("one", "two"):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "model" / "config.json").write_text("{}")
        (tmp_path / name / "model" / "model.safetensors").write_text(name)
    (tmp_path / "minilm").symlink_to(tmp_path / "one" / "model")
    (tmp_path / "bert").symlink_to(tmp_path / "two" / "model")
    return tmp_path


def test_a_checkpoint_has_the_name_that_was_given_and_not_that_of_the_folder_behind_a_link(
    linked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = candidates_of([str(linked / "minilm"), str(linked / "bert"), str(linked / "two" / "model")])
    assert [one.name for one in found] == ["minilm", "bert", "model"]
    monkeypatch.chdir(linked / "two")
    assert [one.name for one in candidates_of(["."])] == ["two"]
    both = candidates_of([str(linked / "one" / "model"), str(linked / "two" / "model")])
    assert [one.name for one in both] == ["one/model", "two/model"]


def test_a_checkpoint_under_another_name_is_the_same_cell_and_runs_nothing_again(
    linked: Path, design: Make, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"budgets": (), "corpus": [], "seeds": 2}
    by_folder = design(candidates=candidates_of([str(linked / "one" / "model")]), **given)
    by_link = design(candidates=candidates_of([str(linked / "minilm")]), **given)
    first, again = Here(stub), Here(stub)
    run(by_folder, tmp_path / "out", first)
    run(by_link, tmp_path / "out", again)
    assert len(first.started) == 2 and all("-model-" in name for name in first.started) and again.started == []
    grids = [Grid(checked(one), tmp_path / "out") for one in (by_folder, by_link)]
    old, new = ([cell.key for cell in grid.cells()] for grid in grids)
    assert old == new and [one.name for one in answer_of(grids[1]).systems] == ["minilm"]
    assert [cell.folder(tmp_path / "elsewhere").name.split("-")[2] for cell in grids[1].cells()] == ["minilm"] * 2


@pytest.mark.parametrize("file", ["tokenizer.json", "config.json", "cloze/network.json", "cloze/recipe.yaml"])
def test_checkpoints_with_the_same_weights_that_read_text_otherwise_are_cells_of_their_own(
    file: str, real: tuple[Design, Path, list[str]], design: Make, tmp_path: Path
) -> None:
    (trained,) = real[1].glob("cells/pretrain-a-*/run")
    for name in ("one", "two"):
        shutil.copytree(trained, tmp_path / name, ignore=shutil.ignore_patterns("checkpoints"))
    candidates = candidates_of([str(tmp_path / "one"), str(tmp_path / "two")])
    asked = checked(design(candidates=candidates, budgets=(), corpus=[], seeds=1))
    assert len({cell.key for cell in Grid(asked, tmp_path / "out").cells()}) == 1
    with (tmp_path / "two" / file).open("a", encoding="utf-8") as changed:
        changed.write("\n")
    (tmp_path / "two" / "README.md").write_text("A card says nothing about it.", encoding="utf-8")
    assert len({cell.key for cell in Grid(asked, tmp_path / "out").cells()}) == 2


def test_a_frozen_network_is_not_counted_among_the_trained_parameters(
    real: tuple[Design, Path, list[str]], design: Make, tmp_path: Path
) -> None:
    (trained,) = real[1].glob("cells/pretrain-a-*/run")
    ways = transfers_of("frozen,full")
    asked = design(candidates=candidates_of([str(trained)]), transfers=ways, budgets=(), corpus=[], seeds=1)
    grid = run(asked, tmp_path / "out", Here())
    frozen, full = (grid.final(*grid.starts()[0], way, grid.design.tasks[0])[0] for way in ways)
    network, head = (
        {name: sum(p.numel() for p in part.parameters()) for name, part in learner.named_children()}
        for cell in (full, frozen) for learner in [load_tuned(load_checkpoint(cell.folder(grid.out) / "run"))[0]]
    )
    assert [grid.result(cell)["trained"] for cell in (full, frozen)] == [sum(network.values()), head["head"]]  # type: ignore[index]


def test_a_folder_of_rows_is_another_one_if_a_row_changes_its_class(design: Make, tmp_path: Path) -> None:
    for text, label in (("cold rain", "no"), ("warm cat", "yes"), ("old roof", "yes")):
        (tmp_path / "rows" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "rows" / label / f"{text}.txt").write_text(f"{text}\n", encoding="utf-8")
    task = (f"mood={tmp_path / 'rows'},dev.tsv,test.tsv",)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    asked = checked(design(tasks=task, candidates=candidates_of([str(tmp_path / "model")]), budgets=(), corpus=[], seeds=1))
    (before,) = [cell.key for cell in Grid(asked, tmp_path).cells()]
    (tmp_path / "rows" / "no" / "cold rain.txt").rename(tmp_path / "rows" / "yes" / "cold rain.txt")
    (after,) = [cell.key for cell in Grid(asked, tmp_path).cells()]
    assert before != after


def test_a_candidate_that_is_named_twice_is_refused() -> None:
    with pytest.raises(RecipeError, match="bert: named twice"):
        candidates_of(["bert", "bert"])


def test_a_folder_of_something_else_is_left_alone(design: Make, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="holds thesis.txt, which no comparison or sweep wrote"):
        run(design(), tmp_path, Here(stub))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_texts_that_python_keeps_in_a_new_folder_do_not_make_it_a_folder_of_something_else(tmp_path: Path) -> None:
    _row_files([("boat", "sea"), ("tree", "wood")], "train", tmp_path, "sentence_classification")
    require_own(tmp_path)
    (tmp_path / "cloze" / "run.json").touch()
    with pytest.raises(CheckpointError, match="holds cloze, which no comparison or sweep wrote"):
        require_own(tmp_path)


def test_cells_are_counted_before_they_run(design: Make, tmp_path: Path) -> None:
    assert Grid(checked(design(seeds=3, rates=3)), tmp_path).counts() == {"corpus": 1, "pretrain": 10, "finetune": 10}


def test_progress_counts_cells_and_estimates_the_time_left_by_kind(
    design: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store takes 2 s, a run of pre-training 30 s, one of fine-tuning 10 s."""
    now, seconds = [0.0], {"corpus": 2.0, "pretrain": 30.0, "finetune": 10.0}
    monkeypatch.setattr("cloze.comparison.progress.time.monotonic", lambda: now[0])
    monkeypatch.setattr("cloze.comparison.progress.REFRESH", 0.0)

    def work(folder: Path) -> int:
        now[0] += seconds[folder.name.split("-")[0]]
        return stub(folder)

    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    run(design(), tmp_path, Here(work))
    lines = shown.getvalue().splitlines()
    plain = [re.sub(r" running \(.*?\)", " running", line) for line in lines]
    assert lines[0].startswith("0 of 9 cells done, 1 running (")  # and the name of the cell
    assert plain[1] == "1 of 9 cells done, 1 running"
    assert "2 of 9 cells done, 1 running, more than 1 min 30 s left" in plain
    assert "6 of 9 cells done, 1 running, about 50 s left" in plain  # a run of pre-training and two of fine-tuning
    assert lines[-1] == "9 of 9 cells done"


def test_progress_reads_how_far_running_cells_are(design: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 runs of pre-training, one has done a quarter in 10 s: 30 s of it are left, and 40 s for each of the others."""
    run(design(), tmp_path, Here(lambda folder: stub(folder) if folder.name.startswith("corpus") else 1))
    grid, now, shown = Grid(checked(design()), tmp_path), [0.0], io.StringIO()
    monkeypatch.setattr("cloze.comparison.progress.time.monotonic", lambda: now[0])
    monkeypatch.setattr("cloze.comparison.progress.REFRESH", 0.0)
    cell = next(one for one in grid.ready() if one.kind == "pretrain")
    log = cell.write(tmp_path) / "log.txt"
    log.write_text("nothing yet\n")
    progress = StatusLine(grid, 1, say=lambda line: None, stream=shown)
    progress.started(cell)
    now[0] = 10.0
    progress.show()
    log.write_text("step 9   24%  loss 5.0\nstep 1,000   25%  loss 4.0  30 s left\n")
    os.utime(log, (time.time() + 60, time.time() + 60))
    progress.show()
    assert shown.getvalue().splitlines() == [
        f"1 of 9 cells done, 1 running ({cell.label})",
        f"1 of 9 cells done, 1 running ({cell.label} 25%), more than 2 min 30 s left",
    ]


def test_values_for_one_task_do_not_concern_the_others(design: Make, tmp_path: Path) -> None:
    some = ("mood=train.tsv,dev.tsv,test.tsv", "back=test.tsv,dev.tsv,train.tsv")
    values = ["training.epochs=1", "back:training.batch=4", "mood:corpus.text=text"]
    grid = run(design("a.yaml", tasks=some, seeds=1, tuning=values), tmp_path, Here(stub))
    found = {cell.label.split("-")[0]: cell.request["values"] for cell in grid.cells() if cell.kind == "finetune"}
    assert found == {
        "mood": ["training.epochs=1", "corpus.text=text"], "back": ["training.epochs=1", "training.batch=4"]
    }  # fmt: skip


def test_recipes_of_which_only_some_are_fitted_are_remarked_upon(design: Make, tmp_path: Path) -> None:
    values = {"size": "tiny", "budgets": budgets_of(["1Mtokens"]), "seeds": 1}
    said, note = list[str](), "note: a is trained as written, the others are fitted to the budget; --fit fits all"
    answer, page = finish(design("bert", "a.yaml", **values), tmp_path, Here(stub), say=said.append)
    assert said[0] == note and note in table(answer) and note.removeprefix("note: ") in page.read_text(encoding="utf-8")
    fitted, again = Here(stub), list[str]()
    answer, _ = finish(design("bert", "a.yaml", fit=True, **values), tmp_path, fitted, say=again.append)
    assert note not in again and note not in table(answer)
    assert [name.split("-")[:2] for name in fitted.started if name.startswith("pretrain")] == [["pretrain", "a"]]


def test_a_checkpoint_next_to_recipes_and_one_with_the_name_of_a_recipe_are_remarked_upon(
    linked: Path, design: Make, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = design(seeds=1, corpus=[str(files / "text.txt")], baselines=False)
    monkeypatch.chdir(linked)  # where a folder is called bert
    said: list[str] = []
    mixed = replace(asked, candidates=candidates_of(["bert", str(files / "a.yaml")]))
    answer, _ = finish(mixed, tmp_path / "out", Here(stub), say=said.append)
    assert said == [
        "note: bert is the checkpoint in the folder of that name, not the recipe",
        "note: bert is only fine-tuned; the budget is that of the others' pre-training",
    ]
    shown = table(answer)
    assert all(note in shown.splitlines() for note in said) and "(accuracy on mood, 1 seed, 4 steps for each recipe)" in shown


def test_a_budget_in_time_that_cells_share_is_remarked_upon(design: Make, tmp_path: Path) -> None:
    workers, said = Here(stub), list[str]()
    workers.count = 2
    run(design("a.yaml", seeds=1, budgets=budgets_of(["10s"])), tmp_path, workers, say=said.append)
    assert said == ["note: runs that share the cores get less done in their time; a budget in tokens or FLOPs is equal for all"]


def test_the_command_counts_cells_prints_the_finding_and_says_where_the_page_is(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr("cloze.jobs.workers_on", lambda place, count: Here(stub))
    task = ["--task", "mood=train.tsv,dev.tsv,test.tsv"]
    typed = ["compare", "a.yaml", "b.yaml", "--corpus", "text.txt", "--budget", "4steps", *task]
    assert main([*typed, "--plan"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["corpus", "1", "cell"], ["pretrain", "6", "cells"], ["finetune", "6", "cells"]
    ]  # fmt: skip
    assert main([*typed, "--plan", "--out", "text.txt"]) == 2
    assert "text.txt: is a file; expected a new folder or one with cells." in capsys.readouterr().err
    assert main(typed) == 2 and "--out is missing" in capsys.readouterr().err
    out = tmp_path / "out"
    assert main([*typed, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "No significant difference: a and b score 50.0 (accuracy on mood, 3 seeds, 4 steps each)." in shown.out
    assert shown.err.splitlines()[-1] == f"Next: open {out}/compare.html in a browser"
    assert main([*typed, "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["level"] == 0.05
    assert main([*typed, "--out", str(out), "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 6


@pytest.mark.parametrize("words", [["compare"], ["sweep", "--vary", "training.batch=4,8", "--search", "grid", "--rungs", "1"]])
def test_the_text_is_read_in_the_encoding_that_the_command_names(
    words: list[str], files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr("cloze.jobs.workers_on", lambda place, count: Here(stub))
    given = ["--corpus", "text.txt", "--encoding", "koi8-r", "--format", "auto:text", "--budget", "4steps"]
    given += ["--task", "mood=train.tsv,dev.tsv,test.tsv"]
    assert main([words[0], "a.yaml", *words[1:], *given, "--out", str(tmp_path / "out")]) == 0
    (cell,) = (tmp_path / "out").glob("cells/corpus-*/cell.json")
    described = json.loads(cell.read_text(encoding="utf-8"))
    assert described["request"]["format"] == described["identity"]["format"] == "auto@koi8-r:text"
