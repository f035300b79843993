"""Small texts that are read many times: what dropout, masks and size are worth there.

    python benchmarks/passes.py --data DATA --work runs/passes [--tokens 6e6] [--arms as_fitted dropout]
    python benchmarks/passes.py --table

`quick` reads the sentences of a labelled set, without their labels, some twenty or thirty times: about what ten minutes of
one core make of a megabyte. A twentieth of the sentences is held out. Each arm changes one value of the recipe. Budgets are
tokens, so that other work on the machine changes nothing but the time. The curve shows whether the held-out loss rises
again. Finished runs stand in results/passes.jsonl and are not repeated: rerun the command, it resumes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import hashlib
import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweep import QUIET, RESULTS, Cell, Ledger, documents, store_of

#: What each arm changes. Every token that is not masked is read as it is, so a rate of 0.15 shows more of the text.
ARMS = {
    "as_fitted": [], "dropout": ["network.transformer.dropout=0.1"], "mask_15": ["exercise.mask.rate=0.15"],
    "mask_45": ["exercise.mask.rate=0.45"], "mini": [], "decay": ["training.optimizer.adamw.weight_decay=0.1"],
}  # fmt: skip


def polarity(data: Path) -> list[str]:
    """Sentences on films, 1.2 MB."""
    files = sorted((data / "cls_en_sentence_polarity").glob("*.xz"))
    return [line for file in files for line in lzma.open(file, "rt", encoding="latin-1").read().splitlines() if line.strip()]


def clinc150(data: Path) -> list[str]:
    """Requests to an assistant, 0.6 MB."""
    (file,) = (data / "cls_en_clinc150").glob("*.json.xz")
    parts = json.loads(lzma.decompress(file.read_bytes()))
    return [text for name in sorted(parts) for text, _ in parts[name]]


TEXTS = {"polarity": polarity, "clinc150": clinc150}


def write_text(name: str, data: Path, work: Path) -> None:
    """Write a text and its held-out part into `work`/text."""
    path = work / f"text/{name}.txt"
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    sentences = list(dict.fromkeys(TEXTS[name](data)))
    random.Random(0).shuffle(sentences)
    cut = len(sentences) // 20
    path.with_suffix(".valid.txt").write_text(documents(sentences[:cut]), encoding="utf-8")
    path.write_text(documents(sentences[cut:]), encoding="utf-8")


def run(wanted: Cell, work: Path) -> dict[str, Any] | None:
    """One run; None if a signal stopped it."""
    from cloze.runs.run import pretrain

    store = store_of("quick", wanted["text"], [], work)
    folder = work / f"runs/{hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:12]}"
    outcome = pretrain(
        "quick", corpus=str(store), out=folder, budget=f"{wanted['tokens']}tokens", size=wanted["size"], seed=wanted["seed"],
        overrides=[*QUIET, *wanted["set"]], held_out=[f"{store}.valid"], device="cpu",
        report=lambda line: print(line, flush=True),
    )
    if not outcome.finished:
        return None
    log = [json.loads(line) for line in (folder / "cloze/log.jsonl").read_text(encoding="utf-8").splitlines()]
    held_out = [record for record in log if record["event"] == "held_out"]
    return {
        "baselines": next(record["baselines"] for record in log if record.get("baselines")),
        "epochs": round(held_out[-1]["epochs"], 1), "steps": outcome.step,
        "curve": [[record["tokens"], round(record["loss"], 4)] for record in held_out],
    }  # fmt: skip


def table(ledger: Ledger) -> Iterator[str]:
    """Every run: the last held-out loss, and the lowest on the way."""
    yield "| text | arm | tokens, passes | single tokens, pairs | held-out loss | lowest | after passes |"
    yield "|---|---|---|---|---|---|---|"
    for record in ledger.results():
        baselines = record["baselines"]["token_prediction"]
        lowest = min(record["curve"], key=lambda point: point[1])
        last = record["curve"][-1]
        passes = record["epochs"] * lowest[0] / last[0]
        yield (
            f"| {record['text']} | {record['arm']} | {record['tokens'] / 1e6:g} M, {record['epochs']:.0f} | "
            f"{baselines['single']:.2f}, {baselines['pairs']:.2f} | {last[1]:.2f} | {lowest[1]:.2f} | {passes:.0f} |"
        )


def main() -> None:
    """Do the runs that the ledger lacks."""
    parser = argparse.ArgumentParser(description="Small texts that are read many times.")
    parser.add_argument("--data", type=Path, help="the folder of cls_en_sentence_polarity and cls_en_clinc150")
    parser.add_argument("--work", type=Path, help="where texts, stores and unfinished runs are kept")
    parser.add_argument("--tokens", type=float, default=6e6)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--texts", nargs="+", choices=list(TEXTS), default=list(TEXTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", action="store_true", help="print the table and do nothing else")
    chosen = parser.parse_args()
    ledger = Ledger(RESULTS / "passes.jsonl")
    if not chosen.table:
        if chosen.data is None or chosen.work is None:
            parser.error("give --data and --work")
        for arm in chosen.arms:
            for text in chosen.texts:
                write_text(text, chosen.data, chosen.work)
                wanted = {
                    "text": text, "arm": arm, "size": "mini" if arm == "mini" else "tiny", "set": ARMS[arm],
                    "tokens": int(chosen.tokens), "seed": chosen.seed,
                }  # fmt: skip
                if ledger.has(wanted):
                    continue
                result = run(wanted, chosen.work.resolve())
                if result is None:
                    raise SystemExit("Stopped by a signal. Rerun the command to resume.")
                ledger.add(wanted, result)
    print("\n".join(table(ledger)))


if __name__ == "__main__":
    main()
