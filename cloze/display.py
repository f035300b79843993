"""Where progress is shown: in place on a terminal or in a notebook, else as lines from time to time.

Work that shows its progress asks `choose_display` once and then calls the methods of what it got. `live` says how often to call
`show`: a line that is replaced can change every moment, lines that stay should be few.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, TextIO

from cloze import html_parts
from cloze.errors import Say

_silent: ContextVar[bool] = ContextVar("silent", default=False)
_PAUSE = 0.25  # seconds between two messages to a notebook


class Display:
    """Shows nothing; the base class of what does.

    Attributes:
        live: Whether `show` replaces what it showed before.
        interrupting: How to end a run early, in a sentence; empty where nobody watches.
    """

    live = False
    interrupting = ""

    def show(self, line: str, share: float | None = None) -> None:
        """Show how far the work is; `share` of it is done."""

    def add_row(self, row: Mapping[str, str], line: str, say: Say) -> None:
        """Add a row to the table below the progress; a display without a table says the `line`, which has the same content."""

    def keep(self) -> None:
        """Leave the last line as it is, because other lines follow."""

    def end(self, line: str, share: float | None = None) -> None:
        """The work has ended: `line` replaces what was shown, where that is still possible."""
        self.keep()

    def clear(self) -> None:
        """Take the last line away."""

    def say(self, text: str) -> None:
        """Print lines of their own."""


class PlainDisplay(Display):
    """A file or a pipe: every line stays."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def show(self, line: str, share: float | None = None) -> None:
        """Print the line."""
        self.say(line)

    def add_row(self, row: Mapping[str, str], line: str, say: Say) -> None:
        """Say the line."""
        self.keep()
        say(line)

    def say(self, text: str) -> None:
        """Print to the same stream."""
        self.keep()
        self.stream.write(text + "\n")
        self.stream.flush()


class TerminalDisplay(PlainDisplay):
    """One line that is rewritten."""

    live = True
    interrupting = "Ctrl-C stops the run and writes a checkpoint; the same command resumes it."

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.drawn = False

    def show(self, line: str, share: float | None = None) -> None:
        """Rewrite the line."""
        self._write(f"\r\x1b[K{line}", drawn=True)

    def keep(self) -> None:
        """End the line."""
        if self.drawn:
            self._write("\n", drawn=False)

    def clear(self) -> None:
        """Erase the line."""
        if self.drawn:
            self._write("\r\x1b[K", drawn=False)

    def _write(self, text: str, *, drawn: bool) -> None:
        self.stream.write(text)
        self.stream.flush()
        self.drawn = drawn


class NotebookDisplay(Display):
    """A bar with a line and a table below it, which Jupyter redraws where they first appeared.

    `publish` is `IPython.display.display`. A notebook gets at most a few messages a second; the last one is never left out.
    """

    live = True
    interrupting = "To end the run early, interrupt the kernel: the model keeps what it has learned so far."

    def __init__(self, publish: Callable[..., Any], now: Callable[[], float] = time.monotonic) -> None:
        self.publish, self.now = publish, now
        self.handle: Any = None
        self.line = ""
        self.share: float | None = None
        self.rows: list[Mapping[str, str]] = []
        self.sent, self.changed = -float("inf"), False

    def show(self, line: str, share: float | None = None) -> None:
        """Redraw the bar."""
        self.line, self.share, self.changed = line, share, True
        if self.now() - self.sent >= _PAUSE:
            self.keep()

    def add_row(self, row: Mapping[str, str], line: str, say: Say) -> None:
        """Redraw the table."""
        self.rows.append(row)
        self.changed = True
        self.keep()

    def keep(self) -> None:
        """Send what has changed."""
        if not self.changed:
            return
        if self.handle is None:
            self.handle = self.publish(self, display_id=True)
        else:
            self.handle.update(self)
        self.sent, self.changed = self.now(), False

    def end(self, line: str, share: float | None = None) -> None:
        """Draw the bar a last time."""
        self.show(line, share)
        self.keep()

    def clear(self) -> None:
        """Take the bar and its line away."""
        if self.handle is not None:
            self.line, self.share, self.changed = "", None, True
            self.keep()

    def say(self, text: str) -> None:
        """Print to the output of the cell."""
        print(text, flush=True)

    def __repr__(self) -> str:
        """What a front end without HTML shows."""
        rows = ["  ".join(f"{name} {value}" for name, value in row.items()) for row in self.rows]
        return "\n".join(filter(None, [self.line, *rows]))

    def _repr_html_(self) -> str:
        bar = "" if self.share is None else html_parts.bar(self.share)
        return f"{bar}{html_parts.line(self.line)}{html_parts.table(self.rows)}"


def choose_display(stream: TextIO | None = None) -> Display:
    """The display for this process: a notebook's cell, else standard error. A `stream` that is given is always used."""
    if stream is None and _silent.get():
        return Display()
    publish = _notebook() if stream is None else None
    if publish is not None:
        return NotebookDisplay(publish)
    stream = stream or sys.stderr
    return TerminalDisplay(stream) if stream.isatty() else PlainDisplay(stream)


@contextmanager
def silenced() -> Iterator[None]:
    """Inside, progress is shown nowhere."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def _notebook() -> Callable[..., Any] | None:
    """`IPython.display.display` if this process is the kernel of a notebook. IPython is not imported otherwise."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not shell.has_trait("kernel"):  # IPython in a terminal has a shell without a kernel
        return None
    publish: Callable[..., Any] = import_module("IPython.display").display
    return publish


def three_digits(number: float) -> str:
    """A positive number to three digits, or to a whole one.

    >>> three_digits(0.12345), three_digits(6012.3)
    ('0.123', '6,012')
    """
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(75), duration(7260)
    ('1 min 15 s', '2 h 01 min')
    """
    total = max(0, round(seconds))
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    return f"{total // 3600} h {total % 3600 // 60:02d} min"
