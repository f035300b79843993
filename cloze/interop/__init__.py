"""Hugging Face folders, both ways: one table of names per architecture (architectures/bert.py, …).
May import networks, objectives, text and the foundation; never transformers, never recipes or training.
To add an architecture: `architectures/__init__.py` lists the steps.
Its contract (ours → theirs → ours is the identity, logits and gradients equal) is tested in tests/interop/, tests/parity/.
"""

from cloze.interop.architecture import ARCHITECTURES
from cloze.interop.architectures import (  # noqa: F401  the imports make the architectures known
    albert,
    bart,
    bert,
    deberta,
    deberta_v2,
    distilbert,
    electra,
    ernie,
    flaubert,
    gpt,
    gpt2,
    llama,
    lxmert,
    mamba,
    marian,
    mbart,
    mobilebert,
    modernbert,
    modernbert_decoder,
    nezha,
    olmo2,
    roberta,
    t5,
    transfo_xl,
    visual_bert,
    xlm,
    xlnet,
)
from cloze.interop.architectures.encoders import (  # noqa: F401  as above
    bert_generation,
    big_bird,
    esm,
    megatron_bert,
    mpnet,
    roformer,
)
from cloze.interop.arguments import complete
from cloze.interop.card import Card
from cloze.interop.export import export_folder
from cloze.interop.model import Annotating, PortableHead, PortableModel, PortableTable
from cloze.interop.read import Imported, import_folder
from cloze.reading import Reading

__all__ = [
    "ARCHITECTURES", "Annotating", "Card", "PortableHead", "Imported", "PortableModel", "Reading", "PortableTable",
    "complete", "export_folder",
    "import_folder",
]
