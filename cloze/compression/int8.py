"""A network whose linear maps multiply in int8 on a CPU: torch's dynamic quantisation."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from cloze.errors import CheckpointError
from cloze.networks.blocks.computed import is_linear, keep_computed


def in_int8(network: nn.Module) -> nn.Module:
    """A copy of a network with linear maps in int8: weights are rounded once, inputs at every call (dynamic quantisation).

    Weights that a change computes (masks, LoRA) are computed first, and the result is rounded. Everything else stays fp32:
    tables, norms, attention between queries, keys and values. Layers that share a map share its copy. A `CheckpointError` for
    a network whose linear maps are not called but read, as in a recurrence.
    """
    quantised = copy.deepcopy(network).eval()
    keep_computed(quantised)
    with without_warnings():
        from torch.ao.nn.quantized.dynamic import Linear  # torch's own place for it; its successor torchao is another package
        from torch.ao.quantization import default_dynamic_qconfig

        maps: dict[int, nn.Module] = {}
        for module in list(quantised.modules()):
            if is_linear(module):
                module.qconfig = default_dynamic_qconfig  # type: ignore[assignment]
                maps[id(module)] = Linear.from_float(module)
    if not maps:
        raise CheckpointError(f"{type(network).__name__} has no linear maps that int8 could make faster.")
    for module in list(quantised.modules()):
        for held in (module._modules, vars(module)):  # layers that share a map hold it past nn.Module
            for name, child in held.items():
                if id(child) in maps:
                    held[name] = maps[id(child)]
    return quantised


@contextmanager
def without_warnings() -> Iterator[None]:
    """Without torch's remark that its own int8 will move to another package."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*(torch\.ao\.quantization|quantize_per|quantized).*")
        yield


def serialised_bytes(network: Any) -> int:
    """The bytes of a network's state as torch writes it."""
    import io

    file = io.BytesIO()
    with without_warnings():
        torch.save(network.state_dict(), file)
    return file.getbuffer().nbytes
