"""Parameters that keep several matrices of the published models in one tensor, one above the other.

An optimiser whose step depends on the size of a tensor (LAMB, Adafactor) treats each of them as the tensor it is there.
"""

from __future__ import annotations

from cloze.networks.blocks.projections import STACKED


def stacked(name: str) -> int:
    """How many tensors of equal size a parameter stacks along its first axis.

    >>> stacked("networks.main.layers.0.attention.projections.weight"), stacked("networks.main.embeddings.tokens.weight")
    (3, 1)
    """
    return len(STACKED.get(name.split(".")[-2], ("itself",))) if "." in name else 1
