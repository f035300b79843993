"""Networks of pictures of timm, as folders that timm writes to the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cloze.corpus.items.extractors import Pixels
from cloze.errors import CheckpointError, MissingExtra
from cloze.interop.backbones.pictures import Maps, PictureNetwork, class_names, resized

#: Pillow's filters by the names that timm gives them.
_FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


class TimmNetwork(PictureNetwork):
    """A network of pictures in a folder of timm, with its classifier."""

    def __init__(self, folder: Path, config: Mapping[str, Any], *, label: str, device: torch.device) -> None:
        try:
            import timm
        except ModuleNotFoundError:
            raise MissingExtra("timm", "timm", "Reading a model of timm") from None
        self.folder, self.label, self.device = folder, label, device
        try:
            network = timm.create_model(f"local-dir:{folder}", pretrained=True)
            data = timm.data.resolve_model_data_config(network)
        except Exception as error:  # of nearly every kind, for a damaged or foreign folder
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise CheckpointError(f"{folder}: timm does not open it as {config['architecture']!r} ({first}).") from None
        self.network: Any = network.float().to(device).eval().requires_grad_(False)
        self.side = (int(data["input_size"][1]), int(data["input_size"][2]))
        self.mean, self.deviation = (np.array(data[name], np.float32) for name in ("mean", "std"))
        self.filter = _FILTERS.get(str(data["interpolation"]), _FILTERS["bicubic"])
        if count := int(vars(network).get("num_classes") or 0):
            self.classes = class_names(_names(config, count), count)

    def prepare(self, pictures: Sequence[Pixels]) -> Tensor:
        """Differs: the whole picture is scaled to the size of the network, where timm's evaluation cuts off its edges."""
        pixels = np.stack([resized(picture, self.side, self.filter) for picture in pictures])
        scaled = (pixels.astype(np.float32) / 255 - self.mean) / self.deviation
        return torch.from_numpy(scaled).permute(0, 3, 1, 2).contiguous().to(self.device)

    def run(self, pixels: Tensor) -> Maps:
        features = self.network.forward_features(pixels)
        logits = self.network.forward_head(features) if self.classes else None
        if features.ndim == 4:
            channels_first = vars(self.network).get("output_fmt", "NCHW") == "NCHW"
            return Maps(features.permute(0, 2, 3, 1) if channels_first else features, logits)
        if features.ndim != 3:
            raise CheckpointError(f"{self.folder}: gives no map of features and no tokens of patches; choose another backbone.")
        patches = features[:, int(vars(self.network).get("num_prefix_tokens", 0)) :]
        rows, columns = self.network.patch_embed.grid_size
        return Maps(patches.unflatten(1, (rows, columns)), logits)


def _names(config: Mapping[str, Any], count: int) -> Sequence[str]:
    """The names of classes of a folder: those that it lists itself; else none."""
    settings = config.get("pretrained_cfg")
    names = config.get("label_names") or (settings.get("label_names") if isinstance(settings, Mapping) else None)
    return names if isinstance(names, list) and len(names) == count else ()
