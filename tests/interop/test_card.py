"""The model card of a recipe by somebody else: its text stays text."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

from cloze.interop import Card, export_folder
from cloze.interop.card import _safe

HOSTILE = "<script>alert(1)</script> `\n<img src=x onerror=alert(1)>\n` \\`<b>` ``<i>`` | ` <svg/onload=x>"


def test_no_field_of_a_recipe_becomes_html(systems: ModuleType, tmp_path: Path) -> None:
    made = systems.system("bert")
    card = Card(HOSTILE, paper=HOSTILE, notes=HOSTILE, step=1)
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=card)
    text = (tmp_path / "README.md").read_text()
    body = text.split("---\n", 2)[2]
    assert set(re.findall(r"<[^>]*>", body)) == {"<code>", "</code>"}


def test_code_in_notes_is_shown_as_written() -> None:
    assert _safe("ends with `</s>`, as `fairseq` does") == "ends with <code>&lt;/s&gt;</code>, as `fairseq` does"
    assert _safe("a < b & c") == "a &lt; b &amp; c"
