"""Objectives that compare vectors: contrast, margins, products, transport.

May import what `cloze.objectives` may. To add one: a file with a builder decorated `@register("objective", name)`,
and its import in `cloze/objectives/__init__.py`.
Contract: tests/objectives.
"""
