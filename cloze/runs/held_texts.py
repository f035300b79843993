"""Texts that a run is measured on before and after: bits per byte and tokens per word (`cloze pretrain --measure`).

A held-out loss per token cannot be compared between vocabularies, and a share of the domain's text does not show what the model
forgets. So a run that continues a checkpoint is measured on texts that the user names: first the checkpoint with its own
vocabulary, then the result. The figures end up in the log (a `table` event), hence in the report, and in the closing lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from cloze.checkpoint.build import load_checkpoint
from cloze.corpus.readers import read_documents
from cloze.decoding.scores.text_figures import BITS, PSEUDO, TextFigures, figures_of, first_bytes
from cloze.errors import CorpusError, Say
from cloze.processes import rank
from cloze.training.log import Log

TITLE = "Held-out texts before and after"
MOST = 20_000  # bytes of a text: a masked language model reads a sentence once per token
_COLUMNS = ["text", "bytes", "before", "after", "tokens per word before", "after"]


def parse_measured(options: Sequence[str]) -> dict[str, str]:
    """`NAME=PATH`, or a path alone, whose file name is then the name of the text."""
    texts: dict[str, str] = {}
    for option in options:
        name, between, path = option.partition("=")
        if not between or os.path.exists(option):
            name, path = Path(option).name.partition(".")[0], option
        if not name or not path:
            raise CorpusError(f"--measure {option}: expected NAME=PATH or a path.")
        if name in texts:
            raise CorpusError(f"--measure: two texts are called {name}: {texts[name]} and {path}. Name them: --measure NAME=PATH")
        texts[name] = path
    return texts


def trained_on(measured: Mapping[str, str], corpus: Sequence[str | Path]) -> list[str]:
    """A note for each text that is a file or folder of the corpus, or lies in one."""
    files = {Path(file).resolve() for pattern in corpus for file in (glob(str(pattern)) or [str(pattern)])}
    notes = []
    for name, path in measured.items():
        full_path = Path(path).resolve()
        if files & {full_path, *full_path.parents}:
            notes.append(f"note: --measure {name}={path}: is part of the corpus: trained on, so its figures are too good")
    return notes


@dataclass(frozen=True)
class HeldTexts:
    """Texts by name, each documents of sentences."""

    texts: Mapping[str, list[list[str]]]

    @classmethod
    def read(cls, paths: Mapping[str, str], *, text_format: str) -> HeldTexts:
        """The first `MOST` bytes of each text. Raises a `CorpusError` if one cannot be read or is empty."""
        texts = {}
        for name, path in paths.items():
            texts[name] = first_bytes((document.sentences for document in read_documents([path], format=text_format)), MOST)
            if not texts[name]:
                raise CorpusError(f"--measure {name}={path}: holds no text.")
        return cls(texts)

    @classmethod
    def due(cls, paths: Mapping[str, str], out: Path, *, text_format: str, extend: bool) -> HeldTexts:
        """The texts to measure this run on: none on other ranks than the first, nor if it has ended with its figures.

        Raises a `CorpusError` like `read`.
        """
        texts = cls.read(paths, text_format=text_format)
        return texts if rank() == 0 and (extend or not is_recorded(out)) else cls({})

    def figures(self, folder: Path | None, *, device: str) -> dict[str, TextFigures]:
        """The figures of every text under the checkpoint in a folder; none without a folder."""
        if folder is None or not self.texts:
            return {}
        loaded = load_checkpoint(folder, device)
        return {name: figures_of(loaded, documents) for name, documents in self.texts.items()}


def is_recorded(out: Path) -> bool:
    """Whether the run in a folder has ended with its figures."""
    path = out / "cloze" / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    try:
        last = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return False
    return last.get("event") == "table" and last.get("title") == TITLE


def record(
    out: Path, step: int, before: Mapping[str, TextFigures], after: Mapping[str, TextFigures], *, say: Say
) -> None:
    """Write the figures into the log of a run and print them; `before` is empty if the run began at random."""
    rows = [
        [name, f"{figures.bytes:,}", *_pair(before.get(name), figures, _bits), *_pair(before.get(name), figures, _fertility)]
        for name, figures in after.items()
    ]
    both = [*before.values(), *after.values()]
    kind = " or ".join(sorted({BITS[figures.method] for figures in both if figures.method is not None}))
    notes = [*dict.fromkeys(figures.why for figures in both if figures.why), *[PSEUDO] * _is_pseudo(both)]
    note = " ".join([*[f"Before and after in {kind}."] * bool(kind), *notes])
    log = Log(out, after=step)
    try:
        log.write(
            "table", step, title=TITLE, columns=_COLUMNS, rows=rows, note=note,
            before={name: figures.record() for name, figures in before.items()},
            after={name: figures.record() for name, figures in after.items()},
        )
    finally:
        log.close()
    for line in lines_of(rows, kind, notes=notes):
        say(line)


def lines_of(rows: Sequence[Sequence[str]], kind: str, *, notes: Sequence[str] = ()) -> list[str]:
    """The closing lines: one for each text, and notes."""
    width = max(len(row[0]) for row in rows)
    lines = [
        f"{name:<{width}}  " + (f"{kind} {before} → {after}, " if kind else "") + f"tokens per word {fewer} → {more}"
        for name, _, before, after, fewer, more in rows
    ]
    return ["measured on held-out texts, before → after:", *(f"  {line}" for line in lines), *(f"  {line}" for line in notes)]


def _pair(
    before: TextFigures | None, after: TextFigures, show: Callable[[TextFigures], str]
) -> tuple[str, str]:
    return "–" if before is None else show(before), show(after)


def _bits(figures: TextFigures) -> str:
    return "–" if figures.bits_per_byte is None else f"{figures.bits_per_byte:.4f}"


def _fertility(figures: TextFigures) -> str:
    return f"{figures.tokens_per_word:.4f}"


def _is_pseudo(measurements: Sequence[TextFigures]) -> bool:
    return any(figures.method == "pseudo_log_likelihood" for figures in measurements)
