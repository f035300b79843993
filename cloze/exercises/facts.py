"""What edits know of a tokenizer: ids of roles, which ids are ordinary, how to read a literal. No tokenizer object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError, nearest


@dataclass(frozen=True)
class TokenFacts:
    """Ids of roles, the ordinary ids, and a reader for literal text in templates."""

    size: int
    roles: Mapping[str, int]
    ordinary: NDArray[np.int32]
    read: Callable[[str], Sequence[int]]

    @classmethod
    def of(cls, tokenizer: Any) -> TokenFacts:
        """The facts of a `cloze.text.Tokenizer`."""
        return cls(
            size=tokenizer.size,
            roles=dict(tokenizer.roles),
            ordinary=np.asarray(tokenizer.ordinary_ids, dtype=np.int32),
            read=lambda text: tokenizer.encode(text).ids.tolist(),
        )

    def role(self, name: str) -> int:
        """The id that plays a role such as `[MASK]`."""
        if name not in self.roles:
            raise RecipeError(f"this tokenizer has no token for the role {name}. {nearest(name, self.roles)}")
        return self.roles[name]

    def __getstate__(self) -> dict[str, Any]:
        # Data workers receive facts by pickle; templates are read before that, so the reader stays behind.
        return {"size": self.size, "roles": self.roles, "ordinary": self.ordinary, "read": None}


def needed(facts: TokenFacts | None, edit: str) -> TokenFacts:
    """The facts, or a plain error when an edit that needs a tokenizer is run without one."""
    if facts is None:
        raise RecipeError(f"{edit} needs a tokenizer to run; give it tokenizer=TokenFacts.of(...).")
    return facts
