"""The task types that a network is fine-tuned for: one file each with the `Task`, its `Learner` and their function.

May import what `cloze.tasks` may. To add one: a file like `regression.py`, with a function decorated
`@register("task", name)` that returns the `Task`, and its import in `cloze/tasks/__init__.py`. docs/architecture.md, "Adding a
task type", lists the steps. Tables that may have a line, too, and what a task without one lacks:
- other names of the task, `_ALSO_CALLED` in `checkpoint/several.py`: these are not understood in `--task`;
- its head in folders of transformers, `PROBLEMS` in `interop/model.py` and `_ROLES` or `_PROBLEMS` in `interop/purpose.py`: a
  folder has the head in cloze's own files only, and a folder that transformers wrote is read as ordinary classes;
- its loss per example, `_EXAMPLES` in `probes/losses.py`: probes and compression by losses of `--task` refuse its folders.
Contract: tests/contracts/test_tasks.py.
"""
