"""One file for each architecture of transformers: its configuration and how its tensors map to ours.

May import the rest of `cloze.interop`. To add one: a file here with an `Architecture`, and its import in
`cloze/interop/__init__.py`.
Contract: tests/interop/test_round_trip.py and tests/parity.
"""
