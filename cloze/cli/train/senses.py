"""`cloze evaluate RUN --senses FILE`: the supersenses of words in context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.cli.modes import Mode
from cloze.cli.options import AsJson, Batch, Device, Encoding


@dataclass(frozen=True, kw_only=True)
class SensesMode(Mode):
    """Judge a network of senses on words in context, and print its accuracy next to that of frequent senses."""

    purpose = "senses of words"
    how = "--senses FILE"

    senses: Annotated[list[str] | None, typer.Option(help="Columns text, word, sense; optionally start.")] = None
    batch: Batch = 64
    device: Device = "auto"
    encoding: Encoding = None
    as_json: AsJson = False

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether senses are given."""
        return bool(options["senses"])

    def run(self, checkpoint: Path, files: Sequence[str]) -> None:
        """Measure a checkpoint on `senses` and further files."""
        from cloze.tasks.intrinsic.senses import Judge, read_occurrences
        from cloze.tasks.intrinsic.senses import evaluate as judge_words

        read = {file: read_occurrences(file) for file in (*(self.senses or ()), *files)}  # errors come early

        from cloze.checkpoint.build import load_checkpoint
        from cloze.decoding.progress import DecodingProgress

        loaded = load_checkpoint(checkpoint, self.device)
        judge = Judge.of(loaded, loaded.tables)
        evaluations = {}
        for file, occurrences in read.items():
            with DecodingProgress(len(occurrences), "words") as progress:
                evaluations[file] = judge_words(judge, occurrences, rows=self.batch, report=progress)
        if self.as_json:
            import json

            print(json.dumps({file: figures.record() for file, figures in evaluations.items()}, indent=2, ensure_ascii=False))
            return
        for file, figures in evaluations.items():
            print(f"{file}: {figures.words} words that may have several senses")
            print(f"  the word is read     {figures.shown:.4f}")
            print(f"  the word is masked   {figures.masked:.4f}")
            print(f"  first sense, always  {figures.first:.4f}")
            print(f"  most frequent sense  {figures.most_frequent:.4f}  (the most frequent one in this file)")
            for reason, number in figures.left_out.items():
                print(f"  left out: {number}: {reason}")
