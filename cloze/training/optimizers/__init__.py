"""Optimizers: those of torch and our own, which parameters and which weight decay they get, and running means of weights.

May import `cloze/training/precision.py` and `sharding.py`. To add one: a file here with an `OptimizerSpec` under
`@register("optimizer", name)`, and its import in `every_optimizer.py`.
Contract: tests/training/test_optimizers.py.
"""
