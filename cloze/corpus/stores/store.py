"""The token store: a folder of flat, memory-mapped files. One store holds one corpus under one tokenizer.

    store.json       version, dtype, counts, roles, tokenizer hash, size and sha256 of every file, build report
    tokens.bin       token ids, uint16 or uint32
    words.bin        one bit per token, little bit order: the token starts a word
    sentences.bin    int64, the first token of every sentence, and the number of tokens at the end
    documents.bin    int64, the first sentence of every document, and the number of sentences at the end
    languages.bin    uint8, the language of every document; for parallel text two, of its first and its second side. Only in
                     stores of several languages; `languages` in the header names them.
    layers/<name>.bin  uint8, an annotation layer: 0 outside all units, 1 the first token of a unit, 2 inside; optional.
    layers/<name>.labels.bin  int32, if the units of the layer have labels: the number of its unit's label + 1 at every token, 0
                     outside; the names of the labels are the lines of layers/<name>.names.
    tokenizer/       the tokenizer that made the ids

In the header, `words` is the hash of the segmenter that set the word starts (absent or null: the tokenizer), `annotations` holds
the hashes of the layers' annotators, and `pairs` tells whether the documents are pairs of translations. `counts` says how often
every id occurs, as numbers separated by spaces.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CorpusError, propose
from cloze.untrusted import parse_json, read_small

if TYPE_CHECKING:
    from cloze.corpus.stores.source import Source
    from cloze.text.annotation.annotate import Annotations
    from cloze.text.tokenizer import Tokenizer

VERSION = 1
SHARDS_VERSION = 2  # a manifest over shards: see `corpus/shards/manifest.py`
SHARDS = "shards"
PLANS = "plans"
HEADER = "store.json"
COUNTS = "counts"
FILES = ("tokens.bin", "words.bin", "sentences.bin", "documents.bin")
LANGUAGES = "languages.bin"
LAYERS = "layers/"
_LABELS = ".labels.bin"
_NAMES = ".names"
TOKENIZER = "tokenizer"
_CHUNK = 1 << 22  # tokens checked at a time
_LOOKED_AT = 1 << 28  # tokens whose ids are checked when a store is opened
_REBUILD = "Rebuild it: cloze corpus build PATH... --out STORE"


def _annotated(layer: str) -> str:
    """How a store gets the units of a layer from a file."""
    return f"{_REBUILD} --annotate {layer}=PART:FILE, such as --annotate {layer}=mentions:FILE"


class Store:
    """A memory-mapped token store. Opening one of a billion tokens costs a fraction of a second.

    Opening checks sizes, the order of all boundaries, the tokenizer's checksums, and the ids of a sample of at most 2^28 tokens.
    `verify` (`cloze corpus check STORE`) compares every byte.
    """

    shortest_text = 1  # minimum number of tokens of a sentence
    kinds: ClassVar[dict[str, type[Store]]] = {}  # subclasses with more contents, by their key in the header

    def __init_subclass__(cls, *, holds: str) -> None:
        Store.kinds[holds] = cls

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path = path
        self.header = header
        self.tokens: NDArray[Any] = mapped(path / "tokens.bin", np.dtype(header["dtype"]))
        self.word_bits: NDArray[np.uint8] = mapped(path / "words.bin", np.dtype(np.uint8))
        self.sentence_starts: NDArray[np.int64] = mapped(path / "sentences.bin", np.dtype(np.int64))
        self.document_sentences: NDArray[np.int64] = mapped(path / "documents.bin", np.dtype(np.int64))
        self.layers: Mapping[str, NDArray[np.uint8]] = {
            name.removeprefix(LAYERS).removesuffix(".bin"): mapped(path / name, np.dtype(np.uint8))
            for name in header["files"] if name.startswith(LAYERS) and not name.endswith((_LABELS, _NAMES))
        }
        self.labels: Mapping[str, NDArray[np.int32]] = {
            name.removeprefix(LAYERS).removesuffix(_LABELS): mapped(path / name, np.dtype(np.int32))
            for name in header["files"] if name.startswith(LAYERS) and name.endswith(_LABELS)
        }
        self._languages: NDArray[np.uint8] | None = (
            mapped(path / LANGUAGES, np.dtype(np.uint8)) if LANGUAGES in header["files"] else None
        )

    @classmethod
    def open(cls, path: str | Path, *, content: bool = True, verify: bool = False) -> Store:
        """Open a store folder. Raises `CorpusError` if it is missing, damaged or half-copied.

        Everything that could cause reads outside the files is checked (see the class). Without `content` only sizes are
        compared, for a store that was checked before; `verify` also compares all checksums.
        """
        if "://" in str(path):
            raise CorpusError(
                f"{path}: expected a folder of this machine. Copy the store here: cloze corpus copy {path} STORE"
            )
        folder = Path(path)
        store = _store_of(folder, _read_header(folder))
        store._check_ends()
        if content:
            store._check_content()
        if verify:
            store.verify()
        return store

    @staticmethod
    def is_store(path: str | Path) -> bool:
        """Whether the path is a store rather than text to read."""
        return (Path(path) / HEADER).is_file()

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return opened_before, (self.path,)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}: {self.documents:,} documents, {len(self.tokens):,} tokens)"

    @property
    def documents(self) -> int:
        """The number of documents."""
        return len(self.document_sentences) - 1

    @property
    def sentences(self) -> int:
        """The number of sentences."""
        return len(self.sentence_starts) - 1

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    @property
    def sample(self) -> Store:
        """A part of the text that fits on one machine: the store itself."""
        return self

    @property
    def vocab_size(self) -> int:
        """The number of ids of the tokenizer."""
        return int(self.header["vocab_size"])

    @property
    def tokenizer_hash(self) -> str:
        """The hash of the tokenizer that made the ids."""
        return str(self.header["tokenizer_hash"])

    @property
    def report(self) -> Mapping[str, Any]:
        """The report of the build: counts, formats, anomalies."""
        report: Mapping[str, Any] = self.header["report"]
        return report

    @property
    def languages(self) -> tuple[str, ...]:
        """The names of the languages, in the order of their numbers; empty if the store does not know any."""
        return tuple(self.header.get("languages", ()))

    @property
    def aligned(self) -> dict[str, NDArray[Any]]:
        """Its annotation layers and their labels, (tokens,) each, by the names of the fields that sources give."""
        layers: dict[str, NDArray[Any]] = {f"layers/{name}": layer for name, layer in self.layers.items()}
        return layers | {f"labels/{name}": labels for name, labels in self.labels.items()}

    def label_names(self, layer: str) -> tuple[str, ...]:
        """The names of the labels of a layer, in the order of their numbers. Raises `CorpusError` if it has none."""
        if layer not in self.labels:
            raise CorpusError(
                f"{self.path}: this store has no annotation layer {layer!r} with labels. {propose(layer, self.labels)}\n"
                f"  Build it with one: cloze corpus build TEXT --annotate {layer}=mentions:FILE --out STORE"
            )
        return tuple((self.path / names_file(layer)).read_text(encoding="utf-8").split("\n")[:-1])

    @property
    def pairs(self) -> bool:
        """Whether every document is a pair of translations: two sentences of two languages."""
        return bool(self.header.get("pairs", False))

    @property
    def document_languages(self) -> NDArray[np.uint8]:
        """The number of every document's language, (documents,); for pairs that of both sides, (documents, 2)."""
        if self._languages is None:
            raise CorpusError(
                f"{self.path}: this store does not record the languages of its documents.\n"
                "  Build it from a folder per language: cloze corpus build en/ fr/ --languages --out STORE"
            )
        return self._languages.reshape(-1, 2) if self.pairs else self._languages

    @property
    def document_starts(self) -> NDArray[np.int64]:
        """The first token of every document, and the number of tokens at the end, (documents + 1)."""
        return self.sentence_starts[self.document_sentences]

    def words(self, index: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Whether the tokens at these flat indices start a word; the result has the shape of `index`."""
        indices = np.asarray(index, dtype=np.int64)
        return ((self.word_bits[indices >> 3] >> (indices & 7).astype(np.uint8)) & 1).astype(np.bool_)

    def mixture_size(self, batch: int) -> int:
        """Its size in a mixture: its number of tokens, whatever the batch."""
        return self.size

    def bind_source(self, source: Source, *, lanes: int, options: Mapping[str, Any], **address: Any) -> Any:
        """A source over this store. `lanes` is for stores of several shards; `options` are further arguments of `source.bind`."""
        return source.bind(self, **address, **options)

    def expect_random_reads(self) -> None:
        """Tell the system that rows will be read from random places, if the store exceeds the memory of the machine.

        The system then reads single pages; by default it reads 128 KB around each, of which such rows use next to nothing.
        """
        if sum(entry["bytes"] for entry in self.header["files"].values()) > memory():
            for array in (self.tokens, self.word_bits, self.sentence_starts, *self.aligned.values()):
                advise_random(array)

    def counts(self) -> NDArray[np.int64]:
        """How often every id of the vocabulary occurs, (vocab_size,), from the header."""
        counts = parsed_counts(self.header)
        if (len(counts), int(counts.sum())) != (self.vocab_size, len(self.tokens)):
            raise CorpusError(
                f"{self.path / HEADER}: damaged; {len(counts):,} counts add up to {int(counts.sum()):,}, expected "
                f"{self.vocab_size:,} of {len(self.tokens):,} tokens.\n  {_REBUILD}"
            )
        return counts

    def role(self, name: str) -> int:
        """The id of a role such as "[SEP]" in the store's tokenizer."""
        roles: Mapping[str, int] = self.header["roles"]
        if name not in roles:
            raise CorpusError(
                f"{self.path}: the recipe needs the special token {name!r}, which the tokenizer of this store lacks; it has "
                f"{', '.join(roles)}.\n"
                "  Build a store with the recipe's tokenizer: cloze corpus build TEXT --recipe RECIPE --out STORE"
            )
        return int(roles[name])

    def tokenizer(self) -> Tokenizer:
        """The tokenizer saved with the store."""
        from cloze.text import Tokenizer

        tokenizer = Tokenizer.load(self.path / TOKENIZER)
        if tokenizer.hash != self.tokenizer_hash:
            raise CorpusError(
                f"{self.path / TOKENIZER}: not the tokenizer that made this store's ids (hash {tokenizer.hash[:12]}, expected "
                f"{self.tokenizer_hash[:12]}): it was edited or replaced.\n  {_REBUILD}"
            )
        return tokenizer

    def require_tokenizer(self, tokenizer_hash: str, *, whose: str) -> None:
        """Raise `CorpusError` unless the store was built with this tokenizer; `whose` names the other side."""
        if tokenizer_hash != self.tokenizer_hash:
            raise CorpusError(
                f"{self.path}: this store was built with another tokenizer (hash {self.tokenizer_hash[:12]}) than "
                f"{whose} (hash {tokenizer_hash[:12]}).\n"
                "  Their ids differ. Use one tokenizer for both: cloze corpus build TEXT --tokenizer FOLDER --out STORE builds a "
                "store with that of FOLDER."
            )

    def require_annotations(self, annotations: Annotations, *, whose: str) -> None:
        """Raise `CorpusError` unless the store has these words and layers; if none are wanted, every store is fine."""
        requirements = annotations.header()
        contents = {"words": self.header.get("words"), "annotations": self.header.get("annotations", {})}
        if requirements["words"] is not None and requirements["words"] != contents["words"]:
            built = "the tokenizer's own words" if contents["words"] is None else f"other words (hash {contents['words'][:12]})"
            raise CorpusError(
                f"{self.path}: this store was built with {built}, but {whose} says `text.words` (hash "
                f"{requirements['words'][:12]}).\n  {_REBUILD} --recipe RECIPE"
            )
        for name, digest in requirements["annotations"].items():
            if digest is None and name in self.layers and annotations.layers[name].labelled and name not in self.labels:
                raise CorpusError(
                    f"{self.path}: the units of the annotation layer {name!r} have no labels in this store, but {whose} asks for "
                    f"labels (`text.annotate.{name}`).\n  {_annotated(name)}"
                )
            if name not in self.layers or (digest is not None and contents["annotations"].get(name) != digest):
                state = "another list for" if name in contents["annotations"] else "no"
                raise CorpusError(
                    f"{self.path}: this store has {state} annotation layer {name!r}, which {whose} asks for "
                    f"(`text.annotate.{name}`).\n  {_annotated(name) if digest is None else f'{_REBUILD} --recipe RECIPE'}"
                )

    def verify(self) -> None:
        """Compare the checksums of all files. Raises `CorpusError` if one differs."""
        for name in self.header["files"]:
            self._verify(name)
        if (self.path / TOKENIZER / "tokenizer.json").is_file():
            self.tokenizer()

    def _verify(self, name: str) -> None:
        self.require_checksum(name, file_hash(self.path / name))

    def require_checksum(self, name: str, checksum: str) -> None:
        """Raise a `CorpusError` if `checksum` is not the sha256 of a file of the store."""
        expected = str(self.header["files"][name]["sha256"])
        if checksum != expected:
            raise CorpusError(
                f"{self.path / name}: damaged or edited; its checksum is {checksum[:12]}, expected {expected[:12]}.\n  {_REBUILD}"
            )

    def _check_ends(self) -> None:
        sentences, documents = self.sentence_starts, self.document_sentences
        ends = (len(sentences) and int(sentences[-1]), len(documents) and int(documents[-1]))
        if ends != (len(self.tokens), len(sentences) - 1) or len(self.word_bits) != (len(self.tokens) + 7) // 8:
            raise CorpusError(
                f"{self.path}: its files disagree: sentences.bin ends at token {ends[0]} of {len(self.tokens)}, "
                f"documents.bin at sentence {ends[1]} of {len(sentences) - 1}.\n  {_REBUILD}"
            )
        sides = self.documents * (2 if self.pairs else 1)
        extra = {layer_file(name): (len(layer), len(self.tokens)) for name, layer in self.layers.items()}
        extra |= {labels_file(name): (len(labels), len(self.tokens)) for name, labels in self.labels.items()}
        if self._languages is not None:
            extra[LANGUAGES] = len(self._languages), sides
        for name, (has, wants) in extra.items():
            if has != wants:
                raise CorpusError(f"{self.path}: {name} has {has:,} entries, expected {wants:,}.\n  {_REBUILD}")

    def _check_content(self) -> None:
        """Check that boundaries are in order and ids in the vocabulary: a flipped bit would cause a crash, or other text."""
        bounded = (("sentences.bin", self.sentence_starts, self.shortest_text), ("documents.bin", self.document_sentences, 0))
        for name, bounds, least in bounded:
            for low in range(0, len(bounds), _CHUNK):
                piece = bounds[max(low - 1, 0) : low + _CHUNK]
                if (low == 0 and piece[0] != 0) or (len(piece) > 1 and int((piece[1:] - piece[:-1]).min()) < least):
                    raise CorpusError(f"{self.path / name}: damaged; its bounds are not in order.\n  {_REBUILD}")
        limits = [("tokens.bin", self.tokens, self.vocab_size)]
        limits += [(layer_file(name), layer, 3) for name, layer in self.layers.items()]
        limits += [(labels_file(name), labels, len(self.label_names(name)) + 1) for name, labels in self.labels.items()]
        if self._languages is not None:
            limits.append((LANGUAGES, self._languages, len(self.languages)))
        for name, values, limit in limits:
            step = max(1, len(values) // _LOOKED_AT) * _CHUNK
            for low in range(0, len(values), step):
                largest = int(values[low : low + _CHUNK].max())
                if largest >= limit:
                    raise CorpusError(
                        f"{self.path / name}: damaged; it holds {largest:,}, expected less than {limit:,}.\n  {_REBUILD}"
                    )
        for name in self.header["files"]:
            if name.startswith(f"{TOKENIZER}/"):
                self._verify(name)


def parsed_counts(header: Mapping[str, Any]) -> NDArray[np.int64]:
    """The counts in a header, (vocab_size,)."""
    return np.fromstring(header[COUNTS], dtype=np.int64, sep=" ")


def opened_before(path: Path) -> Store:
    """A store whose content was checked in the process that sends it."""
    return _store_of(path, _read_header(path))


def _store_of(path: Path, header: Mapping[str, Any]) -> Store:
    """The store that a header describes: of running text, of records, or of several shards."""
    if len(header.get(SHARDS, ())) == 1:
        alone = path / SHARDS / header[SHARDS][0]["name"]
        return _store_of(alone, _read_header(alone))
    kind = next((kind for key, kind in Store.kinds.items() if key in header), Store)
    return kind(path, header)


def layer_file(name: str) -> str:
    """The file of an annotation layer in the folder."""
    return f"{LAYERS}{name}.bin"


def labels_file(name: str) -> str:
    """The file of the labels of an annotation layer in the folder."""
    return f"{LAYERS}{name}{_LABELS}"


def names_file(name: str) -> str:
    """The file of the names of these labels."""
    return f"{LAYERS}{name}{_NAMES}"


def file_hash(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A file as a memory-mapped array of this type."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=dtype)
    # A plain array over the map: `np.memmap` is a subclass whose every operation costs microseconds more.
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)


def memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def advise_random(array: NDArray[Any]) -> None:
    """Advise the system that a mapped array is read at random places; other arrays are in memory already."""
    if isinstance(array.base, np.memmap) and sys.platform == "linux":
        held: Any = array.base
        held._mmap.madvise(mmap.MADV_RANDOM)


def _check_header(header: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a value of the wrong kind."""
    def number(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62

    size = header["vocab_size"]
    expected: dict[str, bool] = {
        "dtype": header["dtype"] in ("uint16", "uint32"), "vocab_size": number(size) and 0 < size <= 1 << 31,
        "roles": all(number(role) and (not number(size) or role < size) for role in header["roles"].values()),
        "tokenizer_hash": isinstance(header["tokenizer_hash"], str), "report": isinstance(header["report"], dict),
        "languages": all(isinstance(name, str) for name in header.get("languages", [])),
        "annotations": isinstance(header.get("annotations", {}), dict),
        COUNTS: header[COUNTS].replace(" ", "").isdecimal(),
        SHARDS: all(
            isinstance(shard["name"], str) and Path(shard["name"]).name == shard["name"] and isinstance(shard["sha256"], str)
            and all(number(shard[key]) for key in ("tokens", "sentences", "documents", "bytes"))
            for shard in header.get(SHARDS, [])
        ) and bool(header.get(SHARDS, True)),
        "files": all(number(entry["bytes"]) and isinstance(entry["sha256"], str) for entry in header["files"].values()),
    }  # fmt: skip
    wrong = [name for name, good in expected.items() if not good]
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: not what a store holds")


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    if not path.is_file():
        kind = "a folder without store.json" if folder.is_dir() else "a file" if folder.exists() else "not there"
        raise CorpusError(
            f"{folder}: expected a token store, found {kind}.\n"
            f"  Build one: cloze corpus build PATH... --out {folder}"
        )
    try:
        header: dict[str, Any] = parse_json(read_small(path))
        version, of_shards = header["version"], SHARDS in header
        sizes = {name: header["files"][name]["bytes"] for name in (*(() if of_shards else FILES), *header["files"])}
        if version == (SHARDS_VERSION if of_shards else VERSION):
            _check_header(header)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"{path}: damaged header ({type(error).__name__}: {error}).\n  {_REBUILD}") from None
    if version != (SHARDS_VERSION if of_shards else VERSION):
        versions = f"{VERSION} and, of several shards, {SHARDS_VERSION}"
        raise CorpusError(f"{path}: store version {version}, this cloze reads version {versions}.\n  {_REBUILD}")
    inside = folder.resolve()
    for name, expected in sizes.items():
        if not (folder / name).resolve().is_relative_to(inside):
            raise CorpusError(f"{path}: names the file {name!r}, which is outside the store.\n  {_REBUILD}")
        file = folder / name
        size = file.stat().st_size if file.is_file() else None
        if size != expected:
            state = "is missing" if size is None else f"has {size:,} bytes"
            raise CorpusError(
                f"{file}: {state}, expected {expected:,} bytes: the store is damaged or only partly copied.\n"
                f"  Copy it again, or rebuild it: cloze corpus build PATH... --out STORE"
            )
    return header
