"""A run: everything the loop is given, and its progress."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, Literal, Protocol

from cloze.batching import Cursor
from cloze.errors import BudgetError, CheckpointError, Parameter, RecipeError, Say
from cloze.training.baselines import Baseline
from cloze.training.checkpoints.checkpoint import Export
from cloze.training.data import TrainingData
from cloze.training.distribution import Strategy
from cloze.training.optimizers.optimizers import OptimizerSpec
from cloze.training.precision import Precision
from cloze.training.schedule.budget import Budget, Spent
from cloze.training.schedule.freezing import DepthRates, Unfreezing
from cloze.training.schedule.phases import SchedulePhase
from cloze.training.schedule.rates import Rate
from cloze.training.selection import Selection, SelectionStanding
from cloze.training.step import StepModule
from cloze.untrusted import parse_json, read_small

PAUSED = "paused"


@dataclass(frozen=True)
class Training:
    """The values of a recipe's `training` and of the command line that the loop itself reads.

    Attributes:
        evaluate_every: A share of the budget, or `epoch`.
        checkpoint_every: Steps between checkpoints; None: a tenth of the budget.
        checkpoint_seconds: Seconds of training between checkpoints, in place of steps.
        keep: How many of the last checkpoints stay.
        keep_steps: Steps whose checkpoints are made and kept.
        log_every: Steps between lines of the log; None: one five-hundredth of the budget.
        nominal_steps: The published number of steps (`steps` in a recipe), of which `warmup_steps` are a share.
        divide: What a loss is divided by: its targets, the rows of the step, or nothing.
        engine: Whether a compiled engine trains: where one fits (`auto`), never (`loop`) or always (`compiled`).
        average: The decay of an exponential mean of the weights, which is measured and exported in their place; None: the
            weights themselves.
        group: How many neighbouring rows are compared with each other, a micro-batch each; None: all of a step.
        growth: The fraction of the batch that a step has, by the share of the budget spent (`batch_warmup` in a recipe); None:
            all of it. The data follow it.
        shard: Under FSDP, how many ranks hold the parameters once; None: all.
    """

    clip: float | None = 1.0
    precision: Precision = "auto"
    compile: bool | Literal["auto"] = "auto"
    evaluate_every: float | Literal["epoch"] = 0.1
    checkpoint_every: int | None = None
    checkpoint_seconds: float | None = None
    keep: int = 2
    keep_steps: tuple[int, ...] = ()
    log_every: int | None = None
    nominal_steps: int | None = None
    divide: Literal["targets", "rows", "nothing"] = "targets"
    engine: Literal["auto", "loop", "compiled"] = "auto"
    average: float | None = None
    group: int | None = None
    growth: Callable[[float], float] | None = None
    track: tuple[str, ...] = ()
    strategy: Strategy = "ddp"
    shard: int | None = None


@dataclass(frozen=True)
class RunIdentity:
    """What identifies the run: the canonical recipe, its hash, and what it was started with (None: not known).

    `environment` is what is recorded of the machine and the corpora beyond what the loop adds itself.
    """

    recipe: Mapping[str, Any]
    recipe_hash: str
    environment: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] | None = None

    @property
    def digest(self) -> str:
        """The recipe's hash, or a sha256 of it and of the weights that the run begins with, if it begins with any.

        Runs of one identity differ only in text, seed and budget.
        """
        inputs = self.inputs or {}
        weights = {"init": inputs.get("init"), **inputs.get("networks", {})}
        digests = {
            name: sorted(file["sha256"] for file in entry["files"]) for name, entry in weights.items() if entry is not None
        }
        if not digests:
            return self.recipe_hash
        return sha256(json.dumps([self.recipe_hash, digests], sort_keys=True).encode()).hexdigest()


class Verifies(Protocol):
    """What compares checksums in the background."""

    def check(self) -> None:
        """Raise if one differs."""

    def close(self) -> str:
        """Stop, and say what was not compared."""


@dataclass
class Run:
    """Everything that `train` needs. `runs/preparing.py` builds it. The loop changes the parameters of `step`, and at the start
    of a phase what the phase sets in `step` and `data`; nothing else.

    Attributes:
        export: `export(folder, state, step)` writes the Hugging Face files of a checkpoint, on rank 0; `state` holds every
            parameter of `step`, whole and on the CPU, under all its names.
        exports: One `export` for each phase, where phases differ in what a checkpoint says of its networks.
        odds: Those of the mixture's entries (default: equal).
        micro_batch: How many rows are read at once; recorded, so that a run that resumes has the same.
        fitted: The values that fit the recipe to the budget; recorded as well.
        borrowed: Parts of `step` (`networks.teacher`) that come from elsewhere and are never trained: no checkpoint holds them.
        train: When each depth group of a network is trained, by network (default: always).
        layerwise: The rate of each depth group.
        samples: `samples(step)` returns what a report should show, such as filled masks; it is called at every evaluation, on
            every rank.
        baselines: What the losses of objectives are compared with, by their names in the log.
        selection: Chooses the checkpoint that the run gives; None: the last.
        command: The command line that started it; empty where there was none.
        until: The share of the budget at which the run pauses, with a held-out loss and a checkpoint.
        setup_seconds: Spent on tables before the first step (`table_start.py`); a resumed run has those of its record.
        mirror: A URL for copies of its checkpoints.
        verification: Compares the checksums of the text in the background.
    """

    folder: Path
    step: StepModule
    data: TrainingData
    export: Export
    budget: Budget
    optimizer: OptimizerSpec
    rate: Rate
    identity: RunIdentity
    training: Training = field(default_factory=Training)
    phases: Sequence[SchedulePhase] = ()
    exports: Sequence[Export] = ()
    odds: Mapping[str, float] = field(default_factory=dict)
    mixing: Literal["step", "row", "all"] = "step"
    seed: int = 0
    device: str = "auto"
    bytes_per_token: float | None = None
    micro_batch: int | None = None
    fitted: tuple[str, ...] = ()
    extend: bool = False
    borrowed: frozenset[str] = frozenset()
    train: Mapping[str, Unfreezing] = field(default_factory=dict)
    layerwise: DepthRates | None = None
    samples: Callable[[int], Mapping[str, Any]] | None = None
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    selection: Selection | None = None
    say: Say | None = None
    verbose: bool = False
    command: tuple[str, ...] = ()
    until: float = 1.0
    mirror: str | None = None
    setup_seconds: float = 0.0
    verification: Verifies | None = None

    def require_undamaged_text(self) -> None:
        """Raise if the text has turned out to be damaged."""
        if self.verification is not None:
            self.verification.check()

    def check(self) -> None:
        """Refuse what cannot be run before anything is written."""
        check_until(self.until)
        if self.budget.kind == "bytes" and not self.bytes_per_token:
            raise BudgetError("a budget in bytes needs a corpus that knows its bytes per token. Give a budget in tokens.")
        batches = {phase.set["batch"] for phase in self.phases if "batch" in phase.set}
        everywhere = all("batch" in phase.set for phase in self.phases)
        if self.step.carries and batches and not (everywhere and len(batches) == 1):
            raise RecipeError(
                "schedule: a phase changes the batch, but a network carries memory from row to row of the batch, so that the "
                "batch must stay the same. Write it once, under `training:`."
            )
        if self.step.carries and self.training.growth is not None:
            raise RecipeError(
                "training.batch_warmup: a network carries memory from row to row of the batch, so that the batch must stay the "
                "same.\n  Leave batch_warmup out."
            )
        self.rate(0.0, self.training.nominal_steps)
        self.step.require_trained()


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        folder: The run folder.
        step: The last step.
        finished: The budget is spent, or the metric has stopped improving (`Selection.patience`).
        reason: Why the run ended: `budget` if it has finished, for either reason; else `paused`, or the name of a signal.
        held_out: The last held-out loss; of a mixture, that of its entries together.
        compiled: A compiled engine trained, so steps are not updates.
        standing: The best evaluation of a run that chooses among its checkpoints.
        outputs: What the network said of the dev rows at the evaluation of the resulting checkpoint, by task; empty if another
            process measured it.
    """

    folder: Path
    step: int
    finished: bool
    reason: str
    held_out: float | None
    compiled: bool = False
    standing: SelectionStanding | None = None
    outputs: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def exit_code(self) -> int:
        """The exit code of a command: 0, or 128 plus the number of the signal, as in a shell."""
        if self.finished or self.reason == PAUSED:
            return 0
        return 128 + (signal.Signals[self.reason] if self.reason in signal.Signals.__members__ else signal.SIGTERM)


@dataclass
class SavedProgress:
    """The progress of a run: `RunProgress` updates it after every step, and a checkpoint saves it: all that is needed to resume.

    `share` is the share of the budget that was spent after the last step.
    """

    spent: Spent = field(default_factory=Spent)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    share: float = 0.0
    phase: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values; floats are written so that reading restores them exactly."""
        cursors = {name: list(cursor) for name, cursor in self.cursors.items()}
        return {"spent": asdict(self.spent), "cursors": cursors, "share": self.share, "phase": self.phase}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> SavedProgress:
        """The inverse of `to_json`."""
        cursors = {name: Cursor(*cursor) for name, cursor in saved["cursors"].items()}
        return cls(Spent(**saved["spent"]), cursors, saved["share"], saved["phase"])


def check_until(share: float) -> None:
    """Refuse a share of the budget, at which a run is to pause, that is not above 0 and at most 1."""
    if not 0 < share <= 1:
        raise BudgetError(f"--until {share:g}: expected a share of the budget: a number above 0, at most 1.")


def check_folder(run: Run, old: Mapping[str, Any] | None) -> None:
    """Refuse a run folder that holds another recipe, seed or budget; `old` is its `cloze/run.json`."""
    if old is None:
        return
    require_recipe(run.folder, run.identity.recipe, run.identity.recipe_hash, old)
    require_seed(run.folder, run.seed, old)
    if old["budget"] != str(run.budget) and not run.extend:
        raise BudgetError(
            f"{run.folder}: was started with --budget {old['budget']}, not {run.budget}.\n"
            "  To resume it, omit --budget. To train longer, add --extend; the learning rate then follows the new budget."
        )


def require_seed(folder: Path, seed: int, old: Mapping[str, Any] | None) -> None:
    """Refuse a folder whose run, if there is one, has another seed."""
    if old is not None and old["seed"] != seed:
        raise CheckpointError(
            f"{folder}: holds a run with the seed {old['seed']}, not {seed}. Choose another --out, or give the same seed."
        )


def require_recipe(folder: Path, recipe: Mapping[str, Any], recipe_hash: str, old: Mapping[str, Any] | None) -> None:
    """Refuse a folder whose run, if there is one, is of another recipe: known before its corpus is opened."""
    if old is not None and old["recipe_hash"] != recipe_hash:
        raise CheckpointError(
            f"{folder}: holds a run of a different recipe ({_difference(old.get('recipe', {}), recipe)}).\n"
            "  Choose another ", Parameter("out", style="option"), ". To resume this run, repeat the command that "
            f"started it, which cloze show {quote(str(folder))} prints.",
        )


def require_length(folder: Path, recipe: Mapping[str, Any], old: Mapping[str, Any] | None) -> None:
    """Refuse a run whose recipe, which sets the budget, now says another number of steps, epochs or tokens."""
    old_lengths, here = {} if old is None else _lengths(old.get("recipe", {})), _lengths(recipe)
    for path in old_lengths.keys() & here.keys():
        if old_lengths[path] != here[path]:
            longer = " To train longer, add --extend." if (here[path] or 0) > (old_lengths[path] or 0) else ""
            raise BudgetError(
                f"{folder}: was started with {path}={_short(old_lengths[path])}, now {_short(here[path])}.\n"
                f"  To resume it, leave the value as it was.{longer} To train with the new value, choose another --out."
            )


def _lengths(recipe: Mapping[str, Any], path: str = "") -> dict[str, float | None]:
    """How long a recipe says it is trained, for each of its stages, by the path of the value."""
    training = recipe.get("training", {})
    lengths = {f"{path}training.{unit}": training[unit] for unit in ("steps", "epochs", "tokens") if unit in training}
    for name, stage in (recipe.get("stages") or {}).items():
        lengths |= _lengths(stage, f"{path}stages.{name}.")
    return lengths


def read_run_record(folder: Path) -> dict[str, Any] | None:
    """The record of the run in a folder; None if there is none."""
    path = folder / "cloze" / "run.json"
    if not path.exists():
        return None
    try:
        record = parse_json(read_small(path))
        if {"recipe_hash", "seed", "budget"} <= record.keys():
            return dict(record)
    except (ValueError, AttributeError):
        pass
    raise CheckpointError(f"{path}: is damaged. Copy it again from where it was made, or give another --out.")


def write_run_record(run: Run, environment: Mapping[str, Any]) -> None:
    """Write `cloze/run.json` and `cloze/environment.json`, each at once."""
    record = {
        "recipe_hash": run.identity.recipe_hash, "identity": run.identity.digest, "recipe": run.identity.recipe,
        "budget": str(run.budget), "seed": run.seed, "inputs": run.identity.inputs,
        "micro_batch": run.micro_batch, "fitted": list(run.fitted), "command": list(run.command),
        **({"setup_seconds": run.setup_seconds} if run.setup_seconds else {}),
    }
    for name, content in (("run.json", record), ("environment.json", {**environment, **run.identity.environment})):
        path = run.folder / "cloze" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{name}.new")
        fresh.unlink(missing_ok=True)  # it may be a link to something else
        fresh.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(path)


#: Keys that are no part of a recipe's hash, so never the reason why a run is refused.
_NOT_HASHED = ("paper", "notes")


def _difference(old: Any, new: Any, path: str = "") -> str:
    """The first value in which two recipes differ, in words."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            if key in _NOT_HASHED and not path:
                continue
            difference = _difference(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
            if difference:
                return difference
        return "" if path else "the same values, written by another version of cloze"
    return "" if old == new else f"{path}: then {_short(old)}, now {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
