"""Text built as shards in every way that cloze has, and killed: the same checksums, little work lost, and megabytes per second.

    python benchmarks/shard_building.py --text TEXT … --tokenizer FOLDER [--mb 200] [--shards 32] [--kills 5] [--workers N]
                                        [--on ray dask]

The text is cut into as many files of equal size as there are to be shards, up to `--mb` megabytes; it is repeated if it is
shorter. It is built as one store, as shards by processes of this machine, by four `--part` calls, and with `--on` by a local Ray
and a local Dask (extras `ray` and `dask`). `--workers` is the number of processes of the one store and of the shards that it is
compared with. Then a build by two processes is killed with SIGKILL after random times and started again: a shard that was
finished must not be built again. Sides take turns where they are timed. The seconds of the processor count if other work runs on
the machine; those of a Ray or Dask cluster are not known.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import lzma
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from results import write_results

PORT = 8796  # of the local Dask


def pieces(texts: Sequence[Path], folder: Path, megabytes: int, files: int) -> float:
    """Write the text as files of whole documents; how many megabytes they have."""
    documents: list[bytes] = []
    for path in texts:
        whole = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        end = b"</doc>\n" if b"</doc>\n" in whole else b"\n\n"
        documents += [one + end for one in whole.split(end) if one.strip()]
    folder.mkdir(parents=True)
    held: list[bytes] = []
    size, number = 0, 0
    for document in itertools.cycle(documents):
        held.append(document)
        size += len(document)
        if size >= megabytes * 1e6 * (number + 1) / files:
            (folder / f"{number:04d}.txt").write_bytes(b"".join(held))
            held, number = [], number + 1
        if number == files:
            return size / 1e6
    raise SystemExit("no text")


def cloze(*words: object) -> list[str]:
    """A command of cloze."""
    return [sys.executable, "-m", "cloze", *map(str, words)]


class Taken(NamedTuple):
    """Seconds of a clock, and of the processor."""

    clock: float
    processor: float


def timed(*commands: Sequence[str]) -> Taken:
    """What the commands take, one after the other. One that fails ends the benchmark with what it said."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def checksums(store: Path) -> str:
    """A digest of the checksums of all shards, in their order."""
    found = [shard["sha256"] for shard in json.loads((store / "store.json").read_text())["shards"]]
    return hashlib.sha256("".join(found).encode()).hexdigest()[:16]


def finished(store: Path) -> dict[str, float]:
    """The tasks whose shards are finished and recorded, and when they were."""
    return {path.stem: path.stat().st_mtime for path in (store / "tasks").glob("*.json")}


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


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    try:
        found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [int(one) for one in found]


def killed(command: Sequence[str], store: Path, kills: int, shards: int) -> dict[str, int]:
    """Kill the build and its processes that many times, then let it end. How often a finished shard was built again, how many
    shards were finished at each kill, and the most that were in work."""
    chance, again, most = random.Random(7), 0, 0
    seen: list[dict[str, float]] = []
    for number in range(kills):
        build = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        goal = shards * (number + 1) // (kills + 1)
        while len(finished(store)) < goal and build.poll() is None:
            time.sleep(0.02)
        time.sleep(chance.uniform(0.0, 0.5))
        for process in (*children(build.pid), build.pid):
            os.kill(process, signal.SIGKILL)
        build.wait()
        time.sleep(0.5)
        before = finished(store)
        most = max(most, sum(not path.with_suffix(".json").exists() for path in (store / "tasks").glob("*.lock")))
        again += sum(before.get(name) != when for name, when in (seen[-1] if seen else {}).items())
        seen.append(before)
    timed(command)
    after = finished(store)
    again += sum(after[name] != when for name, when in seen[-1].items())
    print(f"shards finished at the kills: {[len(one) for one in seen]} of {len(after)}")
    return {"finished shards built again": again, "shards in work at a kill, at most": most}


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
    parser.add_argument("--workers", type=int)
    parser.add_argument("--on", nargs="*", default=[], choices=["ray", "dask"])
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    text, work = options.work / "text", options.work
    size = pieces(options.text, text, options.mb, options.shards)
    print(f"{size:,.1f} MB, {options.rounds} rounds", flush=True)
    build = cloze("corpus", "build", text, "--tokenizer", options.tokenizer, "--quiet")
    workers = [] if options.workers is None else ["--workers", str(options.workers)]
    taken: dict[str, list[Taken]] = {"one store": [], "shards": []}
    shard: list[str] = []
    for number in range(options.rounds):
        taken["one store"].append(timed([*build, *workers, "--out", str(work / f"one-{number}")]))
        if not shard:
            tokens = json.loads((work / "one-0" / "store.json").read_text())["tokens"]
            shard = ["--shard", str(round(tokens / options.shards * 1.5))]  # more than a file has, and less than two
        shutil.rmtree(work / f"one-{number}")
        taken["shards"].append(timed([*build, *workers, *shard, "--out", str(work / f"shards-{number}")]))
        print({way: each[-1] for way, each in taken.items()}, flush=True)
    found = {f"processes, round {number}": checksums(work / f"shards-{number}") for number in range(options.rounds)}
    parts = [[*build, *shard, "--part", f"{part}/4", "--out", str(work / "parts")] for part in range(1, 5)]
    taken["four --part calls"] = [timed(*parts, cloze("corpus", "join", work / "parts"))]
    found["four --part calls"] = checksums(work / "parts")
    if "ray" in options.on:
        taken["ray"] = [timed([*build, *shard, "--on", "ray", "--out", str(work / "ray")])]
        found["ray"] = checksums(work / "ray")
    if "dask" in options.on:
        with dask(2):
            taken["dask"] = [timed([*build, *shard, "--on", f"dask://127.0.0.1:{PORT}", "--out", str(work / "dask")])]
        found["dask"] = checksums(work / "dask")
    shards = len(json.loads((work / "shards-0" / "store.json").read_text())["shards"])
    lost = killed([*build, *shard, "--workers", "2", "--out", str(work / "killed")], work / "killed", options.kills, shards)
    found[f"killed {options.kills} times"] = checksums(work / "killed")
    whole = [shard["tokens"] for shard in json.loads((work / "shards-0" / "store.json").read_text())["shards"]]
    records: list[dict[str, Any]] = [
        {"way": way, "seconds": round(median(one.clock for one in each), 2),
         "processor seconds": round(median(one.processor for one in each), 2) if way not in ("ray", "dask") else "",
         "MB": round(size), "shards": 1 if way == "one store" else shards}
        for way, each in taken.items()
    ]  # fmt: skip
    for record in records:
        print(record)
    print(f"{sum(whole):,} tokens, {min(whole):,} to {max(whole):,} a shard; checksums: {found}")
    print(f"equal: {len(set(found.values())) == 1}; {lost}")
    for at, kind in enumerate(Taken._fields):
        one, several = (median(each[at] for each in taken[way]) for way in ("one store", "shards"))
        print(f"shards against one store, by the {kind}: {one / several:.2f}x the MB/s")
    write_results("shard_building", records)


if __name__ == "__main__":
    main()
