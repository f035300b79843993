"""Fast functions of a CPU that stand in for plain modules: the same mathematics in fewer passes.

`choose.py` says when, `CLOZE_FAST=0` turns all of them off. May import: blocks, torch and the foundation; never a network.
To add one: a function with the mathematics of a plain part, its line in `choose.py`, and a test of equality in
tests/networks/fast/.
"""
