"""Cells, commands, recipes and wrong knowledge that all systems of knowledge.py share."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import knowledge_data
from cells import tuned
from ledger import Ledger

SEEDS = (1, 2, 3)
STEPS, ROWS, LENGTH = 250, 32, 128
TRAINING: Mapping[str, Any] = {
    "optimizer": {"adamw": {"betas": [0.9, 0.98], "epsilon": 1e-6, "weight_decay": 0.01}},
    "rate": {"linear": {"peak": 5e-4, "warmup": 0.1}}, "batch": ROWS, "steps": STEPS,
}  # fmt: skip
Measures = dict[str, float]


@dataclass(frozen=True)
class Choice:
    """What the command line says of a run."""

    data: Path
    work: Path
    base: Path
    ledger: Ledger

    def file(self, name: str) -> Path:
        """A file that all cells share."""
        return self.work / name


@dataclass(frozen=True)
class Cell:
    """One network: a system, an arm and a seed."""

    system: str
    arm: str
    seed: int
    steps: int = STEPS

    @property
    def run(self) -> dict[str, Any]:
        """What it is known by in the ledger."""
        return {"system": self.system, "arm": self.arm, "steps": self.steps, "seed": self.seed}

    def __str__(self) -> str:
        return f"{self.system}:{self.arm}:{self.seed}"


def run_cell(chosen: Choice, cell: Cell, make: Callable[[Choice, Cell, Path], Measures]) -> None:
    """Make and measure one cell, and add it to the ledger."""
    folder = chosen.work / "cells" / str(cell).replace(":", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.time()
    found = make(chosen, cell, folder / "run")
    chosen.ledger.add(cell.run, {**found, "seconds": round(time.time() - started)})
    shutil.rmtree(folder)
    print(cell, json.dumps(found), flush=True)


def command(*words: object) -> str:
    """Run a command of cloze; returns what it prints."""
    made = subprocess.run([sys.executable, "-m", "cloze", *map(str, words)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"cloze {' '.join(map(str, words))}\n{made.stdout}{made.stderr}")
    return made.stdout


def once(out: Path, *words: object) -> None:
    """Run a command that writes `out`, unless it is there."""
    if not out.exists():
        print(command(*words, "--out", out).strip().splitlines()[-1], flush=True)


def adapted(name: str, *, segments: int = 0) -> dict[str, Any]:
    """A recipe with our training, without dropout, with the segments of the base, and with short rows."""
    import cloze
    from cloze.document import read_plain

    path = Path(str(cloze.__file__)).parent / "recipes" / f"{name}.yaml"
    recipe: dict[str, Any] = read_plain(path)
    recipe["training"] = dict(TRAINING)
    recipe.pop("schedule", None)
    (network,) = recipe["network"].values()
    network.update(segments=segments, dropout=0.0)
    if "embedding" not in network:
        network["initial"] = "normal"
    for source in ([recipe["corpus"]] if "corpus" in recipe else recipe["sources"].values()):
        for options in source.values():
            options["length"] = min(options.get("length", LENGTH), LENGTH)
    return recipe


def pretrain(
    chosen: Choice, cell: Cell, recipe: Mapping[str, Any], out: Path, *options: object, start: bool = True, size: str = "tiny"
) -> str:
    """Train a recipe from the base, which has this size; returns what the run prints."""
    file = out.with_suffix(".yaml")
    file.write_text(json.dumps(recipe), encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    first = ("--init", chosen.base) if start else ("--tokenizer", chosen.base)
    scaled = ("--size", size, "--as-published", *first)
    return command("pretrain", file, *scaled, *options, "--seed", cell.seed, "--device", "cpu", "--out", out)


def on_names(start: Path, files: Sequence[Path], seed: int, out: Path, **options: Any) -> Measures:
    """Test accuracy and macro-F1 on what a name in a sentence is, in percent, after tuning on 1,500 sentences."""
    overrides = [
        "training.epochs=5", "training.rate.peak=1e-3", "training.batch=16", "task.metric=macro_f1", "task.patience=0",
    ]  # fmt: skip
    found = tuned(start, tuple(map(str, files)), seed, out, overrides=overrides, **options)  # type: ignore[arg-type]
    return {"names": 100 * found["test"]["accuracy"], "names, macro-F1": 100 * found["test"]["macro_f1"]}


def names(chosen: Choice) -> list[Path]:
    """Training, dev and test rows of the task."""
    return [chosen.file(f"names-{part}.jsonl") for part in knowledge_data.PARTS]


def ranked(chosen: Choice, run: Path, facts: str) -> Measures:
    """Hits@10 and mean reciprocal rank of facts among 100 random entities, in percent."""
    file = str(chosen.file(facts))
    graph = ("--graph", chosen.file("wordnet"), "--known", chosen.file("wordnet-train.tsv"), "--candidates", 100)
    found = json.loads(command("evaluate", run, file, "--task", "link_prediction", *graph, "--json"))[file]["metrics"]
    return {"hits@10": 100 * found["hits@10"], "mrr": 100 * found["mrr"]}


def shuffled_column(path: Path, column: int, seed: int, out: Path) -> Path:
    """The table with the values of a column given to other rows; a first line that begins with `id` stays."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    head = [rows.pop(0)] if rows[0][0] == "id" else []
    values = [row[column] for row in rows]
    random.Random(seed).shuffle(values)
    made = [[*row[:column], value, *row[column + 1 :]] for row, value in zip(rows, values, strict=True)]
    knowledge_data.table(out, [*head, *made])
    return out


def shuffled_pairs(path: Path, seed: int, out: Path) -> Path:
    """A lexicon whose second words belong to other first words; the first line stays."""
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in rest]
    seconds = [row[1] for row in rows]
    random.Random(seed).shuffle(seconds)
    pairs = {(one, other) for (one, _), other in zip(rows, seconds, strict=True) if one != other}
    knowledge_data.table(out, [tuple(first.split("\t")), *sorted(pairs)])
    return out


def shuffled_labels(path: Path, seed: int, out: Path) -> Path:
    """JSON lines with the labels of other rows."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    labels = [row["label"] for row in rows]
    random.Random(seed).shuffle(labels)
    knowledge_data.lines(out, ({**row, "label": label} for row, label in zip(rows, labels, strict=True)))
    return out


def exchange(vectors: Path, some: Callable[[str], bool], seed: int) -> None:
    """Give the vectors of some words of a file to others of these words."""
    head, *rows = vectors.read_text(encoding="utf-8").splitlines()
    own = [i for i, row in enumerate(rows) if some(row.split(" ", 1)[0])]
    words = [rows[i].split(" ", 1)[0] for i in own]
    random.Random(seed).shuffle(words)
    for i, word in zip(own, words, strict=True):
        rows[i] = f"{word} {rows[i].split(' ', 1)[1]}"
    vectors.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
