"""`make gpu-check` without a GPU: every part runs on a CPU, and what becomes of a part is a row of the table."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_check.py"


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    return module


def rows_of(check: ModuleType, tmp_path: Path, code: str, seconds: float = 60.0) -> list[tuple[str, str]]:
    return list(check.measured("part", [sys.executable, "-S", "-c", code], tmp_path / "part.txt", seconds))


def test_the_rows_of_a_part_are_kept_whatever_becomes_of_it(check: ModuleType, tmp_path: Path) -> None:
    row = "print('row: [\"speed\", \"5 | 6\"]', flush=True)"
    (first, last) = rows_of(check, tmp_path, row)
    assert first == ("speed", "5 | 6") and last[0] == "part" and last[1].startswith("done in ")
    (first, last) = rows_of(check, tmp_path, f"{row}; raise ValueError('no memory')")
    assert first == ("speed", "5 | 6") and "FAILED" in last[1] and last[1].endswith("ValueError: no memory")
    (first, last) = rows_of(check, tmp_path, f"{row}; import time; time.sleep(60)", seconds=2.0)
    assert first == ("speed", "5 | 6") and last == ("part", "no more within 2 s")


def test_the_parts_fit_into_nine_minutes_with_a_minute_for_the_installation(check: ModuleType) -> None:
    assert sum(part.seconds for part in check.PARTS.values()) + 60 <= check.TOTAL == 540


def test_the_text_is_the_same_each_time(check: ModuleType, tmp_path: Path) -> None:
    for name in ("a", "b"):
        check.write_text(tmp_path / name, 2000, 100)
    text = (tmp_path / "a").read_text()
    assert text == (tmp_path / "b").read_text() and len(text.split()) == 2000 and text.count("\n\n") == 5


def test_an_unknown_part_is_refused_with_the_known_ones() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--parts", "sped"], capture_output=True, text=True)
    assert done.returncode == 2 and "--parts sped: expected some of speed, tests, fsdp, resume, use" in done.stderr


@pytest.mark.slow
def test_every_part_runs_on_a_cpu(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--tiny", "--work", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert not [line for line in table if "FAILED" in line or "failed" in line or "no more within" in line], done.stdout
    for part in ("speed", "tests", "fsdp", "resume", "use"):
        assert any(line.startswith(f"| {part} | done in ") for line in table), done.stdout
    assert any("bare loop, compiled | " in line and "tokens/s" in line for line in table)
