"""Changes that make a network smaller: fewer heads, fewer weights, weights and activations of few bits, dropped layers.

May import `cloze.changes.change` and what that imports. To add one: a file here, as described in `cloze/changes/__init__.py`.
Contracts: tests/contracts/test_changes.py and tests/compression.
"""
