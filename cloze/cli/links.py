"""`cloze evaluate KG test.tsv --task link_prediction`: ranks of the right entities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cloze.errors import TaskError


def evaluate(
    folder: Path, files: Sequence[str], *, known: Sequence[str], candidates: str | None, unknown: str, seed: int,
    device: str, as_json: bool, graph: str | None = None,
) -> None:
    """Rank the entities of the facts in some files, and print the measures."""
    import json

    from cloze.assembly.build import load_checkpoint
    from cloze.cli.measures import show
    from cloze.decoding.progress import Progress
    from cloze.tasks.link_prediction import SIDES, evaluate_links, read_questions
    from cloze.tasks.link_texts import scorer_of_any

    if not files:
        raise TaskError("no facts to evaluate on. Name a file of triples: cloze evaluate KG test.tsv --task link_prediction")
    if unknown not in ("skip", "zero"):
        raise TaskError(f"--unknown {unknown}: expected skip, or zero (facts with ids that were never trained count as last).")
    asked_for = None if candidates is None else _count(candidates)
    scorer = scorer_of_any(load_checkpoint(folder, device), graph)
    usual = scorer.usual if scorer.usual is not None and scorer.usual < len(scorer.entities) else None
    count = usual if candidates is None else asked_for
    listed = [name for given in known for name in given.split(",") if name]
    asked = {file: read_questions(scorer, file, listed) for file in files}
    found = {}
    for file, questions in asked.items():
        with Progress(len(SIDES) * len(questions.facts), "facts") as progress:
            found[file] = evaluate_links(
                scorer, questions, candidates=count, last=unknown == "zero", seed=seed, report=progress
            )
    if as_json:
        print(json.dumps({file: one.record() for file, one in found.items()}, indent=2, ensure_ascii=False))
        return
    for file, one in found.items():
        show(file, one)
    if not listed:
        print(
            "hint: no --known facts, so right answers of the training set count as wrong ones. Give all parts of the graph: "
            "--known train.tsv,dev.tsv"
        )


def _count(candidates: str) -> int | None:
    """How many wrong entities are ranked; None: all."""
    if candidates == "all":
        return None
    if not candidates.isascii() or not candidates.isdigit() or int(candidates) < 1:
        raise TaskError(f"--candidates {candidates}: expected all, or how many wrong entities are drawn for each fact: 100.")
    return int(candidates)
