"""The fast exact encoder: text into chunks, distinct chunks into ids.

May import what `cloze.text` may. To add one: a file here; ids must equal those of `Tokenizer.encode`.
Contract: tests/text/test_chunks.py and its neighbours.
"""
