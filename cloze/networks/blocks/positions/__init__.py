"""How attention and embeddings know positions: relations of a key to a query, rotations, sinusoids.

May import the other blocks. To add one: a file with a subclass of `Relation`, and its section in `cloze/networks/choices.py`.
Contract: tests/networks.
"""
