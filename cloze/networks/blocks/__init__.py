"""Blocks: the parts networks are made of (attention, dropout, embeddings, layers).

May import: torch and the foundation; never a network.
To add one: one file holding one block; networks receive blocks as objects or build them from plain numbers.
Contract: tests/networks/test_blocks_*.py (every kernel against the plain one, addresses of dropout).
"""
