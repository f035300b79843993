"""Displays of progress: a terminal, plain lines, a notebook, nothing; and which one a process gets."""

from __future__ import annotations

import io
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cloze import html_parts
from cloze.display import Display, NotebookDisplay, PlainDisplay, TerminalDisplay, choose_display, silenced
from cloze.training.baselines import Baseline
from cloze.training.log import ProgressLine
from tests.notebooks import FrontEnd, become_kernel


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> FrontEnd:
    """What the reader of a notebook sees whose kernel this process is."""
    return become_kernel(monkeypatch)


def record(step: int, share: float) -> dict[str, Any]:
    losses = {"loss": 6.352, "objectives": {"lm": 6.352}}
    return {"step": step, "share": share, "seconds": 100 * share, **losses, "tokens_per_second": 900.0}


def test_a_terminal_rewrites_one_line_and_a_file_keeps_every_line() -> None:
    for kind, shown in ((TerminalDisplay, "\r\x1b[Ka\r\x1b[Kb\nsaid\n\r\x1b[Kc\r\x1b[K"), (PlainDisplay, "a\nb\nsaid\nc\n")):
        stream = io.StringIO()
        display: Display = kind(stream)
        display.show("a", 0.1)
        display.show("b")
        display.say("said")
        display.show("c")
        display.clear()
        display.clear()
        display.keep()
        assert stream.getvalue() == shown


def test_a_notebook_redraws_one_bar_per_run_with_losses_baselines_and_the_time_left(notebook: FrontEnd) -> None:
    for stage in ("1", "2"):
        line = ProgressLine(now=iter([0.0, 1.0, 2.0, 3.0]).__next__)
        for step, share in ((10, 0.25), (20, 0.5)):
            line.display.sent = -float("inf")  # type: ignore[attr-defined]
            line.show({**record(step, share), "loss": float(stage)}, {"lm": Baseline(8.99, 7.07, 5.31)})
    assert len(notebook.outputs) == 2 and notebook.messages == 4
    ahead = "step 20   50%  loss 2.000 (single tokens 7.07, pairs 5.31)  900 tokens/s"
    assert re.sub("<[^>]+>", "", notebook.outputs[1]) == f"{ahead}  50 s left"
    line.close()
    assert re.sub("<[^>]+>", "", notebook.outputs[1]) == ahead, "no time is left when the run has ended"
    assert 'aria-valuenow="50"' in notebook.outputs[0] and "<script" not in notebook.outputs[0]


def test_a_notebook_gets_few_messages_and_always_the_last_one(notebook: FrontEnd) -> None:
    clock = [0.0]
    display = NotebookDisplay(notebook.display, now=lambda: clock[0])
    for moment in range(100):
        clock[0] = moment / 100
        display.show(f"line {moment}")
    assert notebook.messages == 4 and "line 75" in notebook.outputs[0]
    display.keep()
    display.keep()
    assert notebook.messages == 5 and "line 99" in notebook.outputs[0]
    display.clear()
    assert notebook.outputs == [""]


def test_dev_scores_are_a_table_in_a_notebook_and_lines_elsewhere(notebook: FrontEnd) -> None:
    said: list[str] = []
    events = [{"step": step, "epochs": step / 10, "metrics": {"accuracy": 0.5 + step / 100}} for step in (0, 10, 20)]
    line = ProgressLine()
    for event in events:
        line.show_dev(event, said.append)
    assert said == [] and re.findall(r"<td>(.*?)</td>", notebook.outputs[0]) == [
        "frozen start", "0.5000", "1.00", "0.6000", "2.00", "0.7000",
    ]  # fmt: skip
    plain = ProgressLine(io.StringIO())
    for event in events:
        plain.show_dev(event, said.append)
    assert said[0] == "frozen start, network untouched  dev: accuracy 0.5000"
    assert said[2] == "step 20  epoch 2.00  dev: accuracy 0.7000"


def test_a_display_is_chosen_by_where_the_process_runs(notebook: FrontEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose_display(), NotebookDisplay)
    assert isinstance(choose_display(io.StringIO()), PlainDisplay)
    with silenced():
        display = choose_display()
        display.show("a line")
        assert type(display) is Display and notebook.outputs == []
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace(has_trait=lambda name: False))
    assert type(choose_display()) is PlainDisplay  # IPython in a terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert type(choose_display()) is TerminalDisplay
    monkeypatch.delitem(sys.modules, "IPython")
    assert type(choose_display()) is TerminalDisplay and "IPython" not in sys.modules


def test_pieces_of_html_are_escaped() -> None:
    markup = "<b>&"
    pieces = [
        html_parts.table([{markup: markup}], caption=markup), html_parts.grid([markup], [[markup]]), html_parts.line(markup),
        html_parts.facts({markup: markup}), html_parts.paragraphs([markup]), html_parts.preformatted(markup),
    ]  # fmt: skip
    assert all("<b>" not in piece and "&lt;b&gt;&amp;" in piece for piece in pieces)
    assert html_parts.table([]) == html_parts.line("") == html_parts.preformatted("") == ""
    assert "<td>0.2500</td><td>3</td>" in html_parts.table([{"a": 0.25, "b": 3}])


def test_series_can_be_told_from_light_and_from_dark_pages() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in html_parts.SERIES:
        light, dark = 1.05 / (luminance(colour) + 0.05), (luminance(colour) + 0.05) / (luminance("#111111") + 0.05)
        assert min(light, dark) >= 3, colour
