"""Phrases and paragraph vectors against gensim: speed of both sides in turn, and quality of the vectors as features.

    CLOZE_DATA=DATA python benchmarks/phrases_paragraphs.py [--rounds 3] [--threads 1] [--epochs 40] [--megabytes 8]

**Phrases.** Both sides read the same lines of words (English Wikipedia, lower-cased), find phrases in two passes with the
thresholds 200 and 100 and join all lines. gensim gets lines that are split already, and word2phrase's score, so that both sides
join the same pairs; cloze gets lines of text. The joined lines are compared word by word
(`lines_alike`).

**Paragraphs.** Sentences of reviews, `cls_en_subjectivity` and `cls_en_sentence_polarity`: four fifths train vectors of 100
numbers (5 negatives, windows of 5, subsampling at 1e-3, words that occur twice), the rest get vectors by inference. A logistic
regression (scikit-learn) on vectors of equal spread reads the label; its penalty is chosen on a fifth of the training part. A
split and a seed for each round, the same split for both sides. The time of training is that of the passes: gensim's from a file
(`corpus_file`, its fastest way), cloze's of the steps. Vocabulary, store and compiling count on neither side; the time of
inference is that of all texts.

CPU seconds are compared, because other work shares the machine; wall seconds are given next to them.
"""

from __future__ import annotations

import argparse
import lzma
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

MODELS = {"pv-dbow": 0, "pv-dm": 1}
_WORDS = re.compile(r"[^\W_]+|[^\w\s]")


class Spent(NamedTuple):
    """Wall and CPU seconds."""

    wall: float
    cpu: float


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def spent(self) -> Spent:
        """Wall and CPU seconds so far."""
        return Spent(time.perf_counter() - self.wall, time.process_time() - self.cpu)


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--megabytes", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=["phrases", "pv-dbow", "pv-dm"], help="phrases, pv-dbow, pv-dm")
    parser.add_argument("--sets", nargs="*", default=["subjectivity", "polarity"], help="subjectivity, polarity")
    arguments = parser.parse_args()
    from results import write_results

    data = Path(os.environ["CLOZE_DATA"])
    if "phrases" in arguments.only:
        write_results("phrases", phrases(data, arguments))
    sets = {"subjectivity": subjectivity, "polarity": polarity}
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.sets:
            texts, labels = sets[name](data)
            for model in set(MODELS) & set(arguments.only):
                records += paragraphs(name, model, texts, labels, arguments, Path(folder))
    if records:
        write_results("paragraphs", records)


# --- phrases --------------------------------------------------------------------------------------------------------------


def phrases(data: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A record per side: medians over interleaved rounds."""
    from gensim.models import Phrases as Theirs

    from cloze.text import ChunkEncoder, Normalise, Phrases, TextSpec, train

    with lzma.open(data / "text_en_wiki" / "train.txt.xz", "rt", encoding="utf-8") as stream:
        text = stream.read(arguments.megabytes * 1_000_000).lower()
    lines = [" ".join(words) for line in text.splitlines() if (words := [w for w in _WORDS.findall(line) if w.isalnum()])]
    split = [line.split() for line in lines]
    number_of_words = sum(map(len, split))
    spent: dict[str, list[Spent]] = {"cloze": [], "gensim": []}
    for number in range(arguments.rounds + 1):  # the first loads compiled code and does not count
        clock = Clock()
        spec = TextSpec(Normalise(), Phrases(min_count=5, split="whitespace", thresholds=(200.0, 100.0)))
        tokenizer = train(spec, lines)
        encoded = ChunkEncoder(tokenizer).encode_lines(lines)
        if number:
            spent["cloze"].append(clock.spent())
        clock = Clock()
        first = Theirs(split, min_count=5, threshold=200, scoring=word2phrase).freeze()
        second = Theirs(first[split], min_count=5, threshold=100, scoring=word2phrase)  # `freeze` loses phrases of phrases
        joined = [second[first[line]] for line in split]
        if number:
            spent["gensim"].append(clock.spent())
    unknown, bounds = tokenizer.role("[UNK]"), encoded.offsets.tolist()
    pieces = [tokenizer.piece(i) if i != unknown else None for i in encoded.ids.tolist()]
    ours = [pieces[a:b] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    alike = np.mean([
        len(a) == len(b) and all(x is None or x == y for x, y in zip(a, b, strict=True))
        for a, b in zip(ours, joined, strict=True)
    ])
    assert tokenizer.joins is not None
    more = {"phrases": len(tokenizer.joins.pairs), "lines_alike": round(float(alike), 5)}
    return _records("phrases", "wiki", spent, number_of_words, more)


def word2phrase(
    worda_count: int, wordb_count: int, bigram_count: int, len_vocab: int, min_count: int, corpus_word_count: int
) -> float:
    """The score of word2phrase.c; gensim's own multiplies by `len_vocab`."""
    return (bigram_count - min_count) / worda_count / wordb_count * corpus_word_count


# --- paragraphs -----------------------------------------------------------------------------------------------------------


def subjectivity(data: Path) -> tuple[list[str], Any]:
    """Sentences of plots and of reviews."""
    return _classes(data / "cls_en_subjectivity", "plot.tok.gt9.5000.xz", "quote.tok.gt9.5000.xz")


def polarity(data: Path) -> tuple[list[str], Any]:
    """Negative and positive sentences."""
    return _classes(data / "cls_en_sentence_polarity", "rt-polarity.neg.xz", "rt-polarity.pos.xz")


def _classes(folder: Path, *files: str) -> tuple[list[str], Any]:
    texts, labels = list[str](), list[int]()
    for label, file in enumerate(files):
        with lzma.open(folder / file, "rt", encoding="latin-1") as stream:
            found = [" ".join(_WORDS.findall(line.lower())) for line in stream]
        texts += found
        labels += [label] * len(found)
    return texts, np.array(labels)


def paragraphs(
    name: str, model: str, texts: list[str], labels: Any, arguments: argparse.Namespace, work: Path
) -> list[dict[str, Any]]:
    """A record per side for training and for inference, with the accuracies of the rounds."""
    training: dict[str, list[Spent]] = {"cloze": [], "gensim": []}
    inference: dict[str, list[Spent]] = {"cloze": [], "gensim": []}
    right: dict[str, list[float]] = {"cloze": [], "gensim": []}
    words = 0
    for number in range(arguments.rounds):
        order = np.random.default_rng(number).permutation(len(texts))
        cut = 4 * len(texts) // 5
        train, test = order[:cut], order[cut:]
        file = work / "train.txt"
        file.write_text("".join(f"{texts[i]}\n" for i in train))
        new = [texts[i] for i in test]
        words = arguments.epochs * sum(len(texts[i].split()) for i in train)
        for side, run in (("cloze", _cloze), ("gensim", _gensim)):
            known, found, took, asked = run(model, file, new, number, arguments, work / "run")
            training[side].append(took)
            inference[side].append(asked)
            right[side].append(_accuracy(known, labels[train], found, labels[test]))
    quality = {
        side: {"accuracy": round(float(np.mean(values)), 4), "deviation": round(float(np.std(values, ddof=1)), 4)}
        for side, values in right.items()
    }
    made = _records(model, name, training, words, {}, quality)
    asked_words = sum(len(text.split()) for text in new) * arguments.epochs
    return [*made, *_records(f"{model} inference", name, inference, asked_words, {})]


def _cloze(model: str, file: Path, new: list[str], seed: int, arguments: argparse.Namespace, out: Path) -> Any:
    import torch

    import cloze
    from cloze.engines.lock_free import LockFreeTrainer

    torch.set_num_threads(arguments.threads)
    shutil.rmtree(out, ignore_errors=True)
    spent: list[Spent] = []
    train = LockFreeTrainer.train

    def timed(self: LockFreeTrainer) -> None:
        clock = Clock()
        train(self)
        spent.append(clock.spent())

    LockFreeTrainer.train = timed  # type: ignore[method-assign,assignment]
    try:
        made = cloze.pretrain(
            model, corpus=file, text_format="line", out=out, fit=False, budget=f"{arguments.epochs}epochs", seed=seed,
            overrides={"text.tokenizer.min_count": 2, "training.epochs": arguments.epochs}, device="cpu", report=None,
        )
    finally:
        LockFreeTrainer.train = train  # type: ignore[method-assign]
    made.embed(new[:1])  # compiled code is loaded
    clock = Clock()
    found = made.embed(new)
    asked = clock.spent()
    return made.network.paragraphs.numpy(), found, Spent(sum(s.wall for s in spent), sum(s.cpu for s in spent)), asked


def _gensim(model: str, file: Path, new: list[str], seed: int, arguments: argparse.Namespace, out: Path) -> Any:
    from gensim.models.doc2vec import Doc2Vec

    made = Doc2Vec(
        dm=MODELS[model], vector_size=100, min_count=2, window=5, epochs=arguments.epochs, negative=5, sample=1e-3, seed=seed + 1,
        workers=arguments.threads,
    )
    made.build_vocab(corpus_file=str(file))
    clock = Clock()
    made.train(
        corpus_file=str(file), total_examples=made.corpus_count, total_words=made.corpus_total_words, epochs=arguments.epochs
    )
    took = clock.spent()
    clock = Clock()
    found = np.stack([made.infer_vector(text.split()) for text in new])
    return made.dv.vectors, found, took, clock.spent()


def _accuracy(known: Any, labels: Any, found: Any, wanted: Any) -> float:
    """Of a logistic regression; the penalty is chosen on the last fifth of the training part."""
    from sklearn.linear_model import LogisticRegression

    scale, cut = known.std(), 4 * len(known) // 5
    known, found = known / scale, found / scale

    def fitted(c: float, end: int) -> Any:
        return LogisticRegression(max_iter=2000, C=c).fit(known[:end], labels[:end])

    best = max((0.01, 0.1, 1.0), key=lambda c: fitted(c, cut).score(known[cut:], labels[cut:]))
    return float(fitted(best, len(known)).score(found, wanted))


def _records(
    system: str, data: str, spent: dict[str, list[Spent]], words: int, more: dict[str, Any],
    quality: dict[str, dict[str, float]] | None = None,
) -> list[dict[str, Any]]:
    cpu = {side: statistics.median(s.cpu for s in some) for side, some in spent.items()}
    wall = {side: statistics.median(s.wall for s in some) for side, some in spent.items()}
    return [
        {
            "system": system, "data": data, "side": side, "words": words, "words_per_cpu_second": round(words / cpu[side]),
            "cpu_seconds": round(cpu[side], 2), "wall_seconds": round(wall[side], 2),
            "times_gensim_per_cpu_second": round(cpu["gensim"] / cpu[side], 2), "rounds": len(spent[side]),
            **more, **(quality or {}).get(side, {}),
        }
        for side in ("gensim", "cloze")
    ]


if __name__ == "__main__":
    main()
