"""`cloze compress` and `cloze speed`: smaller, sparser or coarser checkpoints, and what they cost.

May import checkpoints and what they import. The changes of networks that compress are in `cloze/changes/compressing`.
To add a way to choose what is taken away: a file here; what takes it away is a change.
Contracts: tests/compression (gates, zeros and integers compute the same; compressed folders open in transformers).
"""
