"""Jobs: processes of this machine and tasks of a Ray cluster, how they end, and what survives them."""

from __future__ import annotations

import gc
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloze.comparison.compare import finish
from cloze.comparison.design import Design
from cloze.errors import MissingExtra, UserError
from cloze.forked import AVAILABLE
from cloze.jobs import Job, LocalWorkers, share_of_cores, workers_on

from .conftest import TUNING

SLEEPER = """\
import os, sys, time
from pathlib import Path
from cloze.jobs import end_with_parent

end_with_parent()
Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(60)
"""


def until(true: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return "\nState:\tZ" in Path(f"/proc/{process}/status").read_text()  # ended, and nobody has asked how


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that writes its process id into a file and sleeps; the folder that it is in."""
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return tmp_path


SHARED = pytest.mark.parametrize("imports", [(), ("json",)])  # a process of its own, and one forked from a server


@SHARED
def test_a_job_ends_with_its_exit_code_and_prints_into_its_log(tmp_path: Path, imports: tuple[str, ...]) -> None:
    workers = LocalWorkers(2)
    for name, word in (("good", "--version"), ("bad", "nothing")):
        workers.start(Job(name, "cloze", (word,), tmp_path / f"{name}.log", imports))
    assert workers.running == 2
    codes = {ended.job.name: ended.code for ended in (workers.wait(60.0), workers.wait(60.0)) if ended}
    assert codes == {"good": 0, "bad": 2} and workers.running == 0
    assert (tmp_path / "good.log").read_text().startswith("cloze ")
    assert "unknown command 'nothing'" in (tmp_path / "bad.log").read_text()


@SHARED
def test_jobs_that_are_stopped_get_a_signal_that_they_can_answer(sleeper: Path, imports: tuple[str, ...]) -> None:
    workers, pid = LocalWorkers(1), sleeper / "pid"
    workers.start(Job("one", "sleeper", (str(pid),), sleeper / "log", imports))
    assert until(lambda: pid.is_file() and bool(pid.read_text()))
    workers.stop()
    assert workers.running == 0 and is_gone(int(pid.read_text()))


@SHARED
def test_a_job_ends_when_the_process_that_started_it_is_killed(sleeper: Path, imports: tuple[str, ...]) -> None:
    pid = sleeper / "pid"
    code = (
        "import os, sys, time; from pathlib import Path; from cloze.jobs import Job, LocalWorkers\n"
        "workers = LocalWorkers(1)\n"
        f"workers.start(Job('one', 'sleeper', ({str(pid)!r},), Path({str(sleeper / 'log')!r}), {imports!r}))\n"
        "time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    assert until(lambda: pid.is_file() and bool(pid.read_text()))
    parent.kill()
    parent.wait()
    assert until(lambda: is_gone(int(pid.read_text())), 10)


@pytest.mark.skipif(not AVAILABLE, reason="processes are not forked here")
def test_forked_jobs_share_imports_and_nothing_else_and_report_how_each_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared.py").write_text("import os\nprint('imported', file=open(os.environ['SEEN'], 'a'))\nnumber = 1\n")
    ways = {"raise": "int(sys.argv[1])", "die": "os.kill(os.getpid(), 9)", "text": "sys.exit(sys.argv[1])"}
    (tmp_path / "adds.py").write_text(
        "import os, sys, shared\nshared.number += 1\nprint(__name__, sys.argv[1:], shared.number)\n"
        f"exec({ways}.get(sys.argv[1], ''))"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    workers, codes = LocalWorkers(1), {}
    for word in ("fine", "raise", "text", "die"):
        workers.start(Job(word, "adds", (word,), tmp_path / word, ("shared", "no_such_module")))
        ended = workers.wait(60.0)
        assert ended is not None
        codes[word] = ended.code
    assert codes == {"fine": 0, "raise": 1, "text": 1, "die": -9}
    assert (tmp_path / "seen").read_text() == "imported\n"
    assert (tmp_path / "fine").read_text() == "__main__ ['fine'] 2\n"
    assert "invalid literal for int()" in (tmp_path / "raise").read_text()


@pytest.mark.skipif(not AVAILABLE, reason="processes are not forked here")
def test_a_server_that_is_killed_counts_its_jobs_as_killed_is_replaced_and_ends_with_the_workers(sleeper: Path) -> None:
    workers = LocalWorkers(1)
    workers.start(Job("one", "sleeper", (str(sleeper / "pid"),), sleeper / "log", ("json",)))
    os.kill(workers._servers[("json",)]._server.pid, signal.SIGKILL)
    ended = workers.wait(30.0)
    assert ended is not None and ended.code == -signal.SIGKILL
    workers.start(Job("good", "cloze", ("--version",), sleeper / "other", ("json",)))
    ended = workers.wait(60.0)
    assert ended is not None and ended.code == 0
    process = workers._servers[("json",)]._server.pid
    assert not is_gone(process)
    del workers
    gc.collect()
    assert is_gone(process)


def test_processes_share_the_cores_unless_the_user_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [share_of_cores(count)["OMP_NUM_THREADS"] for count in (1, 3, 8, 20)] == ["8", "2", "1", "1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert share_of_cores(3) == {}


def test_a_dask_cluster_runs_jobs_and_returns_their_exit_codes(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    given: dict[str, Any] = {"processes": False, "protocol": "tcp", "dashboard_address": None}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, **given) as cluster:
        workers = workers_on(cluster.scheduler_address.replace("tcp://", "dask://"), 1)
        workers.start(Job("bad", "cloze", ("nothing",), tmp_path / "bad.log"))
        ended = workers.wait(60.0)
    assert ended is not None and (ended.job.name, ended.code) == ("bad", 2)


def test_places_that_are_not_known_and_an_extra_that_is_missing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--on moon: expected local, ray, ray://HOST:PORT or dask://HOST:PORT"):
        workers_on("moon", 1)
    with pytest.raises(UserError, match="--jobs 0: expected 1 or more"):
        workers_on("local", 0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r'pip install "cloze-lm\[ray\]"'):
        workers_on("ray", 1)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r'pip install "cloze-lm\[dask\]"'):
        workers_on("dask://here:8786", 1)


def test_a_cluster_that_does_not_answer_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ray:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**given: Any) -> None:
            assert given["address"] == "ray://nowhere:10001"
            raise ConnectionError("ray client failed:\nTraceback\nTimeoutError: too slow")

    monkeypatch.setitem(sys.modules, "ray", Ray)
    said = r"ray://nowhere:10001: no Ray cluster answers there \(ray client failed: TimeoutError: too slow\)"
    with pytest.raises(UserError, match=said):
        workers_on("ray://nowhere:10001", 1)


def typed(files: Path, out: Path) -> list[str]:
    """The command line of the small comparison."""
    task = "mood=" + ",".join(str(files / f"{part}.tsv") for part in ("train", "dev", "test"))
    tuning = [word for value in TUNING for word in ("--tune", value)]
    return [
        sys.executable, "-m", "cloze", "compare", str(files / "a.yaml"), str(files / "b.yaml"),
        "--corpus", str(files / "text.txt"), "--budget", "40steps", "--seeds", "1", "--task", task, *tuning, "--device", "cpu",
        "--out", str(out), "--json",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_comparison_that_is_killed_twice_finds_what_one_without_a_break_finds(files: Path, tmp_path: Path) -> None:
    """SIGKILL at two moments, Ctrl-C at a third: no finished cell is written again, and the scores are the same."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(typed(files, whole), check=True, capture_output=True)
    finished: dict[str, int] = {}
    for number, how in ((1, signal.SIGKILL), (2, signal.SIGKILL), (3, signal.SIGINT)):
        process = subprocess.Popen(typed(files, broken), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda wanted=number: len(list((broken / "cells").glob("*/result.json"))) >= wanted, 300)
            process.send_signal(how)
            assert process.wait(60) == (130 if how == signal.SIGINT else -how)
        finally:
            process.kill()
        for path in (broken / "cells").glob("*/result.json"):
            assert finished.setdefault(path.parent.name, path.stat().st_mtime_ns) == path.stat().st_mtime_ns
    subprocess.run(typed(files, broken), check=True, capture_output=True)
    for name, written in finished.items():
        assert (broken / "cells" / name / "result.json").stat().st_mtime_ns == written
    first, second = (json.loads((out / "compare.json").read_text())["systems"] for out in (whole, broken))
    assert [(one["name"], one["tasks"]) for one in first] == [(one["name"], one["tasks"]) for one in second]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Ray Client connection timed out")  # a slow machine: it tries again
def test_the_head_of_a_ray_cluster_finds_what_local_processes_find(
    design: Callable[..., Design], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ray://HOST:PORT`: a head with two CPUs in processes of its own, which end with the one that started them."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # the head listens at the machine's address
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    ray: Any = pytest.importorskip("ray")
    pytest.importorskip("grpc")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    local, _ = finish(design(seeds=1), tmp_path / "local", workers_on("local", 1))
    head = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port=0", "--num-cpus=2",
         f"--ray-client-server-port={port}", "--include-dashboard=false", "--temp-dir", tempfile.mkdtemp(prefix="ray")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert until(lambda: listens(port), 120)
        other, _ = finish(design(seeds=1), tmp_path / "ray", workers_on(f"ray://127.0.0.1:{port}", 2))
    finally:
        ray.shutdown()
        head.terminate()
        head.wait(60)
    assert [(one.name, one.scores["mood"].runs) for one in local.systems] == [
        (one.name, one.scores["mood"].runs) for one in other.systems
    ]  # fmt: skip


def listens(port: int) -> bool:
    """Whether a server of this machine answers at a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_a_local_ray_finds_what_local_processes_find(design: Callable[..., Design], tmp_path: Path) -> None:
    ray: Any = pytest.importorskip("ray")
    local, _ = finish(design(), tmp_path / "local", workers_on("local", 1))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        other, _ = finish(design(), tmp_path / "ray", workers_on("ray", 2))
    finally:
        ray.shutdown()
    assert [(one.name, one.scores["mood"].runs) for one in local.systems] == [
        (one.name, one.scores["mood"].runs) for one in other.systems
    ]  # fmt: skip
