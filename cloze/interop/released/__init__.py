"""Weights that authors released in files of their own: ELMo, CoVe, Skip-thought, fastai's AWD-LSTM, K-Adapter, and systems built
on BERT.
May import: what interop may. To add a system: a file with `find` and `read`, and its line in `released.SYSTEMS`; one that is
built on BERT is a table, `BertBased`, and its name in `bert_based.SYSTEMS`.
Nothing is unpickled but tensors (torch's restricted reader) and lists of words (`pickles.py`).
Contract: tests/interop/test_released*.py read files that the tests write and compare states with a plain forward pass.
"""

from cloze.interop.released.released import import_released, is_released
from cloze.interop.released.released_recipe import released_recipe

__all__ = ["import_released", "is_released", "released_recipe"]
