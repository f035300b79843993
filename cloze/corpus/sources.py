"""Every registered source and table. Assembly imports this module to learn their names."""

from cloze.corpus.alternating import BoundAlternating
from cloze.corpus.cooccurrences import BoundCooccurrences, Cooccurrences
from cloze.corpus.lexicon import BoundLexicon, Lexicon
from cloze.corpus.lines import BoundLines, Lines
from cloze.corpus.pairs import BoundPairs, Pairs
from cloze.corpus.passages import BoundPassages, Passages
from cloze.corpus.records import BoundRecords, Records
from cloze.corpus.sentences import Sentences
from cloze.corpus.single import BoundSingle
from cloze.corpus.streams import BoundStreams, Streams
from cloze.corpus.term_documents import BoundTermDocuments, TermDocuments
from cloze.corpus.text_vectors import BoundTextVectors, TextVectors
from cloze.corpus.triple_texts import BoundEntityTexts, BoundTripleTexts, EntityTexts, TripleTexts
from cloze.corpus.triples import BoundTriples, Triples
from cloze.corpus.vector_table import BoundVectors, PretrainedVectors
from cloze.corpus.word_pairs import BoundWordPairs, WordPairs

__all__ = [
    "BoundAlternating", "BoundCooccurrences", "BoundEntityTexts", "BoundLexicon", "BoundLines", "BoundPairs",
    "BoundPassages", "BoundRecords", "BoundSingle", "BoundStreams", "BoundTermDocuments", "BoundTextVectors",
    "BoundTripleTexts", "BoundTriples", "BoundVectors", "BoundWordPairs", "Cooccurrences", "EntityTexts", "Lexicon",
    "Lines", "Pairs", "Passages", "PretrainedVectors", "Records", "Sentences", "Streams", "TermDocuments", "TextVectors",
    "TripleTexts", "Triples", "WordPairs",
]
