"""Text that is not UTF-8: finds its encoding, or takes the given one, and reads it as UTF-8 in constant memory."""

from __future__ import annotations

import codecs
import io
from typing import IO, Any, NamedTuple, cast

from cloze.errors import CorpusError

_BOMS = {b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_CHUNK = 1 << 16


class Encoding(NamedTuple):
    """The encoding of a file and how it was detected."""

    name: str
    why: str


def known_encoding(name: str) -> str:
    """The name of a text encoding as Python spells it; a `CorpusError` for an unknown one."""
    try:
        found = codecs.lookup(name)
        "".encode(name)  # codecs such as base64 do not encode text
    except (LookupError, ValueError):
        raise CorpusError(
            f"--encoding {name}: no such encoding. Examples: utf-8, utf-16, gb18030, big5, shift_jis, cp1252, …"
        ) from None
    return found.name


def find_encoding(sample: bytes, path: str, requested: str = "") -> Encoding:
    """The given encoding, else that of the first bytes. Binary data and encodings that cannot be guessed are refused."""
    if requested:
        return Encoding(known_encoding(requested), "as asked for")
    for mark, name in _BOMS.items():
        if sample.startswith(mark):
            return Encoding(name, "by its first bytes")
    controls = len(sample) - len(sample.translate(None, b"\0\1\2\3\4\5\6\7\x08\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17"))
    if controls > len(sample) * 0.01:
        raise CorpusError(
            f"{path}: a binary file, not text ({controls:,} control bytes in its first {len(sample):,}).\n"
            "  Expected text, JSON lines, CSV, TSV or Parquet, also as .gz, .xz, .zst or .bz2.\n"
            "  If it is UTF-16: --encoding utf-16-le or utf-16-be."
        )
    readable = sample.decode("utf-8", "ignore")
    lost = len(sample) - len(readable.encode())
    few = lost <= max(3, len(sample) * 0.01)  # up to three bytes may be a character cut by the end of the sample
    if few and (lost <= 3 or not readable.isascii()):
        return Encoding("utf-8", "")
    name = _guess(sample)
    if few and not name:
        return Encoding("utf-8", "")
    if not name:
        bad = _first_bad(sample)
        raise CorpusError(
            f"{path}: byte {bad:,} (0x{sample[bad]:02x}) is not UTF-8, and the encoding cannot be guessed.\n"
            "  Name it: --encoding NAME, for example shift_jis, koi8-r, cp1251 or cp1252"
        )
    return Encoding(name, "guessed from its first bytes; --encoding NAME overrides it")


def as_utf8(stream: IO[bytes], begin: bytes, encoding: str, path: str) -> IO[bytes]:
    """The bytes of a stream, of which `begin` was read already, as UTF-8."""
    return cast(IO[bytes], io.BufferedReader(_Recoded(stream, begin, encoding, path), _CHUNK))


def _guess(sample: bytes) -> str:
    """A likely encoding for bytes that are not UTF-8, or None; a Chinese encoding must give Chinese text with few Latin
    letters."""
    for name in ("gb18030", "big5"):
        for cut in range(4):
            try:
                text = sample[: len(sample) - cut].decode(name)
            except UnicodeDecodeError:
                continue
            if sum("\u4e00" <= c <= "\u9fff" for c in text) > 0.2 * len(text):
                return name
            break
    high = [byte for byte in sample if byte >= 0x80]
    if len(high) > 0.25 * len(sample):  # 8-bit Cyrillic, Greek, Thai; Japanese
        return ""
    name = "cp1252" if any(byte < 0xA0 for byte in high) else "latin-1"
    text = bytes(high).decode(name, "replace")
    likely = sum(c.isalpha() or c in "«»‘’“”‚„–—…€£©®°·¡¿§´" for c in text)
    return name if likely >= 0.9 * len(text) else ""


def _first_bad(sample: bytes) -> int:
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return 0


class _Recoded(io.RawIOBase):
    """A stream of another encoding, read as UTF-8. A byte that cannot be decoded is a `CorpusError`."""

    def __init__(self, stream: IO[bytes], begin: bytes, encoding: str, path: str) -> None:
        self._stream, self._begin, self._path, self._encoding = stream, begin, path, encoding
        self._decoder: Any = codecs.getincrementaldecoder(encoding)("strict")
        self._ready, self._read, self._ended = b"", 0, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            self._ready = self._more()
        data, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def _more(self) -> bytes:
        data, self._begin = self._begin or self._stream.read(_CHUNK), b""
        self._ended = not data
        waiting = len(self._decoder.getstate()[0])
        try:
            text: str = self._decoder.decode(data, self._ended)
        except UnicodeDecodeError as error:
            place = self._read - waiting + error.start
            raise CorpusError(
                f"{self._path}: byte {place:,} (0x{error.object[error.start]:02x}) is not {self._encoding}: {error.reason}.\n"
                "  Name the file's encoding with --encoding NAME, or remove the damaged bytes."
            ) from None
        self._read += len(data)
        return text.encode("utf-8", "replace")
