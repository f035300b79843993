"""Encoders that differ from BERT and RoBERTa in norms, positions or embeddings, one file for each.

May import the rest of `cloze.interop`. To add one: as in `cloze.interop.architectures`, and a line in `OPTIONS`
of tests/parity/test_encoder_kin.py, its contract.
"""
