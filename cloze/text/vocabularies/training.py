"""Training a tokenizer on a stream of texts: WordPiece, BPE, byte-level BPE or Unigram, reproducibly.

The tokenizer of whole words is in `words`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from cloze.bounds import Count, Natural, Share
from cloze.errors import CorpusError, RecipeError
from cloze.registry import lookup, names, register
from cloze.text.apart import set_apart
from cloze.text.encodings import readable
from cloze.text.normalise import Normalise
from cloze.text.roles import (
    BERT_LITERALS,
    ROBERTA_LITERALS,
    UNIGRAM_LITERALS,
    XLM_LITERALS,
    check_literals,
    in_id_order,
    sentinel_literals,
)
from cloze.text.segment import Segmenter, segmenter_of
from cloze.text.tokenizer import Tokenizer
from cloze.text.visual import with_visual_words
from cloze.text.vocabularies.sample import Alphabet, sample_texts

Report = Callable[[str], None]
_CONTINUES = "##"
_ENDS = "</w>"


class TokenizerTrainer(Protocol):
    """A part registered under "tokenizer": a frozen description of a tokenizer to train.

    A trainer with `train_on` reads the whole corpus instead of a sample, as counting words requires.
    """

    @property
    def size(self) -> int | None: ...

    def train(self, texts: list[str], normalise: Normalise) -> Tokenizer: ...


@runtime_checkable
class Streaming(Protocol):
    """A trainer that reads a stream of texts once, in bounded memory, and reports the result to `report`."""

    def train_on(self, texts: Iterable[str], normalise: Normalise, report: Report) -> Tokenizer: ...


@dataclass(frozen=True)
class TextSpec:
    """A recipe's `text`: the normalisation switches, the tokenizer to train, and the segmenter whose words it takes.

    Only a tokenizer of whole words is cut by `words`; others keep their pieces, and the store marks the words.
    """

    normalise: Normalise = field(default_factory=Normalise)
    tokenizer: TokenizerTrainer | None = None
    words: Segmenter | None = None

    @classmethod
    def of(
        cls, normalise: Mapping[str, Any] | None, tokenizer: str, arguments: Mapping[str, Any], words: Segmenter | None = None
    ) -> TextSpec:
        """From a recipe: switches, the tokenizer's name and arguments, and the segmenter."""
        return cls(Normalise.of(normalise), lookup("tokenizer", tokenizer)(**dict(arguments)), words)


@register("tokenizer", "wordpiece")
@dataclass(frozen=True)
class WordPiece:
    """BERT's WordPiece: greedy longest match inside words (Wu et al. 2016; Devlin et al. 2019, §3).

    size: how many pieces the vocabulary has in all.
    min_frequency: a pair seen less often is not merged.
    special: role → literal, ids from 0 in that order.
    coverage: the share of characters that the alphabet must cover; words with rarer ones become [UNK].
    visual: how many of the last ids are visual words, by set: `{frames: 20736}` adds `[>]` and `[frames/0]`, `[frames/1]`, …

    Differs: the original trainer is unpublished; this is the pair-merging of `tokenizers`, with a fixed alphabet so that
    two runs agree.
    """

    size: Count = 30522
    min_frequency: Natural = 2
    special: dict[str, str] | None = None
    coverage: Share = 0.9999
    visual: dict[str, Count] | None = None

    def train(self, texts: list[str], normalise: Normalise) -> Tokenizer:
        """Train on texts held in memory."""
        sets = self.visual or {}
        room = self.size - sum(sets.values()) - bool(sets)
        literals = check_literals(BERT_LITERALS if self.special is None else self.special)
        engine = tokenizers.Tokenizer(models.WordPiece(unk_token=literals["[UNK]"]))
        normaliser = normalise.build("wordpiece")
        if normaliser is not None:
            engine.normalizer = normaliser
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.WordPiece(prefix=_CONTINUES)
        special = in_id_order(literals)
        characters, inside = Alphabet.of(texts, normaliser).chosen(self.coverage, most=max(1, room // 2))
        # The trainer numbers "##x" in the order of a randomly seeded hash table and breaks ties of merges by number.
        # Reserving these pieces in sorted order is what makes two runs agree.
        reserved = [_CONTINUES + character for character in inside]
        trainer = trainers.WordPieceTrainer(
            vocab_size=max(room, len(special) + len(reserved) + len(characters)),
            min_frequency=self.min_frequency,
            special_tokens=[*special, *reserved],
            initial_alphabet=characters,
            limit_alphabet=len(characters),
            continuing_subword_prefix=_CONTINUES,
            show_progress=False,
        )
        engine.train_from_iterator(texts, trainer, length=len(texts))
        tokenizer = Tokenizer(json.dumps(_only_special(json.loads(engine.to_str()), special)), literals)
        for name, count in sets.items():
            tokenizer = with_visual_words(tokenizer, name, count)
        return tokenizer


@register("tokenizer", "byte_bpe")
@dataclass(frozen=True)
class ByteBPE:
    """Byte-level BPE of GPT-2 (Radford et al. 2019, §2.2) and RoBERTa (Liu et al. 2019, §4.4): no unknown text.

    size: how many pieces the vocabulary has in all, the 256 bytes and the special tokens among them.
    min_frequency: a pair seen less often is not merged.
    special: role → literal, ids in that order, from 0.
    special_last: the ids of the special tokens are the last ones, as in GPT-2.
    digits_apart: each digit is a piece of its own (SmolLM).
    """

    size: Count = 50265
    min_frequency: Natural = 2
    special: dict[str, str] | None = None
    special_last: bool = False
    digits_apart: bool = False

    def train(self, texts: list[str], normalise: Normalise) -> Tokenizer:
        """Train on texts held in memory."""
        literals = check_literals(ROBERTA_LITERALS if self.special is None else self.special)
        engine = tokenizers.Tokenizer(models.BPE())
        normaliser = normalise.build("byte_bpe")
        if normaliser is not None:
            engine.normalizer = normaliser
        by_byte = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        digits = pre_tokenizers.Digits(individual_digits=True)
        engine.pre_tokenizer = pre_tokenizers.Sequence([digits, by_byte]) if self.digits_apart else by_byte
        engine.decoder = decoders.ByteLevel()
        special = in_id_order(literals)
        trainer = trainers.BpeTrainer(
            vocab_size=max(self.size, 256 + len(special)),
            min_frequency=self.min_frequency,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        engine.train_from_iterator(texts, trainer, length=len(texts))
        data = json.loads(engine.to_str())
        for token in data["added_tokens"]:
            # RoBERTa's mask includes the space before it: "a <mask>" has no space token before the mask.
            token["lstrip"] = token["content"] == literals.get("[MASK]")
        return Tokenizer(json.dumps(_moved_last(data, len(special)) if self.special_last else data), literals)


@register("tokenizer", "bpe")
@dataclass(frozen=True)
class BPE:
    """BPE over characters, the end of a word marked by `</w>` (Sennrich et al. 2016), as GPT and XLM use it.

    Words are cut as BERT cuts them.

    size: how many pieces the vocabulary has in all.
    min_frequency: a pair seen less often is not merged.
    special: role → literal, ids from 0 in that order (default: XLM's).
    coverage: the share of characters that the alphabet must cover; rarer ones become [UNK].

    Differs: GPT's ftfy and spaCy and XLM's Moses are replaced by the switches of `normalise` and BERT's cuts. So are the
    segmenters with which XLM finds words of Chinese, Japanese and Thai (`tools/tokenize.sh`): here ideographs are words, and runs
    of kana or Thai stay whole.
    """

    size: Count = 40478
    min_frequency: Natural = 2
    special: dict[str, str] | None = None
    coverage: Share = 0.9999

    def train(self, texts: list[str], normalise: Normalise) -> Tokenizer:
        """Train on texts held in memory."""
        literals = check_literals(XLM_LITERALS if self.special is None else self.special)
        engine = tokenizers.Tokenizer(models.BPE(unk_token=literals["[UNK]"], end_of_word_suffix=_ENDS))
        normaliser = normalise.build("bpe")
        if normaliser is not None:
            engine.normalizer = normaliser
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.BPEDecoder(suffix=_ENDS)
        special = in_id_order(literals)
        alphabet = Alphabet.of(texts, normaliser)
        characters, _ = alphabet.chosen(self.coverage, most=max(1, self.size // 2))
        # As in WordPiece, the order of "x</w>" must not depend on a hash table.
        reserved = [character + _ENDS for character in alphabet.final(characters)]
        trainer = trainers.BpeTrainer(
            vocab_size=max(self.size, len(special) + len(reserved) + len(characters)),
            min_frequency=self.min_frequency,
            special_tokens=[*special, *reserved],
            initial_alphabet=characters,
            limit_alphabet=len(characters),
            end_of_word_suffix=_ENDS,
            show_progress=False,
        )
        engine.train_from_iterator(texts, trainer, length=len(texts))
        return Tokenizer(json.dumps(_only_special(json.loads(engine.to_str()), special)), literals)


@register("tokenizer", "unigram")
@dataclass(frozen=True)
class Unigram:
    """The unigram language model over pieces (Kudo 2018, "Subword Regularization", §3.2), as XLNet and T5 use it.

    size: how many pieces the vocabulary has in all.
    special: role → literal, ids from 0 in that order.
    coverage: the share of characters that must have a piece of their own; rarer ones become [UNK].
    sentinels: how many of the last ids stand for masked spans, `<extra_id_0>` the very last (Raffel et al. 2020, §3.1.4).
    """

    size: Count = 32000
    special: dict[str, str] | None = None
    coverage: Share = 0.99995
    sentinels: Natural = 0

    def train(self, texts: list[str], normalise: Normalise) -> Tokenizer:
        """Train on texts held in memory."""
        from cloze.text.vocabularies.unigram import train_pieces, unigram_engine

        literals = check_literals(UNIGRAM_LITERALS if self.special is None else self.special)
        special = in_id_order(literals)
        last = sentinel_literals(self.sentinels)
        normaliser = normalise.build("unigram")
        room = self.size - len(special) - len(last)
        if room < 1:
            raise RecipeError(
                f"text.tokenizer.unigram: size {self.size} leaves no room for pieces besides {len(special)} special tokens "
                f"and {len(last)} sentinels; expected a larger size."
            )
        pieces = train_pieces(texts, normaliser, size=room, coverage=self.coverage)
        engine = unigram_engine(pieces, special, literals["[UNK]"], normaliser, last=last)
        return Tokenizer(engine.to_str(), literals)


def train(
    spec: Any,
    texts: Iterable[str],
    *,
    size: int | None = None,
    budget_bytes: int = 200_000_000,
    seed: int = 0,
    report: Report = lambda line: None,
) -> Tokenizer:
    """Train the tokenizer of a recipe's `text` on a stream of texts, lines or documents.

    `spec` is a `TextSpec`, or anything with `normalise` (a mapping) and `tokenizer` (with `name` and `arguments`). Words are
    counted in the whole stream; for the other tokenizers a stream of more than `budget_bytes` of UTF-8 is sampled: every text
    gets a key from `seed` and its place, and those with the smallest keys are kept, so the choice is the same in every run;
    `report` receives details. `size` overrides the recipe's. Raises `CorpusError` if there is no text at all.
    """
    chosen = spec_of(spec)
    trainer = trainer_of(chosen, size)
    if isinstance(trainer, Streaming):
        cut = texts if chosen.words is None else (set_apart(chosen.words, text).text for text in _readable(texts))
        counted: Tokenizer = trainer.train_on(cut, chosen.normalise, report).cut_by(chosen.words)
        _check_plain(counted)
        return counted
    sample = sample_texts(texts, budget_bytes, seed)
    if not any(text.strip() for text in sample.texts):
        raise CorpusError("training a tokenizer: the corpus holds no text; expected at least one line that is not blank.")
    if sample.total_bytes > sample.kept_bytes:
        report(
            f"tokenizer trained on a sample of {sample.kept_bytes / 1e6:.0f} MB of {sample.total_bytes / 1e6:.0f} MB "
            f"(budget {budget_bytes / 1e6:.0f} MB, seed {seed})"
        )
    trained: Tokenizer = trainer.train(sample.texts, chosen.normalise)
    if trained.size != trainer.size:
        why = "more text would give more" if trained.size < trainer.size else "the text has that many different characters"
        report(f"the vocabulary has {trained.size:,} pieces instead of the {trainer.size:,} requested: {why}")
    _check_plain(trained)
    return trained


def trainer_of(spec: Any, size: int | None = None) -> Any:
    """The trainer that a recipe's `text` names; `size` overrides its size."""
    chosen = spec_of(spec)
    if chosen.tokenizer is None:
        raise RecipeError(f"text.tokenizer: no tokenizer named; expected one of {', '.join(names('tokenizer'))}.")
    trainer: Any = chosen.tokenizer
    return trainer if size is None else replace(trainer, size=size)


def spec_of(spec: Any) -> TextSpec:
    """A recipe's `text` as it is trained, from what `train` takes."""
    if isinstance(spec, TextSpec):
        return spec
    part = spec.tokenizer
    return TextSpec.of(spec.normalise, part.name, part.arguments, segmenter_of(spec))


def _readable(texts: Iterable[str]) -> Iterator[str]:
    return (readable([text])[0] for text in texts)


def _check_plain(tokenizer: Tokenizer) -> None:
    """Check that plain text cannot produce a special token other than [UNK]."""
    forbidden = set(tokenizer.special_ids.tolist()) - {tokenizer.role("[UNK]")}
    for role, literal in tokenizer.literals.items():
        if forbidden & set(tokenizer.encode(f"a {literal} b{literal}c").ids.tolist()):
            raise RecipeError(
                f"text.tokenizer.special: plain text can produce {literal!r} ({role}); choose a literal that starts and "
                "ends with a punctuation mark."
            )


def _only_special(data: dict[str, Any], special: list[str]) -> dict[str, Any]:
    """Without the added tokens that only reserved an id."""
    return {**data, "added_tokens": [token for token in data["added_tokens"] if token["content"] in special]}


def _moved_last(data: dict[str, Any], count: int) -> dict[str, Any]:
    """The same BPE with its first `count` ids moved behind all others."""
    size = len(data["model"]["vocab"])
    moved = {piece: (i - count) % size for piece, i in data["model"]["vocab"].items()}
    data["model"]["vocab"] = dict(sorted(moved.items(), key=lambda item: item[1]))
    for token in data["added_tokens"]:
        token["id"] = (token["id"] - count) % size
    return data
