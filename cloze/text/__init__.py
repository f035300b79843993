"""Strings → annotated tokens: normalisation, tokenizers, sentence splitting and the fast exact chunk encoder.
May import the foundation (errors, registry, rng, fields, rows) only; no torch, nothing above it.
To add a tokenizer: register("tokenizer", name) on a trainer class as in training.py; it returns a `Tokenizer`.
Its contract (roles, exact ids, Hugging Face layout, determinism) is tested in tests/text/.
"""

from cloze.text.chunks import ChunkEncoder
from cloze.text.normalise import Normalise
from cloze.text.roles import ROLES
from cloze.text.sentences import split_sentences
from cloze.text.tokenizer import Encoded, Tokenizer
from cloze.text.training import ByteBPE, TextSpec, Unigram, WordPiece, train

__all__ = [
    "ROLES",
    "ByteBPE",
    "ChunkEncoder",
    "Encoded",
    "Normalise",
    "TextSpec",
    "Tokenizer",
    "Unigram",
    "WordPiece",
    "split_sentences",
    "train",
]
