"""fastText's classifier compared with the authors' package: accuracy, examples per second, peak memory, in fresh processes.

    taskset -c 0,1 python benchmarks/fasttext_supervised.py [--rounds 5] [--seeds 5] [--threads 2] [--parts speed accuracy memory]

Both sides read the same texts, tokenised alike (lower case, punctuation marks and ideographs apart), in the same random order of
lines, with equal settings: word pairs, the width, the rate and the epochs of `SETS`. The package trains lines in the order of the
file; a file sorted by label, as CLINC150 is published, would be hard for it.

Speed: texts by the seconds of training alone, sides in turn, medians over rounds. The package does not time its training, so
it is the time of many epochs less that of one; reading the text and drawing the rows count on neither side. `whole` is the
whole call from file to model, for the package without saving and for cloze with its store, its evaluations and its
checkpoints, but without the start of Python. CPU seconds stand next to wall seconds, because a shared machine stretches these.
Memory: the peak of a process that trains a model of 100 numbers and 2,000,000 buckets and saves it.
Tune (`--parts tune --duration 60`): `cloze finetune --tune` against the package's -autotune-duration, each from its own defaults,
with the same dev set and time, sides in turn; accuracy on the test set, and the seconds of the whole call, in which the package
trains the best values once more, with the CPU seconds of the process.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

#: The width, the rate and the epochs of each set; the other settings are the recipe's.
SETS: dict[str, tuple[int, float, int]] = {"cls_en_clinc150": (10, 0.5, 25), "care_cls_zh_chnsenticorp": (10, 0.5, 10)}
BUCKETS = 2_000_000
#: Address space of trying values: the package asks for up to 40 GB, and passes over values for which there is no memory.
TUNING_MEMORY = 5 << 30


def main() -> None:
    """Compare, or run one side in a process of its own (`--side`)."""
    arguments = parse()
    if arguments.side:
        if arguments.part == "tune":
            resource.setrlimit(resource.RLIMIT_AS, (TUNING_MEMORY, TUNING_MEMORY))
        print(json.dumps((ours if arguments.side == "cloze" else theirs)(arguments)))
        return
    from results import write_results

    work = Path(tempfile.mkdtemp(prefix="cloze-bench-"))
    try:
        records = [record for name in arguments.sets for record in compare(arguments, name, work)]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for record in records:
        print("  ".join(f"{key} {value}" for key, value in record.items()))
    if not arguments.dry:
        print(write_results("fasttext_autotune" if arguments.parts == ["tune"] else "fasttext_supervised", records))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("CLOZE_DATA", str(ROOT.parent / "shared" / "data")))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parts = ("speed", "accuracy", "memory", "tune")
    parser.add_argument("--parts", nargs="+", choices=parts, default=["speed", "accuracy", "memory"])
    parser.add_argument("--duration", type=int, default=60, help="seconds of trying values")
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=list(SETS))
    parser.add_argument("--dry", action="store_true", help="write no results")
    for name in ("side", "work", "width", "rate", "epochs", "seed", "part"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(arguments: argparse.Namespace, name: str, work: Path) -> list[dict[str, Any]]:
    """The records of one set."""
    width, rate, epochs = SETS[name]
    records: list[dict[str, Any]] = []

    def run(side: str, part: str, seed: int = 1, width: int = width) -> dict[str, Any]:
        folder = work / f"{name}-{seed}"
        if not folder.exists():
            write(name, Path(arguments.data), folder, seed)
        asked = {"side": side, "part": part, "work": folder, "width": width, "rate": rate, "epochs": epochs, "seed": seed}
        words = [word for key, value in asked.items() for word in (f"--{key}", str(value))]
        command = [sys.executable, __file__, *words, "--threads", str(arguments.threads), "--duration", str(arguments.duration)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "2"})
        return dict(json.loads(done.stdout.splitlines()[-1]))

    shared = {"set": name, "width": width, "rate": rate, "epochs": epochs, "threads": arguments.threads}
    if "speed" in arguments.parts:
        found: dict[str, list[dict[str, Any]]] = {"cloze": [], "fasttext": []}
        for _ in range(arguments.rounds):
            for side, runs in found.items():
                runs.append(run(side, "speed"))
        for side, runs in found.items():
            middle = {key: round(statistics.median(one[key] for one in runs), 3) for key in runs[0]}
            records.append({**shared, "measured": "speed", "side": side, **middle})
    if "accuracy" in arguments.parts:
        for side in ("cloze", "fasttext"):
            values = [run(side, "accuracy", seed)["accuracy"] for seed in range(1, arguments.seeds + 1)]
            records.append({
                **shared, "measured": "accuracy", "side": side, "mean": round(statistics.mean(values), 4),
                "deviation": round(statistics.stdev(values), 4), "values": " ".join(f"{value:.4f}" for value in values),
            })  # fmt: skip
    if "tune" in arguments.parts:
        records += tuning(run, arguments, name)
    if "memory" in arguments.parts:
        for side in ("cloze", "fasttext"):
            records.append({**shared, "width": 100, "measured": "memory", "side": side, **run(side, "memory", width=100)})
    return records


def tuning(run: Any, arguments: argparse.Namespace, name: str) -> list[dict[str, Any]]:
    """A record per side: accuracies after trying values for the same time, in turn for each seed."""
    found: dict[str, list[dict[str, Any]]] = {"cloze": [], "fasttext": []}
    for seed in range(1, arguments.seeds + 1):
        for side, runs in found.items():
            runs.append(run(side, "tune", seed))
    return [
        {
            "set": name, "measured": "tune", "side": side, "duration": arguments.duration, "threads": arguments.threads,
            "mean": round(statistics.mean(one["accuracy"] for one in runs), 4),
            "deviation": round(statistics.stdev(one["accuracy"] for one in runs), 4),
            "values": " ".join(f"{one['accuracy']:.4f}" for one in runs),
            **{key: round(statistics.mean(one[key] for one in runs), 1) for key in ("whole", "cpu")},
            **{key: " ".join(str(one[key]) for one in runs) for key in ("trials", "best") if key in runs[0]},
        }
        for side, runs in found.items()
    ]  # fmt: skip


def write(name: str, data: Path, folder: Path, seed: int) -> None:
    """The texts of a set, as a table for cloze and as lines for fastText, in one random order."""
    from cloze.text.normalise import Normalise
    from cloze.text.words import Words

    cut = Words(min_count=1)._engine(["[UNK]"], "[UNK]", Normalise(lower=True, strip_accents=False, cjk_spacing=True, clean=True))
    folder.mkdir(parents=True)
    for part in ("train", "dev", "test"):
        rows = read(name, data, part)
        if part == "train":
            random.Random(seed).shuffle(rows)
        plain = [
            (" ".join(piece for piece, _ in cut.pre_tokenizer.pre_tokenize_str(cut.normalizer.normalize_str(text))), label)
            for text, label in rows
        ]
        lines = "".join(f"__label__{label} {text}\n" for text, label in plain)
        (folder / f"{part}.txt").write_text(lines, encoding="utf-8")
        with (folder / f"{part}.tsv").open("w", encoding="utf-8") as file:
            file.write("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in plain))


def read(name: str, data: Path, part: str) -> list[tuple[str, str]]:
    """Text and label of each row of a part."""
    if name == "cls_en_clinc150":
        with lzma.open(data / name / "data_full.json.xz", "rt", encoding="utf-8") as file:
            return [(text, label) for text, label in json.load(file)["val" if part == "dev" else part]]
    with lzma.open(data / name / f"{part}.tsv.xz", "rt", encoding="utf-8") as file:
        return [(row["text_a"], row["label"]) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


# --- one side, in a process of its own ----------------------------------------------------------------------------------


def cpu_seconds() -> float:
    """CPU time of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak() -> float:
    """The peak of this process's memory in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def texts(folder: Path) -> int:
    """How many texts there are to train on."""
    return len((folder / "train.txt").read_text(encoding="utf-8").splitlines())


def theirs(arguments: argparse.Namespace) -> dict[str, Any]:
    """The authors' package."""
    import fasttext

    folder, epochs = Path(arguments.work), int(arguments.epochs)
    if arguments.part == "tune":
        wall = time.perf_counter()
        tuned = fasttext.train_supervised(
            str(folder / "train.txt"), autotuneValidationFile=str(folder / "dev.txt"), autotuneDuration=arguments.duration,
            seed=int(arguments.seed), thread=arguments.threads, verbose=0,
        )
        wall = time.perf_counter() - wall
        chosen = tuned.f.getArgs()
        best = f"epoch={chosen.epoch},lr={chosen.lr:.3g},dim={chosen.dim},words={chosen.wordNgrams},minn={chosen.minn}"
        return {"accuracy": tuned.test(str(folder / "test.txt"))[1], "whole": wall, "cpu": cpu_seconds(), "best": best}

    def train(epochs: int) -> tuple[Any, float, float]:
        wall, cpu = time.perf_counter(), cpu_seconds()
        model = fasttext.train_supervised(
            str(folder / "train.txt"), dim=int(arguments.width), wordNgrams=2, bucket=BUCKETS, lr=float(arguments.rate),
            epoch=epochs, thread=arguments.threads, verbose=0, minCount=1,
        )
        return model, time.perf_counter() - wall, cpu_seconds() - cpu

    model, wall, cpu = train(epochs)
    if arguments.part == "memory":
        model.save_model(str(folder / "model.bin"))
        return {"peak": peak()}
    if arguments.part == "accuracy":
        return {"accuracy": model.test(str(folder / "test.txt"))[1]}
    _, once, once_cpu = train(1)
    done = texts(folder) * (epochs - 1)
    return {"per_second": done / (wall - once), "per_cpu_second": done / (cpu - once_cpu), "whole": wall, "whole_cpu": cpu}


def tuned_by_us(arguments: argparse.Namespace) -> dict[str, Any]:
    """The recipe by `finetune --tune`."""
    from cloze.runs.finetuning.autotune import search_within
    from cloze.runs.finetuning.measure_result import measure_on_files
    from cloze.runs.options import FinetuneOptions

    folder = Path(arguments.work)
    out, wall = folder / f"out-{os.getpid()}", time.perf_counter()
    tuned = search_within(FinetuneOptions(
        "fasttext-supervised", out, str(folder / "train.tsv"), str(folder / "dev.tsv"), tune=f"{arguments.duration}s",
        seeds=[int(arguments.seed)], device="cpu",
    ))
    wall, spent = time.perf_counter() - wall, cpu_seconds()
    trials = json.loads((out / "cloze" / "trials.json").read_text(encoding="utf-8"))
    values = max(trials, key=lambda one: one["accuracy"])["values"]
    accuracy = measure_on_files(tuned, [str(folder / "test.tsv")], "test").task_json["test"]["accuracy"]
    shutil.rmtree(out)
    best = ",".join(f"{path.rpartition('.')[2]}={value}" for path, value in values.items()).replace(" ", "")
    return {"accuracy": accuracy, "whole": wall, "cpu": spent, "trials": len(trials), "best": best}


def ours(arguments: argparse.Namespace) -> dict[str, Any]:
    """The recipe by `finetune`."""
    import torch

    from cloze.engines.texts import TextTrainer
    from cloze.runs.finetuning.finetune import finetune
    from cloze.runs.finetuning.measure_result import measure_on_files

    torch.set_num_threads(arguments.threads)
    if arguments.part == "tune":
        return tuned_by_us(arguments)
    folder, spent = Path(arguments.work), {"wall": 0.0, "cpu": 0.0, "texts": 0.0}
    train = TextTrainer.train

    def timed(self: TextTrainer) -> None:
        progress = self.steps.run_progress.progress  # type: ignore[attr-defined]
        wall, cpu, before = time.perf_counter(), cpu_seconds(), progress.spent.examples
        train(self)
        spent["wall"] += time.perf_counter() - wall
        spent["cpu"] += cpu_seconds() - cpu
        spent["texts"] += progress.spent.examples - before

    TextTrainer.train = timed  # type: ignore[assignment, method-assign]
    out = folder / f"out-{os.getpid()}"
    wall, cpu = time.perf_counter(), cpu_seconds()
    tuned = finetune(
        "fasttext-supervised", train=[str(folder / "train.tsv")], dev=[str(folder / "dev.tsv")], out=out, device="cpu",
        seeds=[int(arguments.seed)], overrides=[
            f"network.width={arguments.width}", f"tables.ngrams.buckets={BUCKETS}", f"training.rate.peak={arguments.rate}",
            f"training.epochs={arguments.epochs}", "training.evaluate_every=0", "training.engine=compiled",
        ],
    )  # fmt: skip
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    found = {"peak": peak()}
    if arguments.part == "accuracy":
        found = {"accuracy": measure_on_files(tuned, [str(folder / "test.tsv")], "test").task_json["test"]["accuracy"]}
    shutil.rmtree(out)
    if arguments.part != "speed":
        return found
    done = spent["texts"]
    return {"per_second": done / spent["wall"], "per_cpu_second": done / spent["cpu"], "whole": wall, "whole_cpu": cpu}


if __name__ == "__main__":
    main()
