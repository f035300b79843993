"""WordNet's index of senses as candidates of word forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloze.errors import CorpusError
from cloze.knowledge.surfaces import read_surfaces

INDEX = """\
dog%1:05:00:: 02084071 1 42
dog%1:18:01:: 10114209 3 0
dog%2:38:00:: 02001858 1 2
hot_dog%1:13:01:: 07697537 1 4
stop%2:38:00:: 01859221 1 6
great%5:00:00:important:00 01278818 1 3
"""


def test_word_forms_have_the_synsets_of_their_lemmas_with_counts_plus_one(tmp_path: Path) -> None:
    (tmp_path / "index.sense").write_text(INDEX, encoding="utf-8")
    found = read_surfaces(str(tmp_path / "index.sense"))
    assert found["dog"] == {"02084071": 43, "10114209": 1, "02001858": 3} == found["dogs"]
    assert found["hot dog"] == {"07697537": 5} and "hot dogs" not in found
    assert found["stopped"] == found["stopping"] == found["stops"] == {"01859221": 7}
    assert found["greatest"] == {"01278818": 4} and "dogged" in found


def test_a_damaged_line_is_told_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "index.sense").write_text(INDEX + "cat 02121620\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="index.sense:7: 'cat 02121620'; expected a sense of WordNet"):
        read_surfaces(str(tmp_path / "index.sense"))
