"""Three claims at mini size: pre-training helps, ELECTRA against BERT, dynamic against static masks.

    python reproductions/spine.py --data ../shared/data --work runs/spine --device cuda --jobs 3
    python reproductions/spine.py --work runs/spine --table

Everything is trained on English Wikipedia text with one WordPiece vocabulary of 8,000 pieces, rows of 128 tokens, three
seeds, and within a comparison on equally many real tokens; then fine-tuned on sentence polarity (Pang and Lee, 2005) split
by a hash of the line. Static masks are compared where they can matter: on a small part of the text, read many times.
A finished run is a line in results/spine.jsonl and is not repeated (ledger.py); tables are made of the given budgets.
What comes out is written to reproductions/spine.md, whatever it is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ledger import RESULTS, Ledger

SEEDS = (0, 1, 2)
RATES = (2e-4,)
# Two CPU cores: small batches, so that few tokens are still some thousands of updates. The rate is one at which ELECTRA's
# discriminator stays sound: at 7e-4 its last layer came to give every token the same vector.
COMMON = ["training.batch=16", "training.rate.linear.peak=3e-4", "training.rate.linear.warmup_steps=100000",
          "training.compile=false", "training.held_out=0.0", "training.keep=1", "training.evaluate_every=0.5"]
SHORT = "schedule[1].set.length=128"  # the recipe's last tenth is at 512


def systems(tokens: str, small_tokens: str) -> dict[str, dict[str, Any]]:
    """Every run: recipe, overrides, store and budget."""
    bert = [*COMMON, SHORT]
    return {
        "bert": {"recipe": "bert", "set": bert, "store": "large", "budget": tokens},
        "electra": {"recipe": "electra-small", "set": COMMON, "store": "large", "budget": tokens},
        "dynamic": {"recipe": "bert", "set": bert, "store": "small", "budget": small_tokens},
        "static": {"recipe": "bert", "set": [*bert, "corpus.passages.static=true"], "store": "small",
                   "budget": small_tokens},
    }


def prepare(data: Path, work: Path) -> None:
    """Stores with one tokenizer, and the polarity files; done once."""
    from cloze.assembly.corpora import trainable
    from cloze.assembly.load import load_recipe
    from cloze.corpus import Store
    from cloze.corpus.build import build_store, train_tokenizer_from

    work.mkdir(parents=True, exist_ok=True)
    text = data / "text_en_wiki" / "train.txt.xz"
    if not Store.is_store(work / "large"):
        spec = trainable(load_recipe("bert", overrides=["text.tokenizer.size=8000"]).texts["main"])
        tokenizer = train_tokenizer_from([text], spec, budget_bytes=20_000_000, report=print)
        build_store([text], tokenizer, work / "large", report=print)
        small = work / "small.txt"
        with lzma.open(text, "rt", encoding="utf-8") as opened:
            part = str(opened.read(100_000))
        small.write_text(part[: part.rindex("</doc>") + len("</doc>\n")], encoding="utf-8")
        build_store([small], tokenizer, work / "small", report=print)
        build_store([data / "text_en_wiki" / "valid.txt.xz"], tokenizer, work / "valid", report=print)
    lines: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for name in ("pos", "neg"):
        file = data / "cls_en_sentence_polarity" / f"rt-polarity.{name}.xz"
        with lzma.open(file, "rt", encoding="utf-8") as opened:
            sentences = opened.read().splitlines()
        for line in sentences:
            bucket = int(hashlib.md5(line.encode()).hexdigest(), 16) % 10
            part_name = "test" if bucket == 0 else "dev" if bucket == 1 else "train"
            lines[part_name].append(json.dumps({"text": line.strip(), "label": name}))
    # The two files stand one after the other: mix them by the same hash.
    for part_name, rows in lines.items():
        rows.sort(key=lambda row: hashlib.md5(row.encode()).hexdigest())
        (work / f"{part_name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


def key(name: str, spec: dict[str, Any], seed: int) -> dict[str, Any]:
    """What a run is known by in the ledger."""
    return {"system": name, "budget": spec["budget"], "seed": seed}


def one(work: Path, name: str, spec: dict[str, Any], seed: int, device: str, ledger: Ledger) -> None:
    """One run and what is measured on it, into the ledger."""
    from cloze.assembly.finetune import finetune, measured_on
    from cloze.assembly.run import pretrain

    started = time.time()
    outcome = pretrain(
        spec["recipe"], corpus=work / spec["store"], out=work / f"run-{name}-{seed}", budget=spec["budget"], size="mini",
        overrides=spec["set"], seed=seed, device=device, held_out=[str(work / "valid")],
        report=lambda text: None, as_published=True,
    )
    if not outcome.finished:
        raise SystemExit(f"{outcome.folder}: stopped by a signal at step {outcome.step}; the same command goes on.")
    log = [json.loads(line) for line in (outcome.folder / "cloze" / "log.jsonl").read_text().splitlines()]
    held_out = [r for r in log if r["event"] == "held_out"][-1]
    trained = [r for r in log if r["event"] == "train"][-1]
    result: dict[str, Any] = {
        "tokens": trained["tokens"], "epochs": trained.get("epochs"),
        "held_out": held_out["objectives"], "metrics": held_out.get("metrics"),
        "seconds_pretraining": round(time.time() - started),
    }
    files = {part: str(work / f"{part}.jsonl") for part in ("train", "dev", "test")}
    twins = {"pretrained": False} | ({"random": True} if name == "bert" else {})
    for twin, scratch in twins.items():
        # The same rates for both, and the one that does best on dev: neither side is tuned better than the other.
        best = -1.0
        for rate in RATES:
            values = ["training.epochs=2", "training.batch=32", f"training.rate.peak={rate}", "task.patience=0"]
            tuned = finetune(
                outcome.folder, train=[files["train"]], dev=[files["dev"]], out=work / f"tuned-{name}-{seed}-{twin}-{rate:g}",
                overrides=values, seeds=(seed + 1,), from_scratch=scratch, device=device,
            )
            if tuned.described["dev"]["accuracy"] > best:
                best = tuned.described["dev"]["accuracy"]
                result[twin] = measured_on(tuned, [files["test"]], "test").described["test"]["accuracy"]
                result[f"{twin}_rate"] = rate
    ledger.add(key(name, spec, seed), result | {"seconds": round(time.time() - started)}, device=device)
    print(name, seed, {k: round(result[k], 4) for k in twins}, {k: round(v, 3) for k, v in result["held_out"].items()},
          f"{time.time() - started:.0f} s", flush=True)


def spread(values: list[float], scale: float = 1.0, digits: int = 1) -> str:
    """Mean ± standard deviation over seeds."""
    around = stdev(values) if len(values) > 1 else 0.0
    return f"{mean(values) * scale:.{digits}f} ± {around * scale:.{digits}f}"


def table(ledger: Ledger, runs: dict[str, dict[str, Any]]) -> str:
    """The results as Markdown."""
    by = {name: ledger.results(system=name, budget=spec["budget"]) for name, spec in runs.items()}
    rows = [("random initialisation", by["bert"], "random"), ("BERT", by["bert"], "pretrained"),
            ("ELECTRA", by["electra"], "pretrained"), ("BERT, dynamic masks, small text", by["dynamic"], "pretrained"),
            ("BERT, static masks, small text", by["static"], "pretrained")]
    lines = ["| system | seeds | pre-training tokens | epochs | held-out masked-token loss | polarity accuracy, test |",
             "|---|---|---|---|---|---|"]
    for title, results, key in rows:
        if not results:
            continue
        random = key == "random"
        loss = "–" if random else spread([r["held_out"]["token_prediction"] for r in results], digits=3)
        tokens = "0" if random else f"{mean(r['tokens'] for r in results) / 1e6:.1f} M"
        epochs = "–" if random else f"{mean(r['epochs'] for r in results):.1f}"
        lines.append(f"| {title} | {len(results)} | {tokens} | {epochs} | {loss} | {spread([r[key] for r in results], 100)} |")
    return "\n".join(lines)


def main() -> None:
    """Prepare, run what has not been run, write the table."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--data", type=Path, default=Path("../shared/data"))
    options.add_argument("--work", type=Path, default=Path("runs/spine"))
    options.add_argument("--device", default="auto")
    options.add_argument("--tokens", default="0.25Mtokens")
    options.add_argument("--small-tokens", default="0.25Mtokens")
    options.add_argument("--ledger", type=Path, default=RESULTS / "spine.jsonl", help="finished runs, one a line")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--only", default="", help="SYSTEM:SEED, as the jobs are started")
    options.add_argument("--systems", default="bert,electra,dynamic,static", help="those to run")
    options.add_argument("--table", action="store_true", help="run nothing")
    chosen = options.parse_args()
    runs = systems(chosen.tokens, chosen.small_tokens)
    ledger = Ledger(chosen.ledger)
    if chosen.only:
        name, seed = chosen.only.split(":")
        one(chosen.work, name, runs[name], int(seed), chosen.device, ledger)
        return
    if not chosen.table:
        wanted = [(name, seed) for seed in SEEDS for name in chosen.systems.split(",")]
        waiting = [f"{name}:{seed}" for name, seed in wanted if not ledger.has(key(name, runs[name], seed))]
        if waiting:
            prepare(chosen.data, chosen.work)
        running: list[subprocess.Popen[bytes]] = []
        while waiting or running:
            running = [job for job in running if job.poll() is None]
            while waiting and len(running) < chosen.jobs:
                running.append(subprocess.Popen([sys.executable, *sys.argv, "--only", waiting.pop(0)]))
            time.sleep(0.2)
    print(table(ledger, runs))


if __name__ == "__main__":
    main()
