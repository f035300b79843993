"""The best model for a text and a few labels: simple models and networks are measured by cross-validation, and the
best is kept.

May import: what `cloze.comparison` may import. To add a system: a function in `answers.py` that gives its answers to
the labelled rows, and its name in `cells.py`.
Contract: tests/comparison/test_best.py runs every system on a few rows and opens the folder that is kept.
"""
