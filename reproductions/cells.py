"""What the scripts with many cells share: fine-tuning a cell, means with their spread, and cells in processes of their own."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

Files = tuple[str, str, str]  # of training, dev and test rows


def parser(doc: str | None, folder: str, cell: str) -> argparse.ArgumentParser:
    """The options of every script with cells; `folder` is the default of --work, `cell` how --only names a cell."""
    options = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    options.add_argument("--data", type=Path, default=Path("../shared/data"))
    options.add_argument("--work", type=Path, default=Path(folder))
    options.add_argument("--jobs", type=int, default=1, help="how many cells run at once")
    options.add_argument("--only", default="", help=f"{cell}, as the jobs are started")
    options.add_argument("--table", action="store_true", help="run nothing")
    return options


def tuned(
    start: Path, files: Files, seed: int, out: Path, *, more: Callable[[Path], Mapping[str, Any]] = lambda folder: {},
    **options: Any,
) -> dict[str, Any]:
    """Fine-tune in the new folder `out`, and measure the epoch that is best on the dev rows on the test rows.

    `more` measures the folder in another way. `options` are those of `finetune`.
    """
    from cloze.runs.finetuning.finetune import finetune
    from cloze.runs.finetuning.measure_result import measure_on_files

    train, dev, test = files
    shutil.rmtree(out, ignore_errors=True)
    made = finetune(start, train=[train], dev=[dev], out=out, seeds=(seed,), device="cpu", report=lambda line: None, **options)
    if not made.task_json:
        raise SystemExit(f"{out}: stopped by a signal. Run the same command again.")
    found = measure_on_files(made, [test], "test").task_json
    return {"dev": found["dev"], "test": found["test"], "epoch": found["evaluation"], **more(made.folder)}


def shown(values: Sequence[float], seeds: int, digits: int = 3) -> str:
    """Mean ± standard deviation, and the number of seeds if some are missing."""
    if not values:
        return "–"
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}" + (f" ({len(values)})" if len(values) < seeds else "")


def difference(first: Mapping[int, float], second: Mapping[int, float], seeds: int, digits: int = 3) -> str:
    """Mean ± standard deviation of `first` minus `second`, paired by seed, and the number of pairs if some are missing.

    Bold if a t test over the pairs tells the mean from 0 at the level of .05.
    """
    from cloze.comparison.statistics import quantile

    gaps = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
    if len(gaps) < 2:
        return "–"
    spread = stdev(gaps)
    text = f"{mean(gaps):+.{digits}f} ± {spread:.{digits}f}" + (f" ({len(gaps)})" if len(gaps) < seeds else "")
    return f"**{text}**" if abs(mean(gaps)) * len(gaps) ** 0.5 > quantile(0.975, len(gaps) - 1) * spread else text


def share(waiting: list[str], jobs: int) -> None:
    """Run every cell in a process of its own, `jobs` at once. A cell that fails does not stop the others."""
    running: list[subprocess.Popen[bytes]] = []
    failed = 0
    while waiting or running:
        failed += sum(job.poll() not in (None, 0) for job in running)
        running = [job for job in running if job.poll() is None]
        while waiting and len(running) < jobs:
            running.append(subprocess.Popen([sys.executable, *sys.argv, "--only", waiting.pop(0)]))
        time.sleep(0.2)
    if failed:
        print(f"{failed} cells failed: see above. Run the same command again for them.", file=sys.stderr)
