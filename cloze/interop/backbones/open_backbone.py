"""Opens a network of pictures or sound by its folder or its name on the hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cloze.errors import CheckpointError
from cloze.hub import local_folder, name_of
from cloze.interop.backbones.pictures import PictureNetwork, TrainedExtractor
from cloze.interop.backbones.speech import SpeechNetwork
from cloze.missing import require_checkpoint
from cloze.untrusted import parse_json, read_small

_EXPECTED = "a folder of transformers or timm with config.json and weights in it, or ORG/NAME on the Hugging Face Hub"
_WEIGHTS = ("*.safetensors", "*.bin")
_READ = 1 << 22  # bytes


def picture_extractor(
    model: str, *, crops: bool = False, together: int = 8, device: torch.device | None = None
) -> TrainedExtractor:
    """The features of a network of pictures: that of a folder, or `ORG/NAME[@REVISION]` of the hub.

    `together` are the pictures that are read at once. `crops` as in `TrainedExtractor`. Raises `CheckpointError` for a model that
    is missing, damaged, or reads no pictures, and `MissingExtra` without the library that opens it.
    """
    folder, config = _opened(model)
    label, device = _label(folder), device or torch.device("cpu")
    network: PictureNetwork
    if is_of_timm(config):
        from cloze.interop.backbones.of_timm import TimmNetwork

        network = TimmNetwork(folder, config, label=label, device=device)
    else:
        from cloze.interop.backbones.of_transformers import TransformersNetwork

        network = TransformersNetwork(folder, config, label=label, crops=crops, device=device)
    _require_steady(network, model)
    return TrainedExtractor(network, crops=crops, together=together)


def speech_network(model: str, *, frames: int = 30, device: torch.device | None = None) -> SpeechNetwork:
    """A network of sound, which measures words at so many `frames`: that of a folder, or `ORG/NAME[@REVISION]` of the hub. Errors
    are those of `picture_extractor`."""
    folder, _ = _opened(model)
    return SpeechNetwork(folder, label=_label(folder), device=device or torch.device("cpu"), frames=frames)


def _require_steady(network: PictureNetwork, model: str) -> None:
    """Raise a `CheckpointError` for a network whose features of one picture vary, such as one that hides patches at random."""
    size = int(np.prod(network.side)) * 3
    gradient = (np.arange(size) * 256 // size).astype(np.uint8).reshape(*network.side, 3)
    with torch.inference_mode():
        first, second = (network.run(network.prepare([gradient])).cells for _ in range(2))
    if not torch.equal(first, second):
        raise CheckpointError(
            f"{model}: gives different features each time it reads the same picture. Does it hide patches at random?\n"
            "  Choose a backbone that reads whole pictures, such as facebook/dinov2-base."
        )


def is_of_timm(config: Mapping[str, Any]) -> bool:
    """Whether config.json is one of timm, which names an architecture and no type of model."""
    return "model_type" not in config and isinstance(config.get("architecture"), str)


def _opened(model: str) -> tuple[Path, dict[str, Any]]:
    """The folder of a model and its config.json."""
    folder = local_folder(model)
    require_checkpoint(folder, expected=_EXPECTED)
    path = folder / "config.json"
    try:
        config = parse_json(read_small(path))
    except FileNotFoundError:
        raise CheckpointError(f"{model}: has no config.json; expected {_EXPECTED}.") from None
    except NotADirectoryError:
        raise CheckpointError(f"{model}: is a file; expected {_EXPECTED}.") from None
    except (OSError, ValueError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}). Copy the model again.") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: holds no object. Copy the model again.")
    if not any(path for pattern in _WEIGHTS for path in folder.glob(pattern)):
        raise CheckpointError(f"{model}: has no weights (model.safetensors, pytorch_model.bin). Copy or fetch the model again.")
    return folder, config


def _label(folder: Path) -> str:
    """What a model is called in a file of features: `ORG/NAME@COMMIT`, or the name of a folder and the digest of its files."""
    if (name := name_of(folder)) is not None:
        return name
    digest = sha256()
    names = sorted({path for pattern in ("*.json", *_WEIGHTS) for path in folder.glob(pattern)})
    for path in names:
        with path.open("rb") as stream:
            while block := stream.read(_READ):
                digest.update(block)
    return f"{folder.resolve().name} sha256={digest.hexdigest()}"
