"""`cloze compare`: recipes and checkpoints at an equal budget, on the user's own text and tasks, with the spread over
seeds. `cloze sweep`: many trials of one recipe, of which the worst are given up early.

May import: runs, reports, tasks and everything below. A comparison is a grid of cells (`grid.py`); a cell is a folder
with a run of `pretrain` or `finetune` in it (`cell.py`, `work.py`). The state of a comparison is nothing but these
folders. `compare.py` runs the cells that are missing; `answer.py` collects what the finished ones show, by the tests
of `statistics.py`; `page.py` writes it as HTML. A sweep has the same cells: `space.py` and `search.py` say which
points are tried, `sweep.py` which go on, `standings.py` and `sweep_page.py` what was found. To add a way of
transferring: a change in `cloze/changes`; `--transfer NAME=VALUE` then names it. To add a search: a class with the
protocol of `search.py`. To add a place where jobs run: a class with the protocol of `cloze/jobs.py`.
Contract: tests/comparison (false alarms, killed comparisons and sweeps, failed cells, the pages).
"""
