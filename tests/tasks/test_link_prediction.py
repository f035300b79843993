"""Link prediction: filtered ranks in which ties count by half, files of facts, and the command on a graph of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

import cloze as package
from cloze.cli.main import main
from cloze.errors import CheckpointError, RunError, TaskError
from cloze.networks import GraphVectors
from cloze.tasks.intrinsic.link_prediction import (
    LinkQuestions,
    LinkScorer,
    VectorScorer,
    evaluate_links,
    rank,
    ranks,
    read_questions,
    scorer_of,
)


class Fixed(LinkScorer):
    """Scores an entity by its number alone, from a list."""

    def __init__(self, *scores: float) -> None:
        self.entities, self.relations = tuple("abcdefgh"[: len(scores)]), ("r",)
        self.all = torch.tensor(scores)

    def scores(self, triples: Any, column: Literal[0, 2], candidates: Any) -> Tensor:
        rows = self.all.expand(len(triples), -1)
        return rows.clone() if candidates is None else rows.gather(1, torch.from_numpy(candidates))


def questions(*facts: tuple[int, int, int], known: tuple[tuple[int, int, int], ...] = ()) -> LinkQuestions:
    return LinkQuestions(np.array(facts), np.array([*known, *facts]), 0, ())


def test_the_worked_example_has_the_rank_two_and_a_half() -> None:
    # distances: the right one .5; .1 makes a known fact; .3, .5 and .9 do not
    scorer = Fixed(-0.5, -0.1, -0.3, -0.5, -0.9)
    found, candidates = ranks(scorer, questions((4, 0, 0), known=((4, 0, 1),)), 2, candidates=None)
    assert found.tolist() == [2.5] and candidates.tolist() == [4]
    assert rank(torch.tensor([[-0.5, -0.1, -0.3, -0.5, -0.9]]), torch.tensor([0])).tolist() == [3.5]


def test_a_model_that_scores_everything_alike_gains_nothing() -> None:
    scorer, done = Fixed(*[1.0] * 8), list[int]()
    scorer.at_once = 8  # one fact at a time
    found = evaluate_links(scorer, questions((0, 0, 1), (2, 0, 3)), report=done.append)
    assert done == [1, 1, 1, 1]  # each fact twice, for its head and its tail
    assert found.metrics == {"mean_rank": 4.5, "mrr": 1 / 4.5, "hits@1": 0.0, "hits@3": 0.0, "hits@10": 1.0}
    assert found.baseline == {"always": "the same score", **found.metrics}


def test_scores_that_are_no_numbers_are_an_error_and_no_first_rank() -> None:
    with pytest.raises(RunError, match="not a finite number"):
        evaluate_links(Fixed(float("nan"), 1.0, 2.0), questions((0, 0, 1)))


def test_random_candidates_are_different_wrong_entities_and_the_same_every_time() -> None:
    scorer = Fixed(8, 7, 6, 5, 4, 3, 2, 1)
    asked = questions((0, 0, 7), known=((0, 0, 1), (0, 0, 2)))
    found, numbers = ranks(scorer, asked, 2, candidates=5, seed=1)
    assert found.tolist() == [6.0] and numbers.tolist() == [6]  # all five are better: each is drawn once
    one, other = (evaluate_links(scorer, asked, candidates=3, seed=1).metrics for _ in range(2))
    assert one == other
    with pytest.raises(TaskError, match="--candidates 6: only 5 entities make no known fact"):
        ranks(scorer, asked, 2, candidates=6)


@pytest.mark.parametrize("norm", [1, 2])
def test_distances_are_those_of_training(norm: Literal[1, 2]) -> None:
    torch.manual_seed(1)
    network = GraphVectors(width=6, norm=norm, vocab_size=9, entity_count=6).eval()
    scorer = VectorScorer(network, ["[UNK]", *"abcdef", "relation:a", "s"])
    assert scorer.entities == tuple("abcdef") and scorer.relations == ("a", "s")
    facts = np.array([[0, 1, 3], [5, 0, 2]])
    for column in (0, 2):
        every = scorer.scores(facts, column, None)  # type: ignore[arg-type]
        for place, fact in enumerate(facts):
            triples = np.repeat(fact[None], 6, axis=0)
            triples[:, column] = np.arange(6)
            tokens = torch.from_numpy(triples + np.array([1, 7, 1]))
            with torch.no_grad():
                expected = -network(want=frozenset({"distance"}), tokens=tokens)["distance"]
            torch.testing.assert_close(every[place], expected)
        some = scorer.scores(facts, column, np.array([[4, 0], [1, 1]]))  # type: ignore[arg-type]
        torch.testing.assert_close(some, every.gather(1, torch.tensor([[4, 0], [1, 1]])))


def test_unknown_facts_are_last_among_as_many_as_the_others() -> None:
    """With candidates, the last rank is that of one right answer and its candidates, not of the whole graph."""
    facts = np.array([[0, 0, 1]])
    asked = LinkQuestions(facts, facts, 1, ("1 unknown",))
    evaluation = evaluate_links(Fixed(*[1.0] * 8), asked, candidates=3, last=True)
    assert evaluation.metrics["mean_rank"] == (2.5 + 4) / 2


def test_facts_that_are_known_or_unknown_are_told_with_their_line(tmp_path: Path) -> None:
    scorer = Fixed(1, 2, 3)
    train, test = tmp_path / "train.tsv", tmp_path / "test.tsv"
    train.write_text("a\tr\tb\nb\tr\tc\n")
    test.write_text("c\tr\ta\r\nz\tr\ta\r\n")
    found = read_questions(scorer, test, [train, test])
    assert found.facts.tolist() == [[2, 0, 0]] and len(found.known) == 3 and found.unknown == 1
    assert f"1 of 2 triples have an id that was never trained and are left out (first: {test}:2: 'z')" in found.remarks[0]
    assert evaluate_links(scorer, found).examples == 1
    worst = evaluate_links(scorer, found, last=True)
    assert worst.examples == 2 and worst.by_class[0]["mean_rank"] == (1 + 3) / 2
    test.write_text("c\tr\ta\nb\tr\tc\n")
    with pytest.raises(TaskError, match=r"test\.tsv:2: the fact is known already: .*train\.tsv:2.*\n  Find all.*--against"):
        read_questions(scorer, test, [train])
    test.write_text("x\ty\tz\n")
    with pytest.raises(TaskError, match=r"no fact whose ids the model knows \(first: .*test\.tsv:1: 'x'\).\n.*such as 'a', 'b'"):
        read_questions(scorer, test, [])


def test_a_model_of_text_is_refused() -> None:
    class Loaded:
        network, folder = torch.nn.Linear(1, 1), "BERT"
        imported = type("Imported", (), {"model": type("Model", (), {"part": "transformer"})})

    with pytest.raises(CheckpointError, match="BERT: transformer scores no triples.*\n  Train one: cloze pretrain transe"):
        scorer_of(Loaded())


def test_a_graph_is_trained_and_ranked_by_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = [f"p{i}\tnext\tp{(i + 1) % 12}" for i in range(12)] + [f"p{i}\tafter next\tp{(i + 2) % 12}" for i in range(12)]
    train, test, graph, run = (tmp_path / name for name in ("train.tsv", "test.tsv", "graph", "run"))
    test.write_text(facts.pop(13) + "\n")
    train.write_text("".join(f"{fact}\n" for fact in facts))
    assert main(["corpus", "build", str(train), "--format", "triples", "--out", str(graph)]) == 0
    steps = ["--budget", "80steps", "--set", "training.batch=23", "--set", "network.width=16", "--set", "training.engine=loop"]
    rate = ["--set", "training.rate.peak=1", "--set", "corpus.triples.negatives.either=5"]
    assert main(["pretrain", "transe", "--corpus", str(graph), "--out", str(run), *steps, *rate]) == 0
    capsys.readouterr()
    asked = ["evaluate", str(run), str(test), "--task", "link_prediction", "--json"]
    assert main([*asked, "--known", str(train)]) == 0
    found = json.loads(capsys.readouterr().out)[str(test)]
    assert found["examples"] == 1 and found["baseline"]["mean_rank"] > 5
    assert main(["evaluate", str(run), str(train), "--task", "link_prediction", "--json"]) == 0
    learned = json.loads(capsys.readouterr().out.partition("\nhint")[0])[str(train)]
    assert learned["examples"] == 23 and learned["metrics"]["mean_rank"] < 0.6 * learned["baseline"]["mean_rank"]
    assert main(["neighbours", str(run), "p3", "--count", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main([*asked, "--candidates", "few"]) == 2
    assert "--candidates few: expected all" in capsys.readouterr().err
    assert main([*asked, "--seed", "1"]) == 2
    assert "--seed 1: all candidates are ranked, so nothing is drawn at random." in capsys.readouterr().err
    model = package.load(run)
    assert model.can == ("neighbours", "analogy")
    assert main(["embed", str(run), "p3 next p4"]) == 2  # as many words as a triple has
    why = f"{run}: reads the triples of a graph, so it gives no vectors of texts."
    assert f"{why}\n  To see those of its entities: cloze neighbours {run} ENTITY\n" in capsys.readouterr().err
    with pytest.raises(CheckpointError) as error:
        model.embed("p3")
    assert str(error.value) == f"model.embed: {why}\n  This model can: model.neighbours(), model.analogy()."
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert f"cloze evaluate {run} TEST.tsv --task link_prediction" in shown and "--similarity" not in shown
