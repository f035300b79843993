"""What `start: vectors` changes: `quick` with and without it, in equal seconds of one core, the seconds of the start included.

    python benchmarks/table_start.py --corpus en=STORE --corpus zh=STORE --seconds 60 180 --seeds 3 --out start.jsonl

A run's clock counts the processor time of its process, so that a machine shared with other work does not change what a run gets;
the runs of a pair follow each other. Every run is a line of the ledger; runs that it has are not repeated. Prints a table.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any


def main() -> None:
    """Run what is missing and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--corpus", action="append", default=[], metavar="NAME=STORE")
    options.add_argument("--recipe", nargs="+", default=["quick"])
    options.add_argument("--size", default="tiny")
    options.add_argument("--seconds", nargs="+", type=int, default=[60])
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--out", type=Path, default=Path("start.jsonl"))
    options.add_argument("--run", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.run is not None:
        print(json.dumps(trained(**json.loads(given.run))))
        return
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    for seconds, seed, corpus, recipe, start in product(
        given.seconds, range(given.seeds), given.corpus, given.recipe, (False, True)
    ):
        name, _, store = corpus.partition("=")
        run = {"recipe": recipe, "size": given.size, "text": name, "seconds": seconds, "seed": seed, "start": start}
        if not any(line["run"] == run for line in lines):
            command = [sys.executable, __file__, "--run", json.dumps({**run, "store": store})]
            result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
            lines.append({"run": run, "result": result})
            with given.out.open("a", encoding="utf-8") as ledger:
                ledger.write(json.dumps(lines[-1]) + "\n")
    print(table(lines))


def trained(*, recipe: str, size: str, text: str, seconds: int, seed: int, start: bool, store: str) -> dict[str, Any]:
    """One run; its clock is the processor time of this process."""
    time.perf_counter = time.process_time
    from cloze.assembly.load import read_tree
    from cloze.assembly.run import pretrain

    folder = Path(tempfile.mkdtemp())
    written = read_tree(recipe)
    if not start:
        del written.value["network"].value["start"]
    (folder / "recipe.yaml").write_text(json.dumps(written.plain()), encoding="utf-8")
    began = time.time()
    pretrain(
        folder / "recipe.yaml",
        corpus=store,
        out=folder / "run",
        budget=f"{seconds}s",
        size=size,
        seed=seed,
        fit=True,
        report=lambda line: print(line, file=sys.stderr),
    )
    events = [json.loads(line) for line in (folder / "run" / "cloze" / "log.jsonl").read_text().splitlines()]
    record = json.loads((folder / "run" / "cloze" / "run.json").read_text())
    shutil.rmtree(folder)
    held = [event for event in events if event["event"] == "held_out"]
    return {
        "loss": held[-1]["loss"],
        "curve": [[event["seconds"], event["loss"]] for event in held],
        "tokens": events[-1]["tokens"],
        "seconds": events[-1]["seconds"],
        "begun": record.get("begun", 0.0),
        "wall": round(time.time() - began, 1),
    }


def table(lines: list[dict[str, Any]]) -> str:
    """Held-out losses without and with the start, and the difference, over the seeds that have both."""
    keys = ("recipe", "size", "text", "seconds")
    rows = [
        "| recipe | size | text | seconds | seeds | drawn | vectors | difference | start (s) |",
        "|" + "---|" * 9,
    ]
    for key in sorted({tuple(line["run"][name] for name in keys) for line in lines}, key=str):
        results = {
            (line["run"]["seed"], line["run"]["start"]): line["result"]
            for line in lines
            if tuple(line["run"][name] for name in keys) == key
        }
        pairs = [(results[seed, False], results[seed, True]) for seed, start in results if start and (seed, False) in results]
        if pairs:
            before, after = (mean(pair[side]["loss"] for pair in pairs) for side in (0, 1))
            gains = [pair[1]["loss"] - pair[0]["loss"] for pair in pairs]
            spread = f" ± {stdev(gains):.3f}" if len(gains) > 1 else ""
            begun = mean(pair[1]["begun"] for pair in pairs)
            rows.append(
                f"| {' | '.join(map(str, key))} | {len(pairs)} | {before:.3f} | {after:.3f} | {after - before:+.3f}{spread} | "
                f"{begun:.1f} |"
            )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
