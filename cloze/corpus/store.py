"""The token store: a folder of flat files, opened by memory map. One store holds one corpus under one tokenizer.

    store.json       version, dtype, counts, roles, tokenizer hash, size and sha256 of every file, build report
    tokens.bin       token ids, uint16 or uint32
    words.bin        one bit per token, little bit order: the token starts a word
    sentences.bin    int64, the first token of every sentence, and the number of tokens at the end
    documents.bin    int64, the first sentence of every document, and the number of sentences at the end
    languages.bin    uint8, the language of every document; of parallel text two: of its first and of its second side.
                     Only in stores of several languages; `languages` in the header names them.
    layers/<name>.bin  uint8, an annotation layer: 0 outside all units, 1 the first token of a unit, 2 inside. Only if asked for.
    tokenizer/       the tokenizer that made the ids

The header's `words` is the hash of the segmenter whose words the word starts are (absent or null: the tokenizer's own), its
`annotations` the hashes of the layers' annotators, `pairs` whether the documents are pairs of translations.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CorpusError, nearest

if TYPE_CHECKING:
    from cloze.text.annotate import Annotations
    from cloze.text.tokenizer import Tokenizer

VERSION = 1
HEADER = "store.json"
FILES = ("tokens.bin", "words.bin", "sentences.bin", "documents.bin")
LANGUAGES = "languages.bin"
LAYERS = "layers/"
_CHUNK = 1 << 22  # tokens counted at a time
_REBUILD = "Build it again with: cloze corpus build PATH... --out STORE"


class Store:
    """A memory-mapped token store. Opening costs milliseconds whatever its size; nothing is read until it is used."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path = path
        self.header = header
        self.tokens: NDArray[Any] = _map(path / "tokens.bin", np.dtype(header["dtype"]))
        self.word_bits: NDArray[np.uint8] = _map(path / "words.bin", np.dtype(np.uint8))
        self.sentence_starts: NDArray[np.int64] = _map(path / "sentences.bin", np.dtype(np.int64))
        self.document_sentences: NDArray[np.int64] = _map(path / "documents.bin", np.dtype(np.int64))
        self.layers: Mapping[str, NDArray[np.uint8]] = {
            name.removeprefix(LAYERS).removesuffix(".bin"): _map(path / name, np.dtype(np.uint8))
            for name in header["files"] if name.startswith(LAYERS)
        }
        self._languages: NDArray[np.uint8] | None = (
            _map(path / LANGUAGES, np.dtype(np.uint8)) if LANGUAGES in header["files"] else None
        )

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = False) -> Store:
        """Open a store folder. Raises `CorpusError` if it is missing, damaged or half-copied.

        Sizes are always compared; `verify` also reads every byte and compares checksums.
        """
        folder = Path(path)
        store = cls(folder, _read_header(folder))
        store._check_ends()
        if verify:
            store.verify()
        return store

    @staticmethod
    def is_store(path: str | Path) -> bool:
        """Whether the path looks like a store (and not like text to be read)."""
        return (Path(path) / HEADER).is_file()

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Store.open, (self.path,)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}: {self.documents:,} documents, {len(self.tokens):,} tokens)"

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return len(self.document_sentences) - 1

    @property
    def sentences(self) -> int:
        """How many sentences there are."""
        return len(self.sentence_starts) - 1

    @property
    def vocab_size(self) -> int:
        """The number of ids the tokenizer has."""
        return int(self.header["vocab_size"])

    @property
    def tokenizer_hash(self) -> str:
        """The hash of the tokenizer that made the ids."""
        return str(self.header["tokenizer_hash"])

    @property
    def report(self) -> Mapping[str, Any]:
        """What the build had to say: counts, formats, odd things."""
        report: Mapping[str, Any] = self.header["report"]
        return report

    @property
    def languages(self) -> tuple[str, ...]:
        """The names of the languages, in the order of their numbers; empty if the store does not know any."""
        return tuple(self.header.get("languages", ()))

    @property
    def pairs(self) -> bool:
        """Whether every document is a pair of translations: two sentences of two languages."""
        return bool(self.header.get("pairs", False))

    @property
    def document_languages(self) -> NDArray[np.uint8]:
        """The number of every document's language, (documents,); of pairs (documents, 2): of both sides."""
        if self._languages is None:
            raise CorpusError(
                f"{self.path}: this store does not know the languages of its documents.\n"
                "  Build it from a folder per language: cloze corpus build en/ fr/ --languages --out STORE"
            )
        return self._languages.reshape(-1, 2) if self.pairs else self._languages

    @property
    def document_starts(self) -> NDArray[np.int64]:
        """The first token of every document, and the number of tokens at the end, (documents + 1)."""
        return self.sentence_starts[self.document_sentences]

    def words(self, index: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Whether the tokens at these flat indices start a word; the result has the shape of `index`."""
        wide = np.asarray(index, dtype=np.int64)
        return ((self.word_bits[wide >> 3] >> (wide & 7).astype(np.uint8)) & 1).astype(np.bool_)

    def counts(self) -> NDArray[np.int64]:
        """How often every id of the vocabulary occurs, (vocab_size,). One pass over the tokens."""
        found = np.zeros(self.vocab_size, dtype=np.int64)
        for low in range(0, len(self.tokens), _CHUNK):
            found += np.bincount(self.tokens[low : low + _CHUNK], minlength=self.vocab_size)
        return found

    def role(self, name: str) -> int:
        """The id of a role such as "[SEP]" in the store's tokenizer."""
        roles: Mapping[str, int] = self.header["roles"]
        if name not in roles:
            raise CorpusError(
                f"{self.path}: the tokenizer of this store has no role {name!r}. {nearest(name, roles)}"
            )
        return int(roles[name])

    def tokenizer(self) -> Tokenizer:
        """The tokenizer saved with the store."""
        from cloze.text import Tokenizer

        return Tokenizer.load(self.path / "tokenizer")

    def require_tokenizer(self, tokenizer_hash: str, *, whose: str) -> None:
        """Raise `CorpusError` unless the store was built with this tokenizer; `whose` names the other side."""
        if tokenizer_hash != self.tokenizer_hash:
            raise CorpusError(
                f"{self.path}: this store was built with another tokenizer (hash {self.tokenizer_hash[:12]}) than "
                f"{whose} (hash {tokenizer_hash[:12]}).\n"
                f"  Ids of one mean nothing to the other. Build a store with that tokenizer: "
                f"cloze corpus build PATH... --out STORE --tokenizer DIR"
            )

    def require_annotations(self, wanted: Annotations, *, whose: str) -> None:
        """Raise `CorpusError` unless the store has these words and layers; whoever wants none takes any store."""
        asked = wanted.header()
        found = {"words": self.header.get("words"), "annotations": self.header.get("annotations", {})}
        if asked["words"] is not None and asked["words"] != found["words"]:
            built = "the tokenizer's own words" if found["words"] is None else f"other words (hash {found['words'][:12]})"
            raise CorpusError(
                f"{self.path}: this store was built with {built}, but {whose} says `text.words` (hash "
                f"{asked['words'][:12]}).\n  {_REBUILD} --recipe RECIPE"
            )
        for name, digest in asked["annotations"].items():
            if found["annotations"].get(name) != digest:
                state = "another list for" if name in found["annotations"] else "no"
                raise CorpusError(
                    f"{self.path}: this store has {state} annotation layer {name!r}, which {whose} asks for "
                    f"(`text.annotate.{name}`).\n  {_REBUILD} --recipe RECIPE"
                )

    def verify(self) -> None:
        """Read every byte and compare checksums; a difference is a `CorpusError`."""
        for name in self.header["files"]:
            found = file_hash(self.path / name)
            if found != self.header["files"][name]["sha256"]:
                raise CorpusError(
                    f"{self.path / name}: damaged; its checksum is {found[:12]}, expected "
                    f"{self.header['files'][name]['sha256'][:12]}.\n  {_REBUILD}"
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
        if self._languages is not None:
            extra[LANGUAGES] = len(self._languages), sides
        for name, (has, wants) in extra.items():
            if has != wants:
                raise CorpusError(f"{self.path}: {name} has {has:,} entries, expected {wants:,}.\n  {_REBUILD}")


def layer_file(name: str) -> str:
    """Where an annotation layer is kept in the folder."""
    return f"{LAYERS}{name}.bin"


def file_hash(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _map(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=dtype)
    # A plain array over the map: `np.memmap` is a subclass whose every operation costs microseconds more.
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    if not path.is_file():
        kind = "a folder without store.json" if folder.is_dir() else "a file" if folder.exists() else "not there"
        raise CorpusError(
            f"{folder}: expected a token store, found {kind}.\n"
            f"  Make one with: cloze corpus build PATH... --out {folder}"
        )
    try:
        header: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version, sizes = header["version"], {name: header["files"][name]["bytes"] for name in (*FILES, *header["files"])}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"{path}: damaged header ({type(error).__name__}: {error}).\n  {_REBUILD}") from None
    if version != VERSION:
        raise CorpusError(f"{path}: store version {version}, this cloze reads version {VERSION}.\n  {_REBUILD}")
    for name, expected in sizes.items():
        file = folder / name
        found = file.stat().st_size if file.is_file() else None
        if found != expected:
            state = "is missing" if found is None else f"has {found:,} bytes"
            raise CorpusError(
                f"{file}: {state}, expected {expected:,} bytes: the store is damaged or was copied only in part.\n"
                f"  Copy it again, or: {_REBUILD}"
            )
    return header
