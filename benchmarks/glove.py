"""Counting co-occurrences and training GloVe: words and cells per second, of the wall and of the processor, and peak memory.

    python benchmarks/glove.py [--words 17000000] [--text FILE] [--passes 3] [--threads 2]

Without a text the words are drawn from Zipf's law, which has more distinct pairs than text. `--stanford FOLDER` names a folder
with the compiled programs of stanfordnlp/GloVe (cooccur, shuffle, glove), which then run on the same words in turn with ours.
Every measurement is the median of `--repeat` interleaved runs; each checks what it made.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import write_results

from cloze.corpus import Cooccurrences, Store
from cloze.corpus.cells import CellPlan, Cells
from cloze.corpus.cooccurrences import count_cells
from cloze.corpus.writer import StoreWriter
from cloze.training.cell_engine import _jobs
from cloze.training.kernels.glove import glove

ROLES = {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3}
RADIUS, WIDTH = 15, 50


def main() -> None:
    """Count, train, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=17_000_000)
    parser.add_argument("--vocabulary", type=int, default=60_000)
    parser.add_argument("--text", type=Path, help="words between spaces, one document a line")
    parser.add_argument("--memory", type=int, default=2048, help="megabytes for counting")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--stanford", type=Path)
    parser.add_argument("--dry", action="store_true", help="write no results")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cloze-glove-") as name:
        folder = Path(name)
        store = store_of(words_of(asked, folder), folder / "store")
        records: list[dict[str, Any]] = []
        times: dict[str, list[tuple[float, float, float]]] = {}
        for turn in range(asked.repeat):
            times.setdefault("cloze count", []).append(timed_count(store, asked, folder / f"cells{turn}"))
            if asked.stanford:
                times.setdefault("stanford count", []).append(stanford_count(store, asked, folder))
        cells = Cells.open(folder / "cells0")
        assert cells is not None
        costs: list[float] = []
        for _ in range(asked.repeat):
            done, costs = timed_training(cells, asked)
            times.setdefault("cloze train", []).append(done)
            if asked.stanford:
                times.setdefault("stanford train", []).append(stanford_training(asked, folder, len(cells)))
        for what, found in times.items():
            amount = statistics.median(amount for amount, _, _ in found)
            wall, processor = (statistics.median(column) for column in list(zip(*found, strict=True))[1:])
            unit = "words" if "count" in what else "cells"
            records.append({"what": what, "threads": asked.threads, unit: int(amount), "seconds": round(wall, 2),
                            "cpu_seconds": round(processor, 2), "per_second": int(amount / wall),
                            "per_cpu_second": int(amount / max(processor, 1e-9))})
            print(records[-1])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        records.append({"what": "all", "peak_mb": peak, "cells": len(cells), "costs": " ".join(f"{c:.5f}" for c in costs)})
        print(records[-1])
    if not asked.dry:
        write_results("glove", records)


def words_of(asked: argparse.Namespace, folder: Path) -> list[np.ndarray]:
    """Documents of ids, the most frequent word first after the roles."""
    if asked.text is None:
        odds = 1 / np.arange(1, asked.vocabulary + 1) ** 1.0
        generator = np.random.default_rng(1)
        return [4 + generator.choice(asked.vocabulary, asked.words, p=odds / odds.sum())]
    lines = [line.split() for line in asked.text.read_text(encoding="utf-8").splitlines()]
    found, inverse = np.unique(np.concatenate([np.array(line) for line in lines if line]), return_inverse=True)
    counts = np.bincount(inverse)
    rank = np.empty(len(found), np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(found))
    ids = np.where(counts[inverse] >= 5, 4 + rank[inverse], 1)[: asked.words]
    borders = np.cumsum([len(line) for line in lines if line])
    return [part for part in np.split(ids, borders[borders < len(ids)]) if len(part)]


def store_of(documents: list[np.ndarray], path: Path) -> Store:
    """A store of these documents."""
    size = int(max(part.max() for part in documents)) + 1
    with StoreWriter(path, vocab_size=size, roles=ROLES, tokenizer_hash="0" * 64) as writer:
        for part in documents:
            writer.append(part, np.ones(len(part), np.bool_), np.array([len(part)]), np.ones(1, np.int64))
        return writer.finish({"odd": {}}, lambda inner: inner.mkdir())


def timed_count(store: Store, asked: argparse.Namespace, folder: Path) -> tuple[float, float, float]:
    """Words, seconds and processor seconds of counting; the mass of the matrix is checked."""
    folder.mkdir()
    wall, processor = time.perf_counter(), time.process_time()
    cells = count_cells(
        Cooccurrences(radius=RADIUS, memory=asked.memory), store, np.arange(store.documents), folder, threads=asked.threads
    )
    taken = cells.tokens, time.perf_counter() - wall, time.process_time() - processor
    if store.documents == 1:
        expected = 2 * sum((cells.tokens - d) / d for d in range(1, RADIUS + 1))
        assert abs(cells.mass / expected - 1) < 1e-4, (cells.mass, expected)
    return taken


def timed_training(cells: Cells, asked: argparse.Namespace) -> tuple[tuple[float, float, float], list[float]]:
    """Cells, seconds and processor seconds of a number of passes, and the cost of each; every cell is counted."""
    from concurrent.futures import ThreadPoolExecutor

    generator = np.random.default_rng(1)
    size, width = cells.vocab_size, asked.width
    sides = []
    for _ in range(2):
        vectors = ((generator.random((size, width)) - 0.5) / width).astype(np.float32)
        biases = ((generator.random(size) - 0.5) / width).astype(np.float32)
        sides.append((vectors, biases, np.ones((size, width), np.float32), np.ones(size, np.float32)))
    settings = np.array([10, 0.75, 0.05, 100])
    train = glove(width)
    arrays = (cells.rows, cells.columns, cells.counts)
    train(arrays, np.zeros((0, 4), np.int64), np.zeros(0, np.uint64), *sides, settings, np.zeros(2))  # compiles

    def work(job: Any) -> np.ndarray:
        totals = np.zeros(2)
        train(arrays, *job, *sides, settings, totals)
        return totals

    costs, done, batch = [], 0, 65536
    wall, processor = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(asked.threads) as pool:
        for epoch in range(asked.passes):
            plan = CellPlan.of(cells.pieces, epoch, 1, "main")
            total = 0.0
            for low in range(0, len(plan), batch):
                high = min(low + batch, len(plan))
                borders = np.linspace(low, high, asked.threads + 1).astype(np.int64)
                jobs = [_jobs(plan, int(a), int(b)) for a, b in zip(borders[:-1], borders[1:], strict=True)]
                done += sum(int((job[:, 3] - job[:, 2]).sum()) for job, _ in jobs)
                total += sum(float(t[0]) for t in pool.map(work, jobs))
            costs.append(total / len(plan))
    taken = time.perf_counter() - wall, time.process_time() - processor
    assert done == asked.passes * len(cells) and np.isfinite(costs).all() and costs == sorted(costs, reverse=True), costs
    return (done, *taken), costs


def stanford_count(store: Store, asked: argparse.Namespace, folder: Path) -> tuple[float, float, float]:
    """The same by `cooccur` and `shuffle`."""
    text, words = folder / "words.txt", folder / "vocab.txt"
    if not text.exists():
        bounds = store.document_starts
        with text.open("w") as file:
            for first, last in zip(bounds[:-1], bounds[1:], strict=True):
                file.write(" ".join(f"w{t}" for t in store.tokens[first:last] if t > 3) + "\n")
        counts = store.counts()
        words.write_text("".join(f"w{t} {counts[t]}\n" for t in np.argsort(-counts, kind="stable") if t > 3 and counts[t]))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = time.perf_counter()
    memory = asked.memory / 1024
    for program, given, made in (
        (["cooccur", "-memory", f"{memory}", "-vocab-file", str(words), "-window-size", str(RADIUS), "-verbose", "0"], text,
         "cells"),
        (["shuffle", "-memory", f"{memory}", "-verbose", "0", "-seed", "1"], folder / "cells.bin", "shuffled"),
    ):
        command = [str(asked.stanford / program[0]), *program[1:]]
        with given.open("rb") as source, (folder / f"{made}.bin").open("wb") as target:
            subprocess.run(command, stdin=source, stdout=target, stderr=subprocess.DEVNULL, check=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(len(store.tokens)), time.perf_counter() - wall, used


def stanford_training(asked: argparse.Namespace, folder: Path, cells: int) -> tuple[float, float, float]:
    """The same passes by `glove`."""
    command = [str(asked.stanford / "glove"), "-save-file", str(folder / "vectors"), "-input-file", str(folder / "shuffled.bin"),
               "-vocab-file", str(folder / "vocab.txt"), "-vector-size", str(asked.width), "-iter", str(asked.passes),
               "-threads", str(asked.threads), "-x-max", "10", "-seed", "1", "-verbose", "0"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(asked.passes * cells), time.perf_counter() - wall, used


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
