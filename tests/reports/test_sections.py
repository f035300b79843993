"""Numbers, curves and samples of a report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cloze.reports import sections
from cloze.reports.figures import PlotLine, Scale, chart, duration, plain, smooth, thin, ticks
from cloze.reports.run import read_run
from cloze.reports.sections import SampleAnswer

from .runs import write_run


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00002, "2e-05"),
        (0.015, "0.015"),
        (3.14159, "3.142"),
        (8192, "8192"),
        (12345, "12.3 k"),
        (4.56e6, "4.56 M"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert plain(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.4, "4 s"), (60, "1 m"), (125, "2 m 05 s"), (4800, "1 h 20 m"), (3600, "1 h"), (273600, "3 d 4 h")],
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_ticks_are_round_and_inside() -> None:
    assert ticks(2.9, 9.1) == [4, 6, 8]
    assert ticks(0, 130, 4, seconds=True) == [0, 30, 60, 90, 120]
    assert ticks(5, 5) == [5]


def test_smoothing_keeps_a_constant_and_starts_at_the_data() -> None:
    assert smooth([(i, 2.0) for i in range(100)]) == [(i, pytest.approx(2.0)) for i in range(100)]
    assert smooth([(0, 9.0), (1, 3.0)])[0] == (0, 9.0)


def test_thinning_keeps_both_ends_and_the_mean() -> None:
    points = [(float(i), float(i % 2)) for i in range(10_000)]
    thinned = thin(points)
    assert len(thinned) == 400 and thinned[0] == points[0] and thinned[-1] == points[-1]
    assert all(abs(y - 0.5) < 0.05 for _, y in thinned[1:-1])


def test_a_chart_is_well_formed_and_escapes_names() -> None:
    svg = chart([PlotLine("a <b> & 'c'", [(0, 1), (1, 2)]), PlotLine("empty", [])], title="t & t", x="x")
    tree = ElementTree.fromstring(str(svg))
    assert len(tree.findall("polyline")) == 1
    assert tree.find("polyline").get("data-name") == "a <b> & 'c'"  # type: ignore[union-attr]


def test_a_scale_maps_its_bounds_to_the_ends_of_the_axis() -> None:
    up = Scale(2.0, 4.0, 260.0, 12.0)
    assert [up(value) for value in (2.0, 3.0, 4.0)] == [260.0, 136.0, 12.0]


def test_a_chart_of_one_point_or_a_constant_can_be_drawn() -> None:
    for points in ([(1.0, 5.0)], [(0.0, 0.6), (1.0, 0.6 + 1e-16)]):
        assert "nan" not in chart([PlotLine("a", points)], title="t", x="x")


def test_interpolation_meets_the_points_and_stops_outside() -> None:
    points = [(0.0, 4.0), (10.0, 2.0)]
    assert sections.at(points, 5) == 3.0 and sections.at(points, 10) == 2.0 and sections.at(points, 11) is None


def test_runs_are_compared_at_the_budget_that_all_of_them_reached(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / str(n), steps=n)) for n in (100, 300)]
    columns, rows = sections.comparison(runs)
    assert "at 400 k tokens" in columns and "at 21 s" in columns
    assert all(row[columns.index("at 400 k tokens")] != "–" for row in rows)


def straight(folder: Path) -> Path:
    """A run of 40 records, 10 steps apart: its loss falls from 8.0 by 0.1 a record; a step is one token and two seconds."""
    (folder / "cloze").mkdir(parents=True)
    start = {"event": "start", "step": 0, "baselines": {"token_prediction": {"chance": 9.0, "single": 7.0, "pairs": 5.5}}}
    records: list[dict[str, object]] = [start] + [
        {"event": "train", "step": 10 * n, "tokens": 10 * n, "seconds": 20.0 * n, "loss": 8.1 - 0.1 * n, "learning_rate": 1e-3,
         "objectives": {"token_prediction": 8.1 - 0.1 * n}, "grad_norm": 1.0, "tokens_per_second": 0.5 if n > 2 else 0.1,
         "mfu": 0.4}
        for n in range(1, 41)
    ]  # fmt: skip
    for n in (20, 40):
        loss = 9.0 - 0.1 * n
        records.append({"event": "held_out", "step": 10 * n, "tokens": 10 * n, "seconds": 20.0 * n, "loss": loss,
                        "objectives": {"token_prediction": loss}})  # fmt: skip
    (folder / "cloze" / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "cloze" / "recipe.yaml").write_text("name: straight\n")
    return folder


def test_the_training_loss_of_a_report_is_that_of_the_end_and_the_held_out_loss_the_last(tmp_path: Path) -> None:
    run = read_run(straight(tmp_path / "run"))
    figures = {name: (value, remark) for name, value, remark in sections.key_figures(run)}
    assert figures["training loss"] == ("4.150", "from 8.000 at step 10")  # the mean of 4.2 and 4.1, the last twentieth
    assert figures["held-out loss"] == ("5.000", "best 5.000")
    assert sections.steady_speed(run) == 0.5  # not that of the start
    columns, (row,) = sections.comparison([run])
    assert row[columns.index("training loss")] == "4.150" and row[columns.index("held-out loss")] == "5.000"


def test_the_held_out_loss_of_a_mixture_is_that_of_its_entries_as_the_run_weighs_them(tmp_path: Path) -> None:
    log = write_run(tmp_path / "run") / "cloze" / "log.jsonl"
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if json.loads(line)["event"] != "held_out"]
    lines += [
        json.dumps({"event": "held_out", "step": step, "tokens": 64 * step, "entry": entry, "weight": weight, "loss": loss})
        for step, first, second in ((10, 8.0, 4.0), (20, 4.0, 2.0))
        for entry, weight, loss in (("masked", 0.75, first), ("causal", 0.25, second))
    ]  # fmt: skip
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = read_run(tmp_path / "run")
    figures = {name: values for name, *values in sections.key_figures(run)}
    assert figures["held-out loss"] == ["3.500", "best 3.500"]
    columns, (row,) = sections.comparison([run])
    assert row[columns.index("held-out loss")] == "3.500"


def test_a_report_says_what_a_loss_is_worth(tmp_path: Path) -> None:
    run = read_run(straight(tmp_path / "run"))
    figures = {name: (value, remark) for name, value, remark in sections.key_figures(run)}
    assert figures["token_prediction"] == ("5.000", "2.00 nats below single tokens (7.00); pairs 5.50")
    single, pairs = sections.levels([run], "tokens")
    assert (single.name, single.points) == ("single tokens", [(10.0, 7.0), (400.0, 7.0)])
    assert (pairs.name, pairs.points) == ("pairs", [(10.0, 5.5), (400.0, 5.5)])
    assert sections.levels([run, run], "tokens") == []


def test_curves_stand_over_the_axis_that_the_figure_names(tmp_path: Path) -> None:
    run = read_run(straight(tmp_path / "run"))
    tokens, seconds = sections.loss_figures([run])
    assert "tokens" in tokens.title and "time" in seconds.title
    for axis, last in (("tokens", 400.0), ("seconds", 800.0)):
        faint, line = sections.curves([run], axis, "loss")
        assert faint.points[0] == (last / 40, 8.0) and faint.points[-1] == (last, pytest.approx(4.1))
        assert line.points[-1][0] == last
        (held_out,) = sections.held_out_curves([run], axis)
        assert held_out.points == [(last / 2, 7.0), (last, 5.0)]
    assert 'data-x="0,400,' in tokens.svg and 'data-x="0,800,' in seconds.svg
    for figure in (tokens, seconds):  # raw, smoothed, held out, two baselines: all end together
        ends = [points.split()[-1].partition(",")[0] for points in re.findall(r'<polyline[^>]* points="([^"]+)"', figure.svg)]
        assert len(ends) == 5 and len(set(ends)) == 1
    details = {figure.title: figure.svg for figure in sections.detail_figures([run])}
    assert details.keys() == {"Tokens per second", "Learning rate", "Gradient norm", "Share of the matrix rate"}
    assert {title for title, svg in details.items() if 'data-x="0,400,' in svg} == {"Learning rate", "Gradient norm"}
    assert 'data-y="0,0.00' in details["Learning rate"]


def test_samples_show_the_last_answer_and_the_earlier_ones(tmp_path: Path) -> None:
    first, _ = sections.filled_masks(read_run(write_run(tmp_path / "run")))
    assert (first.before, first.after) == ("The capital of France is ", ".")
    assert first.answers == [SampleAnswer("paris", 0.62), SampleAnswer("london", 0.11), SampleAnswer("the", 0.0)]
    assert first.earlier == [(100, "paris"), (200, "paris")]


def test_a_text_without_a_blank_is_shown_with_its_continuation(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=30)
    log = folder / "cloze" / "log.jsonl"
    kept = [line for line in log.read_text().splitlines() if '"samples"' not in line]
    kept.append('{"event": "samples", "step": 30, "samples": [{"text": "Once upon", "answers": ["Once upon 100%"]}]}')
    log.write_text("\n".join(kept))
    [shown] = sections.filled_masks(read_run(folder))
    assert shown.continued and shown[:3] == ("Once upon ", "", [SampleAnswer("100%", None)])


def test_recipe_differences_use_value_paths() -> None:
    a = {"exercise": [{"mask": {"rate": 0.15}}, {"predict": "masked"}], "training": {"betas": [0.9, 0.999]}}
    b = {"exercise": [{"mask": {"rate": 0.4}}, {"predict": "masked"}], "training": {"betas": [0.9, 0.98]}}
    assert sections.differences([a, b]) == [
        ["exercise.mask.rate", "0.15", "0.4"],
        ["training.betas", "[0.9, 0.999]", "[0.9, 0.98]"],
    ]
