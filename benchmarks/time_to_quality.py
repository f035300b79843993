"""How long training takes to reach the same held-out loss: `cloze pretrain` against transformers' `Trainer`.

    python benchmarks/time_to_quality.py --data DATA --work runs/quality [--language en zh] [--minutes 10]
    python benchmarks/time_to_quality.py --figure time_to_quality.svg     # of the finished runs; `make docs` draws it, too

The text (25 MB of Wikipedia), the tokenizer (WordPiece, 8,000 pieces) and the measure are fixed beforehand: rows of 128 tokens
of a held-out text, 15 % of their tokens replaced as in BERT (80 % mask, 10 % another token, 10 % kept), once and for all sides.
Every side is measured in the same way, by transformers' own class on the folder that it wrote.

The peer is `BertForMaskedLM` of the size mini (4 layers, width 256) under the `Trainer` with its masked-LM collator on the same
ids in rows of 128, bf16, fused AdamW, linear warm-up and decay, dropout off. Of its 3 × 3 grid of batch and peak rate every cell
runs for a tenth of the time with its schedule ending there; the best three then get a third, the best of those the whole time.
This favours the peer: its user is taken to know the best cell. Ours are `bert --size mini` in a third of the time and `quick` in
a fifth, as a user types them, no other setting given.

Time is processor time of one thread, so that other work on the machine changes little. First the speed of every side is measured,
in turns: tokens per second while it trains, and for ours the seconds before the first update too (the start of Python, the fit
and its probe; the peer is not charged for imports or for the tokenizing of the text). Then every side gets the tokens that it
reads in its time, and its schedule ends there.

In the end, ours run for shorter and shorter times, start of the process included, for as long as they pass the loss that the
best cell of the peer has after the whole time: the last that does is when they first pass it. A time is a number of tokens over
the speed that was measured in turns, so that a busy machine or another one changes no figure.

Finished runs are in benchmarks/results/time_to_quality.jsonl: rerun the command, it resumes.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import itertools
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reproductions"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import following_the_page
from ledger import Ledger

ROOT = Path(__file__).resolve().parents[1]
LENGTH, VOCABULARY, RATE = 128, 8000, 0.15
BATCHES, PEAKS = (8, 16, 32), (5e-4, 1e-3, 2e-3)
TEXTS = {"en": "wiki", "zh": "zh"}
OURS = {"bert": 1 / 3, "quick": 1 / 5}  # the share of the peer's time
HELD_OUT_ROWS = 512
SHORTER = 12  # runs that look for the first pass, at most
ROUNDS, BURST = 3, 40_000  # of measuring speed, and tokens of a burst


def main() -> None:
    """Every language: the speeds, the grid of the peer, ours, and the table."""
    parser = argparse.ArgumentParser(description="Time to the same held-out loss, against transformers' Trainer.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--figure", type=Path, help="draw the finished runs into this file and do nothing else")
    parser.add_argument("--language", nargs="+", choices=sorted(TEXTS), default=["en", "zh"])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        print("DONE", json.dumps(one_side(json.loads(chosen.side), chosen.work)))
        return
    ledger = Ledger(Path(__file__).parent / "results" / "time_to_quality.jsonl")
    if chosen.figure:
        draw(ledger, chosen.figure)
        return
    from sweep import cut

    cut(chosen.data, chosen.work)
    for language in chosen.language:
        prepare(TEXTS[language], chosen.work)
        compare(TEXTS[language], chosen.minutes * 60, chosen.work, ledger)


def prepare(text: str, work: Path) -> None:
    """A tokenizer and the stores of the text and of its held-out part."""
    if (work / f"{text}.valid.store").exists():
        return
    from cloze.corpus.stores.build import build_store, train_tokenizer_from
    from cloze.text import TextSpec

    normalise = {"lower": True, "strip_accents": True, "cjk_spacing": True, "clean": True}
    spec = TextSpec.of(normalise, "wordpiece", {"size": VOCABULARY})
    file = work / f"text/{text}.txt"
    tokenizer = train_tokenizer_from([str(file)], spec, budget_bytes=20_000_000, report=print)
    build_store([str(file)], tokenizer, work / f"{text}.store", report=lambda line: None)
    build_store([str(work / f"text/{text}.valid.txt")], tokenizer, work / f"{text}.valid.store", report=lambda line: None)


def compare(text: str, seconds: float, work: Path, ledger: Ledger) -> None:
    """Speeds, the peer's grid by halving, and ours."""
    speeds = measure_speeds(text, work, ledger)
    print(json.dumps(speeds), flush=True)
    grid = list(itertools.product(BATCHES, PEAKS))
    best: dict[str, Any] = {}
    for share, keep in ((0.1, 3), (1 / 3, 1), (1.0, 1)):
        ran = []
        for batch, peak in grid:
            tokens = round(speeds[f"Trainer {batch}"]["tokens"] * seconds * share)
            ran.append(run({"side": "Trainer", "text": text, "batch": batch, "peak": peak, "tokens": tokens}, work, ledger))
        ran.sort(key=lambda one: one["loss"])
        grid, best = [(one["batch"], one["peak"]) for one in ran[:keep]], ran[0]
    print(f"{text}: the Trainer in {seconds:.0f} s, batch {best['batch']}, peak {best['peak']:g}: {best['loss']:.3f}", flush=True)
    for recipe, share in OURS.items():
        speed, time_ = speeds[recipe], seconds * share
        tokens = round(speed["tokens"] * (time_ - speed["before"]))
        ours = run({"side": "cloze", "text": text, "recipe": recipe, "tokens": tokens}, work, ledger)
        if ours["cpu"] < 0.9 * time_:  # its speed was measured while the machine was busier
            tokens = round(tokens * time_ / ours["cpu"])
            ours = run({"side": "cloze", "text": text, "recipe": recipe, "tokens": tokens}, work, ledger)
        print(f"{text}: {recipe} in {ours['cpu']:.0f} of {time_:.0f} s: {ours['loss']:.3f}", flush=True)
        passing = first_pass(text, recipe, ours["tokens"], best["loss"], work, ledger)
        if passing is not None:
            time_ = seconds_of(speed, passing["tokens"])
            line = f"{text}: {recipe} first passes {best['loss']:.3f} after {time_:.0f} s, 1/{seconds / time_:.1f} of the time"
            print(line, flush=True)


def speed_of(run: Mapping[str, Any]) -> str:
    """The name under which the speed of a run's side was measured."""
    return str(run["recipe"]) if run["side"] == "cloze" else f"Trainer {run['batch']}"


def seconds_of(speed: Mapping[str, float], tokens: int) -> float:
    """How long a side takes for some tokens at its measured speed, its start included."""
    return speed["before"] + tokens / speed["tokens"]


def first_pass(text: str, recipe: str, tokens: int, goal: float, work: Path, ledger: Ledger) -> dict[str, Any] | None:
    """The shortest run that passes a loss, None if none does: two thirds of the tokens of the one that passed before, then half
    the way back to it, until a run that failed has four fifths of the tokens of one that passed."""
    passing: dict[str, Any] | None = None
    failing = 0
    for _ in range(SHORTER):
        record = run({"side": "cloze", "text": text, "recipe": recipe, "tokens": tokens}, work, ledger)
        if record["loss"] > goal:
            failing = tokens
        else:
            passing = record
        if passing is None or failing >= 0.8 * passing["tokens"]:
            break
        tokens = round(max(passing["tokens"] * 2 / 3, (failing + passing["tokens"]) / 2))
    return passing


def measure_speeds(text: str, work: Path, ledger: Ledger) -> dict[str, dict[str, float]]:
    """Tokens per second of every side while it trains, and for ours the seconds before its first update: medians of rounds."""
    wanted = {"speeds": text, "rounds": ROUNDS, "burst": BURST}
    if known := ledger.results(**wanted):
        return dict(known[0]["sides"])
    sides = [{"side": "Trainer", "text": text, "batch": batch, "peak": 1e-3} for batch in BATCHES]
    sides += [{"side": "cloze", "text": text, "recipe": recipe} for recipe in OURS]
    found: dict[str, list[tuple[float, float]]] = {}
    for _, side in itertools.product(range(ROUNDS), sides):
        short, long = (timed({**side, "tokens": tokens}, work) for tokens in (BURST, 3 * BURST))
        rate = 2 * BURST / (long - short)
        name = side["recipe"] if "recipe" in side else f"Trainer {side['batch']}"
        found.setdefault(str(name), []).append((rate, max(0.0, short - BURST / rate)))
    middle = {
        name: {"tokens": statistics.median(rate for rate, _ in all_), "before": statistics.median(before for _, before in all_)}
        for name, all_ in found.items()
    }
    ledger.add(wanted, {"sides": middle, "rounds_measured": found})
    return middle


def timed(side: dict[str, Any], work: Path) -> float:
    """Seconds of the processor that training a side takes."""
    return float(child({**side, "timed": True}, work)["cpu"])


def run(side: dict[str, Any], work: Path, ledger: Ledger) -> dict[str, Any]:
    """One side, unless the ledger has it."""
    if not ledger.has(side):
        made = child(side, work)
        ledger.add(side, {name: value for name, value in made.items() if name not in side})
    record = ledger.results(**side)[0]
    print(json.dumps({name: value for name, value in record.items() if name != "curve"}), flush=True)
    return record


def child(side: Mapping[str, Any], work: Path) -> dict[str, Any]:
    """One side in a process of its own."""
    command = [sys.executable, __file__, "--work", str(work), "--side", json.dumps(side)]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("DONE ")]
    if not lines:
        raise SystemExit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    record: dict[str, Any] = json.loads(lines[-1].removeprefix("DONE "))
    return record


def one_side(side: dict[str, Any], work: Path) -> dict[str, Any]:
    """Train one side, and measure what it wrote."""
    told = [str(side[name]) for name in ("text", "side", "recipe", "batch", "peak") if name in side]
    folder = work / "sides" / "-".join(told)
    made = trainer(side, work, folder) if side["side"] == "Trainer" else ours(side, work, folder)
    return made if side.get("timed") else {**made, "loss": round(held_out_loss(folder, side["text"], work), 4)}


def ours(side: dict[str, Any], work: Path, folder: Path) -> dict[str, Any]:
    """`cloze pretrain RECIPE --budget TOKENS` on the store, as a user types it."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    store = work / f"{side['text']}.store"
    command = [sys.executable, "-m", "cloze", "pretrain", side["recipe"], "--corpus", str(store), "--out", str(folder)]
    size = [] if side["recipe"] == "quick" else ["--size", "mini"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command, *size, "--budget", f"{side['tokens']}tokens"], check=True, capture_output=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    log = [json.loads(line) for line in (folder / "cloze/log.jsonl").read_text().splitlines()]
    return {
        "cpu": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1), "steps": log[-1]["step"],
        "curve": [[one["tokens"], one["objectives"]] for one in log if one["event"] == "held_out"],
    }  # fmt: skip


def trainer(side: dict[str, Any], work: Path, folder: Path) -> dict[str, Any]:
    """transformers' Trainer for the tokens of its time."""
    import torch
    import transformers as t

    from cloze.training.hardware import keep_memory

    keep_memory()
    torch.set_num_threads(1)
    t.set_seed(0)
    rows, tokenizer = ids_of(work / f"{side['text']}.store")
    config = t.BertConfig(
        vocab_size=len(tokenizer), hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    model = t.BertForMaskedLM(config)
    steps = max(1, round(side["tokens"] / (side["batch"] * LENGTH)))
    arguments = t.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=side["batch"], max_steps=steps, use_cpu=True, bf16=True,
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, max_grad_norm=1.0,
        learning_rate=side["peak"], warmup_steps=round(0.1 * steps), lr_scheduler_type="linear", weight_decay=0.01,
        adam_beta2=0.98, optim="adamw_torch_fused", seed=0,
    )
    collator = t.DataCollatorForLanguageModeling(tokenizer, mlm_probability=RATE)
    trained = t.Trainer(model, arguments, data_collator=collator, train_dataset=[{"input_ids": row} for row in rows])
    began = time.process_time()
    trained.train()
    cpu = time.process_time() - began
    model.save_pretrained(folder)
    return {"cpu": round(cpu, 1), "steps": steps}


def draw(ledger: Ledger, path: Path) -> None:
    """Held-out loss over processor time: the Trainer's best cell of each budget, and ours, each point a run of its own."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, places = plt.subplots(1, len(TEXTS), figsize=(9, 3.6), sharey=True, layout="constrained")
    for (language, text), place in zip(TEXTS.items(), places, strict=True):
        peers: dict[int, dict[str, Any]] = {}  # a tenth of the time, a third of it, and all
        (speeds,) = [known["sides"] for known in ledger.results(speeds=text, rounds=ROUNDS, burst=BURST)]
        for one in ledger.results(side="Trainer", text=text):
            stage = round(math.log(one["cpu"]))
            peers[stage] = min(peers.get(stage, one), one, key=lambda run: run["loss"])
        lines = {"Trainer, best of its grid": list(peers.values())}
        for recipe in OURS:
            lines[recipe] = ledger.results(side="cloze", text=text, recipe=recipe)
        for (name, runs), style in zip(lines.items(), ("s-", "o-", "D-"), strict=True):
            ordered = sorted((seconds_of(speeds[speed_of(run)], run["tokens"]), run["loss"]) for run in runs)
            place.plot(*zip(*ordered, strict=True), style, label=name)
        title = {"en": "English Wikipedia", "zh": "Chinese Wikipedia"}[language]
        place.set(title=title, xlabel="seconds of one core", xlim=(0, None))
        place.grid(alpha=0.3)
    places[0].set_ylabel("held-out loss per hidden token, nats")
    places[0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    path.write_text(following_the_page(path.read_text(encoding="utf-8")), encoding="utf-8")


def ids_of(store: Path) -> tuple[Any, Any]:
    """The store's ids in rows of [CLS], 126 tokens and [SEP], and its tokenizer."""
    import numpy as np
    import torch
    import transformers as t

    from cloze.corpus import Store

    tokenizer = t.AutoTokenizer.from_pretrained(store / "tokenizer")
    tokens = np.asarray(Store.open(store).tokens).astype(np.int64)
    inner = tokens[: len(tokens) // (LENGTH - 2) * (LENGTH - 2)].reshape(-1, LENGTH - 2)
    first = np.full((len(inner), 1), tokenizer.cls_token_id)
    last = np.full((len(inner), 1), tokenizer.sep_token_id)
    return torch.from_numpy(np.concatenate([first, inner, last], axis=1)), tokenizer


def held_out_loss(folder: Path, text: str, work: Path) -> float:
    """Loss per asked token of the masked-LM class that opens a folder, on the fixed rows of the held-out text, in nats."""
    import torch
    import transformers as t

    rows, tokenizer = ids_of(work / f"{text}.valid.store")
    rows = rows[:HELD_OUT_ROWS]
    draw = torch.Generator().manual_seed(1)
    chance = torch.rand(rows.shape, generator=draw)
    chance[:, [0, -1]] = 1.0
    asked = chance < RATE
    shown = torch.where(chance < 0.8 * RATE, tokenizer.mask_token_id, rows)
    other = torch.randint(tokenizer.vocab_size, rows.shape, generator=draw)
    shown = torch.where((chance >= 0.8 * RATE) & (chance < 0.9 * RATE), other, shown)
    model = t.AutoModelForMaskedLM.from_pretrained(folder).eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for start in range(0, len(rows), 32):
            part = slice(start, start + 32)
            scores = model(input_ids=shown[part]).logits[asked[part]].float()
            total += float(torch.nn.functional.cross_entropy(scores, rows[part][asked[part]], reduction="sum"))
            count += len(scores)
    return total / count


if __name__ == "__main__":
    main()
