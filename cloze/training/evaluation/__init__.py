"""What a run measures as it trains: held-out losses, the metric that chooses its checkpoint, and whether it learns.

May import the other parts of the session, never the session or the loop. To add something that is measured at every
evaluation: `Evaluations.measure`.
Contract: tests/training/test_selection.py.
"""
