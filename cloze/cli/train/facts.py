"""`cloze evaluate RUN --facts FILE`: facts as gaps for a masked language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from cloze.cli.modes import Mode
from cloze.cli.options import AsJson, Batch, Device, Encoding

if TYPE_CHECKING:
    from cloze.tasks.intrinsic.facts import FactResults, Knowledge


@dataclass(frozen=True, kw_only=True)
class FactsMode(Mode):
    """Ask a masked language model for the objects of facts, and print how it ranks them."""

    purpose = "facts in a masked model"
    how = "--facts FILE"

    facts: Annotated[list[str] | None, typer.Option(help="Columns object, text; or object, subject, template.")] = None
    no_leaks: Annotated[bool, typer.Option("--no-leaks", help="Skip facts whose subject names the object.")] = False
    entities: Annotated[
        str | None, typer.Option(help="Read subjects by their entities' tokens: replace, concat, ens_avg or ens_max.")
    ] = None
    vocabulary: Annotated[str | None, typer.Option(help="Rank only these words, one per line.")] = None
    complete: Annotated[
        bool, typer.Option("--complete", help="Rank the objects of each relation by WKLM's head of replaced names.")
    ] = False
    batch: Batch = 64
    device: Device = "auto"
    encoding: Encoding = None
    as_json: AsJson = False

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether facts are given, or an option that only facts have."""
        return any(options[name] for name in ("facts", "no_leaks", "entities", "vocabulary", "complete"))

    def run(self, checkpoint: Path, files: Sequence[str]) -> None:
        """Measure a checkpoint on `facts` and further files."""
        from cloze.errors import TaskError
        from cloze.tasks.intrinsic.facts import EntityReading, read_facts, read_vocabulary
        from cloze.tasks.intrinsic.facts import evaluate as ask

        if self.entities is not None and self.entities not in get_args(EntityReading):
            raise TaskError(f"--entities {self.entities}: expected {', '.join(get_args(EntityReading))}.")
        if self.complete and (self.entities or self.vocabulary):
            raise TaskError("--complete ranks whole names, so --entities and --vocabulary have no meaning. Leave them out.")
        read = {file: read_facts(file) for file in (*(self.facts or ()), *files)}  # before the checkpoint: errors come early
        if not read:
            raise TaskError(f"no facts to ask for. Name a file: cloze evaluate {checkpoint} --facts FILE")

        from cloze.checkpoint.build import load_checkpoint
        from cloze.decoding.progress import DecodingProgress
        from cloze.decoding.reader import Reader
        from cloze.decoding.reader_and_head import to_fill
        from cloze.tasks.intrinsic.fact_completion import complete, completing_head

        loaded = load_checkpoint(checkpoint, self.device)
        if self.complete:
            measure: Callable[..., FactResults] = partial(complete, Reader.of(loaded), completing_head(loaded))
        else:
            ready = to_fill(loaded)
            ids = None if self.vocabulary is None else read_vocabulary(self.vocabulary, ready.reader)
            measure = partial(ask, ready.reader, ready.head, entities=self.entities, vocabulary=ids)  # type: ignore[arg-type]
        evaluations = {}
        for file, facts in read.items():
            with DecodingProgress(len(facts), "facts") as progress:
                evaluations[file] = measure(facts, no_leaks=self.no_leaks, rows=self.batch, report=progress)
        if self.as_json:
            import json

            print(json.dumps({file: figures.record() for file, figures in evaluations.items()}, indent=2, ensure_ascii=False))
            return
        for file, figures in evaluations.items():
            _show(file, figures)


def _show(file: str, results: FactResults) -> None:
    from cloze.tasks.evaluation_text import table

    print(f"{file}: {results.overall.facts} facts")
    several = results.relations if len(results.relations) > 1 else ()
    for line in table([_row(figures) for figures in (*several, *([results.mean] if several else []), results.overall)]):
        print(f"  {line}")
    for reason, number in results.left_out.items():
        print(f"  left out: {number}: {reason}")


def _row(knowledge: Knowledge) -> dict[str, object]:
    return {
        "relation": knowledge.relation or "none", "facts": knowledge.facts, "P@1": knowledge.p1, "P@5": knowledge.p5,
        "P@10": knowledge.p10, "MRR": knowledge.mrr, "constant answer": knowledge.always,
    }
