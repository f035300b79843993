"""Transfer: what is changed in a pretrained network, which of its parameters are trained when, and at which rate.

May import: training and what is below it; never tasks, assembly or the command line.
Add a change: a frozen dataclass that subclasses `Change` (`change.py` lists its hooks), decorated `@register("change", name)`,
in a file of its own; its import line below. Add a way to unfreeze or rates by depth: a frozen dataclass decorated
`@register("unfreezing", name)` or `@register("layerwise", name)` with the method of that protocol in `training/freezing.py`; its
import line below.
Contracts: tests/contracts/test_changes.py (every change on every network); tests/transfer (frozen groups keep every bit; rates
have their ratios at every step; the same on every network).
"""

from cloze.transfer.adapters import Adapters, PfeifferAdapters
from cloze.transfer.arguments import Arguments
from cloze.transfer.change import Change, Shape, Transition
from cloze.transfer.drop_segments import DropSegments
from cloze.transfer.encoder import encoder_only
from cloze.transfer.expand import expand_vocabulary, linear_map
from cloze.transfer.features import Features
from cloze.transfer.fuse import Fuse
from cloze.transfer.join_vocabulary import JoinVocabulary
from cloze.transfer.keep_layers import KeepLayers, stacks_of
from cloze.transfer.knowledge_adapter import KnowledgeAdapter, TuneTrunk
from cloze.transfer.layerwise import Divide, Factors, Heads, Progressive
from cloze.transfer.lora import LoRA
from cloze.transfer.mean_layer import MeanLayer
from cloze.transfer.prefix import Prefix
from cloze.transfer.prompt import SoftPrompt
from cloze.transfer.read_vector import ReadVector
from cloze.transfer.replace_layers import ReplaceLayers
from cloze.transfer.train_linker import TrainLinker
from cloze.transfer.unfreezing import Alone, Chain, Gradual, Sequential
from cloze.transfer.vocabulary import Vocabulary, matched_rows, transfer_rows

__all__ = [
    "Adapters", "Alone", "Arguments", "Chain", "Change", "Divide", "DropSegments", "Factors", "Features", "Fuse", "Gradual",
    "Heads", "JoinVocabulary", "KeepLayers", "KnowledgeAdapter", "LoRA", "MeanLayer", "PfeifferAdapters", "Prefix", "Progressive",
    "ReadVector", "ReplaceLayers", "Sequential", "Shape", "SoftPrompt", "TrainLinker", "Transition", "TuneTrunk", "Vocabulary",
    "encoder_only", "expand_vocabulary", "linear_map", "matched_rows", "stacks_of", "transfer_rows",
]
