"""torchrun restarts a run of which one process was killed, and it ends bit for bit like one that was not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from test_kill import losses
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


@pytest.mark.slow
@pytest.mark.distributed
def test_a_run_that_torchrun_restarts_after_a_kill_ends_bit_identical(tmp_path: Path) -> None:
    torchrun(tmp_path / "whole")
    torchrun(tmp_path / "killed", "8")  # after the checkpoint of step 6
    assert (tmp_path / "killed" / "died").exists()
    killed, whole = tmp_path / "killed" / "run", tmp_path / "whole" / "run"
    assert weights(killed) == weights(whole) and losses(killed) == losses(whole)
    for name in ("parameters.safetensors", "optimizer.safetensors"):
        last = Path("cloze/checkpoints/step-00000012/state") / name
        one, other = load_file(killed / last), load_file(whole / last)
        assert one.keys() == other.keys() and all(one[key].equal(other[key]) for key in one)
