"""Edits about a second text of a row: another passage, the other text of a pair, an answer.

May import what `cloze.exercises` may. To add one: a file with a frozen dataclass that inherits from `Edit`,
`@register("edit", name)`, and its import in `cloze/exercises/__init__.py`.
Contract: tests/contracts/test_edits.py.
"""
