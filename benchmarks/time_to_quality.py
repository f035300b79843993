"""How long training takes to reach the same held-out loss: `cloze pretrain` against transformers' `Trainer`.

    python benchmarks/time_to_quality.py --data DATA --work runs/quality [--language en zh] [--minutes 10]

The text (25 MB of Wikipedia), the tokenizer (WordPiece, 8,000 pieces) and the measure are fixed beforehand: rows of 128 tokens
of a held-out text, 15 % of their tokens replaced as in BERT (80 % mask, 10 % another token, 10 % kept), once and for all sides.
Every side is measured in the same way, by transformers' own class on the folder that it wrote.

The peer is `BertForMaskedLM` of the size mini (4 layers, width 256) under the `Trainer` with its masked-LM collator on the same
ids in rows of 128, bf16, fused AdamW, linear warm-up and decay, dropout off. Of its 3 × 3 grid of batch and peak rate every cell
runs for a tenth of the time with its schedule ending there; the best three then get a third, the best of those the whole time.
This favours the peer: its user is taken to know the best cell. Ours are `bert --size mini` in a third of the time and `quick` in
a fifth, as a user types them, no other setting given.

Sides run one after the other, alone on the machine, and the time of each is that of training: of ours with everything from the
start of the command (the fit and its probe, too), of the peer without imports and without the tokenizing of the text.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

LENGTH, VOCABULARY, RATE = 128, 8000, 0.15
BATCHES, PEAKS = (8, 16, 32), (5e-4, 1e-3, 2e-3)
TEXTS = {"en": "wiki", "zh": "zh"}
HELD_OUT_ROWS = 512


def main() -> None:
    """Every language: the grid of the peer, then ours, then the table and the curves."""
    parser = argparse.ArgumentParser(description="Time to the same held-out loss, against transformers' Trainer.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--language", nargs="+", choices=sorted(TEXTS), default=["en", "zh"])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        print("DONE", json.dumps(one_side(json.loads(chosen.side), chosen.work)))
        return
    from sweep import cut

    cut(chosen.data, chosen.work)
    records = []
    for language in chosen.language:
        prepare(TEXTS[language], chosen.work)
        records += compare(TEXTS[language], chosen.minutes * 60, chosen.work)
    from results import write_results

    write_results("time_to_quality", records)


def prepare(text: str, work: Path) -> None:
    """A tokenizer and the stores of the text and of its held-out part."""
    if (work / f"{text}.valid.store").exists():
        return
    from cloze.corpus.build import build_store, train_tokenizer_from
    from cloze.text import TextSpec

    normalise = {"lower": True, "strip_accents": True, "cjk_spacing": True, "clean": True}
    spec = TextSpec.of(normalise, "wordpiece", {"size": VOCABULARY})
    file = work / f"text/{text}.txt"
    tokenizer = train_tokenizer_from([str(file)], spec, budget_bytes=20_000_000, report=print)
    build_store([str(file)], tokenizer, work / f"{text}.store", report=lambda line: None)
    build_store([str(work / f"text/{text}.valid.txt")], tokenizer, work / f"{text}.valid.store", report=lambda line: None)


def compare(text: str, seconds: float, work: Path) -> list[dict[str, Any]]:
    """The peer's grid by halving, and ours."""
    grid = [{"batch": batch, "peak": peak} for batch, peak in itertools.product(BATCHES, PEAKS)]
    records: list[dict[str, Any]] = []
    for share, keep in ((0.1, 3), (1 / 3, 1), (1.0, 1)):
        ran = [run({"side": "Trainer", "text": text, "seconds": seconds * share, **cell}, work) for cell in grid]
        records += ran
        grid = [{"batch": one["batch"], "peak": one["peak"]} for one in sorted(ran, key=lambda one: one["loss"])[:keep]]
    for recipe, share in (("bert", 1 / 3), ("quick", 1 / 5), ("bert", 1.0), ("quick", 1.0)):
        records.append(run({"side": "cloze", "text": text, "recipe": recipe, "seconds": seconds * share}, work))
    return records


def run(side: dict[str, Any], work: Path) -> dict[str, Any]:
    """One side in a process of its own."""
    command = [sys.executable, __file__, "--work", str(work), "--side", json.dumps(side)]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("DONE ")]
    if not lines:
        raise SystemExit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    record: dict[str, Any] = json.loads(lines[-1].removeprefix("DONE "))
    print(json.dumps({name: value for name, value in record.items() if name != "curve"}), flush=True)
    return record


def one_side(side: dict[str, Any], work: Path) -> dict[str, Any]:
    """Train one side and measure what it wrote."""
    told = [str(side[name]) for name in ("text", "side", "recipe", "batch", "peak") if name in side]
    folder = work / "sides" / "-".join(told)
    made = trainer(side, work, folder) if side["side"] == "Trainer" else ours(side, work, folder)
    return {**side, **made, "loss": round(held_out_loss(folder, side["text"], work), 4)}


def ours(side: dict[str, Any], work: Path, folder: Path) -> dict[str, Any]:
    """`cloze pretrain RECIPE --budget SECONDS` on the store."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    store = work / f"{side['text']}.store"
    command = [sys.executable, "-m", "cloze", "pretrain", side["recipe"], "--corpus", str(store), "--out", str(folder)]
    size = [] if side["recipe"] == "quick" else ["--size", "mini"]
    began = time.perf_counter()
    subprocess.run([*command, *size, "--budget", f"{round(side['seconds'])}s"], check=True, capture_output=True)
    log = [json.loads(line) for line in (folder / "cloze/log.jsonl").read_text().splitlines()]
    return {
        "took": round(time.perf_counter() - began, 1), "steps": log[-1]["step"], "tokens": log[-1].get("tokens"),
        "curve": [[one["seconds"], one["objectives"]] for one in log if one["event"] == "held_out"],
    }  # fmt: skip


def trainer(side: dict[str, Any], work: Path, folder: Path) -> dict[str, Any]:
    """transformers' Trainer until the time is over: a schedule by time, since its user has found out how many steps fit."""
    import torch
    import transformers as t

    from cloze.training.hardware import keep_memory

    keep_memory()
    t.set_seed(0)
    rows, tokenizer = ids_of(work / f"{side['text']}.store")
    config = t.BertConfig(
        vocab_size=len(tokenizer), hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    model = t.BertForMaskedLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=side["peak"], betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    began = time.perf_counter()

    def passed(_: int) -> float:
        share = (time.perf_counter() - began) / side["seconds"]
        return max(0.0, min(share / 0.1, (1 - share) / 0.9))

    class Stop(t.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = time.perf_counter() - began > side["seconds"]

    arguments = t.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=side["batch"], max_steps=10**6, use_cpu=True, bf16=True, report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True, max_grad_norm=1.0,
    )
    collator = t.DataCollatorForLanguageModeling(tokenizer, mlm_probability=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, passed)
    trained = t.Trainer(
        model, arguments, data_collator=collator, train_dataset=[{"input_ids": row} for row in rows], callbacks=[Stop()],
        optimizers=(optimizer, schedule),
    )
    trained.train()
    steps = trained.state.global_step
    model.save_pretrained(folder)
    return {"took": round(time.perf_counter() - began, 1), "steps": steps, "tokens": steps * side["batch"] * LENGTH}


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
