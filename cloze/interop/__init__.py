"""Hugging Face folders, both ways: one table of names per architecture (bert.py, gpt2.py, …).
May import networks, objectives, text and the foundation; never transformers, never recipes or training.
To add an architecture: one file with an `add(Architecture(…))` such as bert.py, and its name in the import below.
Its contract (ours → theirs → ours is the identity, logits and gradients equal) is tested in tests/interop/, tests/parity/.
"""

from cloze.interop import # noqa: F401  the imports make the architectures known     albert

from cloze.interop.architectures import bart

from cloze.interop.architectures import bert

from cloze.interop.architectures import distilbert

from cloze.interop.architectures import electra

from cloze.interop.architectures import ernie

from cloze.interop.architectures import flaubert

from cloze.interop.architectures import gpt

from cloze.interop.architectures import gpt2

from cloze.interop.architectures import lxmert

from cloze.interop.architectures import mobilebert

from cloze.interop.architectures import modernbert

from cloze.interop.architectures import modernbert_decoder

from cloze.interop.architectures import nezha

from cloze.interop.architectures import roberta

from cloze.interop.architectures import t5

from cloze.interop.architectures import transfo_xl

from cloze.interop.architectures import visual_bert

from cloze.interop.architectures import xlm

from cloze.interop.architectures import xlnet
from cloze.interop.architecture import ARCHITECTURES
from cloze.interop.arguments import complete
from cloze.interop.card import Card
from cloze.interop.export import export_folder
from cloze.interop.model import Annotating, Head, Model, Table
from cloze.interop.read import Imported, import_folder
from cloze.reading import Reading

__all__ = [
    "ARCHITECTURES", "Annotating", "Card", "Head", "Imported", "Model", "Reading", "Table", "complete", "export_folder",
    "import_folder",
]
