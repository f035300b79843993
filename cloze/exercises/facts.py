"""The facts about a tokenizer that edits need: ids of roles, ordinary ids, an encoder of literal text. No tokenizer object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError


@dataclass(frozen=True)
class TokenFacts:
    """Ids of roles, the ordinary ids, the sentinels (T5), an encoder for literal text in templates, the spelling of each id, and
    the text of tokenizer.json."""

    size: int
    roles: Mapping[str, int]
    ordinary: NDArray[np.int32]
    read: Callable[[str], Sequence[int]]
    sentinels: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    spellings: Sequence[str] = ()
    description: str = field(default="", repr=False)

    @classmethod
    def of(cls, tokenizer: Any) -> TokenFacts:
        """The facts of a `cloze.text.Tokenizer`."""
        return cls(
            size=tokenizer.size,
            roles=dict(tokenizer.roles),
            ordinary=np.asarray(tokenizer.ordinary_ids, dtype=np.int32),
            read=lambda text: tokenizer.encode(text).ids.tolist(),
            sentinels=np.asarray(tokenizer.sentinels, dtype=np.int32),
            spellings=tokenizer.spellings,
            description=tokenizer.description,
        )

    def role(self, name: str) -> int:
        """The id that plays a role such as `[MASK]`."""
        if name not in self.roles:
            raise RecipeError(
                f"this tokenizer has no token for the role {name}. Its roles: {', '.join(sorted(self.roles)) or 'none'}.\n"
                "  Use these in a recipe of your own (cloze show NAME > mine.yaml), or a tokenizer or checkpoint that has it."
            )
        return self.roles[name]

    def literal(self, kind: str, text: str) -> tuple[int, ...]:
        """The ids of one inserted piece of a template: a role, or text."""
        return (self.role(text),) if kind == "role" else tuple(self.read(text))

    def sentinel(self, number: NDArray[Any]) -> NDArray[np.int32]:
        """The sentinel ids of the spans 1, 2, …"""
        most = int(number.max(initial=0))
        if most > len(self.sentinels):
            raise RecipeError(
                f"{most} spans in one row, but this tokenizer has {len(self.sentinels)} sentinels. "
                "Give it more: `tokenizer: {unigram: {sentinels: 100}}`, or mask fewer and longer spans."
            )
        return self.sentinels[number - 1]

    def __getstate__(self) -> dict[str, Any]:
        # Data workers receive facts by pickle; templates are encoded before that, so the encoder is not pickled.
        return {**self.__dict__, "read": None}


def needed(facts: TokenFacts | None, edit: str) -> TokenFacts:
    """The facts; an error if an edit that needs a tokenizer runs without one."""
    if facts is None:
        raise RecipeError(f"{edit} needs a tokenizer to run; give it tokenizer=TokenFacts.of(...).")
    return facts
