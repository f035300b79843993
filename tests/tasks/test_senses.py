"""Supersenses of words in context: accuracy over ambiguous words, next to the first sense and the usual one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.errors import CheckpointError, TaskError
from cloze.tasks.intrinsic.senses import OTHER, PIECES, SINGLE, Judge, Occurrence, evaluate, read_occurrences

from ..contracts.conftest import start, system  # noqa: F401  fixtures

TEXT = "the boats wait at the old stone wall"
WORDS = [
    ("stone", "noun.object"), ("stone", "noun.substance"), ("stone", "noun.substance"), ("wall", "noun.artifact"),
    ("stone", "noun.food"), ("the", "noun.food"),
]  # fmt: skip


@pytest.fixture(scope="module")
def run(start: Callable[[str], Path]) -> Path:  # noqa: F811
    return start("sensebert")


def occurrences() -> list[Occurrence]:
    return [Occurrence(TEXT, word, TEXT.index(word), sense) for word, sense in WORDS]


def test_a_network_is_judged_among_the_senses_that_the_list_allows(run: Path) -> None:
    loaded = load_checkpoint(run)
    judge = Judge.of(loaded, loaded.tables)
    names = judge.table.names
    with torch.no_grad():  # a head that answers with the bias-free vector of one sense, whatever it reads
        weight = judge.senses.weight
        weight.zero_()
    found = evaluate(judge, occurrences())
    # All scores are equal, so the first allowed name wins: noun.object comes before noun.substance.
    assert names.index("noun.object") < names.index("noun.substance")
    assert (found.words, found.shown, found.masked) == (3, pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert found.first == pytest.approx(1 / 3) and found.most_frequent == pytest.approx(2 / 3)
    assert found.left_out == {SINGLE: 1, OTHER: 1, PIECES: 1}


def test_scores_are_the_products_with_the_vectors_of_senses(run: Path) -> None:
    loaded = load_checkpoint(run)
    judge = Judge.of(loaded, loaded.tables)
    (row,) = judge.reader.encode([TEXT])
    states = judge.reader.states(judge.reader.batch([row]), {"hidden"})["hidden"]
    expected = judge.head.head.transform_rows(states[0, 3]) @ judge.senses.weight.T
    torch.testing.assert_close(judge.scores([row], [3])[0], expected.detach(), atol=1e-5, rtol=1e-5)


def test_the_command_prints_baselines(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "words.tsv").write_text("text\tword\tsense\n" + "".join(f"{TEXT}\t{w}\t{s}\n" for w, s in WORDS[:5]))
    assert main(["evaluate", str(run), "--senses", str(tmp_path / "words.tsv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[str(tmp_path / "words.tsv")]
    assert found["words"] == 3 and found["most_frequent"] == pytest.approx(2 / 3)
    assert main(["evaluate", str(run), "--senses", str(tmp_path / "words.tsv")]) == 0
    assert "first sense, always  0.3333" in capsys.readouterr().out


@pytest.mark.parametrize(("table", "said"), [
    ("text\tword\tsense\na b a\ta\tx\n", "words.tsv:2: 'a' stands 2 times in 'a b a', expected once"),
    ("text\tword\tsense\tstart\na b a\ta\tx\t1\n", "words.tsv:2: ' ' stands at character 1, expected 'a'"),
    ("text\tword\tsense\tstart\na b a\ta\tx\tno\n", "words.tsv:2: start is 'no'"),
])  # fmt: skip
def test_a_table_that_cannot_be_used_says_where(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "words.tsv").write_text(table)
    with pytest.raises(TaskError, match=said):
        read_occurrences(tmp_path / "words.tsv")


def test_a_network_without_senses_and_an_unknown_sense_are_refused(start: Callable[[str], Path], run: Path) -> None:  # noqa: F811
    with pytest.raises(CheckpointError, match="has no head of senses"):
        Judge.of(load_checkpoint(start("bert")), {})
    loaded = load_checkpoint(run)
    with pytest.raises(TaskError, match=r"'noun.fod' is no sense of this network. Did you mean 'noun.food'"):
        evaluate(Judge.of(loaded, loaded.tables), [Occurrence(TEXT, "stone", 26, "noun.fod")])
