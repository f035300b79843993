"""Text that is not UTF-8: finds its encoding, or takes the given one, and reads it as UTF-8 in constant memory.

An encoding is guessed by how usual the decoded letters are in a language that is written in it. Where the guess is not certain,
the file is refused, and the message shows how the likely encodings read it: text in a wrong encoding must not be learned.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, cast

from cloze.errors import ClozeError, CorpusError, Say

SAMPLE = 1 << 16  # bytes by which an encoding is judged
NAME_IT = "Name it: --encoding NAME"

_BOMS = {b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_CHUNK = 1 << 16
_CONTROLS = b"\0\1\2\3\4\5\6\7\x08\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17"
_FEW_CONTROLS = 8  # of which the line is reported instead
_FEWEST = 4  # characters beyond ASCII, without which no guess is certain
_SHOWN = 16  # characters of a preview on both sides of the first that is not UTF-8
_MARKS = "’‘“”„–—…€£©®°·¡¿«»§º\xa0"
_RUSSIAN = "оеаинтсрвлкмдпу"
_LATIN = (  # by language, in lower case
    "éèàçêâîôûùëïüœæ", "äöüßé", "áéíóúñü", "áâãàçéêíóôõú", "àèéìòù", "åäöæøéüëï", "áéíóúýðþæö",
)
_CENTRAL = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áéíóöőúüű", "čćžšđ", "áäčďéíĺľňóôŕšťúýž", "ăâîșțşţ")
_ZH = "的一不在人有我他中上大和地到以要就出可也你生能而子那得下自之年作好看心小多天很去想都"
_JAPANESE = "のにはをたがでてとしれさいなるもくすだまかっこうらりきんあ、。"


class _Usual(NamedTuple):
    """The usual characters of languages that are written in an encoding, and the share of all characters beyond ASCII that they
    have at least in a text. In `words` of an alphabet of its own, no Latin letter occurs."""

    languages: tuple[str, ...]
    share: float
    words: str = ""


#: Of encodings that read a text alike, the first counts.
_USUAL: Mapping[str, _Usual] = {
    "cp1252": _Usual(tuple(letters + _MARKS for letters in _LATIN), 0.9, "latin"),
    "gb18030": _Usual((_ZH + "是了这个们来为国说时会对于着过发后里没还，。！？、：“”",), 0.2),
    "big5": _Usual((_ZH + "是了這個們來為國說時會對於著過發後裡沒還，。！？、：「」",), 0.2),
    "cp932": _Usual((_JAPANESE,), 0.3),
    "euc-jp": _Usual((_JAPANESE,), 0.3),
    "cp949": _Usual(("이다는을의에가고한하지도로기사서자어리인대나해일들그은를수있",), 0.25),
    "cp1251": _Usual((_RUSSIAN + "і",), 0.6, "alphabet"),
    "koi8-r": _Usual((_RUSSIAN,), 0.6, "alphabet"),
    "cp866": _Usual((_RUSSIAN,), 0.6, "alphabet"),
    "cp1253": _Usual(("αεηιοτνσςρκπλμυάέήίόύώ",), 0.8, "alphabet"),
    "cp1250": _Usual(tuple(letters + _MARKS for letters in _CENTRAL), 0.9, "latin"),
    "iso8859-2": _Usual(tuple(letters + _MARKS for letters in _CENTRAL), 0.9, "latin"),
    "cp1254": _Usual(("ışğçöüâîi̇" + _MARKS,), 0.9, "latin"),
    "mac-roman": _Usual(tuple(letters + _MARKS for letters in _LATIN), 0.9, "latin"),
    "cp850": _Usual(_LATIN, 0.9, "latin"),
}
_MIXED = re.compile(r"[^\W\d_]*[A-Za-z][^\W\d_]*")  # a word with Latin letters
_SHOWN_AS = {"cp932": "cp932 (Shift-JIS)", "cp949": "cp949 (EUC-KR)"}


class Encoding(NamedTuple):
    """The encoding of a file and how it was detected."""

    name: str
    why: str


@dataclass
class _Choice:
    """The encoding that the user names for files, and what reports the files that are not UTF-8, each once."""

    name: str = ""
    note: Say = field(default=lambda line: None)
    noted: dict[str, str] = field(default_factory=dict)  # the encoding of each


_CHOICE: ContextVar[_Choice | None] = ContextVar("encoding", default=None)


@contextmanager
def reading_as(name: str | None, note: Say = lambda line: None) -> Iterator[None]:
    """Inside the block, the users' files of rows and texts have this encoding (None: detected).

    `note` receives a line for each file that is not UTF-8. An unknown name is a `CorpusError`.
    """
    token = _CHOICE.set(_Choice(known_encoding(name) if name else "", note))
    try:
        yield
    finally:
        _CHOICE.reset(token)


def chosen_encoding() -> str | None:
    """The encoding that `reading_as` names for the users' files; None if it is detected."""
    choice = _CHOICE.get()
    return choice.name or None if choice is not None else None


def recoded(paths: Iterable[str]) -> dict[str, str]:
    """The encodings of those of some files that were read inside of `reading_as` and are not UTF-8."""
    choice = _CHOICE.get() or _Choice()
    return {path: choice.noted[path] for path in paths if path in choice.noted}


def known_encoding(name: str) -> str:
    """The name of a text encoding as Python spells it; a `CorpusError` for an unknown one."""
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # codecs such as base64 do not encode text
    except (LookupError, ValueError):
        raise CorpusError(
            f"--encoding {name}: no such encoding. Examples: utf-8, utf-16, gb18030, big5, shift_jis, cp1252, …"
        ) from None
    return codec.name


def find_encoding(
    sample: bytes, path: str, requested: str = "", *, error: type[ClozeError] = CorpusError, strict: bool = False,
    way_out: str = "",
) -> Encoding:
    """The given encoding, else that of the first bytes. Binary data and encodings that are not certain are refused.

    With `strict`, a single byte that is not UTF-8 means another encoding, unless other characters of the text are UTF-8. Without
    it, a few of them are faults of a text in UTF-8.
    """
    if requested:
        return Encoding(known_encoding(requested), "as asked for")
    for mark, name in _BOMS.items():
        if sample.startswith(mark):
            return Encoding(name, "by its first bytes")
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if controls > max(_FEW_CONTROLS if strict else 0, len(sample) * 0.01):
        raise error(_binary(sample, path, controls))
    if _is_utf8(sample):
        return Encoding("utf-8", "")
    readable = sample.decode("utf-8", "ignore")
    lost = len(sample) - len(readable.encode())
    few = lost <= max(3, len(sample) * 0.01)  # up to three bytes may be a character cut by the end of the sample
    if few and (not readable.isascii() or (lost <= 3 and not strict)):
        return Encoding("utf-8", "")
    likely = likely_encodings(sample)
    if likely and likely[0].certain:
        return Encoding(likely[0].name, "guessed from its first bytes; --encoding NAME overrides it")
    if few and not strict:
        return Encoding("utf-8", "")
    begin = _first_bad(sample)
    raise error(not_utf8(path, sample.count(b"\n", 0, begin) + 1, sample, begin, way_out))


#: How compressed files begin, by the ending that says so.
PACKED = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\0", ".zst": b"\x28\xb5\x2f\xfd", ".bz2": b"BZh"}


def _binary(sample: bytes, path: str, controls: int) -> str:
    for ending, first_bytes in PACKED.items():
        if sample.startswith(first_bytes):
            return f"{path}: a compressed file without the ending {ending}. Give it that ending, or unpack it."
    for name, first in (("utf-16-le", 1), ("utf-16-be", 0)):
        if sample[first::2].count(0) > 0.3 * len(sample[first::2]) and not sample[1 - first :: 2].count(0):
            return f"{path}: every other byte is zero, which looks like UTF-16.\n  {NAME_IT.replace('NAME', name)}"
    return (
        f"{path}: a binary file, not text ({controls:,} control bytes in its first {len(sample):,}).\n"
        "  Expected text, JSON lines, CSV, TSV or Parquet, also as .gz, .xz, .zst or .bz2.\n"
        "  If it is UTF-16: --encoding utf-16-le or utf-16-be."
    )


class Likely(NamedTuple):
    """An encoding that may be that of a text, and whether it is certain."""

    name: str
    certain: bool


def likely_encodings(sample: bytes) -> list[Likely]:
    """The encodings in which the letters of a text would be usual, the best first; only the first can be certain."""
    scores: dict[str, tuple[float, str]] = {}  # by what is read beyond ASCII
    for name, usual in _USUAL.items():
        text = _decoded(sample, name)
        letters = _beyond_ascii(text)
        if not letters or letters in scores or re.search("[\x80-\x9f\ue000-\uf8ff]", letters):
            continue
        likely = letters.lower() if usual.words == "latin" else letters
        likely = _beyond_ascii(_MIXED.sub("", text)) if usual.words == "alphabet" else likely
        share = max(sum(letter in language for letter in likely) for language in usual.languages) / len(letters)
        scores[letters] = share / usual.share, name
    ranked = sorted(((score, name, len(letters)) for letters, (score, name) in scores.items()), key=lambda entry: -entry[0])
    if not ranked:
        return []
    best, first, count = ranked[0]
    certain = best >= 1 and count >= _FEWEST and all(score < _nearest_rival(first, name) * best for score, name, _ in ranked[1:])
    likely_ones = [name for score, name, _ in ranked if score >= 0.5 * best > 0][:3]
    return [Likely(name, certain and name == first) for name in likely_ones]


def _nearest_rival(first: str, name: str) -> float:
    """The share of the best score that another encoding may not reach. The Latin ones differ in a few letters only, and
    cp1252 is by far the most frequent of them."""
    if _USUAL[first].words != "latin" or _USUAL[name].words != "latin":
        return 0.8
    return 1.01 if first == "cp1252" else 0.95


def _beyond_ascii(text: str) -> str:
    return "".join(character for character in text if character > "\x7f")


def _decoded(sample: bytes, name: str) -> str:
    """A sample in an encoding, without a character that its end cuts; empty if it cannot be decoded."""
    try:
        return codecs.getincrementaldecoder(name)().decode(sample, len(sample) < SAMPLE)
    except UnicodeDecodeError:
        return ""


def not_utf8(path: str, line: int, data: bytes, begin: int, way_out: str = "") -> str:
    """A message about the byte of `data` at `begin`, in a line of a file, with the likely encodings of the data. `way_out`:
    instead of naming the encoding or converting the file."""
    way_out = way_out or f"{NAME_IT}, or convert it: iconv -f NAME -t UTF-8 {path} > NEW"
    first = max(data.rfind(b"\n", 0, begin) + 1, begin - _SHOWN)
    row = data[first:].split(b"\n", 1)[0][: 4 * _SHOWN]
    samples = []
    for name, _ in likely_encodings(data):
        text = row.decode(name, "ignore").strip()[: 2 * _SHOWN]
        samples.append(f"{_SHOWN_AS.get(name, name)} ({text!r})")
    likely = f"As {' or as '.join(samples)}? " if samples else ""
    return f"{path}:{line}: byte 0x{data[begin]:02x} is not UTF-8, and the encoding is not certain.\n  {likely}{way_out}"


def as_utf8(stream: IO[bytes], begin: bytes, encoding: str, path: str, *, error: type[ClozeError] = CorpusError) -> IO[bytes]:
    """The bytes of a stream, of which `begin` was read already, as UTF-8."""
    return cast(IO[bytes], io.BufferedReader(_Recoded(stream, begin, encoding, path, error), _CHUNK))


def utf8_stream(stream: IO[bytes], path: str, *, error: type[ClozeError]) -> IO[bytes]:
    """A user's file of rows or texts as UTF-8, in the encoding that the user named (`reading_as`) or that its bytes show.

    Bytes that are not UTF-8 in a file of UTF-8 remain. An encoding that is not certain is an `error`.
    """
    sample, choice = stream.read(SAMPLE), _CHOICE.get() or _Choice()
    encoding = find_encoding(sample, path, choice.name, error=error, strict=True)
    if encoding.name != "utf-8":
        if path not in choice.noted:
            choice.noted[path] = encoding.name
            choice.note(f"note: {path}: read as {encoding.name}, {encoding.why}")
        return as_utf8(stream, sample, encoding.name, path, error=error)
    if stream.seekable():
        stream.seek(0)
        return stream
    return cast(IO[bytes], io.BufferedReader(PrefixedStream(sample, stream), _CHUNK))


def decoded(data: bytes, file: str, *, error: type[ClozeError] = CorpusError) -> str:
    """The text of a list or table that a recipe names, without a byte-order mark. An encoding that is not certain is an
    `error`."""
    likely = likely_encodings(data[:SAMPLE])
    way_out = f"Convert it, such as: iconv -f {likely[0].name if likely else 'NAME'} -t UTF-8 {file} > NEW"
    encoding = find_encoding(data[:SAMPLE], file, error=error, strict=True, way_out=way_out).name
    try:
        return data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise error(f"{file}:{line}: byte 0x{data[fault.start]:02x} is not {encoding.upper()}. Correct this line.") from None


def encoding_of_lines(sample: bytes, path: str, line: int | None, *, error: type[ClozeError]) -> str | None:
    """The encoding of lines of a file that are not UTF-8: the one that the user named (`reading_as`), else the likely one, with a
    note. One that is not certain is an `error`, with the `line` of the file that begins the sample; without `line` it is None."""
    choice = _CHOICE.get() or _Choice()
    likely = likely_encodings(sample[:SAMPLE])
    if choice.name:
        return choice.name
    if not likely or not likely[0].certain:
        if line is None:
            return None
        name = likely[0].name if likely else "NAME"
        way_out = f"{NAME_IT}, or convert it: iconv -f {name} -t UTF-8 {path} > NEW"
        raise error(not_utf8(path, line, sample, _first_bad(sample), way_out))
    choice.noted[path] = likely[0].name
    choice.note(f"note: {path}: read as {likely[0].name}, guessed from its words; --encoding NAME overrides it")
    return likely[0].name


def _is_utf8(sample: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, len(sample) < SAMPLE)
    except UnicodeDecodeError:
        return False
    return True


def _first_bad(sample: bytes) -> int:
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return 0


class PrefixedStream(io.RawIOBase):
    """Bytes that were read already, then the stream they came from."""

    def __init__(self, begin: bytes, stream: IO[bytes]) -> None:
        self._begin = begin
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._begin or self._stream.read(len(buffer))
        self._begin = data[len(buffer) :]
        data = data[: len(buffer)]
        buffer[: len(data)] = data
        return len(data)


class _Recoded(io.RawIOBase):
    """A stream of another encoding, read as UTF-8. A byte that cannot be decoded is an error with its line."""

    def __init__(self, stream: IO[bytes], begin: bytes, encoding: str, path: str, error: type[ClozeError]) -> None:
        self._stream, self._begin, self._path, self._encoding, self._error = stream, begin, path, encoding, error
        self._decoder: Any = codecs.getincrementaldecoder(encoding)("strict")
        self._ready, self._line, self._read, self._ended = b"", 1, 0, False

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
            position = self._read - waiting + error.start
            line = self._line + error.object.count(b"\n", 0, error.start)
            raise self._error(
                f"{self._path}:{line}: byte {position:,} (0x{error.object[error.start]:02x}) is not {self._encoding}: "
                f"{error.reason}.\n  Name the file's encoding with --encoding NAME, or remove the damaged bytes."
            ) from None
        self._read += len(data)
        self._line += text.count("\n")
        return text.encode("utf-8", "replace")


def readable(texts: Sequence[str]) -> Sequence[str]:
    """The texts with lone surrogates (which no UTF-8 can hold) replaced by U+FFFD."""
    try:
        for text in texts:
            if not text.isascii():
                text.encode()
    except UnicodeEncodeError:
        return [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
    return texts
