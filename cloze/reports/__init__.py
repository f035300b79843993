"""Run folders → one self-contained HTML page: curves, comparison, filled masks, recipe, environment.

May import: errors, and the results of probes and tasks; it reads what a run wrote and never loads a checkpoint.
To add a section: a function in `sections.py` that turns runs into plain values, its block in `templates/page.html`.
Contract: tests/reports (structure, and a rendering in chromium where that is installed).
"""

from __future__ import annotations

from cloze.reports.page import render, write_report
from cloze.reports.run import RecordedRun, find_runs, read_run

__all__ = ["RecordedRun", "find_runs", "read_run", "render", "write_report"]
