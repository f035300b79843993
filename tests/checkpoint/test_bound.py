"""Checkpoints that a recipe names are opened once, until their files change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.checkpoint.bound import BoundCheckpoints
from cloze.interop import Imported, PortableModel


def test_a_checkpoint_is_opened_again_only_when_its_files_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, unused = tmp_path / "model.safetensors", Any
    weights.write_bytes(b"first")
    opened: list[bytes] = []

    def read(folder: Path) -> Imported:
        opened.append(weights.read_bytes())
        model = PortableModel({"width": len(opened)}, "open", {"table": torch.ones(2)})
        return Imported(folder, None, model, unused, unused)  # type: ignore[arg-type]

    monkeypatch.setattr("cloze.checkpoint.open_folder.open_folder", read)
    first, again = (BoundCheckpoints({"start": tmp_path}).described("start", "main") for _ in range(2))
    assert opened == [b"first"] and first.model.arguments == again.model.arguments == {"width": 1}
    assert first.model.network == {}, "tensors would stay in memory"
    weights.write_bytes(b"other")
    assert BoundCheckpoints({"start": tmp_path}).described("start", "main").model.arguments == {"width": 2}
    assert opened == [b"first", b"other"]
