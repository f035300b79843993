"""Transfer from models that have learned: a domain's text and words, layers, unfreezing, and a language model trained along.

    python reproductions/domain.py --data ../shared/data --model runs/quick-20M --work runs/domain [--jobs 2]
    python reproductions/domain.py --table

continue: `quick` continues on abstracts of computer science (SciTLDR's training papers), at a tenth of its first peak rate and
at all of it; measured on abstracts of other papers and on Wikipedia. words: the same at a tenth, with five hundred words of the
domain added; their embeddings start from their old pieces, at the mean, or at random, and with `phases` the embeddings are
trained alone for a fifth of the budget. layers: names of WNUT17 from the layers of a frozen MiniLM, against tuning all of it.
thaw: the polarity of reviews at 100, 500 and 2,000 labels, by ways of unfreezing. auxiliary: the same with the masked language
model trained along, and what it still knows of Wikipedia. `--model` is a run of `quick` that has learned: a held-out loss at
least 1.5 nats below that of single tokens, which is checked. Bits per byte are those of the pseudo-likelihood. Every figure has
five seeds. A finished cell is a line in results/domain.jsonl and is not repeated (ledger.py). Results of any outcome are
written to reproductions/domain.md.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import task_files
from cells import difference, parser, share, shown, tuned
from ledger import RESULTS, Ledger

SEEDS = (1, 2, 3, 4, 5)
TOKENS, WORDS = 300_000, 500
BYTES = 20_000  # of a text on which bits are measured
PEAK = 2.4e-3  # of `quick`
LEARNED = 1.5  # nats below single tokens
DEV, TEST = 300, 1000  # sentences on films
LABELS = (100, 500, 2000)
NAMES = (800, 300, 600)  # sentences of WNUT17
LAST = [-4, -3, -2, -1]

#: Variants of each experiment: what is done to the network, or values; `LAYERS` are arguments of the change `features`.
CONTINUED: Mapping[str, float] = {"a tenth of the rate": 0.1, "the full rate": 1.0}
STARTS: Mapping[str, tuple[str, float]] = {
    "pieces": ("pieces", 0.0), "mean": ("mean", 0.0), "random": ("random", 0.0), "pieces, phases": ("pieces", 0.2),
}  # fmt: skip
LAYERS: Mapping[str, tuple[list[int], str] | None] = {
    "embeddings": ([0], "sum"), "second to last": ([-2], "sum"), "last": ([-1], "sum"), "sum of the last four": (LAST, "sum"),
    "last four side by side": (LAST, "concatenate"), "mix of all": ([0, 1, 2, 3, 4, 5, 6], "mix"), "all tuned": None,
}  # fmt: skip
THAWS: Mapping[str, Mapping[str, Any]] = {
    "all at once": {}, "gradual": {"train": {"gradual": {"every": 0.2, "of": "budget"}}},
    "rates by depth": {"layerwise_rates": {"divide": {"by": 2.6, "heads": False}}},
    "both": {"train": {"gradual": {"every": 0.2, "of": "budget"}}, "layerwise_rates": {"divide": {"by": 2.6, "heads": False}}},
    "head alone": {"train": "none"},
}  # fmt: skip
AUXILIARY: Mapping[str, str] = {"without": "0.0", "with": "0.5"}


@dataclass(frozen=True)
class Choice:
    """What the command line says of a run."""

    data: Path
    work: Path
    model: Path
    ledger: Ledger

    def out(self, name: str) -> Path:
        """The folder of a cell's run, which is deleted in the end."""
        return self.work / f"out-{name}"

    def run(self, experiment: str, variant: str, number: int, seed: int) -> dict[str, Any]:
        """What a cell is known by in the ledger; `number` is how many labels or tokens it reads."""
        start = "MiniLM" if experiment == "layers" else self.model.name
        return {"experiment": experiment, "variant": variant, "number": number, "start": start, "seed": seed}


#: Experiment → variants, and the number of labels or tokens.
PLAN: Mapping[str, tuple[Sequence[str], Sequence[int]]] = {
    "continue": (list(CONTINUED), (TOKENS,)), "words": (list(STARTS), (TOKENS,)), "layers": (list(LAYERS), (NAMES[0],)),
    "thaw": (list(THAWS), LABELS), "auxiliary": (list(AUXILIARY), LABELS[:2]),
}  # fmt: skip


# ---- texts and rows -----------------------------------------------------------------------------------------------------


def abstracts(chosen: Choice, part: str) -> Path:
    """The abstracts of a part of SciTLDR, a sentence a line."""
    path = chosen.work / f"abstracts-{part}.txt"
    if not path.exists():
        whole = task_files.unpacked(chosen.data / "seq2seq_en_scitldr" / "SciTLDR-A" / f"{part}.jsonl.xz")
        papers = [json.loads(line)["source"] for line in whole.splitlines()]
        path.write_text("\n\n".join("\n".join(" ".join(s.split()) for s in one) for one in papers) + "\n", encoding="utf-8")
    return path


def bits(chosen: Choice, folder: Path) -> dict[str, float]:
    """Pseudo-bits per byte of unseen abstracts and of unseen Wikipedia, and tokens per word of the former."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.corpus.readers import read_documents
    from cloze.decoding.scores.text_figures import figures_of, first_bytes

    loaded, found = load_checkpoint(folder, "cpu"), {}
    for name, path in (("domain", abstracts(chosen, "test")), ("general", chosen.data / "text_en_wiki" / "valid.txt.xz")):
        figures = figures_of(loaded, first_bytes((one.sentences for one in read_documents([path])), BYTES))
        assert figures.method == "pseudo_log_likelihood" and figures.bits_per_byte is not None
        found[name] = figures.bits_per_byte
        found[f"{name}_tokens_per_word"] = figures.tokens_per_word
    return found


def polarity(chosen: Choice, labels: int) -> tuple[str, str, str]:
    """Files of training, dev and test rows; the same dev and test rows for every number of labels."""
    train, dev, test = task_files.write("polarity", (LABELS[-1], DEV, TEST), chosen.data, chosen.work)
    some = chosen.work / f"polarity-train-{labels}.jsonl"
    some.write_text("".join(train.read_text(encoding="utf-8").splitlines(keepends=True)[:labels]), encoding="utf-8")
    return str(some), str(dev), str(test)


# ---- experiments --------------------------------------------------------------------------------------------------------


def quick_onto(chosen: Choice, name: str, **changed: Any) -> Path:
    """A recipe that trains `quick` from a bound checkpoint, with other values of `network`, `training` or `schedule`."""
    from cloze.recipe.canonical import to_yaml
    from cloze.recipe.load import load_recipe

    own = ("texts", "reading", "networks", "schedule", "paper", "notes")  # the checkpoint has its own, or they are changed
    kept = {key: value for key, value in load_recipe("quick").canonical().items() if key not in own}
    kept["sources"]["main"]["passages"]["length"] = 128
    kept["training"] |= {"evaluate_every": 0, "checkpoint_every": 10**6, "keep": 1, "keep_steps": [0]}
    kept["training"] |= changed.pop("training", {})
    network = {"from": "start", **changed.pop("network", {})}
    path = chosen.work / f"{name}.yaml"
    path.write_text(to_yaml({**kept, "name": "quick-onto", "network": network, **changed}), encoding="utf-8")
    return path


def continued(chosen: Choice, name: str, seed: int, recipe: Path, tokenizer: Path | None) -> Path:
    """The folder of a run that reads the domain's text."""
    from cloze.runs.run import pretrain

    out = chosen.out(name)
    shutil.rmtree(out, ignore_errors=True)
    outcome = pretrain(
        recipe, corpus=abstracts(chosen, "train"), binds=[f"start={chosen.model}"], tokenizer=tokenizer, out=out,
        budget=f"{TOKENS}tokens", seed=seed, device="cpu", report=lambda line: None,
    )
    if not outcome.finished:
        raise SystemExit(f"{out}: stopped by a signal. Run the same command again.")
    return out


def continue_on(chosen: Choice, variant: str, number: int, seed: int, name: str) -> dict[str, Any]:
    """Bits per byte in and out of the domain, before and after."""
    peak = {"rate": {"linear": {"peak": CONTINUED[variant] * PEAK, "warmup": 0.1}}}
    out = continued(chosen, name, seed, quick_onto(chosen, name, training=peak), None)
    return {"before": bits(chosen, chosen.model), "after": bits(chosen, out)}


def add_words(chosen: Choice, variant: str, number: int, seed: int, name: str) -> dict[str, Any]:
    """The same with added words: at the start, when only the vocabulary has changed, and at the end."""
    from cloze.corpus.readers import read_documents
    from cloze.text import Tokenizer
    from cloze.text.vocabularies.vocabulary import extended, fit_of

    new, share = STARTS[variant]
    tokenizer, words = Tokenizer.load(chosen.model), chosen.work / f"words-{name}"
    texts = (sentence for one in read_documents([abstracts(chosen, "train")]) for sentence in one.sentences)
    candidates = fit_of(tokenizer, texts).candidates(min_count=5)[:WORDS]
    extended(tokenizer, [one.word for one in candidates]).save(words, length=512, frame_single="{A}", frame_pair="{A} {B}")
    phases = [{"share": share, "set": {"network.train": ["embeddings"]}}, {"share": 1.0 - share}] if share else []
    recipe = quick_onto(
        chosen, name, network={"change": [{"vocabulary": {"new": new}}]}, schedule=phases,
        training={"rate": {"linear": {"peak": 0.1 * PEAK, "warmup": 0.1}}},
    )
    out = continued(chosen, name, seed, recipe, words)
    shutil.rmtree(words)
    return {"before": bits(chosen, out / "cloze" / "checkpoints" / "step-00000000"), "after": bits(chosen, out)}


def read_layers(chosen: Choice, variant: str, number: int, seed: int, name: str) -> dict[str, Any]:
    """F1 of names from chosen layers of a frozen network, or from all of it."""
    train, dev, test = map(str, task_files.write("wnut", NAMES, chosen.data, chosen.work))
    read = LAYERS[variant]
    if read is None:
        changes, values = [], ["training.epochs=3", "training.batch=16"]
    else:
        changes = [f"features={{use: {read[0]}, combine: {read[1]}}}"]
        values = ["training.epochs=4", "training.batch=16", "training.rate.peak=3e-3"]
    return tuned(
        task_files.minilm(), (train, dev, test), seed, chosen.out(name), task="token_labelling", changes=changes,
        overrides=[*values, "task.patience=0"],
    )


def thaw(chosen: Choice, variant: str, number: int, seed: int, name: str) -> dict[str, Any]:
    """Accuracy of polarity by a way of unfreezing, at the rate that cloze fits to the checkpoint and the number of rows."""
    from cloze.budget.row_counts import RowCounts
    from cloze.checkpoint.build import load_checkpoint
    from cloze.recipe.canonical import to_yaml
    from cloze.runs.finetuning.task_recipe import recipe_onto

    counts = {"main": RowCounts(rows=number, classes=2)}
    made = recipe_onto("sentence_classification", load_checkpoint(chosen.model), row_counts=counts).canonical()
    changed = dict(THAWS[variant])
    made["networks"] = {"main": {"from": "start", "train": changed.pop("train", "all")}}
    made["training"] |= {**changed, "epochs": 10}
    made["task"]["patience"] = 0
    for key in ("texts", "reading", "order"):
        made.pop(key, None)
    recipe = chosen.work / f"{name}.yaml"
    recipe.write_text(to_yaml(made), encoding="utf-8")
    return tuned(chosen.model, polarity(chosen, number), seed, chosen.out(name), recipe=recipe)


def auxiliary(chosen: Choice, variant: str, number: int, seed: int, name: str) -> dict[str, Any]:
    """Accuracy with the masked language model trained along, and its bits per byte afterwards."""
    return tuned(
        chosen.model, polarity(chosen, number), seed, chosen.out(name), task="sentence_classification",
        auxiliary=AUXILIARY[variant], overrides=["training.epochs=10", "task.patience=0"],
        more=lambda folder: {"bits": bits(chosen, folder)},
    )


EXPERIMENTS: Mapping[str, Callable[[Choice, str, int, int, str], dict[str, Any]]] = {
    "continue": continue_on, "words": add_words, "layers": read_layers, "thaw": thaw, "auxiliary": auxiliary,
}  # fmt: skip


def one(chosen: Choice, experiment: str, variant: str, number: int, seed: int) -> None:
    """One cell, into the ledger."""
    name = f"{experiment}-{variant.replace(' ', '-').replace(',', '')}-{number}-{seed}"
    started = time.process_time()
    found = EXPERIMENTS[experiment](chosen, variant, number, seed, name)
    seconds = round(time.process_time() - started)
    chosen.ledger.add(chosen.run(experiment, variant, number, seed), {**found, "processor_seconds": seconds})
    for made in (chosen.out(name), chosen.work / f"{name}.yaml"):
        shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
    print(experiment, variant, number, seed, json.dumps(found), f"{seconds} s", flush=True)


def require_learned(model: Path) -> None:
    """Refuse a model that has not learned: the last held-out loss of its run against single tokens."""
    events = [json.loads(line) for line in (model / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    held = next(event["objectives"] for event in reversed(events) if event["event"] == "held_out")
    single = next(event["baselines"] for event in events if event.get("baselines"))
    for objective, loss in held.items():
        alone = single[objective]["single"]
        if alone - loss < LEARNED:
            raise SystemExit(f"{model}: held-out loss {loss:.2f}, single tokens {alone:.2f}: it has learned too little.")


# ---- tables -------------------------------------------------------------------------------------------------------------


def tables(ledger: Ledger) -> Iterator[str]:
    """All tables of what is finished."""
    for experiment, (variants, numbers) in PLAN.items():
        rows = [row for variant in variants if (row := list(row_of(ledger, experiment, variant, numbers)))]
        if rows:
            head = HEADS[experiment](numbers)
            lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]
            yield "\n".join([f"### {experiment}", "", *lines, *orders(ledger, experiment, numbers)])


#: Experiment → variants and what they are compared with.
ORDERS: Mapping[str, Sequence[tuple[str, str]]] = {
    "words": [("pieces", "mean"), ("mean", "random"), ("pieces, phases", "pieces")],
    "layers": [
        ("second to last", "embeddings"), ("embeddings", "last"), ("mix of all", "second to last"), ("all tuned", "mix of all"),
    ],
    "thaw": [(one, "all at once") for one in ("gradual", "rates by depth", "both", "head alone")],
    "auxiliary": [("with", "without")],
}


def orders(ledger: Ledger, experiment: str, numbers: Sequence[int]) -> Iterator[str]:
    """Rows of differences, paired by seed, of what the table of the experiment shows."""

    def read(run: Mapping[str, Any]) -> float:
        return run["after"]["domain"] if experiment == "words" else 100 * _metric(experiment, run)

    for one, other in ORDERS.get(experiment, ()):
        cells = []
        for number in numbers:
            first, second = (
                {run["seed"]: read(run) for run in ledger.results(experiment=experiment, variant=name, number=number)}
                for name in (one, other)
            )
            gap = difference(first, second, len(SEEDS), 3 if experiment == "words" else 1)
            cells += {"words": ["", gap, "", ""], "auxiliary": [gap, ""]}.get(experiment, [gap])
        if any(cell not in ("", "–") for cell in cells):
            yield "| " + " | ".join([f"*{one} − {other}*", *cells]) + " |"


def _metric(experiment: str, run: Mapping[str, Any]) -> float:
    return float(run["test"]["span_f1" if experiment == "layers" else "accuracy"])


HEADS: Mapping[str, Callable[[Sequence[int]], list[str]]] = {
    "continue": lambda numbers: ["rate", "abstracts, before", "after", "Wikipedia, before", "after"],
    "words": lambda numbers: ["new embeddings", "abstracts, at the start", "after", "Wikipedia, after", "tokens per word"],
    "layers": lambda numbers: ["read", "span F1, %"],
    "thaw": lambda numbers: ["unfreezing", *(f"{number:,} labels, accuracy, %" for number in numbers)],
    "auxiliary": lambda numbers: ["language model", *(
        word for number in numbers for word in (f"{number:,} labels, accuracy, %", "Wikipedia, after")
    )],
}  # fmt: skip


def row_of(ledger: Ledger, experiment: str, variant: str, numbers: Sequence[int]) -> Iterator[str]:
    """A row of a table; nothing if no cell of it is finished."""
    found = {number: ledger.results(experiment=experiment, variant=variant, number=number) for number in numbers}
    if not any(found.values()):
        return
    yield variant
    for runs in found.values():
        if experiment in ("continue", "words"):
            both = [("domain", "before"), ("domain", "after"), ("general", "before"), ("general", "after")]
            wanted = both if experiment == "continue" else [both[0], both[1], both[3], ("domain_tokens_per_word", "after")]
            yield from (shown([run[when][text] for run in runs], len(SEEDS)) for text, when in wanted)
            continue
        yield shown([100 * _metric(experiment, run) for run in runs], len(SEEDS), 1)
        if experiment == "auxiliary":
            yield shown([run["bits"]["general"] for run in runs], len(SEEDS))


def main() -> None:
    """Run what the ledger lacks, then print the tables."""
    options = parser(__doc__, "runs/domain", "EXPERIMENT:VARIANT:NUMBER:SEED")
    options.add_argument("--model", type=Path, help="a run of quick that has learned")
    options.add_argument("--experiments", nargs="+", choices=list(PLAN), default=list(PLAN))
    options.add_argument("--seeds", type=int, default=len(SEEDS))
    said = options.parse_args()
    ledger = Ledger(RESULTS / "domain.jsonl")
    if not said.table:
        if said.model is None:
            raise SystemExit("--model FOLDER is missing: a run of quick that has learned.")
        said.work.mkdir(parents=True, exist_ok=True)
        chosen = Choice(said.data, said.work, said.model, ledger)
        if said.only:
            experiment, variant, number, seed = said.only.split(":")
            one(chosen, experiment, variant, int(number), int(seed))
            return
        require_learned(said.model)
        for part in ("train", "test"):
            abstracts(chosen, part)
        for name, rows in (("polarity", (LABELS[-1], DEV, TEST)), ("wnut", NAMES)):
            task_files.write(name, rows, said.data, said.work)
        missing = [
            ":".join(map(str, cell)) for seed in SEEDS[: said.seeds] for experiment in said.experiments
            for number in PLAN[experiment][1] for variant in PLAN[experiment][0]
            if not ledger.has(chosen.run(*(cell := (experiment, variant, number, seed))))
        ]  # fmt: skip
        share(missing, said.jobs)
    print("\n\n".join(tables(ledger)))


if __name__ == "__main__":
    main()
