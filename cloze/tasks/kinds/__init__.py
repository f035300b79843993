"""The task types that a network is fine-tuned for: one file each with the `Task`, its `Learner` and their function.

May import what `cloze.tasks` may. To add one: a file like `regression.py`, with a function decorated
`@register("task", name)` that returns the `Task`, and its import in `cloze/tasks/__init__.py`. docs/architecture.md, "Adding a
task type", lists the steps. Tables that may have a line, too: other names of the task in `checkpoint/several.py`, its head in
folders of transformers in `interop/model.py` and `interop/purpose.py`, its loss per example in `probes/losses.py`.
Contract: tests/contracts/test_tasks.py.
"""
