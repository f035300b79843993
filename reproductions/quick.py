"""What each part of `quick` is worth, and what was tried on top of it: ablations with seeds, at equal tokens and equal seconds.

    python reproductions/quick.py --data ../shared/data --work runs/quick [--jobs 2]
    python reproductions/quick.py --table

Every variant is `quick` of size tiny as cloze fits it to a million tokens of English Wikipedia, with the values of one entry
of PLAN changed. Whatever a variant hides while it learns, its held-out loss is that of `quick`'s own exercise (30 % of single
tokens) on the same rows. Seconds are processor time of one thread, the least of the seeds, because other work on the machine
adds to it. Variants need more or fewer of them for as many tokens, so `quick` is also trained on other numbers of tokens: the
last column compares a variant with `quick` after as many seconds.
A finished cell is a line in results/quick.jsonl and is not repeated (ledger.py).
"""

from __future__ import annotations

import copy
import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

from cells import difference, parser, share, shown
from family import COMMON, Choice, Trained, prepare
from ledger import RESULTS, Ledger

SEEDS = (1, 2, 3)
TOKENS = 1_000_000
#: What `quick` alone is trained on, too, as multiples of TOKENS.
CURVE = (0.75, 1.5)
NETWORK = "networks.main.transformer"
ROWS_OF = {32: 4}  # as many tokens in an update as with 128 in a row
MUON = {"muon": {"betas": [0.9, 0.98], "epsilon": 1e-6, "weight_decay": 0.1}}

#: Variant → path of the recipe → value. None of them changes what `quick` is asked when it is measured.
PLAN: Mapping[str, Mapping[str, Any]] = {
    "quick": {},
    # without one of its parts
    "ModernBERT's window, 64 to each side": {f"{NETWORK}.attention.band.width": 128},
    "no window": {f"{NETWORK}.attention.band": None},
    "learned positions": {f"{NETWORK}.positions": {"learned": {"max_length": 512}}},
    "norms after the layers": {f"{NETWORK}.norm": {"post": {"kind": "layer", "epsilon": 1e-5, "embedding": True}}},
    "feed-forward without a gate, as many parameters": {f"{NETWORK}.feed_forward": {"plain": {"inner": 288, "biases": False}}},
    "output embeddings not tied": {"passes.0.objectives.0.token_prediction.tie": False},
    "initial weights of 0.02": {f"{NETWORK}.initial.truncated.std": 0.02},
    "rate stays at its peak": {"floor": 1.0},
    # other exercises; masks.py has other rates and whole words
    "40 falling to 15 % hidden": {"exercise.1.mask.rate": {"linear": {"start": 0.4, "end": 0.15}}},
    "rare tokens hidden more often": {"exercise.1.mask.power": 0.5},
    "always [MASK]": {"exercise.2.corrupt": {"mask": 1.0, "random": 0.0, "keep": 0.0}},
    "one update in 8 predicts the next token": {"causal": 1 / 8},
    # other training
    "Muon, three times the peak of AdamW": {"training.optimizer": MUON, "peak": 3.0},
    "Muon, the same peak": {"training.optimizer": MUON},
    "Muon, six times the peak": {"training.optimizer": MUON, "peak": 6.0},
    "mean of the weights": {"training.average": {"decay": 0.99}},
    "rows of 32, then 128": {"rows": (32, 128)},
    "batch growing from a quarter": {"training.batch_warmup": {"linear": {"start": 0.25, "end": 1.0, "until": 0.5}}},
    "embeddings of half the width": {f"{NETWORK}.embedding.table": {"width": 64, "project": True}},
}


def main() -> None:
    """Run what the ledger lacks, then print the table."""
    options = parser(__doc__, "runs/quick", "VARIANT:TOKENS:SEED")
    given = options.parse_args()
    ledger = Ledger(RESULTS / "quick.jsonl")
    chosen = Choice(given.data, given.work, given.work, "", "cpu", 0, ledger)
    if given.only:
        variant, tokens, seed = given.only.rsplit(":", 2)
        one(chosen, cell(variant, int(tokens), int(seed)))
        return
    if not given.table:
        budgets = [("quick", round(TOKENS * times)) for times in CURVE] + [(variant, TOKENS) for variant in PLAN]
        cells = [cell(variant, tokens, seed) for seed in SEEDS for variant, tokens in budgets]
        waiting = [f"{each['variant']}:{each['tokens']}:{each['seed']}" for each in cells if not ledger.has(each)]
        if waiting:
            prepare(chosen)
        share(waiting, given.jobs)
    print("\n".join(table(ledger)))


def cell(variant: str, tokens: int, seed: int) -> dict[str, Any]:
    """What a cell is known by in the ledger."""
    return {"variant": variant, "set": json.loads(json.dumps(PLAN[variant])), "tokens": tokens, "seed": seed}


def one(chosen: Choice, run: dict[str, Any]) -> None:
    """Train a variant, and measure it with the exercise of `quick`."""
    from cloze.recipe.canonical import to_yaml
    from cloze.runs.planning import fitted_recipe
    from cloze.runs.run import pretrain

    label = f"{list(PLAN).index(run['variant'])}-{run['tokens']}-{run['seed']}"
    fitted, _ = fitted_recipe("quick", f"{run['tokens']}tokens", corpus=chosen.store / "large", size="tiny", overrides=COMMON)
    base = fitted.recipe.canonical()
    paths = {}
    for name, recipe in (("trained", changed(base, run["set"])), ("asked", asked(base, run["set"]))):
        paths[name] = chosen.work / f"{label}-{name}.yaml"
        paths[name].write_text(to_yaml(recipe), encoding="utf-8")
    started = time.process_time()
    outcome = pretrain(
        paths["trained"], corpus=chosen.store / "large", out=chosen.work / f"run-{label}", budget=f"{run['tokens']}tokens",
        seed=run["seed"], device="cpu", report=lambda text: None,
    )
    if not outcome.finished:
        raise SystemExit(f"{outcome.folder}: stopped by a signal. Run the same command again.")
    seconds = time.process_time() - started
    events = [json.loads(line) for line in (outcome.folder / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    baselines = next(event["baselines"] for event in events if event.get("baselines"))
    loss = Trained(outcome.folder, run["seed"], chosen, paths["asked"]).held_out()["token_prediction"]
    found = {"loss": loss, "single": next(iter(baselines.values()))["single"], "cpu": round(seconds, 1), "updates": outcome.step}
    chosen.ledger.add(run, found)
    shutil.rmtree(outcome.folder)
    print(run["variant"], run["tokens"], run["seed"], json.dumps(found), flush=True)


def changed(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe with the values of a variant."""
    whole = copy.deepcopy(dict(base))
    for path, value in values.items():
        if path == "causal":
            mix(whole, value)
        elif path == "rows":
            whole["schedule"] = [
                {"set": {"length": rows, "batch": whole["training"]["batch"] * ROWS_OF.get(rows, 1)}, "share": 1 / len(value)}
                for rows in value
            ]
        elif path in ("peak", "floor"):  # multiples of the fitted peak
            whole["training"]["rate"]["linear"][path] = value * base["training"]["rate"]["linear"]["peak"]
        else:
            put(whole, path, value)
    return whole


def put(whole: Any, path: str, value: Any) -> None:
    """Set one value."""
    *folders, name = path.split(".")
    for key in folders:
        whole = whole[int(key)] if isinstance(whole, list) else whole[key]
    whole[name] = value


def mix(whole: dict[str, Any], odds: float) -> None:
    """A share of the updates reads from left to right, and masked tokens are predicted where next ones are (GPT-BERT)."""
    exercise, (only,) = whole.pop("exercise"), whole.pop("passes")
    order = whole.pop("order")
    exercise[-1]["predict"]["shift"] = 1
    first = {**only["objectives"][0]["token_prediction"], "head": "token_prediction"}
    causal = [exercise[0], {"predict": {"what": "next", "set": "next"}}]
    whole["mixture"] = {
        "masked": {"odds": round(1 / odds) - 1, "order": order, "exercise": exercise,
                   "passes": [{**only, "objectives": [{"token_prediction": first}]}]},
        "causal": {"odds": 1, "order": "left_to_right", "exercise": copy.deepcopy(causal),
                   "passes": [{**only, "objectives": [{"token_prediction": {**first, "set": "next"}}]}]},
    }  # fmt: skip


def asked(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The network and head of a variant with the exercise of `quick`."""
    kept = {path: value for path, value in values.items() if path.startswith(("networks", "passes"))}
    whole = changed(base, kept)
    if "causal" in values:
        whole["exercise"][-1]["predict"]["shift"] = 1
    return whole


def table(ledger: Ledger) -> Iterator[str]:
    """Losses and seconds by variant, and how each differs from `quick`, paired by seed."""
    yield "| | held-out loss | seconds | minus `quick`, at equal tokens | minus `quick`, at equal seconds |"
    yield "|---|---|---|---|---|"
    base = ledger.results(variant="quick", tokens=TOKENS)
    curve = curve_of(ledger)
    for variant in PLAN:
        runs = ledger.results(variant=variant, tokens=TOKENS)
        if not runs:
            continue
        losses = [run["loss"] for run in runs]
        seconds = min(run["cpu"] for run in runs)
        cells = [variant, shown(losses, len(SEEDS), 2), f"{seconds:.0f}"]
        if variant == "quick":
            cells += ["", ""]
        else:
            own, others = ({run["seed"]: run["loss"] for run in some} for some in (runs, base))
            cells.append(difference(own, others, len(SEEDS), 2))
            cells.append(f"{mean(losses) - at(curve, seconds):+.2f}" if len(curve) > 1 else "–")
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield "`quick` alone: " + "; ".join(f"{seconds:.0f} s {loss:.2f}" for seconds, loss in curve) + "."
    if base:
        yield f"Single tokens: {mean(run['single'] for run in base):.2f}."


def curve_of(ledger: Ledger) -> list[tuple[float, float]]:
    """Seconds and losses of `quick`, by number of tokens."""
    found = []
    for times in sorted((*CURVE, 1.0)):
        runs = ledger.results(variant="quick", tokens=round(TOKENS * times))
        if runs:
            found.append((min(run["cpu"] for run in runs), mean(run["loss"] for run in runs)))
    return sorted(found)


def at(curve: Sequence[tuple[float, float]], seconds: float) -> float:
    """The loss after so many seconds: straight between neighbours in the logarithm of the seconds, and beyond the last two."""
    (x, a), (y, b) = next((pair for pair in pairwise(curve) if seconds <= pair[1][0]), (curve[-2], curve[-1]))
    return a + (b - a) * math.log(seconds / x) / math.log(y / x)


if __name__ == "__main__":
    main()
