"""Where else the numbers of a run go: TensorBoard, Weights & Biases, MLflow and trackio, each through its own library.

A tracker is written `TOOL` or `TOOL=NAME`, the name of the run there. It gets the recipe when the run begins, then the numbers of
each event, and the finished model if asked. `cloze/trackers.json` keeps what the library calls the run, so that a resumed run
continues there. Servers, projects and offline modes are those of the library (`WANDB_MODE`, `MLFLOW_TRACKING_URI`,
`TRACKIO_DIR`, …). A library is imported only if it is asked for.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cloze.atomic import whole_file
from cloze.errors import MissingExtra, Say, UserError, propose
from cloze.untrusted import parse_json, read_small

PROJECT = "cloze"  # unless the library's own variable names another
_RECORD = Path("cloze") / "trackers.json"


class Tracker(Protocol):
    """Numbers of one run in one library."""

    @property
    def id(self) -> str | None:
        """What the library calls the run; None if it needs no name to go on."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send numbers by name, `train/loss`."""

    def store(self, model: Path) -> None:
        """Keep a copy of a model's folder with the run."""

    def close(self) -> None:
        """Send what is left."""


class TrackedRun(NamedTuple):
    """A run: its folder, its name for people, its recipe as plain data, the library's `id` if it is known, and the step after
    which it resumes; None: it begins."""

    folder: Path
    name: str
    recipe: Mapping[str, Any]
    id: str | None
    after: int | None


class TensorBoard:
    """Files of TensorBoard in `cloze/tensorboard`; a resumed run hides the numbers of later steps."""

    id = None

    def __init__(self, run: TrackedRun) -> None:
        board = import_module("torch.utils.tensorboard")
        purge = None if run.after is None else run.after + 1
        self.writer = board.SummaryWriter(str(run.folder / "cloze" / "tensorboard"), purge_step=purge)

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def store(self, model: Path) -> None:
        raise UserError("--track-model: TensorBoard keeps numbers alone. Use it with wandb, mlflow or trackio.")

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases:
    """A run of wandb. Numbers stand over `step`, so that steps which a resumed run repeats may be sent again."""

    def __init__(self, run: TrackedRun) -> None:
        wandb = import_module("wandb")
        self.artifact = wandb.Artifact
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT), name=run.name, id=run.id, resume="allow",
            dir=str(run.folder / "cloze"), config=dict(run.recipe),
        )
        self.id = str(self.run.id)
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log({**values, "step": step})

    def store(self, model: Path) -> None:
        artifact = self.artifact(f"{model.name}-{self.id}", type="model")
        artifact.add_dir(str(model))
        self.run.log_artifact(artifact)

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """A run of MLflow in the experiment of `MLFLOW_EXPERIMENT_NAME`, with the recipe as a file."""

    def __init__(self, run: TrackedRun) -> None:
        mlflow = import_module("mlflow")
        self.metric = import_module("mlflow.entities").Metric
        self.client = mlflow.MlflowClient()
        if run.id is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = self.client.get_experiment_by_name(name)
            experiment_id = self.client.create_experiment(name) if experiment is None else experiment.experiment_id
            self.id = str(self.client.create_run(experiment_id, run_name=run.name).info.run_id)
            self.client.log_param(self.id, "recipe", run.recipe["name"])
            self.client.log_dict(self.id, dict(run.recipe), "recipe.json")
        else:
            self.id = run.id
            self.client.update_run(self.id, status="RUNNING")

    def log(self, values: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        self.client.log_batch(self.id, metrics=[self.metric(name, value, now, step) for name, value in values.items()])

    def store(self, model: Path) -> None:
        self.client.log_artifacts(self.id, str(model), "model")

    def close(self) -> None:
        self.client.set_terminated(self.id)


class Trackio:
    """A run of trackio, which finds it again by its name."""

    id = None

    def __init__(self, run: TrackedRun) -> None:
        self.library = trackio = import_module("trackio")
        self.run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT), name=run.name, config=dict(run.recipe), embed=False,
            resume="never" if run.after is None else "allow",
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def store(self, model: Path) -> None:
        self.library.log_artifact(model, name=model.name, type="model")

    def close(self) -> None:
        self.run.finish()


class Unfailing:
    """A tracker whose library may fail, as when its server is away: the run goes on, and nothing more is sent."""

    def __init__(self, name: str, tracker: Tracker, say: Say) -> None:
        self.name, self.say, self.id = name, say, tracker.id
        self.tracker: Tracker | None = tracker

    def log(self, values: Mapping[str, float], step: int) -> None:
        if self.tracker is not None:
            self._try(lambda tracker: tracker.log(values, step))

    def store(self, model: Path) -> None:
        if self.tracker is not None:
            self._try(lambda tracker: tracker.store(model))

    def close(self) -> None:
        if self.tracker is not None:
            self._try(lambda tracker: tracker.close())

    def _try(self, work: Callable[[Tracker], None]) -> None:
        assert self.tracker is not None
        try:
            work(self.tracker)
        except Exception as error:  # whatever the library raises
            self.tracker = None
            self.say(f"--track {self.name} failed ({error}): the run goes on, and no more numbers are sent there.")


#: The trackers by name, each with the package that it needs.
TRACKERS: Mapping[str, tuple[Callable[[TrackedRun], Tracker], str]] = {
    "tensorboard": (TensorBoard, "tensorboard"), "wandb": (WeightsAndBiases, "wandb"), "mlflow": (MLflow, "mlflow"),
    "trackio": (Trackio, "trackio"),
}


def require_trackers(trackers: Sequence[str], *, model: bool = False) -> None:
    """Raise a `UserError` for an unknown tracker, a `MissingExtra` for one whose package is not installed.

    With `model`, one of them must be able to keep a model.
    """
    for name in _named(trackers):
        if name not in TRACKERS:
            raise UserError(f"--track {name}: unknown tracker. {propose(name, TRACKERS)}")
        package = TRACKERS[name][1]
        if find_spec(package) is None:
            raise MissingExtra(package, name, f"--track {name}")
    if model and not _with_models(trackers):
        raise UserError("--track-model: no tracker keeps models. Add --track wandb, mlflow or trackio.")


def open_trackers(
    trackers: Sequence[str], folder: Path, recipe: Mapping[str, Any], after: int | None, say: Say
) -> list[Unfailing]:
    """The trackers of a run that starts, or that resumes `after` a step; their names of the run are kept in its folder."""
    if not trackers:
        return []
    ids = {} if after is None else dict(_read(folder).get("runs") or {})
    opened = [
        Unfailing(name, TRACKERS[name][0](TrackedRun(folder, _title(folder, title), recipe, ids.get(name), after)), say)
        for name, title in _named(trackers).items()
    ]
    ids |= {tracker.name: tracker.id for tracker in opened if tracker.id is not None}
    _write(folder, runs=ids, model=None if after is None else _read(folder).get("model"))
    return opened


def store_model(trackers: Sequence[str], folder: Path, model: Path, recipe: Mapping[str, Any], step: int, say: Say) -> None:
    """Keep the folder `model` with the run in `folder`, finished at `step`, in every tracker that keeps models.

    The run remembers the step, see `stored_step`.
    """
    for tracker in open_trackers(_with_models(trackers), folder, recipe, step, say):
        tracker.store(model)
        tracker.close()
    _write(folder, **{**_read(folder), "model": step})


def stored_step(folder: Path) -> int | None:
    """The step at which the model of a run was last kept with a tracker; None: it was not."""
    step: int | None = _read(folder).get("model")
    return step


def _read(folder: Path) -> dict[str, Any]:
    path = folder / _RECORD
    return dict(parse_json(read_small(path))) if path.is_file() else {}


def _write(folder: Path, **record: Any) -> None:
    with whole_file(folder / _RECORD) as file:
        file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _title(folder: Path, title: str) -> str:
    """The name of a run: the given one, or that of its folder. Runs inside of a run (`RUN/cloze/seeds/2`) add their own.

    >>> _title(Path("tuned"), ""), _title(Path("tuned/cloze/seeds/2"), ""), _title(Path("tuned/cloze/seeds/2"), "reviews")
    ('tuned', 'tuned/2', 'reviews/2')
    """
    inside = folder.parent.parent.name == _RECORD.parent.name
    whole = folder.parents[2] if inside else folder
    return (title or whole.name) + (f"/{folder.name}" if inside else "")


def _named(trackers: Sequence[str]) -> dict[str, str]:
    """The run's name by tracker; "": none is given."""
    return {tool: title for tool, _, title in (tracker.partition("=") for tracker in trackers)}


def _with_models(trackers: Sequence[str]) -> list[str]:
    return [f"{name}={title}" for name, title in _named(trackers).items() if name != "tensorboard"]
