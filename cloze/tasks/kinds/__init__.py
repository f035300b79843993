"""The tasks that a network is fine-tuned for, the networks with their heads, and how their files are read.

May import what `cloze.tasks` may. To add one: a file with a class decorated `@register("task", name)`, and its import
in `cloze/tasks/__init__.py`.
Contract: tests/contracts/test_tasks.py.
"""
