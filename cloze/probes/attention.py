"""What each head of a network attends to, and how broadly.

Clark et al., "What Does BERT Look At? An Analysis of BERT's Attention" (2019, §3); computed as in General_Analysis.ipynb and
bpe_utils.py of clarkkev/attention-analysis.

Differs: in place of [CLS] and [SEP] stand the first token, whatever it is, and the other tokens that the template inserts; every
punctuation mark counts, not only full stops and commas; a word of several pieces attends with their mean, as in the paper, and
not with its first piece, as `make_attn_word_level` of bpe_utils.py has it. The legend of the authors' figure exchanges the next
token and the previous one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import UserError
from cloze.probes.distance import is_punctuation
from cloze.probes.gates import require_attention
from cloze.probes.words import Spans

Floats = NDArray[np.float64]
Shares = NDArray[np.float32]
_SMOOTHED = 1e-4  # of each row of attention is spread over all tokens before logarithms are taken


@dataclass(frozen=True)
class AttentionHabits:
    """What the heads of a network attend to.

    `shares`: of attention, by what it goes to, each (N, H), means over texts. `entropy` and `first_entropy` (N, H): the entropy
    in nats of the attention of all tokens, and of the first; `uniform`: that of attention which is alike on all tokens that may
    be attended to.
    """

    shares: Mapping[str, Floats]
    entropy: Floats
    first_entropy: Floats
    uniform: float
    texts: int


def attention_habits(
    loaded: Checkpoint, texts: Sequence[str], *, length: int | None = None, size: int = 32
) -> AttentionHabits:
    """Measure the attention of every token of some texts, of an encoder-decoder that of the encoder.

    Raises:
        UserError: The network has no attention, or there is no text of two tokens.
    """
    require_attention(loaded.network)
    reader = Reader.of(loaded)
    rows = [row for row in reader.encode(texts, max_length=length) if len(row) > 1]
    if not rows:
        raise UserError("no text has two tokens to attend to: give longer ones, or a larger --length.")
    totals: dict[str, Any] = {}
    for number, attention in each_attention(reader, rows, size=size):
        for name, value in _measured(attention, *kinds_of(reader, rows[number])).items():
            totals.setdefault(name, []).append(value)
    with np.errstate(invalid="ignore"):
        means = {name: _mean(values) for name, values in totals.items()}
    entropy, first_entropy, uniform = (means.pop(name) for name in ("entropy", "first entropy", "uniform"))
    return AttentionHabits(means, entropy, first_entropy, float(uniform), len(rows))


def each_attention(reader: Reader, rows: Sequence[Framed], *, size: int = 32) -> Iterator[tuple[int, Shares]]:
    """The number of each row and its attention (N, H, L, L), from the tokens of the second axis but one to those of the last."""
    for index in reader.batches([len(row) for row in rows], rows=size):
        with torch.inference_mode():
            attention = reader.states(reader.batch([rows[i] for i in index]), {"attention"})["attention"].float().cpu().numpy()
        for position, number in enumerate(index):
            columns = slice(len(rows[number]))
            yield int(number), attention[:, position, :, columns, columns]


def kinds_of(reader: Reader, row: Framed) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which tokens of a row the template inserts, and which are punctuation (L)."""
    tokenizer = reader.tokenizer
    text = row.part >= 0
    marks = [is_punctuation(tokenizer.decode([int(i)]).strip("# ") or "#") for i in row.ids]
    return ~text, np.array(marks) & text


def _measured(attention: Shares, inserted: NDArray[np.bool_], marks: NDArray[np.bool_]) -> dict[str, Any]:
    """The measures of one text, each (N, H); NaN where it has no such token."""
    size = attention.shape[-1]
    shares = attention.astype(np.float64)
    received = shares.mean(-2)  # (N, H, L)
    separators = inserted.copy()
    separators[0] = False
    smooth = (1 - _SMOOTHED) * shares + _SMOOTHED / size
    entropies = -(smooth * np.log(smooth)).sum(-1)  # (N, H, L)
    visible = (attention > 0).any((0, 1)).sum(-1)
    none = np.full(attention.shape[:2], np.nan)

    def on(columns: NDArray[np.bool_], rows: NDArray[np.bool_]) -> Floats:
        """The share that these rows give these columns."""
        return shares[:, :, rows][..., columns].sum(-1).mean(-1) if columns.any() and rows.any() else none

    every = np.ones(size, bool)
    return {
        "previous": np.trace(shares, -1, -2, -1) / size, "same": np.trace(shares, 0, -2, -1) / size,
        "next": np.trace(shares, 1, -2, -1) / size, "first": received[..., 0], "special": on(separators, every),
        "special, from special": on(separators, separators), "special, from others": on(separators, ~separators),
        "punctuation": on(marks, every) if marks.any() else np.zeros_like(none),
        "entropy": entropies.mean(-1), "first entropy": entropies[..., 0], "uniform": np.log(visible).mean(),
    }  # fmt: skip


def _mean(values: Sequence[Any]) -> Any:
    """The mean over the texts in which a measure is defined; NaN if there is none."""
    stacked = np.stack(values)
    return np.where(np.isnan(stacked).all(0), np.nan, np.nansum(stacked, 0) / (~np.isnan(stacked)).sum(0))


def word_attention(attention: Shares, columns: Spans) -> Shares:
    """Attention between words (…, K, K) from that between tokens (…, L, L): a word that is attended to has the sum over its
    `columns` (K, 2), from and up to; one that attends, the mean. A word without columns has and gives nothing."""
    token = np.arange(attention.shape[-1])
    inside = ((token >= columns[:, :1]) & (token < columns[:, 1:])).astype(attention.dtype)  # (K, L)
    rows = inside / np.maximum(inside.sum(1, keepdims=True), 1.0)
    words: Shares = rows @ attention @ inside.T
    return words
