"""A run that was killed and resumed ends bit-identical to one that was not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from killing import HOW
from tiny import weights

HERE = Path(__file__).resolve().parent


def killed(folder: Path, *, seed: int, kills: int) -> Path:
    """A folder of runs that were killed in different ways, and of one that was not."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)]),
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "killing.py"), str(folder), str(seed), str(kills)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return killed(tmp_path_factory.mktemp("killed"), seed=1, kills=5)


@pytest.mark.parametrize("how", HOW)
def test_a_killed_run_ends_bit_identical(runs: Path, how: str) -> None:
    identical(runs / how, runs / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_forty_random_kills_lose_nothing(tmp_path: Path, seed: int) -> None:
    folder = killed(tmp_path, seed=seed, kills=8)
    identical(folder / "random", folder / "whole")


def identical(parts: Path, whole: Path) -> None:
    """Weights, checkpoints and log of two runs are the same, and nothing else lies about."""
    assert weights(parts) == weights(whole)
    last = Path("cloze/checkpoints/step-00000018/state")
    for name in ("parameters.safetensors", "optimizer.safetensors"):
        assert (parts / last / name).read_bytes() == (whole / last / name).read_bytes()
    assert losses(parts) == losses(whole)
    assert [path.name for path in (parts / "cloze" / "checkpoints").glob(".*")] == []


def losses(folder: Path) -> list[tuple[str, int, float]]:
    """Every logged loss; a step that was logged twice would appear twice."""
    records = [json.loads(line) for line in (folder / "cloze" / "log.jsonl").read_text().splitlines()]
    return [(record["event"], record["step"], record["loss"]) for record in records if "loss" in record]
