"""Normalisation of characters before words are cut: BERT's cleaning, with a switch for each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tokenizers import normalizers

from cloze.errors import RecipeError, propose


@dataclass(frozen=True)
class Normalise:
    """The switches of BERT's basic cleaning (Devlin et al. 2019, `BasicTokenizer` of google-research/bert).

    lower: lower-case every character.
    strip_accents: decompose and drop combining marks, by default whenever `lower` is on (for Unigram by NFKD, as in
      `preprocess_text` of google-research/albert).
    cjk_spacing: put spaces around CJK ideographs.
    clean: drop control characters and turn all white space into spaces.

    `None` means what the tokenizer's paper does: all but lower-casing for WordPiece and BPE, nothing for byte-level BPE, NFKC
    for Unigram, cleaning alone for whole words (see `for_kind`).
    """

    lower: bool = False
    strip_accents: bool | None = None
    cjk_spacing: bool | None = None
    clean: bool | None = None

    @classmethod
    def of(cls, switches: Mapping[str, Any] | Normalise | None) -> Normalise:
        """The object for a recipe's `text.normalise` mapping."""
        if isinstance(switches, Normalise):
            return switches
        known = {field.name for field in fields(cls)}
        for name, value in (switches or {}).items():
            if name not in known:
                raise RecipeError(f"text.normalise: unknown key {name!r}. {propose(name, known)}")
            if value is not None and not isinstance(value, bool):
                raise RecipeError(f"text.normalise.{name}: {value!r} is not true or false.")
        return cls(**dict(switches or {}))

    def for_kind(self, kind: str) -> Normalise:
        """The same with every `None` replaced by the default of this kind of tokenizer."""
        bert, words = kind in ("wordpiece", "bpe"), kind == "words"
        return Normalise(
            lower=self.lower,
            strip_accents=self.lower and not words if self.strip_accents is None else self.strip_accents,
            cjk_spacing=bert if self.cjk_spacing is None else self.cjk_spacing,
            clean=bert or words if self.clean is None else self.clean,
        )

    def applied(self, kind: str) -> Callable[[str], str]:
        """What these switches do to a string before it is cut into words."""
        normaliser = self.build(kind)
        return str if normaliser is None else normaliser.normalize_str

    def build(self, kind: str) -> normalizers.Normalizer | None:
        """The `tokenizers` normaliser for these switches, or None if there is nothing to do."""
        chosen = self.for_kind(kind)
        steps: list[normalizers.Normalizer] = []
        if kind == "unigram" and chosen.strip_accents:
            steps.append(normalizers.NFKD())
        if any(asdict(chosen).values()):
            steps.append(
                normalizers.BertNormalizer(
                    clean_text=bool(chosen.clean),
                    handle_chinese_chars=bool(chosen.cjk_spacing),
                    strip_accents=bool(chosen.strip_accents),
                    lowercase=chosen.lower,
                )
            )
        if kind == "unigram":
            steps.append(normalizers.NFKC())
        if not steps:
            return None
        return steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
