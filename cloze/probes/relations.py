"""Which heads attend from words to their syntactic heads or back, relation by relation, and what all heads know together.

Clark et al., "What Does BERT Look At? An Analysis of BERT's Attention" (2019, §4.2 and §5); heads as predictors, offsets and the
attention-only classifier as in Syntax_Analysis.ipynb of clarkkev/attention-analysis.

Differs: the head and the offset of each relation are chosen on one file and measured on another; the authors choose those that
are best on the file that they measure. Offset 3 is among those tried. Possessors are measured like all words; theirs may be found
from the clitic after them. The classifier is trained on 20 sentences at a time, until the loss on a tenth of them no longer
falls, not once over 36,160 of them, one at a time; its weights begin at 0, the two of the root at 1, there at random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from cloze.corpus.readers.trees import Tree, each_tree
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import UserError, counted
from cloze.probes.attention import Shares, each_attention, word_attention
from cloze.probes.gates import require_attention
from cloze.probes.training import Convergence, converge, last_tenth, several_passes
from cloze.probes.words import WordRow, join_words, word_rows

Int64 = NDArray[np.int64]
ALL = "all"
DIRECTIONS = ("word → head", "head → word")
OFFSETS = (-3, -2, -1, 1, 2, 3)
_BATCH, _UPDATES = 20, 50
_CONVERGENCE = Convergence(rate=2e-3)


@dataclass(frozen=True)
class RelationScore:
    """How often a relation's syntactic heads are found: by the attention of the head (`layer`, `head`, from 0) in a `direction`,
    and by the word at the `offset`. `words` is how many there are."""

    words: int
    accuracy: float
    layer: int
    head: int
    direction: str
    offset: int
    baseline: float


@dataclass(frozen=True)
class RelationHeads:
    """By relation the best head and the best offset, `all` relations included; the unlabelled attachment score of a classifier of
    the attention of all heads, without punctuation, and that of the best offset. `accuracy` (2, N, H) by relation: of every head
    in both directions."""

    scores: Mapping[str, RelationScore]
    accuracy: Mapping[str, NDArray[np.float64]]
    uas: float
    uas_by_offset: float
    train: int
    test: int
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class ReadSentence:
    """A tree that was read whole, with the attention between its words (N, H, K + 2, K + 2); before them stand the tokens that
    the template inserts there as one, then those after them."""

    tree: Tree
    attention: Shares

    @property
    def heads(self) -> Int64:
        """The head of each word; 0: the root."""
        return np.array(self.tree.heads, np.int64)


class Counts:
    """How many syntactic heads are found by each head in each direction, and by each offset, relation by relation."""

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self.by_head: dict[str, Any] = {}
        self.by_offset: dict[str, Any] = {}

    def add(self, sentence: ReadSentence) -> None:
        """Count the words of a sentence."""
        right = guessed_heads(sentence.attention) == sentence.heads  # (2, N, H, K)
        near = offset_heads(len(sentence.heads)) == sentence.heads  # (O, K)
        names = np.array(sentence.tree.relations)
        for name in (ALL, *sorted(set(sentence.tree.relations))):
            chosen = np.flatnonzero((names == name) | (name == ALL))
            self.words[name] += len(chosen)
            self.by_head[name] = self.by_head.get(name, 0) + right[..., chosen].sum(-1)
            self.by_offset[name] = self.by_offset.get(name, 0) + near[:, chosen].sum(-1)


def guessed_heads(attention: Shares) -> Int64:
    """The number of the word, from 1, that each word attends to most, and that attends most to it, (2, N, H, K); itself and what
    the template inserts are left out."""
    words = attention[..., 1:-1, 1:-1].copy()
    diagonal = np.arange(words.shape[-1])
    words[..., diagonal, diagonal] = 0
    return np.stack([words.argmax(-1), words.argmax(-2)]) + 1


def offset_heads(count: int) -> Int64:
    """The number of the word at each of `OFFSETS` from every word (O, K), or of the last one; 0 before the first."""
    return np.clip(np.arange(1, count + 1) + np.array(OFFSETS)[:, None], 0, count)


def read_relations(path: Path | str, *, most: int) -> list[Tree]:
    """The first sentences of CoNLL-U with two words or more."""
    trees: list[Tree] = []
    for tree in each_tree(path):
        if len(tree.words) >= 2:
            trees.append(tree)
        if len(trees) == most:
            break
    if not trees:
        raise UserError(f"{path}: no sentence of two words or more: a relation needs two.")
    return trees


def relation_heads(
    loaded: Checkpoint, train: Sequence[Tree], test: Sequence[Tree], *, rare: int = 100, seed: int = 0, length: int | None = None,
    size: int = 32,
) -> RelationHeads:
    """Choose a head and an offset for every relation on `train`, where the classifier is trained, and measure them on `test`.

    Relations with fewer than `rare` words in `test`, without any in `train`, and `root` are left out.

    Raises:
        UserError: The network has no attention, or reads no sentence whole.
    """
    require_attention(loaded.network)
    reader = Reader.of(loaded)
    chosen, measured, sentences = Counts(), Counts(), []
    attached = by_offset = words = read = 0

    def choose(sentence: ReadSentence) -> None:
        chosen.add(sentence)
        sentences.append((torch.from_numpy(sentence.attention.astype(np.float16)), torch.from_numpy(sentence.heads)))

    each_sentence(reader, train, choose, length=length, size=size)
    model = fit_attention(sentences, seed)
    offset = int(chosen.by_offset[ALL].argmax())

    def judge(sentence: ReadSentence) -> None:
        nonlocal attached, by_offset, words, read
        measured.add(sentence)
        counting = np.array(sentence.tree.relations) != "punct"
        with torch.no_grad():
            guess = model(torch.from_numpy(sentence.attention)).argmax(1).numpy()
        attached += int((guess == sentence.heads)[counting].sum())
        by_offset += int((offset_heads(len(guess))[offset] == sentence.heads)[counting].sum())
        words, read = words + int(counting.sum()), read + 1

    each_sentence(reader, test, judge, length=length, size=size)
    left = len(train) + len(test) - len(sentences) - read
    names = [name for name, count in measured.words.most_common() if count >= rare and chosen.words[name] and name != "root"]
    names = [ALL, *(name for name in names if name != ALL)]
    return RelationHeads(
        {name: _score(name, chosen, measured) for name in names},
        {name: measured.by_head[name] / measured.words[name] for name in names},
        attached / words if words else float("nan"), by_offset / words if words else float("nan"), len(sentences), read,
        [f"left out, because the network did not read all of their words: {counted(left, 'sentence')}"] if left else [],
    )


def _score(name: str, chosen: Counts, measured: Counts) -> RelationScore:
    """The score of the head and of the offset that are best for a relation where they are chosen."""
    direction, layer, head = np.unravel_index(int(chosen.by_head[name].argmax()), chosen.by_head[name].shape)
    offset, words = int(chosen.by_offset[name].argmax()), measured.words[name]
    return RelationScore(
        words, float(measured.by_head[name][direction, layer, head] / words), int(layer), int(head), DIRECTIONS[direction],
        OFFSETS[offset], float(measured.by_offset[name][offset] / words),
    )


def each_sentence(
    reader: Reader, trees: Sequence[Tree], use: Callable[[ReadSentence], None], *, length: int | None = None, size: int = 32
) -> None:
    """Use every sentence that the network reads whole, in their order within batches of like length."""
    running, spans = zip(*(join_words(tree.words) for tree in trees), strict=True)
    rows = word_rows(reader, running, spans, length=length)
    whole = [n for n, row in enumerate(rows) if (row.columns[:, 0] >= 0).all()]
    if not whole:
        raise UserError("this network cuts every sentence of the treebank. Give shorter sentences, or a larger --length.")
    for number, attention in each_attention(reader, [rows[n].row for n in whole], size=size):
        n = whole[number]
        use(ReadSentence(trees[n], word_attention(attention, _framed_columns(rows[n]))))


def _framed_columns(row: WordRow) -> Int64:
    """The columns (K + 2, 2) of the tokens before the words, of each word, and of the tokens after them."""
    first, last = int(row.columns[:, 0].min()), int(row.columns[:, 1].max())
    return np.concatenate([[[0, first]], row.columns, [[last, len(row.row)]]])


class AttentionClassifier(nn.Module):
    """Scores of the root and of every word as the head of each word (K, 1 + K), a linear map of the attention of all heads in
    both directions. That of the root reads the attention between a word and what the template inserts, before and after."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(2, maps))
        self.root = nn.Parameter(torch.ones(2))

    def forward(self, attention: Tensor) -> Tensor:
        """The scores, from attention (N, H, K + 2, K + 2) or (N · H, K + 2, K + 2)."""
        maps = attention.to(self.weights.dtype).reshape(self.weights.shape[1], *attention.shape[-2:])
        to_head, to_word = torch.einsum("dm,mij->dij", self.weights, maps)
        scores = (to_head + to_word.T)[1:-1]
        root = self.root[0] * scores[:, 0] + self.root[1] * scores[:, -1]
        return torch.cat([root[:, None], scores[:, 1:-1]], 1)


def fit_attention(sentences: Sequence[tuple[Tensor, Tensor]], seed: int) -> AttentionClassifier:
    """A classifier of the attention of sentences with the heads of their words, trained until the loss on the last tenth of them
    no longer falls: the cross-entropy of the heads, summed over the words of a sentence."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(sentences), generator=generator).tolist()  # they come by length
    count, held_out = last_tenth(len(sentences))
    development = order[held_out]
    model = AttentionClassifier(sentences[0][0].shape[0] * sentences[0][0].shape[1])

    def loss_of(numbers: Sequence[int]) -> Tensor:
        losses = [functional.cross_entropy(model(sentences[n][0]), sentences[n][1], reduction="sum") for n in numbers]
        return torch.stack(losses).mean()

    converge(
        list(model.parameters()),
        lambda: ([order[n] for n in batch.tolist()] for batch in several_passes(count, _BATCH, _UPDATES, generator)),
        loss_of, lambda: float(loss_of(development)), _CONVERGENCE,
    )  # fmt: skip
    return model.requires_grad_(False)
