"""Tensors to a safetensors file and back, one at a time and without copies, with a checksum of what was written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cloze.errors import CheckpointError

#: The types of tensors that a checkpoint may hold, and their names in safetensors.
NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors on the CPU as a safetensors file; returns the sha256 of the file.

    The format's own writer first copies every tensor to bytes and gives no checksum; this one writes each from memory.
    """
    header: dict[str, object] = {}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    checksum = hashlib.sha256()
    with path.open("wb") as file:
        for block in (len(text).to_bytes(8, "little"), text):
            file.write(block)
            checksum.update(block)
        for tensor in tensors.values():
            data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
            file.write(data)
            checksum.update(data)
    return checksum.hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file. A file that is not one is a `CheckpointError`."""
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as safetensors ({error}).") from None


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
