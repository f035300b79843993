"""docs/transfer.md: its commands are run from top to bottom with a smaller budget and fewer epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.networks.blocks.computed import is_added

from .test_tutorials import run_page

ENGLISH = Path(cloze.__file__).parent / "samples" / "english.txt"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "transfer.md"


def test_the_page_on_transfer_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    text = ENGLISH.read_text(encoding="utf-8")
    Path("general.txt").write_text(text[:6000], encoding="utf-8")
    rows = [f"the {('lamp', 'river')[n % 2]} was here\t{('thing', 'water')[n % 2]}" for n in range(16)]
    for name in ("train", "dev"):
        Path(f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    few = "--train train.tsv --dev dev.tsv"
    run_page(PAGE, capsys, monkeypatch, {few: f"{few} --set training.epochs=1 --set length=16"})
    whole, alone = (load_checkpoint(name).network.state_dict() for name in ("my-adapters", "adapters-alone"))
    assert whole.keys() == alone.keys() and any(is_added(name) for name in whole)
    assert not any(is_added(name) for name in load_checkpoint("merged").network.state_dict())
