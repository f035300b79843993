"""Reading small files that others wrote, and showing what they hold: nothing in them may hang us or steer a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

_DECODER = json.JSONDecoder()
_SURROGATE = re.compile("[\ud800-\udfff]")
# C0 and C1 controls but for tab and line feed, and marks that turn the direction of what follows (Trojan Source).
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# What our own output may send to a terminal: colours and weights, and "back to the margin, clear the line" of a progress line.
_OURS = re.compile("\x1b\\[(?:0|1|2|3|4|22|23|24|39|49|[349][0-7]|;)*m|\r\x1b\\[K")


def parse_json(text: str | bytes) -> Any:
    """`json.loads` whose every fault is a `JSONDecodeError`: also nesting that exhausts the stack, and endless numbers."""
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", "", 0) from None
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            raise
        raise json.JSONDecodeError("a number of too many digits", "", 0) from None


def decode_json(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at a character of a text, and where it ends; faults are those of `parse_json`."""
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", text, at) from None
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            raise
        raise json.JSONDecodeError("a number of too many digits", text, at) from None


def require_ordinary(path: Path) -> None:
    """An `OSError` for pipes, devices and folders, on which reading would wait or never end; none if nothing is there."""
    if path.exists() and not path.is_file():
        raise OSError(0, "not an ordinary file", str(path))


def read_small(path: Path) -> str:
    """The text of an ordinary file in UTF-8; otherwise see `require_ordinary`."""
    require_ordinary(path)
    return path.read_text(encoding="utf-8")


def without_surrogates(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates, which JSON can write, become U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def visible(text: str) -> str:
    """Text for a terminal: control characters and marks of direction as `\\x1b` or `\\u202e`."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


class Terminal(io.TextIOWrapper):
    """A terminal that labels, pieces and file names cannot steer: only cloze's own colours and progress lines pass."""

    def write(self, text: str) -> int:
        """Write text, its control characters made visible."""
        pieces, position = [], 0
        for match in _OURS.finditer(text):
            pieces += [visible(text[position : match.start()]), match[0]]
            position = match.end()
        return super().write("".join([*pieces, visible(text[position:])]))


def guard_terminal() -> None:
    """Put a `Terminal` in front of standard output and standard error where these are terminals. Anywhere else, characters that
    the encoding of the stream lacks are written as `\\u65e5`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, Terminal):
            continue
        if not stream.isatty():
            stream.reconfigure(errors="backslashreplace")
        else:
            guarded = Terminal(stream.buffer, encoding=stream.encoding, errors="backslashreplace", line_buffering=True)
            setattr(sys, name, guarded)
