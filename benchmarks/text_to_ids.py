"""From text to word ids: the vocabulary and the store, against gensim's reading of the same file.

    python benchmarks/text_to_ids.py [--rounds 3] [--data ../shared/data] [--megabytes 0] [--times 1]

Both sides read the same plain text (one line per paragraph, lower-cased, words and marks apart, so that splitting at white
space gives both the same words), each in a fresh process, in turn; medians of wall time and of CPU time. Ours counts the
whole text, writes the vocabulary and a store with ids, sentence and document bounds, in `--processes` processes. gensim's
vocabulary pass (`build_vocab(corpus_file=...)`) only counts: it reads the text again in every epoch. Imports, and loading
compiled code the first time, are not timed in either. `without numba` is the same without the extra `fast`. `--times`
repeats the text, to look at memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
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

from corpus_build import Peak, plain_text  # noqa: E402

SIDES = ("gensim", "without numba", "cloze")


def main() -> None:
    """Run the comparison, or one side of it in a process of its own (`--side`)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("CLOZE_DATA", str(ROOT.parent / "shared" / "data")))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=0, help="use only so much of the file; 0: all of it")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--sides", nargs="*", choices=SIDES, default=SIDES)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--text", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(run_side(arguments.side, Path(arguments.text), arguments.processes)))
        return
    work = Path(tempfile.mkdtemp(prefix="cloze-words-"))
    try:
        text = words_apart(arguments, work)
        rows = compare(arguments, text)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    from results import processor, versions, write_results

    facts = versions("numpy", "numba", "tokenizers", "gensim")
    write_results("text_to_ids", [{**row, **facts} for row in rows], hardware=processor())


def words_apart(arguments: argparse.Namespace, work: Path) -> Path:
    """The text, lower-cased, with spaces around ASCII marks."""
    source = plain_text(Path(arguments.data) / "text_en_wiki" / "train.txt.xz", work / "plain.txt", arguments.megabytes)
    data = re.sub(r"([!-/:-@\[-`{-~])", r" \1 ", source.read_text(encoding="utf-8").lower())
    out = work / "words.txt"
    with out.open("w", encoding="utf-8") as stream:
        for _ in range(arguments.times):
            stream.write(data)
    return out


def compare(arguments: argparse.Namespace, text: Path) -> list[dict[str, Any]]:
    """Medians over interleaved rounds, one row per side."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in arguments.sides}
    for number in range(arguments.rounds):
        for side, found in runs.items():
            found.append(start(side, text, arguments.processes))
            print(f"round {number + 1} {side:<14}", {k: round(v, 2) for k, v in found[-1].items()}, flush=True)
    rows = []
    for side, found in runs.items():
        middle = {key: statistics.median(run[key] for run in found) for key in found[0]}
        rows.append({
            "side": side, "megabytes": round(text.stat().st_size / 1e6, 1), "words": int(middle["words"]),
            "vocabulary": int(middle["vocabulary"]), "seconds_counting": round(middle["counting"], 2),
            "seconds_in_all": round(middle["seconds"], 2),
            "million_words_per_second_counting": round(middle["words"] / middle["counting"] / 1e6, 2),
            "million_words_per_second_store": round(middle["words"] / (middle["seconds"] - middle["counting"]) / 1e6, 2)
            if side != "gensim" else "",
            "cpu_seconds": round(middle["cpu"], 1), "peak_megabytes": round(max(run["peak"] for run in found) / 1e6),
            "processes": arguments.processes, "rounds": arguments.rounds,
        })
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()))
    return rows


def start(side: str, text: Path, processes: int) -> dict[str, Any]:
    """Run one side in a fresh process."""
    command = [sys.executable, __file__, "--side", side, "--text", str(text), "--processes", str(processes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def run_side(side: str, text: Path, processes: int) -> dict[str, float]:
    """Count, and on our side also write ids; words are those of the whole text."""
    return by_gensim(text, processes) if side == "gensim" else by_cloze(text, processes, compiled=side == "cloze")


def by_gensim(text: Path, processes: int) -> dict[str, float]:
    """The vocabulary pass of Word2Vec over a corpus file."""
    from gensim.models import Word2Vec

    model = Word2Vec(min_count=5, workers=processes)
    with Peak() as peak:
        started = time.perf_counter()
        model.build_vocab(corpus_file=str(text))
        seconds = time.perf_counter() - started
    words = float(model.corpus_total_words)
    return {**peak.facts(seconds), "counting": seconds, "words": words, "vocabulary": float(len(model.wv))}


def by_cloze(text: Path, processes: int, *, compiled: bool) -> dict[str, float]:
    """The vocabulary and the store."""
    from cloze import kernels
    from cloze.corpus.stores.build import build_store, train_tokenizer_from
    from cloze.text import Normalise, TextSpec, Words
    from cloze.text.encoding import numbering

    if compiled:
        numbering.ChunkNumbers(marks=False, fold=False, most=10).scan(b"a b", 0, 10)  # loads the compiled code
    else:
        kernels.find = lambda *given, **named: None
        processes = 1  # workers are processes of their own, which would find the extra
    spec = TextSpec(Normalise(), Words(split="whitespace"))
    out = text.parent / "store"
    shutil.rmtree(out, ignore_errors=True)
    with Peak() as peak:
        started = time.perf_counter()
        tokenizer = train_tokenizer_from([text], spec, format="blank")
        counted = time.perf_counter() - started
        store = build_store([text], tokenizer, out, format="blank", workers=processes)
        seconds = time.perf_counter() - started
    facts = {"counting": counted, "words": float(len(store.tokens)), "vocabulary": float(tokenizer.size)}
    shutil.rmtree(out)
    return {**peak.facts(seconds), **facts}


if __name__ == "__main__":
    main()
