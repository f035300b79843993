"""Three claims of transfer at mini size: ULMFiT against a random start, SiATL's auxiliary loss, mean vectors against ELMo.

    python reproductions/transfer.py --data ../shared/data --work runs/transfer --seeds 3
    python reproductions/transfer.py --work runs/transfer --table

ulmfit: a classifier from a random start, from a language model of general text, and from one that went on with the task's text.
siatl: transfer with and without the language model's loss; also how much of the language model is left, on general text.
elmo: frozen features, the mean over a text's words: of skip-gram vectors, and of ELMo's states. General text is English
Wikipedia, the task the polarity of review sentences (Pang and Lee, 2005): 2,000 sentences test, 500 choose the epoch, labels are
drawn from the rest, whose text alone is what language models go on with. One pre-trained model of a kind; five seeds draw
labelled sentences, new weights and orders. A finished classifier is a line in results/transfer.jsonl and is not repeated
(ledger.py). What comes out is written to reproductions/transfer.md, whatever it is.
"""

from __future__ import annotations

import argparse
import json
import lzma
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from ledger import RESULTS, Ledger

if TYPE_CHECKING:
    from cloze.tasks.settings import Settings

SEEDS = (1, 2, 3, 4, 5)
TEST, DEV = 2000, 500
# Two CPU cores: small batches, so that few tokens are still some thousand updates.
COMMON = ["training.batch=16", "training.held_out=0.01", "training.compile=false", "training.keep=1"]


@dataclass(frozen=True)
class Choice:
    """What the command line says of a run."""

    data: Path
    work: Path
    tokens: str
    size: str
    device: str
    ledger: Ledger

    def key(self, experiment: str, name: str, number: int, **more: Any) -> dict[str, Any]:
        """What a classifier is known by in the ledger."""
        return {
            "experiment": experiment, "variant": name, "labelled": number, "budget": self.tokens, "size": self.size, **more,
        }  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """The pre-trained folder that a classifier begins with, and what its settings change."""

    start: str
    change: Mapping[str, Any]


def pretrained() -> dict[str, tuple[str, list[str]]]:
    """Folder of a pre-trained model → recipe and values."""
    lstm = [*COMMON, "text.tokenizer.words.size=20000"]
    return {
        "ulmfit": ("ulmfit", lstm),
        "siatl": ("siatl", [*lstm, "training.rate.peak=1e-3"]),
        "vectors": ("word2vec-skipgram", ["training.held_out=0.01"]),
        "elmo": ("elmo", [*COMMON, "objectives[0].token_prediction.most=20000", "objectives[0].token_prediction.sampled=2048"]),
    }


def experiments() -> dict[str, tuple[tuple[int, ...], dict[str, Variant]]]:
    """By name the numbers of labelled sentences, and the variants."""
    return {
        "ulmfit": ((100, 500, 2000), {
            "scratch": Variant("ulmfit", {"from_scratch": True, "unfreeze": None, "layerwise": None}),
            "general": Variant("ulmfit/cloze/stages/general", {}),
            "domain": Variant("ulmfit", {}),
        }),
        "siatl": ((100, 500), {
            "plain": Variant("siatl", {"auxiliary": (0.0, 0.0)}),
            "auxiliary": Variant("siatl", {"auxiliary": (0.2, 0.1)}),
        }),
        "elmo": ((100, 500), {"vectors": Variant("vectors", {}), "elmo": Variant("elmo", {})}),
    }  # fmt: skip


# ---- one run ----------------------------------------------------------------------------------------------------------


def prepare(chosen: Choice, wanted: Sequence[str]) -> None:
    """The parts of the task, and the pre-trained models that are `wanted`; done once."""
    from cloze.assembly.run import pretrain

    chosen.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for label, part in (("negative", "neg"), ("positive", "pos")):
        path = chosen.data / "cls_en_sentence_polarity" / f"rt-polarity.{part}.xz"
        with lzma.open(path, "rt", encoding="utf-8", errors="replace") as file:
            rows += [{"text": line.strip(), "label": label} for line in file if line.strip()]
    Random(0).shuffle(rows)
    for name, some in (("test", rows[:TEST]), ("dev", rows[TEST : TEST + DEV]), ("pool", rows[TEST + DEV :])):
        write(chosen.work / f"{name}.jsonl", some)
    domain = chosen.work / "domain.txt"
    domain.write_text("\n\n".join(row["text"] for row in rows[TEST + DEV :]) + "\n", encoding="utf-8")
    general = chosen.data / "text_en_wiki" / "train.txt.xz"
    for name in dict.fromkeys(wanted):
        recipe, values = pretrained()[name]
        if (chosen.work / f"{name}.json").exists():
            continue
        started = time.time()
        outcome = pretrain(
            recipe, corpus=general, binds=[f"domain={domain}"] if recipe == "ulmfit" else [], out=chosen.work / name,
            budget=chosen.tokens, size=chosen.size, overrides=values, device=chosen.device, report=print, as_published=True,
        )
        if not outcome.finished:
            raise SystemExit(f"{outcome.folder}: stopped by a signal at step {outcome.step}; the same command goes on.")
        told = {"recipe": recipe, "updates": outcome.step, "held_out": outcome.held_out, "seconds": round(time.time() - started)}
        (chosen.work / f"{name}.json").write_text(json.dumps(told, indent=1))


def write(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def labelled(chosen: Choice, number: int, seed: int) -> Path:
    """A file of so many labelled sentences of the pool, drawn by the seed."""
    path = chosen.work / f"train-{number}-{seed}.jsonl"
    if not path.exists():
        rows = [json.loads(line) for line in (chosen.work / "pool.jsonl").read_text(encoding="utf-8").splitlines()]
        write(path, Random(f"{number} {seed}").sample(rows, number))
    return path


def settings_of(experiment: str, variant: Variant, groups: int) -> Settings:
    """The settings of a classifier: ULMFiT's as published, SiATL's likewise, frozen features under a linear map."""
    from cloze.tasks.settings import Settings
    from cloze.training.movement import Only
    from cloze.transfer import Sequential, published

    change = dict(variant.change)
    if experiment == "ulmfit":
        return Settings(**{**published("lstm", groups), **change})
    if experiment == "siatl":
        siatl = Settings(
            epochs=15, rate=5e-4, schedule="constant", weight_decay=0.0, patience=None, length=80, pool="attention",
            task_lstm=100, unfreeze=Sequential(), clip=1.0,
        )
        return replace(siatl, **change)
    return Settings(epochs=20, rate=5e-3, patience=None, pool="mean", unfreeze=Only(), dropout=0.0)


def one(chosen: Choice, experiment: str, name: str, number: int, seed: int) -> None:
    """One classifier and what is measured on it, into the ledger."""
    from cloze.assembly.build import load_checkpoint
    from cloze.tasks.evaluation import evaluate
    from cloze.tasks.finetune import as_dtype, finetune
    from cloze.tasks.task import task
    from cloze.training.precision import choose_device

    run = chosen.key(experiment, name, number, seed=seed)
    started, variant = time.time(), experiments()[experiment][1][name]
    kind: Any = task("sentence_classification")
    loaded = load_checkpoint(chosen.work / variant.start, chosen.device)
    parts = [kind.read(path) for path in (labelled(chosen, number, seed), chosen.work / "dev.jsonl", chosen.work / "test.jsonl")]
    settings = settings_of(experiment, variant, len(loaded.network.depth_groups()))  # type: ignore[operator]
    result = finetune(
        loaded, kind, parts[0], parts[1], settings=settings, seed=seed,
        precision=as_dtype("auto", choose_device(chosen.device)),
    )
    found: dict[str, Any] = {"accuracy": evaluate(result.tuned, parts[2]).metrics["accuracy"], "epoch": result.best.epoch}
    if experiment == "siatl":
        found |= forgotten(chosen, loaded, result.tuned, kind, settings)
    model = json.loads((chosen.work / f"{variant.start.partition('/')[0]}.json").read_text(encoding="utf-8"))
    seconds = round(time.time() - started)
    chosen.ledger.add(run, {**found, "seconds": seconds, "pretrained": model}, device=chosen.device)
    print(experiment, name, number, seed, json.dumps(found), f"{seconds} s", flush=True)


def forgotten(chosen: Choice, loaded: Any, tuned: Any, kind: Any, settings: Settings) -> dict[str, float]:
    """The language model's loss on general text, before and after."""
    from cloze.tasks.classifier import begin
    from cloze.tasks.labels import Examples

    texts = general_text(chosen)
    examples = Examples(texts, None, [tuned.names[0]] * len(texts), "general", tuple(range(len(texts))))
    before = begin(loaded, kind, tuned.names, settings, seed=1)
    return {
        "general_before": before.language_loss(before.answered(examples)),
        "general_after": tuned.language_loss(tuned.answered(examples)),
    }


@cache
def general_text(chosen: Choice) -> list[str]:
    """Two hundred paragraphs of held-out general text."""
    with lzma.open(chosen.data / "text_en_wiki" / "valid.txt.xz", "rt", encoding="utf-8") as file:
        long = [line.strip() for line in file if len(line.split()) >= 20]
    return long[:200]


# ---- tables -----------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 1) -> str:
    """Mean ± standard deviation over seeds; of one seed its value alone."""
    if len(values) < 2:
        return f"{values[0] * scale:.{digits}f}" if values else "–"
    return f"{mean(values) * scale:.{digits}f} ± {stdev(values) * scale:.{digits}f}"


def tables(chosen: Choice) -> str:
    """All tables of what is finished."""
    parts = []
    for experiment, (numbers, variants) in experiments().items():
        head = ["labelled sentences", *variants, *(f"loss on general text, {name}" for name in variants if experiment == "siatl")]
        lines = [head, ["---"] * len(head)]
        for number in numbers:
            found = {name: chosen.ledger.results(**chosen.key(experiment, name, number)) for name in variants}
            cells = [spread([r["accuracy"] for r in results], 100) for results in found.values()]
            if experiment == "siatl":
                for results in found.values():
                    before, after = ([r[f"general_{when}"] for r in results] for when in ("before", "after"))
                    cells.append(f"{spread(before, 1, 3)} → {spread(after, 1, 3)}")
            lines.append([str(number), *cells])
        parts.append(f"### {experiment}: test accuracy, %\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Prepare, run what has not been run, write the tables."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--data", type=Path, default=Path("../shared/data"))
    options.add_argument("--work", type=Path, default=Path("runs/transfer"))
    options.add_argument("--ledger", type=Path, default=RESULTS / "transfer.jsonl", help="finished runs, one a line")
    options.add_argument("--device", default="cpu")
    options.add_argument("--tokens", default="5Mtokens", help="the budget of a pre-trained model")
    options.add_argument("--size", default="mini")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--experiments", default="ulmfit,siatl,elmo")
    options.add_argument("--seeds", type=int, default=len(SEEDS))
    options.add_argument("--only", default="", help="EXPERIMENT:VARIANT:NUMBER:SEED, as the jobs are started")
    options.add_argument("--table", action="store_true", help="run nothing")
    said = options.parse_args()
    chosen = Choice(said.data, said.work, said.tokens, said.size, said.device, Ledger(said.ledger))
    if said.only:
        experiment, name, number, seed = said.only.split(":")
        one(chosen, experiment, name, int(number), int(seed))
        return
    if not said.table:
        plan = {name: experiments()[name] for name in said.experiments.split(",")}
        missing = [
            (experiment, name, number, seed) for seed in SEEDS[: said.seeds]
            for experiment, (numbers, variants) in plan.items() for number in numbers for name in variants
            if not chosen.ledger.has(chosen.key(experiment, name, number, seed=seed))
        ]  # fmt: skip
        if missing:
            prepare(chosen, [plan[experiment][1][name].start.partition("/")[0] for experiment, name, *_ in missing])
        waiting = [":".join(map(str, run)) for run in missing]
        running: list[subprocess.Popen[bytes]] = []
        while waiting or running:
            running = [job for job in running if job.poll() is None]
            while waiting and len(running) < said.jobs:
                running.append(subprocess.Popen([sys.executable, *sys.argv, "--only", waiting.pop(0)]))
            time.sleep(0.2)
    print(tables(chosen))


if __name__ == "__main__":
    main()
