"""`cloze evaluate KG test.tsv --task link_prediction`, or `relation_prediction`: ranks of the right entities, or relations. With
`triple_classification`: which triples of a labelled file are facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.modes import Mode
from cloze.cli.options import AsJson, Candidates, Device, Encoding, Seed, Task, Unknown, count_of
from cloze.errors import TaskError

if TYPE_CHECKING:
    from cloze.tasks.task import Evaluation

CLASSIFICATION = "triple_classification"
LINK_TASKS = ("link_prediction", "relation_prediction", CLASSIFICATION)


@dataclass(frozen=True, kw_only=True)
class LinksMode(Mode):
    """Rank the entities or the relations of the facts in some files, or tell facts from wrong triples, and print the measures."""

    purpose = "knowledge graphs"
    how = "--task link_prediction"

    task: Task = None
    known: Annotated[list[str] | None, typer.Option(help="Files of known facts, never counted as wrong.")] = None
    candidates: Candidates = None
    graph: Annotated[str | None, typer.Option(help="For networks that read text: the graph to rank.")] = None
    thresholds: Annotated[
        str | None, typer.Option(help="For vectors: labelled triples that set how near a fact is.")
    ] = None
    unknown: Unknown = "skip"
    seed: Seed = None
    device: Device = "auto"
    encoding: Encoding = None
    as_json: AsJson = False

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether this is the task."""
        return options["task"] in LINK_TASKS

    def run(self, checkpoint: Path, files: Sequence[str]) -> None:
        """Measure a checkpoint on files of facts."""
        from cloze.checkpoint.build import load_checkpoint
        from cloze.decoding.progress import DecodingProgress
        from cloze.tasks.intrinsic.link_prediction import TASKS, evaluate_links, read_questions
        from cloze.tasks.intrinsic.link_texts import scorer_of_any

        if not files:
            raise TaskError(f"no facts to evaluate on. Name a file of triples: cloze evaluate KG test.tsv --task {self.task}")
        if self.task == CLASSIFICATION:
            self._classify(checkpoint, files)
            return
        if self.thresholds is not None:
            raise TaskError(f"--thresholds {self.thresholds}: {self.task} ranks, and needs none. Omit it.")
        if self.unknown not in ("skip", "zero"):
            raise TaskError(
                f"--unknown {self.unknown}: expected skip, or zero (facts with untrained ids are ranked last)."
            )
        asked_for = None if self.candidates is None else count_of(self.candidates)
        scorer, columns = scorer_of_any(load_checkpoint(checkpoint, self.device), self.graph), TASKS[str(self.task)]
        if not {column for _, column in columns} <= scorer.columns:
            raise TaskError(
                f"{checkpoint}: predicts the relation of two entities; it cannot rank entities.\n"
                f"  To rank relations: cloze evaluate {checkpoint} {files[0]} --task relation_prediction --graph GRAPH"
            )
        ranks_entities = self.task == "link_prediction"
        default = scorer.default_candidates if ranks_entities else None
        default = None if default is None or default >= len(scorer.entities) else default
        count = default if self.candidates is None else asked_for
        if count is None and self.seed is not None:
            raise TaskError(
                f"--seed {self.seed}: all candidates are ranked, so nothing is drawn at random.\n"
                "  Omit it, or draw the wrong entities: --candidates 100"
            )
        listed = [name for option in self.known or () for name in option.split(",") if name]
        questions_by_file = {file: read_questions(scorer, file, listed) for file in files}
        evaluations = {}
        for file, questions in questions_by_file.items():
            with DecodingProgress(len(columns) * len(questions.facts), "facts") as progress:
                evaluations[file] = evaluate_links(
                    scorer, questions, sides=columns, candidates=count, last=self.unknown == "zero", seed=self.seed or 0,
                    report=progress,
                )
        self._print(evaluations)
        if not listed and not self.as_json:
            print(
                "hint: without --known, correct answers from the training set count as wrong. Name all parts of the graph: "
                "--known train.tsv,dev.tsv"
            )


    def _classify(self, checkpoint: Path, files: Sequence[str]) -> None:
        """Tell facts from wrong triples in labelled files."""
        from cloze.checkpoint.build import load_checkpoint
        from cloze.decoding.progress import DecodingProgress
        from cloze.tasks.intrinsic.link_texts import scorer_of_any
        from cloze.tasks.intrinsic.triple_classification import classify_triples, read_labelled, require_decision

        for option, value in (("known", self.known), ("candidates", self.candidates), ("seed", self.seed)):
            if value is not None:
                raise TaskError(f"--{option}: {CLASSIFICATION} ranks nothing. Omit it.")
        scorer = scorer_of_any(load_checkpoint(checkpoint, self.device), self.graph)
        require_decision(scorer, checkpoint, self.thresholds)
        dev = None if self.thresholds is None else read_labelled(scorer, self.thresholds)
        labelled_by_file = {file: read_labelled(scorer, file) for file in files}
        evaluations = {}
        for file, labelled in labelled_by_file.items():
            with DecodingProgress(len(labelled.triples), "triples") as progress:
                evaluations[file] = classify_triples(scorer, labelled, dev, report=progress)
        self._print(evaluations)

    def _print(self, evaluations: Mapping[str, Evaluation]) -> None:
        import json

        from cloze.cli.train.measures import show

        if self.as_json:
            print(json.dumps({file: figures.record() for file, figures in evaluations.items()}, indent=2, ensure_ascii=False))
            return
        for file, figures in evaluations.items():
            show(file, figures)
