"""The protocol of changes: what `change: […]` in a recipe does to a network that comes from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from cloze.networks.blocks.computed import keep_computed
from cloze.text import Tokenizer

Tensors = Mapping[str, Tensor]


class Shape(NamedTuple):
    """A network as its checkpoint describes it: where it comes from (a folder or a stage), its part, and all its arguments."""

    origin: str
    part: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Transition:
    """From the network of a checkpoint (old) to the changed one of a run (new): both as built and as described, and their
    tokenizers."""

    old_shape: Shape
    old_network: Any
    new_network: Any
    new_arguments: Mapping[str, Any]
    old_tokenizer: Tokenizer
    new_tokenizer: Tokenizer


class Change:
    """A change of a network. Subclass it, register it as a `change`, and override the hooks that it needs.

    In the order of a run, after `among`, which completes the change's own arguments:

    1. `shape`, before the network is built: its arguments, from those of the checkpoint. Called where the recipe does not write
       the network out; a network that is written out has the shape that is written.
    2. `apply`, when the network is built, and again whenever a checkpoint of it is opened: adds modules and parameters. Weights
       are loaded afterwards, so only the values of what is added matter. A change of a weight goes through `compute_weight`
       (`cloze/networks/blocks/computed.py`); a module between layers goes into the network's `around` (`blocks/hooks.py`). Both
       keep the names of the network's own tensors, and `is_added` tells the others.
    3. `weights` and `head_state`, when the checkpoint is loaded: its tensors become those of the changed network and of its
       heads. Not called when a run resumes.
    4. `plain`, on export: undoes `apply` so that the network computes the same without it.

    By default no hook does anything. A change with `apply` must set `lasts`, unless it acts in training alone. What
    cannot be done is refused with a `CheckpointError`.
    """

    #: The network keeps something of its own: `cloze/network.json` describes the change, and opening a checkpoint applies it.
    lasts: ClassVar[bool] = False
    #: It leaves the weights as they are and takes some of them away: a checkpoint's zeros stay zero only with the change.
    masks: ClassVar[bool] = False
    #: The arguments are all that it changes: once they are written into the recipe, nothing is left to do.
    only_arguments: ClassVar[bool] = False
    #: The peak learning rate of what it adds, as a multiple of that of full fine-tuning.
    rate: ClassVar[float] = 1.0
    #: It goes on with the training of the checkpoint, at the same peak rate, instead of tuning it.
    continues: ClassVar[bool] = False
    #: The tensors of a checkpoint with another vocabulary are made to fit.
    changes_vocabulary: ClassVar[bool] = False
    #: The network reads the ids of the text's tokenizer and, behind them, those of its own. No folder can hold it.
    joins_vocabulary: ClassVar[bool] = False

    @property
    def needs_checkpoint(self) -> bool:
        """Whether it would do nothing to a network that starts at random; such a recipe is refused."""
        return True

    @property
    def marks(self) -> Mapping[str, str]:
        """Special tokens by role that the checkpoint's tokenizer gets, with which the text is read."""
        return {}

    def shape(self, shape: Shape) -> Mapping[str, Any]:
        """The arguments of the changed network."""
        return shape.arguments

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of other networks of the recipe whose states the changed network reads, also when it is used."""
        return ()

    def among(self, networks: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """The arguments of the change that follow from those of the recipe's other networks, by name."""
        return {}

    def apply(self, network: nn.Module) -> None:
        """Add modules and parameters in place."""

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The network's tensors, under the names that they have after the change."""
        return state

    def head_state(self, state: Tensors, head: nn.Module, transition: Transition) -> Tensors:
        """The tensors of a head."""
        return state

    def plain(self, network: nn.Module) -> None:
        """Undo `apply` in place; the network computes the same as before. Computed weights become ordinary ones.

        A change without a plain form raises a `CheckpointError` that says why. cloze alone then opens the folder.
        """
        keep_computed(network)
