"""Files → blocks of bytes → documents, in constant memory; formats and compression are detected and reported. May import text
and the foundation; not the store, the plans or the sources. To add a format: its name in `formats.FORMATS`, a
rule in `detect.py`, a function in `parse.py` (records) or `tables.py` (rows). Its contract is tested in
tests/corpus/test_readers.py.
"""

from cloze.corpus.readers.documents import Document, read_documents
from cloze.corpus.readers.python_docs import python_docs, python_docs_records

__all__ = ["Document", "python_docs", "python_docs_records", "read_documents"]
