"""Recipes fitted to a budget, a text and a task, and what a budget is expected to buy: the laws, each with its reason.

May import checkpoints and the recipe language.
To add a law: a `ChangedValue` of a value with its reason in `fit.py`, `fit_task.py` or `fit_words.py`, and its row in
the tables of reproductions/budgets.md.
Its contract is tested in tests/budget.
"""
