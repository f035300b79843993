"""Show a text while it is written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from cloze.decoding.generating.sequence import answer_text, answers, first_ids
from cloze.decoding.reader import Reader


class Streamed:
    """Gets one token after another and prints the text that is certain: a character whose bytes are incomplete waits, and so does
    what may be the beginning of a stop string. A text that is continued is printed with its prompt."""

    def __init__(self, reader: Reader, prompt: str, *, stop: Sequence[str] = (), file: TextIO | None = None) -> None:
        self.reader, self.stop, self.file = reader, stop, file or sys.stdout
        self.ids: list[int] = []
        self.start: list[int] = [] if answers(reader) else first_ids(reader, prompt).tolist()
        self.shown = "" if answers(reader) else reader.tokenizer.decode(self.start)
        self.end = reader.tokenizer.roles.get("[EOS]", -1)
        print("" if answers(reader) else prompt, end="", file=self.file, flush=True)

    def __call__(self, ids: list[int]) -> None:
        """The next token of the one text."""
        self.ids += ids
        text = self._text()
        held = max((size for string in self.stop for size in range(1, len(string)) if text.endswith(string[:size])), default=0)
        self._show(text[: len(text) - held].rstrip("\N{REPLACEMENT CHARACTER}"))

    def close(self) -> None:
        """Print what is left, and end the line."""
        text = self._text()
        ends = [len(self.shown) + at + len(string) for string in self.stop if (at := text[len(self.shown) :].find(string)) >= 0]
        self._show(text[: min(ends, default=len(text))])
        print(file=self.file, flush=True)

    def _text(self) -> str:
        ids = self.ids[: self.ids.index(self.end)] if self.end in self.ids else self.ids
        return answer_text(self.reader, ids) if answers(self.reader) else str(self.reader.tokenizer.decode([*self.start, *ids]))

    def _show(self, text: str) -> None:
        if text.startswith(self.shown):
            print(text[len(self.shown) :], end="", file=self.file, flush=True)
            self.shown = text
