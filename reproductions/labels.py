"""What ten minutes of `quick` are worth to a task with few labels, against the same network from a random start.

    cloze pretrain quick --corpus TEXT --budget 10m --out runs/quick
    python reproductions/labels.py --data ../shared/data --model runs/quick --work runs/labels [--workers 2]
    python reproductions/labels.py --table

Tasks: parts of speech and dependency trees of UD English EWT, and whether a sentence on a film is subjective (Pang and Lee,
2004). 500 labelled rows train, others choose the epoch (300 sentences of EWT's dev set, 400 of the rest), and up to 1,000
others test. Both starts are tuned alike: the peak rate that `cloze finetune` fits is tried at a half, once and twice its
value with seed 1, and the rate that is best on the dev rows is kept for all five seeds, which draw new heads and orders. A
finished run is a line in results/labels.jsonl and is not repeated (ledger.py). What comes out is written to
reproductions/labels.md, whatever it is.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ledger import RESULTS, Ledger

TASKS = {"tags": ("token_labelling", "accuracy"), "trees": ("dependency_parsing", "las"),
         "subjective": ("sentence_classification", "accuracy")}  # fmt: skip
COLUMNS = {"tags": ["corpus.text=form", "corpus.label=upos"]}
STARTS = ("pre-trained", "random")
SEEDS, RATES = (1, 2, 3, 4, 5), (0.5, 1.0, 2.0)
TRAIN, TEST = 500, 1000


def main() -> None:
    """Run what the ledger lacks, then print the table."""
    parser = argparse.ArgumentParser(description="Few labels: a pre-trained start against a random one.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", type=Path, help="the folder of the pre-trained network")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--table", action="store_true", help="print the table of the ledger and do nothing else")
    chosen = parser.parse_args()
    ledger = Ledger(RESULTS / "labels.jsonl")
    if not chosen.table:
        cut(chosen.data, chosen.work)
        if chosen.workers > 1:
            share(chosen)
        else:
            for task in chosen.tasks:
                for start in chosen.starts:
                    compare(task, start, chosen.model, chosen.work, ledger)
    print("\n".join(table(ledger)))


def share(chosen: argparse.Namespace) -> None:
    """A process for each start, two at once."""
    common = ["--data", str(chosen.data), "--model", str(chosen.model), "--work", str(chosen.work), "--tasks", *chosen.tasks]
    commands = [[sys.executable, __file__, *common, "--starts", start] for start in chosen.starts]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    if sum(process.wait() for process in processes):
        raise SystemExit("a run failed: see above. Rerun the command, it resumes.")


def cut(data: Path, work: Path) -> None:
    """The files of labelled rows."""
    work.mkdir(parents=True, exist_ok=True)
    for part, many in (("train", TRAIN), ("dev", 300), ("test", TEST)):
        whole = lzma.decompress(next((data / "tag_en_ud_ewt").glob(f"*{part}*.xz")).read_bytes()).decode("utf-8")
        sentences = [one for one in whole.strip().split("\n\n") if one]
        random.Random(0).shuffle(sentences)
        text = "\n\n".join(sentences[:many]) + "\n\n"
        for task in ("tags", "trees"):
            (work / f"{task}-{part}.conllu").write_text(text, encoding="utf-8")
    rows = []
    for file in sorted((data / "cls_en_subjectivity").glob("*.xz")):
        with lzma.open(file, "rt", encoding="latin-1") as opened:
            rows += [{"text": line.strip(), "label": file.name.split(".")[0]} for line in opened if line.strip()]
    random.Random(0).shuffle(rows)
    for part, first, last in (("train", 0, TRAIN), ("dev", TRAIN, TRAIN + 400), ("test", TRAIN + 400, TRAIN + 400 + TEST)):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows[first:last]]
        (work / f"subjective-{part}.jsonl").write_text("".join(lines), encoding="utf-8")


def compare(task: str, start: str, model: Path, work: Path, ledger: Ledger) -> None:
    """One start on one task: the best rate by the dev rows with the first seed, then all seeds."""
    metric = TASKS[task][1]
    tried = [run(task, start, rate, SEEDS[0], model, work, ledger) for rate in RATES]
    best = max(tried, key=lambda one: one["dev"][metric])["rate"]
    for seed in SEEDS[1:]:
        run(task, start, best, seed, model, work, ledger)


def run(task: str, start: str, rate: float, seed: int, model: Path, work: Path, ledger: Ledger) -> dict[str, Any]:
    """Fine-tune once, unless the ledger has it."""
    from cloze.runs.finetuning.finetune import finetune
    from cloze.runs.finetuning.measure_result import measure_on_files

    wanted = {"task": task, "start": start, "model": model.name, "rate": rate, "seed": seed, "rows": TRAIN}
    if not ledger.has(wanted):
        end = "jsonl" if task == "subjective" else "conllu"
        train, dev, test = (str(work / f"{task}-{part}.{end}") for part in ("train", "dev", "test"))
        out = work / f"out-{os.getpid()}"
        shutil.rmtree(out, ignore_errors=True)
        made = finetune(
            model, task=TASKS[task][0], train=[train], dev=[dev], out=out, seeds=(seed,), from_scratch=start == "random",
            overrides=[*COLUMNS.get(task, ()), f"training.rate.peak={rate * fitted_peak(task, model):.3g}"],
            report=lambda line: None,
        )
        made = measure_on_files(made, [test], "test")
        ledger.add(wanted, {part: made.task_json[part] for part in ("dev", "test")})
        shutil.rmtree(out, ignore_errors=True)
    found = ledger.results(**wanted)[0]
    print(task, start, rate, seed, found["test"][TASKS[task][1]], flush=True)
    return found


def fitted_peak(task: str, model: Path) -> float:
    """The peak rate that `cloze finetune` takes for a checkpoint and a number of rows."""
    from cloze.budget.row_counts import RowCounts
    from cloze.checkpoint.build import load_checkpoint
    from cloze.runs.finetuning.task_recipe import recipe_onto

    counts = {"main": RowCounts(TRAIN, 2 if task == "subjective" else 0)}  # words have no class of their row
    recipe = recipe_onto(TASKS[task][0], load_checkpoint(model), row_counts=counts)
    return float(recipe.training.rate.arguments["peak"])


def table(ledger: Ledger) -> Iterator[str]:
    """Mean and deviation over the seeds, at the rate that is best for each start."""
    yield "| task | model | metric | pre-trained | random start | difference | rates |"
    yield "|---|---|---|---|---|---|---|"
    for model in dict.fromkeys(one["model"] for one in ledger.results()):
        for task, (_, metric) in TASKS.items():
            found = {start: chosen(ledger.results(task=task, start=start, model=model), metric) for start in STARTS}
            if any(len(runs) < 2 for runs in found.values()):
                continue
            figures = {start: [one["test"][metric] for one in runs] for start, runs in found.items()}
            shown = [f"{mean(values):.3f} ± {stdev(values):.3f} ({len(values)})" for values in figures.values()]
            difference = 100 * (mean(figures["pre-trained"]) - mean(figures["random"]))
            rates = ", ".join(f"× {runs[0]['rate']:g}" for runs in found.values())
            yield f"| {task} | {model} | {metric} | {' | '.join(shown)} | {difference:+.1f} points | {rates} |"


def chosen(runs: list[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    """The runs at the rate that is best on the dev rows with the first seed."""
    first = [one for one in runs if one["seed"] == SEEDS[0]]
    best = max(first, key=lambda one: one["dev"][metric])["rate"] if len(first) == len(RATES) else None
    return [one for one in runs if one["rate"] == best]


if __name__ == "__main__":
    main()
