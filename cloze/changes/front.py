"""What prompts and prefixes share: rows in front of every text of a frozen network."""

from __future__ import annotations

from typing import Any

from torch import nn

from cloze.changes.maps import freeze
from cloze.errors import CheckpointError


def put_in_front(network: Any, outside: nn.Module, tokens: int, *, of: str) -> None:
    """Freeze a network and put `outside` around it, which takes so many `tokens` of the length that the network can read.

    `CheckpointError`, naming the change `of`, if no room is left for a text.
    """
    limit = network.max_length
    if limit is not None and limit <= tokens:
        raise CheckpointError(f"{of}: {tokens} tokens, but the network reads {limit}. Use fewer.")
    freeze(network)
    network.put_outside(outside)
    network.max_length = None if limit is None else limit - tokens
