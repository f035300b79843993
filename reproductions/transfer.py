"""Three claims of transfer on small networks: ULMFiT against a random start, SiATL's auxiliary loss, vectors against ELMo.

    python reproductions/transfer.py --data ../shared/data --work runs/transfer --seeds 3
    python reproductions/transfer.py --work runs/transfer --table

ulmfit: a classifier from a random start, from a language model of general text, and from one that went on with the task's text;
the last also trained as a whole, as the random start is, instead of layer by layer, as `cloze finetune` fits ULMFiT's recipe to a
small network, and by the usual recipe for sentences.
siatl: transfer with and without the language model's loss; also how much of the language model is left, on general text.
elmo: frozen features, the mean over a text's words: of skip-gram vectors, and of ELMo's states. General text is 25 MB of English
Wikipedia, the task the polarity of review sentences (Pang and Lee, 2005): 2,000 sentences test, 500 choose the epoch, labels are
drawn from the rest, whose text alone is what language models go on with. One pre-trained model of a kind, fitted to its budget;
five seeds draw labelled sentences, new weights and orders. A finished classifier is a line in results/transfer.jsonl and is not
repeated (ledger.py). What comes out is written to reproductions/transfer.md, whatever it is.
"""

from __future__ import annotations

import json
import lzma
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any

from cells import parser, share
from ledger import RESULTS, Ledger

SEEDS = (1, 2, 3, 4, 5)
TEST, DEV = 2000, 500
BYTES = 25_000_000  # of general text
COMMON = ["training.held_out=0.01", "training.compile=false", "training.keep=1"]


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
            "experiment": experiment, "variant": name, "labelled": number, "budget": self.tokens, "size": self.size,
            "fitted": True, **more,  # lines without it begin with models that were not fitted to their budget
        }  # fmt: skip


def pretrained() -> dict[str, tuple[str, list[str]]]:
    """Folder of a pre-trained model → recipe and values."""
    lstm = [*COMMON, "text.tokenizer.words.size=20000"]
    return {
        "ulmfit": ("ulmfit", lstm),
        "siatl": ("siatl", lstm),
        "vectors": ("word2vec-skipgram", ["training.held_out=0.01"]),
        "elmo": ("elmo", [*COMMON, "objectives[0].sampled_prediction.frequent=20000",
                 "objectives[0].sampled_prediction.samples=2048"]),
    }


def experiments() -> dict[str, tuple[tuple[int, ...], dict[str, str]]]:
    """By name the numbers of labelled sentences, and for each variant the pre-trained folder that its classifier begins with."""
    domain = dict.fromkeys(("domain", "whole", "fitted", "usual"), "ulmfit")
    starts = {"scratch": "ulmfit", "general": "ulmfit/cloze/stages/general", **domain}
    return {
        "ulmfit": ((100, 500, 2000), starts),
        "siatl": ((100, 500), {"plain": "siatl", "auxiliary": "siatl"}),
        "elmo": ((100, 500), {"vectors": "vectors", "elmo": "elmo"}),
    }


# ---- one run ----------------------------------------------------------------------------------------------------------


def prepare(chosen: Choice, wanted: Sequence[str]) -> None:
    """The parts of the task, and the pre-trained models that are `wanted`; done once."""
    from cloze.runs.run import pretrain

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
    general = chosen.work / "general.txt"
    with lzma.open(chosen.data / "text_en_wiki" / "train.txt.xz") as packed:
        general.write_text(packed.read(BYTES).decode("utf-8", errors="ignore"), encoding="utf-8")
    for name in dict.fromkeys(wanted):
        recipe, values = pretrained()[name]
        if (chosen.work / f"{name}.json").exists():
            continue
        started = time.time()
        outcome = pretrain(
            recipe, corpus=general, binds=[f"domain={domain}"] if recipe == "ulmfit" else [], out=chosen.work / name,
            budget=chosen.tokens, size=chosen.size, overrides=values, device=chosen.device, report=print,
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


def recipe_of(chosen: Choice, experiment: str, name: str) -> Path | str:
    """The recipe of a classifier: as published, frozen features under a linear map, or as `cloze finetune` fits it."""
    if name in ("fitted", "usual"):
        return "ulmfit_classification" if name == "fitted" else "sentence_classification"
    from cloze.recipe.canonical import to_yaml
    from cloze.recipe.load import load_recipe

    kind = {"ulmfit": "ulmfit_classification", "siatl": "siatl_classification"}.get(experiment, "sentence_classification")
    made = load_recipe(kind).canonical()
    objectives, network, training = made["passes"][0]["objectives"], made["networks"]["main"], made["training"]
    if experiment == "ulmfit" and name in ("scratch", "whole"):
        network["train"], training["layerwise_rates"] = "all", None
        training["rate"] = {"slanted_triangular": {"peak": 0.01}}
    if experiment == "siatl":
        network["change"], made["task"]["patience"], training["clip"] = [], 0, 1.0  # dropouts of the language model
        weight: Any = 0.0 if name == "plain" else {"exponential": {"start": 0.2, "end": 0.1, "stairs": 15}}
        objectives[1]["language_model"]["weight"] = weight
    if experiment == "elmo":
        network["train"], made["task"]["patience"] = "none", 0
        objectives[0]["text_classification"] |= {"pool": "mean", "dropout": 0.0}
        training |= {"epochs": 20, "rate": {"linear": {"peak": 5e-3, "warmup": 0.1}}}
    path = chosen.work / f"{experiment}-{name}.yaml"
    path.write_text(to_yaml(made), encoding="utf-8")
    return path


def one(chosen: Choice, experiment: str, name: str, number: int, seed: int) -> None:
    """One classifier and what is measured on it, into the ledger."""
    from cloze.runs.finetuning.finetune import finetune
    from cloze.runs.finetuning.measure_result import measure_on_files

    run = chosen.key(experiment, name, number, seed=seed)
    started, start = time.time(), experiments()[experiment][1][name]
    tuned = finetune(
        chosen.work / start, recipe=recipe_of(chosen, experiment, name), train=[str(labelled(chosen, number, seed))],
        dev=[str(chosen.work / "dev.jsonl")], out=chosen.work / f"tuned-{experiment}-{name}-{number}-{seed}", seeds=(seed,),
        from_scratch=name == "scratch", device=chosen.device,
    )
    told = measure_on_files(tuned, [str(chosen.work / "test.jsonl")], "test").task_json
    found: dict[str, Any] = {"accuracy": told["test"]["accuracy"], "epoch": told["evaluation"]}
    if experiment == "siatl":
        found["general_before"] = language_loss(chosen, chosen.work / start)
        found["general_after"] = language_loss(chosen, tuned.folder)
    model = json.loads((chosen.work / f"{start.partition('/')[0]}.json").read_text(encoding="utf-8"))
    seconds = round(time.time() - started)
    chosen.ledger.add(run, {**found, "seconds": seconds, "pretrained": model}, device=chosen.device)
    print(experiment, name, number, seed, json.dumps(found), f"{seconds} s", flush=True)


def language_loss(chosen: Choice, folder: Path) -> float:
    """The language model's loss on general text, in nats a token."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.reader import Reader
    from cloze.decoding.scores.scoring import method_of, score

    loaded = load_checkpoint(folder, chosen.device)
    method, head = method_of(loaded)
    found = score(Reader.of(loaded), head, general_text(chosen), method=method)
    return -sum(one.score for one in found) / sum(one.tokens for one in found)


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
    options = parser(__doc__, "runs/transfer", "EXPERIMENT:VARIANT:NUMBER:SEED")
    options.add_argument("--ledger", type=Path, default=RESULTS / "transfer.jsonl", help="finished runs, one a line")
    options.add_argument("--device", default="cpu")
    options.add_argument("--tokens", default="5Mtokens", help="the budget of a pre-trained model")
    options.add_argument("--size", default="mini")
    options.add_argument("--experiments", default="ulmfit,siatl,elmo")
    options.add_argument("--seeds", type=int, default=len(SEEDS))
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
            prepare(chosen, [plan[experiment][1][name].partition("/")[0] for experiment, name, *_ in missing])
        share([":".join(map(str, run)) for run in missing], said.jobs)
    print(tables(chosen))


if __name__ == "__main__":
    main()
