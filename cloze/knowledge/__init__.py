"""Facts and entities next to text: graphs as rows, tables of entities, names and senses, and the linker that finds names.

May import the corpus and what it imports; never torch. Sources and tables are registered as those of `cloze.corpus` are, which is
imported first. To add a source or a table of knowledge: a file here, registered as there, and its import below.
Its contract is tested in tests/corpus/.
"""

import cloze.corpus  # noqa: F401  (registers the other sources and tables)
from cloze.knowledge.entities import BoundEntities, Entities
from cloze.knowledge.fact_table import BoundFacts, Facts
from cloze.knowledge.linking import LinkerAnnotator
from cloze.knowledge.senses import BoundSenses, SupersenseTable
from cloze.knowledge.surfaces import BoundSurfaces, Surfaces
from cloze.knowledge.triple_texts import BoundEntityTexts, BoundTripleTexts, EntityTexts, TripleTexts
from cloze.knowledge.triples import BoundTriples, Triples

__all__ = [
    "BoundEntities", "BoundEntityTexts", "BoundFacts", "BoundSenses", "BoundSurfaces", "BoundTripleTexts", "BoundTriples",
    "Entities", "EntityTexts", "Facts", "LinkerAnnotator", "SupersenseTable", "Surfaces", "TripleTexts", "Triples",
]
