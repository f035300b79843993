"""Facts completed by WKLM's head: the objects of a relation are ranked by what stands around them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError
from cloze.tasks.intrinsic.fact_completion import complete, completing_head
from cloze.tasks.intrinsic.facts import LONG, FactPrompt

from ..contracts.conftest import start, system  # noqa: F401  fixtures

NAMES = ("the river", "sea", "stone wall")
FACTS = [
    FactPrompt("the old town lies at [MASK]", ("the river", "sea"), "at"),
    FactPrompt("a boat lies at [MASK] .", ("stone wall",), "at"),
    FactPrompt("a wall is [MASK] .", ("stone",), "is"),
]


@pytest.fixture(scope="module")
def wklm(start: Callable[[str], Path]) -> Path:  # noqa: F811
    return start("wklm")


def test_objects_are_ranked_by_the_states_around_them(wklm: Path) -> None:
    """`evaluate_kdn.py` of xwhan/fairseq-wklm: [CLS] text object [SEP]; w · [last token of the text; [SEP]]."""
    loaded = load_checkpoint(wklm)
    head, reader = completing_head(loaded), Reader.of(loaded)
    logits = []
    for name in NAMES:
        (row,) = reader.encode([f"the old town lies at {name}"])
        with torch.no_grad():
            hidden = reader.states(reader.batch([row]), {"hidden"})["hidden"][0]
            logits.append(float(head.head(torch.cat([hidden[5], hidden[-1]]))))  # [CLS] the old town lies at | … | [SEP]
    facts = [FactPrompt("the old town lies at [MASK]", (name,), name) for name in NAMES]
    others = [FactPrompt("[MASK]" + " x" * 999, NAMES, name) for name in NAMES]  # too long: they only add candidates
    results = complete(reader, head, [*facts, *others])
    assert results.left_out == {LONG: 3}
    ranks = [1 + sum(other > logit for other in logits) for logit in logits]
    assert [relation.mrr for relation in results.relations] == [1 / rank for rank in ranks] and sorted(ranks) == [1, 2, 3]


def test_a_bias_that_likes_every_object_ties_them(wklm: Path) -> None:
    loaded = load_checkpoint(wklm)
    head = completing_head(loaded)
    with torch.no_grad():
        head.head.output.weight.zero_()
    results = complete(Reader.of(loaded), head, FACTS)
    # "at": three objects; two are right, so one rival is tied: rank 1.5; one is right: 2. "is": the only object, rank 1.
    assert results.overall.mrr == pytest.approx((1 / 1.5 + 1 / 2 + 1) / 3) and results.overall.p5 == 1.0
    assert results.mean.p1 == 0.5


def test_the_command_completes_and_refuses_what_does_not_fit(
    wklm: Path, start: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]  # noqa: F811
) -> None:
    rows = "".join(f"{fact.relation}\t{fact.text}\t{'|'.join(fact.answers)}\n" for fact in FACTS)
    (tmp_path / "facts.tsv").write_text("relation\ttext\tobject\n" + rows)
    asked = ["evaluate", str(wklm), "--facts", str(tmp_path / "facts.tsv"), "--complete"]
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[str(tmp_path / "facts.tsv")]["relations"][1]["p1"] == 1.0
    assert main([*asked, "--entities", "replace"]) == 2
    assert "--complete ranks whole names" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="has no head that tells original mentions from replaced ones"):
        completing_head(load_checkpoint(start("bert")))
