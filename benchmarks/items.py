"""A million regions of pictures: memory of building a store and of training on it, and what share of a step feeding takes.

    python benchmarks/items.py [--regions 100000 1000000] [--steps 32] [--size mini]

Pictures have 10 regions each, with 2,048 random numbers in half precision, boxes and classes, and two captions of 12 words.
A process of its own builds the store, another one trains `unicoder-vl` on it with batches of 32. `anonymous` is the largest
anonymous memory of a process: what is not pages of files, which the system takes back when it needs them. Feeding is processor
time of the training process inside `Data.next`, relative to that of the whole step, over all steps. What is fed before the first
step, to count the targets for the constant predictions of the log, is `start_us`. Training runs twice: with none of the features
in memory (`cold`: the first epoch), and with all of them (`warm`: later epochs, if memory has room for the file).
Results go to benchmarks/results/items_<machine>_<date>.csv. Goals: memory that does not grow with the regions, feeding under 5 %.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

EACH, WIDTH, CLASSES, WORDS = 10, 2048, 1600, 12
CHUNK = 20_000  # regions written together


def main() -> None:
    """Measure every number of regions and print."""
    from results import write_results

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--regions", nargs="+", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--size", default="mini")
    parser.add_argument("--work", type=Path, help="a folder on a disk with 10 GB; default: a temporary one")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train is not None:
        print(json.dumps(trained(arguments.train, arguments.steps, arguments.size)))
        return
    records = [record for regions in arguments.regions for record in measured(arguments, regions)]
    print(write_results("items", records))


def measured(arguments: argparse.Namespace, regions: int) -> list[dict[str, Any]]:
    """Build a store of so many regions and train on it, without and with its features in memory."""
    with tempfile.TemporaryDirectory(dir=arguments.work) as name:
        work = Path(name)
        write(work, regions // EACH)
        build = [sys.executable, "-m", "cloze", "corpus", "build", str(work / "captions.jsonl"), "--items",
                 f"regions={work / 'features.npz'}", "--recipe", "unicoder-vl", "--size", "2000", "--out", str(work / "store")]
        started = time.perf_counter()
        building, _ = watched(build)
        seconds = time.perf_counter() - started
        (work / "features.npz").unlink()
        train = [sys.executable, __file__, "--train", str(work / "store"), "--steps", str(arguments.steps), "--size",
                 arguments.size]
        records = []
        for state in ("cold", "warm"):
            put_into(state, work / "store" / "items" / "regions" / "features.bin")
            training, said = watched(train)
            records.append({
                "regions": regions, "size": arguments.size, "state": state, "build_seconds": round(seconds),
                "build_anonymous_mb": building, "train_anonymous_mb": training, **json.loads(said.splitlines()[-1]),
            })  # fmt: skip
            print(json.dumps(records[-1]), flush=True)
        shutil.rmtree(work / "store")
    return records


def put_into(state: str, path: Path) -> None:
    """Have the system forget a file, or read all of it."""
    with path.open("rb", buffering=0) as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while state == "warm" and file.read(1 << 24):
            pass


def write(work: Path, pictures: int) -> None:
    """Captions, and the items of their pictures as an `.npz`, in chunks."""
    draw = np.random.default_rng(0)
    words = ["".join(draw.choice(list("abcdefghijklmnop"), 5)) for _ in range(1500)]
    with (work / "captions.jsonl").open("w", encoding="utf-8") as file:
        for number in range(pictures):
            said = [" ".join(words[n] for n in draw.integers(len(words), size=WORDS)) for _ in range(2)]
            file.write(json.dumps({"image": str(number), "caption": said}) + "\n")
    count = pictures * EACH
    corner = draw.random((count, 2), np.float32) * 0.5
    with zipfile.ZipFile(work / "features.npz", "w") as archive:
        add(archive, "keys", np.arange(pictures).astype(str))
        add(archive, "offsets", np.arange(pictures + 1) * EACH)
        add(archive, "boxes", np.concatenate([corner, corner + 0.4], 1))
        add(archive, "class", draw.integers(CLASSES, size=count).astype(np.int32))
        with archive.open("features.npy", "w", force_zip64=True) as file:
            about = {"descr": "<f2", "fortran_order": False, "shape": (count, WIDTH)}
            np.lib.format.write_array_header_1_0(file, about)
            for rows in chunks(count):
                file.write(draw.random((rows, WIDTH), np.float32).astype(np.float16).tobytes())


def chunks(count: int) -> Iterator[int]:
    """How many regions are written together."""
    yield from [CHUNK] * (count // CHUNK) + ([count % CHUNK] if count % CHUNK else [])


def add(archive: zipfile.ZipFile, name: str, values: Any) -> None:
    """A whole array of the file."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, values)


def watched(command: list[str]) -> tuple[int, str]:
    """The largest anonymous memory of a command in MB, and what it prints."""
    from word_vectors_memory import memory_of

    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
        peak = 0
        while process.poll() is None:
            peak = max(peak, memory_of(process.pid)["Pss_Anon"])
            time.sleep(0.2)
        said.seek(0)
        text = said.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\n{text}")
    return round(peak / 1000), text


def trained(store: Path, steps: int, size: str) -> dict[str, Any]:
    """Train, and say how long a step takes and what share of it feeding has, in processor time."""
    from exercises import clocked, keep_memory, steps_alone

    from cloze.batching import Data, Feed, data
    from cloze.corpus.records.record_source import BoundRecords
    from cloze.exercises import Exercise
    from cloze.runs.run import pretrain

    keep_memory()
    spent: dict[str, list[float]] = {}
    parts = {"all": (Data, "next"), "gathering": (BoundRecords, "read"),
             "exercise": (Exercise, "__call__"), "collating": (Feed, "laid_out"), "tensors": (data, "to_batch")}
    for holder, name in parts.values():
        clocked(holder, name, spent)
    begun = steps_alone(spent)
    with tempfile.TemporaryDirectory() as folder:
        pretrain("unicoder-vl", corpus=store, out=Path(folder) / "run", budget=f"{steps} steps", size=size, device="cpu",
                 overrides=["training.batch=32", "training.held_out=0"], report=lambda line: None, fit=False)
    record: dict[str, Any] = {"steps": steps, "start_us": round(sum(begun[0]["next"]) * 1e6)}
    record["step_us"] = round(sum(spent["step"]) / steps * 1e6)
    record |= {f"{label}_us": round(sum(spent[name]) / steps * 1e6) for label, (_, name) in parts.items()}
    return {**record, "share": round(sum(spent["next"]) / sum(spent["step"]), 4)}


if __name__ == "__main__":
    main()
