"""Edits that set what the network must predict: tokens, labels, numbers, senses, boundaries, an order.

May import what `cloze.exercises` may. To add one: a file with a frozen dataclass that inherits from `Edit`,
`@register("edit", name)`, and its import in `cloze/exercises/__init__.py`.
Contract: tests/contracts/test_edits.py.
"""
