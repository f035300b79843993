"""A network with a vector for each language and the languages of its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloze.errors import RecipeError
from cloze.runs.run import pretrain


def test_text_in_more_languages_than_the_network_knows_is_refused_with_the_way_out(tmp_path: Path) -> None:
    for number in range(16):
        folder = tmp_path / "text" / f"l{number:02d}"
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("rain falls on the old roof\n" * 4, encoding="utf-8")
    with pytest.raises(RecipeError) as caught:
        pretrain("xlm-15-mlm", corpus=[str(tmp_path / "text")], out=tmp_path / "run", size="tiny", report=lambda line: None)
    assert str(caught.value) == (
        "xlm-15-mlm: the network has vectors for 15 languages, and the text has 16: l00, l01, l02 …\n"
        "  Give it as many: --set network.embedding.table.inputs.language=16"
    )
