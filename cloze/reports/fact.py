"""How `cloze show PATH` describes a thing: its facts, and the commands that make sense next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Fact(NamedTuple):
    """Something that is known of a thing: its name and value for a program, its lines for a person."""

    name: str
    value: Any
    text: str | Sequence[str]


@dataclass(frozen=True)
class About:
    """What a thing is: its kind, a sentence, facts, and the commands that make sense next."""

    kind: str
    path: Path
    summary: str
    facts: Sequence[Fact] = ()
    next: Sequence[str] = ()
    parts: Sequence[About] = field(default=())

    def data(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        values: dict[str, Any] = {"kind": self.kind, "path": str(self.path), "summary": self.summary}
        values |= {fact.name: fact.value for fact in self.facts}
        if self.parts:
            values["parts"] = [part.data() for part in self.parts]
        return {**values, "next": list(self.next)}

    def __str__(self) -> str:
        width = max((len(fact.name) for fact in self.facts), default=0)
        lines = [f"{self.path}: {self.summary}"]
        for fact in self.facts:
            first, *rest = [fact.text] if isinstance(fact.text, str) else fact.text or [""]
            lines += [f"  {fact.name.replace('_', ' '):<{width}}  {first}", *(f"  {'':<{width}}  {line}" for line in rest)]
        lines += [f"  {part.path}: {part.summary}" for part in self.parts]
        if self.next:
            lines += ["next:", *(f"  {command}" for command in self.next)]
        return "\n".join(lines)


def command(*words: object) -> str:
    """A command line, its words quoted for the shell where they must be."""
    return shlex.join(map(str, words))


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder, those that are linked several times counted once."""
    stats = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}.values())


def shown_size(count: float) -> str:
    """Bytes as text.

    >>> shown_size(2_340), shown_size(45_600_000), shown_size(3.2e9)
    ('2.3 kB', '45.6 MB', '3.2 GB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count / 1e3:,.1f} kB"
