"""Hugging Face folders, both ways: one table of names per architecture (bert, roberta, gpt2, electra).
May import networks, objectives, text and the foundation; never transformers, never assembly or training.
To add an architecture: one file with an `Architecture` such as bert.py, and its entry in choice.py.
Its contract (ours → theirs → ours is the identity, logits and gradients equal) is tested in tests/interop/, tests/parity/.
"""

from cloze.interop.card import Card
from cloze.interop.choice import ARCHITECTURES
from cloze.interop.export import export_folder
from cloze.interop.model import Head, Model, Reading, complete
from cloze.interop.read import Imported, import_folder

__all__ = ["ARCHITECTURES", "Card", "Head", "Imported", "Model", "Reading", "complete", "export_folder", "import_folder"]
