"""The languages that a network reads and writes: told by the tokens of rows, or by the further input `language`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from cloze.errors import UserError, argument
from cloze.reading import Reading
from cloze.text.layout import language_token
from cloze.text.roles import LANGUAGE_ROLES


class Told(Protocol):
    """What `speaking` looks at."""

    @property
    def tokenizer(self) -> Any: ...

    @property
    def reading(self) -> Reading: ...

    @property
    def folder(self) -> Any: ...


def speaking(loaded: Told, language: str | None, to: str | None) -> Any:
    """The tokenizer with the tokens of these languages, where the network is told languages by tokens; None: the folder's.

    A `UserError` for a language that it does not know, and for `to` where there is nothing to choose.
    """
    reading = loaded.reading
    templates = " ".join(filter(None, (reading.single, reading.target, reading.start)))
    names = {"source": language} if "[SOURCE]" in templates else {}
    if "[TARGET]" in templates:
        names["target"] = to
    elif to is not None:
        what = f"{loaded.folder}: this network does not choose the language that it writes."
        raise UserError(f"{what}\n  Leave out ", argument("to"), ".")
    tokens = {side: _language_token(loaded, name) for side, name in names.items() if name is not None}
    return loaded.tokenizer.speaking(**tokens) if tokens else loaded.tokenizer


def _language_token(loaded: Told, language: str) -> str:
    """The token of a language; a `UserError` with those that there are."""
    languages = loaded.tokenizer.languages
    token = language_token(language, languages)
    if token is None:
        raise UserError(f"{loaded.folder}: it does not know the language {language!r}.\n  It knows: {_listed(languages)}.")
    return token


def _listed(languages: Sequence[str]) -> str:
    return ", ".join(languages[:200]) or "none"


def require_language(tokenizer: Any, role: str) -> None:
    """A `UserError` if nobody says which language is read or written."""
    if role in LANGUAGE_ROLES and role not in tokenizer.roles:
        option, does = ("language", "reads") if role == "[SOURCE]" else ("to", "writes")
        raise UserError(
            f"this network has to be told the language that it {does}.\n  Give ", argument(option, "LANGUAGE"),
            ", or set it for good: "
            f"cloze import FOLDER --out NEW --{option} LANGUAGE\n  It knows: {_listed(tokenizer.languages)}.",
        )


def language_id(loaded: Any, language: str) -> int:
    """The number of a language, given by name or number; a `UserError` if the network does not know it."""
    count = loaded.network.inputs.get("language", 0)
    names = list(loaded.languages)[:count]
    if not count:
        raise UserError(f"{loaded.folder}: this network knows no languages.\n  Leave --language out.")
    if language in names:
        return names.index(language)
    if language.isdecimal() and int(language) < count:
        return int(language)
    raise UserError(f"{loaded.folder}: it does not know the language {language!r}.\n  It knows: "
                    + (", ".join(names) or f"0 to {count - 1}") + ".")
