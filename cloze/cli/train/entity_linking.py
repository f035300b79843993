"""`cloze evaluate RUN mentions.jsonl --task entity_linking`: how well the links of a network agree with gold links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.cli.modes import Mode
from cloze.cli.options import AsJson, Batch, Device, Encoding, Task
from cloze.errors import TaskError

TASK = "entity_linking"


@dataclass(frozen=True, kw_only=True)
class EntityLinkingMode(Mode):
    """Link the texts of files with gold mentions, and print precision, recall and F1."""

    purpose = "links of names to entities"
    how = f"--task {TASK}"

    task: Task = None
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in which the links of a text are decided.")] = 3
    batch: Batch = 64
    device: Device = "auto"
    encoding: Encoding = None
    as_json: AsJson = False

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether this is the task."""
        return options["task"] == TASK

    def run(self, checkpoint: Path, files: Sequence[str]) -> None:
        """Measure a checkpoint on files of mentions."""
        from cloze.tasks.intrinsic.entity_linking import EntityLinker, measure_links, read_gold

        if not files:
            raise TaskError(f"no texts to evaluate on. Name a file of mentions: cloze evaluate RUN test.jsonl --task {TASK}")
        gold = {file: read_gold(file) for file in files}  # errors come early

        from cloze.checkpoint.build import load_checkpoint
        from cloze.decoding.progress import DecodingProgress

        linker = EntityLinker.of(load_checkpoint(checkpoint, self.device), rounds=self.rounds, rows=self.batch)
        measured = {}
        for file, texts in gold.items():
            with DecodingProgress(len(texts), "texts") as progress:
                measured[file] = measure_links(linker, texts, report=progress)
        if self.as_json:
            import json

            print(json.dumps({file: scores.record() for file, scores in measured.items()}, indent=2, ensure_ascii=False))
            return
        for file, scores in measured.items():
            print(f"{file}: {scores.texts:,} texts, {scores.gold:,} gold mentions, {scores.links:,} links")
            print("          precision  recall  F1")
            for name in ("micro", "macro"):
                precision, recall, f1 = (getattr(scores, f"{name}_{measure}") for measure in ("precision", "recall", "f1"))
                print(f"  {name}   {precision:.4f}     {recall:.4f}  {f1:.4f}")
