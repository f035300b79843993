"""Texts with the prompts of a folder of sentence-transformers in front of them."""

from __future__ import annotations

from collections.abc import Sequence

from cloze.decoding.reader import Checkpoint
from cloze.interop.prompts import Prompts, prompts_of


def with_prompts(loaded: Checkpoint, texts: Sequence[str], name: str | None = None, *, default: bool = True) -> list[str]:
    """The texts with the prompt of that name, or without a name with the one that every text has unless `default` is off.

    A `UserError` if the folder has no prompt of the name.
    """
    prompts: Prompts = prompts_of(loaded.folder)
    prompt = prompts.called(name, loaded.folder) if default or name is not None else ""
    return [prompt + text for text in texts]


def prompt_remark(loaded: Checkpoint, name: str | None) -> list[str]:
    """A sentence on the prompts of a folder that the texts do not have, for one that was trained with prompts."""
    prompts = prompts_of(loaded.folder)
    if name is not None or prompts.default_text or not prompts.by_name:
        return []
    return [f"{loaded.folder} has prompts for {', '.join(prompts.by_name)}; no text got one. Name it: --prompt NAME"]
