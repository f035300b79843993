"""The task types that a network is fine-tuned for: one file each with the `Task`, its `Learner` and their function.

May import what `cloze.tasks` may. To add one: a file like `regression.py`, with a function decorated
`@register("task", name)` that returns the `Task`, and its import in `cloze/tasks/__init__.py`.
Contract: tests/contracts/test_tasks.py.
"""
