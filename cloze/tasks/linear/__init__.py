"""Linear models on n-grams, next to which the results of networks stand: fitted in seconds, saved in two small files.

May import: what tasks may import, and the readers and metrics of tasks. To add one for a task: a subclass of
`LinearTask` (`linear_task.py`), which the task's method `linear` returns. `features.py` counts n-grams,
`estimators.py` learns weights (scikit-learn), `fit.py` chooses the regularisation, `model.py` predicts and saves.
Contract: tests/tasks/test_linear.py fits every task that has one, and opens its files again.
"""
