"""What `start: vectors` changes: recipes with and without it after as many tokens, and what the start costs in tokens.

    python benchmarks/table_start.py --corpus en=STORE --corpus zh=STORE --tokens 500000 1000000 --seeds 3 --out start.jsonl

Budgets are in tokens, because on a machine that is shared with other work a second of the processor buys more at one time than
at another. The start and the steps of a run are measured in processor time of the same process, which expresses the start in
tokens of that run: `cost`. Every run is a line of the ledger; runs that it has are not repeated. Prints a table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

KEYS = ("recipe", "size", "text", "tokens")


def main() -> None:
    """Run what is missing and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--corpus", action="append", default=[], metavar="NAME=STORE")
    options.add_argument("--recipe", nargs="+", default=["quick"])
    options.add_argument("--size", default="tiny")
    options.add_argument("--tokens", nargs="+", type=int, default=[1_000_000])
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--out", type=Path, default=Path("start.jsonl"))
    options.add_argument("--run", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.run is not None:
        print(json.dumps(trained(**json.loads(given.run))))
        return
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    for tokens, seed, corpus, recipe, start in product(
        given.tokens, range(given.seeds), given.corpus, given.recipe, (True, False)
    ):
        name, _, store = corpus.partition("=")
        run = {"recipe": recipe, "size": given.size, "text": name, "tokens": tokens, "seed": seed, "start": start}
        if not any(line["run"] == run for line in lines):
            command = [sys.executable, __file__, "--run", json.dumps({**run, "store": store})]
            result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
            lines.append({"run": run, "result": result})
            with given.out.open("a", encoding="utf-8") as ledger:
                ledger.write(json.dumps(lines[-1]) + "\n")
    print(table(lines))


def trained(*, recipe: str, size: str, text: str, tokens: int, seed: int, start: bool, store: str) -> dict[str, Any]:
    """One run; its seconds are those of the processor."""
    time.perf_counter = time.process_time
    from cloze.recipe.load import read_tree
    from cloze.runs.run import pretrain

    written = read_tree(recipe)
    if not start:
        del written.value["network"].value["start"]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "recipe.yaml").write_text(json.dumps(written.plain()), encoding="utf-8")
        pretrain(
            folder / "recipe.yaml", corpus=store, out=folder / "run", budget=f"{tokens}tokens", size=size, seed=seed, fit=True,
            report=lambda line: print(line, file=sys.stderr),
        )
        events = [json.loads(line) for line in (folder / "run" / "cloze" / "log.jsonl").read_text().splitlines()]
        begun = json.loads((folder / "run" / "cloze" / "run.json").read_text()).get("begun", 0.0)
    held = [event for event in events if event["event"] == "held_out"]
    seconds, read = events[-1]["seconds"] - begun, events[-1]["tokens"]
    return {
        "loss": held[-1]["loss"], "curve": [[event["tokens"], event["loss"]] for event in held], "tokens": read,
        "seconds": seconds, "begun": begun, "cost": begun * read / seconds,
    }


def table(lines: list[dict[str, Any]]) -> str:
    """Held-out losses without and with the start, and the difference, over the seeds that have both."""
    rows = ["| recipe | size | text | tokens | seeds | drawn | vectors | difference | cost in tokens |", "|" + "---|" * 9]
    for key in sorted({tuple(line["run"][name] for name in KEYS) for line in lines}, key=str):
        results = {
            (line["run"]["seed"], line["run"]["start"]): line["result"]
            for line in lines
            if tuple(line["run"][name] for name in KEYS) == key
        }
        pairs = [(results[seed, False], results[seed, True]) for seed, start in results if start and (seed, False) in results]
        if pairs:
            before, after = (mean(pair[side]["loss"] for pair in pairs) for side in (0, 1))
            gains = [pair[1]["loss"] - pair[0]["loss"] for pair in pairs]
            spread = f" ± {stdev(gains):.3f}" if len(gains) > 1 else ""
            cost = mean(pair[1]["cost"] for pair in pairs)
            cells = [*map(str, key), str(len(pairs)), f"{before:.3f}", f"{after:.3f}", f"{after - before:+.3f}{spread}"]
            rows.append(f"| {' | '.join(cells)} | {cost:,.0f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
