"""The figures of reproductions/words.py: words of a treebank found in the text, and where both cut in different ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

TREEBANK = """# text = हिन्दी, don't go.
1	हिन्दी	_
2	,	_
3-4	don't	_
3	do	_
4	n't	_
4.1	empty	_
5	go.	_

# text = not these
1	words	_

"""


def test_words_are_compared_with_the_written_tokens_of_a_treebank(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    (tmp_path / "x-test.conllu").write_text(TREEBANK, encoding="utf-8")
    figures, differences = script("words").measured(tmp_path / "x-test.conllu")
    assert figures == {"sentences": 1, "whole": 0.0, "precision": 3 / 5, "recall": 3 / 4, "f1": 2 * 3 / 9}
    assert differences == {("go|.", "go."): 1}
