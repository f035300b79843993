"""Objectives that predict tokens, or labels of tokens, from the states of a text.

May import what `cloze.objectives` may. To add one: a file with a builder decorated `@register("objective", name)`,
and its import in `cloze/objectives/__init__.py`.
Contract: tests/objectives.
"""
