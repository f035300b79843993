"""The prompts of a folder of sentence-transformers, which come before queries and passages, and how it compares vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloze.errors import CheckpointError, UserError
from cloze.interop.files import DESCRIPTION, read_json, write_json

PROMPTS, MODULES = "config_sentence_transformers.json", "modules.json"
_OF_QUERIES, _OF_PASSAGES = ("query",), ("document", "passage", "corpus")


@dataclass(frozen=True)
class Prompts:
    """Texts that come before others, by name, as sentence-transformers uses them.

    `default` names the one that a text has which is neither query nor passage, unless another is named. `similarity` is how
    vectors are compared: `cosine`, `dot`, another of sentence-transformers, or None if the folder is not one of its own.
    """

    by_name: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    similarity: str | None = None

    @property
    def default_text(self) -> str:
        """What comes before a text that is neither query nor passage; empty for nothing."""
        return self.by_name.get(self.default or "", "")

    @property
    def of_queries(self) -> str:
        """What comes before a query; empty for nothing."""
        return self._first(_OF_QUERIES)

    @property
    def of_passages(self) -> str:
        """What comes before a passage; empty for nothing.

        Differs: sentence-transformers 6 finds a prompt named `passage` or `corpus` only where it is asked for by name.
        """
        return self._first(_OF_PASSAGES)

    def _first(self, names: tuple[str, ...]) -> str:
        return next((self.by_name[name] for name in names if name in self.by_name), "")

    def called(self, name: str | None, folder: Path | str) -> str:
        """The prompt of that name, the usual one for None; a `UserError` for a name that the folder does not have."""
        if name is None:
            return self.default_text
        if name not in self.by_name:
            has = f"it has prompts for {', '.join(self.by_name)}" if self.by_name else f"it has no prompts ({PROMPTS})"
            raise UserError(f"--prompt {name}: {folder}: {has}.\n  Or write the words themselves at the beginning of each text.")
        return self.by_name[name]


NO_PROMPTS = Prompts()


def prompts_of(folder: Path | str) -> Prompts:
    """The prompts of a folder; none if it is not of sentence-transformers, or if cloze wrote it without. A damaged file is a
    `CheckpointError`."""
    path = Path(folder) / PROMPTS
    if not (Path(folder) / MODULES).is_file() or (not path.is_file() and (Path(folder) / DESCRIPTION).exists()):
        return NO_PROMPTS
    config: Mapping[str, Any] = read_json(path, "the prompts of the model") if path.is_file() else {}
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    similarity = config.get("similarity_fn_name")
    texts = isinstance(prompts, dict) and all(isinstance(text, str | None) for text in prompts.values())
    if not texts or not isinstance(default, str | None) or not isinstance(similarity, str | None):
        raise CheckpointError(
            f"{path}: expected prompts as texts by name, and default_prompt_name and similarity_fn_name as texts.\n"
            "  Copy the file again."
        )
    if default is not None and default not in prompts:
        raise CheckpointError(f"{path}: default_prompt_name is {default!r}; expected one of: {', '.join(prompts) or 'none'}.")
    return Prompts({name: text for name, text in prompts.items() if text}, default, similarity or "cosine")


def write_prompts(folder: Path, prompts: Prompts) -> None:
    """Write them as sentence-transformers does."""
    write_json(folder / PROMPTS, {
        "prompts": dict(prompts.by_name), "default_prompt_name": prompts.default if prompts.default_text else None,
        "similarity_fn_name": prompts.similarity,
    })  # fmt: skip
