"""Using a network: mask filling, generation, vectors of texts, scores of sentences.
May import: interop, networks, objectives, exercises, text and the foundation; never training, tasks or recipes.
To add a use: a file with one function that takes a `Reader` and a head and streams its results; then a verb in cloze/cli.
Contract: tests/decoding, one file per module here.
"""

from cloze.decoding.filling import fill
from cloze.decoding.generating.generation import generate
from cloze.decoding.reader import Reader
from cloze.decoding.scores.scoring import score
from cloze.decoding.vectors.embedding import embed

__all__ = ["Reader", "embed", "fill", "generate", "score"]
