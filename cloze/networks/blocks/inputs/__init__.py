"""How tokens, characters, senses, items and entities become vectors.

May import the other blocks. To add one: a file with one module.
Contract: tests/networks.
"""
