"""The rows of the reproductions of tasks: parts share no row, spans and offsets point at their text."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def files(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("task_files")


def test_parts_share_no_row_and_a_missing_part_comes_from_the_rest_of_training(
    files: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def read(data: Path) -> dict[str, list[str]]:
        return {"train": [f"{n}\n" for n in range(10)], "test": ["3\n", "4\n", "20\n", "21\n", "20\n"]}

    monkeypatch.setitem(files.SETS, "numbers", ("txt", read))
    parts = [path.read_text().split() for path in files.write("numbers", (6, 4, 9), tmp_path, tmp_path)]
    assert [len(part) for part in parts[:2]] == [6, 4]
    assert sorted([*parts[0], *parts[1]], key=int) == [str(n) for n in range(10)]
    assert sorted(parts[2]) == ["20", "21"]


def test_tagged_characters_become_spans_of_the_text(files: ModuleType) -> None:
    block = "王\tB-PER\n明\tI-PER\n在\tO\n京\tB-LOC\n沪\tB-LOC\n了\tO\n\n"
    assert files.spans_of(block) == ("王明在京沪了", [(0, 2, "PER"), (3, 4, "LOC"), (4, 5, "LOC")])


@pytest.mark.parametrize(("said", "found"), [(2, 2), (0, 2), (99, 2)])
def test_a_wrong_offset_is_looked_up(files: ModuleType, said: int, found: int) -> None:
    assert files.offset("abcdcd", {"text": "cd", "answer_start": said}) == found


def test_an_answer_that_is_not_in_the_text_has_no_offset(files: ModuleType) -> None:
    assert files.offset("abcd", {"text": "x", "answer_start": 0}) == -1


def test_the_digit_behind_a_character_of_weibo_goes(files: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "ner_zh_weibo"
    folder.mkdir()
    for part in files.PARTS:
        packed = lzma.compress("科0\tB-ORG.NAM\n技1\tI-ORG.NAM\n\n３0\tO\n".encode())
        (folder / f"weiboNER_2nd_conll.{part}.xz").write_bytes(packed)
    assert files.weibo(tmp_path)["train"] == ["科\tB-ORG.NAM\n技\tI-ORG.NAM\n\n", "３\tO\n\n"]
