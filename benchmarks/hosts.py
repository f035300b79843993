"""Two hosts simulated on one machine: 2 x 2 processes, a folder for each host, meeting through torchrun.

    python benchmarks/hosts.py --corpus STORE [--size mini] [--steps 60] [--strategy ddp]

Measures: the losses against those of one process; a run of which one process is killed, started again by torchrun and compared
bit for bit; the memory that gathering the state takes on each rank; how long saving stalls the loop, and how long writing takes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from results import device_name, write_results


def words(options: argparse.Namespace, out: Path) -> list[str]:
    """What each process runs: this file as a worker, which measures itself."""
    return [
        str(Path(__file__).resolve()), "--corpus", str(options.corpus), "--size", options.size, "--steps", str(options.steps),
        "--strategy", options.strategy, "--worker", str(out),
    ]  # fmt: skip


def worker(options: argparse.Namespace) -> None:
    """One process of the run: `cloze pretrain`, with the memory and the time of saving written next to the run."""
    from cloze.runs.run import pretrain
    from cloze.training.checkpoints.checkpoint import Checkpoints
    from cloze.training.forecasting.memory import resident
    from cloze.training.saving import Saver

    rank, times = int(os.environ.get("RANK", "0")), {"stall": 0.0, "write": 0.0, "gathered": 0.0, "saves": 0}
    save, write = Saver.save, Checkpoints.save

    def timed_save(self: Any, *given: Any, background: bool, **named: Any) -> None:
        self.finish()  # a write of the one before is not part of the stall of this one
        before, start = resident(), time.perf_counter()
        save(self, *given, background=background, **named)
        if background:
            times["stall"] += time.perf_counter() - start
            times["gathered"] = max(times["gathered"], resident() - before)
            times["saves"] += 1

    def timed_write(self: Any, state: Any, **named: Any) -> Path:
        start = time.perf_counter()
        path = write(self, state, **named)
        if 0 < state["step"] < options.steps:
            times["write"] += time.perf_counter() - start
        return path

    Saver.save, Checkpoints.save = timed_save, timed_write  # type: ignore[method-assign]
    pid = options.worker.parent / f"{options.worker.name}.{rank}.pid"
    pid.parent.mkdir(parents=True, exist_ok=True)
    pid.write_text(str(os.getpid()), encoding="utf-8")
    pretrain(
        "gpt2", corpus=str(options.corpus), out=options.worker, budget=f"{options.steps}steps", size=options.size, seed=3,
        device="cpu", strategy=options.strategy, fit=False, report=lambda text: None,
        overrides=[
            "training.batch=8", "training.precision=fp32", "length=64", "training.log_every=5", "training.micro_batch=2",
            f"training.checkpoint_every={options.steps // 4}",
        ],
    )  # fmt: skip
    target = options.worker.parent / f"{options.worker.name}.{rank}.json"
    target.write_text(json.dumps(times), encoding="utf-8")


def hosts(options: argparse.Namespace, name: str, *, kill: bool = False) -> Path:
    """A run on two simulated hosts; the folder of the first one."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    agents = []
    for host in range(2):
        out = options.work / f"host{host}" / name
        agents.append(subprocess.Popen([
            sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d",
            "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", name, "--max-restarts", "9", *words(options, out),
        ], stdout=subprocess.DEVNULL, stderr=(options.work / f"{name}{host}.txt").open("w")))  # fmt: skip
    if kill:
        while not list(options.work.glob(f"host*/{name}/cloze/checkpoints/step-{options.steps // 2:08d}")):
            time.sleep(0.2)
            if any(agent.poll() for agent in agents):
                sys.exit(f"{name}: ended before it was killed")
        victims = sorted((options.work / "host1").glob(f"{name}.*.pid"))
        os.kill(int(victims[0].read_text()), signal.SIGKILL)
    if any(agent.wait() for agent in agents):
        sys.exit(f"{name}: failed; see {options.work}/{name}0.txt")
    return next(options.work.glob(f"host*/{name}/cloze/checkpoints")).parent.parent


def losses(run: Path) -> list[float]:
    """The training losses of a run."""
    records = map(json.loads, (run / "cloze" / "log.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["event"] == "train"]


def digest(run: Path) -> str:
    """A checksum of the last parameters and moments."""
    last = sorted((run / "cloze/checkpoints").glob("step-*"))[-1] / "state"
    files = [last / "parameters.safetensors", last / "optimizer.safetensors"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def main() -> None:
    """One process, then two hosts, then two hosts of which one loses a process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--size", default="mini")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--work", type=Path, default=Path("runs/hosts"))
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        worker(options)
        return
    options.work = options.work.resolve()
    options.corpus = options.corpus.resolve()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    subprocess.run([sys.executable, *words(options, options.work / "alone")], check=True)
    whole = hosts(options, "whole")
    killed = hosts(options, "killed", kill=True)
    alone, together = losses(options.work / "alone"), losses(whole)
    apart = max(abs(a - b) / a for a, b in zip(alone, together, strict=True))
    last = sorted((whole / "cloze/checkpoints").glob("step-*"))[-1]
    state = sum(file.stat().st_size for file in last.glob("state/*.safetensors"))
    records = []
    for file in sorted(options.work.glob("host*/whole.*.json")):
        times = json.loads(file.read_text())
        records.append({
            "rank": file.name.split(".")[1], "host": file.parent.name, "state MB": round(state / 1e6, 1),
            "grown by gathering MB": round(times["gathered"] / 1e6, 1), "saves": times["saves"],
            "stall s": round(times["stall"], 4), "write s": round(times["write"], 4), "strategy": options.strategy,
            "largest relative difference to one process": apart, "killed and restarted": digest(killed) == digest(whole),
        })  # fmt: skip
        print(records[-1])
    seen = sorted({path.parent.parent.parent.name for path in options.work.glob("host*/*/cloze/checkpoints")})
    print(f"{device_name()}: hosts with checkpoints: {', '.join(seen)}")
    write_results("hosts", records)


if __name__ == "__main__":
    main()
