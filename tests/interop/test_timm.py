"""Networks of timm as extractors of features; needs timm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.errors import CheckpointError, MissingExtra
from cloze.interop.backbones import picture_extractor

pytest.importorskip("PIL.Image", reason="reading pictures needs pillow")
SIDE = 32
TINY = {
    "resnet10t": {},
    "vit_tiny_patch16_224": {"embed_dim": 16, "depth": 1, "num_heads": 2, "img_size": SIDE, "patch_size": 8},
    "swin_tiny_patch4_window7_224": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "img_size": SIDE, "window_size": 4},
}  # fmt: skip


def write_model(folder: Path, name: str) -> Any:
    timm = pytest.importorskip("timm")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    network = timm.create_model(name, pretrained=False, num_classes=3, **TINY[name]).eval()
    folder.mkdir()
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, folder / "model.safetensors")
    settings = {"input_size": [3, SIDE, SIDE], "mean": [0.5] * 3, "std": [0.25] * 3, "interpolation": "bicubic",
                "fixed_input_size": "img_size" in TINY[name], "num_classes": 3}  # fmt: skip
    config = {"architecture": name, "num_classes": 3, "model_args": TINY[name], "pretrained_cfg": settings,
              "label_names": ["ant", "bee", "cat"]}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return network


@pytest.mark.parametrize("name", TINY)
def test_cells_and_probabilities_are_those_of_timm(name: str, tmp_path: Path) -> None:
    network = write_model(tmp_path / "model", name)
    picture = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    pixels = torch.from_numpy((picture.astype(np.float32) / 255 - 0.5) / 0.25).permute(2, 0, 1)[None]
    with torch.inference_mode():
        states = network.forward_features(pixels)
        logits = network(pixels)[0]
    if states.ndim == 4:
        cells = states[0].flatten(1).T if states.shape[1] == network.num_features else states[0].flatten(0, 1)
    else:
        cells = states[0, network.num_prefix_tokens :]
    (made,) = picture_extractor(str(tmp_path / "model")).extract([picture], [None])
    np.testing.assert_allclose(made.arrays["features"], cells.numpy(), atol=1e-5)
    whole = np.array([[0, 0, SIDE, SIDE]], np.float32)
    crops = picture_extractor(str(tmp_path / "model"), crops=True)
    (made,) = crops.extract([picture], [whole])
    np.testing.assert_allclose(made.arrays["probabilities"][0], logits.softmax(0).numpy(), atol=1e-5)
    assert crops.classes == {"class": ("ant", "bee", "cat")}


def test_a_folder_that_timm_does_not_open_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "model", "resnet10t")
    (tmp_path / "model" / "config.json").write_text(json.dumps({"architecture": "resnet_of_nobody", "pretrained_cfg": {}}))
    with pytest.raises(CheckpointError, match="timm does not open it as 'resnet_of_nobody'"):
        picture_extractor(str(tmp_path / "model"))


def test_timm_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet10t"}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(MissingExtra, match=r"needs the package timm, .*\n.*cloze-lm\[timm\]"):
        picture_extractor(str(tmp_path))
