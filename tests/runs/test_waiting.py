"""Processes that wait until the first one has built the text: they say so, and they do not wait for what cannot come."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloze.errors import CorpusError
from cloze.runs import corpora
from cloze.runs.corpora import StoredText


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The second process; a minute passes at every look."""
    minutes = iter(range(10**6))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(corpora.time, "monotonic", lambda: 60.5 * next(minutes))
    monkeypatch.setattr(corpora.time, "sleep", lambda seconds: None)
    return monkeypatch


def test_a_folder_that_the_first_process_does_not_share_is_an_error(clock: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = StoredText(tmp_path / "cloze" / "corpus", ("text.txt",), "auto", False, {})
    with pytest.raises(CorpusError, match=r"(?s)rank 1: rank 0 builds the text .*on a disk that all hosts share.*--corpus STORE"):
        text.wait_until_built(None)


def test_a_process_that_waits_says_so_every_ten_minutes(
    clock: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cloze").mkdir()
    (tmp_path / "cloze" / "lock").touch()
    looks = iter(range(10**6))
    clock.setattr(StoredText, "is_built", lambda text, run: next(looks) == 25)
    assert StoredText(tmp_path / "cloze" / "corpus", ("text.txt",), "auto", False, {}).wait_until_built(None)
    assert [line.split(" min")[0] for line in capsys.readouterr().err.splitlines()] == [
        "rank 1: has waited 10", "rank 1: has waited 20"
    ]  # fmt: skip
