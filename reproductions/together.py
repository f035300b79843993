"""Several tasks at once and one after another, against each task alone, on few labels.

    python reproductions/together.py --data ../shared/data --model RUN --work runs/together
    python reproductions/together.py --table

Tasks: the polarity of sentences on films (Pang and Lee, 2005), with 100 or 500 labels; whether such a sentence is subjective
(Pang and Lee, 2004), with 2,000 labels; the intents of 1,500 requests (Larson et al., 2019). *Alone*: fine-tuning on one task.
*At once*: one network with a head for each task (MT-DNN: Liu et al., 2019). *After subjectivity*: that task first, then the
other (STILTs: Phang et al., 2018). `cloze finetune` fits rate, batch and epochs to each task and its rows. 300 dev rows choose
the epoch; 1,000 test rows are read once. A finished run is a line in results/together.jsonl and is not repeated (ledger.py).
Results of any outcome are written to reproductions/tasks.md.
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

SEEDS = (1, 2, 3, 4, 5)
POLARITY = {f"polarity-{rows}": ("polarity", (rows, 300, 1000)) for rows in (100, 500)}
SETS = POLARITY | {"subjectivity": ("subjectivity", (2000, 300, 1000)), "clinc150": ("clinc150", (1500, 300, 1000))}
#: A run: the task that comes first, and those that are trained at once after it.
RUNS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    **{f"{name} alone": (None, (name,)) for name in SETS},
    **{f"{name} with both": (None, (name, "subjectivity", "clinc150")) for name in POLARITY},
    **{f"{name} after subjectivity": ("subjectivity", (name,)) for name in POLARITY},
}


def main() -> None:
    """Run what the ledger lacks, then print the table."""
    parser = argparse.ArgumentParser(description="Several tasks at once and one after another, against each alone.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", type=Path, help="the folder of a pre-trained network")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--table", action="store_true", help="print the table of the ledger and do nothing else")
    chosen = parser.parse_args()
    ledger = Ledger(RESULTS / "together.jsonl")
    if not chosen.table:
        for seed in SEEDS:
            for name in RUNS:
                run(name, seed, chosen.model, chosen.data, chosen.work, ledger)
    print("\n".join(table(ledger)))


def run(name: str, seed: int, model: Path, data: Path, work: Path, ledger: Ledger) -> None:
    """Fine-tune once and measure on the test rows of every task, unless the ledger has it."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.checkpoint.several import LabelledFiles
    from cloze.runs.finetuning.finetune import finetune
    from cloze.tasks import load_tuned
    from cloze.tasks.evaluation import evaluate

    wanted = {"run": name, "model": model.name, "seed": seed}
    if ledger.has(wanted):
        return
    first, together = RUNS[name]
    files = {one: files_of(one, data, work) for one in (*together, *filter(None, [first]))}
    tasks = {
        one.replace("-", "_"): LabelledFiles("sentence_classification", (files[one][0],), (files[one][1],)) for one in together
    }
    out = work / f"out-{os.getpid()}"
    shutil.rmtree(out, ignore_errors=True)
    before = None if first is None else LabelledFiles("sentence_classification", (files[first][0],), (files[first][1],))
    made = finetune(model, out=out, tasks=tasks, first=before, seeds=(seed,), device="cpu", report=lambda line: None)
    found = {}
    for one in together:
        name_of_task = one.replace("-", "_") if len(together) > 1 else None
        learner, described = load_tuned(load_checkpoint(made.folder, "cpu"), name=name_of_task)
        evaluation = evaluate(learner, learner.task.read(files[one][2]), constant_answer=described.get("constant_answer"))
        found[one] = evaluation.metrics["accuracy"]
    ledger.add(wanted, {"test": found})
    shutil.rmtree(out)
    print(name, seed, found, flush=True)


def files_of(name: str, data: Path, work: Path) -> tuple[str, str, str]:
    """The files of a set's training, dev and test rows."""
    kind, rows = SETS[name]
    train, dev, test = task_files.write(kind, rows, data, work / name)
    return str(train), str(dev), str(test)


def table(ledger: Ledger) -> Iterator[str]:
    """Mean and deviation of the accuracy on test rows over the seeds."""
    yield "| task | alone | with the two others | after subjectivity | seeds |"
    yield "|---|---|---|---|---|"
    for task in SETS:
        columns = [shown(ledger, f"{task} alone", task)]
        if task in POLARITY:
            columns += [shown(ledger, f"{task} with both", task), shown(ledger, f"{task} after subjectivity", task)]
        else:
            columns += ["; ".join(shown(ledger, f"{one} with both", task) for one in POLARITY), "–"]
        seeds = len(ledger.results(run=f"{task} alone"))
        yield f"| {task} | {' | '.join(columns)} | {seeds} |"


def shown(ledger: Ledger, run: str, task: str) -> str:
    """Mean ± standard deviation of a task in a run."""
    values: list[Any] = [one["test"][task] for one in ledger.results(run=run)]
    if not values:
        return "–"
    return f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
