"""Work that is done in a thread while training goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundTask:
    """One piece of work at a time, done in a thread."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def start(self, work: Callable[[], object]) -> None:
        """Begin a piece of work; the one before must have been waited for. The process does not end before it is done."""
        self._thread = threading.Thread(target=self._do, args=(work,), name="checkpoint", daemon=False)
        self._thread.start()

    def wait(self) -> Exception | None:
        """Wait for the end of the work, if there is any; returns why it failed, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        return failure

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # told by `wait`
            self._failure = error
