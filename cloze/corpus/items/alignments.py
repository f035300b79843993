"""When each word of a recording is said: CTM, and TextGrids as the Montreal Forced Aligner writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cloze.errors import CorpusError, propose

_SILENCE = frozenset({"", "sil", "sp", "silence"})
_UNKNOWN = "<unk>"  # what aligners write for a word that their dictionary lacks
_NOISE = re.compile(r"[<\[{].*[>\]}]")
#: The freestanding texts, numbers and flags of a TextGrid; Praat ignores everything else in it.
_TOKEN = re.compile(r'"(?:[^"]|"")*"|(?<!\S)[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\S)|(?<!\S)<\w+>(?!\S)')
_TIERS = {"IntervalTier": 3, "TextTier": 2}  # the entries of an interval and of a point
_FORMS = "a .ctm, a .TextGrid, or a folder of these"


class AlignedWord(NamedTuple):
    """A word as its aligner writes it, and when it is said, in seconds."""

    word: str
    start: float
    stop: float


class Alignments:
    """The words of recordings, by the name of the recording: pauses and noises are left out.

    `path` is a CTM file (`NAME CHANNEL START DURATION WORD [CONFIDENCE]` in each line), a TextGrid, or a folder with any number
    of both, in which a TextGrid is called like its recording. Raises `CorpusError` where a file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            raise CorpusError(f"{path}: no such file or folder; expected alignments: {_FORMS}.")
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        self.grids = {file.stem: file for file in files if file.suffix.lower() == ".textgrid"}
        self.ctm: dict[str, list[AlignedWord]] = {}
        for file in (file for file in files if file.suffix.lower() == ".ctm"):
            for name, word in read_ctm(file):
                self.ctm.setdefault(name, []).append(word)
        if not self.grids and not self.ctm:
            raise CorpusError(f"{path}: holds no alignments; expected {_FORMS}.")

    def words(self, name: str) -> Sequence[AlignedWord] | None:
        """The words of a recording in the order of their times; None if it has no alignment."""
        words = read_text_grid(self.grids[name]) if name in self.grids else self.ctm.get(name)
        if words is None:
            return None
        return sorted((word for word in words if not _is_pause(word.word)), key=lambda word: word.start)

    def propose(self, name: str) -> str:
        """The name of a recording that may be meant, as a sentence."""
        return propose(name, [*self.grids, *self.ctm])


def _is_pause(word: str) -> bool:
    return word.lower() in _SILENCE or (word.lower() != _UNKNOWN and _NOISE.fullmatch(word) is not None)


def same_word(word: str, aligned: str) -> bool:
    """Whether a word of a text is the one that was aligned, apart from case and punctuation; an unknown word may be any."""
    return aligned.lower() == _UNKNOWN or _letters(word) == _letters(aligned)


def _letters(word: str) -> str:
    return re.sub(r"[\W_]", "", word.casefold())


def read_ctm(path: Path) -> Iterator[tuple[str, AlignedWord]]:
    """Each line of a CTM file (NIST): the recording and the word; lines that begin with `;;` are comments."""
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip() or line.startswith(";;"):
            continue
        try:
            name, _, start, duration, word = line.split()[:5]
            yield name, AlignedWord(word, float(start), float(start) + float(duration))
        except ValueError:
            raise CorpusError(
                f"{path}:{number}: {line[:80]!r} is not a line of a CTM file; expected NAME CHANNEL START DURATION WORD."
            ) from None


def read_text_grid(path: Path) -> list[AlignedWord]:
    """The intervals of the tier `words` of a TextGrid, in Praat's long or short form; of a grid with one tier, that tier."""
    tokens = _TOKEN.findall(_text(path))
    tiers: dict[str, list[AlignedWord]] = {}
    try:
        if _unquoted(tokens[1]) != "TextGrid":
            raise ValueError
        at = 6  # behind the types of the file and of the object, its times, <exists> and the number of tiers
        for _ in range(int(tokens[5])):
            size = _TIERS[_unquoted(tokens[at])]
            entries = [tokens[at + 5 + size * entry : at + 5 + size * (entry + 1)] for entry in range(int(tokens[at + 4]))]
            words = [AlignedWord(_unquoted(entry[2]), float(entry[0]), float(entry[1])) for entry in entries if size == 3]
            tiers[_unquoted(tokens[at + 1])] = words
            at += 5 + size * len(entries)
    except (ValueError, IndexError, KeyError):
        raise CorpusError(f"{path}: no TextGrid that can be read. Save it with Praat as a text file, long or short.") from None
    return _words_of(tiers, path)


def _words_of(tiers: Mapping[str, list[AlignedWord]], path: Path) -> list[AlignedWord]:
    names = [name for name in tiers if name.lower().removesuffix("s").endswith("word")]
    if len(names) != 1 and len(tiers) != 1:
        raise CorpusError(f"{path}: has the tiers {', '.join(map(repr, tiers))}; expected one that is called 'words'.")
    return tiers[names[0] if names else next(iter(tiers))]


def _unquoted(token: str) -> str:
    if not token.startswith('"'):
        raise ValueError(token)
    return token[1:-1].replace('""', '"').strip()


def _text(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        raise CorpusError(f"{path}: is neither UTF-8 nor UTF-16. Save it as UTF-8.") from None
