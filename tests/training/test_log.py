"""The run log and the line of progress."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

import cloze
from cloze.display import duration
from cloze.training import log as module
from cloze.training.baselines import Baseline
from cloze.training.hardware import allocator, environment, matrix_rate
from cloze.training.log import Log, ProgressLine, cut_log
from cloze.training.precision import choose_device, choose_precision

RECORD = {"step": 50, "share": 0.25, "seconds": 30.0, "loss": 5.4321, "tokens_per_second": 12345.6}


def test_resuming_cuts_the_log_back_to_the_checkpoint(tmp_path: Path) -> None:
    log = Log(tmp_path, after=None)
    for step in range(1, 6):
        log.write("train", step, loss=1.0)
    log.close()
    with log.path.open("a") as file:
        file.write('{"event": "train", "st')
    again = Log(tmp_path, after=3)
    again.write("resume", 3)
    again.close()
    records = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [(record["event"], record["step"]) for record in records] == [
        ("train", 1),
        ("train", 2),
        ("train", 3),
        ("resume", 3),
    ]


def test_cutting_a_log_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    cut_log(tmp_path / "absent", 3)
    (tmp_path / "empty").touch()
    cut_log(tmp_path / "empty", 3)
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_piped_progress_line_is_plain_and_rare() -> None:
    stream, now = io.StringIO(), [0.0]
    line = ProgressLine(stream, now=lambda: now[0])
    for second in range(0, 41, 5):
        now[0] = float(second)
        line.show(RECORD)
    assert stream.getvalue().count("\n") == 3 and "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()
    assert "step 50   25%  loss 5.432  12,346 tokens/s  1 min 30 s left" in stream.getvalue()
    now[0] = 100.0
    line.set_unit("facts", 3.0)
    line.show(RECORD)
    assert "  4,115 facts/s  " in stream.getvalue()


def test_the_first_step_of_a_long_run_does_not_tell_the_time_left() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream, now=lambda: 0.0, verbose=True)
    for seconds, share in ((9.0, 0.0004), (10.0, 0.02)):  # nine seconds, of which eight went by before the first step
        line.show({**RECORD, "seconds": seconds, "share": share, "learning_rate": 0.1})
    first, second = stream.getvalue().splitlines()
    assert "tokens/s  rate" in first and "tokens/s  50 s left  rate" in second


def test_a_resumed_run_is_forecast_from_its_speed_since_then_and_no_run_ends_in_the_past() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream, now=lambda: 0.0, verbose=True)
    for seconds, share in ((100.0, 0.2), (110.0, 0.3), (150.0, 1.01)):  # a tenth of the budget in ten seconds, after a slow start
        line.show({**RECORD, "seconds": seconds, "share": share, "learning_rate": 0.1})
    assert re.findall(r"tokens/s  (.*?) left", stream.getvalue()) == ["6 min 40 s", "1 min 10 s", "0 s"]


def test_the_seconds_before_the_first_step_say_nothing_about_the_time_that_is_left() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream, now=lambda: 0.0, verbose=True)
    line.begin({"seconds": 12.0, "share": 0.0})  # counting neighbours, which is part of the budget
    for seconds, share in ((12.5, 0.01), (14.5, 0.06)):
        line.show({**RECORD, "seconds": seconds, "share": share, "learning_rate": 0.1})
    assert re.findall(r"tokens/s  (.*?) left", stream.getvalue()) == ["50 s", "38 s"]


def test_a_progress_line_names_several_objectives_and_what_their_losses_are_worth() -> None:
    stream = io.StringIO()
    record = {**RECORD, "loss": 7.04, "objectives": {"tokens": 6.352, "next": 0.69}}
    known = {"tokens": Baseline(8.99, 7.07, 5.31), "next": Baseline(0.693, 0.693)}
    ProgressLine(stream, now=lambda: 0.0).show(record, known)
    assert "tokens 6.352 (single tokens 7.07, pairs 5.31), next 0.690 (constant prediction 0.69)  12,346" in stream.getvalue()


def test_durations_are_said_as_people_say_them() -> None:
    assert [duration(s) for s in (5.4, 61, 3599, 7260)] == ["5 s", "1 min 01 s", "59 min 59 s", "2 h 01 min"]


def test_numbers_of_nested_records_have_paths() -> None:
    assert module._flat({"step": 3, "loss": 1.0, "objectives": {"lm": 0.5}, "entry": "main"}) == [
        ("loss", 1.0),
        ("objectives/lm", 0.5),
    ]


def test_the_machine_is_described_in_plain_values() -> None:
    device = choose_device("cpu")
    described = environment(device, choose_precision("auto", device))
    assert json.loads(json.dumps(described)) == described
    assert described["packages"]["cloze"] == cloze.__version__ and described["packages"]["torch"]
    assert described["device"] == "cpu" and described["allocator"] == allocator()
    assert matrix_rate(device, "fp32") > 1e8


def test_a_device_that_is_not_there_is_told_with_the_way_out() -> None:
    from cloze.errors import DeviceError

    with pytest.raises(DeviceError, match=r"cuda:99.*--device cpu"):
        choose_device("cuda:99")
    with pytest.raises(DeviceError, match="unknown device 'gpu'"):
        choose_device("gpu")
