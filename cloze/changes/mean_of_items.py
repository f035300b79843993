"""`change: [mean_of_items: {set: candidate}]`: a token may be read as the mean of the rows of others (E-BERT-MLM)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from cloze.changes.change import Change
from cloze.errors import CheckpointError
from cloze.networks.blocks.hooks import NetworkHook
from cloze.networks.network import Network
from cloze.registry import register


class ItemMeans(nn.Module, NetworkHook):
    """Gives a network the vectors of its tokens, in which a token that `links/<set>` link to items is the mean of the rows of
    `items/<set>`, ids of the token table."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.set = name

    def call(
        self, network: Any, forward: Callable[..., Mapping[str, Any]], *, want: frozenset[str], **inputs: Any
    ) -> Mapping[str, Any]:
        """The states of the network; without items, those of the network as it is."""
        items, links = dict(inputs.pop("items", None) or {}), dict(inputs.pop("links", None) or {})
        means = items.pop(self.set, None), links.pop(self.set, None)
        inputs |= {name: value for name, value in (("items", items), ("links", links)) if value}
        if means[0] is not None and means[1] is not None:
            inputs["vectors"] = self.vectors(network, inputs["tokens"], inputs.get("vectors"), *means)
        return forward(want=want, **inputs)

    @staticmethod
    def vectors(network: Any, tokens: Tensor, vectors: Tensor | None, items: Tensor, links: Tensor) -> Tensor:
        """The vectors of tokens (B, L), with these links (N, 2) to items (B, R): (B, L, E)."""
        table = network.token_tables["tokens"].weight
        x = F.embedding(tokens, table) if vectors is None else vectors
        position, item = links.long().unbind(1)
        rows = F.embedding(items.flatten()[item].long(), table)
        flat = x.flatten(0, 1)
        sums = flat.new_zeros(flat.shape).index_add(0, position, rows.to(flat.dtype))
        counts = flat.new_zeros(len(flat)).index_add(0, position, flat.new_ones(len(position)))[:, None]
        return (sums / counts.clamp(min=1)).where(counts > 0, flat).view_as(x)


@register("change", "mean_of_items")
@dataclass(frozen=True)
class MeanOfItems(Change):
    """Read a token as the mean of the rows of several others, those that an edit links to it, and train no row of the token table
    (E-BERT-MLM: Poerner et al., 2020; NPoe/ebert, code/run_aida.py, where it is called priming the mask).

    `items/<set>` are ids of tokens, such as the candidates of a mention, and `links/<set>` say which token each of them is read
    at, such as the mask. A text without items is read as before, so the folder also opens as an ordinary one.
    """

    set: str = "candidate"

    lasts: ClassVar[bool] = True
    continues: ClassVar[bool] = True

    def apply(self, network: Any) -> None:
        """Put the means around the network, and freeze its token table."""
        tables: Mapping[str, Any] = network.token_tables if isinstance(network, Network) else {}
        if "vectors" not in network.takes or not isinstance(tables.get("tokens"), nn.Embedding):
            raise CheckpointError(
                f"mean_of_items: {type(network).__name__} cannot read vectors in place of tokens. Use an encoder such as bert."
            )
        tables["tokens"].weight.requires_grad_(False)
        if not any(self._is_own(hook) for hook in network.outside):  # a run may go on from a run
            network.add_network_hook(ItemMeans(self.set))
        network.takes = network.takes | {f"items/{self.set}", f"links/{self.set}"}

    def plain(self, network: Any) -> None:
        """The network without the means."""
        network.outside = nn.ModuleList(hook for hook in network.outside if not self._is_own(hook))
        network.takes = network.takes - {f"items/{self.set}", f"links/{self.set}"}

    def _is_own(self, hook: Any) -> bool:
        return isinstance(hook, ItemMeans) and hook.set == self.set
