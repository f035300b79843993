"""Threads that wait for each other: training speed with as many threads as cores, alone and next to other busy processes.

    python benchmarks/waiting.py --corpus TEXT [--recipe bert] [--size tiny] [--rounds 3]

Threads of OpenMP wait for each other at the end of every operation. By default they wait busily for some milliseconds, which
costs a whole time slice of the scheduler if another process has taken the core of the thread that is waited for. `import cloze`
shortens the wait (GOMP_SPINCOUNT). This script compares it with the default, with threads that sleep at once, and with one
thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from results import write_results

WAYS = {
    "libgomp's default": {"GOMP_SPINCOUNT": "300000"},
    "cloze": {},
    "sleeping at once": {"OMP_WAIT_POLICY": "passive"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}


def speed(options: argparse.Namespace, given: dict[str, str]) -> float:
    """Real tokens per second of a short run in a process of its own."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        subprocess.run(
            [sys.executable, "-m", "cloze.cli.main", "pretrain", options.recipe, "--size", options.size, "--device", "cpu",
             "--corpus", str(options.corpus), "--budget", options.budget, "--out", str(out)],
            check=True, env=inherited | given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        log = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [line for line in log if line["event"] == "train"][-1]
    return float(last["tokens"] / last["seconds"])


def main() -> None:
    """Measure every way alone and next to others, interleaved; print and write medians."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--corpus", type=Path, required=True)
    options.add_argument("--recipe", default="bert")
    options.add_argument("--size", default="tiny")
    options.add_argument("--budget", default="100ktokens")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--others", type=int, nargs="*", default=[0, 1, 2], help="busy processes next to the run")
    said = options.parse_args()
    records = []
    for others in said.others:
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
        try:
            found: dict[str, list[float]] = {name: [] for name in WAYS}
            for _ in range(said.rounds):
                for name, given in WAYS.items():
                    found[name].append(speed(said, given))
        finally:
            for process in busy:
                process.kill()
        for name, speeds in found.items():
            records.append({
                "recipe": said.recipe, "size": said.size, "others": others, "waits": name,
                "tokens_per_second": round(median(speeds)), "lowest": round(min(speeds)), "highest": round(max(speeds)),
            })  # fmt: skip
            print(records[-1], flush=True)
    write_results("waiting", records)


if __name__ == "__main__":
    main()
