"""`--quiet`: a command prints nothing, because its result is in its files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout


class _Nothing(io.TextIOBase):
    """A stream that discards its text. It is not a terminal, so no progress line is drawn on it."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


@contextmanager
def silence(*, on: bool = True, results: bool = False) -> Iterator[None]:
    """Print nothing inside, or with `results` nothing but standard output. Errors pass through and are printed by `main`."""
    if not on:
        yield
        return
    with redirect_stderr(_Nothing()):
        if results:
            yield
            return
        with redirect_stdout(_Nothing()):
            yield
