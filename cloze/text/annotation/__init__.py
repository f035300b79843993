"""Marks on units of a text, with labels: words, entities, polarity.

May import what `cloze.text` may. To add one: a file with a class decorated `@register("annotator", name)`, and its
import in `cloze/text/__init__.py`.
Contract: tests/text.
"""
