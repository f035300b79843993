"""The ledger of the reproductions: what is finished is known, and several processes may write."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "reproductions"


@pytest.fixture(scope="module")
def ledger(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("ledger")


def test_a_run_is_finished_when_every_value_of_its_key_is_the_same(ledger: ModuleType, tmp_path: Path) -> None:
    book = ledger.Ledger(tmp_path / "results" / "some.jsonl")
    assert book.results() == [] and not book.has({"system": "bert", "seed": 0})
    book.add({"system": "bert", "seed": 0, "budget": "3Mtokens"}, {"loss": 6.5})
    assert book.has({"system": "bert", "seed": 0, "budget": "3Mtokens"})
    assert not book.has({"system": "bert", "seed": 1, "budget": "3Mtokens"})
    assert not book.has({"system": "bert", "seed": 0, "budget": "1Mtokens"})
    assert book.results(system="bert") == [{"system": "bert", "seed": 0, "budget": "3Mtokens", "loss": 6.5}]


def test_of_two_lines_of_one_run_the_later_counts_and_the_rest_stay(ledger: ModuleType, tmp_path: Path) -> None:
    book = ledger.Ledger(tmp_path / "some.jsonl")
    for seed, loss in ((0, 1.0), (1, 2.0), (0, 3.0)):
        book.add({"seed": seed}, {"loss": loss})
    assert [(r["seed"], r["loss"]) for r in book.results()] == [(0, 3.0), (1, 2.0)]
    assert len(book.path.read_text().splitlines()) == 3


def test_a_line_says_by_what_it_was_made(ledger: ModuleType, tmp_path: Path) -> None:
    book = ledger.Ledger(tmp_path / "some.jsonl")
    book.add({"seed": 0}, {})
    made = json.loads(book.path.read_text())["made"]
    assert set(made) == {"commit", "torch", "machine", "day"} and all(made.values())


def test_lines_of_processes_that_write_at_once_are_whole(ledger: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    code = (
        "import sys; from pathlib import Path; import ledger; ledger.made = lambda device: {}\n"
        "for i in range(50): ledger.Ledger(Path(sys.argv[1])).add({'job': sys.argv[2], 'i': i}, {'text': 'x' * 20000})"
    )
    jobs = [subprocess.Popen([sys.executable, "-c", code, str(path), str(job)], cwd=FOLDER) for job in range(3)]
    assert [job.wait(60) for job in jobs] == [0, 0, 0]
    assert len(ledger.Ledger(path).results()) == 150


def test_a_broken_line_is_named(ledger: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"run": {"seed": 0}, "result": {}}\n{"run": \n')
    with pytest.raises(SystemExit, match=r"some\.jsonl, line 2: expected a JSON object"):
        ledger.Ledger(path).results()
