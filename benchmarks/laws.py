"""What a budget of tokens teaches: fits the laws of `cloze/budget/expected.py` to ledgers of runs and draws them.

    python benchmarks/laws.py                              # every benchmarks/results/sweep_*.jsonl
    python benchmarks/laws.py runs.jsonl --figures runs/laws

A ledger is what `benchmarks/sweep.py` writes: `run` with recipe, size, text, tokens and values that were set, `result` with the
baselines and the curve of held-out losses by objective. Of the runs of one recipe, size, text and number of tokens the best one
counts: a law is about fitted runs. Those of another network or exercise than the recipe's are left out. Of a run its end counts,
since its rate has fallen to zero only then. `epochs` says how often a run read its text (absent: at most once), `start` that its
table started from vectors. Constants are those of the least squares, with a weak pull towards `START` where runs
are few. Prints rows for `LAWS`, how far the runs are from them, and draws a figure for each.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

RESULTS = Path(__file__).parent / "results"
LEDGERS = "sweep_*.jsonl"
ALIKE = ("recipe", "size", "text", "tokens")
# log10 of the tokens at a million parameters, power of the size, knee, power, floor; and how far each may stray, in deviations.
START = {
    "masked": (6.2, 0.2, 2.0, 0.25, 0.3), "causal": (5.3, 0.2, 2.0, 0.2, 0.5), "spans": (5.6, 0.2, 2.0, 0.2, 0.35),
    "permuted": (6.0, 0.2, 2.0, 0.2, 0.4), "replaced": (6.2, 0.2, 2.0, 0.2, 0.3),
}  # fmt: skip
STRAY = (1.0, 0.15, 0.7, 0.1, 0.1)
EASE, EASE_STRAY, EASIEST = 0.0, 1.0, 6.0  # the same of the constant that tells texts apart, and the largest
APART = 1.0  # nats between the pairs of the easiest and the hardest text, from which that constant is fitted
NOISE = 0.1  # nats: what one run differs from the next, about
FEW = 0.5  # nats: what a law that rests on a single run may be off by
SMALLEST, LARGEST = (3.0, 0.0, 1.0, 0.1, 0.0), (9.0, 1.0, 6.0, 1.0, 0.9)


class Point(NamedTuple):
    """The end of a run: its tokens, the network's parameters without tables, what counting gives, and its loss."""

    recipe: str
    size: str
    parameters: float
    tokens: float
    single: float
    pairs: float | None
    loss: float


def main() -> None:
    """Fit, print and draw."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("ledgers", nargs="*", type=Path, help=f"default: benchmarks/results/{LEDGERS}")
    options.add_argument("--figures", type=Path, help="draw an SVG figure for each law into this folder (needs matplotlib)")
    given = options.parse_args()
    ledgers = given.ledgers or sorted(RESULTS.glob(LEDGERS))
    if not ledgers:
        raise SystemExit(f"{RESULTS}: there is no {LEDGERS}. Give ledgers of runs.")
    groups: dict[Any, list[Point]] = {}
    for kind, point in points(line for ledger in ledgers for line in lines(ledger)):
        groups.setdefault(kind, []).append(point)
    named = ", ".join(ledger.name for ledger in given.ledgers) or LEDGERS
    for kind, found in sorted(groups.items()):
        law = fitted(kind.exercise, found, ledger=named)
        off = np.abs(misses(law, found))
        told = f"{len(found)} runs, off by {median(off):.3f} (median), {max(off):.3f} (worst) nats"
        print(f"# {kind.exercise}, {kind.network}: {told}")
        print(f"    Kind({kind.exercise!r}, {kind.network!r}): {row(law)},")
        if given.figures is not None:
            draw(kind, law, found, given.figures)


def lines(ledger: Path) -> Iterator[dict[str, Any]]:
    """The runs of a ledger."""
    for text in ledger.read_text(encoding="utf-8").splitlines():
        if text.strip():
            line = json.loads(text)
            yield {**line["run"], **line["result"]}


def points(runs: Iterable[dict[str, Any]]) -> Iterator[tuple[Any, Point]]:
    """The best end of every group of runs, with the kind of its objective."""
    best: dict[tuple[Any, ...], tuple[Any, Point]] = {}
    for run in runs:
        baselines, (_, tokens, losses) = run.get("baselines") or {}, run["curve"][-1]
        vocabulary = next((round(math.exp(known["chance"])) for known in baselines.values() if "pairs" in known), 0)
        for name, loss in losses.items():
            known = baselines.get(name) or replaced(run.get("metrics") or {}, name)
            values = tuple(value for value in run.get("set", ()) if "*" not in value)
            begun = tuple(value for value in run.get("fitted") or () if ".initial.offsets=" in value)
            found = kind_and_size(run["recipe"], run["size"], begun, values, vocabulary, name) if known and vocabulary else None
            if known is None or found is None:
                continue
            kind, parameters = found
            end = Point(run["recipe"], run["size"], parameters, worth(run, tokens), known["single"], known.get("pairs"), loss)
            texts = tuple(value for value in values if value.startswith("text"))
            key = (name, kind, texts, *(run[part] for part in ALIKE))
            if key not in best or loss < best[key][1].loss:
                best[key] = (kind, end)
    return iter(best.values())


def worth(run: dict[str, Any], tokens: float) -> float:
    """How many tokens of new text teach a network whose table is drawn as much as those of a run."""
    from cloze.budget.expected import STARTED, fresh

    text = tokens / run["epochs"] if "epochs" in run else math.inf
    return fresh(float(tokens), text) * (STARTED if "start" in run else 1.0)


def replaced(metrics: dict[str, float], name: str) -> dict[str, float] | None:
    """The loss of the constant answer, from the share of tokens that a generator replaced."""
    share = metrics.get(f"{name}.positive")
    if share is None or not 0.0 < share < 1.0:
        return None
    return {"single": -share * math.log(share) - (1.0 - share) * math.log(1.0 - share)}


@cache
def kind_and_size(
    recipe: str, size: str, begun: tuple[str, ...], values: tuple[str, ...], vocab: int, name: str
) -> tuple[Any, float] | None:
    """The kind of an objective of a recipe, and the parameters of its network without tables; None where no law is about it.

    `begun` are values of how its weights begin, which make it no other system.
    """
    from cloze.budget.baselines import label_of
    from cloze.budget.expected import run_kind_of
    from cloze.checkpoint.build import build_step
    from cloze.errors import ClozeError
    from cloze.recipe.load import load_recipe
    from cloze.runs.plan import without_tables

    try:
        stands = load_recipe(recipe, size=size, overrides=list(begun))
        loaded = load_recipe(recipe, size=size, overrides=[*begun, *values])
    except ClozeError:
        return None
    if loaded.networks != stands.networks or loaded.entries != stands.entries:  # another system than the recipe's
        return None
    step = build_step(loaded, vocab_size=vocab, device="meta")
    for entry, spec in loaded.step_entries.items():
        for pass_, objective in spec.objectives():
            kind = run_kind_of(loaded, spec, pass_, objective) if label_of(loaded, entry, objective) == name else None
            if kind is not None:
                return kind, float(without_tables(step.networks[pass_.network].parameters(), vocab))
    return None


def fitted(exercise: str, found: list[Point], *, ledger: str) -> Any:
    """The law of one kind by least squares."""
    from scipy.optimize import least_squares

    start = np.array(START[exercise])

    stray, least, most = np.array(STRAY), list(SMALLEST), list(LARGEST)
    pairs = [point.pairs for point in found if point.pairs is not None]
    if pairs and max(pairs) - min(pairs) >= APART:
        start, stray, least, most = np.append(start, EASE), np.append(stray, EASE_STRAY), [*least, 0.0], [*most, EASIEST]

    def residuals(theta: np.ndarray) -> np.ndarray:
        law = of(theta, found, ledger)
        scale = NOISE if found[0].pairs is not None else NOISE / 10
        return np.concatenate([misses(law, found) / scale, (theta - start) / stray])

    answer = least_squares(residuals, start, bounds=(least, most), loss="soft_l1")
    law = of(answer.x, found, ledger)
    seen = float(np.quantile(np.abs(misses(law, found)), 0.9))
    return law._replace(scatter=max(seen, (FEW if found[0].pairs is not None else FEW / 10) / math.sqrt(len(found))))


def misses(law: Any, found: list[Point]) -> np.ndarray:
    """By how much a law says too much of each run, in nats."""
    said = [law.loss(parameters=point.parameters, tokens=point.tokens, single=point.single, pairs=point.pairs) for point in found]
    return np.array(said) - np.array([point.loss for point in found])


def of(theta: np.ndarray, found: list[Point], ledger: str) -> Any:
    """The law with these constants."""
    from cloze.budget.expected import Law

    tokens, size, knee, power, floor, *ease = (float(value) for value in theta)
    budgets = [point.tokens for point in found]
    return Law(10**tokens, size, knee, power, floor, 0.0, min(budgets), max(budgets), len(found), ledger, *ease)


def row(law: Any) -> str:
    """A law as it stands in `LAWS`."""
    numbers = ", ".join(f"{value:.3g}" for value in law[:8])
    ease = f", {law.ease:.3g}" if law.ease else ""
    return f"Law({numbers}, {law.runs}, {'_LEDGERS' if law.ledger == LEDGERS else repr(law.ledger)}{ease})"


def draw(kind: Any, law: Any, found: list[Point], folder: Path) -> None:
    """Loss under single tokens by tokens: the runs as dots, the law as a line for each size."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    ends = math.log10(law.least) - 0.5, math.log10(law.most) + 0.5
    grid = np.logspace(*ends, 100)
    like = found[0]
    for number, many in enumerate(sorted({point.parameters for point in found})):
        own = [point for point in found if point.parameters == many]
        label = f"{own[0].size}, {many / 1e6:.2g} M parameters"
        axes.plot([p.tokens for p in own], [p.single - p.loss for p in own], "o", color=f"C{number}", label=label)
        line = [law.loss(parameters=many, tokens=d, single=like.single, pairs=like.pairs) for d in grid]
        axes.plot(grid, [like.single - loss for loss in line], color=f"C{number}")
    axes.axhline(0.0, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="tokens of the budget", ylabel="nats under counting alone")
    axes.set_title(f"{kind.exercise}, {kind.network}")
    axes.legend()
    folder.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(folder / f"law_{kind.exercise}_{kind.network}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
