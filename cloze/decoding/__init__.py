"""Using a network: mask filling, generation, vectors of texts, scores of sentences.
May import: interop, networks, objectives, exercises, text and the foundation; never training, tasks or recipes.
Add one: a file with one function that takes a `Reader` and a head and streams its results; then a verb in cloze/cli.
Contract: tests/decoding, one file per module here.
"""

from cloze.decoding.embedding import embed
from cloze.decoding.filling import fill
from cloze.decoding.generation import generate
from cloze.decoding.reader import Reader
from cloze.decoding.scoring import score

__all__ = ["Reader", "embed", "fill", "generate", "score"]
