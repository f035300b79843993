"""`cloze evaluate RUN --facts FILE`: facts as gaps for a masked language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloze.tasks.facts import Found, Knowledge


def evaluate(checkpoint: Path, files: Sequence[str], *, no_leaks: bool, batch: int, device: str, as_json: bool) -> None:
    """Ask a masked language model for the objects of facts, and print how it ranks them."""
    from cloze.tasks.facts import evaluate as ask
    from cloze.tasks.facts import read_facts

    read = {file: read_facts(file) for file in files}  # before the checkpoint, so that errors come early

    from cloze.assembly.build import load_checkpoint
    from cloze.decoding.progress import Progress
    from cloze.decoding.ready import to_fill

    ready = to_fill(load_checkpoint(checkpoint, device))
    found = {}
    for file, facts in read.items():
        with Progress(len(facts), "facts") as progress:
            found[file] = ask(ready.reader, ready.head, facts, no_leaks=no_leaks, rows=batch, report=progress)
    if as_json:
        import json

        print(json.dumps({file: one.record() for file, one in found.items()}, indent=2, ensure_ascii=False))
        return
    for file, one in found.items():
        _show(file, one)


def _show(file: str, found: Found) -> None:
    from cloze.cli.rows import table

    print(f"{file}: {found.overall.facts} facts")
    several = found.relations if len(found.relations) > 1 else ()
    for line in table([_row(one) for one in (*several, *([found.mean] if several else []), found.overall)]):
        print(f"  {line}")
    for reason, number in found.left_out.items():
        print(f"  left out: {number}: {reason}")


def _row(one: Knowledge) -> dict[str, object]:
    return {
        "relation": one.relation or "none", "facts": one.facts, "P@1": one.p1, "P@10": one.p10, "MRR": one.mrr,
        "always the usual": one.always,
    }
