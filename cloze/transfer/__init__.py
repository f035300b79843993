"""Transfer: which of a network's parameters move, how fast and when, and what becomes of its rows for another vocabulary.

May import: training and what is below it; never tasks, assembly or the command line.
Add one: a frozen dataclass decorated `@register("unfreezing", name)` or `@register("layerwise", name)` with the method of that
protocol in `training/freezing.py`; its import line below.
Contract: tests/transfer (frozen groups keep every bit; rates have their ratios at every step; the same on every network).
"""

from cloze.transfer.change import Arguments, Vocabulary
from cloze.transfer.encoder import encoder_only
from cloze.transfer.expand import expand_vocabulary, linear_map
from cloze.transfer.layerwise import Divide, Factors, Heads
from cloze.transfer.unfreezing import Chain, Gradual, Sequential
from cloze.transfer.vocabulary import matched_rows, transfer_rows

__all__ = [
    "Arguments", "Chain", "Divide", "Factors", "Gradual", "Heads", "Sequential", "Vocabulary", "encoder_only",
    "expand_vocabulary", "linear_map", "matched_rows", "transfer_rows",
]
