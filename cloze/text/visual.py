"""Tokens for what is no text: visual words, which stand for frames of a film or regions of a picture (VideoBERT)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cloze.errors import CorpusError
from cloze.text.tokenizer import Tokenizer

#: Stands between a text and the visual words that follow it (Sun et al., VideoBERT, 2019, §3.2).
BORDER = "[>]"


def visual_token(name: str, number: int) -> str:
    """How a vocabulary spells a visual word of the set `name`."""
    return f"[{name}/{number}]"


def with_visual_words(tokenizer: Tokenizer, name: str, count: int) -> Tokenizer:
    """The same tokenizer with `[>]` and the tokens `[<name>/0]`, `[<name>/1]`, …, whose ids follow one another."""
    if tokenizer.id(visual_token(name, 0)) is not None:
        raise CorpusError(f"the vocabulary has visual words {visual_token(name, 0)} already; choose another name.")
    border = [BORDER] if tokenizer.id(BORDER) is None else []
    return with_tokens(tokenizer, [*border, *(visual_token(name, number) for number in range(count))])


def with_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokenizer:
    """The same tokenizer with further tokens, which it finds in a text as they are written; their ids follow the others."""
    data = json.loads(tokenizer.description)
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    data["added_tokens"] += [{"id": tokenizer.size + number, "content": text, **plain} for number, text in enumerate(texts)]
    return tokenizer.described_by(json.dumps(data, ensure_ascii=False))
