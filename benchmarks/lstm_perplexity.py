"""What bf16 products cost an LSTM language model: held-out perplexity after one pass, against fp32, everything else the same.

    python benchmarks/lstm_perplexity.py [--size base] [--threads 2] [--seeds 1]

The text is WikiText-2's validation part (214,000 words), held out is its test part; the recipe is `awd-lstm` at its published
rate. Both runs draw the same dropouts and rows: only the products differ.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

VALUES = ["training.batch=20", "training.evaluate_every=0", "training.checkpoint_every=1000000000", "training.held_out=0"]


def main() -> None:
    """Train with both precisions and print the perplexities."""
    from results import write_results

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CLOZE_DATA", str(ROOT.parent / "shared" / "data"))))
    parser.add_argument("--recipe", default="awd-lstm")
    parser.add_argument("--size", default=None)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--words", type=int, default=0, help="train on so many words only")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--dry", action="store_true", help="write no results")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="cloze-lstm-"))
    try:
        texts = [text_of(arguments.data, part, work, arguments.words) for part in ("valid", "test")]
        runs = [(seed, precision) for seed in range(arguments.seeds) for precision in ("fp32", "bf16")]
        records = [one(arguments, seed, precision, texts, work) for seed, precision in runs]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for record in records:
        print("  ".join(f"{key} {value}" for key, value in record.items()))
    if not arguments.dry:
        print(write_results("lstm_perplexity", records))


def text_of(data: Path, part: str, work: Path, words: int) -> Path:
    """A part of WikiText-2 as a text file, a document a line."""
    found = sorted((data / "text_en_wikitext2").glob(f"*{part}*"))
    with lzma.open(found[0], "rt", encoding="utf-8") as file:
        text = file.read()
    if words and part == "valid":
        text = " ".join(text.split(" ")[:words])
    out = work / f"{part}.txt"
    out.write_text(text, encoding="utf-8")
    return out


def one(arguments: argparse.Namespace, seed: int, precision: str, texts: list[Path], work: Path) -> dict[str, Any]:
    """One run: its held-out perplexity and its speed."""
    import torch

    from cloze.assembly.run import pretrain

    torch.set_num_threads(arguments.threads)
    out = work / f"{precision}-{seed}"
    started = time.perf_counter()
    pretrain(
        arguments.recipe, corpus=texts[0], held_out=[str(texts[1])], out=out, budget="1epochs", size=arguments.size, seed=seed,
        overrides=[*VALUES, f"training.precision={precision}", *arguments.set], device="cpu", report=lambda line: None,
    )
    seconds = time.perf_counter() - started
    log = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [record for record in log if record["event"] == "held_out"][-1]
    loss = last["objectives"]["token_prediction"]
    return {"recipe": arguments.recipe, "seed": seed, "precision": precision, "words": last["tokens"],
            "perplexity": round(math.exp(loss), 3), "loss": round(loss, 5), "seconds": round(seconds, 1)}


if __name__ == "__main__":
    main()
