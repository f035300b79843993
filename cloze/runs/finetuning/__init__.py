"""`cloze finetune`: a checkpoint, a task and labelled rows → a run, and what is measured of it.

May import the rest of `cloze.runs`. To add a way to fine-tune: a field of `FinetuneOptions` in `runs/options.py`, read in
`task_recipe.py`, which makes the recipe, or in `finetune.py`, which trains it; what is refused before training is in
`task_checks.py`.
Its contract is tested in tests/runs and tests/tasks.
"""
