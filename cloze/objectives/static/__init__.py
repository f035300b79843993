"""Objectives of word vectors: tables of output words, counts of pairs, bags of n-grams.

May import what `cloze.objectives` may. To add one: a file with a builder decorated `@register("objective", name)`,
and its import in `cloze/objectives/__init__.py`.
Contract: tests/objectives.
"""
