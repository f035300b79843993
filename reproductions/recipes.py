"""Which recipe is best at one budget, and which way of transferring: five comparisons.

    python reproductions/recipes.py en --data ../shared/data --work runs/recipes [--jobs 2]
    python reproductions/recipes.py zh --data ../shared/data --work runs/recipes
    python reproductions/recipes.py seconds --data ../shared/data --work runs/recipes
    python reproductions/recipes.py transfer --data ../shared/data --work runs/recipes
    python reproductions/recipes.py rates --data ../shared/data --work runs/recipes
    python reproductions/recipes.py en --table

`en` and `zh` compare six recipes on English text with four tasks, and three on Chinese text with two, after equally many tokens;
`seconds` compares five on English after five minutes of one thread each (run it on an idle core, with --jobs 1). `transfer` tunes
MiniLM on four tasks in full, with adapters and with LoRA; `rates` does so on one task, with three peak learning rates for each.
Each call writes the files of the tasks and starts `cloze compare`, which resumes where it was stopped. Its finding is kept as
results/recipes-NAME.json, from which `--table` prints the tables of reproductions/recipes.md. The results of finished cells are
kept as results/recipes-NAME-cells.jsonl, so a later call on another machine does not repeat them.
Labels are few, so that pre-training matters. Dev rows choose the epoch and the rate; test rows are read once.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import task_files
from ledger import RESULTS

BYTES = 25_000_000  # of text
_CLASSES, _WORDS = "sentence_classification", "token_labelling"


@dataclass(frozen=True)
class Comparison:
    """What is compared; a task is its type and its rows for training, dev and test."""

    candidates: Sequence[str]
    tasks: dict[str, tuple[str, tuple[int, int, int]]]
    text: str = ""  # the folder of the corpus, if candidates are pre-trained
    budget: str = "20Mtokens"
    seeds: int = 3
    transfer: Sequence[str] = ("full",)
    rates: int = 1


WAYS = ("full", "adapters=64", "lora=8")
ENGLISH = {
    "polarity": (_CLASSES, (1000, 300, 1000)),
    "subjectivity": (_CLASSES, (1000, 300, 1000)),
    "clinc150": (_CLASSES, (1500, 300, 1000)),
    "ewt": (_WORDS, (600, 150, 300)),
}
COMPARISONS = {
    "en": Comparison(("bert", "roberta", "electra", "gpt2", "xlnet", "modern"), ENGLISH, "text_en_wiki"),
    "seconds": Comparison(("bert", "roberta", "electra", "gpt2", "quick"), ENGLISH, "text_en_wiki", budget="5m"),
    "zh": Comparison(
        ("bert", "roberta", "modern"),
        {"chnsenticorp": (_CLASSES, (1000, 300, 1000)), "gsd": (_WORDS, (400, 90, 300))},
        "text_zh_wiki",
    ),
    "transfer": Comparison(
        ("minilm",),
        {
            "polarity": (_CLASSES, (500, 300, 1000)),
            "subjectivity": (_CLASSES, (500, 300, 1000)),
            "clinc30": (_CLASSES, (1000, 300, 900)),
            "ewt": (_WORDS, (300, 150, 300)),
        },
        seeds=5,
        transfer=WAYS,
    ),
    "rates": Comparison(("minilm",), {"polarity": (_CLASSES, (500, 300, 1000))}, seeds=5, transfer=WAYS, rates=3),
}


def main() -> None:
    """Run the comparison of a language, or print its tables."""
    parser = argparse.ArgumentParser(description="Which recipe is best at one budget, and which way of transferring.")
    parser.add_argument("name", choices=list(COMPARISONS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="how many; later calls may ask for more")
    parser.add_argument("--table", action="store_true", help="print the tables and do nothing else")
    chosen = parser.parse_args()
    kept = RESULTS / f"recipes-{chosen.name}.json"
    if not chosen.table:
        found = compare(chosen.name, chosen.data, chosen.work, chosen.jobs, chosen.seeds)
        shutil.copy(found, kept)
    print("\n".join(tables(json.loads(kept.read_text(encoding="utf-8")))))


def compare(name: str, data: Path, work: Path, jobs: int, seeds: int | None = None) -> Path:
    """Start `cloze compare`, or resume it; returns the file of its finding."""
    comparison = COMPARISONS[name]
    work.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "cloze", "compare", *(argument_of(one, work) for one in comparison.candidates)]
    if comparison.text:
        text = work / f"{comparison.text}.txt"
        if not text.exists():
            with lzma.open(data / comparison.text / "train.txt.xz") as packed:
                text.write_text(packed.read(BYTES).decode("utf-8", errors="ignore"), encoding="utf-8")
        command += ["--corpus", str(text), "--budget", comparison.budget, "--size", "tiny"]
    command += ["--transfer", ",".join(comparison.transfer), "--seeds", str(seeds or comparison.seeds), "--jobs", str(jobs)]
    command += ["--rates", str(comparison.rates), "--device", "cpu", "--out", str(work / name)]
    for task, (kind, rows) in comparison.tasks.items():
        files = task_files.write(task, rows, data, work / "tasks")
        command += ["--task", f"{task}={kind}:{','.join(map(str, files))}"]
        if kind == _WORDS:
            command += ["--tune", f"{task}:corpus.text=form", "--tune", f"{task}:corpus.label=upos"]
    ledger, cells = RESULTS / f"recipes-{name}-cells.jsonl", work / name / "cells"
    restore(ledger, cells)
    code = subprocess.run(command, env={**os.environ, "PYTHONUNBUFFERED": "1"}, check=False).returncode
    keep(cells, ledger, len(comparison.tasks))
    if code not in (0, 1):
        raise SystemExit(f"{work / name}: stopped. The same command resumes it.")
    return work / name / "compare.json"


def argument_of(candidate: str, work: Path) -> str:
    """What `cloze compare` is given for a candidate: the name of a recipe, or a link to the folder of MiniLM."""
    if candidate != "minilm":
        return candidate
    link = work / candidate
    if not link.exists():
        link.symlink_to(task_files.minilm(), target_is_directory=True)
    return str(link)


def keep(cells: Path, ledger: Path, number: int) -> None:
    """Write a line for each finished run of pre-training whose tasks, this `number`, are finished, and for each of its tasks.

    Stores and checkpoints are not kept. So a run with a task to do is left out: its checkpoint is needed. Of candidates that are
    checkpoints already, every finished task is kept.
    """
    found: list[dict[str, Any]] = [
        {"folder": path.parent.name, "cell": {**json.loads(path.read_text(encoding="utf-8")), "request": {}},
         "result": json.loads(result.read_text(encoding="utf-8")) if (result := path.with_name("result.json")).exists() else None}
        for path in sorted(cells.glob("[pf]*/cell.json"))
    ]  # fmt: skip
    starts = {one["folder"].rsplit("-", 1)[1]: one for one in found if one["cell"]["kind"] == "pretrain"}
    tasks: dict[str, list[dict[str, Any]]] = {key: [] for key in starts}
    lines = []
    for one in found:
        if one["cell"]["kind"] == "finetune":
            own = tasks.get(one["cell"]["identity"]["checkpoint"])
            if own is not None:
                own.append(one)
            elif one["result"]:
                lines.append(one)
    for key, own in tasks.items():
        if len(own) == number and all(one["result"] for one in (starts[key], *own)):
            lines += [starts[key], *own]
    ledger.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lines), encoding="utf-8")


def restore(ledger: Path, cells: Path) -> None:
    """Write the folders of the kept cells that `cells` lacks."""
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    for one in map(json.loads, lines):
        folder = cells / one["folder"]
        if not (folder / "result.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            for file in ("cell", "result"):
                (folder / f"{file}.json").write_text(json.dumps(one[file], ensure_ascii=False), encoding="utf-8")


def tables(found: dict[str, Any]) -> Iterator[str]:
    """The finding in a sentence, then a row for each candidate: test scores in percent, mean ± standard deviation over seeds."""
    tasks, systems = [one["name"] for one in found["tasks"]], found["systems"]
    pretrained = any(system["cost"] for system in systems)
    seconds = [system["cost"]["seconds"] for system in systems if system["cost"]]
    timed = len(seconds) > 1 and max(seconds) < 1.05 * min(seconds)  # then equal seconds were the budget, and tokens differ
    spent = "million tokens" if timed else "minutes"
    heads = ["recipe", "mean", *tasks, *(["held-out loss", spent] if pretrained else ["trained parameters"])]
    yield from (found["answer"], "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|")
    for system in systems:
        scores = [percent(score) for score in (system["mean"], *(system["tasks"].get(task) for task in tasks))]
        if pretrained:
            held = "–" if system["held_out"] is None else f"{system['held_out']:.2f}"
            cost = system["cost"]
            amount = None if cost is None else f"{cost['tokens'] / 1e6:.1f}" if timed else f"{cost['seconds'] / 60:.0f}"
            more = [held, amount or "–"]
        else:
            more = [f"{system['trained_parameters']:,.0f}"]
        yield f"| {' | '.join([system['name'], *scores, *more])} |"
    constant = [f"{100 * one['constant_answer']:.1f}" if one["constant_answer"] is not None else "–" for one in found["tasks"]]
    yield f"| {' | '.join(['one answer for all', '–', *constant, *('–' for _ in heads[len(tasks) + 2 :])])} |"


def percent(score: dict[str, Any] | None) -> str:
    """Mean ± standard deviation."""
    if score is None:
        return "–"
    return f"{100 * score['mean']:.1f}" + (f" ± {100 * score['deviation']:.1f}" if score["deviation"] is not None else "")


if __name__ == "__main__":
    main()
