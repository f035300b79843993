"""Strings → annotated tokens: normalisation, tokenizers, segmenters, annotators, sentences and the fast exact encoder.
May import the foundation (errors, registry, rng, fields, rows) only; no torch, nothing above it.
To add a tokenizer: register("tokenizer", name) on a trainer class as in training.py; it returns a `Tokenizer`.
To add a segmenter or an annotator: register("segmenter", name) as in segment.py, register("annotator", name) as in annotate.py.
Its contract (roles, exact ids, Hugging Face layout, determinism) is tested in tests/text/.
"""

from cloze.text.annotation.annotate import Annotations, ListAnnotator
from cloze.text.annotation.annotator import Annotator
from cloze.text.annotation.annotators import Case, LexiconAnnotator, Repeats
from cloze.text.annotation.mentions import Conllu, Mentions
from cloze.text.annotation.sentiment import WordSenses
from cloze.text.encoding.chunks import ChunkEncoder
from cloze.text.normalise import Normalise
from cloze.text.phrases import Phrases
from cloze.text.retokenize import retokenized
from cloze.text.roles import ROLES
from cloze.text.segment import Dictionary, Jieba, Segmenter
from cloze.text.sentences import split_sentences
from cloze.text.tokenizer import EncodedText, Tokenizer
from cloze.text.vocabularies.training import BPE, ByteBPE, TextSpec, Unigram, WordPiece, train
from cloze.text.words import Words

__all__ = [
    "BPE",
    "ROLES",
    "Annotations",
    "Annotator",
    "ByteBPE",
    "Case",
    "ChunkEncoder",
    "Conllu",
    "Dictionary",
    "EncodedText",
    "Jieba",
    "LexiconAnnotator",
    "ListAnnotator",
    "Mentions",
    "Normalise",
    "Phrases",
    "Repeats",
    "Segmenter",
    "TextSpec",
    "Tokenizer",
    "Unigram",
    "WordPiece",
    "WordSenses",
    "Words",
    "retokenized",
    "split_sentences",
    "train",
]
