"""The tables and attentions of a network that compression acts on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from cloze.networks.blocks.attention import Attention


def token_tables(network: Any) -> list[nn.Embedding]:
    """The tables with a vector for each token; none if words are read by their characters."""
    return [module for module in network.tables.values() if isinstance(module, nn.Embedding)]


def attentions(network: Any) -> Mapping[str, list[Attention]]:
    """The multi-head attentions of a network, one per layer, by what they do.

    `attention` is a sequence's attention to itself, `decoder` that of a decoder to itself and `crossing` its attention to the
    encoder: the order of the arguments `gates`, `decoder_gates` and `crossing_gates`. Empty if it has none, as in an LSTM.
    """
    found: dict[str, list[Attention]] = {"attention": [], "decoder": [], "crossing": []}
    for name, module in network.named_modules():
        if isinstance(module, Attention):
            inside, _, own = name.rpartition(".")
            if own == "crossing":
                found["crossing"].append(module)
            elif own == "attention" and re.search(r"(?:^|\.)layers\.\d+$", inside):
                found["decoder" if inside.startswith("decoder.") else "attention"].append(module)
    return {kind: modules for kind, modules in found.items() if modules}
