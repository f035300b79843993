"""Rows per second per core of exercises at 128 tokens, BERT's above all, by block size. One thread, no torch.

    python benchmarks/exercises.py [--feeding STEPS]

Prints the best of many short runs, since what else the machine does can only slow them, and writes
benchmarks/results/exercises_<machine>_<date>.csv. Goals (the issue that asked for them): 120,000 rows/s in blocks of 32,
300,000 in blocks of 256; floors 60,000 and 150,000.

With `--feeding` it trains instead: `pretrain bert`, 4 layers, width 256, rows of 128 tokens, batch 32, vocabulary about 8k, on
a store of Python's own documentation, on one thread, and says what share of the processor's time making the batches took, and
what each part of that. Two threads at best halve the step, which doubles the share. What is made before the first step, to count
targets for the constant predictions of the log, is `start_us`. Writes
benchmarks/results/feeding_<machine>_<date>.csv. Goal: under 1 %.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import ctypes
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from results import write_results

from cloze.exercises import Exercise, TokenFacts
from cloze.exercises.companions.answer import DecoderAnswer
from cloze.exercises.companions.pair import Pair
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.frame import Frame
from cloze.exercises.noise.corrupt import Corrupt
from cloze.exercises.noise.delete import Delete
from cloze.exercises.noise.mask import Mask
from cloze.exercises.noise.permute import Permute
from cloze.exercises.noise.rotate import Rotate
from cloze.exercises.noise.split_words import SplitWords
from cloze.exercises.permutation import Permutation
from cloze.exercises.targets.boundaries import Boundaries
from cloze.exercises.targets.predict import Predict
from cloze.rng import Draw, row_keys
from cloze.rows import Rows


def passages(count: int, wants: frozenset[str], width: int) -> Rows:
    """Passages as the source gives them, with what is wanted: full but for at most 25 tokens, sentences of 20, a distractor."""
    g = np.random.default_rng(0)
    columns = np.broadcast_to(np.arange(width, dtype=np.int32), (count, width))
    own = {
        "tokens": g.integers(5, 7900, (count, width)).astype(np.int32),
        "length": g.integers(width - 25, width + 1, count).astype(np.int32),
        "sentence": np.ascontiguousarray(columns // 20),
        "word_start": g.random((count, width)) < 0.7,
    }
    both = {**own, "target_length": np.full(count, width, np.int32), **{f"distractor.{k}": v for k, v in own.items()}}
    return Rows({name: both[name] for name in wants if name in both})


FACTS = TokenFacts(
    8000, {"[PAD]": 0, "[CLS]": 2, "[BOS]": 2, "[SEP]": 3, "[EOS]": 3, "[MASK]": 4}, np.arange(5, 7900, dtype=np.int32),
    lambda text: [], np.arange(7900, 8000, dtype=np.int32), [f"{'▁' * (i % 3 == 0)}{chr(97 + i % 26)}" for i in range(8000)],
)


def exercises() -> dict[str, list[Any]]:
    """The edits of BERT (pair, frame, mask 15 %, 80/10/10, predict) and of others, as their recipes have them."""
    def bert(unit: str) -> list[Any]:
        return [
            Pair(), Frame("[CLS] {A} [SEP] {B} [SEP]", tokenizer=FACTS), Mask(unit=unit, of="all", most=20),  # type: ignore[arg-type]
            Corrupt(tokenizer=FACTS), Predict(),
        ]

    ends = Frame("{A} [EOS]", tokenizer=FACTS)
    return {
        "bert token": bert("token"), "bert whole_word": bert("whole_word"),
        "roberta": [Frame("[CLS] {A} [SEP]", tokenizer=FACTS), Mask(of="all", rounding="stochastic", spare="none"),
                    Corrupt(tokenizer=FACTS), Predict()],
        "electra": [Pair(wrong="none", rate=0.0, single=0.1, cut="half", trim="end"),
                    Frame("[CLS] {A} [SEP] {B} [SEP]", tokenizer=FACTS), Mask(of="all"),
                    Corrupt(mask=0.85, random=0.0, keep=0.15, tokenizer=FACTS), Predict()],
        "albert": [Pair(wrong="swapped", alone="random_document"), Frame("[CLS] {A} [SEP] {B} [SEP]", tokenizer=FACTS),
                   SplitWords(tokenizer=FACTS), Mask(unit="ngram", of="all"), Corrupt(tokenizer=FACTS), Predict()],
        "spanbert": [Frame("[CLS] {A} [SEP]", tokenizer=FACTS), Mask(unit="span", rounding="up"),
                     Corrupt(per="span", tokenizer=FACTS), Predict(), Boundaries(most=15)],
        "xlnet": [Frame("{A} [SEP] [CLS]", tokenizer=FACTS),
                  Mask(unit="spaced", rate=1 / 6, rounding="down", of="all", window="half"), Predict(),
                  Permutation(window="half")],
        "t5": [Mask(unit="alternating"), DecoderAnswer(what="spans", tokenizer=FACTS),
               Corrupt(infill="sentinels", mask=1.0, random=0.0, keep=0.0, tokenizer=FACTS), ends],
        "bart": [DecoderAnswer(frame="[BOS] {A} [EOS]", start="[EOS]", tokenizer=FACTS), Permute(),
                 Mask(unit="infill", rate=0.3, rounding="up"),
                 Corrupt(infill="one_mask", mask=0.9, random=0.1, keep=0.0, tokenizer=FACTS), Delete(rate=0.0), Rotate(rate=0.0),
                 Frame("[BOS] {A} [EOS]", tokenizer=FACTS)],
    }


GOALS = {("bert token", 32): 120_000, ("bert token", 256): 300_000, ("bert whole_word", 256): 100_000}


def rate(exercise: Exercise, block: int, runs: int = 500) -> float:
    """Rows per second: the best of many runs, each shorter than a turn of the scheduler."""
    rows, numbers = passages(block, exercise.wants, exercise.max_tokens), Draw(row_keys(1, "main", 0, items=np.arange(block)))
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


def clocked(holder: Any, name: str, spent: dict[str, list[float]]) -> None:
    """Have a function or method note the processor's seconds of each of its calls."""
    inner: Callable[..., Any] = getattr(holder, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.thread_time()
        try:
            return inner(*args, **kwargs)
        finally:
            spent.setdefault(name, []).append(time.thread_time() - start)
            spent.setdefault("process", []).append(time.process_time())

    setattr(holder, name, timed)


def steps_alone(spent: dict[str, list[float]]) -> list[dict[str, list[float]]]:
    """Have the training loop note the seconds of its steps, too, and forget at the first what was noted before it: batches that
    are made to count targets, and the plan of the first epoch. The list holds what was forgotten, once training has begun."""
    from cloze.training import loop

    clocked(loop.Loop, "step", spent)
    step, begun = loop.Loop.step, list[dict[str, list[float]]]()

    def first_step(*given: Any) -> None:
        if not begun:
            begun.append(dict(spent))
            spent.clear()
        step(*given)

    loop.Loop.step = first_step  # type: ignore[assignment,method-assign]
    return begun


def feeding(steps: int) -> None:
    """Train, and print what share of the processor's time of the steps went into their batches."""
    from train_cpu import BATCH, HEADS, LAYERS, LENGTH, WIDTH, prepare

    from cloze.batching import Data, Feed, data
    from cloze.corpus.sources.passages import BoundPassages
    from cloze.runs.run import pretrain

    spent: dict[str, list[float]] = {}
    parts = {"all": (Data, "next"), "gathering": (BoundPassages, "read"), "exercise": (Exercise, "__call__"),
             "collating": (Feed, "laid_out"), "tensors": (data, "to_batch")}
    shape = {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "feed_forward.inner": 4 * WIDTH, "positions.max_length": LENGTH}
    changed = [f"network.transformer.{k}={v}" for k, v in shape.items()]
    changed += [f"schedule.1.set.length={LENGTH}", f"training.batch={BATCH}", "training.held_out=0"]
    for holder, name in parts.values():
        clocked(holder, name, spent)
    begun = steps_alone(spent)
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        pretrain("bert", corpus=Path(folder) / "store", out=Path(folder) / "run", budget=f"{steps} steps", overrides=changed,
                 device="cpu", report=lambda line: None, fit=False)
    record: dict[str, Any] = {"threads": os.environ["OMP_NUM_THREADS"], "steps": steps}
    record |= {"start_us": round(sum(begun[0]["next"]) * 1e6), "step_us": round(sum(spent["step"]) / steps * 1e6)}
    record |= {f"{label}_us": round(sum(spent[name]) / steps * 1e6) for label, (_, name) in parts.items()}
    record["share"] = round(sum(spent["next"]) / sum(spent["step"]), 6)
    print(json.dumps(record))
    write_results("feeding", [record])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--feeding", type=int, metavar="STEPS", help="train so long and say what share feeding takes")
    asked = parser.parse_args()
    keep_memory()
    if asked.feeding:
        feeding(asked.feeding)
        return
    records = []
    for name, edits in exercises().items():
        exercise = Exercise([PlacedEdit(edit) for edit in edits], 128)
        for block in (1, 32, 256, 1024):
            measured, goal = rate(exercise, block), GOALS.get((name, block))
            records.append({"exercise": name, "block": block, "rows_per_second": round(measured), "goal": goal or ""})
            print(f"{name:>15}  block {block:>5}: {measured:>10,.0f} rows/s per core" + (f"  (goal {goal:,})" if goal else ""))
    write_results("exercises", records)


if __name__ == "__main__":
    main()
