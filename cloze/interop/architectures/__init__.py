"""One file for each architecture of transformers: its configuration and how its tensors map to ours.

May import the rest of `cloze.interop`. To add one:

1. A file here with `add(Architecture(…))`; in `encoders` if only norms, positions or embeddings differ from BERT's or RoBERTa's.
   `bert.py` is written out, `encoders/megatron_bert.py` is BERT with some values replaced.
2. Its import in `cloze/interop/__init__.py`. If `not_read.py` has its `model_type`, remove that line.
3. A small model in `KINDS` of tests/parity/foreign.py; its name in tests/parity/test_import_verb.py; what its config may say in
   `DRAWN` of tests/parity/test_random_configurations.py. The contract is tests/interop/test_round_trip.py and tests/parity.
4. A row in docs/models.md.
"""
