"""The words of a file of vectors, from bytes to text."""

from __future__ import annotations

from collections.abc import Sequence

from cloze.errors import CheckpointError
from cloze.text.encodings import encoding_of_lines

_FEW = 4  # words; fewer that are not UTF-8 are damaged words of a file in UTF-8


class Spellings:
    """The words of a file in the order of its rows; `words` gives them once all are added.

    word2vec cuts long words within a character, so a file in UTF-8 may have words that are not UTF-8: these keep their bytes as
    `\\xNN`. If no word beyond ASCII is UTF-8, the file has another encoding.
    """

    def __init__(self) -> None:
        self._words: list[str] = []
        self._undecoded: dict[int, bytes] = {}  # by row
        self._in_utf8 = False

    def __len__(self) -> int:
        return len(self._words)

    def add(self, words: Sequence[bytes]) -> None:
        """Append the words of further rows."""
        try:
            spelled = [word.decode() for word in words]
        except UnicodeDecodeError:
            spelled = [self._decoded(word, len(self._words) + row) for row, word in enumerate(words)]
        self._words += spelled
        self._in_utf8 |= any(not word.isascii() for word in spelled)

    def _decoded(self, word: bytes, row: int) -> str:
        try:
            return word.decode()
        except UnicodeDecodeError:
            self._undecoded[row] = word
            return ""

    def words(self, path: str, first: int | None = None) -> list[str]:
        """All words; `first` is the line of the first one. An encoding that is not certain is a `CheckpointError`.

        A binary file has no lines (None), and iconv cannot convert it: its words keep their bytes if the encoding is not certain.
        """
        encoding = "utf-8"
        if len(self._undecoded) >= _FEW and not self._in_utf8:
            row, sample = next(iter(self._undecoded)), b"\n".join(self._undecoded.values())
            line = None if first is None else first + row
            encoding = encoding_of_lines(sample, path, line, error=CheckpointError) or encoding
        for row, word in self._undecoded.items():
            self._words[row] = word.decode(encoding, "backslashreplace")
        return self._words
