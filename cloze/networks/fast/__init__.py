"""Fast CPU functions that replace plain modules: the same mathematics in fewer passes over memory.

`Layer` asks `choose.py` for one in every residual connection. Read the plain modules in `blocks/` first: they define what is
computed. `CLOZE_FAST=0` turns all fast functions off. May import: blocks, torch and the foundation; never a network.
To add one: a function with the mathematics of a plain part, its line in `choose.py`, and a test of equality in
`tests/networks/test_fast_*.py`.
"""
