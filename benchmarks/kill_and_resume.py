"""Kill -9 a run at random moments, resume it each time, and compare its weights with an uninterrupted run's, bit for bit.

    python benchmarks/kill_and_resume.py --corpus STORE_OR_TEXT [--kills 10] [--recipe bert] [--packing]
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from results import device_name


def command(out: Path, options: argparse.Namespace) -> list[str]:
    """The run as a person would type it; frequent checkpoints so that kills fall into the writing of them too."""
    settings = ["training.batch=16", "training.checkpoint_every=7", f"training.workers={options.workers}"]
    settings += ["schedule[0].set.length=48", "schedule[1].set.length=80"] if options.recipe == "bert" else []
    settings += ["training.packing=true"] if options.packing else []
    return [
        sys.executable, "-m", "cloze.cli.main", "pretrain", options.recipe, "--size", "tiny", "--corpus", str(options.corpus),
        "--budget", f"{options.steps}steps", "--seed", "5", "--device", "cpu", "--out", str(out),
        *(word for setting in settings for word in ("--set", setting)),
    ]


def weights(out: Path) -> str:
    """The checksum of the final parameters and of the optimizer's state."""
    last = sorted((out / "cloze" / "checkpoints").glob("step-*"))[-1]
    digest = hashlib.sha256()
    for name in ("parameters", "optimizer"):
        digest.update((last / "state" / f"{name}.safetensors").read_bytes())
    return f"{last.name} {digest.hexdigest()[:24]}"


def main() -> None:
    """Run straight through once, then with kills."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--recipe", default="bert")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--packing", action="store_true")
    parser.add_argument("--work", type=Path, default=Path("runs/kill_and_resume"))
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    straight, broken = options.work / "straight", options.work / "broken"
    started = time.time()
    subprocess.run(command(straight, options), check=True, stderr=subprocess.DEVNULL)
    whole = time.time() - started
    chance, kills, moments = random.Random(11), 0, []
    while kills < options.kills:
        run = subprocess.Popen(command(broken, options), stderr=subprocess.DEVNULL)
        try:
            run.wait(timeout=chance.uniform(0.25 * whole, 0.25 * whole + 1.5 * whole / options.kills))
            break  # it finished before the next kill
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
            run.wait()
            kills += 1
            log = broken / "cloze" / "log.jsonl"
            moments.append(log.read_text().count('"train"') if log.exists() else 0)
    subprocess.run(command(broken, options), check=True, stderr=subprocess.DEVNULL)
    first, second = weights(straight), weights(broken)
    print(f"{device_name()}: {options.recipe}, {options.steps} steps, packing {options.packing}, {options.workers} workers")
    print(f"killed {kills} times, after {moments} logged events; uninterrupted {first}; resumed {second}")
    print("identical bit for bit" if first == second else "DIFFERENT")
    sys.exit(first != second)


if __name__ == "__main__":
    main()
