"""The one tokenizer object: strings to ids and back, word starts, roles. Wraps `tokenizers`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from cloze.errors import CheckpointError, RecipeError, propose
from cloze.text.apart import places_before, set_apart
from cloze.text.encodings import readable
from cloze.text.joins import Joins, PairTable, join_lines
from cloze.text.layout import read_folder, write_folder
from cloze.text.roles import HIDDEN, LANGUAGE_ROLES
from cloze.text.segment import Segmenter

KINDS = {"WordPiece": "wordpiece", "BPE": "byte_bpe", "Unigram": "unigram", "WordLevel": "words"}
#: What BPE with byte fallback and Unigram write for a space, and the bytes behind which a word begins.
SPACE, _BREAKS = "▁", frozenset({"<0x09>", "<0x0A>", "<0x0D>"})
_SENTINEL = re.compile(r"<extra_id_(\d+)>")


class EncodedText(NamedTuple):
    """The pieces of one text: ids (L,) int32, and where a word begins (L,) bool."""

    ids: NDArray[np.int32]
    word_start: NDArray[np.bool_]


class Spelled(NamedTuple):
    """Tokens of many texts, and the place of each in its text.

    ids (T,) int32, word_start (T,), offsets (n+1,) of the texts, begin and end (T,) in characters of the text.
    """

    ids: NDArray[np.int32]
    word_start: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]


class Tokenizer:
    """A trained tokenizer with its table of roles.

    A word is a unit of the pre-tokenizer: a run of letters, a punctuation mark, an ideograph (WordPiece); a piece of the GPT-2
    pattern, or of another one, with its leading space (byte-level BPE); a run between spaces (Unigram); a word as in WordPiece
    (BPE); a token (words). BPE with bytes for characters that the vocabulary lacks marks spaces by ▁, and has words between
    spaces (Llama).

    Plain text yields no special id but [UNK], for an unknown character. `encode_template` reads roles and literals.

    kind: wordpiece, byte_bpe, bpe, fallback_bpe, unigram or words.
    roles, literals: role → id, and role → how the vocabulary spells it.
    size: how many ids there are: 0 … size - 1.
    special_ids, ordinary_ids: sorted, together all ids.
    sentinels: the ids of `<extra_id_0>`, `<extra_id_1>`, …; empty if there are none.
    hash: of everything that decides ids. lower: whether it lower-cases.
    adds_pieces: whether it has added tokens that texts yield, which are no special tokens, or have no role.
    segmenter: sets the words of a script without spaces apart first. It belongs to the tokenizer and is saved in its folder
      (`segmenter.json`, with its list in `segmenter.txt`), and so with every store and checkpoint: everything in cloze cuts a
      text the same way. Other libraries read tokenizer.json alone and need text that is segmented already.
    joins: pairs of words that become one token, such as new_york; saved in `phrases.tsv`. Other libraries do not join them.
    targets: the tokenizer of what is written for a text, with the same ids: this one, or `target_tokenizer.json` (Marian).
    """

    def __init__(
        self, description: str, literals: Mapping[str, str], segmenter: Segmenter | None = None, joins: Joins | None = None,
        targets: Tokenizer | None = None,
    ) -> None:
        data = {**json.loads(description), "post_processor": None, "padding": None, "truncation": None}
        for token in data.get("added_tokens", []):
            token["special"] = token["special"] or token["content"] in literals.values()
        _check_ids(data)
        self._json = json.dumps(data, ensure_ascii=False, sort_keys=True)
        self.kind: str = _kind(data)
        self.literals: Mapping[str, str] = MappingProxyType(dict(literals))
        added = {token["id"] for token in data.get("added_tokens", []) if token["special"]}
        self.sentinels: NDArray[np.int32] = _sentinels(data)
        self.lower: bool = '"lowercase": true' in json.dumps(data.get("normalizer"))
        # Tokens that users added have no role: no template or edit writes them, texts do.
        plain_tokens = [t for t in data.get("added_tokens", []) if t["special"] and not _has_role(t, literals)]
        for token in plain_tokens:
            token["special"] = False
        self.adds_pieces: bool = any(not token["special"] for token in data.get("added_tokens", []))
        self._plain = tokenizers.Tokenizer.from_str(json.dumps(data, ensure_ascii=False) if plain_tokens else self._json)
        del data  # a large vocabulary is in memory once at a time
        self._plain.encode_special_tokens = True
        self.size: int = 1 + max(self._plain.get_vocab(with_added_tokens=True).values())
        self.roles: Mapping[str, int] = MappingProxyType({r: self._id_of(r, p) for r, p in literals.items()})
        special = sorted(added | set(self.roles.values()))
        self.special_ids: NDArray[np.int32] = np.array(special, dtype=np.int32)
        self.ordinary_ids: NDArray[np.int32] = np.setdiff1d(np.arange(self.size, dtype=np.int32), self.special_ids)
        self._targets = targets
        self._cut(segmenter, joins)

    def _cut(self, segmenter: Segmenter | None, joins: Joins | None) -> None:
        if segmenter is not None and self.kind != "words":
            raise RecipeError(f"tokenizer: only whole words are cut by a segmenter; this one is of kind {self.kind}.")
        self.segmenter, self.joins = segmenter, joins
        cut = "" if segmenter is None else f"\nsegmenter: {segmenter.hash}"
        joined = "" if joins is None else f"\nphrases: {joins.hash}"
        languages = "".join(f"\n{role}: {self.literals[role]}" for role in LANGUAGE_ROLES if role in self.literals)
        targets = "" if self._targets is None else f"\ntargets: {self._targets.hash}"
        self.hash: str = hashlib.sha256(f"{self._json}{cut}{joined}{languages}{targets}".encode()).hexdigest()
        self._pairs: list[PairTable] = [] if joins is None else self._tables(joins)

    def _tables(self, joins: Joins) -> list[PairTable]:
        if self.kind != "words":
            raise RecipeError(f"tokenizer: only whole words are joined to phrases; this one is of kind {self.kind}.")
        ids = self._plain.get_vocab(with_added_tokens=True)
        lost = next((word for p in joins.pairs for word in (p.first, p.second, p.word) if word not in ids), None)
        if lost is not None:
            raise CheckpointError(f"phrases.tsv: {lost!r} is not in the vocabulary of tokenizer.json. Copy the folder again.")
        return joins.tables(ids, self.size)

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, size={self.size}, hash={self.hash[:12]!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self._json, dict(self.literals), self.segmenter, self.joins, self._targets)

    @property
    def description(self) -> str:
        """The canonical tokenizer.json, without a frame."""
        return self._json

    @property
    def targets(self) -> Tokenizer:
        """The tokenizer of what is written for a text."""
        return self._targets or self

    def with_targets(self, targets: Tokenizer) -> Tokenizer:
        """The same tokenizer with another one, of the same ids, for what is written."""
        return Tokenizer(self._json, self.literals, self.segmenter, self.joins, targets)

    def cut_by(self, segmenter: Segmenter | None) -> Tokenizer:
        """The same tokenizer that first sets the words of a text apart with this segmenter; None: without segmenter."""
        return self._cutting(segmenter, self.joins)

    def joined_by(self, joins: Joins | None) -> Tokenizer:
        """The same tokenizer with these phrases, whose words and spellings it must have; None: with none."""
        return self._cutting(self.segmenter, joins)

    @property
    def bare(self) -> Tokenizer:
        """The same tokenizer without segmenter and phrases: what a chunk between spaces is to it."""
        return self if self.segmenter is None and self.joins is None else self._cutting(None, None)

    def _cutting(self, segmenter: Segmenter | None, joins: Joins | None) -> Tokenizer:
        tokenizer = object.__new__(Tokenizer)  # shares the vocabulary, which takes a few hundred bytes a word
        tokenizer.__dict__.update(self.__dict__)
        tokenizer._cut(segmenter, joins)
        return tokenizer

    def speaking(self, **languages: str) -> Tokenizer:
        """The same tokenizer with other tokens of languages: `source` plays `[SOURCE]`, `target` plays `[TARGET]`."""
        tokenizer = object.__new__(Tokenizer)
        tokenizer.__dict__.update(self.__dict__)
        literals = {f"[{side.upper()}]": literal for side, literal in languages.items()}
        roles = {role: self._id_of(role, literal) for role, literal in literals.items()}
        tokenizer.literals = MappingProxyType({**self.literals, **literals})
        tokenizer.roles = MappingProxyType({**self.roles, **roles})
        tokenizer._cut(self.segmenter, self.joins)
        return tokenizer

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The special tokens that may stand for a language: those that play no other role and are no sentinels."""
        other_roles = {literal for role, literal in self.literals.items() if role not in LANGUAGE_ROLES}
        other_ids = {*self.sentinels.tolist(), *(self.id(literal) for literal in other_roles)}
        return tuple(self.piece(number) for number in self.special_ids.tolist() if number not in other_ids)

    def described_by(self, description: str) -> Tokenizer:
        """A tokenizer of another tokenizer.json with the literals, the segmenter and the phrases of this one."""
        if self._targets is not None:
            problem = "tokenizer: what is written has a tokenizer of its own (Marian), so the vocabulary cannot be changed."
            raise RecipeError(f"{problem}\n  Use a checkpoint whose two texts share one tokenizer.")
        return Tokenizer(description, self.literals, self.segmenter, self.joins)

    def without_last(self, size: int) -> Tokenizer | None:
        """The same tokenizer with the first `size` ids, without the roles of the others; None if an ordinary token or [UNK] is
        among the others, which texts yield."""
        yielded = {*self.ordinary_ids.tolist(), self.roles.get("[UNK]", -1)}
        if not yielded.isdisjoint(range(size, self.size)):
            return None
        data = json.loads(self._json)
        pieces = data["model"]["vocab"]
        first = {piece: id for piece, id in pieces.items() if id < size} if isinstance(pieces, dict) else pieces[:size]
        data["model"]["vocab"] = first
        data["added_tokens"] = [token for token in data["added_tokens"] if token["id"] < size]
        literals = {role: literal for role, literal in self.literals.items() if self.roles[role] < size}
        targets = self._targets and self._targets.without_last(size)
        return Tokenizer(json.dumps(data, ensure_ascii=False), literals, self.segmenter, self.joins, targets)

    def with_words(self, words: Sequence[str]) -> Tokenizer:
        """The same tokenizer of whole words with further words, whose ids follow the others."""
        data = json.loads(self._json)
        data["model"]["vocab"].update({word: self.size + number for number, word in enumerate(words)})
        return self.described_by(json.dumps(data, ensure_ascii=False))

    def with_marks(self, marks: Mapping[str, str]) -> Tokenizer:
        """The same tokenizer with further special tokens by role, whose ids follow the others; one that it has keeps its id."""
        data = json.loads(self._json)
        new = [literal for literal in dict.fromkeys(marks.values()) if self.id(literal) is None]
        data["added_tokens"] = [
            *data.get("added_tokens", []),
            *({"id": self.size + number, "content": literal, "special": True, "single_word": False, "lstrip": False,
               "rstrip": False, "normalized": False} for number, literal in enumerate(new)),
        ]  # fmt: skip
        literals = {**self.literals, **marks}
        targets = self._targets and self._targets.with_marks(marks)
        return Tokenizer(json.dumps(data, ensure_ascii=False), literals, self.segmenter, self.joins, targets)

    def unknown_words(self, texts: Sequence[str]) -> list[str]:
        """The distinct words of texts that the vocabulary lacks, normalised, in order of appearance."""
        return list(dict.fromkeys(self.normalised(word) for _, word in self.unknown_parts(texts)))

    def unknown_parts(self, texts: Sequence[str]) -> list[tuple[int, str]]:
        """The parts of texts that become [UNK], each with the number of its text: words, or characters where the vocabulary has
        pieces of words."""
        spelled, texts = self.encode_spelled(texts), readable(texts)
        whose = np.repeat(np.arange(len(texts)), np.diff(spelled.offsets))
        unknown = np.flatnonzero(spelled.ids == self.roles.get("[UNK]", -1)).tolist()
        return [(int(whose[token]), texts[whose[token]][spelled.begin[token] : spelled.end[token]]) for token in unknown]

    def normalised(self, text: str) -> str:
        """A text as the pre-tokenizer gets it: lower-cased, without accents, as the tokenizer says."""
        normalise = self._plain.normalizer
        return text if normalise is None else str(normalise.normalize_str(text))

    def words_of(self, text: str) -> list[str]:
        """The words of a text before the vocabulary is asked: set apart, normalised, and cut by the pre-tokenizer."""
        (apart,), cut = self.apart([text]), self._plain.pre_tokenizer
        normalised = self.normalised(apart)
        return [normalised] if cut is None else [word for word, _ in cut.pre_tokenize_str(normalised)]

    def apart(self, texts: Sequence[str]) -> Sequence[str]:
        """The texts with their words set apart by `segmenter`; unchanged without one."""
        if self.segmenter is None:
            return texts
        return [set_apart(self.segmenter, text).text for text in readable(texts)]

    def encode(self, text: str) -> EncodedText:
        """The ids of a plain text, without any special token."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[EncodedText]:
        """The same for many texts; faster than one by one."""
        ids, starts, offsets = self.encode_flat(texts)
        bounds = offsets.tolist()
        return [EncodedText(ids[a:b], starts[a:b]) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]

    def encode_flat(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.int64]]:
        """Ids of all texts in one array (T,), word starts (T,), and offsets (n+1,) of the texts in it."""
        return self._flat(self._plain, self.apart(texts))

    def encode_spelled(self, texts: Sequence[str]) -> Spelled:
        """The same, with the characters that each token stands for; slower."""
        texts = readable(texts)
        put: list[list[int]] = []
        if self.segmenter is not None:
            apart = [set_apart(self.segmenter, text) for text in texts]
            texts, put = [spaced.text for spaced in apart], [spaced.put for spaced in apart]
        encodings = self._plain.encode_batch(texts, add_special_tokens=False)
        ids, starts, offsets = self._plainly(encodings, texts)
        every = chain.from_iterable(chain.from_iterable(e.offsets for e in encodings))
        bounds = np.fromiter(every, dtype=np.int64, count=2 * len(ids)).reshape(-1, 2)
        for begin, end, spaces in zip(offsets[:-1].tolist(), offsets[1:].tolist(), put, strict=False):  # none without segmenter
            bounds[begin:end] = places_before(spaces, bounds[begin:end])
        if not self._pairs:
            return Spelled(ids, starts, offsets, bounds[:, 0], bounds[:, 1])
        joined = join_lines(self._pairs, ids, offsets)
        return Spelled(joined.ids, starts[joined.first], joined.offsets, bounds[joined.first, 0], bounds[joined.last, 1])

    def joined(
        self, ids: NDArray[np.int32], starts: NDArray[np.bool_], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.int64]]:
        """What `encode_flat` returns, from the ids of the words: with the phrases in their place."""
        if not self._pairs:
            return ids, starts, offsets
        joined = join_lines(self._pairs, ids, offsets)
        return joined.ids, starts[joined.first], joined.offsets

    def encode_template(self, text: str) -> EncodedText:
        """The ids of a text in which roles such as [MASK], and the vocabulary's own literals, mean special tokens."""
        for role, literal in self.literals.items():
            text = text.replace(role, literal)
        if self.segmenter is not None:
            special = "|".join(map(re.escape, sorted(self.literals.values(), key=len, reverse=True)))
            parts = re.split(f"({special})", text)
            text = " ".join(part for pair in zip(self.apart(parts[::2]), [*parts[1::2], ""], strict=True) for part in pair)
        ids, starts, _ = self._flat(self._special, [text])
        return EncodedText(ids, starts)

    def bare_model(self) -> Any:
        """The model of `tokenizers` that follows the pre-tokenizer and turns one word into pieces."""
        return self._plain.model

    def decode(self, ids: Sequence[int] | NDArray[Any], *, skip_special: bool = True) -> str:
        """The text of some ids; `skip_special` leaves out special tokens."""
        return self._plain.decode([int(i) for i in ids], skip_special_tokens=skip_special)

    def piece(self, id: int) -> str:
        """The spelling of an id."""
        spelling = self._plain.id_to_token(int(id))
        if spelling is None:
            raise RecipeError(f"tokenizer: no piece has the id {id}; ids run from 0 to {self.size - 1}.")
        return str(spelling)

    @cached_property
    def spellings(self) -> tuple[str, ...]:
        """The spelling of each id; empty for ids that the vocabulary skips."""
        return tuple(self._plain.id_to_token(number) or "" for number in range(self.size))

    def id(self, piece: str) -> int | None:
        """The id of a piece, None if the vocabulary lacks it."""
        number = self._plain.token_to_id(piece)
        return None if number is None else int(number)

    def role(self, name: str) -> int:
        """The id of a role. Raises a `RecipeError` that lists the known roles if this tokenizer lacks it."""
        try:
            return self.roles[name]
        except KeyError:
            raise RecipeError(f"the tokenizer ({self.kind}) has no {name}. {propose(name, self.roles)}") from None

    def save(
        self,
        folder: Path,
        *,
        length: int,
        frame_single: str,
        frame_pair: str | None = None,
        tokenizer_class: str | None = None,
    ) -> None:
        """Write the files that `AutoTokenizer.from_pretrained(folder)` reads, with the reading frame; see `layout`."""
        write_folder(self, Path(folder), length, frame_single, frame_pair, tokenizer_class)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read a tokenizer from one of our folders or any Hugging Face folder; see `layout`."""
        return read_folder(Path(folder), cls)

    def _flat(
        self, engine: tokenizers.Tokenizer, texts: Sequence[str]
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.int64]]:
        # Only pieces of WordPiece and those with ▁, and whole words, show where words begin; the fast call does not return words.
        by_piece = self.kind in ("wordpiece", "fallback_bpe", "words")
        call = engine.encode_batch_fast if by_piece else engine.encode_batch
        texts = readable(texts)
        encodings = call(texts, add_special_tokens=False)
        return self.joined(*(self._plainly(encodings, texts) if engine is self._plain else self._flattened(encodings)))

    def _plainly(
        self, encodings: list[Any], texts: Sequence[str]
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.int64]]:
        """Encodings of plain texts in one array. Those in which a Unigram model took a literal for a piece are made again."""
        ids, starts, offsets = self._flattened(encodings)
        if self.kind != "unigram":
            return ids, starts, offsets
        unknown = self.roles.get("[UNK]", -1)
        special = np.zeros(self.size, dtype=np.bool_)
        special[self.special_ids] = True
        tokens = np.flatnonzero(special[ids])
        numbers = np.searchsorted(offsets, tokens, side="right") - 1
        suspects = np.unique(numbers[ids[tokens] == unknown]).tolist()
        literals = [number for number in suspects if self.literals["[UNK]"] in texts[number]]
        again = {*np.unique(numbers[ids[tokens] != unknown]).tolist(), *literals}
        for number in again:
            encodings[number] = self._no_literal.encode(texts[number], add_special_tokens=False)
        return self._flattened(encodings) if again else (ids, starts, offsets)

    @cached_property
    def _no_literal(self) -> tokenizers.Tokenizer:
        """The same Unigram model with its special pieces renamed, so that no text contains one; ids are places in its list."""
        data = json.loads(self._json)
        special = {str(self._plain.id_to_token(id)) for id in self.special_ids.tolist()}
        pieces = [[f"\uffff{piece}" if piece in special else piece, score] for piece, score in data["model"]["vocab"]]
        held = {piece.removeprefix("\uffff") for piece, _ in pieces if piece.startswith("\uffff")}
        data["model"]["vocab"] = pieces
        data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] not in held]
        return tokenizers.Tokenizer.from_str(json.dumps(data, ensure_ascii=False))

    def _flattened(self, encodings: list[Any]) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.int64]]:
        offsets = np.zeros(len(encodings) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, encodings), dtype=np.int64, count=len(encodings)), out=offsets[1:])
        total = int(offsets[-1])
        ids = np.fromiter(chain.from_iterable([e.ids for e in encodings]), dtype=np.int32, count=total)
        if self._hidden:
            for token in np.flatnonzero(ids == self.roles["[UNK]"]).tolist():
                number = int(np.searchsorted(offsets, token, "right")) - 1
                spelling = encodings[number].tokens[token - int(offsets[number])]
                ids[token] = self._hidden.get(spelling, ids[token])
        if self.kind == "wordpiece":
            return ids, self._begins[ids], offsets
        if self.kind == "words":
            return ids, np.ones(total, dtype=np.bool_), offsets
        if self.kind == "fallback_bpe":
            starts = self._begins[ids]
            starts[1:] |= self._breaks[ids[:-1]]
            starts[offsets[:-1][offsets[:-1] < total]] = True
            return ids, starts, offsets
        every = chain.from_iterable([e.word_ids for e in encodings])
        # A special token belongs to no word: it starts one, and so does what follows it.
        words = np.fromiter((-1 if w is None else w for w in every), dtype=np.int64, count=total)
        starts = np.ones(total, dtype=np.bool_)
        np.logical_or(words[1:] != words[:-1], words[1:] < 0, out=starts[1:])
        starts[offsets[:-1][offsets[:-1] < total]] = True
        return ids, starts, offsets

    @cached_property
    def _hidden(self) -> Mapping[str, int]:
        """The ids of pieces that no text is cut into, by their spellings."""
        if HIDDEN not in self._json:
            return {}
        return {piece[1:]: number for number, piece in enumerate(self.spellings) if piece.startswith(HIDDEN)}

    @cached_property
    def _begins(self) -> NDArray[np.bool_]:
        """For each id of a vocabulary of WordPiece, or of BPE with ▁, whether it begins a word."""
        if self.kind == "fallback_bpe":
            begins = np.array([piece.startswith(SPACE) for piece in self.spellings], dtype=np.bool_)
            begins[self.special_ids] = True
            return begins
        prefix = json.loads(self._json)["model"].get("continuing_subword_prefix", "##")
        begins = np.ones(self.size, dtype=np.bool_)
        begins[[i for piece, i in self._plain.get_vocab().items() if piece.startswith(prefix)]] = False
        begins[self.special_ids] = True
        return begins

    @cached_property
    def _breaks(self) -> NDArray[np.bool_]:
        """For each id of a vocabulary of BPE with ▁, whether a word begins behind it: line ends, tabs and special tokens."""
        breaks = np.array([piece.isspace() or piece in _BREAKS for piece in self.spellings], dtype=np.bool_)
        breaks[self.special_ids] = True
        return breaks

    @cached_property
    def _special(self) -> tokenizers.Tokenizer:
        return tokenizers.Tokenizer.from_str(self._json)

    def _id_of(self, role: str, literal: str) -> int:
        number = self.id(literal)
        if number is None:
            raise RecipeError(f"tokenizer: the literal {literal!r} of {role} is not in the vocabulary.")
        return number


def _kind(data: Mapping[str, Any]) -> str:
    """The kind of a tokenizer.json. BPE is over bytes if its pre-tokenizer makes bytes of a text, else over characters: of words
    with a mark at their ends, or of a text in which ▁ stands for spaces."""
    kind = KINDS.get(data["model"].get("type", ""), "other")
    if kind != "byte_bpe":
        return kind
    if data["model"].get("end_of_word_suffix"):
        return "bpe"
    before = data.get("pre_tokenizer") or {}
    steps = [before, *before.get("pretokenizers", [])]
    return kind if any(step.get("type") == "ByteLevel" for step in steps) else "fallback_bpe"


def _has_role(token: Mapping[str, Any], literals: Mapping[str, str]) -> bool:
    """Whether a template or an edit writes an added token; texts may write those of languages, too, as in transformers."""
    other_roles = {literal for role, literal in literals.items() if role not in LANGUAGE_ROLES}
    return token["content"] in other_roles or _SENTINEL.fullmatch(token["content"]) is not None


def _sentinels(data: Mapping[str, Any]) -> NDArray[np.int32]:
    """The ids of `<extra_id_0>`, `<extra_id_1>`, … in that order; T5's names for what stands for a masked span."""
    sentinels = {
        int(match.group(1)): int(token["id"])
        for token in data.get("added_tokens", []) if (match := _SENTINEL.fullmatch(token["content"]))
    }
    return np.array([sentinels[number] for number in sorted(sentinels)], dtype=np.int32)


def _check_ids(data: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` if most ids up to the largest have no piece: tables of that size would fill the memory."""
    vocab = data["model"].get("vocab")
    ids = [token["id"] for token in data.get("added_tokens", [])]
    ids += vocab.values() if isinstance(vocab, dict) else [len(vocab or ())]
    wrong = next((number for number in ids if not isinstance(number, int) or number < 0), None)
    if wrong is not None:
        raise CheckpointError(f"tokenizer.json: {wrong!r} is not an id; expected a whole number of 0 or more.")
    if max(ids, default=0) > 10 * len(ids) + (len(vocab or ())) + 100_000:
        raise CheckpointError(f"tokenizer.json: an id is {max(ids):,}, but there are {len(ids):,} pieces: the file is damaged.")
