"""What changes while a run spends its budget: rates, batch sizes, phases, and which parameters are trained.

May import optimizers. To add a rate: a class under `@register("rate", name)` in `rates.py`; a schedule of odds or batches: in
`schedules.py`.
Contract: tests/training/test_rates.py.
"""
