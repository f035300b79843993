"""Worker processes that work on blocks; results come in the order of the blocks, with a bounded number in progress.

Each worker is a fresh interpreter running this module, joined by a pipe: nothing is forked (the parent may hold threads)
and nothing of the parent's main script is imported again. It runs its library with one thread.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar

from cloze.corpus.readers.blocks import Block
from cloze.errors import ClozeError, RunError

Answer = TypeVar("Answer")

_AHEAD = 2  # blocks read beyond those at work
# Not `-m cloze.corpus.stores.workers`: the package imports this module itself, of which runpy warns on the user's terminal.
_SCRIPT = "from cloze.corpus.stores.workers import main; main()"


class WorkerPool(Generic[Answer]):
    """`count` processes with one task each. A context manager: leaving it ends them.

    task: makes, in the process, what answers every block (a `BlockEncoder`); picklable.
    """

    def __init__(self, task: Callable[[], Callable[[Block], Answer]], count: int) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        # A thread per process, so that sending one block never waits for the answer to another.
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="cloze-encode")
        for _ in range(count):
            parent_end, child_end = socket.socketpair()
            self._processes.append(_start(child_end))
            child_end.close()
            self._pipes.append(Connection(parent_end.detach()))
        for pipe in self._pipes:
            self._threads.submit(self._introduce, pipe, task)

    def __enter__(self) -> WorkerPool[Answer]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            for process in self._processes:
                process.kill()
        self._threads.shutdown(cancel_futures=True)
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.wait()

    def each(self, blocks: Iterable[Block]) -> Iterator[tuple[Block, Answer]]:
        """Every block with its answer, in order. The blocks come back without their data."""
        waiting: deque[tuple[Block, Future[Answer]]] = deque()
        for block in blocks:
            waiting.append((replace(block, data=b""), self._threads.submit(self._ask, block)))
            if len(waiting) >= len(self._pipes) + _AHEAD:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()

    def _introduce(self, pipe: Connection, message: object) -> None:
        with contextlib.suppress(OSError):  # a process that ended early shows when it is asked
            pipe.send(message)
        self._idle.put(pipe)

    def _ask(self, block: Block) -> Answer:
        pipe = self._idle.get()
        try:
            pipe.send(block)
            answer: Any = pipe.recv()
        except (EOFError, OSError):
            raise RunError(
                "a worker process ended unexpectedly, perhaps because memory ran out.\n"
                "  Nothing was written. Try fewer processes: --workers 1"
            ) from None
        finally:
            self._idle.put(pipe)
        if isinstance(answer, Exception):
            raise answer
        reply: Answer = answer
        return reply


def serve(pipe: Connection) -> None:
    """Answer every block until the pipe closes. Runs in the worker process."""
    work = pipe.recv()()
    while True:
        try:
            block = pipe.recv()
        except EOFError:
            return
        try:
            answer: object = work(block)
        except ClozeError as error:
            answer = error
        except Exception as error:  # the parent must not wait for an answer that never comes
            answer = RunError(f"{block.path}:{block.line}: this block could not be encoded: {type(error).__name__}: {error}")
        pipe.send(answer)


def _start(connection: socket.socket) -> subprocess.Popen[bytes]:
    packages = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(p for p in (packages, os.environ.get("PYTHONPATH", "")) if p)
    # One thread per process, and few malloc arenas with early returns, so that memory does not grow with time.
    environment = {
        **os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2",
    }
    number = connection.fileno()
    return subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, str(number)], pass_fds=[number], env=environment,
        stdin=subprocess.DEVNULL,
    )


def main() -> None:
    """The worker process: serves the pipe whose number is its argument."""
    try:
        serve(Connection(int(sys.argv[1])))
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        sys.exit(1)
