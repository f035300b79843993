"""Word vectors in files of word2vec, GloVe and fastText and in checkpoints, memory-mapped if possible. May import: what interop
may. To add a format: a file that reads bytes to `Vectors` and writes them, its detection in `opening.kind_of`, its name in
`writing.FORMATS`. Classifiers of fastText are in `classifier.py`. Contract: tests/interop/test_vector_files.py,
test_vector_fasttext.py, test_vector_checkpoints.py, test_fasttext_classifier.py; tests/parity/test_vectors.py.
"""

from cloze.interop.vectors.fasttext import Quantising
from cloze.interop.vectors.opening import open_fasttext, open_vectors
from cloze.interop.vectors.vectors import Vectors, alike
from cloze.interop.vectors.writing import FORMATS, write_vectors

__all__ = ["FORMATS", "Quantising", "Vectors", "alike", "open_fasttext", "open_vectors", "write_vectors"]
