"""Figures of a report on their own: in a notebook and as a file."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cloze.errors import CheckpointError, UserError
from cloze.reports.plot import Figures, plot_run

from .runs import write_run

SVG = "{http://www.w3.org/2000/svg}"


def tuned(folder: Path) -> Path:
    """A run that is measured on dev examples, next to a constant answer and n-grams."""
    write_run(folder)
    with (folder / "cloze" / "log.jsonl").open("a") as log:
        for step in (100, 200, 300):
            log.write(json.dumps({"event": "dev", "step": step, "tokens": step, "metrics": {"accuracy": step / 400}}) + "\n")
    task = {"baseline": {"always": "<b>", "accuracy": 0.4}, "ngrams": {"dev": {"accuracy": 0.7}}}
    (folder / "cloze" / "task.json").write_text(json.dumps(task))
    (folder / "cloze" / "run.json").write_text("{}")
    return folder


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_plot_is_saved_as_one_svg_that_needs_nothing_else(tmp_path: Path) -> None:
    plot = plot_run(tuned(tmp_path / "a<b"), what="plot")
    saved = plot.save(tmp_path / "new" / "losses.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(saved)
    assert root.tag == f"{SVG}svg" and "var(" not in saved and "<script" not in saved and "prefers-color-scheme: dark" in saved
    titles = [element.text for element in root.iter(f"{SVG}text") if element.get("class") == "title"]
    assert titles == ["Loss against tokens", "accuracy on the dev examples"]
    panels = root.findall(f"{SVG}svg")
    ends = [float(panel.get("y", "")) + float(panel.get("height", "")) for panel in panels]
    assert ends[0] < float(panels[1].get("y", "")) and ends[1] == float(root.get("height", ""))
    assert repr(plot) == "<cloze figures: Loss against tokens · accuracy on the dev examples>"


def test_curves_have_a_legend_and_level_lines_have_their_names(tmp_path: Path) -> None:
    shown = texts(plot_run(tuned(tmp_path / "a<b"), what="plot")._repr_svg_())
    assert shown[:3] == ["Loss against tokens", "a<b", "a<b, held out"]
    assert {"always '<b>'", "n-grams"} <= set(shown)


def test_a_notebook_gets_each_figure_with_the_colours_of_the_page(tmp_path: Path) -> None:
    html = plot_run(tuned(tmp_path / "run"), what="plot")._repr_html_()
    assert html.count("cloze-plot\"") == 2 and "prefers-color-scheme" not in html and "currentColor" in html
    assert "nothing to show yet" in Figures([])._repr_html_()


def test_what_cannot_be_plotted_or_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^model\.plot: .*published has no log of its training\. The folder of a"):
        plot_run(tmp_path / "published", what="model.plot")
    with pytest.raises(UserError, match=r"losses\.png: figures are saved as SVG\. Expected a name that ends in \.svg\."):
        Figures([]).save(tmp_path / "losses.png")
