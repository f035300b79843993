"""Training speed of two versions of cloze in tokens per second: interleaved, each run in a process of its own.

    git worktree add runs/before COMMIT
    python benchmarks/before_after.py --before runs/before --text TEXT --work runs/before_after --rounds 3

Both versions train the same recipes on stores of the same text. Where a recipe changed between the two, its ratio is the price
of that. `--processor` counts seconds of the processor on one thread instead, which other work on the machine disturbs less: the
difference between a short and a long run, so that what a run does before its first step does not count.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any
from zlib import crc32

NETWORKS = (
    "bert", "gpt2", "t5-small", "bart-base", "xlnet-base", "electra-small", "albert-base", "roberta-doc-sentences", "awd-lstm",
    "elmo",
)
VECTORS = ("word2vec-skipgram", "word2vec-cbow", "fasttext", "glove")
SHARED = ["training.held_out=0.0", "training.keep=1", "training.evaluate_every=0", "training.checkpoint_every=1000000"]
STREAMS = ("xlnet-base", "awd-lstm", "elmo")  # these keep their own length; XLNet reads eight rows of 512 tokens at a time
STEPS = 24


def one(recipe: str, text: Path, work: Path, *, processor: bool) -> float:
    """Real tokens per second of one run, in the version of cloze that this process imports."""
    from cloze.corpus import Store
    from cloze.corpus.stores.build import build_store, train_tokenizer_from
    from cloze.recipe.load import load_recipe
    from cloze.runs import run
    from cloze.runs.corpora import trainable

    vectors = recipe in VECTORS
    small = [] if vectors else ["text.tokenizer.size=8000"]
    spec = trainable(load_recipe(recipe, overrides=small).texts["main"])
    store = work / "stores" / f"{'words' if vectors else recipe}-{crc32(repr(spec).encode()):08x}"
    if not Store.is_store(store):
        build_store([text], train_tokenizer_from([text], spec, budget_bytes=10_000_000), store)
    loaded = load_recipe(recipe)
    lengths = [f"schedule[{number}].set.length=128" for number, phase in enumerate(loaded.schedule) if "length" in phase.set]
    rows = 8 if recipe == "xlnet-base" else 32
    batch = [f"training.batch={rows}", f"training.micro_batch={rows}", "text.tokenizer.size=8000", "training.log_every=3"]
    shape = [] if recipe in STREAMS else lengths or ["length=128"]
    values = SHARED[:1] if vectors else [*SHARED, *batch, *shape]
    # Not fitted to the budget: the option had another name once, and none before recipes were fitted.
    options = getattr(run, "Options", None)
    known = set(inspect.signature(run.pretrain).parameters) | set(getattr(options, "__annotations__", ()))
    given: dict[str, Any] = {name: value for name, value in (("fit", False), ("as_published", True)) if name in known}

    def trained(budget: str) -> tuple[list[dict[str, Any]], float]:
        """The log of a run, and its seconds of processor time."""
        with tempfile.TemporaryDirectory(dir=work) as folder:
            out, started = Path(folder) / "run", time.process_time()
            run.pretrain(recipe, corpus=[str(store)], out=out, budget=budget, overrides=values,
                     size=None if vectors else "mini", device="cpu", report=lambda text: None, **given)
            spent = time.process_time() - started
            return [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text().splitlines()], spent

    if processor and not vectors:
        trained("2steps")  # what a process does once, such as loading compiled code
    log, spent = trained("1epochs" if vectors else f"{STEPS}steps")
    stop = next(record for record in log if record["event"] == "stop")
    if vectors:
        return float(stop["tokens"] / (spent if processor else stop["seconds"]))
    if processor:
        first, before = trained(f"{STEPS // 4}steps")
        begun = next(record for record in first if record["event"] == "stop")
        return float((stop["tokens"] - begun["tokens"]) / (spent - before))
    return float(median([record["tokens_per_second"] for record in log if record["event"] == "train"][3:]))


def main() -> None:
    """Run every recipe in turn, the two versions after one another, and print medians and ratios."""
    parser = argparse.ArgumentParser(description="Compare the training speed of two checkouts of cloze.")
    parser.add_argument("--before", type=Path, help="a checkout of the older version")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[*NETWORKS, *VECTORS], metavar="RECIPE")
    parser.add_argument("--processor", action="store_true", help="tokens per second of processor time, on one thread")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True, exist_ok=True)
    if chosen.one:
        print(one(chosen.one, chosen.text.resolve(), chosen.work.resolve(), processor=chosen.processor))
        return
    sides = {"before": chosen.before.resolve(), "now": Path(__file__).resolve().parents[1]}
    for recipe in chosen.only:
        found: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(chosen.rounds + (recipe in VECTORS)):
            for side, folder in sides.items():
                command = [sys.executable, __file__, "--one", recipe, "--text", str(chosen.text), "--work", str(chosen.work)]
                own = {**os.environ, "PYTHONPATH": str(folder)}
                if chosen.processor:
                    command, own = [*command, "--processor"], {**own, "OMP_NUM_THREADS": "1"}
                done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
                if number or recipe not in VECTORS:  # the first run of word vectors compiles
                    found[side].append(float(done.stdout.split()[-1]))
        before, now = (median(found[side]) for side in sides)
        print(f"{recipe:<18} {before:>12,.0f} {now:>12,.0f} tokens/s  {now / before:.2f}   "
              f"{' '.join(f'{side} {min(found[side]):,.0f}-{max(found[side]):,.0f}' for side in sides)}", flush=True)


if __name__ == "__main__":
    main()
