"""Is a pre-trained start ever worse than a random one?

    cloze pretrain electra-small --corpus TEXT --budget 6Mtokens --size tiny --out runs/electra-small
    python reproductions/starts.py --data ../shared/data --models runs/electra-small runs/bert --work runs/starts
    python reproductions/starts.py --table

The tasks are the four of recipes.py, with few labels. The pre-trained network is tuned as `cloze finetune` fits it. Two
random starts of the same network are tuned at each of four peak rates with seed 1, and with the other seeds at the rate that
is best on the dev rows. `drawn`: network and head as they are drawn. `prepared`: the run's own checkpoint of step 0, whose
top layer and head `cloze finetune` prepares as it prepares those of the pre-trained network. A finished run is a line in
results/starts.jsonl and is not repeated (ledger.py). Models go by the names of their folders.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import task_files
from ledger import RESULTS, Ledger
from recipes import ENGLISH

COLUMNS = {"ewt": ["corpus.text=form", "corpus.label=upos"]}
STARTS = ("pre-trained", "drawn", "prepared")
SEEDS, RATES = (1, 2, 3), (3e-4, 6e-4, 1e-3, 2e-3)


def main() -> None:
    """Run what the ledger lacks, then print the table."""
    parser = argparse.ArgumentParser(description="A pre-trained start against random ones.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--models", type=Path, nargs="+", help="folders of runs of cloze pretrain")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=list(ENGLISH), default=list(ENGLISH))
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--table", action="store_true", help="print the table of the ledger and do nothing else")
    chosen = parser.parse_args()
    ledger = Ledger(RESULTS / "starts.jsonl")
    for model in [] if chosen.table else chosen.models:
        for task in chosen.tasks:
            files = [str(file) for file in task_files.write(task, ENGLISH[task][1], chosen.data, chosen.work / "tasks")]
            for start in chosen.starts:
                compare(model, task, start, files, chosen.work, ledger)
    print("\n".join(table(ledger)))


def compare(model: Path, task: str, start: str, files: list[str], work: Path, ledger: Ledger) -> None:
    """One start on one task: the best rate by the dev rows with the first seed, then all seeds."""
    rates = (None,) if start == "pre-trained" else RATES
    tried = [run(model, task, start, rate, SEEDS[0], files, work, ledger) for rate in rates]
    best = max(tried, key=lambda one: one["dev"])["rate"]
    for seed in SEEDS[1:]:
        run(model, task, start, best, seed, files, work, ledger)


def run(
    model: Path, task: str, start: str, rate: float | None, seed: int, files: list[str], work: Path, ledger: Ledger
) -> dict[str, Any]:
    """Fine-tune once, unless the ledger has it; without a rate at the fitted one."""
    from cloze.runs.finetuning.finetune import finetune
    from cloze.runs.finetuning.measure_result import measure_on_files

    wanted = {"model": model.name, "task": task, "start": start, "rate": rate, "seed": seed}
    if not ledger.has(wanted):
        train, dev, test = files
        out = work / f"out-{os.getpid()}"
        shutil.rmtree(out, ignore_errors=True)
        made = finetune(
            model / "cloze" / "checkpoints" / "step-00000000" if start == "prepared" else model, task=ENGLISH[task][0],
            train=[train], dev=[dev], out=out, seeds=(seed,), from_scratch=start == "drawn", device="cpu",
            overrides=[*COLUMNS.get(task, ()), *([] if rate is None else [f"training.rate.peak={rate:g}"])],
            report=lambda line: None,
        )
        described = measure_on_files(made, [test], "test").task_json
        ledger.add(wanted, {part: described[part]["accuracy"] for part in ("dev", "test")})
        shutil.rmtree(out, ignore_errors=True)
    found = ledger.results(**wanted)[0]
    print(model.name, task, start, rate, seed, found["test"], flush=True)
    return found


def table(ledger: Ledger) -> Iterator[str]:
    """Mean and deviation of the test accuracy over the seeds, random starts at their best rates."""
    yield "| model | task | pre-trained | random, drawn | random, prepared | pre-trained above the better random start |"
    yield "|---|---|---|---|---|---|"
    for model in dict.fromkeys(one["model"] for one in ledger.results()):
        for task in ENGLISH:
            runs = {start: chosen(ledger.results(model=model, task=task, start=start)) for start in STARTS}
            figures = {start: [one["test"] for one in own] for start, own in runs.items()}
            if any(len(values) < 2 for values in figures.values()):
                continue
            rates = {start: f" at {own[0]['rate']:g}" if own[0]["rate"] else "" for start, own in runs.items()}
            shown = [f"{mean(values):.3f} ± {stdev(values):.3f}{rates[start]}" for start, values in figures.items()]
            better = max((figures["drawn"], figures["prepared"]), key=mean)
            above = 100 * (mean(figures["pre-trained"]) - mean(better))
            error = 100 * ((stdev(figures["pre-trained"]) ** 2 + stdev(better) ** 2) / len(better)) ** 0.5
            yield f"| {model} | {task} | {' | '.join(shown)} | {above:+.1f} ± {error:.1f} points |"


def chosen(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs at the rate that is best on the dev rows with the first seed."""
    first = [one for one in runs if one["seed"] == SEEDS[0]]
    best = max(first, key=lambda one: one["dev"])["rate"] if first else None
    return [one for one in runs if one["rate"] == best]


if __name__ == "__main__":
    main()
