"""The plain form of a changed network: the same function without the change, which transformers can open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from cloze.changes import Change
from cloze.checkpoint.loaded import network_inputs
from cloze.errors import CheckpointError
from cloze.interop import PortableModel
from cloze.networks.blocks.initial import SkipInit
from cloze.networks.clock import Clock
from cloze.recipe.builders import build
from cloze.recipe.parts import load_kind
from cloze.registry import lookup
from cloze.text import Tokenizer


def in_plain_form(model: PortableModel, tokenizer: Tokenizer, tables: Mapping[str, Any]) -> PortableModel:
    """A model whose `network` is the state of the changed network, with its plain form, if there is one."""
    table = model.network.get("embeddings.tokens.weight")
    vocab_size = tokenizer.size if table is None else len(table)
    with SkipInit():
        inputs = network_inputs(vocab_size, tokenizer, Clock(), tables)
        network = build(lookup("network", model.part), model.arguments, inputs)
    load_kind("change")
    changes: list[Any] = [build(lookup("change", name), arguments, {}) for name, arguments in model.changes]
    return _in_plain_form(model, network, changes)


@torch.no_grad()
def _in_plain_form(model: PortableModel, network: nn.Module, changes: Sequence[Change]) -> PortableModel:
    """A model of the changed network's state with its plain form; `network`, built without changes, is modified."""
    state = model.network
    with SkipInit():
        for change in changes:
            change.apply(network)
    network.load_state_dict(dict(state))
    try:
        for change in reversed(changes):
            change.plain(network)
    except CheckpointError as error:
        return replace(model, no_plain_form=str(error))
    plain = network.state_dict()
    changed = {name: tensor for name, tensor in state.items() if name not in plain or not torch.equal(plain[name], tensor)}
    return replace(model, network=plain, changed=changed)
