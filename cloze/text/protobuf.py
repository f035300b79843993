"""The wire format of protocol buffers, as far as a file of sentencepiece needs it: fields by number, without a schema.

Source: protobuf.dev/programming-guides/encoding. A varint has seven bits per byte, the lowest first; a key is the number of the
field times eight, plus its type.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Any

_VARINT, _EIGHT_BYTES, _COUNTED, _FOUR_BYTES = 0, 1, 2, 5


class Message:
    """The fields of one encoded message; a `ValueError` if the bytes are none."""

    def __init__(self, data: bytes) -> None:
        self._values: dict[int, list[Any]] = defaultdict(list)
        at = 0
        while at < len(data):
            key, at = _varint(data, at)
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                value, at = _varint(data, at)
                self._values[number].append(value)
                continue
            if kind == _COUNTED:
                size, at = _varint(data, at)
            elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
                size = 8 if kind == _EIGHT_BYTES else 4
            else:
                raise ValueError(f"byte {at}: a field of the unknown type {kind}")
            if number == 0 or at + size > len(data):
                raise ValueError(f"byte {at}: a field that the file does not hold whole")
            self._values[number].append(data[at : at + size])
            at += size

    def whole(self, number: int, default: int) -> int:
        """A whole number or a truth value; `default` if the message has no such field."""
        value = self._values[number][-1] if number in self._values else default
        if not isinstance(value, int):
            raise ValueError(f"field {number} is not a whole number")
        return value

    def real(self, number: int) -> float:
        """A number of 32 bits, 0 if it is not there."""
        data = self.data(number)
        return float(struct.unpack("<f", data)[0]) if data else 0.0

    def data(self, number: int) -> bytes:
        """The bytes of a field, none if it is not there."""
        every = self.each(number)
        return every[-1] if every else b""

    def text(self, number: int, default: str = "") -> str:
        """A text in UTF-8."""
        return self.data(number).decode("utf-8") if number in self._values else default

    def each(self, number: int) -> list[bytes]:
        """All values of a field that is repeated."""
        values = self._values.get(number, [])
        if not all(isinstance(value, bytes) for value in values):
            raise ValueError(f"field {number} is a whole number")
        return values


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"byte {at}: a number that does not end")
