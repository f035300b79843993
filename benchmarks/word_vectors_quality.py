"""Word vectors of cloze and of gensim on similarity and analogy sets: equal text, settings and epochs, several seeds.

    python benchmarks/word_vectors_quality.py [--systems skipgram cbow fasttext] [--seeds 3] [--epochs 5] [--threads 2]
    python benchmarks/word_vectors_quality.py --systems cbow --set network.spread=1.0
    python benchmarks/word_vectors_quality.py --language zh --megabytes 40 --systems skipgram cbow
    python benchmarks/word_vectors_quality.py --systems glove --peer GloVe/build

Text is English Wikipedia and books, lower-cased; or Chinese Wikipedia in the words of jieba, judged by `wordsim_zh_cwe`. Both
sides' vectors are judged here by the same few lines: Spearman's correlation (times 100) on the twelve sets of `wordsim_en`,
over the pairs whose words both sides know, their number stated; analogies of `analogy_en_google` by 3CosAdd among the 30,000
most frequent words, questions with other words left out, their number stated. The judgement of a finished run is a line in
results/word_vectors_quality.jsonl and is not made again (reproductions/ledger.py); text and vectors are in `--work`.
`--set` changes a value of our recipe: gensim begins with the range ±1 / width where word2vec.c has half of it
(`network.spread`). GloVe (15 passes, windows of 15, counts up to 10) has no counterpart there: `--peer FOLDER` names the compiled
programs of stanfordnlp/GloVe, which are then its other side; without them it is judged with the others.
"""

from __future__ import annotations

import argparse
import lzma
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "reproductions")]

from ledger import Ledger  # noqa: E402
from word_vectors import SHARED, SYSTEMS, plain_text  # noqa: E402

Vectors = tuple[dict[str, int], NDArray[np.float32]]  # words by falling frequency, unit vectors
MOST = 30_000
GLOVE_PASSES = 15  # over the counted cells; gensim has no GloVe, so that it is judged next to word2vec


def main() -> None:
    """Train and judge both sides for every seed."""
    from results import write_results

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CLOZE_DATA", str(ROOT.parent / "shared" / "data"))))
    parser.add_argument("--systems", nargs="+", choices=(*SYSTEMS, "glove"), default=["skipgram", "cbow", "fasttext", "glove"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], help="a value of our recipe")
    parser.add_argument("--language", choices=("en", "zh"), default="en")
    parser.add_argument("--peer", type=Path, help="folder with vocab_count, cooccur, shuffle and glove")
    parser.add_argument("--work", type=Path, default=Path("runs/word-vectors-quality"), help="text and vectors")
    parser.add_argument("--ledger", type=Path, default=ROOT / "benchmarks" / "results" / "word_vectors_quality.jsonl",
                        help="judgements of finished runs, one a line")
    parser.add_argument("--dry", action="store_true", help="write no results")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    text = arguments.work / f"text-{arguments.language}-{arguments.megabytes:g}.txt"
    if not text.exists():
        unfinished = text.with_suffix(".part")
        (plain_text if arguments.language == "en" else chinese_text)(arguments.data, unfinished, arguments.megabytes)
        unfinished.rename(text)
    records = []
    for system in arguments.systems:
        for side in sides(arguments, system):
            found = [one(arguments, system, side, seed, text) for seed in range(arguments.seeds)]
            for measure in found[0]:
                values = [result[measure] for result in found]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                records.append(
                    {"language": arguments.language, "system": system, "side": side, "measure": measure,
                     "mean": round(statistics.mean(values), 2), "deviation": round(spread, 2), "seeds": len(values),
                     "epochs": passes(arguments, system), "values": " ".join(arguments.set) if side == "cloze" else ""}
                )
                print("  ".join(str(value) for value in records[-1].values()), flush=True)
    if not arguments.dry:
        print(write_results("word_vectors_quality", records))


def sides(arguments: argparse.Namespace, system: str) -> tuple[str, ...]:
    """Whose vectors are compared."""
    if system in SYSTEMS:
        return ("gensim", "cloze")
    return ("stanford", "cloze") if arguments.peer else ("cloze",)


def one(arguments: argparse.Namespace, system: str, side: str, seed: int, text: Path) -> dict[str, float]:
    """The figures of one run, made or read."""
    ledger = Ledger(arguments.ledger)
    run = {
        "language": arguments.language, "system": system, "side": side, "seed": seed, "epochs": passes(arguments, system),
        "megabytes": arguments.megabytes, "threads": arguments.threads, "values": arguments.set if side == "cloze" else [],
    }  # fmt: skip
    if not ledger.has(run):
        out = arguments.work / "-".join(str(value).replace("/", "_") for value in run.values())
        vectors = {"cloze": ours, "gensim": gensim, "stanford": stanford}[side](arguments, system, seed, text, out)
        ledger.add(run, {"judged": (judge if arguments.language == "en" else judge_chinese)(arguments.data, vectors)})
    return dict(ledger.results(**run)[0]["judged"])


def passes(arguments: argparse.Namespace, system: str) -> int:
    """How often the text is read: the epochs asked for, of GloVe its own number."""
    return arguments.epochs if system in SYSTEMS else GLOVE_PASSES


def chinese_text(data: Path, out: Path, megabytes: float) -> Path:
    """Chinese Wikipedia as jieba cuts it, words and marks apart, at most 1,000 a line, a blank line behind each."""
    import jieba

    jieba.setLogLevel(60)
    left = int(megabytes * 1e6) or 1 << 60
    whole = data / "text_zh_wiki" / "train.txt.xz"
    with out.open("w", encoding="utf-8") as file, lzma.open(whole, "rt", encoding="utf-8") as source:
        for line in source:
            words = [] if line.startswith(("<doc", "</doc")) else " ".join(jieba.cut(line.strip().lower())).split()
            for start in range(0, len(words), 1000):
                left -= len((" ".join(words[start : start + 1000]) + "\n\n").encode())
                file.write(" ".join(words[start : start + 1000]) + "\n\n")
            if left <= 0:
                break
    return out


def ours(arguments: argparse.Namespace, system: str, seed: int, text: Path, out: Path) -> Vectors:
    """The recipe's vectors."""
    import torch

    from cloze.checkpoint.build import load_checkpoint
    from cloze.runs.run import pretrain

    torch.set_num_threads(arguments.threads)
    recipe, values = SYSTEMS.get(system, (system, ["network.width=100"]))
    shared = [value for value in SHARED if system in SYSTEMS or not value.startswith("exercise.")]
    budget, changed = f"{passes(arguments, system)}epochs", [*shared, *values, *arguments.set]
    pretrain(recipe, corpus=text, out=out, budget=budget, overrides=changed, seed=seed, device="cpu", fit=False)
    network: Any = load_checkpoint(out).network
    return units(list(network.spellings), network.vectors().numpy())


def gensim(arguments: argparse.Namespace, system: str, seed: int, text: Path, out: Path) -> Vectors:
    """gensim's vectors."""
    from gensim.models import FastText, Word2Vec

    kind = FastText if system.startswith("fasttext") else Word2Vec
    hierarchical = system.endswith("-hs")
    model = kind(
        corpus_file=str(text), vector_size=100, window=5, negative=0 if hierarchical else 5, hs=int(hierarchical), sample=1e-3,
        min_count=5, workers=arguments.threads, sg=int(system != "cbow"), alpha=0.05 if kind is FastText else 0.025,
        epochs=arguments.epochs, seed=seed + 1,
    )
    return units(model.wv.index_to_key, model.wv.vectors)


def stanford(arguments: argparse.Namespace, system: str, seed: int, text: Path, out: Path) -> Vectors:
    """Vectors of the authors' programs for GloVe, with the settings of the recipe: words and contexts added."""
    out.mkdir(parents=True, exist_ok=True)
    words, cells, mixed, made = (out / name for name in ("words.txt", "cells.bin", "mixed.bin", "vectors"))

    def call(program: str, options: str, source: Path | None = None, into: Path | None = None) -> None:
        with ExitStack() as files:
            given = None if source is None else files.enter_context(source.open("rb"))
            taken = None if into is None else files.enter_context(into.open("wb"))
            subprocess.run([str(arguments.peer / program), *options.split()], stdin=given, stdout=taken, check=True)

    call("vocab_count", "-min-count 5 -verbose 0", text, words)
    call("cooccur", f"-memory 4 -window-size 15 -verbose 0 -vocab-file {words} -overflow-file {out}/overflow", text, cells)
    call("shuffle", f"-memory 4 -verbose 0 -seed {seed + 1} -temp-file {out}/mixing", cells, mixed)
    call("glove", f"-save-file {made} -threads {arguments.threads} -input-file {mixed} -vocab-file {words} -vector-size 100 "
                  f"-x-max 10 -iter {GLOVE_PASSES} -binary 0 -verbose 1 -seed {seed + 1}")
    rows = [line.split() for line in made.with_suffix(".txt").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row[0] != "<unk>"]
    return units([row[0] for row in rows], np.array([row[1:] for row in rows], dtype=np.float32))


def units(words: list[str], vectors: NDArray[np.float32]) -> Vectors:
    """Words by number, and their vectors with length 1."""
    return {word: i for i, word in enumerate(words)}, vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


# --- judging ------------------------------------------------------------------------------------------------------------


def judge(data: Path, vectors: Vectors) -> dict[str, float]:
    """Spearman's correlation on every set with the pairs it was had from, and analogies answered rightly, in per cent."""
    found: dict[str, float] = {}
    for path in sorted((data / "wordsim_en").glob("EN-*.txt")):
        name = path.stem.removeprefix("EN-")
        found[name], found[f"{name} pairs"] = similarity(path, vectors)
    found["analogies"], found["analogies questions"] = analogies(data / "analogy_en_google" / "questions-words.txt.xz", vectors)
    return found


def judge_chinese(data: Path, vectors: Vectors) -> dict[str, float]:
    """The same of the Chinese sets."""
    found: dict[str, float] = {}
    found["wordsim-240"], found["wordsim-240 pairs"] = similarity(data / "wordsim_zh_cwe" / "240.txt", vectors)
    found["analogies"], found["analogies questions"] = analogies(data / "wordsim_zh_cwe" / "analogy.txt", vectors)
    return found


def similarity(path: Path, vectors: Vectors) -> tuple[float, float]:
    """100 times the rank correlation with people, and how many pairs have both words."""
    number, matrix = vectors
    pairs = [line.lower().split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    known = [(number[a], number[b], float(score)) for a, b, score, *_ in pairs if a in number and b in number]
    if len(known) < 3:
        return 0.0, float(len(known))
    first, second, scores = (np.array(column) for column in zip(*known, strict=True))
    cosine = (matrix[first.astype(int)] * matrix[second.astype(int)]).sum(axis=1)
    return 100 * float(np.corrcoef(ranks(cosine), ranks(scores))[0, 1]), float(len(known))


def ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Ranks; equal values share theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    average: NDArray[np.float64] = (np.cumsum(count) - (count - 1) / 2)[place]
    return average


def analogies(path: Path, vectors: Vectors) -> tuple[float, float]:
    """Per cent of questions that b - a + c answers first, the three words left out, and how many questions were asked."""
    number, matrix = vectors
    matrix = matrix[:MOST]
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
        rows = [line.lower().split() for line in file if not line.startswith(":")]
    asked = np.array([[number[w] for w in row] for row in rows if all(number.get(w, MOST) < MOST for w in row)])
    if not len(asked):
        return 0.0, 0.0
    right = 0
    for part in np.array_split(asked, len(asked) // 500 + 1):
        a, b, c, wanted = part.T
        scores = (matrix[b] - matrix[a] + matrix[c]) @ matrix.T
        np.put_along_axis(scores, part[:, :3], -np.inf, axis=1)
        right += int((scores.argmax(axis=1) == wanted).sum())
    return 100 * right / len(asked), float(len(asked))


if __name__ == "__main__":
    main()
