"""What networks that read ten million words know of English grammar: BLiMP (Warstadt et al., 2020) against processor time.

    python benchmarks/grammar.py --data DATA --work runs/grammar --recipe quick --tokens 10e6
    python benchmarks/grammar.py --data DATA --work runs/grammar --recipe quick --tokens 10e6 --set network.transformer.layers=6
    python benchmarks/grammar.py --table

Pre-trains one network as cloze fits it to a number of tokens and scores it: the share of minimal pairs whose acceptable sentence
is the more probable one (a tie counts as wrong). The text is ten million words of novels and Wikipedia (--novels: the share of
the novels), with one tokenizer for each share. Budgets are tokens, so that other work on the machine changes no result; `cpu` are
seconds of the processor for pre-training, one thread, summed over the calls of an interrupted run. Held-out losses are of
Wikipedia text under the network's own exercise, so compare them within one exercise only. A finished run is a line of
results/grammar.jsonl and is not repeated; rerun the command to resume an interrupted one.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import hashlib
import json
import lzma
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweep import RESULTS, Cell, Ledger, cut, documents, store_of

WORDS = 9_900_000
SAVED = ["training.keep=1", "training.checkpoint_every=500", "training.held_out=0.0", "training.evaluate_every=0.1"]
ARTICLE = re.compile(r"<doc .*?</doc>\n", re.DOTALL)


def text_of(data: Path, work: Path, novels: float) -> str:
    """Write ten million words, and their held-out text, into `work`/text; returns their name."""
    cut(data, work)
    name = f"words-{novels:g}"
    path = work / f"text/{name}.txt"
    if not path.exists():
        books = [lzma.decompress(file.read_bytes()).decode("utf-8-sig") for file in sorted((data / "text_en_books").glob("*.xz"))]
        with lzma.open(data / "text_en_wiki/train.txt.xz", "rt", encoding="utf-8-sig") as file:
            articles = ARTICLE.findall(file.read())
        parts = [documents(taken(books, int(WORDS * novels)))]
        parts += taken(articles, WORDS - len(parts[0].split()))
        path.write_text("".join(parts), encoding="utf-8")
        shutil.copy(work / "text/wiki.valid.txt", work / f"text/{name}.valid.txt")
    return name


def taken(texts: list[str], words: int) -> list[str]:
    """The first texts, as many as have no more than this number of words together."""
    chosen = []
    for text in texts:
        words -= len(text.split())
        if words < 0:
            break
        chosen.append(text)
    return chosen


def run(wanted: Cell, data: Path, work: Path) -> dict[str, Any] | None:
    """Pre-train and score one network; None if a signal stopped it."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.reader import Reader, orders_of
    from cloze.decoding.scores.minimal_pairs import overall, prefer, read_pairs
    from cloze.decoding.scores.scoring import method_of
    from cloze.runs.run import pretrain

    recipe = str((work / wanted["recipe"]).resolve()) if wanted["recipe"].endswith(".yaml") else wanted["recipe"]
    store = store_of(recipe, text_of(data, work, wanted["novels"]), wanted["set"], work)
    out = work / f"runs/{hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:12]}"
    values = [value for value in wanted["set"] if not value.startswith("text")]
    before, spent = time.process_time(), out.with_suffix(".cpu")
    outcome = pretrain(
        recipe, corpus=str(store), out=out, budget=f"{wanted['tokens']}tokens", size=wanted["size"], seed=wanted["seed"],
        overrides=[*SAVED, *values], held_out=[f"{store}.valid"], device="cpu", report=lambda told: print(told, flush=True),
    )
    cpu = time.process_time() - before + (float(spent.read_text(encoding="utf-8")) if spent.exists() else 0.0)
    spent.write_text(f"{cpu:.1f}", encoding="utf-8")
    if not outcome.finished:
        return None
    log = [json.loads(line) for line in (out / "cloze/log.jsonl").read_text(encoding="utf-8").splitlines()]
    held = [record for record in log if record["event"] == "held_out"]
    loaded = load_checkpoint(out)
    pairs = read_pairs(data / "minpairs_en_blimp", limit=wanted["pairs"])
    right = {}
    for order in orders_of(loaded):
        method, head = method_of(loaded, order)
        chosen = prefer(Reader.of(loaded, order=order), head, pairs, method=method)
        right[order] = {"all": overall(chosen).right, **{one.file: one.right for one in chosen}}
    return {
        "baselines": next(record["baselines"] for record in log if record.get("baselines")), "right": right, "of": len(pairs),
        "parameters": sum(one.numel() for one in loaded.network.parameters()), "steps": outcome.step,
        "cpu": round(cpu), "epochs": round(held[-1]["epochs"], 2), "metrics": held[-1].get("metrics"),
        "curve": [[at["step"], at["tokens"], {name: round(loss, 4) for name, loss in at["objectives"].items()}] for at in held],
        "fitted": json.loads((out / "cloze/run.json").read_text(encoding="utf-8")).get("fitted"),
    }  # fmt: skip


def table(ledger: Ledger) -> Iterator[str]:
    """Every run, with the accuracy of each order it reads in."""
    yield "| recipe | changes | novels | parameters | million tokens | minutes of a core | held-out loss | BLiMP, % |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in ledger.results():
        scores = ", ".join(f"{100 * right['all'] / one['of']:.1f} ({order})" for order, right in one["right"].items())
        loss = ", ".join(f"{loss:.2f}" for loss in one["curve"][-1][2].values())
        minutes = f"{one['cpu'] / 60:.0f}" if "cpu" in one else "–"
        changes = " ".join(value.removeprefix("network.transformer.") for value in one["set"]) or "–"
        yield (
            f"| {one['recipe']} | {changes} | {one['novels']:.0%} | {one['parameters'] / 1e6:.1f} M | "
            f"{one['curve'][-1][1] / 1e6:.0f} | {minutes} | {loss} | {scores} |"
        )


def main() -> None:
    """Do one run, unless the ledger has it."""
    parser = argparse.ArgumentParser(description="Train a network on ten million words and ask it for minimal pairs.")
    parser.add_argument("--data", type=Path, help="the folder of text_en_wiki, text_en_books and minpairs_en_blimp")
    parser.add_argument("--work", type=Path, help="where texts, stores and unfinished runs are kept")
    parser.add_argument("--recipe", default="quick", help="a name, or a YAML file in --work")
    parser.add_argument("--size", help="the published size unless given")
    parser.add_argument("--tokens", type=float, default=10e6)
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--novels", type=float, default=0.5, help="the share of novels in the ten million words")
    parser.add_argument("--pairs", type=int, default=150, help="of each paradigm")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the table and do nothing else")
    chosen = parser.parse_args()
    ledger = Ledger(RESULTS / "grammar.jsonl")
    if chosen.table:
        print("\n".join(table(ledger)))
        return
    if chosen.data is None or chosen.work is None:
        parser.error("give --data and --work")
    wanted = {"recipe": chosen.recipe, "size": chosen.size, "set": chosen.set, "tokens": int(chosen.tokens),
              "novels": chosen.novels, "pairs": chosen.pairs, "seed": chosen.seed}  # fmt: skip
    if not ledger.has(wanted):
        found = run(wanted, chosen.data, chosen.work.resolve())
        if found is None:
            raise SystemExit("Stopped by a signal. Rerun the command to resume.")
        ledger.add(wanted, found)
    print("\n".join(table(ledger)))


if __name__ == "__main__":
    main()
