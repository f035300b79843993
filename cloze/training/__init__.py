"""The loop and what it needs: steps, budgets, rates, optimizers, precision, ranks, checkpoints, the run log.

May import: decoding, interop, objectives, batching, networks and the foundation; never recipes or the command line.
To add something: an optimizer in `optimizers/` or a rate in `schedule/rates.py`, registered by name; the loop does not change.
Contract tested in: tests/training (one rank = two ranks = accumulation; killed and resumed = uninterrupted).
"""
