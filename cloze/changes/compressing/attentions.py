"""The attentions of a network that compression acts on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from cloze.networks.blocks.attention import Attention

AttentionName = Literal["attention", "decoder", "crossing"]


class AttentionKind(NamedTuple):
    """A kind of multi-head attention: the argument of a call that gates its heads, and its name in a table for readers."""

    gates: str
    title: str


#: A sequence's attention to itself, that of a decoder to itself, and that of a decoder to the encoder.
KINDS: Mapping[AttentionName, AttentionKind] = MappingProxyType({
    "attention": AttentionKind("gates", "encoder"), "decoder": AttentionKind("decoder_gates", "decoder"),
    "crossing": AttentionKind("crossing_gates", "decoder to encoder"),
})  # fmt: skip
#: The kind whose heads an argument of a call gates.
KIND_OF: Mapping[str, AttentionName] = MappingProxyType({kind.gates: name for name, kind in KINDS.items()})


def attentions(network: Any) -> Mapping[AttentionName, list[Attention]]:
    """The multi-head attentions of a network, one per layer, by kind. Empty if it has none, as in an LSTM."""
    groups: dict[AttentionName, list[Attention]] = {kind: [] for kind in KINDS}
    for name, module in network.named_modules():
        if isinstance(module, Attention):
            inside, _, leaf = name.rpartition(".")
            if leaf == "crossing":
                groups["crossing"].append(module)
            elif leaf == "attention" and re.search(r"(?:^|\.)layers\.\d+$", inside):
                groups["decoder" if inside.startswith("decoder.") else "attention"].append(module)
    return {kind: modules for kind, modules in groups.items() if modules}
