"""Text built as shards in every way that cloze has, and killed: the same checksums, little work lost, and megabytes per second.

    python benchmarks/shard_building.py --text TEXT … --tokenizer FOLDER [--mb 200] [--shards 32] [--kills 5] [--on ray dask]

The text is repeated up to `--mb` megabytes and cut into files of ten. It is built as one store, as shards by processes of this
machine, by four `--part` calls, and with `--on` by a local Ray and a local Dask (extras `ray` and `dask`). Then a build is killed
with SIGKILL after random times and started again: a shard that was finished must not be built again. Sides take turns where they
are timed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from results import write_results

PORT = 8796  # of the local Dask


def pieces(texts: Sequence[Path], folder: Path, megabytes: int) -> float:
    """Write the text as files of ten megabytes; how many megabytes they have."""
    whole = b"\n\n".join(path.read_bytes() for path in texts)
    documents = [one for one in whole.split(b"</doc>\n") if one.strip()] if b"</doc>\n" in whole else [whole]
    end = b"</doc>\n" if b"</doc>\n" in whole else b"\n\n"
    folder.mkdir(parents=True)
    size, number = 0, 0
    held: list[bytes] = []
    while size < megabytes * 1e6:
        for document in documents:
            held.append(document + end)
            if sum(map(len, held[-1:])) + size >= (number + 1) * 10e6:
                (folder / f"{number:04d}.txt").write_bytes(b"".join(held))
                held, number = [], number + 1
            size += len(document) + len(end)
            if size >= megabytes * 1e6:
                break
    if held:
        (folder / f"{number:04d}.txt").write_bytes(b"".join(held))
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


def cloze(*words: object) -> list[str]:
    """A command of cloze."""
    return [sys.executable, "-m", "cloze", *map(str, words)]


def timed(command: Sequence[str]) -> float:
    """Its seconds. A command that fails ends the benchmark with what it said."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return time.perf_counter() - start


def checksums(store: Path) -> str:
    """A digest of the checksums of all shards, in their order."""
    found = [shard["sha256"] for shard in json.loads((store / "store.json").read_text())["shards"]]
    return hashlib.sha256("".join(found).encode()).hexdigest()[:16]


def finished(store: Path) -> dict[str, float]:
    """The shards that are finished, and when they were."""
    return {path.parent.name: path.stat().st_mtime for path in (store / "shards").glob("*/store.json")}


@contextmanager
def dask(processes: int) -> Iterator[None]:
    """A scheduler and its workers."""
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", str(PORT), "--no-dashboard"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    workers = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", f"127.0.0.1:{PORT}", "--nworkers", str(processes), "--nthreads",
         "1", "--no-dashboard"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(5)
    try:
        yield
    finally:
        workers.terminate()
        scheduler.terminate()


def killed(command: Sequence[str], store: Path, kills: int, seconds: float) -> int:
    """Kill the build that many times, then let it end; how many shards were built twice at the most for one kill."""
    chance, worst = random.Random(7), 0
    for _ in range(kills):
        build = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(seconds * chance.uniform(0.3, 0.6))
        before = finished(store)
        subprocess.run(["pkill", "-KILL", "-s", str(build.pid)], check=False)
        build.send_signal(signal.SIGKILL)
        build.wait()
        time.sleep(0.5)
        worst = max(worst, sum(finished(store).get(name) != when for name, when in before.items()))
    kept = finished(store)
    timed(command)
    after = finished(store)
    return max(worst, sum(after[name] != when for name, when in kept.items()))


def main() -> None:
    """Every way, then the kills."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", nargs="+", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/shard_building"))
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--shards", type=int, default=32)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--on", nargs="*", default=[], choices=["ray", "dask"])
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    text, work = options.work / "text", options.work
    size = pieces(options.text, text, options.mb)
    build = cloze("corpus", "build", text, "--tokenizer", options.tokenizer, "--quiet")
    timed([*build, "--out", str(work / "one")])
    tokens = json.loads((work / "one" / "store.json").read_text())["tokens"]
    shard = ["--shard", str(-(-tokens // options.shards))]
    seconds: dict[str, list[float]] = {"one store": [], "shards": []}
    for number in range(options.rounds):
        seconds["one store"].append(timed([*build, "--out", str(work / f"one-{number}")]))
        seconds["shards"].append(timed([*build, *shard, "--out", str(work / f"shards-{number}")]))
    found = {"processes": checksums(work / "shards-0"), "processes again": checksums(work / f"shards-{options.rounds - 1}")}
    start = time.perf_counter()
    for part in range(1, 5):
        timed([*build, *shard, "--part", f"{part}/4", "--out", str(work / "parts")])
    timed(cloze("corpus", "join", work / "parts"))
    seconds["four --part calls"] = [time.perf_counter() - start]
    found["four --part calls"] = checksums(work / "parts")
    if "ray" in options.on:
        seconds["ray"] = [timed([*build, *shard, "--on", "ray", "--out", str(work / "ray")])]
        found["ray"] = checksums(work / "ray")
    if "dask" in options.on:
        with dask(2):
            seconds["dask"] = [timed([*build, *shard, "--on", f"dask://127.0.0.1:{PORT}", "--out", str(work / "dask")])]
        found["dask"] = checksums(work / "dask")
    lost = killed([*build, *shard, "--out", str(work / "killed")], work / "killed", options.kills, median(seconds["shards"]))
    found[f"killed {options.kills} times"] = checksums(work / "killed")
    shards = len(json.loads((work / "shards-0" / "store.json").read_text())["shards"])
    records: list[dict[str, Any]] = [
        {"way": way, "seconds": round(median(taken), 2), "MB/s": round(size / median(taken), 2), "MB": round(size),
         "shards": shards}
        for way, taken in seconds.items()
    ]
    for record in records:
        print(record)
    print(f"checksums: {found}")
    print(f"equal: {len(set(found.values())) == 1}; finished shards that a kill cost: {lost}")
    print(f"shards against one store: {median(seconds['one store']) / median(seconds['shards']):.2f}x the MB/s")
    write_results("shard_building", records)


if __name__ == "__main__":
    main()
