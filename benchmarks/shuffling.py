"""Text sorted by topic: what is lost by mixing only a few shards at a time, against a permutation of all rows.

    python benchmarks/shuffling.py --data DATA --work runs/shuffling [--seeds 5]
    python benchmarks/shuffling.py --table
    python benchmarks/shuffling.py --figure shuffling.svg        # needs matplotlib; `make docs` draws it, too

32 shards of equal length, each of one topic: 24 clusters of English Wikipedia (k-means over words) and 8 novels. The same
documents also form one ordinary store, whose rows are permuted as a whole. BERT at size tiny, as it is fitted, reads every text
about once. A step mixes `lanes` x `window` shards. The held-out text has some documents of each topic. A run is a line of
benchmarks/results/shuffling.jsonl and is not repeated: rerun the command, it resumes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import lzma
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reproductions"))

from figures import following_the_page
from ledger import Ledger

LEDGER = Path(__file__).parent / "results" / "shuffling.jsonl"
TOKENS, VOCABULARY = 1_000_000, 8000
CLUSTERS, BOOKS = 24, 8
CHARACTERS, APART = 140_000, 8_000  # of each topic, for training and held out
ALL = [0, 0]  # lanes and window of the global permutation: one ordinary store
#: Lanes and shards in a window, in the order in which they are run. The defaults of cloze are 64 and 2.
PLACES = (ALL, [64, 2], [4, 2], [1, 1], [1, 2], [1, 8], [1, 4], [4, 1], [1, 16], [4, 4])


def main() -> None:
    """Run what the ledger lacks, seed by seed; then print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path)
    options.add_argument("--work", type=Path, default=Path("runs/shuffling"))
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--table", action="store_true")
    options.add_argument("--figure", type=Path)
    given = options.parse_args()
    ledger = Ledger(LEDGER)
    if not given.table and given.figure is None:
        prepare(given.data, given.work)
        for places in (PLACES[:3], PLACES[3:6], PLACES[6:]):
            for seed in range(given.seeds):
                for lanes, window in places:
                    wanted = cell(lanes, window, seed)
                    if not ledger.has(wanted):
                        ledger.add(wanted, run(lanes, window, seed, given.work))
    if given.figure is not None:
        draw(ledger, given.figure)
    print("\n".join(table(ledger)))


def cell(lanes: int, window: int, seed: int) -> dict[str, Any]:
    """What the ledger knows a run by."""
    return {"recipe": "bert", "size": "tiny", "tokens": TOKENS, "shards": CLUSTERS + BOOKS, "lanes": lanes, "window": window,
            "seed": seed}  # fmt: skip


def run(lanes: int, window: int, seed: int, work: Path) -> dict[str, Any]:
    """Train once; what was measured on the held-out text."""
    from cloze.corpus.shards import sharded
    from cloze.runs.run import pretrain

    out = work / f"run-{os.getpid()}"
    shutil.rmtree(out, ignore_errors=True)
    values = ["training.keep=1", "training.checkpoint_every=1000000", "training.held_out=0.0", "training.evaluate_every=0.5"]
    if lanes:
        sharded.WINDOW = window
        values.append(f"training.lanes={lanes}")
    began, cpu = time.perf_counter(), time.process_time()
    outcome = pretrain(
        "bert", corpus=str(work / ("shards" if lanes else "one")), out=out, budget=f"{TOKENS}tokens", size="tiny", seed=seed,
        overrides=values, held_out=[str(work / "held_out")], device="cpu", report=lambda told: None,
    )  # fmt: skip
    if not outcome.finished:
        raise SystemExit("stopped by a signal; run the same command again")
    log = [json.loads(line) for line in (out / "cloze/log.jsonl").read_text().splitlines()]
    start = next(record for record in log if record["event"] == "start")
    held = [record for record in log if record["event"] == "held_out"]
    record = json.loads((out / "cloze/run.json").read_text())
    shutil.rmtree(out)
    found = {
        "steps": outcome.step, "baselines": start.get("baselines"), "cpu": round(time.process_time() - cpu, 1),
        "seconds": round(time.perf_counter() - began, 1), "fitted": record.get("fitted"),
        "curve": [[at["step"], at["tokens"], {k: round(v, 4) for k, v in at["objectives"].items()}] for at in held],
    }  # fmt: skip
    print(lanes, window, seed, found["curve"][-1][2], f"{found['cpu']} s", flush=True)
    return found


def prepare(data: Path, work: Path) -> None:
    """The store of 32 shards, the same text as one store, and the held-out text; made once."""
    from cloze.corpus import Store
    from cloze.corpus.shards.join import write_as_one
    from cloze.corpus.shards.manifest import write_manifest
    from cloze.corpus.stores.build import build_store_from_texts, train_tokenizer_from
    from cloze.corpus.stores.writer import saving
    from cloze.recipe.load import load_recipe
    from cloze.runs.corpora import trainable

    if Store.is_store(work / "held_out"):
        return
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    training, apart = [], []
    for name, texts in topics(data):
        taken, held = divided(texts)
        print(f"{name}: {len(taken)} documents, {len(held)} held out", flush=True)
        training.append(taken)
        apart += held
    (work / "text.txt").write_text("\n\n".join(text for texts in training for text in texts), encoding="utf-8")
    spec = trainable(load_recipe("bert", overrides=[f"text.tokenizer.size={VOCABULARY}"]).texts["main"])
    tokenizer = train_tokenizer_from([work / "text.txt"], spec, report=lambda told: None)
    names = [f"{number:05d}" for number in range(len(training))]
    for name, texts in zip(names, training, strict=True):
        print(build_store_from_texts(texts, tokenizer, work / "shards" / "shards" / name), flush=True)
    saving(tokenizer)(work / "shards" / "tokenizer")
    write_as_one(write_manifest(work / "shards", names), work / "one")
    build_store_from_texts(apart, tokenizer, work / "held_out")


def divided(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Documents for training, up to `CHARACTERS`, and some of the following ones."""
    taken: list[str] = []
    held: list[str] = []
    size = 0
    for text in texts:
        if size >= CHARACTERS + APART:
            break
        (taken if size < CHARACTERS else held).append(text)
        size += len(text)
    assert size >= CHARACTERS + APART, "a topic is too small"
    return taken, held


def topics(data: Path) -> Iterator[tuple[str, list[str]]]:
    """Documents by topic: the largest clusters of Wikipedia, then novels in pieces of some 2,500 characters."""
    with lzma.open(data / "text_en_wiki/train.txt.xz", "rt", encoding="utf-8") as file:
        pages = re.findall(r"<doc [^>]*>\n(.*?)\n</doc>", file.read(20_000_000), re.DOTALL)
    pages = [page[:4000] for page in pages if len(page) > 600]
    group, words = clustered(pages, 40)
    enough = [one for one in range(40) if sum(len(pages[at]) for at in np.flatnonzero(group == one)) > 1.2 * CHARACTERS]
    for one in enough[:CLUSTERS]:
        yield " ".join(words[one]), [pages[at] for at in np.flatnonzero(group == one)]
    files = sorted((data / "text_en_books").glob("*.txt.xz"))
    books = [(file.name, lzma.decompress(file.read_bytes()).decode("utf-8-sig")) for file in files[::3]]
    for name, book in [one for one in books if len(one[1]) > 2 * CHARACTERS][:BOOKS]:
        texts, held = [], ""
        for sentence in re.split(r'(?<=[.!?]["”’])\s+|(?<=[.!?])\s+', book):
            held += " ".join(sentence.split()) + " "
            if len(held) > 2500:
                texts.append(held)
                held = ""
        yield name.split(".")[0], texts


def clustered(texts: Sequence[str], count: int) -> tuple[Any, list[list[str]]]:
    """Spherical k-means over the logarithms of the counts of frequent words: the cluster of each text, and words of every one."""
    found = [Counter(re.findall(r"[a-z]{3,}", text.lower())) for text in texts]
    occur = Counter(word for counts in found for word in counts)
    kept = [word for word, _ in occur.most_common(3100)][100:]
    place = {word: at for at, word in enumerate(kept)}
    seen = np.zeros((len(texts), len(kept)), np.float32)
    for row, counts in enumerate(found):
        for word, number in counts.items():
            if word in place:
                seen[row, place[word]] = (1 + np.log(number)) * np.log(len(texts) / occur[word])
    seen /= np.maximum(np.linalg.norm(seen, axis=1, keepdims=True), 1e-6)
    centres = seen[np.random.default_rng(5).choice(len(texts), count, replace=False)]
    for _ in range(25):
        group = (seen @ centres.T).argmax(1)
        for one in range(count):
            if (group == one).any():
                centres[one] = seen[group == one].mean(0)
        centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-6)
    return group, [[kept[at] for at in np.argsort(-centre)[:4]] for centre in centres]


def ends(ledger: Ledger, lanes: int, window: int) -> dict[int, float]:
    """The held-out loss of hidden tokens at the end, by seed."""
    runs = ledger.results(recipe="bert", size="tiny", tokens=TOKENS, lanes=lanes, window=window)
    return {run["seed"]: run["curve"][-1][2]["token_prediction"] for run in runs}


def table(ledger: Ledger) -> Iterator[str]:
    """Means over the seeds, and differences to the global permutation, seed by seed."""
    whole = ends(ledger, *ALL)
    yield "| lanes | window | shards at a time | seeds | held-out loss | minus the global shuffle | in deviations of the seeds |"
    yield "|---|---|---|---|---|---|---|"
    for lanes, window in PLACES:
        losses = ends(ledger, lanes, window)
        seeds = sorted(losses.keys() & whole.keys())
        if len(seeds) < 2:
            continue
        apart = [losses[seed] - whole[seed] for seed in seeds]
        spread = stdev([whole[seed] for seed in seeds])
        said = f"{mean(apart):+.3f} ± {stdev(apart):.3f} | {mean(apart) / spread:+.1f}" if lanes else "– | –"
        mixed = f"{lanes} | {window} | {min(lanes * window, CLUSTERS + BOOKS)}" if lanes else "– | – | all rows"
        yield f"| {mixed} | {len(seeds)} | {mean(losses.values()):.3f} ± {stdev(losses.values()):.3f} | {said} |"


def draw(ledger: Ledger, path: Path) -> None:
    """Held-out loss over the shards of a window, a line for each number of lanes; a band for the global shuffle."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, place = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for lanes, style in ((1, "o-"), (4, "s-"), (64, "D-")):
        points = [(window, list(found.values())) for number, window in sorted(PLACES) if number == lanes
                  if len(found := ends(ledger, lanes, window)) > 1]  # fmt: skip
        if points:
            means, spreads = [mean(found) for _, found in points], [stdev(found) for _, found in points]
            label = f"{lanes} lane{'s' if lanes > 1 else ''}"
            place.errorbar([window for window, _ in points], means, spreads, fmt=style, capsize=3, label=label)
    whole = list(ends(ledger, *ALL).values())
    place.axhspan(mean(whole) - stdev(whole), mean(whole) + stdev(whole), alpha=0.3, color="gray", label="global shuffle")
    place.set(xlabel="shards in a window", ylabel="held-out loss per hidden token, nats", xscale="log")
    ticks = sorted({window for _, window in PLACES if window})
    place.set_xticks(ticks, [str(tick) for tick in ticks])
    place.minorticks_off()
    place.grid(alpha=0.3)
    place.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    path.write_text(following_the_page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
