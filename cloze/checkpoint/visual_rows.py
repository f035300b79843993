"""`cloze vocab visual --init`: a checkpoint with visual words as tokens, whose rows are the centroids of their clusters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from cloze.checkpoint.entity_rows import with_rows
from cloze.checkpoint.share import card_of, write_copy
from cloze.corpus.items.visual_words import VISUAL_WORDS, VisualWords
from cloze.errors import CheckpointError
from cloze.interop import Imported
from cloze.text.visual import with_visual_words


def require_width(source: Path, imported: Imported, width: int) -> None:
    """Raise a `CheckpointError` unless the rows of a checkpoint's token table have so many numbers."""
    table = imported.model.network.get("embeddings.tokens.weight")
    if table is None or table.shape[1] != width:
        rows = "no table of tokens" if table is None else f"rows of {table.shape[1]} numbers for its tokens"
        raise CheckpointError(
            f"{source}: has {rows}, and the vectors of the items have {width}, so their centroids cannot be such rows.\n"
            f"  Take a checkpoint of width {width}, or add the words to its vocabulary alone: --tokenizer {source}"
        )


def add_visual_words(source: Path, imported: Imported, words: VisualWords, name: str, out: Path) -> Sequence[str]:
    """Write the checkpoint `imported` from `source` to the new folder `out` with a token for each visual word; returns remarks.

    Its row is the centroid of its cluster (Sun et al., VideoBERT, 2019, §4.3), also in heads that score tokens by a map of
    their own. The row of `[>]` is the mean of all rows. The tree is in the folder, too. Errors: see `require_width`.
    """
    require_width(source, imported, words.width)
    table, tokenizer = imported.model.network["embeddings.tokens.weight"], imported.tokenizer
    new_tokenizer = with_visual_words(tokenizer, name, words.size)
    border = table[: tokenizer.size].float().mean(0, keepdim=True).expand(new_tokenizer.size - tokenizer.size - words.size, -1)
    rows = torch.cat([border, torch.from_numpy(words.centres[-1]).float()])
    changed = with_rows(imported, new_tokenizer, rows, outputs=rows, bias=0.0)
    card = card_of(source, imported, languages=(), licence=None, data=None, folder=out.name)
    return write_copy(source, out, changed, card, finish=lambda stage: words.save(stage / VISUAL_WORDS))
