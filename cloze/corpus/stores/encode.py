"""Encoding one block, the task of a worker: bytes in, ids with their boundaries out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.blocks import PAIRS, Block
from cloze.corpus.readers.parse import parse_block
from cloze.corpus.readers.report import FileFaults, Oddities
from cloze.errors import CorpusError
from cloze.text import Annotations, Segmenter, Tokenizer
from cloze.text.apart import set_apart
from cloze.text.encoding.word_encoder import encoder_for
from cloze.text.encodings import readable


@dataclass
class EncodedBlock:
    """The ids of a block. Sentences without a token are left out; a document may have none."""

    ids: NDArray[Any]                       # uint16 or uint32
    word_bits: NDArray[np.uint8]            # packed, little bit order
    sentence_lengths: NDArray[np.int32]     # tokens
    document_lengths: NDArray[np.int32]     # sentences
    lines: NDArray[np.int64]                # where each document begins in its file
    goes_on: bool                           # as in `ParsedBlock`
    open_end: bool                          # the same
    odd: Oddities
    faults: FileFaults
    layers: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    labels: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    matched_records: dict[str, frozenset[int]] = field(default_factory=dict)  # of annotators' files


class BlockEncoder:
    """A tokenizer with a dictionary of chunks that persists from block to block.

    With annotations every line goes to the tokenizer itself, which gives the offsets of each token: finding words costs more than
    the dictionary would save. `compiled`: the text is large enough to justify loading compiled code.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, memory_mb: int, annotations: Annotations | None = None, compiled: bool = False
    ) -> None:
        self.tokenizer = tokenizer
        annotators = (annotations or Annotations()).to_find(tokenizer)
        self.annotations = annotators if annotators.marks else None
        self.encoder = encoder_for(tokenizer, memory_mb=memory_mb, compiled=compiled and not self.annotations)
        self.dtype = np.uint16 if tokenizer.size <= 1 << 16 else np.uint32
        # WordPiece and words ignore white space at the ends; for the others the space before a word changes its ids.
        self.spaces = tokenizer.kind not in ("wordpiece", "words")
        self.line_ends = annotators.line_ends

    def __call__(self, block: Block) -> EncodedBlock:
        """The encoded block."""
        parsed = parse_block(block, spaces=self.spaces, line_ends=self.line_ends)
        sentences = [sentence for document in parsed.documents for sentence in document]
        counts = np.fromiter(map(len, parsed.documents), dtype=np.int64, count=len(parsed.documents))
        layers: dict[str, Any] = {}
        if self.annotations is None:
            ids, word_start, offsets = self.encoder.encode_lines(sentences)
        else:
            marked = self.annotations.encode(self.tokenizer, sentences, counts.tolist())
            ids, word_start, offsets = marked.ids, marked.word_start, marked.offsets
            layers = {"layers": marked.layers, "labels": marked.labels, "matched_records": marked.matched_records}
        lengths = np.diff(offsets)
        full = lengths > 0
        if not full.all():
            if block.format == PAIRS:
                raise _without_tokens(block, parsed.lines, full)
            owner = np.repeat(np.arange(len(counts)), counts)
            counts = np.bincount(owner[full], minlength=len(counts))
            lengths = lengths[full]
        return EncodedBlock(
            ids=ids.astype(self.dtype), word_bits=np.packbits(word_start, bitorder="little"),
            sentence_lengths=lengths.astype(np.int32), document_lengths=counts.astype(np.int32),
            lines=np.array(parsed.lines, dtype=np.int64), goes_on=parsed.goes_on, open_end=parsed.open_end,
            odd=parsed.odd, faults=parsed.faults, **layers,
        )


class WordsApart:
    """Sets the words of a segmenter apart in the texts of a block, to count the words of a vocabulary."""

    def __init__(self, segmenter: Segmenter) -> None:
        self.segmenter = segmenter

    def __call__(self, block: Block) -> list[str]:
        """The sentences of the block, as an encoder of words sees them."""
        documents = parse_block(block, spaces=False).documents
        return [set_apart(self.segmenter, text).text for document in documents for text in readable(document)]


def _without_tokens(block: Block, lines: list[int], full: NDArray[np.bool_]) -> CorpusError:
    line = lines[int(np.flatnonzero(~full)[0]) // 2]
    return CorpusError(
        f"{block.path}:{line}: one side of this pair holds no token (only white space or control characters).\n"
        "  Remove the pair on both sides."
    )
