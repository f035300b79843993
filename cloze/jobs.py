"""Jobs: command lines that run at the same time, as processes of this machine or on a Ray cluster.

A job is `python -m MODULE WORDS…`. Its result is the files that it writes and its exit code, so it may run on any machine that
sees the same folders. `Workers` is the protocol; `workers_on` makes the ones that `--on` names.

A job reads its standard input until the end: it ends when whatever started it is gone. `end_with_parent` in the job's `main`
turns that into SIGTERM, and a training run then writes a checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cloze.errors import MissingExtra, UserError
from cloze.forked import AVAILABLE, ForkedProcess, ForkServer

LOCAL, RAY, DASK = "local", "ray", "dask"
_POLL = 0.05  # seconds between looks at running processes
_GRACE = 60.0  # seconds that a process has to write its checkpoint


class Job(NamedTuple):
    """A command line: `python -m module *words`; what it prints goes to the end of the file `log`. `imports` are modules
    that it needs; all jobs on this machine share one import of them."""

    name: str
    module: str
    words: tuple[str, ...]
    log: Path
    imports: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """The words of the process."""
        return [sys.executable, "-m", self.module, *self.words]


class Ended(NamedTuple):
    """A job that ended, with its exit code: 0 for success, the negative number of a signal that killed it."""

    job: Job
    code: int


class Workers(Protocol):
    """What runs jobs, `count` at a time."""

    count: int

    @property
    def running(self) -> int:
        """How many jobs run now."""

    def start(self, job: Job) -> None:
        """Start a job; the caller keeps to `count`."""

    def wait(self, seconds: float) -> Ended | None:
        """The next job to end; None if none ends within these seconds."""

    def stop(self) -> None:
        """End all running jobs; each may first write a checkpoint."""


def workers_on(address: str, count: int) -> Workers:
    """The workers that `--on PLACE` names: local, ray (a Ray on this machine or the cluster it belongs to), ray://HOST:PORT, or
    dask://HOST:PORT.

    Raises `UserError` for another place, `MissingExtra` if Ray or Dask is not installed.
    """
    if count < 1:
        raise UserError(f"--jobs {count}: expected 1 or more.")
    if address == LOCAL:
        return LocalWorkers(count)
    if address == RAY or address.startswith(f"{RAY}://"):
        return RayWorkers(address, count)
    if address.startswith(f"{DASK}://"):
        return DaskWorkers(address, count)
    raise UserError(f"--on {address}: expected local, ray, ray://HOST:PORT or dask://HOST:PORT.")


class LocalWorkers:
    """Processes of this machine, which share its cores evenly."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._processes: dict[subprocess.Popen[bytes] | ForkedProcess, Job] = {}
        self._servers: dict[tuple[str, ...], ForkServer] = {}

    @property
    def running(self) -> int:
        """How many processes run."""
        return len(self._processes)

    def start(self, job: Job) -> None:
        """Start a process."""
        self._processes[self._started(job)] = job

    def _started(self, job: Job) -> subprocess.Popen[bytes] | ForkedProcess:
        environment = share_of_cores(self.count)
        if not (job.imports and AVAILABLE):
            return _started(job, environment)
        server = self._servers.get(job.imports)
        if server is None or not server.alive:
            server = self._servers[job.imports] = ForkServer(job.imports, environment, job.log)
        return server.start(job.module, job.words, job.log)

    def wait(self, seconds: float) -> Ended | None:
        """The next process to end; None if none ends within these seconds."""
        until = time.monotonic() + seconds
        while True:
            for process, job in self._processes.items():
                if (code := process.poll()) is not None:
                    del self._processes[process]
                    _close(process)
                    return Ended(job, code)
            if time.monotonic() > until:
                return None
            time.sleep(_POLL)

    def stop(self) -> None:
        """SIGTERM to every process, then SIGKILL to one that has not ended after a minute."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            _end(process)
        self._processes.clear()


class RayWorkers:
    """Tasks of a Ray cluster; each starts the process of its job on the machine that Ray chose.

    All machines must see the folders of the jobs under the same paths and have cloze installed.
    """

    def __init__(self, address: str, count: int) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtra("ray", "ray", f"--on {address}") from None
        self.count, self._ray = count, ray
        if not ray.is_initialized():
            try:
                ray.init(**({"address": address} if "://" in address else {}), log_to_driver=False)
            except ConnectionError as error:
                first, *rest = str(error).strip().splitlines()
                reason = " ".join([first, *rest[-1:]])  # the last line of the server's traceback says what went wrong
                raise UserError(
                    f"--on {address}: no Ray cluster answers there ({reason}).\n"
                    "  Start one with `ray start --head`, and give the port of its client server: ray://HOST:10001.\n"
                    "  A cluster that wants a token reads it from the environment: RAY_AUTH_MODE=token, RAY_AUTH_TOKEN=…"
                ) from None
        self._run = ray.remote(max_retries=0)(run_job)
        self._tasks: dict[Any, Job] = {}

    @property
    def running(self) -> int:
        """How many tasks are submitted."""
        return len(self._tasks)

    def start(self, job: Job) -> None:
        """Submit a task."""
        self._tasks[self._run.remote(job, share_of_cores(self.count))] = job

    def wait(self, seconds: float) -> Ended | None:
        """The next task to end, None if none ends within these seconds; one whose machine was lost counts as killed."""
        ready, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
        if not ready:
            return None
        (task,) = ready
        job = self._tasks.pop(task)
        try:
            return Ended(job, self._ray.get(task))
        except self._ray.exceptions.RayError:
            return Ended(job, -signal.SIGKILL)

    def stop(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            self._ray.cancel(task)
        self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=_GRACE)
        self._tasks.clear()


class DaskWorkers:
    """Tasks of a Dask cluster, each of which starts the process of its job; see `RayWorkers` for what the machines need."""

    def __init__(self, address: str, count: int) -> None:
        try:
            import distributed
        except ImportError:
            raise MissingExtra("distributed", "dask", f"--on {address}") from None
        self.count, self._distributed = count, distributed
        try:
            self._client = distributed.Client(address.replace(f"{DASK}://", "tcp://"), timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise UserError(
                f"--on {address}: no Dask scheduler answers there ({type(error).__name__}).\n"
                "  Start one with `dask scheduler`, and workers with `dask worker HOST:8786`."
            ) from None
        self._tasks: dict[Any, Job] = {}

    @property
    def running(self) -> int:
        """How many tasks are submitted."""
        return len(self._tasks)

    def start(self, job: Job) -> None:
        """Submit a task."""
        self._tasks[self._client.submit(run_job, job, share_of_cores(self.count), pure=False, retries=0)] = job

    def wait(self, seconds: float) -> Ended | None:
        """The next task to end, None if none ends within these seconds; one whose machine was lost counts as killed."""
        try:
            with self._client.as_current():  # `wait` asks for the current client; this one is nobody's default
                done = self._distributed.wait(list(self._tasks), timeout=seconds, return_when="FIRST_COMPLETED").done
        except (TimeoutError, self._distributed.TimeoutError):
            return None
        task = next(iter(done))
        job = self._tasks.pop(task)
        return Ended(job, task.result() if task.status == "finished" else -signal.SIGKILL)

    def stop(self) -> None:
        """Cancel all tasks."""
        self._client.cancel(list(self._tasks), force=True)
        self._tasks.clear()


def run_job(job: Job, environment: Mapping[str, str]) -> int:
    """Run a job to its end and return its exit code; what interrupts the caller ends the job, too."""
    process = _started(job, environment)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        _end(process)
        raise
    finally:
        _close(process)


def share_of_cores(count: int) -> dict[str, str]:
    """The environment that limits each of `count` processes to its share of the cores, where the user has set no limit."""
    return {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(max(1, cores() // count))}


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with_parent() -> None:
    """In a job: SIGTERM to this process when standard input ends, that is, when whatever started it is gone."""
    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _started(job: Job, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The process of a job. Its standard input stays open as long as this process lives."""
    with job.log.open("ab") as log:
        return subprocess.Popen(
            job.command(), stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment},
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends its jobs
        )


def _end(process: subprocess.Popen[bytes] | ForkedProcess) -> None:
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _close(process)


def _close(process: subprocess.Popen[bytes] | ForkedProcess) -> None:
    if process.stdin is not None:
        process.stdin.close()
