"""Processes that share their imports: a server imports modules once, and forks for every job.

Importing torch, scikit-learn and cloze takes a process two to five seconds, as long as the work of a small cell. The server,
`python -m cloze.forked LIFE MODULES…`, computes nothing, so no thread of a library is lost in a fork. It answers each line of its
standard input with a line: a job with the number of its process, `null` with the processes that have ended and their codes.

A process of a job reads, as standard input, the pipe LIFE, which ends with the process that started the job (see `jobs.py`).
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

#: Neither the frameworks of macOS nor CUDA survive a fork.
AVAILABLE = sys.platform == "linux" and not Path("/dev/nvidiactl").exists()
_POLL = 0.05


class ForkServer:
    """Starts processes that have imported some modules, and which end with this object.

    `log` receives what the server itself says when it fails. `alive`: it has answered all questions.
    """

    def __init__(self, modules: Iterable[str], environment: Mapping[str, str], log: Path) -> None:
        life, life_end = os.pipe()
        try:
            with log.open("ab") as errors:
                self._server = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(life), *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=errors, pass_fds=[life], env={**os.environ, **environment}, text=True, start_new_session=True,
                )
        finally:
            os.close(life)
        self.codes: dict[int, int] = {}
        self.alive = True
        self._close = weakref.finalize(self, _close, self._server, life_end)

    def start(self, module: str, words: Sequence[str], log: Path) -> ForkedProcess:
        """The process of `python -m module *words`, which prints to the end of the file `log`."""
        number = self._ask([module, list(words), str(log)])
        return ForkedProcess(self, -1 if number is None else int(number))

    def code_of(self, number: int) -> int | None:
        """The exit code of a process, the negative number of a signal that killed it; None if it runs."""
        if number not in self.codes:
            ended = self._ask(None)
            if ended is None:  # the server is gone, and nobody else knows
                return -signal.SIGKILL
            self.codes.update((int(process), code) for process, code in ended)
        return self.codes.get(number)

    def _ask(self, question: Any) -> Any:
        """The answer of the server; None if it has ended."""
        assert self._server.stdin is not None and self._server.stdout is not None  # pipes
        with suppress(OSError):
            self._server.stdin.write(json.dumps(question) + "\n")
            self._server.stdin.flush()
            if answer := self._server.stdout.readline():
                return json.loads(answer)
        self.alive = False
        return None


class ForkedProcess:
    """A process of a `ForkServer`, with the methods of `subprocess.Popen` that jobs use."""

    stdin = None

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.server, self.pid = server, pid

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self.server.code_of(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_POLL)
        return code

    def terminate(self) -> None:
        """SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _close(server: subprocess.Popen[str], life_end: int) -> None:
    """End a server and the processes that still run."""
    os.close(life_end)
    assert server.stdin is not None and server.stdout is not None  # pipes
    with suppress(BrokenPipeError):  # what a server that was killed has not read
        server.stdin.close()
    server.stdout.close()
    server.wait()


def serve(life: int, modules: Iterable[str]) -> None:
    """Import the modules that are installed, then answer every line of standard input until its end."""
    for module in modules:
        with suppress(ImportError):  # a job that needs it fails by itself, with the message in its log
            import_module(module)
    gc.freeze()  # collections in the forks leave these objects, and so the memory that they share, alone
    for line in iter(sys.stdin.readline, ""):
        question = json.loads(line)
        print(json.dumps(_ended() if question is None else _fork(life, *question)), flush=True)


def _fork(life: int, module: str, words: list[str], log: str) -> int:
    number = os.fork()
    if not number:
        _work(life, module, words, log)
    return number


def _work(life: int, module: str, words: list[str], log: str) -> NoReturn:
    """What the process of a job does."""
    code: Any = 1
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        for descriptor, target in ((life, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, target)
        sys.argv[:] = [module, *words]
        sys.modules.pop(module, None)  # it runs as `__main__`, as with `python -m`
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended() -> list[tuple[int, int]]:
    """The processes that have ended since the last time, and their codes."""
    ended = []
    with suppress(ChildProcessError):
        while (process := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append((process[0], os.waitstatus_to_exitcode(process[1])))
    return ended


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2:])
