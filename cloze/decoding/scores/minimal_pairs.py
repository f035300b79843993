"""Minimal pairs: does the network prefer the acceptable sentence of two?"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from cloze.corpus.readers.text_files import is_json_lines, json_lines, string_field
from cloze.decoding.reader import Reader
from cloze.decoding.scores.scoring import Method, score
from cloze.decoding.scores.windows import Windows
from cloze.errors import TaskError
from cloze.text.encodings import decoded
from cloze.untrusted import parse_json

GOOD, BAD = "sentence_good", "sentence_bad"


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in one respect; `file` is the name of the paradigm they come from."""

    file: str
    good: str
    bad: str


@dataclass(frozen=True)
class Preference:
    """How often the acceptable sentence scored higher. A tie counts as a failure."""

    file: str
    pairs: int
    right: int
    ties: int

    @property
    def accuracy(self) -> float:
        """The fraction of pairs in which the acceptable sentence scored strictly higher."""
        return self.right / self.pairs if self.pairs else float("nan")


def read_pairs(path: Path, *, limit: int | None = None) -> list[MinimalPair]:
    """The pairs of a JSON-lines file, of every such file in a folder, or of a tar archive (BLiMP's form).

    Every record needs `sentence_good` and `sentence_bad` (Warstadt et al., "BLiMP", 2020), neither empty. A folder that holds
    archives instead of files gives theirs. `limit` takes only the first pairs of each file.
    """
    if not path.exists():
        raise TaskError(f"{path}: no such file or folder of minimal pairs.")
    pairs: list[MinimalPair] = []
    for name, records in _files(path):
        pairs += [
            MinimalPair(name, _sentence(where, number, record, GOOD), _sentence(where, number, record, BAD))
            for where, number, record in islice(records, limit)
        ]
    if not pairs:
        raise TaskError(f"{path}: no minimal pairs found; expected JSON lines with {GOOD} and {BAD}.")
    return pairs


def _sentence(where: str, number: int, record: dict[str, Any], field: str) -> str:
    """A sentence of a pair; an empty one is a `TaskError`, because its score of 0 exceeds that of any sentence."""
    sentence = string_field(where, number, record, field)
    if not sentence.strip():
        raise TaskError(
            f"{where}:{number}: an empty {field!r}; expected a sentence in both fields of every pair.\n  Take the row out."
        )
    return sentence


def _files(path: Path) -> Iterator[tuple[str, Iterator[tuple[str, int, dict[str, Any]]]]]:
    if path.is_dir():
        inside = sorted(path.rglob("*"))
        chosen = [p for p in inside if is_json_lines(p)] or [p for p in inside if ".tar" in p.suffixes]
        if not chosen:
            raise TaskError(f"{path}: holds neither JSON-lines files nor tar archives.")
        names = [_name(p) for p in chosen]
        for file, name in zip(chosen, names, strict=True):
            apart = name if names.count(name) == 1 else f"{file.parent.relative_to(path) / name}"
            for inside_file, records in _files(file):
                yield apart if is_json_lines(file) else inside_file, records
    elif ".tar" in path.suffixes or path.suffix in (".tgz", ".txz"):
        yield from _archive(path)
    else:
        yield _name(path), ((str(path), n, record) for n, record in json_lines(path))


def _name(path: Path) -> str:
    """The name of a file without its endings; of `agreement.en.jsonl` it is `agreement.en`."""
    while is_json_lines(path) or path.suffix in (".gz", ".xz"):
        path = path.with_suffix("")
    return path.name


def _archive(path: Path) -> Iterator[tuple[str, Iterator[tuple[str, int, dict[str, Any]]]]]:
    try:
        with tarfile.open(path) as archive:
            for member in sorted(archive.getmembers(), key=lambda m: m.name):
                stream = archive.extractfile(member) if member.isfile() and is_json_lines(member.name) else None
                if stream is not None:
                    yield _name(Path(member.name)), _records(f"{path}:{member.name}", stream.read())
    except (tarfile.TarError, EOFError, OSError) as error:
        raise TaskError(f"{path}: damaged archive ({error}).") from error


def _records(where: str, raw: bytes) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for number, line in enumerate(decoded(raw, where, error=TaskError).split("\n"), start=1):
        if line.strip():
            try:
                record = parse_json(line)
            except json.JSONDecodeError as error:
                raise TaskError(f"{where}:{number}: not JSON: {error.msg}.") from None
            if not isinstance(record, dict):
                raise TaskError(f"{where}:{number}: expected a JSON object, got {type(record).__name__}.")
            yield where, number, record


def prefer(
    reader: Reader,
    head: Any,
    pairs: Sequence[MinimalPair],
    *,
    method: Method,
    windows: Windows = Windows(),  # noqa: B008
    report: Callable[[int], None] = lambda done: None,
) -> list[Preference]:
    """Accuracy for every file, in the order of the files. Identical sentences tie exactly and count as failures."""
    texts = [s for pair in pairs for s in (pair.good, pair.bad)]
    scores = score(reader, head, texts, method=method, windows=windows, report=report)
    counts: dict[str, list[int]] = {}
    for pair, good, bad in zip(pairs, scores[::2], scores[1::2], strict=True):
        count = counts.setdefault(pair.file, [0, 0, 0])
        count[0] += 1
        count[1] += good.score > bad.score
        count[2] += good.score == bad.score
    return [Preference(file, *count) for file, count in counts.items()]


def overall(preferences: Sequence[Preference]) -> Preference:
    """All files as one."""
    return Preference(
        "overall", sum(p.pairs for p in preferences), sum(p.right for p in preferences), sum(p.ties for p in preferences)
    )
