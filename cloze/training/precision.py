"""Which device and which number format a run uses. Weights and optimizer state are fp32 always; bf16 is autocast."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, cast, get_args

import torch

from cloze.errors import DeviceError, propose

Precision = Literal["auto", "fp32", "bf16"]


def choose_device(name: str = "auto") -> torch.device:
    """The device of a name: `auto` (CUDA if there is any), `cpu`, `cuda`, `cuda:1`.

    Raises:
        DeviceError: the name is unknown, or this machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DeviceError(f"unknown device {name!r}. Expected auto, cpu, cuda or cuda:<number>.") from None
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not count or (device.index or 0) >= count:
            here = f"{count} CUDA device{'s' if count != 1 else ''}" if count else "no CUDA device that this torch can use"
            raise DeviceError(f"device {name!r} was asked for, but this machine has {here}. Use --device cpu, or auto.")
    elif device.type != "cpu":
        raise DeviceError(f"device {name!r} is not supported. Expected auto, cpu, cuda or cuda:<number>.")
    return device


def choose_precision(precision: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """`auto` is bf16 if the hardware multiplies bf16 matrices, fp32 elsewhere."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if cpu_multiplies_bf16() else "fp32"


def as_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """`auto`, `fp32` or `bf16` as what a `Reader` casts to; None is fp32."""
    if precision not in get_args(Precision):
        raise DeviceError(f"unknown precision {precision!r}. {propose(precision, get_args(Precision))}")
    return torch.bfloat16 if choose_precision(cast(Precision, precision), device) == "bf16" else None


def cpu_multiplies_bf16() -> bool:
    """Whether this CPU has AMX tiles or AVX-512 bf16 dot products."""
    questions = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(bool(getattr(torch.cpu, question, bool)()) for question in questions)


def casting(precision: Literal["fp32", "bf16"], device: torch.device) -> AbstractContextManager[object]:
    """The autocast context of a forward pass; each weight is cast once in it."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
