"""SIGTERM and SIGINT: finish the step, write a checkpoint, stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """The signal received, if any."""

    def __init__(self) -> None:
        self.name = ""

    def __bool__(self) -> bool:
        return bool(self.name)


@contextmanager
def interrupts() -> Iterator[Interrupt]:
    """While open, the first SIGTERM or SIGINT is only recorded; a second one of the same kind has its usual effect."""
    seen = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}

    def note(number: int, frame: FrameType | None) -> None:
        one = signal.Signals(number)
        seen.name = one.name
        signal.signal(one, before[one])

    for one in before:
        signal.signal(one, note)
    try:
        yield seen
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
