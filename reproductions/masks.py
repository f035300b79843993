"""Which tokens are hidden, how many, and whether they are drawn again in every epoch: masks of a network that has learned.

    python reproductions/masks.py --data ../shared/data --work runs/masks [--jobs 2]
    python reproductions/masks.py --table

`quick` of size tiny reads the same number of tokens of English Wikipedia with other masks, as cloze fits it to that budget.
epochs: masks drawn in every epoch against masks drawn once (RoBERTa, §4.1), on a small text that is read many times. rate: 15 to
60 % of the tokens (Wettig et al., 2023). unit: single tokens, whole words, and spans (SpanBERT). Every network is measured on the
same held-out text, with the masks of all units and with rates of 15 and 30 %, and by the parts of speech that it gives to UD-EWT
after fine-tuning on 300 sentences. A network counts if its held-out loss is at least 1.5 nats below that of single tokens.
A finished cell is a line in results/masks.jsonl and is not repeated (ledger.py). What comes out is in reproductions/masks.md.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import task_files
from cells import difference, parser, share, shown, tuned
from family import COMMON, Choice, Trained, prepare
from ledger import RESULTS, Ledger

SEEDS = (1, 2, 3)
LEARNED = 1.5  # nats below single tokens
SMALL = 1_000_000  # characters of the small text
TAGS = (300, 150, 300)  # sentences of UD-EWT
WORDS, SPANS = ["exercise.mask.unit=whole_word"], ["exercise.mask.unit=span"]  # spans have SpanBERT's lengths
#: Experiment → variant → values of `quick`, which hides 30 % of single tokens.
PLAN: Mapping[str, Mapping[str, Sequence[str]]] = {
    "epochs": {"in every epoch": [], "once": ["corpus.passages.static=true"]},
    "rate": {f"{rate:.0%}": [f"exercise.mask.rate={rate}"] if rate != 0.3 else [] for rate in (0.15, 0.3, 0.4, 0.6)},
    "unit": {"tokens": [], "whole words": WORDS, "spans": SPANS},
}
FIRST = {"epochs": "in every epoch", "rate": "30%", "unit": "tokens"}  # what the others are compared with
#: What the held-out loss is measured with.
MASKS: Mapping[str, Sequence[str]] = {
    "tokens, 15%": ["exercise.mask.rate=0.15"], "tokens, 30%": ["exercise.mask.rate=0.3"],
    "words, 15%": ["exercise.mask.rate=0.15", *WORDS], "spans, 15%": ["exercise.mask.rate=0.15", *SPANS],
}  # fmt: skip


def main() -> None:
    """Run what the ledger lacks, then print the tables."""
    options = parser(__doc__, "runs/masks", "EXPERIMENT:VARIANT:SEED")
    options.add_argument("--tokens", default="4Mtokens", help="the budget of every network")
    options.add_argument("--experiments", nargs="+", choices=list(PLAN), default=list(PLAN))
    given = options.parse_args()
    ledger = Ledger(RESULTS / "masks.jsonl")
    chosen = Choice(given.data, given.work, given.work, given.tokens, "cpu", 0, ledger)
    if given.only:
        experiment, variant, seed = given.only.split(":")
        one(chosen, experiment, variant, int(seed))
        return
    if not given.table:
        cells = [(name, variant, seed) for seed in SEEDS for name in given.experiments for variant in PLAN[name]]
        waiting = [":".join(map(str, each)) for each in cells if not ledger.has(cell(chosen, *each))]
        if waiting:
            stores(chosen)
        share(waiting, given.jobs)
    print("\n\n".join(tables(ledger, given.tokens)))


def cell(chosen: Choice, experiment: str, variant: str, seed: int) -> dict[str, Any]:
    """What a cell is known by in the ledger: the values of its masks, so that experiments share a network."""
    return {"text": "small" if experiment == "epochs" else "large", "set": list(PLAN[experiment][variant] or ()),
            "budget": chosen.tokens, "seed": seed}  # fmt: skip


def stores(chosen: Choice) -> None:
    """The stores of the whole text, of its small part and of held-out text, with one tokenizer, and the rows of the task."""
    from cloze.corpus import Store
    from cloze.corpus.stores.build import build_store

    prepare(chosen)
    task_files.write("ewt", TAGS, chosen.data, chosen.work)
    if not Store.is_store(chosen.work / "small"):
        whole = task_files.unpacked(chosen.data / "text_en_wiki" / "train.txt.xz")[:SMALL]
        text = chosen.work / "small.txt"
        text.write_text(whole[: whole.rindex("</doc>") + len("</doc>\n")], encoding="utf-8")
        build_store([text], Store.open(chosen.work / "large").tokenizer(), chosen.work / "small", report=print)


def one(chosen: Choice, experiment: str, variant: str, seed: int) -> None:
    """Train a network, and measure it."""
    from cloze.runs.run import pretrain

    run, started = cell(chosen, experiment, variant, seed), time.time()
    label = f"{experiment}-{variant.replace(' ', '-')}-{seed}"
    outcome = pretrain(
        "quick", corpus=chosen.work / run["text"], out=chosen.work / f"run-{label}", budget=chosen.tokens, size="tiny",
        overrides=[*COMMON, *run["set"]], seed=seed, device="cpu", report=lambda text: None,
    )
    if not outcome.finished:
        raise SystemExit(f"{outcome.folder}: stopped by a signal. Run the same command again.")
    events = [json.loads(line) for line in (outcome.folder / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    single = next(event["baselines"] for event in events if event.get("baselines"))["token_prediction"]["single"]
    last = [event for event in events if event["event"] == "train"][-1]
    trained, seconds = Trained(outcome.folder, seed, chosen), round(time.time() - started)
    losses = {name: trained.held_out("exercise.mask.unit=token", *values)["token_prediction"] for name, values in MASKS.items()}
    train, dev, test = (str(chosen.work / f"ewt-{part}.conllu") for part in ("train", "dev", "test"))
    tags = tuned(
        outcome.folder, (train, dev, test), seed, chosen.work / f"tuned-{label}", task="token_labelling",
        overrides=["corpus.text=form", "corpus.label=upos"],
    )
    found = {"single": single, "losses": losses, "tags": tags["test"]["accuracy"], "tokens": last["tokens"],
             "epochs": last.get("epochs"), "updates": outcome.step, "seconds": seconds}  # fmt: skip
    chosen.ledger.add(run, found)
    for folder in (outcome.folder, chosen.work / f"tuned-{label}"):
        shutil.rmtree(folder, ignore_errors=True)
    print(label, json.dumps(found), flush=True)


def tables(ledger: Ledger, tokens: str) -> Iterator[str]:
    """A table for each experiment: losses and tags by variant, then differences from the first one, paired by seed."""
    heads = ["masks", *(f"loss, {name}" for name in MASKS), "parts of speech, %", "epochs", "learned"]
    for experiment, variants in PLAN.items():
        text = "small" if experiment == "epochs" else "large"
        found = {
            variant: runs for variant, values in variants.items()
            if (runs := ledger.results(text=text, set=list(values), budget=tokens))
        }  # fmt: skip
        if not found:
            continue
        rows = []
        for variant, runs in found.items():
            under = [run["single"] - run["losses"]["tokens, 15%"] for run in runs]
            cells = [shown([run["losses"][name] for run in runs], len(SEEDS), 2) for name in MASKS]
            cells += [shown([100 * run["tags"] for run in runs], len(SEEDS), 1), f"{runs[0]['epochs']:.1f}"]
            rows.append([variant, *cells, "yes" if min(under) >= LEARNED else f"no ({min(under):.2f} nats)"])
        first = found.pop(FIRST[experiment], [])
        for variant, runs in found.items():
            gaps = [paired(runs, first, lambda run, name=name: run["losses"][name], 2) for name in MASKS]
            gaps.append(paired(runs, first, lambda run: 100 * run["tags"], 1))
            rows.append([f"*{variant} − {FIRST[experiment]}*", *gaps, "", ""])
        lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]
        yield "\n".join([f"### {experiment}", "", *lines])


def paired(runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], of: Any, digits: int) -> str:
    """The difference of a value between runs with the same seeds."""
    first, second = ({run["seed"]: of(run) for run in some} for some in (runs, others))
    return difference(first, second, len(SEEDS), digits)


if __name__ == "__main__":
    main()
