"""Objectives that bring a student close to its teacher: scores, states, attention, parameters.

May import what `cloze.objectives` may. To add one: a file with a builder decorated `@register("objective", name)`,
and its import in `cloze/objectives/__init__.py`.
Contract: tests/objectives.
"""
