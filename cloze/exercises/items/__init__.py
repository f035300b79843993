"""Edits of the items of a row, such as the regions of its picture, and of recordings of its words.

May import what `cloze.exercises` may. To add one: a file with a frozen dataclass that inherits from `Edit`,
`@register("edit", name)`, and its import in `cloze/exercises/__init__.py`.
Contract: tests/contracts/test_edits.py.
"""
