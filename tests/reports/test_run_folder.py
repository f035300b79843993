"""Reading run folders: leniently, and with helpful errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cloze.errors import CheckpointError
from cloze.reports import find_runs, read_run
from cloze.reports.about import about

from .runs import write_run


def append(folder: Path, *records: object) -> None:
    with (folder / "cloze" / "log.jsonl").open("a") as log:
        log.writelines((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)


def test_a_run_is_read_whole(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "bert-mini"))
    assert run.name == "bert-mini"
    assert len(run.train) == 60 and len(run.held_out) == 10 and len(run.samples) == 3
    assert run.objectives == ["token_prediction", "relation_prediction"]
    assert run.recipe["training"]["batch"] == 32
    assert run.environment["hardware"]["cores"] == 2
    assert run.last("tokens") == 300 * 4000


def test_steps_written_twice_by_a_resumed_run_count_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=30)
    append(
        folder,
        {"event": "train", "step": 20, "tokens": 1, "loss": 1.5},
        {"event": "train", "step": 25, "tokens": 2, "loss": 1.25},
    )
    run = read_run(folder)
    assert [record["step"] for record in run.train] == [5, 10, 15, 20, 25]
    assert run.train[-1]["loss"] == 1.25


def test_a_line_cut_by_a_kill_is_left_out_and_counted(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=30)
    append(folder, '{"event": "train", "step": 35, "lo')
    run = read_run(folder)
    assert run.unreadable_lines == 1 and run.last("step") == 30


def test_values_that_are_not_finite_are_left_out_of_curves(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=30)
    append(folder, '{"event": "train", "step": 35, "tokens": 9, "loss": NaN}')
    assert len(read_run(folder).series("step", "loss")) == 6


def test_a_folder_of_runs_stands_for_all_of_them(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write_run(tmp_path / "runs" / name, steps=30)
    assert [folder.name for folder in find_runs([tmp_path / "runs"])] == ["a", "b"]


def test_a_fine_tuned_folder_is_no_run(tmp_path: Path) -> None:
    for name in ("run", "task"):
        write_run(tmp_path / "runs" / name, steps=30)
    (tmp_path / "runs" / "task" / "cloze" / "task.json").write_text("{}")
    assert [folder.name for folder in find_runs([tmp_path / "runs"])] == ["run"]
    told = "task: this fine-tuned folder has no log of its run.\n.*Give the folder that was fine-tuned"
    with pytest.raises(CheckpointError, match=told):
        find_runs([tmp_path / "runs" / "task"])


def test_the_runs_of_several_seeds_are_found_in_the_folder_of_their_result(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        write_run(tmp_path / "out" / "cloze" / "seeds" / seed, steps=30)
        (tmp_path / "out" / "cloze" / "seeds" / seed / "cloze" / "run.json").write_text("{}")
        (tmp_path / "out" / "cloze" / "seeds" / seed / "cloze" / "task.json").write_text("{}")
    (tmp_path / "out" / "cloze" / "task.json").write_text("{}")
    assert [folder.name for folder in find_runs([tmp_path / "out"])] == ["1", "2"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere: no such folder"):
        find_runs([tmp_path / "nowhere"])


def test_a_folder_that_is_no_run_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"not a run folder: it has no cloze/log\.jsonl"):
        find_runs([tmp_path])


def test_a_run_without_a_step_says_so(tmp_path: Path) -> None:
    (tmp_path / "cloze").mkdir()
    (tmp_path / "cloze" / "log.jsonl").write_text('{"event": "start"}\n')
    with pytest.raises(CheckpointError, match="no training step is logged yet"):
        read_run(tmp_path)


def test_only_the_log_is_required(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=30)
    (folder / "cloze" / "recipe.yaml").write_text("a: [unclosed")
    (folder / "cloze" / "environment.json").unlink()
    run = read_run(folder)
    assert run.recipe == {} and run.recipe_text == "a: [unclosed" and run.environment == {}


@pytest.mark.parametrize("command", ["compare", "sweep", "best"])
def test_the_folder_of_a_comparison_is_told_from_other_folders_and_its_page_is_named(command: str, tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    (tmp_path / f"{command}.html").touch()
    told = f"{tmp_path}: holds the result of cloze {command}. Open {tmp_path}/{command}.html in a browser; {tmp_path}/cells has"
    for read in (lambda: find_runs([tmp_path]), lambda: about(tmp_path, lambda path: pytest.fail(str(path)))):
        with pytest.raises(CheckpointError, match=f"^{re.escape(told)} its runs\\.$"):
            read()
