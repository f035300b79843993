"""A request → a run: its inputs are bound and built, its recipe is fitted, it trains, and its folder is published.

May import every package except the API, comparisons, reports and cli. `options.py` is what a user asks for, `request.py` what
that means, `preparing.py` makes a `Run` of it, `run.py` trains it; `finetuning` does the same for a checkpoint and a task.
docs/architecture.md follows a batch, a recipe key and a prediction through all packages.
To add an option: a field of `PretrainOptions` or `FinetuneOptions`. The command line takes it by itself.
Its contract is tested in tests/runs.
"""
