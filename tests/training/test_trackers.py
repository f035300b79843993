"""Where the numbers of a run also go: the libraries themselves, without a server; a resumed run is one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloze.cli.main import main
from cloze.errors import MissingExtra, UserError
from cloze.interop.files import write_json
from cloze.runs.options import PretrainOptions
from cloze.runs.run import keep_with_trackers
from cloze.training.log import Log
from cloze.training.run import Outcome
from cloze.training.trackers import TRACKERS, Tracker, Unfailing, open_trackers, require_trackers

RECIPE = {"name": "mine", "training": {"batch": 8, "rate": {"linear": {"peak": 1e-3}}}}


class Recorder:
    """A tracker that keeps what it is sent."""

    id = "run-1"

    def __init__(self) -> None:
        self.sent: list[tuple[int, dict[str, float]]] = []
        self.closed = False
        self.models: list[Path] = []

    def store(self, model: Path) -> None:
        self.models.append(model)

    def log(self, values: Any, step: int) -> None:
        self.sent.append((step, dict(values)))

    def close(self) -> None:
        self.closed = True


def test_a_tracker_gets_the_numbers_of_training_and_of_held_out_text_and_nothing_else(tmp_path: Path) -> None:
    recorder = Recorder()
    log = Log(tmp_path, after=None, trackers=[recorder])
    log.write("start", 0, budget="5 steps", baselines={"lm": {"chance": 9.0, "single": 7.0, "pairs": None}})
    log.write("train", 1, loss=1.0, objectives={"lm": 0.5}, entry="main")
    log.write("held_out", 1, loss=2.0)
    log.write("dev", 1, metrics={"accuracy": 50.0})
    log.write("samples", 1, seconds=3.0)
    log.close()
    assert recorder.closed and recorder.sent == [
        (0, {"baselines/lm/chance": 9.0, "baselines/lm/single": 7.0}),
        (1, {"train/loss": 1.0, "train/objectives/lm": 0.5}), (1, {"held_out/loss": 2.0}), (1, {"dev/metrics/accuracy": 50.0}),
    ]  # fmt: skip


def test_what_a_library_calls_the_run_is_kept_for_the_run_that_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids: list[str | None] = []

    def make(run: Any) -> Tracker:
        ids.append(run.id)
        return Recorder()

    monkeypatch.setitem(TRACKERS, "wandb", (make, "json"))  # type: ignore[index]
    (tmp_path / "cloze").mkdir()
    for after in (None, 3, None):  # begins, resumes, begins again
        assert len(open_trackers(["wandb", "wandb"], tmp_path, RECIPE, after, print)) == 1
    assert ids == [None, "run-1", None]
    assert json.loads((tmp_path / "cloze" / "trackers.json").read_text()) ["runs"] == {"wandb": "run-1"}


def test_the_model_of_a_finished_run_is_kept_with_the_run_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, str | None, int | None]] = []
    recorder = Recorder()

    def make(run: Any) -> Tracker:
        opened.append((run.name, run.id, run.after))
        return recorder

    monkeypatch.setitem(TRACKERS, "wandb", (make, "json"))  # type: ignore[index]
    monkeypatch.setattr("cloze.training.trackers.find_spec", lambda package: True)
    run = tmp_path / "tuned"
    (run / "cloze").mkdir(parents=True)
    write_json(run / "cloze" / "run.json", {"recipe": RECIPE})
    monkeypatch.setattr("cloze.runs.run.share", lambda model, out: None)
    options = PretrainOptions("quick", (), run, track=["wandb=reviews", "tensorboard"], track_model=True)
    open_trackers(["wandb=reviews"], run, RECIPE, None, print)
    for finished, step in ((False, 4), (True, 9), (True, 9), (True, 12)):
        keep_with_trackers(options, Outcome(run, step, finished, "budget", None), run, print)
    assert opened == [("reviews", None, None), ("reviews", "run-1", 9), ("reviews", "run-1", 12)]
    assert [model.name for model in recorder.models] == ["tuned", "tuned"] and recorder.closed
    with pytest.raises(UserError, match="--track-model: no tracker keeps models. Add --track wandb, mlflow or trackio."):
        require_trackers(["tensorboard"], model=True)


def test_a_tracker_that_fails_does_not_stop_the_run_and_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    recorder = Recorder()
    tracker = Unfailing("mlflow", recorder, lines.append)
    tracker.log({"train/loss": 2.0}, 1)
    monkeypatch.setattr(recorder, "log", lambda values, step: 1 / 0)
    for step in (2, 3):
        tracker.log({"train/loss": 1.0}, step)
    tracker.close()
    assert recorder.sent == [(1, {"train/loss": 2.0})] and not recorder.closed
    assert lines == ["--track mlflow failed (division by zero): the run goes on, and no more numbers are sent there."]


def test_an_unknown_tracker_and_one_that_is_not_installed_are_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="--track wandv: unknown tracker. Did you mean 'wandb'"):
        require_trackers(["wandv"])
    monkeypatch.setattr("cloze.training.trackers.find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=r'--track mlflow needs the package mlflow.*\n.*cloze-lm\[mlflow\]'):
        require_trackers(["mlflow"])
    assert main(["pretrain", "bert", "--corpus", "none.txt", "--track", "wandb", "--out", "o", "--size", "tiny"]) == 2
    assert main(["finetune", ".", "--train", __file__, "--dev", __file__, "--track", "trackio", "--out", "o"]) == 2
    assert "--track trackio needs the package trackio" in capsys.readouterr().err


def track(name: str, folder: Path, *, after: int | None, steps: range) -> None:
    (tracker,) = open_trackers([name], folder, RECIPE, after, print)
    for step in steps:
        tracker.log({"train/loss": 5.0 - step}, step)
    tracker.close()


def test_tensorboard_gets_the_numbers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    track("tensorboard", tmp_path, after=None, steps=range(1, 5))
    track("tensorboard", tmp_path, after=2, steps=range(3, 6))
    events = accumulator.EventAccumulator(str(tmp_path / "cloze" / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(n, 5.0 - n) for n in range(1, 6)]


def test_mlflow_has_one_run_with_the_recipe_and_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    (tmp_path / "run" / "cloze").mkdir(parents=True)
    track("mlflow", tmp_path / "run", after=None, steps=range(1, 3))
    track("mlflow", tmp_path / "run", after=2, steps=range(3, 5))
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("cloze").experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "run" and run.data.params == {"recipe": "mine"}
    assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "train/loss")] == [
        (n, 5.0 - n) for n in range(1, 5)
    ]


def test_wandb_continues_the_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_SILENT", "true"), ("WANDB_DIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    (tmp_path / "run" / "cloze").mkdir(parents=True)
    track("wandb", tmp_path / "run", after=None, steps=range(1, 3))
    track("wandb", tmp_path / "run", after=2, steps=range(3, 5))
    folders = sorted((tmp_path / "run" / "cloze" / "wandb").glob("offline-run-*"))
    assert len({folder.name.split("-")[3] for folder in folders}) == 1  # a second folder of one second ends in -1
    assert all(list(folder.glob("run-*.wandb")) for folder in folders)


def test_trackio_has_one_run_with_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    trackio = pytest.importorskip("trackio")
    (tmp_path / "run" / "cloze").mkdir(parents=True)
    track("trackio", tmp_path / "run", after=None, steps=range(1, 3))
    track("trackio", tmp_path / "run", after=2, steps=range(3, 5))
    (run,) = (there for there in trackio.Api().runs("cloze") if there.name == "run")  # its folder is that of its first import
    assert run.config["name"] == "mine"


def test_a_run_with_all_four_that_is_paused_is_one_run_in_each_with_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (
        ("WANDB_MODE", "offline"), ("WANDB_SILENT", "true"), ("TRACKIO_DIR", str(tmp_path / "trackio")),
        ("MLFLOW_ALLOW_FILE_STORE", "true"), ("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri()),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    mlflow, trackio = pytest.importorskip("mlflow"), pytest.importorskip("trackio")
    pytest.importorskip("wandb"), pytest.importorskip("tensorboard")
    run = tmp_path / "all-four"
    words = ["pretrain", "quick", "--size", "tiny", "--corpus", "python-docs", "--budget", "20steps", "--out", str(run)]
    words += ["--track-model", *(word for tracker in TRACKERS for word in ("--track", tracker)), "--as-published"]
    for more in (["--until", "0.5"], [], []):  # pauses, resumes, and has nothing left to do
        assert main([*words, "--set", "training.batch=4", *more]) == 0
    assert {folder.name.split("-")[3] for folder in (run / "cloze" / "wandb").glob("offline-run-*")} == {
        json.loads((run / "cloze" / "trackers.json").read_text())["runs"]["wandb"]
    }
    client = mlflow.MlflowClient()
    (there,) = client.search_runs([client.get_experiment_by_name("cloze").experiment_id])
    steps = [metric.step for metric in client.get_metric_history(there.info.run_id, "train/loss")]
    assert steps == sorted(set(steps)) and steps[-1] == 20 and there.info.status == "FINISHED"
    assert "model/model.safetensors" in [file.path for file in client.list_artifacts(there.info.run_id, "model")]
    assert [there.name for there in trackio.Api().runs("cloze")].count("all-four") == 1
    assert len(list((run / "cloze" / "tensorboard").iterdir())) >= 2
