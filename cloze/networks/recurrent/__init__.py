"""Recurrent networks: language models in one or two directions, encoders and decoders.

May import what `cloze.networks` may. To add one: a file with a class decorated `@register("network", name)`, and its
import in `cloze/networks/__init__.py`.
Contract: tests/networks, and test_leaks.py and test_recipes.py in tests/contracts.
"""
