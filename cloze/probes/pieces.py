"""How a token is shown to people."""

from __future__ import annotations

from typing import Any

_NAMED = {"\n": "⏎", "\t": "⇥", "\r": "␍", " ": "␣", "\u3000": "␣"}


def shown(tokenizer: Any, id: int) -> str:
    """A token as it reads in a text. Continued pieces keep the mark of their vocabulary (`##ing`), spaces before a word are not
    shown, and a token of white space is named. Bytes that are no whole character are shown as the vocabulary spells them.
    """
    if id >= tokenizer.size:
        return "?"
    piece = tokenizer.piece(id)
    text = tokenizer.decode([id], skip_special=False)
    if not text or "\ufffd" in text or piece.startswith("##"):
        return str(piece)
    word = str(text).strip()
    return word or "".join(_NAMED.get(letter, letter) for letter in text)
