"""Tables of vectors: words, n-grams, paragraphs, entities; and the first neural language model.

May import what `cloze.networks` may. To add one: a file with a class decorated `@register("network", name)`, and its
import in `cloze/networks/__init__.py`.
Contract: tests/networks, and test_leaks.py and test_recipes.py in tests/contracts.
"""
