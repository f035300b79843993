"""Counting co-occurrences and training GloVe: words and cells per second, of the wall and of the processor, and peak memory.

    python benchmarks/glove.py [--text FILE] [--words 17000000] [--passes 3] [--threads 2] [--peer FOLDER] [--judge DATA]

Without a text the words are drawn from Zipf's law, which has more distinct pairs than text. `--peer FOLDER` names a folder with
the compiled programs of stanfordnlp/GloVe (`build`, with cooccur, shuffle and glove), which then run on the same words in turn
with ours; of their training the time of a run of no pass, which reads words and writes vectors, is taken off. Figures are
medians of `--repeat` interleaved runs; each checks what it made. Peak memory is anonymous memory above the
level before; pages of mapped files are the system's. `--judge` compares the vectors of the last runs on word similarity and
analogies.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from results import write_results
from word_vectors_memory import memory_of
from word_vectors_quality import judge, units

from cloze.corpus import Cooccurrences, Store
from cloze.corpus.counting.cells import CellPlan, CooccurrenceCells
from cloze.corpus.counting.cooccurrences import count_cells
from cloze.corpus.stores.build import build_store, train_tokenizer_from
from cloze.corpus.stores.writer import StoreWriter
from cloze.engines.glove import _jobs
from cloze.kernels.vectors.glove import glove
from cloze.text import Normalise, TextSpec, Words

ROLES = {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3}
RATE, POWER, CLIP = 0.05, 0.75, 100
JUDGED = ("MEN-TR-3k", "WS-353-ALL", "SIMLEX-999", "RW-STANFORD", "analogies")


class Taken(NamedTuple):
    """What one run did, in how many seconds of the wall and of the processor, and the most memory, in megabytes."""

    amount: float
    wall: float
    processor: float
    peak: float


def main() -> None:
    """Count, train, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=17_000_000)
    parser.add_argument("--vocabulary", type=int, default=60_000)
    parser.add_argument("--text", type=Path, help="words between spaces, one document a line")
    parser.add_argument("--radius", type=int, default=15)
    parser.add_argument("--limit", type=float, default=10, help="x_max")
    parser.add_argument("--memory", type=int, default=2048, help="megabytes for counting")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--peer", type=Path, help="the folder of cooccur, shuffle and glove")
    parser.add_argument("--judge", type=Path, help="the folder of wordsim_en and analogy_en_google")
    parser.add_argument("--dry", action="store_true", help="write no results")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cloze-glove-") as name:
        folder = Path(name)
        store, spellings = made_store(asked, folder)
        peer = None if asked.peer is None else Peer(asked, folder, store, spellings)
        times: dict[str, list[Taken]] = {}

        def run(what: str, work: Callable[[], float]) -> None:
            times.setdefault(what, []).append(taken(work))
            print(what, times[what][-1], file=sys.stderr)

        for turn in range(asked.repeat):
            run("count, cloze", lambda: counted(store, asked, folder / f"cells{turn}"))  # noqa: B023
            if peer:
                run("count, peer", peer.count)
                run("shuffle, peer", peer.shuffle)
        cells = CooccurrenceCells.open(folder / "cells0")
        assert cells is not None
        ours = Training(cells, asked)
        for _ in range(asked.repeat):
            run("train, cloze", ours.run)
            if peer:
                run("train, peer", peer.train)
                run("no pass, peer", lambda: peer.train(0))
        records = [record(what, found, times.get("no pass, peer") if what == "train, peer" else None, asked)
                   for what, found in times.items()]
        records.append({"what": "cost, cloze", "costs": " ".join(f"{cost:.4f}" for cost in ours.costs), "amount": len(cells)})
        if peer:
            records.append({"what": "cost, peer", "costs": " ".join(f"{cost:.4f}" for cost in peer.costs), "amount": peer.cells})
        if asked.judge:
            for side, found in (("cloze", ours.vectors(spellings)), ("peer", peer.vectors() if peer else None)):
                scores = judge(asked.judge, units(*found)) if found else {}
                records += [{"what": f"{name}, {side}", "score": round(scores[name], 1)} for name in JUDGED if scores]
        for line in records:
            print("  ".join(f"{key} {value}" for key, value in line.items()))
    if not asked.dry:
        columns = {key: "" for line in records for key in line}
        print(write_results("glove", [{**columns, **line} for line in records]))


def taken(work: Callable[[], float]) -> Taken:
    """What some work takes, in this process and in those that it starts."""
    before = memory_of(os.getpid())["Pss_Anon"]
    peak, over = [before], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            peak[0] = max(peak[0], memory_of(os.getpid())["Pss_Anon"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall, processor = time.perf_counter(), spent()
    try:
        amount = work()
    finally:
        over.set()
        watcher.join()
    return Taken(amount, time.perf_counter() - wall, spent() - processor, (peak[0] - before) / 1000)


def spent() -> float:
    """Seconds of the processor so far, those of ended children too."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def record(what: str, found: list[Taken], less: list[Taken] | None, asked: argparse.Namespace) -> dict[str, Any]:
    """The medians of some runs, less those of others."""
    amount, wall, processor, peak = (statistics.median(column) for column in zip(*found, strict=True))
    if less:
        wall -= statistics.median(one.wall for one in less)
        processor -= statistics.median(one.processor for one in less)
    return {"what": what, "threads": asked.threads, "amount": int(amount), "seconds": round(wall, 2),
            "cpu_seconds": round(processor, 2), "per_second": int(amount / wall), "per_cpu_second": int(amount / processor),
            "peak_mb": round(peak)}


def made_store(asked: argparse.Namespace, folder: Path) -> tuple[Store, list[str]]:
    """The words of the text, or drawn ones, and how each is spelt."""
    if asked.text is not None:
        tokenizer = train_tokenizer_from([asked.text], TextSpec(Normalise(lower=True), Words(min_count=5, split="whitespace")))
        return build_store([asked.text], tokenizer, folder / "store", format="line"), list(tokenizer.spellings)
    odds = 1 / np.arange(1, asked.vocabulary + 1) ** 1.0
    ids = 4 + np.random.default_rng(1).choice(asked.vocabulary, asked.words, p=odds / odds.sum())
    size = 4 + asked.vocabulary
    with StoreWriter(folder / "store", vocab_size=size, roles=ROLES, tokenizer_hash="0" * 64) as writer:
        writer.append(ids, np.ones(len(ids), np.bool_), np.array([len(ids)]), np.ones(1, np.int64))
        return writer.finish({"odd": {}}, lambda inner: inner.mkdir()), [f"w{number}" for number in range(size)]


def counted(store: Store, asked: argparse.Namespace, folder: Path) -> float:
    """Count; the words. The mass of the matrix of one document is checked."""
    folder.mkdir()
    source = Cooccurrences(radius=asked.radius, memory=asked.memory)
    cells = count_cells(source, store, np.arange(store.documents), folder, threads=asked.threads)
    if store.documents == 1:
        expected = 2 * sum((cells.tokens - d) / d for d in range(1, asked.radius + 1))
        assert abs(cells.mass / expected - 1) < 1e-4, (cells.mass, expected)
    return cells.tokens


class Training:
    """Training by the compiled kernel; the vectors and the costs are those of the last run."""

    def __init__(self, cells: CooccurrenceCells, asked: argparse.Namespace) -> None:
        self.cells, self.asked = cells, asked
        self.sides: list[tuple[np.ndarray, ...]] = []
        self.costs: list[float] = []
        self.arrays = (cells.rows, cells.columns, cells.counts)
        self.kernel = glove(asked.width)
        self._begin()
        self._work((np.zeros((0, 4), np.int64), np.zeros(0, np.uint64)))  # compiles

    def run(self) -> float:
        """A number of passes; the cells. Every cell is counted, and the cost must fall."""
        self._begin()
        threads, done, batch = self.asked.threads, 0, 65536
        with ThreadPoolExecutor(threads) as pool:
            for epoch in range(self.asked.passes):
                plan = CellPlan.of(self.cells.pieces, epoch, 1, "main")
                total = 0.0
                for low in range(0, len(plan), batch):
                    borders = np.linspace(low, min(low + batch, len(plan)), threads + 1).astype(np.int64)
                    jobs = [_jobs(plan, int(a), int(b)) for a, b in zip(borders[:-1], borders[1:], strict=True)]
                    done += sum(int((job[:, 3] - job[:, 2]).sum()) for job, _ in jobs)
                    total += sum(pool.map(self._work, jobs))
                self.costs.append(total / len(plan))
        assert done == self.asked.passes * len(self.cells) and np.isfinite(self.costs).all(), self.costs
        assert self.costs == sorted(self.costs, reverse=True), self.costs
        return done

    def vectors(self, spellings: list[str]) -> tuple[list[str], np.ndarray]:
        """Words and the sums of their two vectors; roles come first and are left out."""
        return spellings[len(ROLES) :], (self.sides[0][0] + self.sides[1][0])[len(ROLES) :]

    def _begin(self) -> None:
        generator, size, width = np.random.default_rng(1), self.cells.vocab_size, self.asked.width
        self.sides, self.costs = [], []
        for _ in range(2):
            vectors = ((generator.random((size, width)) - 0.5) / width).astype(np.float32)
            biases = ((generator.random(size) - 0.5) / width).astype(np.float32)
            self.sides.append((vectors, biases, np.ones((size, width), np.float32), np.ones(size, np.float32)))

    def _work(self, job: Any) -> float:
        totals = np.zeros(2)
        self.kernel(self.arrays, *job, *self.sides, np.array([self.asked.limit, POWER, RATE, CLIP]), totals)
        return float(totals[0])


class Peer:
    """The programs of stanfordnlp/GloVe on the same words, in their own files."""

    def __init__(self, asked: argparse.Namespace, folder: Path, store: Store, spellings: list[str]) -> None:
        self.asked, self.folder = asked, folder
        self.costs: list[float] = []
        missing = [name for name in ("cooccur", "shuffle", "glove") if not (asked.peer / name).is_file()]
        if missing:
            raise SystemExit(f"--peer {asked.peer}: no {', '.join(missing)}; expected the folder `build` of stanfordnlp/GloVe.")
        counts = store.counts()
        counts[list(store.header["roles"].values())] = 0
        self.words = int(counts.sum())
        bounds = store.document_starts
        with (folder / "words.txt").open("w", encoding="utf-8") as file:
            for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                file.write(" ".join(spellings[t] for t in store.tokens[first:last].tolist() if counts[t]) + "\n")
        order = np.argsort(-counts, kind="stable")
        lines = (f"{spellings[t]} {counts[t]}\n" for t in order.tolist() if counts[t])
        (folder / "vocab.txt").write_text("".join(lines), encoding="utf-8")

    @property
    def cells(self) -> int:
        """How many cells it counted."""
        return (self.folder / "cells.bin").stat().st_size // 16

    def count(self) -> float:
        """`cooccur`; the words."""
        self._run("cooccur", "-vocab-file", "vocab.txt", "-window-size", self.asked.radius, "-memory", self.asked.memory / 1024,
                  given="words.txt", made="cells.bin")
        return self.words

    def shuffle(self) -> float:
        """`shuffle`, without which glove learns in the order of the words; the words."""
        self._run("shuffle", "-memory", self.asked.memory / 1024, "-seed", 1, given="cells.bin", made="shuffled.bin")
        return self.words

    def train(self, passes: int | None = None) -> float:
        """`glove`; the cells."""
        passes = self.asked.passes if passes is None else passes
        told = self._run(
            "glove", "-save-file", "vectors", "-input-file", "shuffled.bin", "-vocab-file", "vocab.txt", "-vector-size",
            self.asked.width, "-iter", passes, "-threads", self.asked.threads, "-x-max", self.asked.limit, "-eta", RATE,
            "-seed", 1, "-binary", 0, made="said.txt",
        )
        if passes:
            self.costs = [float(cost) for cost in re.findall(r"cost: ([\d.]+)", told)]
            assert len(self.costs) == passes, told
            (self.folder / "vectors.txt").rename(self.folder / "trained.txt")
        return passes * self.cells

    def vectors(self) -> tuple[list[str], np.ndarray]:
        """Words and their vectors."""
        rows = [line.split() for line in (self.folder / "trained.txt").read_text(encoding="utf-8").splitlines()]
        return [row[0] for row in rows[:-1]], np.array([row[1:] for row in rows[:-1]], np.float32)  # the last is <unk>

    def _run(self, program: str, *values: object, given: str | None = None, made: str) -> str:
        command = [str(self.asked.peer.resolve() / program), *map(str, values), "-verbose", "0"]
        with (self.folder / made).open("wb") as target, (self.folder / (given or "vocab.txt")).open("rb") as source:
            done = subprocess.run(command, stdin=source, stdout=target, stderr=subprocess.PIPE, check=True, cwd=self.folder)
        return done.stderr.decode(errors="replace")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
