"""SIGTERM and SIGINT: finish the step, write a checkpoint, stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from cloze.errors import Say

#: A step may take minutes, and a run that seems to ignore Ctrl-C gets a second one, which ends it without a checkpoint.
NOTICE = (
    "{name} received: the run finishes this step, writes a checkpoint and stops. "
    "A second one ends it at once and loses what it learned since its last checkpoint."
)


class Interrupt:
    """The signal received, if any. `say` prints the notice that it was received; before it is set, nothing does."""

    def __init__(self) -> None:
        self.name = ""
        self.say: Say = lambda text: None

    def set_say(self, say: Say) -> None:
        """Print the notice by this function."""
        self.say = say

    def __bool__(self) -> bool:
        return bool(self.name)


@contextmanager
def interrupts() -> Iterator[Interrupt]:
    """While open, the first SIGTERM or SIGINT is only recorded; a second one of the same kind has its usual effect."""
    seen = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}

    def note(number: int, frame: FrameType | None) -> None:
        received = signal.Signals(number)
        seen.name = received.name
        signal.signal(received, before[received])
        with suppress(RuntimeError):  # the signal came while the same stream was being written
            seen.say(NOTICE.format(name="Ctrl-C" if received is signal.SIGINT else received.name))

    for signum in before:
        signal.signal(signum, note)
    try:
        yield seen
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
