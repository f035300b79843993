"""The probes of `cloze probe`: one file each with its options, what it measures with, and how its figures are shown.

May import what `cloze.probes` may, but numpy and torch only in functions, since `cloze probe --help` imports all of them. To add
one: see `cloze/probes/__init__.py`; `contextuality.py` is an example.
Contract: tests/contracts/test_probes.py, on every kind of network.
"""
