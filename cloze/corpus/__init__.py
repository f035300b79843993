"""Files → token store → passages: readers, the memory-mapped store, plans and sources.

May import text and the foundation (errors, registry, rng, fields, rows); never torch, never batch.
To add a source: one file here with a class under `@register("source", name)`; a look-up table: a subclass of `LookUp` under
`@register("table", name)`, as in lexicon.py; a reader: one file in `readers/`.
Its contract is tested in tests/corpus/.
"""

from cloze.corpus.cooccurrences import BoundCooccurrences, Cooccurrences
from cloze.corpus.entities import BoundEntities, Entities
from cloze.corpus.fact_table import BoundFacts, Facts
from cloze.corpus.hashed_ngrams import HashedNGrams
from cloze.corpus.lexicon import BoundLexicon, Lexicon
from cloze.corpus.lines import BoundLines, Lines
from cloze.corpus.linking import LinkerAnnotator
from cloze.corpus.look_up import LookUp
from cloze.corpus.pairs import BoundPairs, Pairs
from cloze.corpus.passages import BoundPassages, Passages
from cloze.corpus.plan import Plan
from cloze.corpus.records import BoundRecords, Records, RecordStore
from cloze.corpus.senses import BoundSenses, SupersenseTable
from cloze.corpus.sentences import Sentences
from cloze.corpus.shards import ShardedStore
from cloze.corpus.source import Source
from cloze.corpus.store import Store
from cloze.corpus.streams import BoundStreams, Streams
from cloze.corpus.surfaces import BoundSurfaces, Surfaces
from cloze.corpus.term_documents import BoundTermDocuments, TermDocuments
from cloze.corpus.text_vectors import BoundTextVectors, TextVectors
from cloze.corpus.triple_store import TripleStore
from cloze.corpus.triple_texts import BoundEntityTexts, BoundTripleTexts, EntityTexts, TripleTexts
from cloze.corpus.triples import BoundTriples, Triples
from cloze.corpus.vector_table import BoundVectors, PretrainedVectors
from cloze.corpus.word_pairs import BoundWordPairs, WordPairs

__all__ = [
    "BoundCooccurrences", "BoundEntities", "BoundEntityTexts", "BoundFacts", "BoundLexicon", "BoundLines", "BoundPairs",
    "BoundPassages", "BoundRecords", "BoundSenses", "BoundStreams", "BoundSurfaces", "BoundTermDocuments", "BoundTextVectors",
    "BoundTripleTexts", "BoundTriples", "BoundVectors", "BoundWordPairs", "Cooccurrences", "Entities", "EntityTexts",
    "Facts", "HashedNGrams", "Lexicon", "Lines", "LinkerAnnotator", "LookUp", "Pairs", "Passages", "Plan",
    "PretrainedVectors", "RecordStore", "Records", "Sentences", "ShardedStore", "Source", "Store", "Streams",
    "SupersenseTable", "Surfaces", "TermDocuments", "TextVectors", "TripleStore", "TripleTexts", "Triples", "WordPairs",
]
