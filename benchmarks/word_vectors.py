"""Word vectors in compiled code against gensim's `corpus_file` training: words/s, each side in a fresh process, in turn.

    python benchmarks/word_vectors.py [--rounds 3] [--threads 2] [--megabytes 0] [--systems skipgram cbow fasttext] [--epochs 1]

Both sides read the same lines of the same words (lower-cased, at most 1,000 a line) with 100 dimensions, windows of 5, 5
negatives and subsampling at 1e-3; subwords are 3 to 6 letters in 2,000,000 buckets. Skip-gram shares negatives among the pairs
of a centre, as the recipe says (gensim has no such mode), `skipgram-exact` does not. Words are raw words of the corpus, before
subsampling; reading the vocabulary, building the store and compiling are timed on neither side. The words that were really
read are compared with those of the corpus. CPU seconds are given next to wall seconds, because a shared machine stretches these.
gensim's subwords are asked in the opposite direction (the context's n-grams for the centre), which is its algorithm; its lines
go through its own job queue. What it reads again in every epoch, the text, is part of its training.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

#: The recipe and the values that make both sides train alike.
SHARED = [
    "training.engine=compiled", "text.tokenizer.split=whitespace", "exercise.0.threshold=1e-3", "training.held_out=0",
    "training.checkpoint_every=1000000000", "training.evaluate_every=0",
]
SYSTEMS: dict[str, tuple[str, list[str]]] = {
    "skipgram": ("word2vec-skipgram", []),
    "skipgram-exact": ("word2vec-skipgram", ["objectives.0.share=false"]),
    "skipgram-hs": ("word2vec-skipgram-hs", []),
    "cbow": ("word2vec-cbow", ["training.rate.peak=0.025", "network.spread=1.0"]),  # gensim's rate and first range
    "fasttext": ("fasttext", []),
    # gensim's algorithm: the n-grams of a word of the window are asked for the centre; its noise, its frequencies, its last rate
    "fasttext-gensim": (
        "fasttext", ["exercise.1.ask=centre", "objectives.0.power=0.75", "objectives.0.redraw=false", "exercise.0.of=words",
                     "training.rate.floor=1e-4"],
    ),
}


def main() -> None:
    """Compare, or run one side in a process of its own (`--side`)."""
    arguments = parse()
    if arguments.side:
        print(json.dumps(run_side(arguments)))
        return
    from results import write_results

    work = Path(tempfile.mkdtemp(prefix="cloze-bench-"))
    try:
        text = plain_text(Path(arguments.data), work / "text.txt", arguments.megabytes)
        records = [record for system in arguments.systems for record in compare(arguments, system, text, work)]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for record in records:
        print("  ".join(f"{key} {value}" for key, value in record.items()))
    if not arguments.dry:
        print(write_results("word_vectors", records))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("CLOZE_DATA", str(ROOT.parent / "shared" / "data")))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--megabytes", type=float, default=0, help="use only so much of the text; 0: all of it")
    parser.add_argument("--systems", nargs="+", choices=tuple(SYSTEMS), default=["skipgram", "cbow", "fasttext"])
    parser.add_argument("--dry", action="store_true", help="write no results")
    parser.add_argument("--side", choices=("cloze", "gensim"), help=argparse.SUPPRESS)
    parser.add_argument("--system", help=argparse.SUPPRESS)
    parser.add_argument("--text", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def plain_text(data: Path, out: Path, megabytes: float) -> Path:
    """English Wikipedia and books as lines of at most 1,000 lower-cased words and marks, a blank line behind each."""
    left = int(megabytes * 1e6) or 1 << 60
    files = [data / "text_en_wiki" / "train.txt.xz", *sorted((data / "text_en_books").glob("*.txt.xz"))]
    with out.open("w", encoding="utf-8") as file:
        for path in files:
            with lzma.open(path, "rt", encoding="utf-8-sig") as source:
                for line in source:
                    words = [] if line.startswith(("<doc", "</doc")) else re.findall(r"\w+|[^\w\s]", line.lower())
                    for start in range(0, len(words), 1000):
                        left -= file.write(" ".join(words[start : start + 1000]) + "\n\n")
                    if left <= 0:
                        return out
    return out


# --- one side, in a process of its own ----------------------------------------------------------------------------------


def run_side(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train once; words, wall seconds and CPU seconds of the training alone."""
    return (cloze if arguments.side == "cloze" else gensim)(arguments)


def cpu_seconds() -> float:
    """CPU time of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cloze(arguments: argparse.Namespace) -> dict[str, Any]:
    """The recipe by `pretrain`; the time is that of the steps, without evaluations and checkpoints."""
    import torch

    from cloze.engines.lock_free import LockFreeTrainer
    from cloze.runs.run import pretrain

    torch.set_num_threads(arguments.threads)
    spent = {"seconds": 0.0, "cpu": 0.0, "words": 0.0}
    train = LockFreeTrainer.train

    def timed(self: LockFreeTrainer) -> None:
        progress = self.steps.run_progress.progress  # type: ignore[attr-defined]
        wall, cpu, words = time.perf_counter(), cpu_seconds(), progress.spent.tokens
        train(self)
        spent["seconds"] += time.perf_counter() - wall
        spent["cpu"] += cpu_seconds() - cpu
        spent["words"] += progress.spent.tokens - words

    LockFreeTrainer.train = timed  # type: ignore[method-assign,assignment]
    recipe, values = SYSTEMS[arguments.system]
    store = arguments.work / "store" / "cloze" / "corpus"
    known = store.exists()
    out = arguments.work / ("run" if known else "store")
    shutil.rmtree(arguments.work / "run", ignore_errors=True)
    corpus = next(path.parent for path in store.rglob("store.json")) if known else arguments.text
    pretrain(
        recipe, corpus=corpus, out=out, budget=f"{arguments.epochs}epochs", overrides=[*SHARED, *values], device="cpu",
        report=lambda text: None, fit=False,
    )
    return spent


def gensim(arguments: argparse.Namespace) -> dict[str, Any]:
    """gensim's training from a file, its vocabulary made before."""
    from gensim.models import FastText, Word2Vec

    kind = FastText if arguments.system.startswith("fasttext") else Word2Vec
    hierarchical = arguments.system.endswith("-hs")
    model = kind(
        vector_size=100, window=5, negative=0 if hierarchical else 5, hs=int(hierarchical), sample=1e-3, min_count=5,
        workers=arguments.threads, sg=int(arguments.system != "cbow"), alpha=0.05 if kind is FastText else 0.025,
        epochs=arguments.epochs,
    )
    model.build_vocab(corpus_file=str(arguments.text))
    wall, cpu = time.perf_counter(), cpu_seconds()
    model.train(
        corpus_file=str(arguments.text), total_words=model.corpus_total_words, total_examples=model.corpus_count,
        epochs=arguments.epochs,
    )
    words = model.corpus_total_words * arguments.epochs
    return {"seconds": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu, "words": words}


# --- both sides in turn -------------------------------------------------------------------------------------------------


def compare(arguments: argparse.Namespace, system: str, text: Path, work: Path) -> list[dict[str, Any]]:
    """Medians over interleaved rounds, a record per side; the first run builds the store and compiles, and does not count."""
    folder = work / system
    folder.mkdir()
    start(arguments, "cloze", system, text, folder)
    runs: dict[str, list[dict[str, Any]]] = {"gensim": [], "cloze": []}
    for number in range(arguments.rounds):
        for side, found in runs.items():
            found.append(start(arguments, side, system, text, folder))
            run = found[-1]
            print(
                f"{system} round {number + 1} {side:<7}{run['words'] / run['seconds']:12,.0f} words/s  "
                f"{run['words'] / run['cpu']:12,.0f} per CPU-second", flush=True,
            )
    speed = {side: statistics.median(run["words"] / run["seconds"] for run in found) for side, found in runs.items()}
    per_cpu = {side: statistics.median(run["words"] / run["cpu"] for run in found) for side, found in runs.items()}
    return [
        {
            "system": system, "side": side, "threads": arguments.threads, "epochs": arguments.epochs,
            "words": round(found[0]["words"]), "words_per_second": round(speed[side]),
            "times_gensim": round(speed[side] / speed["gensim"], 2), "words_per_cpu_second": round(per_cpu[side]),
            "times_gensim_per_cpu_second": round(per_cpu[side] / per_cpu["gensim"], 2), "rounds": arguments.rounds,
        }
        for side, found in runs.items()
    ]


def start(arguments: argparse.Namespace, side: str, system: str, text: Path, work: Path) -> dict[str, Any]:
    """One side in a process of its own."""
    command = [
        sys.executable, __file__, "--side", side, "--system", system, "--text", str(text), "--work", str(work),
        "--threads", str(arguments.threads), "--epochs", str(arguments.epochs),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
