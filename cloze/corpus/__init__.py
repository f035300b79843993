"""Files → token store → passages: readers, the memory-mapped store, plans and sources.

May import text and the foundation (errors, registry, rng, fields, rows); never torch, never batch.
`readers` read files, `stores` hold tokens, `sources` cut stores into rows, `counting` counts words that occur together, `tables`
look up what belongs to tokens, `shards` divide a store over files and hosts, `records` and `items` are rows with answers and with
pictures, `checks` look at text before anything is built. Sources and tables of facts and entities are in `cloze.knowledge`.
To add a source: one file in `sources/` with a class under `@register("source", name)`; a look-up table: a subclass of `LookUp`
under `@register("table", name)`, as in tables/lexicon.py; a reader: one file in `readers/`.
Its contract is tested in tests/corpus/.
"""

from cloze.corpus.counting.cooccurrences import BoundCooccurrences, Cooccurrences
from cloze.corpus.counting.term_documents import BoundTermDocuments, TermDocuments
from cloze.corpus.records import BoundRecords, Records, RecordStore
from cloze.corpus.shards.manifest import ShardedStore
from cloze.corpus.sources.lines import BoundLines, Lines
from cloze.corpus.sources.pairs import BoundPairs, Pairs
from cloze.corpus.sources.passages import BoundPassages, Passages
from cloze.corpus.sources.plan import RowPlan
from cloze.corpus.sources.sentences import Sentences
from cloze.corpus.sources.streams import BoundStreams, Streams
from cloze.corpus.sources.word_pairs import BoundWordPairs, WordPairs
from cloze.corpus.stores.source import Source
from cloze.corpus.stores.store import Store
from cloze.corpus.stores.triple_store import TripleStore
from cloze.corpus.tables.evidence import BoundEvidence, Evidence
from cloze.corpus.tables.hashed_ngrams import HashedNGrams
from cloze.corpus.tables.lexicon import BoundLexicon, Lexicon
from cloze.corpus.tables.look_up import LookUp
from cloze.corpus.tables.text_vectors import BoundTextVectors, TextVectors
from cloze.corpus.tables.vector_table import BoundVectors, PretrainedVectors

__all__ = [
    "BoundCooccurrences", "BoundEvidence", "BoundLexicon", "BoundLines", "BoundPairs", "BoundPassages", "BoundRecords",
    "BoundStreams", "BoundTermDocuments", "BoundTextVectors", "BoundVectors", "BoundWordPairs", "Cooccurrences",
    "Evidence", "HashedNGrams", "Lexicon", "Lines", "LookUp", "Pairs", "Passages", "RowPlan", "PretrainedVectors",
    "RecordStore", "Records", "Sentences", "ShardedStore", "Source", "Store", "Streams", "TermDocuments", "TextVectors",
    "TripleStore", "WordPairs",
]
