"""Describes a run folder: its progress, its text, its losses and metrics, and how to resume it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloze.corpus.readers.not_text import STORE_FILE
from cloze.display import duration, three_digits
from cloze.errors import BudgetError
from cloze.reports.about_checkpoint import (
    NETWORK,
    TASK,
    Opens,
    files_fact,
    network_facts,
    opening,
    read_json,
    task_facts,
    uses,
)
from cloze.reports.fact import About, Fact, command
from cloze.reports.run import LOG, in_order, loss_together, number, read_log, read_recipe, worth_of
from cloze.tasks.tuned_folder import LEARNED_DEV
from cloze.training.baselines import baselines_from
from cloze.training.checkpoints.lock import is_held
from cloze.training.schedule.budget import Budget, in_words
from cloze.training.schedule.untrained import is_untrained

Record = dict[str, Any]
_RECORD, _SEEDS, _STAGES = Path("cloze") / "run.json", Path("cloze") / "seeds", Path("cloze") / "stages"
_PREPARED = frozenset({"corpus", "stages", "lock"})


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, the runs of several seeds, or finished stages before its own run began."""
    return (path / _RECORD).is_file() or (path / LOG).is_file() or (path / _SEEDS).is_dir() or (path / _STAGES).is_dir()


def is_prepared(path: Path) -> bool:
    """Whether a run was prepared in a folder and did not begin."""
    inner = path / "cloze"
    return inner.is_dir() and {entry.name for entry in inner.iterdir()} <= _PREPARED


def about_prepared(path: Path) -> About:
    """A folder in which the text was read and no run began."""
    stores = sorted(file.parent for file in (path / "cloze" / "corpus").rglob(STORE_FILE))
    steps = [command("cloze", "pretrain", "quick", "--corpus", stores[0], "--budget", "10m", "--out", path)] if stores else []
    facts = [Fact("stores", list(map(str, stores)), ", ".join(map(str, stores)) or "none")]
    return About("prepared", path, "a run that was prepared and did not begin", facts, steps)


def about_runs(path: Path, opens: Opens) -> About | None:
    """A folder of runs, one line for each; None if it holds no run."""
    inside = sorted(child for child in path.iterdir() if child.is_dir() and is_run(child))
    if not inside:
        return None
    parts = [_brief(child) for child in inside]
    steps = [command("cloze", "show", inside[0]), command("cloze", "report", path)]
    return About("runs", path, f"a folder of {len(inside)} run{'s' * (len(inside) > 1)}", [], steps, parts)


def about_run(path: Path, opens: Opens) -> About:
    """A run: of pre-training or of fine-tuning, in one piece, in stages or with several seeds."""
    record = _Run(path)
    task = read_json(path / TASK)
    facts = [Fact("recipe", record.recipe_value(), record.recipe_text())]
    can = opens(path) if any((path / name).is_file() for name in ("config.json", NETWORK)) else None
    if can is not None:
        facts += network_facts(path, can)
    facts += [*record.origin(), *record.text(), *record.progress(), *record.losses(), *task_facts(task), *record.contents()]
    inner = sorted((path / _STAGES).glob("*")) + sorted((path / _SEEDS).glob("*"))
    parts = [_brief(folder) for folder in inner if is_run(folder)]
    steps = record.going_on()
    if can is not None and (record.finished or not steps):
        steps = [*uses(path, can, task, sample=record.sample(), dev=record.dev()), *steps]
    steps.append(command("cloze", "report", path))
    return About("run", path, f"a {'fine-tuning' if record.tuning else 'pre-training'} run, {record.state}", facts, steps, parts)


def unfinished(path: Path) -> str | None:
    """A sentence about a folder whose run has not ended, so that its network is a checkpoint from the middle; else None."""
    record = _Run(path)
    if not record.events or record.finished:
        return None
    return f"{path}: this run is {record.state}; the folder holds a checkpoint from the middle of it. {next_step(path)}"


def next_step(path: Path) -> str:
    """The line at the end of a run: how to resume it, or a command that uses it. Nothing is opened for it but the log."""
    record = _Run(path)
    if not record.finished:
        words = record.going_on()
        return f"To resume: {words[0]}" if words else "To resume, rerun the command."
    sample, dev = record.sample(), record.dev()
    if (path / TASK).is_file() and dev:
        suggestion = command("cloze", "evaluate", path, dev[0], *record.encoding())
    elif sample:
        suggestion = command("cloze", "fill" if "[MASK]" in sample or "<mask>" in sample else "generate", _sampled(path), sample)
    elif _of_words((network := read_json(path / NETWORK)).get("part")):
        words = (network.get("arguments") or {}).get("words", True)  # paragraph vectors may have none of words
        suggestion = command("cloze", "neighbours", path, "WORD") if words else command("cloze", "embed", path, "TEXT")
    else:
        return f"Next: {opening(path, command('cloze', 'show', path))}"
    return f"Next: {opening(path, suggestion)}  (more: {opening(path, command('cloze', 'show', path))})"


def _sampled(path: Path) -> Path:
    """The folder of the network that predicts the tokens of samples: of a discriminator, that of its generator."""
    inner = [folder.parents[len(NETWORK.parts) - 1] for folder in sorted(path.glob(f"cloze/networks/*/{NETWORK}"))]
    return path if not inner or _predicts(path) else next((folder for folder in inner if _predicts(folder)), path)


def _predicts(path: Path) -> bool:
    """Whether a network in a folder has a head that predicts tokens."""
    import cloze.objectives  # noqa: F401  the import registers the parts
    from cloze.registry import lookup, made_by, names

    parts = [str(head.get("part")) for head in (read_json(path / NETWORK).get("heads") or {}).values()]
    objectives: list[Any] = [made_by(lookup("objective", part)) for part in parts if part in names("objective")]
    return any(objective.kind == "token_prediction" for objective in objectives)


def _of_words(part: object) -> bool:
    """Whether a network is a table of word vectors; the run that has just ended has loaded it."""
    import cloze.networks  # noqa: F401  the import registers the parts
    from cloze.registry import lookup, made_by, names

    if part not in names("network"):
        return False
    network: Any = made_by(lookup("network", str(part)))
    return bool(network.of_words)


def _brief(path: Path) -> About:
    record = _Run(path)
    held = record.held_out()
    together = loss_together([event for event in held if event.get("step") == held[-1].get("step")])  # of a mixture's entries
    loss = "" if together is None else f", held-out loss {together:.4f}"
    return About("run", path, f"{record.name}, {record.state}{loss}", [Fact("state", record.state, record.state)])


class _Run:
    """The files of a run: `cloze/run.json`, the log and the recipe, each as far as it is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = read_json(path / _RECORD)
        self.events = read_log(path / LOG)[0] if (path / LOG).is_file() else []
        self.recipe: Mapping[str, Any] = self.record.get("recipe") or read_recipe(path / "cloze" / "recipe.yaml")[1]
        if not self.record and (inner := [seed for seed in sorted((path / _SEEDS).glob("*")) if (seed / _RECORD).is_file()]):
            first = _Run(inner[0])  # of several seeds: their recipe and text are the same
            self.record, self.recipe = first.record, first.recipe
            self.seeds = [_Run(seed) for seed in inner]
        else:
            self.seeds = []

    @property
    def name(self) -> str:
        """The recipe's name."""
        return str(self.recipe.get("name") or "an unknown recipe")

    @property
    def tuning(self) -> bool:
        """Whether labelled text was learned."""
        return bool(self.recipe.get("task")) or (self.path / TASK).is_file()

    @property
    def last(self) -> Record:
        """The last event that records how much is spent."""
        return next((event for event in reversed(self.events) if number(event, "share") is not None), {})

    @property
    def finished(self) -> bool:
        """Whether the budget is spent, or the run has ended early by its own rule."""
        if self.seeds:
            return all(run.finished for run in self.seeds) and (self.path / "config.json").is_file()
        stop = self.events[-1] if self.events else {}
        return stop.get("event") in ("stop", "table") and bool(stop.get("finished", (number(self.last, "share") or 0.0) >= 1.0))

    @property
    def state(self) -> str:
        """In a few words: finished, in progress, stopped by …, interrupted."""
        if self.finished:
            return "finished"
        if is_held(self.path):
            return f"in progress ({self._share()} of the budget spent)"
        if not self.events:
            return "not begun"
        stop = self.events[-1]
        signal = str(stop.get("reason", "")).removeprefix("stopped by ")
        how = f"stopped by {signal}" if stop.get("event") == "stop" else "interrupted"
        if is_untrained(self.path):
            return f"{how} before the first step: untrained"
        return f"{how} after {self._share()} of the budget"

    def _share(self) -> str:
        return f"{min(number(self.last, 'share') or 0.0, 1.0):.0%}"

    def recipe_value(self) -> Record:
        """Name, hash and values fitted to the budget."""
        return {
            "name": self.name, "hash": self.record.get("recipe_hash"), "paper": self.recipe.get("paper"),
            "fitted": self.record.get("fitted") or [],
        }

    def recipe_text(self) -> list[str]:
        """The recipe in a few lines."""
        paper = f", {self.recipe['paper']}" if self.recipe.get("paper") else ""
        lines = [f"{self.name}{paper}"]
        fitted = self.record.get("fitted") or []
        if fitted:
            differ = "1 value differs" if len(fitted) == 1 else f"{len(fitted)} values differ"
            lines.append(f"fitted to the budget: {differ} from the published recipe")
        return lines

    def origin(self) -> list[Fact]:
        """Which weights the run began with."""
        inputs = self.record.get("inputs") or {}
        sources = {f"--init {init['given']}": init["given"] for init in [inputs.get("init")] if init}
        sources |= {
            f"{label} from {network['given']}": network["given"] for label, network in (inputs.get("networks") or {}).items()
        }
        stages = [stage.name for stage in sorted((self.path / _STAGES).glob("*"))]
        text = [*sources, *([f"the stages before: {', '.join(stages)}"] if stages else [])] or ["random weights"]
        return [Fact("started_from", list(sources.values()) or stages or None, "; ".join(text))] if self.record else []

    def text(self) -> list[Fact]:
        """What the run was trained on, and its dev sets and held-out text."""
        inputs = self.record.get("inputs") or {}
        facts = []
        for name, label in (("corpus", "trained_on"), ("dev", "dev_set")):
            sources: Mapping[str, Any] = inputs.get(name) or {}
            lines = [
                f"{source + ': ' if len(sources) > 1 else ''}{' '.join(entry['given'])} ({entry['tokens']:,} tokens)"
                for source, entry in sources.items()
            ]
            if lines:
                facts.append(Fact(label, {source: entry["given"] for source, entry in sources.items()}, lines))
        held = inputs.get("held_out")
        return [*facts, *([Fact("held_out_text", held["given"], " ".join(held["given"]))] if held else [])]

    def dev(self) -> list[str]:
        """The files of the dev set of the first source; none if what answers has learned from them."""
        if read_json(self.path / TASK).get(LEARNED_DEV):
            return []
        sources: Mapping[str, Any] = (self.record.get("inputs") or {}).get("dev") or {}
        return [str(path) for source in sources.values() for path in source["given"]]

    def encoding(self) -> list[str]:
        """The option that names the encoding of the files, if the run was started with it."""
        words = self._command()
        at = words.index("--encoding") if "--encoding" in words else len(words)
        return words[at : at + 2]

    def progress(self) -> list[Fact]:
        """The budget and how much of it is spent."""
        budget, last = self.record.get("budget"), self.last
        facts = [] if budget is None else [Fact("budget", budget, in_words(budget))]
        if last:
            value = {key: last.get(key) for key in ("step", "tokens", "epochs", "seconds", "share")}
            parts = [f"{last['step']:,} steps" if "step" in last else "", f"{last.get('tokens', 0):,.0f} tokens"]
            parts += [f"{three_digits(last['epochs'])} epochs"] if number(last, "epochs") is not None else []
            parts += [duration(last["seconds"])] if number(last, "seconds") is not None else []
            facts.append(Fact("spent", value, f"{self._share()}: {', '.join(part for part in parts if part)}"))
        facts.append(Fact("finished", self.finished, "yes" if self.finished else "no"))
        if words := self._command():
            facts.append(Fact("command", command(*words), command(*words)))
        return facts

    def held_out(self) -> list[Record]:
        """The held-out events in the order of their steps."""
        return in_order(event for event in self.events if event.get("event") == "held_out")

    def losses(self) -> list[Fact]:
        """The last held-out loss of each objective next to what needs no network, or the last training losses."""
        held = self.held_out()
        group = held or [event for event in self.events if event.get("event") == "train"][-1:]
        baselines = baselines_from(next((e["baselines"] for e in reversed(self.events) if e.get("baselines")), None))
        losses = worth_of(group, baselines)
        if not losses:
            return []
        lines = [
            f"{name} {loss:.3f}{'' if base is None else ': ' + base.describe(loss)}" for name, (loss, base) in losses.items()
        ]
        label = "held_out_loss" if held else "training_loss"
        value = {
            name: {"loss": loss, "baseline": None if base is None else base.to_json()} for name, (loss, base) in losses.items()
        }
        return [Fact(label, value, lines)]

    def contents(self) -> list[Fact]:
        """What lies in the folder."""
        inner = self.path / "cloze"
        steps = sorted(int(folder.name[5:]) for folder in (inner / "checkpoints").glob("step-*") if folder.name[5:].isdigit())
        stores = sorted(file.parent for file in (inner / "corpus").rglob(STORE_FILE)) if (inner / "corpus").is_dir() else []
        listing = f"of step{'s' * (len(steps) > 1)} {', '.join(f'{step:,}' for step in steps)}" if steps else "none"
        facts = [Fact("checkpoints", steps, listing)]
        facts += [Fact("token_stores", list(map(str, stores)), [str(store) for store in stores])] if stores else []
        return [*facts, files_fact(self.path)]

    def sample(self) -> str:
        """A text that the run has filled or continued."""
        samples = next((event for event in reversed(self.events) if event.get("event") == "samples"), {})
        texts = samples.get("samples") or [{}]
        return str(texts[0].get("text", ""))

    def going_on(self) -> list[str]:
        """The command that resumes an unfinished run, or trains a finished one further."""
        words = self._command()
        if not words or is_held(self.path):
            return []
        if not self.finished:
            return [command(*words)]
        if self.tuning or self.recipe.get("stages") or "--budget" not in words:
            return []
        try:
            spent = Budget.parse(str(self.record.get("budget")))
        except BudgetError:
            return []
        at = words.index("--budget")
        more = [*words[:at + 1], Budget(spent.kind, 2 * spent.amount).typed, *words[at + 2:], "--extend"]
        return [command(*more)]

    def _command(self) -> list[str]:
        """The command that started the run, with the present folder."""
        words = [str(word) for word in self.record.get("command") or ()]
        if "--out" in words:
            words[words.index("--out") + 1] = str(self.path)
        return words
