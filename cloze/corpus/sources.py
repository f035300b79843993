"""Every registered source and table. Assembly imports this module to learn their names."""

from cloze.corpus.alternating import BoundAlternating
from cloze.corpus.lexicon import BoundLexicon, Lexicon
from cloze.corpus.pairs import BoundPairs, Pairs
from cloze.corpus.passages import BoundPassages, Passages
from cloze.corpus.sentences import Sentences
from cloze.corpus.streams import BoundStreams, Streams

__all__ = [
    "BoundAlternating", "BoundLexicon", "BoundPairs", "BoundPassages", "BoundStreams", "Lexicon", "Pairs", "Passages",
    "Sentences", "Streams",
]
