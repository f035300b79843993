"""Word vectors after so many passes over 25 MB of text, each run a line of a ledger: what the fit of static vectors rests on.

    python benchmarks/static_sweep.py --data DATA --work runs/sweep --plan cells.jsonl

A cell is a recipe, a text (`wiki` or `zh` of benchmarks/sweep.py; Chinese in the words of jieba), a number of epochs, values that
are set, and a seed; `megabytes` takes the beginning of the text alone. Vectors are judged on five similarity sets (Spearman
times 100) and on analogies among the 30,000 most frequent words. `all` takes a pair with an unknown word as a cosine of zero and
a question with one as answered wrongly, so that vocabularies can be compared. `cpu` are seconds of the run, by one thread.

Finished cells stand in benchmarks/results/static_sweep.jsonl and are not repeated.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import lzma
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reproductions"))

from ledger import Ledger
from sweep import RESULTS, store_of
from word_vectors_quality import Vectors, analogies, ranks, units

SETS = {"MEN": "EN-MEN-TR-3k", "WS-353": "EN-WS-353-ALL", "SimLex": "EN-SIMLEX-999", "MTurk-771": "EN-MTurk-771",
        "rare words": "EN-RW-STANFORD"}
QUIET = ["training.checkpoint_every=1000000000", "training.evaluate_every=0"]


def text_of(name: str, megabytes: float, work: Path) -> str:
    """The name of a text of that size under `work/text`, made where it is missing."""
    if name == "zh" and not (work / "text/zh-words.txt").exists():
        segment(work / "text/zh.txt", work / "text/zh-words.txt")
    whole = "zh-words" if name == "zh" else name
    named = f"{whole}-{megabytes:g}" if megabytes else whole
    made = work / f"text/{named}.txt"
    if not made.exists():
        source = work / f"text/{whole}.txt"
        text = source.read_text(encoding="utf-8")
        made.write_text(text[: int(len(text) * megabytes * 1e6 / source.stat().st_size)], encoding="utf-8")
    return named


def segment(source: Path, out: Path) -> None:
    """The words of jieba, apart."""
    import jieba

    jieba.setLogLevel(60)
    with source.open(encoding="utf-8") as lines, out.open("w", encoding="utf-8") as file:
        for line in lines:
            marked = line.startswith(("<doc", "</doc"))
            file.write(line if marked else " ".join(" ".join(jieba.cut(line.strip().lower())).split()) + "\n")


def similarity(path: Path, vectors: Vectors) -> dict[str, float]:
    """Rank correlation over known pairs, over all (unknown: 0), and the share of pairs that are known."""
    number, matrix = vectors
    pairs = [line.lower().split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    scores = np.array([float(row[2]) for row in pairs])
    known = np.array([row[0] in number and row[1] in number for row in pairs])
    cosine = np.array([
        float(matrix[number[a]] @ matrix[number[b]]) if a in number and b in number else 0.0 for a, b, *_ in pairs
    ])
    return {"known": correlation(cosine[known], scores[known]), "all": correlation(cosine, scores), "share": float(known.mean())}


def correlation(one: NDArray[Any], other: NDArray[Any]) -> float:
    """100 times Spearman's."""
    return 100 * float(np.corrcoef(ranks(one), ranks(other))[0, 1]) if len(one) > 2 else 0.0


def judge(data: Path, vectors: Vectors, text: str) -> dict[str, Any]:
    """All figures of a set of vectors, and their means."""
    if text == "zh":
        sets, questions = {"wordsim-240": data / "wordsim_zh_cwe/240.txt"}, data / "wordsim_zh_cwe/analogy.txt"
    else:
        sets = {name: data / f"wordsim_en/{file}.txt" for name, file in SETS.items()}
        questions = data / "analogy_en_google/questions-words.txt.xz"
    found: dict[str, Any] = {name: similarity(path, vectors) for name, path in sets.items()}
    right, asked = analogies(questions, vectors)
    with (lzma.open if questions.suffix == ".xz" else open)(questions, "rt", encoding="utf-8") as file:
        many = sum(not line.startswith(":") for line in file)
    found["analogies"] = {"known": right, "all": right * asked / many, "share": asked / many}
    for kind in ("known", "all"):
        found[f"similarity {kind}"] = float(np.mean([found[name][kind] for name in sets]))
    return found


def run(cell: dict[str, Any], data: Path, work: Path) -> dict[str, Any]:
    """Train one cell and judge it."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.runs.run import pretrain

    values = list(cell["set"]) + (["text.tokenizer.split=whitespace"] if cell["text"] == "zh" else [])
    if not any("min_count" in value for value in values):  # not the fitted one
        values.append("text.tokenizer.min_count=5")
    text = text_of(cell["text"], cell["megabytes"], work)
    valid = work / f"text/{text}.valid.txt"
    if not valid.exists():
        shutil.copy(work / "text/wiki.valid.txt", valid)  # `store_of` wants one; nothing is measured on it
    store = store_of(cell["recipe"], text, values, work)
    out = work / f"runs/{os.getpid()}"
    shutil.rmtree(out, ignore_errors=True)
    given = [value for value in values if not value.startswith("text")]
    told: list[str] = []
    began, cpu = time.perf_counter(), time.process_time()
    outcome = pretrain(
        cell["recipe"], corpus=str(store), out=out, budget=f"{cell['epochs']}epochs", seed=cell["seed"], device="cpu",
        overrides=[*QUIET, *given], fit=False, report=told.append,
    )
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if not outcome.finished:
        raise SystemExit(f"{cell}: stopped by a signal")
    log = [json.loads(line) for line in (out / "cloze/log.jsonl").read_text().splitlines()]
    last = [record for record in log if "tokens" in record][-1]
    network: Any = load_checkpoint(out).network
    judged = judge(data, units(list(network.spellings), network.vectors().numpy()), cell["text"])
    shutil.rmtree(out, ignore_errors=True)
    return {
        "cpu": round(cpu, 1), "seconds": round(seconds, 1), "words": len(network.spellings), "tokens": last["tokens"],
        "judged": {k: round(v, 2) if isinstance(v, float) else {a: round(b, 2) for a, b in v.items()} for k, v in judged.items()},
    }


def main() -> None:
    """Work on the cells of a plan."""
    parser = argparse.ArgumentParser(description="Run a plan of word vectors into a ledger.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--plan", type=Path, required=True, help="a file of cells, one JSON object a line")
    chosen = parser.parse_args()
    ledger = Ledger(RESULTS / "static_sweep.jsonl")
    for line in chosen.plan.read_text().splitlines():
        cell = {"text": "wiki", "megabytes": 0, "set": [], "seed": 0, **json.loads(line)}
        if not ledger.has(cell):
            result = run(cell, chosen.data, chosen.work.resolve())
            ledger.add(cell, result)
            judged = result["judged"]
            print(json.dumps(cell), f"{result['cpu']} s", {k: v for k, v in judged.items() if not isinstance(v, dict)},
                  judged["analogies"], flush=True)


if __name__ == "__main__":
    main()
