"""What a checkpoint is: a folder of cloze or of transformers that holds weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from cloze.html_parts import metric_text
from cloze.reports.fact import About, Fact, command, shown_size, size_of
from cloze.reports.run import read_object, read_recipe

RECIPE, TASK, NETWORK = Path("cloze") / "recipe.yaml", Path("cloze") / "task.json", Path("cloze") / "network.json"


class OpenedCheckpoint(Protocol):
    """What is known once a checkpoint is opened; `fault` is why it cannot be opened (see `cloze.checkpoint.uses`)."""

    @property
    def network(self) -> str:
        """The network and its sizes."""

    @property
    def parameters(self) -> int:
        """How many numbers network and heads hold."""

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of the heads."""

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs that take it."""

    @property
    def answers(self) -> bool:
        """Whether what it generates answers a text."""

    @property
    def of_words(self) -> bool:
        """Whether it is a table of word vectors."""

    @property
    def of_graph(self) -> bool:
        """Whether its vectors are those of the entities and relations of a graph."""

    @property
    def changes(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """The changes of the network, by name with their arguments."""

    @property
    def trained(self) -> int:
        """How many of the parameters a run with these changes trains."""

    @property
    def fault(self) -> str:
        """Why it cannot be opened; empty where it can."""


Opens = Callable[[Path], OpenedCheckpoint]


def about_checkpoint(path: Path, opens: Opens) -> About:
    """A checkpoint without the log of its run: exported, imported, or from elsewhere."""
    can, task = opens(path), read_json(path / TASK)
    _, recipe = read_recipe(path / RECIPE)
    whose = f"of the recipe {recipe['name']}" if recipe.get("name") else "that transformers wrote"
    facts = [*network_facts(path, can), *compression_facts(path), *task_facts(task), files_fact(path)]
    summary = f"a {'fine-tuned ' if task else ''}checkpoint {whose}, without the log of a run"
    return About("checkpoint", path, summary, facts, uses(path, can, task))


def network_facts(path: Path, can: OpenedCheckpoint) -> list[Fact]:
    """Network, heads and tokenizer, or why they cannot be opened."""
    if can.fault:
        return [Fact("fault", can.fault, can.fault.splitlines()), *_code(path)]
    config = read_json(path / "config.json")
    classes = config.get("architectures") or ()
    architecture = f" ({classes[0]} in transformers)" if classes else ""
    facts = [
        Fact("network", can.network, can.network + architecture),
        Fact("parameters", can.parameters, f"{can.parameters:,}"),
    ]
    if can.changes:
        lines = [
            " ".join([name, *(f"{key}={_value(value)}" for key, value in arguments.items())]) for name, arguments in can.changes
        ]
        facts.append(Fact("changes", [{name: dict(arguments)} for name, arguments in can.changes], lines))
        share = f"{can.trained:,} of {can.parameters:,} parameters ({can.trained / max(can.parameters, 1):.2%})"
        facts.append(Fact("trained", can.trained, share))
    if can.heads:
        facts.append(Fact("heads", list(can.heads), ", ".join(can.heads)))
    return [*facts, *_tokenizer(path), *_code(path)]


def compression_facts(path: Path) -> list[Fact]:
    """What `cloze compress` did, and the sizes before and after."""
    compression = read_json(path / "cloze" / "compression.json")
    if not compression:
        return []
    done = [" ".join([name, *(f"{key}={_value(value)}" for key, value in arguments.items())])
            for change in compression["changes"] for name, arguments in change.items()]
    sizes = [f"{when}: {_size(compression[when])}" for when in ("before", "after")]
    return [Fact("compressed", compression, [f"from {compression['from']}: {'; '.join(done)}", *sizes])]


def _size(size: Mapping[str, Any]) -> str:
    share = size["zeros"] / max(size["parameters"], 1)
    return f"{size['parameters']:,} parameters, {share:.1%} of them zero, {shown_size(size['bytes'])} of weights"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def copies(path: Path) -> list[Path]:
    """The copies of a user's Python files, which register parts of the checkpoint (see `cloze.recipe.user_files`)."""
    return sorted((path / "cloze" / "code").glob("*.py"))


def _code(path: Path) -> list[Fact]:
    digests = {str(file): sha256(file.read_bytes()).hexdigest() for file in copies(path)}
    lines = [f"{file}, sha256 {digest[:12]}" for file, digest in digests.items()]
    return [Fact("your_parts", digests, lines)] if digests else []


def opening(path: Path, line: str) -> str:
    """A command that opens the checkpoint in a folder: with `--with` for the parts of a user's own."""
    return " ".join([line, *(command("--with", file) for file in copies(path))])


def _tokenizer(path: Path) -> list[Fact]:
    from cloze.errors import ClozeError
    from cloze.text import Tokenizer

    try:
        tokenizer = Tokenizer.load(path)
    except ClozeError:
        return []
    value = {"type": tokenizer.kind, "size": tokenizer.size, "hash": tokenizer.hash}
    return [Fact("tokenizer", value, f"{tokenizer.kind}, {tokenizer.size:,} ids{', lower case' if tokenizer.lower else ''}")]


def task_facts(task: Mapping[str, Any]) -> list[Fact]:
    """What a fine-tuned folder has learned, and its metrics on the dev set next to those of always giving one answer."""
    if not task:
        return []
    several: Mapping[str, Any] = task.get("tasks") or {}
    kinds = [f"{name}: {subtask.get('task')}" for name, subtask in several.items()] or [str(task.get("task"))]
    facts = [Fact("task", list(several) or task.get("task"), ", ".join(kinds))]
    labels = task.get("labels") or ()
    if labels:
        more = f" and {len(labels) - 8} more" if len(labels) > 8 else ""
        facts.append(Fact("labels", list(labels), ", ".join(map(str, labels[:8])) + more))
    columns = {name: value for name, value in (task.get("columns") or {}).items() if isinstance(value, str)}
    if columns:
        facts.append(Fact("columns", columns, ", ".join(f"{name}: {value}" for name, value in columns.items())))
    dev: Mapping[str, Any] = task.get("dev") or {}
    base: Mapping[str, Any] = task.get("baseline") or {}
    ngrams: Mapping[str, Any] = (task.get("ngrams") or {}).get("dev") or {}
    mixture: Mapping[str, Any] = (task.get("mixture") or {}).get("dev") or {}
    if dev:
        simple = {} if base.get("always") is None else {f"always {str(base['always'])[:40]!r}": base}
        simple |= {"n-grams": ngrams, "mixture": mixture}
        cells = {name: [f"{head}: {metric_text(metrics[name])}" for head, metrics in simple.items() if name in metrics]
                 for name in dev}
        lines = [f"{name} {metric_text(value)}" + (f" ({', '.join(cells[name])})" if cells[name] else "")
                 for name, value in dev.items()]
        also = {name: dict(metrics) for name, metrics in (("ngrams", ngrams), ("mixture", mixture)) if metrics}
        facts.append(Fact("dev", {"metrics": dict(dev), "baseline": dict(base), **also}, lines))
    if task.get("remarks"):
        facts.append(Fact("remarks", list(task["remarks"]), [str(remark) for remark in task["remarks"]]))
    return facts


def files_fact(path: Path) -> Fact:
    """What is in a folder, and its size."""
    inside = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir() if not entry.name.startswith("."))
    return Fact("folder", {"files": inside, "bytes": size_of(path)}, f"{shown_size(size_of(path))}: {', '.join(inside)}")


def uses(path: Path, can: OpenedCheckpoint, task: Mapping[str, Any], *, sample: str = "", dev: Sequence[str] = ()) -> list[str]:
    """The commands that take a checkpoint; `sample` is a text that its run has shown, `dev` its dev set."""
    if can.fault:
        return []
    if task:
        name = ["--task", next(iter(task["tasks"]))] if task.get("tasks") else []
        file = dev[0] if dev else "TEST.tsv"
        commands = [
            command("cloze", "evaluate", path, file, *name),
            command("cloze", "predict", path, file, *name, "--out", "predictions.jsonl"),
        ]
    else:
        commands = [_shown(path, verb, sample, answers=can.answers) for verb in can.verbs if verb in _EXAMPLES][:2]
        if "neighbours" in can.verbs and can.of_words:
            measure = ["TEST.tsv", "--task", "link_prediction"] if can.of_graph else ["--similarity", "PAIRS.txt"]
            commands += [
                command("cloze", "neighbours", path, "ENTITY" if can.of_graph else "WORD"),
                command("cloze", "evaluate", path, *measure),
                command("cloze", "export", path, f"{path.resolve().name}.vec", "--to", "word2vec"),
            ]
        else:
            commands.append(command("cloze", "finetune", path, "--train", "TRAIN.tsv", "--dev", "DEV.tsv", "--out", tuned(path)))
    return [opening(path, line) for line in [*commands, *_publishing(path, can)]]


_EXAMPLES = {
    "fill": "Write a text with a [MASK] in it.", "generate": "The beginning of a text", "score": "A text to score.",
}


def _shown(path: Path, verb: str, sample: str, *, answers: bool) -> str:
    fits = sample and ("[MASK]" in sample or "<mask>" in sample) == (verb == "fill")
    text = sample if fits else "A text to answer." if verb == "generate" and answers else _EXAMPLES[verb]
    return command("cloze", verb, path, text)


def _publishing(path: Path, can: OpenedCheckpoint) -> list[str]:
    if can.of_words:
        return []
    target = path.parent / f"{path.resolve().name}-published"
    return [command("cloze", "export", path, target, "--to", "huggingface", "--language", "en", "--licence", "LICENCE")]


def tuned(path: Path) -> Path:
    """A name for what is fine-tuned from a folder."""
    return path.parent / f"{path.resolve().name}-tuned"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; {} if it is absent or damaged."""
    return read_object(path)
