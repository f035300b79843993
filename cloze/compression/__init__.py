"""Compression: smaller or sparser networks, weights of few bits, and what they cost: size, parameters, time.

May import: transfer and what is below it; never tasks, assembly or the command line.
Add a change: a file with a subclass of `cloze.transfer.Change`, as in `cloze/transfer`; its import line below.
Contracts: tests/contracts/test_changes.py (every change on every network); tests/compression (gates, zeros and integers compute
the same; compressed folders open in transformers).
"""

from cloze.compression.layer_dropout import LayerDropout
from cloze.compression.maps import attentions
from cloze.compression.prune_heads import PruneHeads
from cloze.compression.quantise import Quantise, round_weight
from cloze.compression.quantise_activations import QuantiseActivations
from cloze.compression.sparsify import Sparsify

__all__ = [
    "LayerDropout", "PruneHeads", "Quantise", "QuantiseActivations", "Sparsify", "attentions", "round_weight",
]  # fmt: skip
