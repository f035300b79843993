"""Changes of a network: what is added to it, taken from it or computed otherwise; which of its parameters are trained, and when.

May import: training and what is below it; never tasks, recipes or the command line.
Add a change: a frozen dataclass that subclasses `Change` (`change.py` lists its hooks), decorated `@register("change", name)`,
in a file of its own; its import line below. Add a way to unfreeze or rates by depth: a frozen dataclass decorated
`@register("unfreezing", name)` or `@register("layerwise", name)` with the method of that protocol in
`training/schedule/freezing.py`; its import line below.
Contracts: tests/contracts/test_changes.py (every change on every network); tests/changes (frozen groups keep every bit; rates
have their ratios at every step; the same on every network).
"""

from cloze.changes.adapters import Adapters, PfeifferAdapters
from cloze.changes.arguments import Arguments
from cloze.changes.change import Change, Shape, Transition
from cloze.changes.compressing.attentions import attentions
from cloze.changes.compressing.layer_dropout import LayerDropout
from cloze.changes.compressing.prune_heads import PruneHeads
from cloze.changes.compressing.quantise import Quantise, round_weight
from cloze.changes.compressing.quantise_activations import QuantiseActivations
from cloze.changes.compressing.sparsify import Sparsify
from cloze.changes.drop_segments import DropSegments
from cloze.changes.encoder import encoder_only
from cloze.changes.expand import expand_vocabulary, linear_map
from cloze.changes.features import Features
from cloze.changes.fuse import Fuse
from cloze.changes.join_vocabulary import JoinVocabulary
from cloze.changes.keep_layers import KeepLayers, stacks_of
from cloze.changes.knowledge_adapter import KnowledgeAdapter, TuneTrunk
from cloze.changes.layerwise import Divide, Factors, Heads, Progressive
from cloze.changes.lora import LoRA
from cloze.changes.mean_layer import MeanLayer
from cloze.changes.mean_of_items import MeanOfItems
from cloze.changes.more_segments import MoreSegments
from cloze.changes.prefix import Prefix
from cloze.changes.prompt import SoftPrompt
from cloze.changes.read_vector import ReadVector
from cloze.changes.replace_layers import ReplaceLayers
from cloze.changes.task_marks import TaskMarks
from cloze.changes.train_linker import InvertLinkers, TrainLinker
from cloze.changes.unfreezing import AllBut, Alone, Chain, Gradual, Sequential
from cloze.changes.vocabulary import Vocabulary, matched_rows, transfer_rows

__all__ = [
    "Adapters", "AllBut", "Alone", "Arguments", "Chain", "Change", "Divide", "DropSegments", "Factors", "Features", "Fuse",
    "Gradual", "Heads", "InvertLinkers", "JoinVocabulary", "KeepLayers", "KnowledgeAdapter", "LayerDropout", "LoRA", "MeanLayer",
    "MeanOfItems", "MoreSegments", "PfeifferAdapters", "Prefix", "Progressive", "PruneHeads", "Quantise", "QuantiseActivations",
    "ReadVector", "ReplaceLayers", "Sequential", "Shape", "SoftPrompt", "Sparsify", "TaskMarks", "TrainLinker", "Transition",
    "TuneTrunk", "Vocabulary", "attentions", "encoder_only", "expand_vocabulary", "linear_map", "matched_rows", "round_weight",
    "stacks_of", "transfer_rows",
]
