"""A run that was killed and resumed ends bit-identical to one that was not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import weights

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that were killed in different ways, and of one that was not."""
    folder = tmp_path_factory.mktemp("killed")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)]),
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "killing.py"), str(folder), "1"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("how", ["random", "export", "rename", "publish"])
def test_a_killed_run_ends_bit_identical(runs: Path, how: str) -> None:
    whole, parts = runs / "whole", runs / how
    assert weights(parts) == weights(whole)
    last = Path("cloze/checkpoints/step-00000018/state")
    for name in ("parameters.safetensors", "optimizer.safetensors"):
        assert (parts / last / name).read_bytes() == (whole / last / name).read_bytes()
    assert losses(parts) == losses(whole)


def losses(folder: Path) -> list[tuple[str, int, float]]:
    """Every logged loss; a step that was logged twice would appear twice."""
    records = [json.loads(line) for line in (folder / "cloze" / "log.jsonl").read_text().splitlines()]
    return [(record["event"], record["step"], record["loss"]) for record in records if "loss" in record]
