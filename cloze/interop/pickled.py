"""State dictionaries that others pickled with torch, read by its restricted reader, which runs no code."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.untrusted import require_ordinary

_WRAPPER = "module."


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of `load_state`, floating-point ones as fp32."""
    return widened(load_state(path))


def read_unwrapped(path: Path) -> dict[str, Tensor]:
    """The tensors of `read_state`, without the prefix that torch's DataParallel gives all names."""
    tensors = read_state(path)
    wrapped = all(name.startswith(_WRAPPER) for name in tensors)
    return {name.removeprefix(_WRAPPER): tensor for name, tensor in tensors.items()} if wrapped else tensors


def widened(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with floating-point ones as fp32."""
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def tensor_names(path: Path) -> list[str]:
    """The names of the tensors of `load_state`, without reading their numbers."""
    return list(load_state(path, device="meta"))


def load_state(path: Path, *, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a state dictionary that torch saved, as they are; {'model': …} or {'state_dict': …} around it is taken off.
    On the device `meta` they have no numbers, and the file is not read whole.

    It is read with `weights_only`. What that refuses, and what holds no tensors, is a `CheckpointError`.
    """
    try:
        require_ordinary(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the protocol of a file that is not torch's
            state: Any = torch.load(path, map_location=device, weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); expected a file that torch saved.") from None
    except Exception:  # torch raises nearly every kind for a damaged or refused file, with advice to run its code
        raise CheckpointError(
            f"{path}: torch does not read it as tensors alone: it is damaged, or holds code. Expected a state dictionary.\n"
            "  If you trust the file, save its tensors again: "
            "torch.save({name: t for name, t in torch.load(PATH, weights_only=False).items() if torch.is_tensor(t)}, NEW)"
        ) from None
    if isinstance(state, Mapping):
        state = next((state[name] for name in ("model", "state_dict") if isinstance(state.get(name), Mapping)), state)
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path}: holds a {type(state).__name__}; expected a state dictionary of tensors.")
    odd = next((str(name) for name, value in state.items() if isinstance(value, Tensor) and not _is_plain(value, device)), None)
    if odd is not None:
        raise CheckpointError(f"{path}: {odd} is no plain array of real numbers (sparse, quantised, complex or without data).")
    tensors = {str(name): tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}
    if not tensors:
        raise CheckpointError(f"{path}: holds no tensor; expected a state dictionary.")
    return tensors


def _is_plain(tensor: Tensor, device: str) -> bool:
    """Whether a tensor of the file holds its numbers, one after the other."""
    without_data = tensor.is_meta and device != "meta"
    odd = tensor.is_complex() or tensor.is_quantized or without_data or tensor.is_nested
    return tensor.layout == torch.strided and not odd
