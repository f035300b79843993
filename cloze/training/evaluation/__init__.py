"""What a run measures on the way: held-out losses, the metric that chooses its checkpoint, and whether anything is learned.

May import what the session is composed of, never the session or the loop. To add something that is measured at every evaluation:
`Evaluations.run`, and a test next to those of its events.
Contract: tests/training/test_selection.py.
"""
