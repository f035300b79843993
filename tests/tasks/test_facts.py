"""Facts as gaps: ranks of the right answers, by relation; what cannot be asked, and what a name tells, is left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.reader_and_head import to_fill
from cloze.errors import TaskError
from cloze.tasks.intrinsic.facts import LEAK, OUTSIDE, PIECES, FactPrompt, evaluate, read_facts, read_vocabulary, readings

from ..contracts.conftest import start, system  # noqa: F401  fixtures


@pytest.fixture(scope="module")
def bert(start: Callable[[str], Path]) -> Path:  # noqa: F811
    return start("bert")


class Fixed:
    """A reader whose network gives the scores of a table by word, whatever stands around the gap."""

    def __init__(self, folder: Path, scores: dict[str, float]) -> None:
        ready = to_fill(load_checkpoint(folder))
        self.reader: Any = SimpleNamespace(**{
            name: getattr(ready.reader, name)
            for name in (
                "tokenizer", "single_layout", "max_length", "predictable", "batch", "batches", "device", "reads_marks",
                "with_facts",
            )
        })
        row = torch.zeros(self.reader.tokenizer.size)
        for word, score in scores.items():
            row[self.reader.tokenizer.encode(word).ids[0]] = score
        self.reader.prediction_inputs = lambda head, batch, positions: (batch, positions)
        self.reader.states = lambda *given, **named: {}
        self.reader.token_scores = lambda head, states, batch, positions: row.repeat(len(positions), 1)
        self.head = SimpleNamespace(reads=())


FACTS = [
    FactPrompt("the [MASK] is cold .", ("river",), "one", "the old river"), FactPrompt("the [MASK] is old .", ("town",), "one"),
    FactPrompt("a [MASK] and a boat .", ("bread", "sea"), "two", "bread maker"), FactPrompt("the [MASK] .", ("zzqqxx",), "two"),
]


def test_ranks_are_means_of_ties_and_other_right_answers_do_not_compete(bert: Path) -> None:
    fixed = Fixed(bert, {"river": 3.0, "town": 2.0, "bread": 2.0, "sea": 5.0})
    found = evaluate(fixed.reader, fixed.head, FACTS)
    # river: behind sea, 2. town: behind sea and river, tied with bread, 3.5. bread or sea: 1. The last is no single token.
    assert found.overall.facts == 3 and found.left_out == {PIECES: 1}
    assert found.overall.p1 == pytest.approx(1 / 3) and found.overall.p10 == 1.0
    assert found.overall.mrr == pytest.approx((1 / 2 + 1 / 3.5 + 1) / 3)
    known = {one.relation: (one.facts, one.p1, one.always) for one in found.relations}
    assert known == {"one": (2, 0.0, 0.5), "two": (1, 1.0, 1.0)}
    assert found.mean.p1 == 0.5


def test_a_model_that_gives_every_token_one_score_has_no_answer_right(bert: Path) -> None:
    found = evaluate(*vars(Fixed(bert, {})).values(), FACTS)
    assert found.overall.p1 == found.overall.p10 == 0.0 and found.overall.mrr < 0.1


def test_subjects_whose_name_has_the_object_are_left_out_on_request(bert: Path) -> None:
    fixed = Fixed(bert, {})
    found = evaluate(fixed.reader, fixed.head, FACTS, no_leaks=True)
    assert found.overall.facts == 1 and found.left_out == {LEAK: 2, PIECES: 1}
    with pytest.raises(TaskError, match="--no-leaks compares the object with the name of the subject: give the facts a column"):
        evaluate(fixed.reader, fixed.head, FACTS[1:2], no_leaks=True)


def test_the_two_forms_of_a_table_give_the_same_fact(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tobject\tsubject\nParis lies in [MASK].\tFrance|Europe\tParis\n")
    (tmp_path / "b.tsv").write_text("template\tobject\tsubject\r\n[X] lies in [Y].\tFrance | Europe\tParis\r\n")
    (one,), (two,) = read_facts(tmp_path / "a.tsv"), read_facts(tmp_path / "b.tsv")
    assert (one.text, one.answers, one.subject) == (two.text, two.answers, two.subject)
    assert one.text == "Paris lies in [MASK]." and one.answers == ("France", "Europe") and not one.leaks


@pytest.mark.parametrize(("table", "said"), [
    ("text\tobject\nParis lies in France.\tFrance\n", r"facts.tsv:2: .* has 0 gaps, expected one \[MASK\]"),
    ("text\tobject\nParis lies in [MASK].\t |\n", "facts.tsv:2: no object"),
    ("text\tanswer\nParis lies in [MASK].\tFrance\n", "object"),
    ("template\tobject\n[X] lies in [Y].\tFrance\n", "subject"),
])  # fmt: skip
def test_a_table_that_cannot_be_used_says_where(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "facts.tsv").write_text(table)
    with pytest.raises(TaskError, match=said):
        read_facts(tmp_path / "facts.tsv")


def test_the_command_prints_every_relation_and_what_was_left_out(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{fact.relation}\t{fact.text}\t{'|'.join(fact.answers)}\t{fact.subject}\n" for fact in FACTS)
    (tmp_path / "facts.tsv").write_text("relation\ttext\tobject\tsubject\n" + rows)
    assert main(["evaluate", str(bert), "--facts", str(tmp_path / "facts.tsv")]) == 0
    printed = capsys.readouterr().out
    assert "3 facts" in printed and "mean of relations" in printed and f"left out: 1: {PIECES}" in printed
    assert main(["evaluate", str(bert), "--facts", str(tmp_path / "facts.tsv"), "--no-leaks", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[str(tmp_path / "facts.tsv")]
    assert found["overall"]["facts"] == 1 and found["left_out"][LEAK] == 2


def test_answers_are_ranked_among_the_words_of_a_list(bert: Path, tmp_path: Path) -> None:
    fixed = Fixed(bert, {"river": 3.0, "town": 2.0, "bread": 2.0, "sea": 5.0})
    (tmp_path / "words.txt").write_text("town\nriver\nzzqqxx\n\n")
    vocabulary = read_vocabulary(tmp_path / "words.txt", fixed.reader)
    assert sorted(vocabulary) == sorted(fixed.reader.tokenizer.encode(word).ids[0] for word in ("town", "river"))
    found = evaluate(fixed.reader, fixed.head, FACTS, vocabulary=vocabulary)
    assert found.overall.facts == 2 and found.left_out == {PIECES: 1, OUTSIDE: 1}
    assert found.overall.mrr == pytest.approx((1 + 1 / 2) / 2)  # river is first, and town second
    (tmp_path / "words.txt").write_text("zzqqxx\n")
    with pytest.raises(TaskError, match="none of 1 words is one token of this vocabulary, such as 'zzqqxx'"):
        read_vocabulary(tmp_path / "words.txt", fixed.reader)


def test_facts_and_a_list_of_words_are_read_in_the_encoding_that_is_named(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, words = tmp_path / "facts.tsv", tmp_path / "words.txt"
    facts.write_bytes("object\ttext\nriver\tthe café by the [MASK] .\n".encode("latin-1"))
    words.write_bytes("café\nriver\nsea\n".encode("latin-1"))
    asked = ["evaluate", str(bert), "--facts", str(facts), "--vocabulary", str(words)]
    assert main(asked) == 2
    assert "Name it: --encoding NAME" in capsys.readouterr().err
    assert main([*asked, "--encoding", "latin-1"]) == 0
    assert "1 facts" in capsys.readouterr().out


NAMED = FactPrompt("Rome is in [MASK] .", ("Italy",), "in", "Rome", "", "Q220", "[X] is in [Y] .")


@pytest.mark.parametrize(("reading", "expected"), [
    ("replace", ["[ENTITY/Q220] is in [MASK] ."]), ("concat", ["[ENTITY/Q220] / Rome is in [MASK] ."]),
    ("ens_avg", ["Rome is in [MASK] .", "[ENTITY/Q220] is in [MASK] ."]),
])  # fmt: skip
def test_subjects_are_read_by_the_tokens_of_their_entities(reading: Any, expected: list[str]) -> None:
    reader: Any = SimpleNamespace(tokenizer=SimpleNamespace(id=lambda token: 9 if token == "[ENTITY/Q220]" else None))
    unknown = FactPrompt("Oslo is in [MASK] .", ("Norway",), "in", "Oslo", "", "Q585", "[X] is in [Y] .")
    known, other = readings([NAMED, unknown], reader, reading)
    assert [fact.text for fact in known] == expected and {fact.text for fact in other} == {"Oslo is in [MASK] ."}
    with pytest.raises(TaskError, match="expected facts with the columns object, subject, template and entity"):
        readings(FACTS, reader, reading)


@pytest.mark.parametrize(("reading", "rank"), [("replace", 2), ("ens_avg", 1), ("ens_max", 2)])
def test_two_readings_of_a_subject_are_combined_as_the_authors_do(bert: Path, reading: Any, rank: int) -> None:
    """`run_lama.py` of NPoe/ebert: the mean of both probabilities, or those of the reading whose highest one is higher."""
    fixed, tokenizer = Fixed(bert, {}), to_fill(load_checkpoint(bert)).reader.tokenizer
    river, sea = (tokenizer.encode(word).ids[0] for word in ("river", "sea"))
    rows = torch.full((2, tokenizer.size), -20.0)
    rows[0, [river, sea]] = torch.tensor([0.8, 0.2]).log()  # by the name
    rows[1, [river, sea]] = torch.tensor([0.1, 0.9]).log()  # by the token; the mean is 0.45 and 0.55 for sea
    if reading == "ens_avg":
        rows[1, [river, sea]] = torch.tensor([0.3, 0.7]).log()  # the mean is 0.55 for river
    asked: list[int] = []

    def scores(*given: Any) -> torch.Tensor:
        asked.append(1)
        return rows[[len(asked) - 1 if reading != "replace" else 1]]

    fixed.reader.token_scores = scores
    fixed.reader.tokenizer = Named(tokenizer)
    fact = FactPrompt("a boat and a [MASK] .", ("river",), "", "boat", "", "Q1", "a [X] and a [Y] .")
    found = evaluate(fixed.reader, fixed.head, [fact], entities=reading)
    assert found.overall.mrr == pytest.approx(1 / rank)


class Named:
    """A tokenizer that has the token of an entity, and reads it as [UNK]."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def id(self, token: str) -> int | None:
        return 1 if token == "[ENTITY/Q1]" else self.tokenizer.id(token)
