"""What is said of a path that is not there: what is alike, what there is instead, and nothing where that would not help."""

from __future__ import annotations

from pathlib import Path

from cloze.errors import nearest_path


def test_what_is_alike_is_named_and_much_that_is_not_is_not(tmp_path: Path) -> None:
    assert nearest_path(tmp_path / "text.txt") == "Its folder is empty."
    (tmp_path / "b.txt").touch()
    (tmp_path / "a").mkdir()
    assert nearest_path(tmp_path / "qqqqqq") == "In its folder: a, b.txt."
    assert nearest_path(tmp_path / "bb.txt") == "Did you mean 'b.txt'?"
    for number in range(20):
        (tmp_path / f"{number:03}").touch()
    assert nearest_path(tmp_path / "qqqqqq") == ""
    assert nearest_path(tmp_path / "gone" / "text.txt") == f"The folder {tmp_path / 'gone'} is not there either."
