"""Objectives of tasks: classes, numbers, labels of words, spans, trees, and heads that a checkpoint decides.

May import what `cloze.objectives` may. To add one: a file with a builder decorated `@register("objective", name)`,
and its import in `cloze/objectives/__init__.py`.
Contract: tests/objectives.
"""
