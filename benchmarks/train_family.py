"""XLNet, T5 and BART on a CPU against loops over transformers' classes, and packed rows against padded ones.

    python benchmarks/train_family.py [--systems xlnet t5 bart packing] [--peers fp32 bf16 bf16+compile] [--rounds 3]
                                      [--ahead] [--allocator LIBRARY]

Shape and manner of `train_cpu.py`: 4 layers (T5 and BART: 4 and 4), width 256, rows of 128 tokens, batch 32, vocabulary 8k,
AdamW and clipping on both sides, each side in a process of its own in turn, the first third of the time thrown away.
What is counted is rows per second: a row holds the same stretch of raw text on both sides. Ours is `pretrain` as a user runs
it, data included, on the recipe cut to the shape (XLNet: no memory, one token in six asked). The peer of XLNet is
`XLNetLMHeadModel` with `DataCollatorForPermutationLanguageModeling` in the loop, or with `--ahead` on batches collated
outside the timing. The peers of T5 and BART read batches that our own exercise made, outside the timing: their corruption is
free. `packing` is our own roberta-doc-sentences on documents of natural length, packed against padded, in real tokens per
second.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import train_cpu
from train_cpu import BATCH, HEADS, LAYERS, LENGTH, PEERS, VOCABULARY, WIDTH, Stopwatch

RECIPES = {"xlnet": "xlnet-base", "t5": "t5-small", "bart": "bart-base", "packing": "roberta-doc-sentences"}
AHEAD = 64  # batches that a peer without a collator of its own goes round


def main() -> None:
    """Run every side in turn and print one line per system."""
    asked = parse()
    if asked.side:
        print("RATE", run_side(asked.side, asked.system, Path(asked.work), asked.seconds, asked.ahead))
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(asked.work or folder)
        for system in asked.systems:
            prepare(system, work)
        records = [compare(system, asked, work) for system in asked.systems]
    from results import write_results

    write_results("train_family", records)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--systems", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--peers", nargs="+", default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each side in each round")
    parser.add_argument("--ahead", action="store_true", help="XLNet's peer reads batches that were collated beforehand")
    parser.add_argument("--work", help="folder that keeps the token stores")
    parser.add_argument("--allocator", default="kept", help="glibc told to keep its memory, or a library for both sides")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--system", help=argparse.SUPPRESS)
    return parser.parse_args()


def prepare(system: str, work: Path) -> None:
    """A token store of Python's own documentation for the recipe, with its kind of tokenizer at about 8k pieces."""
    if (work / system).exists():
        return
    from cloze.corpus.readers.python_docs import python_docs
    from cloze.recipe.load import load_recipe
    from cloze.runs.corpora import open_corpus

    work.mkdir(parents=True, exist_ok=True)
    kind = "byte_bpe" if system in ("bart", "packing") else "unigram"
    recipe = load_recipe(RECIPES[system], overrides=[f"text.tokenizer.{kind}.size={VOCABULARY}"])
    text, documents = work / f"{system}.txt", [document.text.split("\n\n") for document in python_docs()]
    paragraphs = [[" ".join(part.split()) for part in document if part.strip()] for document in documents]
    between = "\n\n" if system == "packing" else "\n"  # a blank line ends a document: there, every paragraph is one
    text.write_text("\n\n".join(between.join(document) for document in paragraphs), encoding="utf-8")
    open_corpus(recipe, [str(text)], work / system, report=lambda line: None)


def compare(system: str, asked: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Interleaved rounds of ours and every peer: median rates and the ratio to the best peer."""
    sides = ["packed", "padded"] if system == "packing" else ["ours", *asked.peers]
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(asked.rounds):
        for side in sides:
            rates[side].append(in_a_process(side, system, asked, work))
    middle = {side: statistics.median(found) for side, found in rates.items()}
    best = max(sides[1:], key=lambda side: middle[side])
    record = {
        "system": system, "allocator": Path(asked.allocator).name, "unit": "real tokens/s" if system == "packing" else "rows/s",
        **{side: round(value, 1) for side, value in middle.items()}, "best_peer": best,
        "ratio": round(middle[sides[0]] / middle[best], 2), "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(record), flush=True)
    return record


def in_a_process(side: str, system: str, asked: argparse.Namespace, work: Path) -> float:
    """One side in a fresh process, under the allocator that all sides share."""
    command = [sys.executable, __file__, "--side", side, "--system", system, "--work", str(work)]
    command += ["--seconds", str(asked.seconds), *(["--ahead"] if asked.ahead else [])]
    done = subprocess.run(command, env=train_cpu.preloading(asked.allocator), capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RATE")]
    if not lines:
        raise SystemExit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return float(lines[-1].split()[1])


def run_side(side: str, system: str, work: Path, seconds: float, ahead: bool) -> float:
    """Rows per second of one side (`packing`: real tokens per second)."""
    from cloze.training.hardware import keep_memory

    keep_memory()
    if side in ("ours", "packed", "padded"):
        return ours(system, work, seconds, packing=side == "packed")
    model, batches = {"xlnet": xlnet, "t5": t5, "bart": bart}[system](work, ahead)
    return loop(side, model, batches, seconds)


def recipe_of(system: str, work: Path) -> Path:
    """The recipe as a file of its own: AdamW as the peers, one length from the first step to the last."""
    import cloze

    text = (Path(cloze.__file__).parent / "recipes" / f"{RECIPES[system]}.yaml").read_text(encoding="utf-8")
    text = re.sub(r"optimizer: \{.*\}", "optimizer: {adamw: {weight_decay: 0.01}}", text)
    path = work / f"{system}.yaml"
    path.write_text(re.sub(r"schedule:\n( +- .*\n)+", "", text), encoding="utf-8")
    return path


def changes(system: str) -> list[str]:
    """What cuts a recipe to the shape."""
    network, corpus = {
        "xlnet": ("two_stream", "streams"), "t5": ("encoder_decoder", "passages"), "bart": ("encoder_decoder", "passages"),
        "packing": ("transformer", "passages"),
    }[system]
    shape = {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "feed_forward.inner": 4 * WIDTH}
    if system == "xlnet":
        shape |= {"memory.size": 0, "memory.reuse": 0}
    made = [f"network.{network}.{name}={value}" for name, value in shape.items()]
    made += [f"corpus.{corpus}.length={LENGTH}", f"training.batch={BATCH}", "training.log_every=4", "training.clip=1.0"]
    made += ["training.evaluate_every=0.9", "training.checkpoint_every=100000"]  # a peer does neither
    if system == "xlnet":
        made += ["corpus.streams.reuse=0"]
    return made


def ours(system: str, work: Path, seconds: float, *, packing: bool) -> float:
    """`pretrain` on the store; the rate is read from the run's own log, behind the first third of the time."""
    from cloze.runs.run import pretrain

    with tempfile.TemporaryDirectory() as out:
        pretrain(
            recipe_of(system, work), corpus=work / system / "store", out=out, budget=f"{round(seconds)}s",
            overrides=[*changes(system), f"training.packing={str(packing).lower()}"], device="cpu",
            report=lambda line: None, fit=False,
        )
        log = (Path(out) / "cloze" / "log.jsonl").read_text().splitlines()
    events = [event for event in map(json.loads, log) if "tokens_per_second" in event and event["seconds"] > seconds / 3]
    if system == "packing":
        return statistics.median(event["tokens_per_second"] for event in events)
    spans = [
        (later["seconds"] - sooner["seconds"]) / (later["step"] - sooner["step"])
        for sooner, later in zip(events, events[1:], strict=False)
    ]
    return BATCH / statistics.median(spans)


def loop(side: str, model: Any, batches: Iterator[dict[str, Any]], seconds: float) -> float:
    """A plain loop over a transformers class: autocast, fused AdamW, clipping."""
    import torch

    model.train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01, fused=True)
    call = torch.compile(model) if side.endswith("compile") else model
    watch = Stopwatch(seconds)
    for batch in batches:
        with torch.autocast("cpu", torch.bfloat16, enabled=side != "fp32"):
            loss = call(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if not watch.step():
            break
    return watch.rate() / LENGTH


def xlnet(work: Path, ahead: bool) -> tuple[Any, Iterator[dict[str, Any]]]:
    """XLNet with its own collator, every position a query as that collator asks."""
    import transformers as t

    rows = train_cpu.ids_of(work / "xlnet" / "store")
    tokenizer = t.AutoTokenizer.from_pretrained(work / "xlnet" / "store" / "tokenizer")
    config = t.XLNetConfig(
        vocab_size=len(tokenizer), d_model=WIDTH, n_layer=LAYERS, n_head=HEADS, d_inner=4 * WIDTH, ff_activation="gelu_new",
        dropout=0.1,
    )
    collator = t.DataCollatorForPermutationLanguageModeling(tokenizer)
    batches: Iterator[dict[str, Any]] = (dict(collator(list(ids))) for ids in train_cpu.batches(rows))
    if ahead:
        batches = cycle([next(batches) for _ in range(AHEAD)])
    return t.XLNetLMHeadModel(config), batches


def t5(work: Path, ahead: bool) -> tuple[Any, Iterator[dict[str, Any]]]:
    """T5 v1.0 on our corruption."""
    import transformers as t

    config = t.T5Config(
        vocab_size=VOCABULARY, d_model=WIDTH, d_kv=WIDTH // HEADS, d_ff=4 * WIDTH, num_layers=LAYERS, num_heads=HEADS,
        dropout_rate=0.1, decoder_start_token_id=0,
    )
    return t.T5ForConditionalGeneration(config), our_batches("t5", work)


def bart(work: Path, ahead: bool) -> tuple[Any, Iterator[dict[str, Any]]]:
    """BART on our corruption."""
    import transformers as t

    config = t.BartConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=4 * WIDTH, decoder_ffn_dim=4 * WIDTH, max_position_embeddings=2 * LENGTH,
        dropout=0.1, attention_dropout=0.0, activation_dropout=0.0,
    )
    return t.BartForConditionalGeneration(config), our_batches("bart", work)


def our_batches(system: str, work: Path) -> Iterator[dict[str, Any]]:
    """Batches of our own exercise, made ahead, with the names that transformers' classes know."""
    import torch

    from cloze.batching import Cursor
    from cloze.checkpoint.build import build_step
    from cloze.checkpoint.feeds import build_data
    from cloze.corpus import Store
    from cloze.recipe.load import load_recipe
    from cloze.text import Tokenizer

    recipe = load_recipe(recipe_of(system, work), overrides=changes(system))
    store = Store.open(work / system / "store")
    step = build_step(recipe, vocab_size=VOCABULARY)
    data = build_data(recipe, {"main": store}, step, Tokenizer.load(work / system / "store" / "tokenizer"), seed=0)
    entry, cursor, made = next(iter(recipe.entries)), Cursor(), []
    for _ in range(AHEAD):
        (micro, *_), cursor = data.next(entry, cursor)
        fields, decoder = micro.batch.view("main"), micro.batch.view("decoder")
        read = decoder["tokens"]
        labels = torch.full((read.numel(),), -100)
        labels[decoder["positions/main"]] = decoder["targets/main"]
        batch = {"input_ids": fields["tokens"], "decoder_input_ids": read, "labels": labels.view(read.shape)}
        if "block" in fields:
            batch["attention_mask"] = (fields["block"] > 0).long()
        if "block" in decoder:
            batch["decoder_attention_mask"] = (decoder["block"] > 0).long()
        made.append(batch)
    data.close()
    return cycle(made)


if __name__ == "__main__":
    main()
