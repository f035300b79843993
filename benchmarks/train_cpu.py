"""Training on a CPU, side by side with transformers: tokens per second of whole steps, data loading included.

    python benchmarks/train_cpu.py [--systems bert gpt2 electra] [--dropout 0.1 0] [--rounds 3] [--seconds 40] [--allocator plain]

Shape: 4 layers, width 256, rows of 128 tokens, batch 32, vocabulary about 8k, AdamW, clipping at 1. Ours is `pretrain` as a
user runs it, on a token store. The peer of `bert` (masked language modelling) is transformers' `Trainer` with
`DataCollatorForLanguageModeling` over the same ids; for `gpt2` and `electra`, which have no such trainer (ELECTRA) or to
leave the trainer's own cost out, it is a plain loop over transformers' classes. Each peer runs in float32, bfloat16
autocast and bfloat16 with `torch.compile`; the best counts. Every side runs in a process of its own, in turn, round by
round, under the same allocator: glibc told to keep its memory, which is what `pretrain` does by itself; with `--allocator
FILE` another library (libjemalloc.so.2, libtcmalloc_minimal.so.4); with `--allocator plain` the peer has glibc as it comes.
The first third of each run's time is thrown away (compilation, first touches). Ratios within one run count; absolute numbers
depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

LENGTH, BATCH, VOCABULARY, LAYERS, WIDTH, HEADS = 128, 32, 8000, 4, 256, 4
PEERS = ("fp32", "bf16", "bf16+compile")


def main() -> None:
    """Run every side in turn and print one line per system and dropout rate."""
    asked = parse()
    if asked.side:
        print("RATE", run_side(asked.side, asked.system, asked.rate, Path(asked.work), asked.seconds, asked.allocator))
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(asked.work or folder)
        prepare(work)
        records = [compare(system, rate, asked, work) for system in asked.systems for rate in asked.dropout]
    from results import write_results

    write_results("train_cpu", records)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--systems", nargs="+", default=["bert", "gpt2", "electra"])
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.1, 0.0])
    parser.add_argument("--peers", nargs="+", default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each side in each round")
    parser.add_argument("--work", help="folder that keeps the token store")
    parser.add_argument("--allocator", default="kept", help="kept, plain, or a library for both sides")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--system", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def prepare(work: Path) -> None:
    """A token store of Python's own documentation: about 8k WordPiece tokens, no download."""
    if (work / "store").exists():
        return
    from cloze.corpus.readers.python_docs import python_docs
    from cloze.corpus.stores.build import build_store, train_tokenizer_from
    from cloze.text import TextSpec

    work.mkdir(parents=True, exist_ok=True)
    text = work / "docs.txt"
    paragraphs = (" ".join(document.text.split()) for document in python_docs())
    text.write_text("\n\n".join(paragraphs), encoding="utf-8")
    spec = TextSpec.of({}, "wordpiece", {"size": VOCABULARY})
    tokenizer = train_tokenizer_from([str(text)], spec, format="auto", seed=0, report=print)
    build_store([str(text)], tokenizer, work / "store", format="auto", report=lambda line: None)


def compare(system: str, rate: float, asked: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Interleaved rounds of ours and every peer: medians and the ratio to the best peer."""
    sides = ["ours", *asked.peers]
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(asked.rounds):
        for side in sides:
            rates[side].append(in_a_process(side, system, rate, work, asked.seconds, asked.allocator))
    middle = {side: statistics.median(found) for side, found in rates.items()}
    best = max(asked.peers, key=lambda side: middle[side])
    record = {
        "system": system, "dropout": rate, "allocator": Path(asked.allocator).name,
        **{side: round(value) for side, value in middle.items()}, "best_peer": best,
        "ratio": round(middle["ours"] / middle[best], 2), "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(record), flush=True)
    return record


def in_a_process(side: str, system: str, rate: float, work: Path, seconds: float, allocator: str) -> float:
    """One side in a fresh process."""
    command = [sys.executable, __file__, "--side", side, "--system", system, "--rate", str(rate), "--work", str(work)]
    command += ["--seconds", str(seconds), "--allocator", allocator]
    done = subprocess.run(command, env=preloading(allocator), capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RATE")]
    if not lines:
        raise SystemExit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return float(lines[-1].split()[1])


def preloading(allocator: str) -> dict[str, str]:
    """The environment of a side: a library loaded first where one is named."""
    return {**os.environ, **({} if allocator in ("kept", "plain") else {"LD_PRELOAD": allocator})}


def run_side(side: str, system: str, rate: float, work: Path, seconds: float, allocator: str) -> float:
    """Tokens per second of one side."""
    from cloze.training.hardware import keep_memory

    if side == "ours":
        return ours(system, rate, work, seconds)
    if allocator != "plain":
        keep_memory()
    if system == "bert":
        return trainer(side, rate, work, seconds)
    return loop(side, system, rate, work, seconds)


def ours(system: str, rate: float, work: Path, seconds: float) -> float:
    """`pretrain` on the store; the rate is read from the run's own log, behind the first third of the time."""
    from cloze.runs.run import pretrain

    recipe = {"bert": "roberta", "gpt2": "gpt2", "electra": "electra-small"}[system]
    shape = {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "feed_forward.inner": 4 * WIDTH, "dropout": rate,
        "positions.max_length": LENGTH}
    if system == "electra":
        narrow = {"layers": LAYERS, "width": WIDTH // 4, "heads": 1, "feed_forward.inner": WIDTH, "dropout": rate,
            "positions.max_length": LENGTH}
        changed = [f"networks.discriminator.transformer.{k}={v}" for k, v in shape.items()]
        changed += [f"networks.generator.transformer.{k}={v}" for k, v in narrow.items()]
    else:
        changed = [f"network.transformer.{k}={v}" for k, v in shape.items()]
    changed += [f"corpus.passages.length={LENGTH}", f"training.batch={BATCH}", "training.log_every=4", "training.clip=1.0"]
    changed += ["training.evaluate_every=0.9", "training.checkpoint_every=100000"]  # a peer does neither
    changed += ['corpus.passages.separator="[SEP]"'] if system == "gpt2" else []
    with tempfile.TemporaryDirectory() as out:
        pretrain(
            recipe, corpus=work / "store", out=out, budget=f"{round(seconds)}s", overrides=changed, device="cpu",
            report=lambda line: None, fit=False,
        )
        log = (Path(out) / "cloze" / "log.jsonl").read_text().splitlines()
    events = [event for event in map(json.loads, log) if "tokens_per_second" in event and event["seconds"] > seconds / 3]
    return statistics.median(event["tokens_per_second"] for event in events)


def ids_of(store: Path) -> Any:
    """The store's ids in rows of `LENGTH`, as a tensor: what grouping gives the peer."""
    import numpy as np
    import torch

    from cloze.corpus import Store

    tokens = np.asarray(Store.open(store).tokens).astype(np.int64)
    return torch.from_numpy(tokens[: len(tokens) // LENGTH * LENGTH].reshape(-1, LENGTH))


def trainer(side: str, rate: float, work: Path, seconds: float) -> float:
    """transformers' Trainer with its masked-LM collator."""
    import transformers as t

    rows = ids_of(work / "store")
    tokenizer = t.AutoTokenizer.from_pretrained(work / "store" / "tokenizer")
    config = t.BertConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH, max_position_embeddings=LENGTH, hidden_dropout_prob=rate,
        attention_probs_dropout_prob=rate,
    )
    watch = Stopwatch(seconds)

    class Stop(t.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = not watch.step()

    with tempfile.TemporaryDirectory() as out:
        arguments = t.TrainingArguments(
            output_dir=out, per_device_train_batch_size=BATCH, max_steps=10**6, use_cpu=True, bf16=side != "fp32",
            torch_compile=side.endswith("compile"), optim="adamw_torch_fused", report_to=[], save_strategy="no",
            logging_strategy="no", disable_tqdm=True, max_grad_norm=1.0,
        )
        examples = [{"input_ids": row} for row in rows]
        collator = t.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
        model = t.BertForMaskedLM(config)
        t.Trainer(model, arguments, data_collator=collator, train_dataset=examples, callbacks=[Stop()]).train()
    return watch.rate()


def loop(side: str, system: str, rate: float, work: Path, seconds: float) -> float:
    """A plain loop over transformers' classes: autocast, fused AdamW, clipping."""
    import torch

    rows = ids_of(work / "store")
    modules, loss_of = {"gpt2": gpt2, "electra": electra}[system](rate)
    parameters = list({id(p): p for module in modules for p in module.parameters()}.values())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01, fused=True)
    loss = torch.compile(loss_of) if side.endswith("compile") else loss_of
    watch = Stopwatch(seconds)
    for ids in batches(rows):
        with torch.autocast("cpu", torch.bfloat16, enabled=side != "fp32"):
            total = loss(ids)
        total.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if not watch.step():
            return watch.rate()
    return watch.rate()


def batches(rows: Any) -> Iterator[Any]:
    """Shuffled batches without end."""
    import torch

    while True:
        order = torch.randperm(len(rows))
        yield from (rows[order[start:start + BATCH]] for start in range(0, len(rows) - BATCH + 1, BATCH))


def gpt2(rate: float) -> tuple[list[Any], Callable[[Any], Any]]:
    """GPT-2 with its own loss over every position."""
    import transformers as t

    config = t.GPT2Config(
        vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=LENGTH, resid_pdrop=rate,
        embd_pdrop=rate, attn_pdrop=rate, bos_token_id=None, eos_token_id=None,
    )
    model = t.GPT2LMHeadModel(config).train()
    return [model], lambda ids: model(input_ids=ids, labels=ids).loss


def electra(rate: float) -> tuple[list[Any], Callable[[Any], Any]]:
    """Generator and discriminator with shared embeddings; the generator's head reads the asked places alone."""
    import torch
    import transformers as t

    shared = {
        "vocab_size": VOCABULARY, "embedding_size": 128, "num_hidden_layers": LAYERS, "max_position_embeddings": LENGTH,
        "hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate,
    }
    sizes = {"hidden_size": WIDTH // 4, "num_attention_heads": 1, "intermediate_size": WIDTH}
    generator = t.ElectraForMaskedLM(t.ElectraConfig(**shared, **sizes)).train()
    sizes = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": 4 * WIDTH}
    discriminator = t.ElectraForPreTraining(t.ElectraConfig(**shared, **sizes)).train()
    discriminator.electra.embeddings = generator.electra.embeddings

    asked = round(0.15 * LENGTH)

    def loss(ids: Any) -> Any:
        places = torch.rand(ids.shape).topk(asked, dim=1).indices
        hidden = generator.electra(input_ids=ids.scatter(1, places, 4)).last_hidden_state
        rows = hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))
        scores = generator.generator_lm_head(generator.generator_predictions(rows))
        original = ids.gather(1, places)
        masked = torch.nn.functional.cross_entropy(scores.float().flatten(0, 1), original.flatten())
        noise = -torch.empty_like(scores, dtype=torch.float32).exponential_().log()
        shown = ids.scatter(1, places, (scores.detach().float() + noise).argmax(-1))
        return masked + 50 * discriminator(input_ids=shown, labels=(shown != ids).long()).loss

    return [generator, discriminator], loss


class Stopwatch:
    """Counts steps behind the first third of the time, which includes start-up and compilation."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun = self.counted_from = time.perf_counter()
        self.times: list[float] = []

    def step(self) -> bool:
        """Note one step; false when the time is over and at least five steps have been counted."""
        now = time.perf_counter()
        if now - self.begun > self.seconds / 3:
            self.times.append(now)
        return now - self.begun < self.seconds or len(self.times) < 6

    def rate(self) -> float:
        """Tokens per second by the median step."""
        steps = [later - sooner for sooner, later in zip(self.times, self.times[1:], strict=False)]
        return LENGTH * BATCH / statistics.median(steps)


if __name__ == "__main__":
    main()
