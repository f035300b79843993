"""Many small pre-training runs, each a line of a ledger; on them the laws (reproductions/budgets.md) and the recipe `quick` rest.

    python benchmarks/sweep.py laws --data DATA --work runs/sweep [--workers 2]
    python benchmarks/sweep.py quick --data DATA --work runs/sweep --plan cells.jsonl

A cell names a recipe, a size, a text (`wiki`, `books`, `zh`: 25 MB of each, cut from the data folder), a number of tokens and
values that are set on top of the fit. Budgets are tokens, never seconds, so that other work on the machine changes nothing but
the time. Losses are those of a text that was held out whole. `cpu` are seconds of the processor, one thread a worker.

Finished cells stand in benchmarks/results/sweep_<name>.jsonl and are not repeated: rerun the command, it resumes. Those of
`regret` stand in regret.jsonl: they judge the fit, so the laws of `benchmarks/laws.py` are not fitted to them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import hashlib
import itertools
import json
import lzma
import math
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reproductions"))

from ledger import Ledger

Cell = dict[str, Any]

RESULTS = Path(__file__).parent / "results"
SYSTEMS = ("bert", "roberta", "electra-small", "gpt2", "t5-small", "bart-base", "xlnet-base", "modern", "awd-lstm")
HELD_OUT = 400_000  # characters of the held-out texts
QUIET = ["training.keep=1", "training.checkpoint_every=1000000", "training.held_out=0.0"]


def cell(recipe: str, size: str, tokens: float, *values: str, text: str = "wiki", seed: int = 0) -> Cell:
    """One run: `values` are set on top of the fit."""
    return {"recipe": recipe, "size": size, "text": text, "tokens": int(tokens), "set": list(values), "seed": seed}


def laws(ledger: Ledger) -> Iterator[Cell]:
    """Batch × rate around the fit, for systems that span the family; then tokens and sizes, along the fit."""
    for recipe in SYSTEMS:
        for tokens in (1e6, 3e6):
            yield cell(recipe, "tiny", tokens)
    for recipe, (rows, rate) in itertools.product(SYSTEMS, ((0.5, 1), (2, 1), (1, 0.5), (1, 2), (2, 2), (0.5, 0.5))):
        yield cell(recipe, "tiny", 1e6, f"rows*{rows}", f"rate*{rate}")
    for recipe in SYSTEMS:
        yield cell(recipe, "mini", 3e6)


COMBINATIONS = (
    ("bert", "tiny", "books", 6e5), ("roberta", "tiny", "books", 6e5), ("gpt2", "tiny", "zh", 6e5),
    ("gpt3", "tiny", "zh", 4e5), ("gpt", "tiny", "books", 6e5), ("transformer-xl", "tiny", "zh", 5e5),
    ("electra-small", "tiny", "books", 6e5), ("electra-base", "tiny", "wiki", 6e5), ("t5-small", "tiny", "zh", 5e5),
    ("t5-v1.1-small", "tiny", "wiki", 6e5), ("bart-base", "tiny", "books", 5e5), ("mass", "tiny", "books", 7e5),
    ("quick", "tiny", "zh", 7e5), ("quick", "tiny", "books", 5e5), ("quick-gpt", "tiny", "zh", 5e5),
    ("modern", "tiny", "zh", 8e5), ("nezha", "tiny", "zh", 6e5), ("structbert", "tiny", "books", 7e5),
    ("bert-wwm", "tiny", "books", 8e5), ("flaubert", "tiny", "books", 6e5), ("albert-base", "tiny", "books", 1e6),
    ("lstm", "tiny", "books", 3e5), ("gpt2", "mini", "books", 4e5), ("quick", "mini", "books", 4e5),
)  # fmt: skip
STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
FIT = (1.0, 1.0)
DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1))
WITHIN = 0.05  # nats that the fit may lose
HOPELESS = 0.02  # nats: a diagonal next to a neighbour that is so much worse is not tried
RIVALS = 2  # points besides the fit that are run with more seeds: the lowest of the search
JUDGES = (1, 2)  # the seeds of those runs; seed 0, which chose the points, favours the ones that were lucky
MEASURED = ("training.evaluate_every=0.5",)  # only the last loss counts, and a measurement takes a twentieth of a run
Point = tuple[float, float]
Combination = tuple[str, str, str, float]


def point_of(run: Mapping[str, Any]) -> Point:
    """The multiples of the fit's rows and rate that a run was made with."""
    times = dict(value.split("*") for value in run["set"] if "*" in value)
    return float(times.get("rows", 1)), float(times.get("rate", 1))


def losses_of(ledger: Ledger, combination: Combination, seed: int = 0) -> dict[Point, float]:
    """The held-out loss of the tokens at every point of the grid that has been run; a run that diverged counts as infinite."""
    recipe, size, text, tokens = combination
    found = {}
    for run in ledger.results(recipe=recipe, text=text, tokens=int(tokens), size=size, seed=seed):
        loss = run["curve"][-1][2]["token_prediction"]
        found[point_of(run)] = loss if math.isfinite(loss) else math.inf
    return found


def moved(point: Point, direction: tuple[int, int]) -> Point:
    """The neighbour of a point of the grid: twice or half the rows, the rate, or both."""
    return point[0] * 2.0 ** direction[0], point[1] * 2.0 ** direction[1]


def best_of(losses: Mapping[Point, float]) -> Point:
    """The point with the lowest loss."""
    return min(losses, key=lambda point: losses[point])


def finalists(losses: Mapping[Point, float]) -> list[Point]:
    """The fit, then the lowest other points of the search."""
    return [FIT, *sorted(losses.keys() - {FIT}, key=lambda point: losses[point])[:RIVALS]]


def untried(losses: Mapping[Point, float]) -> list[Point]:
    """The neighbours of the best point that have not been run, without the hopeless ones; the fit if nothing has been run."""
    if not losses:
        return [FIT]
    best = best_of(losses)

    def bad(point: Point) -> bool:
        return losses.get(point, losses[best]) > losses[best] + HOPELESS

    def hopeless(rows: int, rate: int) -> bool:
        return bool(rows and rate) and (bad(moved(best, (rows, 0))) or bad(moved(best, (0, rate))))

    points = [moved(best, direction) for direction in DIRECTIONS if not hopeless(*direction)]
    return [point for point in points if point not in losses and set(point) <= set(STEPS)]


def regret(ledger: Ledger) -> Iterator[Cell]:
    """The fit of recipes, texts and budgets, then a descent over a 5×5 grid of batch and rate.

    From the best point so far its neighbours are run, until none is better; the combination with the fewest runs comes first. The
    fit and the `RIVALS` lowest other points are then run with the seeds `JUDGES`, in every combination.
    """
    searched = {combination: losses_of(ledger, combination) for combination in COMBINATIONS}
    for combination, losses in sorted(searched.items(), key=lambda one: len(one[1])):
        yield from (cell_of(combination, point, 0) for point in untried(losses))
    for place, seed in itertools.product(range(1 + RIVALS), JUDGES):
        for combination, losses in searched.items():
            if not untried(losses) and (point := finalists(losses)[place]) not in losses_of(ledger, combination, seed):
                yield cell_of(combination, point, seed)


def cell_of(combination: Combination, point: Point, seed: int) -> Cell:
    """The run of a point of a combination's grid."""
    recipe, size, text, tokens = combination
    return cell(recipe, size, tokens, f"rows*{point[0]:g}", f"rate*{point[1]:g}", *MEASURED, text=text, seed=seed)


def regrets(ledger: Ledger) -> Iterator[str]:
    """The table of what the fit loses against the best point of its grid, by the mean of all seeds."""
    yield "| recipe | text | tokens | single tokens | fit | best | its rows and rate | regret | by seed 0 | by others | runs |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    lost: list[list[float]] = [[], [], []]
    for combination in COMBINATIONS:
        recipe, size, text, tokens = combination
        seeds = [losses_of(ledger, combination, seed) for seed in (0, *JUDGES)]
        if not seeds[0] or untried(seeds[0]) or not all(set(finalists(seeds[0])) <= found.keys() for found in seeds):
            continue
        means = {point: statistics.fmean(found[point] for found in seeds) for point in finalists(seeds[0])}
        best, chosen = best_of(means), best_of(seeds[0])
        others = statistics.fmean(found[FIT] - found[chosen] for found in seeds[1:])
        row = (means[FIT] - means[best], seeds[0][FIT] - seeds[0][chosen], others)
        for values, value in zip(lost, row, strict=True):
            values.append(value)
        first = ledger.results(recipe=recipe, text=text, tokens=int(tokens), size=size)[0]
        single = first["baselines"]["token_prediction"]["single"]
        named = recipe if size == "tiny" else f"{recipe} --size {size}"
        yield (
            f"| {named} | {text} | {tokens:,.0f} | {single:.2f} | {means[FIT]:.3f} | {means[best]:.3f} | "
            f"{best[0]:g}, {best[1]:g} | {row[0]:.3f} | {row[1]:.3f} | {row[2]:.3f} | {sum(map(len, seeds))} |"
        )
    for name, values in zip(("by the mean of three seeds", "by the seed of the search", "by the others"), lost, strict=True):
        if values:
            within = sum(value <= WITHIN for value in values)
            yield f"\nWithin {WITHIN} nats {name}: {within} of {len(values)}; the largest regret is {max(values):.3f}."


FAMILY = (
    "bert", "roberta", "gpt2", "t5-small", "bart-base", "electra-small", "xlnet-base", "modern", "quick", "quick-gpt",
    "awd-lstm", "albert-base", "transformer-xl", "elmo", "gpt-bert", "spanbert", "mass", "unilm", "structbert", "nezha",
    "lstm", "xlm-en", "gpt", "gpt3", "t5-v1.1-small", "electra-base", "context2vec", "lstm-char", "nnlm", "character-bert",
    "bert-wwm", "infoword", "camembert", "flaubert", "robbert", "bertje", "roberta-doc-sentences", "roberta-segment-pair",
    "roberta-sentence-pair", "siatl",
)  # fmt: skip


def family(ledger: Ledger) -> Iterator[Cell]:
    """Every recipe that predicts tokens of one running text: what a million tokens teach a tiny network as it is fitted.

    `mbert` and the XLMs of several languages need a folder for each language, `ernie` and `zen` lists of entries, and `ulmfit` a
    text of the domain.
    """
    for recipe in FAMILY:
        yield cell(recipe, "tiny", 1e6)


def learned(ledger: Ledger) -> Iterator[str]:
    """The table of what every recipe learned in its budget, most first."""
    yield "| recipe | tokens | updates | single tokens | pairs | held-out loss | under single tokens | seconds |"
    yield "|---|---|---|---|---|---|---|---|"
    rows = []
    for run in ledger.results():
        name = "sampled_prediction" if "sampled_prediction" in run["curve"][-1][2] else "token_prediction"
        known, loss = (run["baselines"] or {}).get(name), run["curve"][-1][2].get(name)
        if known is None or loss is None:
            continue
        under, tokens = known["single"] - loss, run["curve"][-1][1]
        pairs = f"{known['pairs']:.2f}" if "pairs" in known else "–"
        rows.append((under, f"| {run['recipe']} | {tokens:,} | {run['steps']:,} | {known['single']:.2f} | {pairs} | {loss:.2f} | "
                            f"{under:.2f} | {run['cpu']:.0f} |"))  # fmt: skip
    for _, row in sorted(rows, reverse=True):
        yield row
    if rows:
        yield ""
        yield f"{sum(under >= 0.3 for under, _ in rows)} of {len(rows)} end at least 0.3 nats under the entropy of single tokens."


TABLES = {"regret": regrets, "family": learned}
PLANS = {"laws": laws, "regret": regret, "family": family}


def cut(data: Path, work: Path) -> None:
    """25 MB of each text and some of its held-out part, at the ends of documents."""
    out = work / "text"
    out.mkdir(parents=True, exist_ok=True)

    def part(source: Path, name: str, characters: int) -> None:
        if not (out / name).exists():
            with lzma.open(source, "rt", encoding="utf-8-sig") as file:
                text = file.read(characters)
            mark = "</doc>"
            (out / name).write_text(text[: text.rindex(mark) + len(mark)] + "\n" if mark in text else text, encoding="utf-8")

    part(data / "text_en_wiki/train.txt.xz", "wiki.txt", 25_000_000)
    part(data / "text_en_wiki/valid.txt.xz", "wiki.valid.txt", HELD_OUT)
    part(data / "text_zh_wiki/train.txt.xz", "zh.txt", 9_500_000)
    part(data / "text_zh_wiki/valid.txt.xz", "zh.valid.txt", HELD_OUT // 3)
    if not (out / "books.valid.txt").exists():
        files = sorted((data / "text_en_books").glob("*.txt.xz"))
        books = [lzma.decompress(file.read_bytes()).decode("utf-8-sig") for file in files]
        (out / "books.txt").write_text(documents(books[:-3])[:25_000_000], encoding="utf-8")
        (out / "books.valid.txt").write_text(documents([book[:150_000] for book in books[-3:]]), encoding="utf-8")


def documents(texts: Sequence[str]) -> str:
    """The texts as documents of one file, in the format of a Wikipedia dump's extract."""
    return "".join(f'<doc id="{n}" url="" title="">\n{text.strip()}\n</doc>\n' for n, text in enumerate(texts))


def store_of(recipe: str, text: str, values: Sequence[str], work: Path) -> Path:
    """The store of a text under the fitted vocabulary of a recipe; built where no run has needed it yet."""
    from cloze.budget.fit import fit_vocabulary
    from cloze.corpus import Store
    from cloze.corpus.stores.build import build_store, train_tokenizer_from
    from cloze.recipe.load import load_recipe
    from cloze.runs.corpora import trainable
    from cloze.text import Annotations

    source = work / f"text/{text}.txt"
    ours = [value for value in values if value.startswith("text")]
    loaded = load_recipe(recipe, overrides=ours)
    if not any("tokenizer" in value and ("size" in value or "min_count" in value) for value in ours):
        ours += [change.override for change in fit_vocabulary(loaded, source.stat().st_size)]
        loaded = load_recipe(recipe, overrides=ours)
    spec = loaded.texts["main"]
    name = hashlib.sha256(repr((text, spec)).encode()).hexdigest()[:12]
    folder = work / f"stores/{text}-{name}"
    if not Store.is_store(f"{folder}.valid"):
        making = work / f"stores/making-{os.getpid()}"
        tokenizer = train_tokenizer_from([str(source)], trainable(spec), budget_bytes=20_000_000, report=lambda told: None)
        for file, end in ((source, ""), (work / f"text/{text}.valid.txt", ".valid")):
            shutil.rmtree(making, ignore_errors=True)
            build_store([str(file)], tokenizer, making, annotations=Annotations.of(spec), report=lambda told: None)
            if not Path(f"{folder}{end}").exists():
                making.rename(f"{folder}{end}")
    return folder


def multiplied(wanted: Cell, store: Path) -> list[str]:
    """The values of a cell, with `rows*2` and `rate*0.5` turned into multiples of what the fit says."""
    from cloze.budget.facts import BudgetFacts
    from cloze.budget.fit import fit
    from cloze.corpus import Store
    from cloze.recipe.load import load_recipe

    values = [value for value in wanted["set"] if "*" not in value]
    times = {value.split("*")[0]: float(value.split("*")[1]) for value in wanted["set"] if "*" in value}
    if times:
        loaded = load_recipe(wanted["recipe"], overrides=values, size=wanted["size"])
        facts = BudgetFacts(wanted["tokens"], len(Store.open(store).tokens))
        fits = [change.override for change in fit(loaded, facts)]
        loaded = load_recipe(wanted["recipe"], overrides=[*fits, *values], size=wanted["size"])
        rate = loaded.training.rate
        batch = max(1, round(loaded.training.batch * times.get("rows", 1.0)))
        values.append(f"training.batch={batch}")
        values += [f"schedule[{n}].set.batch={batch}" for n, phase in enumerate(loaded.schedule) if "batch" in phase.set]
        peak = "peak" if "peak" in rate.arguments else "rate"
        values.append(f"training.rate.{rate.name}.{peak}={float(rate.arguments[peak]) * times.get('rate', 1.0):.3g}")
    return values


def run(wanted: Cell, work: Path) -> dict[str, Any]:
    """Train one cell and return what was measured."""
    from cloze.runs.run import pretrain

    named = str(work / wanted["recipe"]) if wanted["recipe"].endswith(".yaml") else wanted["recipe"]
    store = store_of(named, wanted["text"], wanted["set"], work)
    values = multiplied({**wanted, "recipe": named}, store)
    out = work / f"runs/{os.getpid()}"
    shutil.rmtree(out, ignore_errors=True)
    began, cpu = time.perf_counter(), time.process_time()
    values = [value for value in values if not value.startswith("text")]
    given = [] if any(value.startswith("training.evaluate_every") for value in values) else ["training.evaluate_every=0.125"]
    outcome = pretrain(
        named, corpus=str(store), out=out, budget=f"{wanted['tokens']}tokens", size=wanted["size"], seed=wanted["seed"],
        overrides=[*QUIET, *given, *values], held_out=[f"{store}.valid"], device="cpu", report=lambda told: None,
    )
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if not outcome.finished:
        raise SystemExit(f"{wanted}: stopped by a signal")
    log = [json.loads(line) for line in (out / "cloze/log.jsonl").read_text().splitlines()]
    start = next(record for record in log if record["event"] == "start")
    held = [record for record in log if record["event"] == "held_out"]
    record = json.loads((out / "cloze/run.json").read_text())
    shutil.rmtree(out, ignore_errors=True)
    return {
        "steps": outcome.step, "baselines": start.get("baselines"), "cpu": round(cpu, 1), "seconds": round(seconds, 1),
        "curve": [[at["step"], at["tokens"], {k: round(v, 4) for k, v in at["objectives"].items()}] for at in held],
        "metrics": {name: round(value, 4) for name, value in (held[-1].get("metrics") or {}).items()},
        "fitted": record.get("fitted"),
    }  # fmt: skip


def alive(process: int) -> bool:
    """Whether a process with this number runs."""
    try:
        os.kill(process, 0)
    except (OSError, ValueError):
        return False
    return True


def claim(wanted: Cell, work: Path) -> Path | None:
    """A file that says that this process does the cell; None where another living one does."""
    name = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
    path = work / "claims" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        if alive(int(path.read_text() or 0)):
            return None
        path.unlink(missing_ok=True)
        return claim(wanted, work)
    return path


def cells_of(name: str, plan: Path | None, ledger: Ledger) -> list[Cell]:
    """The cells of a plan, read again before every cell: its own, which may depend on the ledger, or the lines of a file."""
    if plan is None:
        return list(PLANS[name](ledger))
    lines = [json.loads(line) for line in plan.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [cell(**{name: value for name, value in one.items() if name != "set"}) | {"set": one.get("set", [])} for one in lines]


def work_on(name: str, plan: Path | None, work: Path, ledger: Ledger) -> None:
    """Do cells until none is left."""
    failed: list[Cell] = []
    while True:
        todo = (one for one in cells_of(name, plan, ledger) if one not in failed and not ledger.has(one))
        claimed = next(((one, path) for one in todo if (path := claim(one, work)) is not None), None)
        if claimed is None:
            return
        wanted, path = claimed
        try:
            result = run(wanted, work)
            ledger.add(wanted, result)
            losses = {name: round(loss, 3) for name, loss in result["curve"][-1][2].items()}
            print(json.dumps(wanted), losses, result["steps"], f"{math.ceil(result['cpu'])} s", flush=True)
        except Exception as error:  # one cell that fails must not stop the others
            failed.append(wanted)
            print("FAILED", json.dumps(wanted), repr(error)[:300], flush=True)
        finally:
            path.unlink(missing_ok=True)


def ledger_of(name: str) -> Ledger:
    """The ledger of a plan."""
    return Ledger(RESULTS / ("regret.jsonl" if name == "regret" else f"sweep_{name}.jsonl"))


def main() -> None:
    """Work on the cells of a plan, by one process or several."""
    parser = argparse.ArgumentParser(description="Run a plan of small pre-training runs into a ledger.")
    parser.add_argument("name", help=f"the ledger's name; also the plan's, one of {', '.join(PLANS)}, unless --plan is given")
    parser.add_argument("--data", type=Path, help="the folder of text_en_wiki, text_en_books and text_zh_wiki")
    parser.add_argument("--work", type=Path, help="where texts, stores and unfinished runs are kept")
    parser.add_argument("--table", action="store_true", help="print the table of regret or family and do nothing else")
    parser.add_argument("--plan", type=Path, help="a file of cells, one JSON object a line")
    parser.add_argument("--workers", type=int, default=1)
    chosen = parser.parse_args()
    if chosen.plan is None and chosen.name not in PLANS:
        parser.error(f"no plan {chosen.name!r}: give one of {', '.join(PLANS)}, or --plan FILE")
    if chosen.table:
        print("\n".join(TABLES[chosen.name](ledger_of(chosen.name))))
        return
    if chosen.data is None or chosen.work is None:
        parser.error("give --data and --work")
    cut(chosen.data, chosen.work)
    if chosen.workers > 1:
        plan = [] if chosen.plan is None else ["--plan", str(chosen.plan)]
        command = [sys.executable, __file__, chosen.name, "--data", str(chosen.data), "--work", str(chosen.work), *plan]
        for process in [subprocess.Popen(command) for _ in range(chosen.workers)]:
            process.wait()
        return
    work_on(chosen.name, chosen.plan, chosen.work.resolve(), ledger_of(chosen.name))


if __name__ == "__main__":
    main()
