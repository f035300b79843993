"""Sweeps: which trials there are, which of them go on, that a pause changes nothing, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cloze
from cloze.cli.main import main
from cloze.comparison import standings, work
from cloze.comparison.cell import read_json, result_file, write_json
from cloze.comparison.compare import Interrupted
from cloze.comparison.design import Design, budgets_of, tasks_of
from cloze.comparison.search import search_of
from cloze.comparison.space import grid_of, space_of
from cloze.comparison.spending import spent
from cloze.comparison.standings import as_csv, finding_of, sentence, table
from cloze.comparison.sweep import Rungs, Sweep, kept, run, rungs_of
from cloze.comparison.sweep_page import finish
from cloze.errors import BudgetError, CheckpointError, RecipeError
from tests.pages import Outline

from .conftest import Here

Make = Callable[..., Sweep]
RATE = "training.rate.peak=log:1e-4..1e-2"


def stub(folder: Path, until: float = 1.0) -> int:
    """A cell without its work: the loss falls with the budget, and is lowest at a peak rate of 1e-3."""
    cell: Any = read_json(folder / "cell.json")
    if cell["kind"] == "corpus":
        result: dict[str, Any] = {"store": "run/store", "tokens": 100, "documents": 4, "vocabulary": 50, "bytes": 400}
    elif cell["kind"] == "finetune":  # the task prefers lower rates than the held-out loss
        trained: Any = read_json(Path(cell["request"]["checkpoint"]).parent / "cell.json")
        rate = float(trained["request"]["values"][-1].split("=")[1])
        result = {"metric": "accuracy", "dev": 0.9 - (math.log10(rate) + 3.5) ** 2 / 10, "test": 0.1}
    else:
        rate = float(cell["request"]["values"][-1].split("=")[1])
        if rate > 5e-3:
            write_json(folder / "failed.json", {"reason": "loss is not finite at step 3."})
            return 1
        loss = 3 + (math.log10(rate) + 3) ** 2 - until + cell["request"]["seed"] / 1000
        spent = {"tokens": 64.0 * until, "flops": 1e6 * until, "seconds": until}
        result = {**spent, "held_out": loss, "curve": [[*spent.values(), loss]]}
    write_json(folder / result_file(until), result)
    return 0


@pytest.fixture
def sweep(files: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """`sweep(RATE, trials=9)`: a sweep of the recipe a.yaml."""
    monkeypatch.chdir(files)

    def make(
        *vary: str, trials: int | None = 9, search: str = "grid", seeds: int = 1, budget: str = "10steps",
        tasks: tuple[str, ...] = (), **values: Any,
    ) -> Sweep:
        space = space_of(vary or [RATE])
        design = Design([], tasks_of(tasks) if tasks else [], ["text.txt"], budgets_of([budget]), seeds, device="cpu")
        return Sweep("a.yaml", design, space, search_of(search, space, trials), **{"rungs": (0.1, 0.3, 1.0), **values})

    return make


def test_the_best_third_of_the_trials_goes_on_at_every_rung(sweep: Make, tmp_path: Path) -> None:
    workers = Here(stub)
    rungs = run(sweep(), tmp_path, workers)
    assert rungs.counts() == {"corpus": 1, "pretrain until 0.1": 9, "pretrain until 0.3": 3, "pretrain": 1}
    assert len(workers.started) == 1 + 9 + 3 + 1 and len(set(workers.started)) == 1 + 9
    finding = finding_of(rungs)
    reached = {one.trial.values[0].split("=")[1]: len(one.losses) for one in finding.standings}
    assert reached == {
        "0.001": 3, "0.0005623": 2, "0.001778": 2, "0.0003162": 1, "0.003162": 1, "0.0001778": 1, "0.0001": 1,
        "0.005623": 0, "0.01": 0,
    }  # fmt: skip
    assert finding.best is not None and finding.best.loss == pytest.approx(2.001)
    assert len(finding.failures) == 2 and finding.failures[0].reason == "loss is not finite at step 3."
    # 7 trials to 0.1, 3 of them to 0.3, 1 to the end; the share of trials that failed is not known
    assert finding.flops == pytest.approx(1e6 * (0.1 * 4 + 0.3 * 2 + 1)) and finding.full is None


def test_the_sentence_says_what_the_best_trial_cost_against_all_of_them(sweep: Make, tmp_path: Path) -> None:
    finding, page = finish(sweep("training.rate.peak=log:1e-4..4e-3", seeds=2), tmp_path, Here(stub), command="cloze sweep …")
    assert sentence(finding) == (
        "training.rate.peak=0.001003 is best of 9 trials on 3 rungs: held-out loss 2.0015 after 10 steps, for 18% of the FLOPs "
        "of training them all to the end."
    )  # (6 * 0.1 + 2 * 0.3 + 2) of 9 trials with two seeds
    assert "2.0015 ± 0.0007" in table(finding) and table(finding).splitlines()[-1].startswith("its run: ")
    assert as_csv(finding).splitlines()[0] == "trial,training.rate.peak,rung,held_out,tokens,flops,seconds"
    outline = Outline(page.read_text(encoding="utf-8"))
    assert outline.headings[:2] == [sentence(finding), "Held-out loss"] and outline.addresses == []
    found = json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))
    assert found["trials"][0]["values"] == {"training.rate.peak": "0.001003"} and len(found["trials"][0]["seeds"]) == 2


MOOD = "mood=train.tsv,dev.tsv,test.tsv"


def test_a_task_decides_by_its_dev_set_among_the_trials_that_reach_the_end(sweep: Make, tmp_path: Path) -> None:
    workers = Here(stub)
    made = sweep("training.rate.peak=log:1e-4..4e-3", tasks=(MOOD,), seeds=2, rungs=(0.1, 1.0))
    finding, _ = finish(made, tmp_path, workers)
    ends = [one for one in finding.standings if one.seeds]
    assert [one.trial.values[0].split("=")[1] for one in ends] == ["0.0006325", "0.001003", "0.001591"]
    assert min(ends, key=lambda one: one.loss or 0.0) is ends[1]  # by held-out loss another one would be best
    assert [len(one.scores["mood"]) for one in ends] == [2, 2, 2] and all(not one.scores for one in finding.standings[3:])
    assert len([name for name in workers.started if name.startswith("finetune")]) == 3 * 2
    assert sentence(finding).startswith(
        "training.rate.peak=0.0006325 is best of 9 trials on 2 rungs: mood accuracy 0.8909 on its dev set, held-out loss 2.0"
    )
    assert "mood: accuracy" in table(finding).splitlines()[0] and "0.8909 ± 0.0000" in table(finding)
    assert as_csv(finding).splitlines()[0].endswith("flops,seconds,mood")
    found = json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))
    assert found["tasks"] == {"mood": "accuracy"} and len(found["trials"][0]["dev"]["mood"]) == 2
    again = Here(stub)
    assert finish(made, tmp_path, again)[0].data() == finding.data() and again.started == []


def test_a_trial_that_is_not_fine_tuned_yet_is_not_the_best(sweep: Make, tmp_path: Path) -> None:
    def until_tuned(folder: Path, until: float = 1.0) -> int:
        if folder.name.startswith("finetune"):
            raise KeyboardInterrupt
        return stub(folder, until)

    made = sweep("training.rate.peak=log:1e-4..4e-3", tasks=(MOOD,), rungs=(0.1, 1.0))
    with pytest.raises(Interrupted):
        finish(made, tmp_path, Here(until_tuned))
    found = json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))
    assert found["answer"] == "No answer yet: no trial has reached the end of its budget and been fine-tuned."
    assert found["unfinished"] == 3


def test_python_finds_what_the_command_finds(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    for module in ("cloze.api.sweep", "cloze.jobs"):
        monkeypatch.setattr(f"{module}.workers_on", lambda place, count: Here(stub))
    found = cloze.sweep(
        "a.yaml", corpus="text.txt", budget="10steps", vary={"training.batch": [4, 8], "training.rate.peak": "log:1e-4..1e-3"},
        tasks={"mood": ("train.tsv", "dev.tsv", "test.tsv")}, trials=4, search="grid", rungs=[0.5, 1], keep=0.5,
        out=tmp_path / "out", report=None,
    )
    typed = [
        "sweep", "a.yaml", "--corpus", "text.txt", "--budget", "10steps", "--vary", "training.batch=4,8", "--vary",
        "training.rate.peak=log:1e-4..1e-3", "--task", MOOD, "--trials", "4", "--search", "grid", "--rungs", "0.5,1", "--keep",
        "0.5", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    assert main([*typed, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(found.data()))
    assert main(typed) == 0
    assert repr(found) == capsys.readouterr().out.rstrip("\n") + f"\n\nPage: {tmp_path / 'out' / 'sweep.html'}"
    assert found.best == {"training.batch": "4", "training.rate.peak": "0.001"} and found.run is not None and found.failures == []
    assert found.sentence in repr(found) and len(found.table()) == 4 + 2
    titles = [figure.title for figure in found.plot().figures]
    assert titles == ["Held-out loss against tokens", "training.rate.peak"] and found._repr_html_().count("<tr>") == 1 + 4


def test_python_sweeps_over_texts_in_memory(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr("cloze.api.sweep.workers_on", lambda place, count: Here(stub))
    kept_texts = tmp_path / "out" / "cloze" / "corpus" / "given-corpus.jsonl"
    for _ in range(2):  # the same call resumes
        swept = cloze.sweep(
            "a.yaml", corpus=["the first text", "the second"], budget="10steps", vary={"training.rate.peak": [1e-4, 1e-3]},
            search="grid", rungs=[1], out=tmp_path / "out", report=None,
        )
        assert len(swept.table()) == 2 and kept_texts.read_text().count("\n") == 2


@pytest.mark.parametrize("search", ["grid", "random", "optuna"])
def test_a_sweep_that_is_killed_comes_to_the_same_trials_and_repeats_no_cell(sweep: Make, tmp_path: Path, search: str) -> None:
    if search == "optuna":
        pytest.importorskip("optuna", reason="the extra optuna is not installed")
    made, started = sweep("training.rate.peak=log:1e-4..4e-3", search=search), list[tuple[str, float]]()

    def until_killed(folder: Path, until: float = 1.0) -> int:
        started.append((folder.name, until))
        if len(started) in (4, 9, 14):
            raise KeyboardInterrupt
        return stub(folder, until)

    for _ in range(3):
        with pytest.raises(Interrupted):
            run(made, tmp_path / "killed", Here(until_killed))
    killed = finding_of(run(made, tmp_path / "killed", Here(until_killed)))
    whole = finding_of(run(made, tmp_path / "whole", Here(stub)))
    assert [one.trial for one in killed.standings] == [one.trial for one in whole.standings]
    assert len(started) == 1 + 9 + 3 + 1 + 3 and len(set(started)) == 1 + 9 + 3 + 1  # three were at work when it was killed


def test_a_sweep_that_is_stopped_writes_what_has_failed_and_what_is_left(sweep: Make, tmp_path: Path) -> None:
    started = list[float]()

    def until_stopped(folder: Path, until: float = 1.0) -> int:
        started.append(until)
        if len(started) == 1 + 9 + 1:
            raise KeyboardInterrupt
        return stub(folder, until)

    with pytest.raises(Interrupted):
        finish(sweep(), tmp_path, Here(until_stopped))
    found = json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))
    assert len(found["failed"]) == 2 and found["unfinished"] == 3  # the trials that go on to the second rung


def test_optuna_looks_where_losses_are_low(sweep: Make, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="the extra optuna is not installed")
    made = sweep("training.rate.peak=log:1e-6..4e-3", trials=16, search="optuna", rungs=(0.1, 1.0))
    rungs = run(made, tmp_path, Here(stub))
    far = [abs(math.log10(float(trial.values[0].split("=")[1])) + 3) for trial in rungs.trials]
    assert len(far) == 16 and sum(far[8:]) < sum(far[:8])


def test_a_run_that_pauses_at_rungs_is_the_run_that_never_paused(sweep: Make, tmp_path: Path) -> None:
    """The weights are equal bit for bit, and a rung has the loss of the run at that step."""
    made = sweep("training.rate.peak=3e-3", trials=None, rungs=(0.25, 0.5, 1.0), budget="8steps")
    workers = Here()
    rungs = run(made, tmp_path / "rungs", workers)
    assert len(workers.started) == 1 + 3
    whole = run(sweep("training.rate.peak=3e-3", trials=None, rungs=(1.0,), budget="8steps"), tmp_path / "whole", Here())
    for one, other in zip(rungs.trials, whole.trials, strict=True):
        paused, straight = rungs.cell(one, 2).folder(rungs.out), whole.cell(other, 0).folder(whole.out)
        state = "run/cloze/checkpoints/step-00000008/state/"
        for name in ("parameters.safetensors", "optimizer.safetensors"):
            assert (paused / state / name).read_bytes() == (straight / state / name).read_bytes()
        results = [rungs.result(rungs.cell(one, number)) for number in range(3)]
        assert [len(found["curve"]) for found in results if found] == [1, 2, 3]
        assert results[2] is not None and results[2]["held_out"] == whole.result(whole.cell(other, 0))["held_out"]  # type: ignore[index]
        again = spent(paused / "run", 0.25)  # also when the run has gone on since
        assert {**again, "seconds": 0} == {**results[0], "seconds": 0}  # type: ignore[dict-item]


def test_runs_that_passed_a_rung_without_being_measured_there_are_refused(sweep: Make, tmp_path: Path) -> None:
    run(sweep("training.rate.peak=3e-3", trials=None, rungs=(0.5, 1.0), budget="8steps"), tmp_path, Here())
    workers = Here()
    with pytest.raises(CheckpointError, match=r"run: has passed 0.25 of its budget without a pause, (.|\n)*--rungs"):
        run(sweep("training.rate.peak=3e-3", trials=None, rungs=(0.25, 1.0), budget="8steps"), tmp_path, workers)
    rungs = run(sweep("training.rate.peak=3e-3", trials=None, rungs=(0.5, 1.0), budget="8steps"), tmp_path, workers)
    assert workers.started == []
    cell = replace(rungs.cell(rungs.trials[0], 0), until=0.25)  # as a trial that is proposed later
    assert work.run(cell.folder(tmp_path), 0.25) == 1 and rungs.result(cell) is None


def test_a_grid_divides_ranges_evenly_and_multiplies_them_with_choices() -> None:
    space = space_of(["training.rate.peak=log:1e-4..1e-2", "exercise.mask.rate=0.15,0.3"])
    assert grid_of(space, 7) == [
        (f"training.rate.peak={rate}", f"exercise.mask.rate={mask}") for rate in ("0.0001", "0.001", "0.01")
        for mask in ("0.15", "0.3")
    ]  # fmt: skip
    assert [one[0] for one in grid_of(space_of(["layers=2..6"]), 3)] == ["layers=2", "layers=4", "layers=6"]
    assert len(grid_of(space_of(["a=1,2,3", "b=x,y"]), None)) == 6
    assert grid_of(space_of(["rate=1.0..1.0001"]), 9) == [("rate=1",)]
    many = ",".join(map(str, range(101)))
    with pytest.raises(RecipeError, match="the grid has 10,201 points; a sweep has at most 10,000 trials"):
        grid_of(space_of([f"a={many}", f"b={many}"]), None)


def test_random_trials_follow_from_the_seed_and_more_of_them_begin_with_the_same() -> None:
    space = space_of(["rate=log:1e-4..1e-2", "layers=2..4", "kind=a,b"])
    few, more = search_of("random", space, 4).more({}), search_of("random", space, 40).more({})
    assert more[:4] == few and len(set(more)) == 40 and search_of("random", space, 4, seed=1).more({}) != few
    assert {one[1] for one in more} == {"layers=2", "layers=3", "layers=4"} and {one[2] for one in more} == {"kind=a", "kind=b"}
    assert all(1e-4 <= float(one[0][5:]) <= 1e-2 for one in more)
    assert len(search_of("random", space_of(["kind=a,b,c"]), 3).more({})) == 3


def test_shares_are_exact_and_rounded_up() -> None:
    assert [kept(count, Fraction(1, 3)) for count in (16, 6, 2, 1)] == [6, 2, 1, 1] and rungs_of("1/9, 1/3, 1")[0] == 1 / 9


@pytest.mark.parametrize(("words", "error"), [
    (["--vary", "training.rate.peak=log:0..1e-3"], "a logarithmic range must lie above 0"),
    (["--vary", "training.rate.peak=3e-3..1e-3"], "the first end must be below the second"),
    (["--vary", "training.rate.peak=log:1e-3"], "is no range. Write LOW..HIGH or log:LOW..HIGH"),
    (["--vary", "training.rate.peak=1e-4-3e-2", "--trials", "4"], "a range is written 1e-4..3e-2, and several values"),
    (["--vary", "training.batch=4", "--trials", "3"], "the space has only 1 point. Give"),
    (["--vary", RATE], "--trials is missing: how many points a random search tries"),
    (["--vary", RATE, "--trials", "1", "--search", "grid"], "the smallest grid has 2 points"),
    (["--vary", "training.batch=4,8", "--trials", "3"], "the space has only 2 points"),
    (["--vary", RATE, "--trials", "4", "--rungs", "0.3,0.1,1"], "expected ascending shares of the budget, the last one 1"),
    (["--vary", "training.rat=1..2", "--trials", "1"], "--vary training.rat="),
    (["--vary", RATE, "--trials", "4", "--keep", "0"], "expected the share of the trials that goes on"),
    (["--vary", RATE, "--trials", "4", "--search", "gird"], "Did you mean 'grid'?"),
    (["--vary", "training.rate.paek=1e-3,3e-3", "--trials", "2"], "paek"),
    (["--vary", RATE, "--trials", "4", "--set", "training.held_out=0.0"], "hold some text out"),
    (["--vary", "training.held_out=0.1,0.2", "--trials", "2"], "trials would be measured on different text"),
    (["--vary", "training.batch=4,8", "--vary", "batch=2,3", "--trials", "2"], "training.batch, batch: two of these are the"),
    (["--vary", "training.batch=4,8", "--set", "batch=16", "--trials", "2"], "batch, training.batch: two of these are the same"),
    (["--vary", "training.batch=1..1e400", "--trials", "2"], "both ends must be numbers below"),
    (["--vary", RATE, "--trials", "100000000"], "expected a number from 1 to 10,000"),
    (["--vary", "training.batch=4,8", "--trials", "2", "--tokenizer", "nowhere"], "nowhere: no such folder"),
    (["--vary", "training.batch=4,8", "--trials", "2", "--device", "cuda:7"], "'cuda:7' was asked for"),
    ([], "nothing to sweep"),
])  # fmt: skip
def test_what_cannot_be_swept_is_refused_before_anything_is_written(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    out = tmp_path / "out"
    given = [str(files / "a.yaml"), "--corpus", str(files / "text.txt"), "--budget", "10steps", "--out", str(out), *words]
    assert main(["sweep", *given]) == 2
    assert error in capsys.readouterr().err and not out.exists()


def test_a_sweep_needs_one_budget_and_a_recipe_without_stages(sweep: Make, files: Path, tmp_path: Path) -> None:
    made = sweep()
    with pytest.raises(BudgetError, match="--budget is missing"):
        run(Sweep("a.yaml", Design([], [], ["text.txt"]), made.space, made.search), tmp_path, Here())
    with pytest.raises(RecipeError, match="stages"):
        run(Sweep("ulmfit", made.design, made.space, made.search), tmp_path / "staged", Here())


def test_the_plan_prints_the_trials_and_counts_the_cells(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--vary", "training.batch=4,8", "--search", "grid", "--plan"]
    assert main(["sweep", str(files / "a.yaml"), "--corpus", str(files / "text.txt"), "--budget", "10steps", *words]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "training.batch=4", "training.batch=8", "corpus                 1 cell", "pretrain until 0.1     2 cells",
        "pretrain until 0.3     1 cell", "pretrain               1 cell",
    ]  # fmt: skip
    given = [str(files / "a.yaml"), "--corpus", str(files / "text.txt"), "--budget", "10steps", *words, "--seeds", "2"]
    task = "mood=" + ",".join(str(files / f"{part}.tsv") for part in ("train", "dev", "test"))
    assert main(["sweep", *given, "--task", task]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "finetune               2 cells"


def test_what_changes_the_exercise_is_noted(sweep: Make, tmp_path: Path) -> None:
    rungs = Rungs(sweep("exercise.mask.rate=0.15,0.3", "training.batch=4,8", trials=None), tmp_path)
    assert "note: exercise.mask.rate may change what is predicted" in table(finding_of(rungs))


def test_scores_of_two_tasks_meet_by_their_seeds() -> None:
    """A cell that failed leaves its seed out; the seeds behind it keep their numbers."""
    dev = {("a", 1): 0.9, ("a", 3): 0.5, ("b", 1): 0.9, ("b", 2): 0.1, ("b", 3): 0.5}
    by_task = {name: {seed: score for (task, seed), score in dev.items() if task == name} for name in "ab"}
    design = SimpleNamespace(
        tasks=[SimpleNamespace(name=name) for name in "ab"], metrics=dict.fromkeys("ab", SimpleNamespace(more=True))
    )
    rungs = SimpleNamespace(sweep=SimpleNamespace(design=design), scores=lambda trial, task: by_task[task.name])
    scores, worth = standings._scores(rungs, None)  # type: ignore[arg-type]
    assert worth == [0.9, 0.5] and scores == {"a": [0.9, 0.5], "b": [0.9, 0.1, 0.5]}
