"""Rows per second per core of the BERT exercise at 128 tokens, by block size. One thread, no torch.

    python benchmarks/exercises.py

Prints the best of many short runs, since what else the machine does can only slow them, and writes
benchmarks/results/exercises_<machine>_<date>.csv. Goals (the issue that asked for them): 120,000 rows/s in blocks of 32,
300,000 in blocks of 256; floors 60,000 and 150,000.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import ctypes
import time

import numpy as np
from results import write_results

from cloze.exercises import Exercise, TokenFacts
from cloze.exercises.corrupt import Corrupt
from cloze.exercises.exercise import Placed
from cloze.exercises.frame import Frame
from cloze.exercises.mask import Mask
from cloze.exercises.pair import Pair
from cloze.exercises.predict import Predict
from cloze.rng import Draw, row_keys
from cloze.rows import Rows


def passages(count: int, wants: frozenset[str], width: int = 125) -> Rows:
    """Passages as the source gives them, with what is wanted: 100…125 tokens in sentences of about 20, each with a distractor."""
    g = np.random.default_rng(0)
    columns = np.broadcast_to(np.arange(width, dtype=np.int32), (count, width))
    own = {
        "tokens": g.integers(5, 8000, (count, width)).astype(np.int32),
        "length": g.integers(100, width + 1, count).astype(np.int32),
        "sentence": np.ascontiguousarray(columns // 20),
        "word_start": g.random((count, width)) < 0.7,
    }
    both = {**own, **{f"distractor.{k}": v for k, v in own.items()}}
    return Rows({name: both[name] for name in wants})


def bert(unit: str) -> Exercise:
    """BERT's exercise: pair, frame, mask 15 %, 80/10/10, predict."""
    facts = TokenFacts(
        8000, {"[CLS]": 2, "[SEP]": 3, "[MASK]": 4}, np.arange(5, 8000, dtype=np.int32), lambda text: []
    )
    edits = [
        Pair(), Frame("[CLS] {A} [SEP] {B} [SEP]", tokenizer=facts), Mask(unit=unit, of="all", most=20),  # type: ignore[arg-type]
        Corrupt(tokenizer=facts), Predict(),
    ]
    return Exercise([Placed(edit) for edit in edits], 128)


def rate(exercise: Exercise, block: int, runs: int = 500) -> float:
    """Rows per second: the best of many runs, each shorter than a turn of the scheduler."""
    rows, numbers = passages(block, exercise.wants), Draw(row_keys(1, "main", 0, items=np.arange(block)))
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        exercise(rows, numbers)
        best = min(best, time.perf_counter() - start)
    return block / best


def keep_memory() -> None:
    """Have glibc keep freed memory, as a training run does (`training.hardware.keep_memory`)."""
    library = ctypes.CDLL(None)
    for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        library.mallopt(option, 1 << 30)


def main() -> None:
    """Measure and print."""
    keep_memory()
    records = []
    for unit, goals in (("token", {32: 120_000, 256: 300_000}), ("whole_word", {256: 100_000})):
        for block in (1, 32, 256, 1024):
            measured = rate(bert(unit), block)
            records.append({"exercise": f"bert {unit}", "block": block, "rows_per_second": round(measured),
                            "goal": goals.get(block, "")})
            print(f"bert {unit:>10}  block {block:>5}: {measured:>10,.0f} rows/s per core"
                  + (f"  (goal {goals[block]:,})" if block in goals else ""))
    write_results("exercises", records)


if __name__ == "__main__":
    main()
