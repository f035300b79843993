"""The checkpoints of a run: what they hold, how they are written whole, copied elsewhere, and locked.

May import `cloze/training/sharding.py` and `tensors.py`. To add something that a checkpoint holds: `state.py`, and
its restoring in `saving.py` next to this package.
Contract: tests/training/test_checkpoint.py.
"""
