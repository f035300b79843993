"""Training from an S3 server on this machine that answers late: the same log, the rows per second, the cache's bound, and faults.

    python benchmarks/object_store.py --store STORE [--steps 600] [--latency 20] [--cache 1500KB] [--rounds 2]

STORE has several small shards (`cloze corpus build --shard 32K`), so that a run reads many of them. Needs the extra `cloud`, and
moto with its server (`pip install 'moto[server]' s3fs`). Each request waits `--latency` milliseconds. Local and remote runs take
turns; the cache is empty at the start of each. Then a file of a shard that is read first is cut short, exchanged and removed on
the server, and the run that meets it is expected to explain that and to continue once the file is back. The seconds of the
processor are those of the training process without the server's; they count if other work runs on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import harmonic_mean, median
from typing import Any

from results import write_results

BUCKET, LANES = "texts", 2
FEW = 40  # steps of a run that meets a fault


def serve(port: int, latency: float) -> None:
    """An S3 server whose answers take `latency` seconds longer."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    app = DomainDispatcherApplication(create_backend_app)

    def late(environ: Any, start: Any) -> Any:
        time.sleep(latency)
        return app(environ, start)

    run_simple("127.0.0.1", port, late, threaded=True)


def train(
    store: str, out: Path, options: argparse.Namespace, cache: Path | None, steps: int
) -> tuple[subprocess.CompletedProcess[str], float]:
    """A run of BERT at size tiny, and its seconds of the processor; its log is in `out`."""
    words = [
        "pretrain", "bert", "--size", "tiny", "--corpus", store, "--budget", f"{steps}steps", "--out", str(out),
        "--seed", "3", "--as-published", "--device", "cpu", "--quiet",
    ]  # fmt: skip
    values = ["schedule[0].set.length=64", "schedule[1].set.length=64", "training.batch=8", "training.micro_batch=8"]
    for value in (*values, "training.log_every=10", "training.held_out=0", f"training.lanes={LANES}"):
        words += ["--set", value]
    limit = [] if cache is None else ["--cache", f"{cache}:{options.cache}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "cloze", *words, *limit], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def log(out: Path) -> tuple[list[float], float]:
    """The losses of a run, and its tokens per second after the first tenth: steps that wait for a shard count like all others."""
    events = map(json.loads, (out / "cloze" / "log.jsonl").read_text().splitlines())
    found = [event for event in events if event["event"] == "train"]
    return [event["loss"] for event in found], harmonic_mean([event["tokens_per_second"] for event in found[len(found) // 10 :]])


class Watch(threading.Thread):
    """Measures the most bytes that the shards in a cache take."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.most, self.ended = folder, 0, False

    def run(self) -> None:
        """Until `ended`."""
        while not self.ended:
            held = 0
            for path in self.folder.glob("*/shards/[0-9]*/*"):
                try:
                    held += path.stat().st_size
                except OSError:  # removed meanwhile
                    continue
            self.most = max(self.most, held)
            time.sleep(0.05)


def faults(files: Any, address: str, out: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """What a run says that meets a file which is cut short, wrong or missing, and whether it then ends with the same losses."""
    straight, found = out.parent / "straight", []
    done, _ = train(address, straight, options, out.parent / "cache-straight", FEW)
    assert done.returncode == 0, done.stderr
    first = min((out.parent / "cache-straight").glob("*/shards/*/tokens.bin"), key=lambda file: file.stat().st_mtime)
    victim = f"{address.removeprefix('s3://')}/shards/{first.parent.name}/tokens.bin"
    whole = files.cat_file(victim)
    for name, damaged in (("cut short", whole[: len(whole) // 2]), ("wrong", bytes(len(whole))), ("missing", None)):
        run, cache = out.parent / f"run-{name.replace(' ', '-')}", out.parent / f"cache-{name.replace(' ', '-')}"
        if damaged is None:
            files.rm_file(victim)
        else:
            files.pipe_file(victim, damaged)
        failed, _ = train(address, run, options, cache, FEW)
        files.pipe_file(victim, whole)
        again, _ = train(address, run, options, cache, FEW)
        found.append({
            "fault": name, "exit code": failed.returncode, "said": failed.stderr.strip()[:300], "then": again.returncode,
            "same losses": again.returncode == 0 and log(run)[0] == log(straight)[0],
        })  # fmt: skip
    return found


def main() -> None:
    """Local and remote runs in turn, then the faults."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/object_store"))
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--latency", type=float, default=20, help="milliseconds")
    parser.add_argument("--cache", default="1500KB")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--serve", type=int, help="the port of the server: its own process")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.latency / 1000)
        return
    import s3fs

    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }  # fmt: skip
    with (options.work / "server.txt").open("w") as told:
        server = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(port), "--latency", str(options.latency)], stdout=told, stderr=told
        )
    try:
        time.sleep(5)
        files = s3fs.S3FileSystem()
        files.mkdir(BUCKET)
        address = f"s3://{BUCKET}/store"
        subprocess.run([sys.executable, "-m", "cloze", "corpus", "copy", str(options.store), address], check=True)
        speeds: dict[str, list[float]] = {"local": [], "remote": []}
        spent: dict[str, list[float]] = {"local": [], "remote": []}
        losses: set[tuple[float, ...]] = set()
        most = 0
        for number in range(options.rounds):
            for side, store in (("local", str(options.store)), ("remote", address)):
                cache = options.work / f"cache-{number}" if side == "remote" else None
                watch = Watch(options.work / f"cache-{number}")
                watch.start()
                run = options.work / f"{side}-{number}"
                done, seconds = train(store, run, options, cache, options.steps)
                watch.ended = True
                watch.join()
                if done.returncode:
                    sys.exit(done.stderr)
                values, speed = log(run)
                losses.add(tuple(values))
                speeds[side].append(speed)
                spent[side].append(seconds)
                print(f"round {number}, {side}: {speed:,.0f} tokens/s, {seconds:.1f} s of the processor", flush=True)
                most = max(most, watch.most)
        records = [
            {"side": side, "tokens/s": round(median(each)), "processor seconds": round(median(spent[side]), 1),
             "most in the cache kB": round(most / 1e3) if side == "remote" else ""}
            for side, each in speeds.items()
        ]  # fmt: skip
        print(*records, sep="\n")
        ratio, more = median(speeds["remote"]) / median(speeds["local"]), median(spent["remote"]) / median(spent["local"])
        print(f"remote / local: {ratio:.3f} of the tokens/s, {more:.3f} of the seconds of the processor")
        print(f"logs equal: {len(losses) == 1}")
        for found in faults(files, address, options.work / "faults" / "x", options):
            print(found)
        write_results("object_store", records)
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
