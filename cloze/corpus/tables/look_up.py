"""What a look-up table is: the part of a recipe's `tables:` that edits and networks find further inputs in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CorpusError, propose

if TYPE_CHECKING:
    from cloze.corpus.stores.store import Store


class LookUp:
    """The base class of every look-up table.

    `bind(store)` gives the table over one store, and `restored(arrays)` the same from the `arrays` of a bound table, which a
    checkpoint holds. It keeps the tables that the trained network, a head or an edit of its input looks up; any other table,
    such as one of `favour`, needs neither `arrays` nor `restored`. `bound_to` is the argument that
    `--bind NAME=PATH` sets on the command line.
    `usual_size` is the size that a network is given before there is a store to bind the table to.
    `has_weights`: a network has weights for its entries. A run that starts from a checkpoint then keeps the checkpoint's table;
    any other table may be replaced by naming another file.
    """

    bound_to: ClassVar[str] = "file"
    usual_size: ClassVar[int] = 1000
    has_weights: ClassVar[bool] = True

    @property
    def opens(self) -> str | None:
        """A file of vectors, which `bind` is then given opened, after the store; None: it is bound to the store alone."""
        return None

    @property
    def encoded_by(self) -> str | None:
        """The network of the recipe by whose checkpoint texts become vectors: `bind` is then given a function that makes them,
        after the store; None: it needs no vectors of texts."""
        return None

    @property
    def adds_words(self) -> bool:
        """Whether a tokenizer of whole words that is trained for the recipe also gets the words of `opens`."""
        return False

    @staticmethod
    def over(bound: Any, store: Any) -> Any:
        """A bound table that a checkpoint holds, for another store: the same unless the table depends on the store's layers."""
        return bound

    @staticmethod
    def naming(bound: Any, labels: Mapping[str, Sequence[str]]) -> Any:
        """The same for layers whose labels have these names, by layer: the layers of texts that a trained network reads."""
        return bound


class EntityNumbers:
    """The base class of bound tables that number entities: finds the entities that the labels of a store's layers name.

    Attributes:
        ids: The string id of each entity, in order: entity k has the number k + 1.
    """

    def __init__(self, ids: Sequence[str], layers: Mapping[str, NDArray[np.int32]] | None = None) -> None:
        self.ids = tuple(ids)
        self._layers = dict(layers or {})

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each string id."""
        return {identifier: number for number, identifier in enumerate(self.ids, 1)}

    def over(self, store: Store) -> Self:
        """The same table with the labels of a store's layers."""
        return self.naming({layer: store.label_names(layer) for layer in store.labels})

    def naming(self, labels: Mapping[str, Sequence[str]]) -> Self:
        """The same table for layers whose labels have these names, by layer."""
        table = copy(self)
        table._layers = {
            layer: np.array([0, *(self.numbers.get(name, 0) for name in names)], np.int32) for layer, names in labels.items()
        }
        return table

    def of_label(self, layer: str) -> NDArray[np.int32]:
        """The number of the entity of each label + 1 of a layer, 0 for a label that is no entity of the table. Raises
        `CorpusError` if the store has no such layer."""
        if layer not in self._layers:
            raise CorpusError(
                f"the store has no layer {layer!r} whose labels are entities. {propose(layer, self._layers)}\n"
                f"  Build it with --annotate {layer}=mentions:FILE"
            )
        return self._layers[layer]
