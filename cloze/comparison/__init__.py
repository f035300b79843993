"""`cloze compare`: recipes and checkpoints at an equal budget, on the user's own text and tasks, with the spread over seeds.

May import: assembly, reports, tasks and everything below.
A comparison is a grid of cells (`grid.py`); a cell is a folder with a run of `pretrain` or `finetune` in it (`cell.py`,
`work.py`). The state of a comparison is nothing but these folders. `compare.py` runs the cells that are missing; `answer.py`
collects what the finished ones show, by the tests of `statistics.py`; `page.py` writes it as HTML.
To add a way of transferring: a change in `transfer`; `--transfer NAME=VALUE` then names it. To add a place where jobs run: a
class with the protocol of `cloze/jobs.py`.
Contract: tests/comparison (false alarms, killed comparisons, failed cells, the page).
"""
