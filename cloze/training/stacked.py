"""Parameters that keep several matrices of the published models in one tensor, one above the other.

An optimiser whose step depends on the size of a tensor (LAMB, Adafactor) treats each of them as the tensor it is there.
"""

from __future__ import annotations

#: Modules by name, and how many maps each stacks: queries, keys and values; keys and values of the source.
_STACKED = {"projections": 3, "memory": 2}


def stacked(name: str) -> int:
    """How many tensors of equal size a parameter stacks along its first axis.

    >>> stacked("networks.main.layers.0.attention.projections.weight"), stacked("networks.main.embeddings.tokens.weight")
    (3, 1)
    """
    return _STACKED.get(name.split(".")[-2], 1) if "." in name else 1
