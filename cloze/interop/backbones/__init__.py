"""Trained networks of pictures and sound, opened with transformers or timm: their states become items.

`picture_extractor` and `speech_network` open a folder or a name on the hub. transformers and timm are optional; no other package
of cloze imports them, and these modules only inside of functions.
May import: `corpus.items`, besides what `cloze.interop` may.
To add a library of networks: a `PictureNetwork` in a module of its own, and a line in `open_backbone.py`.
Contract: tests/interop/test_backbones.py.
"""

from cloze.interop.backbones.detections import read_any_boxes
from cloze.interop.backbones.open_backbone import picture_extractor, speech_network

__all__ = ["picture_extractor", "read_any_boxes", "speech_network"]
