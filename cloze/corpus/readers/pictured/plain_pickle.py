"""Pickles of plain values: what others stored in databases is read without running anything of it."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np


def _latin(text: str, encoding: str = "latin1") -> bytes:
    """The bytes that a pickle of protocol 2 writes as text."""
    return text.encode("latin1")


def _builders() -> dict[tuple[str, str], Callable[..., Any]]:
    """All that a pickle may name: what arrays and numbers of NumPy and ordered dictionaries are built with. Up to NumPy 1,
    numpy._core was called numpy.core."""
    array: Any = np.zeros(1)
    number: Any = np.float32(0)
    parts: dict[tuple[str, str], Callable[..., Any]] = {
        ("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype, ("collections", "OrderedDict"): OrderedDict,
        ("_codecs", "encode"): _latin,
    }
    for package in ("numpy.core", "numpy._core"):
        parts[package + ".multiarray", "_reconstruct"] = array.__reduce__()[0]
        parts[package + ".multiarray", "scalar"] = number.__reduce__()[0]
        parts[package + ".numeric", "_frombuffer"] = array.__reduce_ex__(5)[0]
    return parts


_BUILDERS = _builders()


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        builder = _BUILDERS.get((module, name))
        if builder is None:
            raise ValueError(f"it would run {module}.{name}, and cloze never runs code from a file")
        return builder


def read_plain(data: bytes) -> Any:
    """The value of a pickle that holds only dictionaries, lists, texts, numbers and arrays of NumPy.

    Names of anything else are refused before it is called. A `ValueError` for those, and for what is no pickle.
    """
    try:
        return _Plain(io.BytesIO(data), encoding="latin1").load()
    except ValueError:
        raise
    except Exception as error:  # pickle raises nearly every kind for damaged bytes
        raise ValueError(f"it is not a pickle of plain values ({error})") from None
