"""docs/compress.md: its commands are run from top to bottom with a smaller budget and fewer epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

import cloze
from cloze.checkpoint.build import load_checkpoint

from .test_tutorials import run_page

ENGLISH = Path(cloze.__file__).parent / "samples" / "english.txt"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "compress.md"


def test_the_page_on_compression_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = ENGLISH.read_text(encoding="utf-8")
    Path("general.txt").write_text(text[:3000], encoding="utf-8")
    rows = [f"the {('lamp', 'river')[n % 2]} was here\t{('thing', 'water')[n % 2]}" for n in range(8)]
    for name in ("train", "dev"):
        Path(f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    few = "--train train.tsv --dev dev.tsv"
    smaller = {
        few: f"{few} --set training.epochs=1 --set length=16",
        "--lengths 32,128 --batch 1,32": "--lengths 4 --batch 1 --rounds 2",
    }
    run_page(PAGE, capsys, monkeypatch, smaller)
    assert load_checkpoint("shallow-tuned").network_arguments["layers"] == 1
    assert len(load_checkpoint("four-bits", plain_form=True).network.layers[0].outer.weight.unique()) <= 2 * 15
