"""A sweep with rungs against the full grid: the loss that it finds and what it spends; killed and resumed; elsewhere by Ray.

    python benchmarks/halving.py --corpus TEXT [--budget 1Mtokens] [--kills 2] [--ray]

The full grid runs in the folder of the sweep and finishes its paused runs, so every trial is trained once. `--ray` repeats the
sweep as tasks of a local Ray and compares the ranking.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from results import device_name, write_results

VARY = ("training.rate.peak=log:1e-4..3e-2", "training.batch=8,16")


def command(options: argparse.Namespace, out: Path, *more: str) -> list[str]:
    """The sweep as a person would type it."""
    return [
        sys.executable, "-m", "cloze.cli.main", "sweep", options.recipe, "--size", "tiny", "--corpus", str(options.corpus),
        "--budget", options.budget, "--trials", str(options.trials), "--search", "grid", "--keep", "1/3", "--device", "cpu",
        "--out", str(out), *(word for axis in VARY for word in ("--vary", axis)), *more,
    ]


def swept(options: argparse.Namespace, out: Path, *more: str) -> dict[str, Any]:
    """The finding of a sweep that is run to its end."""
    subprocess.run(command(options, out, *more), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return dict(json.loads((out / "sweep.json").read_text(encoding="utf-8")))


def killed(options: argparse.Namespace, out: Path, *more: str) -> int:
    """Kill the sweep and its cells with SIGKILL at random moments; how many cells were finished at the last one."""
    chance = random.Random(7)
    for _ in range(options.kills):
        run = subprocess.Popen(
            command(options, out, *more), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(chance.uniform(0.5, 1.5) * options.seconds)
        if run.poll() is None:
            os.kill(run.pid, signal.SIGKILL)
        run.wait()
        time.sleep(3)  # its cells see that their parent is gone, and end with a checkpoint
    return len(list(out.glob("cells/*/result*.json")))


def ranking(finding: dict[str, Any]) -> list[int]:
    """The numbers of the trials, the best first."""
    return [one["number"] for one in finding["trials"]]


def main() -> None:
    """The sweep with kills, then the full grid in its folder, then the sweep on Ray."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--recipe", default="gpt2")
    parser.add_argument("--budget", default="1Mtokens")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--rungs", default="0.1,0.3,1")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40.0, help="how long a sweep runs until it is killed, on average")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--work", type=Path, default=Path("runs/halving"))
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    out, rungs = options.work / "sweep", ("--rungs", options.rungs)
    cells = killed(options, out, *rungs)
    print(f"killed {options.kills} times, {cells} cells were finished", flush=True)
    halved = swept(options, out, *rungs)
    print(json.dumps({"sweep": halved["answer"]}), flush=True)
    first = halved["trials"][0]
    records = [{
        "what": "sweep", "trial": first["number"], "loss": first["losses"][-1], "flops": halved["flops"], "killed": options.kills,
    }]  # fmt: skip
    if options.ray:
        other = swept(options, options.work / "ray", *rungs, "--on", "ray", "--jobs", "2")
        same = ranking(other) == ranking(halved)
        equal = [one["losses"] for one in other["trials"]] == [one["losses"] for one in halved["trials"]]
        print(f"Ray: the same ranking: {same}; equal losses: {equal}", flush=True)
        records.append({**records[0], "what": "sweep on Ray", "killed": 0, "same ranking": same, "equal losses": equal})
    full = swept(options, out, "--rungs", "1")
    best, found = full["trials"][0], halved["trials"][0]
    records.append({"what": "full grid", "trial": best["number"], "loss": best["losses"][-1], "flops": full["flops"]})
    print(f"full grid: {full['answer']}")
    loss = found["losses"][-1] / best["losses"][-1] - 1
    print(f"{device_name()}: {options.trials} trials, {options.rungs}: {loss:+.2%} of the loss, "
          f"{halved['flops'] / full['flops']:.1%} of the FLOPs")  # fmt: skip
    for record in records:
        record |= {"recipe": options.recipe, "budget": options.budget, "rungs": options.rungs, "trials": options.trials}
    write_results("halving", records)


if __name__ == "__main__":
    main()
