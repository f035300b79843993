"""torchrun restarts a run of which one process was killed, and it ends bit for bit like one that was not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from test_kill import losses
from test_loop import events
from tiny import weights

HERE = Path(__file__).resolve().parent


def torchrun(folder: Path, *words: str) -> None:
    """Train in two processes, which torchrun restarts up to twice."""
    folder.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2"]
    done = subprocess.run(
        [*command, str(HERE / "restarting.py"), str(folder), *words], env=environment, capture_output=True, text=True,
        timeout=900, check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def two_hosts(folder: Path, *words: str) -> None:
    """Train in two processes on each of two hosts, which are folders of this machine."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
    agents = []
    for host in range(2):
        (folder / f"host{host}").mkdir(parents=True)
        with (folder / f"host{host}.txt").open("w") as said:
            command = [sys.executable, str(HERE / "two_hosts.py"), str(folder), str(host), str(port), *words]
            agents.append(subprocess.Popen(command, env=environment, stdout=said, stderr=said))
    try:
        codes = [agent.wait(timeout=900) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    assert codes == [0, 0], "".join((folder / f"host{host}.txt").read_text()[-2000:] for host in range(2))


def assert_identical(killed: Path, whole: Path) -> None:
    """Assert that two runs have the same weights, losses, parameters and moments, bit for bit."""
    assert weights(killed) == weights(whole) and losses(killed) == losses(whole)
    for name in ("parameters.safetensors", "optimizer.safetensors"):
        last = Path("cloze/checkpoints/step-00000012/state") / name
        one, other = load_file(killed / last), load_file(whole / last)
        assert one.keys() == other.keys() and all(one[key].equal(other[key]) for key in one)


@pytest.mark.slow
@pytest.mark.distributed
def test_a_run_that_torchrun_restarts_after_a_kill_ends_bit_identical(tmp_path: Path) -> None:
    torchrun(tmp_path / "whole")
    torchrun(tmp_path / "killed", "8")  # after the checkpoint of step 6
    assert (tmp_path / "killed" / "died").exists()
    assert_identical(tmp_path / "killed" / "run", tmp_path / "whole" / "run")


@pytest.mark.slow
@pytest.mark.distributed
def test_two_hosts_without_a_common_disk_are_restarted_after_a_kill_on_the_second(tmp_path: Path) -> None:
    two_hosts(tmp_path / "whole")
    two_hosts(tmp_path / "killed", "8")  # after the checkpoint of step 6
    assert (tmp_path / "killed" / "host1" / "died").exists()
    killed = tmp_path / "killed" / "host0" / "run"
    assert [event["step"] for event in events(killed, "resume")] == [6] and not events(tmp_path / "whole/host0/run", "resume")
    assert not list((tmp_path / "killed" / "host1").rglob("step-*"))  # checkpoints lie where rank 0 is
    assert_identical(killed, tmp_path / "whole" / "host0" / "run")
