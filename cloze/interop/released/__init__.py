"""Weights that the authors of recurrent systems released in files of their own: ELMo, CoVe, Skip-thought, fastai's AWD-LSTM.
May import: what interop may. To add a system: a file with `find` and `read`, and its line in `released.SYSTEMS`.
Nothing is unpickled but tensors (torch's restricted reader) and lists of words (`pickles.py`).
Contract: tests/interop/test_released.py reads files that the test writes and compares states with a plain forward pass.
"""

from cloze.interop.released.released import import_released, is_released
from cloze.interop.released.released_recipe import released_recipe

__all__ = ["import_released", "is_released", "released_recipe"]
