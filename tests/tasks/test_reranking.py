"""Reranking: judgments and candidates, the metrics against trec_eval, what a network learns, and the second stage of a search."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cloze
from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.records import CandidatesAnswer, MatchAnswer, RelevanceAnswer
from cloze.corpus.records.answer import Columns
from cloze.errors import CheckpointError, TaskError
from cloze.networks import Clock
from cloze.objectives import listwise
from cloze.runs.finetuning.finetune import finetune
from cloze.tasks import task
from cloze.tasks.evaluation import evaluate
from cloze.tasks.kinds.reranking import METRICS, Judgment
from cloze.tasks.linear.fit import fit_linear
from cloze.tasks.measures.bm25 import bm25
from cloze.tasks.search import Hit, depth_of, rerank, reranker_of
from cloze.tasks.task import join_examples
from cloze.tasks.tuned_folder import load_tuned

COLUMNS = Columns("query", "passage", "label", None, None, "auto")
TOPICS = ["cat", "dog", "mice", "rain", "river", "night", "garden", "mat"]
VALUES = ["training.batch=16", "training.epochs=6", "training.rate.peak=5e-3", "length=24", "network.dropout=0"]
QRELS = {
    "q1": {"a": 2, "b": 0, "c": 1, "d": 1, "z": 3}, "q2": {"a": 0, "b": 0}, "q3": {"m": 1}, "q4": {"p": 1, "q": -1, "r": 2},
    "q5": {"a": 1},
}  # fmt: skip
RUN = {
    "q1": {"a": 0.5, "b": 0.5, "c": 0.25, "e": 1.5, "d": -1.0}, "q2": {"a": 0.1, "b": 0.2}, "q3": {"n": 0.5, "m": 0.5, "o": 0.25},
    "q4": {**{f"x{number:02d}": 2.0 - number * 0.125 for number in range(12)}, "p": 0.5, "q": 4.0, "r": -2.0},
}  # fmt: skip
#: Of pytrec_eval-terrier 0.5.10 for these, in its order of the queries.
TREC = {
    "ndcg@10": (0.350027297352, 0.0, 0.630929753571, 0.0), "map": (0.358333333333, 0.0, 0.5, 0.102380952381),
    "recall@10": (0.75, 0.0, 1.0, 0.0), "recall@100": (0.75, 0.0, 1.0, 1.0), "success@1": (0.0, 0.0, 0.0, 0.0),
}  # fmt: skip
RECIPROCAL = (1 / 3, 0.0, 0.5, 1 / 14)  # recip_rank, which MRR@10 cuts


def quiet(line: str) -> None:
    pass


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """A collection with judgments and the run."""
    passages = dict.fromkeys([*"abcdemnopqrz", *RUN["q4"]])
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": name, "title": "T" * (name == "a"), "text": f"text {name}"}) + "\n" for name in passages)
    )
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps({"_id": name, "text": f"ask {name}"}) + "\n" for name in QRELS))
    for folder in ("qrels", "runs"):
        (tmp_path / folder).mkdir()
    rows = [f"{query}\t{passage}\t{grade}\n" for query, grades in QRELS.items() for passage, grade in grades.items()]
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    trec = [f"{query} 0 {passage} {grade}\n" for query, grades in QRELS.items() for passage, grade in grades.items()]
    (tmp_path / "qrels" / "dev.txt").write_text("".join(trec))
    lines = [f"{query} Q0 {name} 1 {score} bm25\n" for query, scores in RUN.items() for name, score in scores.items()]
    (tmp_path / "runs" / "test.run").write_text("".join(lines))
    return tmp_path


def test_the_metrics_of_a_run_are_those_of_trec_eval(collection: Path) -> None:
    kind = task("reranking")
    examples = kind.read(collection / "qrels" / "test.tsv")
    truth = kind.truth(examples, ())
    scores = np.array([RUN[judgment.query_id][judgment.passage_id] for judgment in truth])
    worth = kind.per_example(truth, scores, ())
    assert worth.shape == (4, len(METRICS))  # the query that the run lacks is left out
    by_name = dict(zip(METRICS, worth.T, strict=True))
    for name, values in TREC.items():
        assert by_name[name] == pytest.approx(values, abs=1e-11)
    assert by_name["mrr@10"] == pytest.approx([value if value >= 0.1 else 0.0 for value in RECIPROCAL])
    assert kind.compute_metrics(worth, ())["ndcg@10"] == pytest.approx(0.24523926273074315)
    equal = kind.constant_metrics("equal scores", truth, ())
    assert 0.1 < equal["ndcg@10"] < 0.6 and equal == kind.constant_metrics("equal scores", truth, ())
    with pytest.raises(TaskError, match="no query with candidates to measure on"):
        kind.compute_metrics([], ())


def test_an_evaluation_says_how_the_run_ranks_its_candidates(tuned: Any, collection: Path) -> None:
    learner, _ = load_tuned(load_checkpoint(tuned.folder))
    first, second = evaluate(learner, learner.task.read(collection / "qrels" / "test.tsv")).remarks[-2:]
    assert first.startswith("the run on the same candidates: ndcg@10 0.2452, mrr@10 0.2083, map 0.2402, recall@10 0.4375")
    assert second == "1 relevant passage not among the candidates: no ranking of them can find these"


def test_candidates_are_judged_passages_and_some_that_are_drawn_for_the_query(collection: Path) -> None:
    kind = task("reranking", negatives=3)
    examples = kind.read(collection / "qrels" / "dev.txt")
    first = examples.query_ids.count("q1")
    of_first = list(zip(examples.passage_ids[:first], (examples.labels or ())[:first], strict=True))
    assert of_first[:5] == list(QRELS["q1"].items())
    drawn = {name for name, _ in of_first[5:]}
    assert len(drawn) == 3 and not drawn & QRELS["q1"].keys() and all(grade == 0 for _, grade in of_first[5:])
    assert (examples.texts[0], examples.others[0], examples.lines[0]) == ("ask q1", "T text a", 1)
    (collection / "qrels" / "dev.txt").write_text("q1 0 a 2\nq1 0 b 0\nq1 0 c 1\nq1 0 d 1\nq1 0 z 3\n")
    alone = kind.read(collection / "qrels" / "dev.txt")  # other queries have no say in what is drawn
    assert alone.passage_ids == [name for name, _ in of_first]
    records = list(RelevanceAnswer(negatives=3).read(collection / "qrels" / "dev.txt", COLUMNS))
    assert [(record.texts, record.answer) for record in records] == [
        ((query, passage), float((grade or 0) >= 1))
        for query, passage, grade in zip(alone.texts, alone.others or (), alone.labels or (), strict=True)
    ]
    of_run = list(RelevanceAnswer(negatives=3).read(collection / "qrels" / "test.tsv", COLUMNS))
    fourth = [record.texts[1] for record in of_run if record.texts[0] == "ask q4"]
    assert fourth[:3] == ["text p", "text q", "text r"] and len(fourth) == 6 and all("x" in text for text in fourth[3:])


def test_negatives_of_a_run_come_from_the_passages_that_it_ranks_highest(collection: Path) -> None:
    """As `build_train_from_ranking.py` of luyug/Reranker: the ranking without the relevant passages, cut, then drawn from."""
    lines = [f"q4 Q0 {name} 1 {score} bm25\n" for name, score in sorted(RUN["q4"].items())]  # the order of lines says nothing
    (collection / "runs" / "test.run").write_text("".join(reversed(lines)))
    highest = sorted(RUN["q4"], key=lambda name: -RUN["q4"][name])
    chosen = [f"text {name}" for name in highest if name not in QRELS["q4"]][:4]
    assert chosen == ["text x00", "text x01", "text x02", "text x03"]
    for negatives in (3, 4, 7):
        records = RelevanceAnswer(negatives=negatives, top=4).read(collection / "qrels" / "test.tsv", COLUMNS)
        drawn = [record.texts[1] for record in records if record.texts[0] == "ask q4"][3:]
        assert len(drawn) == min(negatives, 4) and set(drawn) <= set(chosen)


def test_predictions_on_judgments_are_tables_of_their_own(collection: Path) -> None:
    kind = task("reranking")
    assert kind.rows_of(collection / "qrels" / "test.tsv") is None
    assert task("retrieval").rows_of(collection / "qrels" / "test.tsv").columns == ("query", "passage", "label")


def test_queries_of_several_files_stay_apart(tmp_path: Path) -> None:
    kind = task("reranking")
    for name in "ab":
        (tmp_path / name).write_text(f"query\tpassage\tlabel\nask {name}\tx\t1\nask {name}\ty\t0\n")
    examples = join_examples([kind.for_files(columns=None, format="tsv", quoting="auto").read(tmp_path / name) for name in "ab"])
    assert examples.by_query() == [[0, 1], [2, 3]] and len(kind.per_example(kind.truth(examples, ()), np.arange(4.0), ())) == 2


def test_retrieval_reads_the_relevant_pairs_of_judgments(collection: Path) -> None:
    examples = task("retrieval").read(collection / "qrels" / "test.tsv")
    pairs = list(zip(examples.texts, examples.others or (), strict=True))
    assert [record.texts for record in MatchAnswer().read(collection / "qrels" / "test.tsv", COLUMNS)] == pairs
    assert pairs == [
        (f"ask {query}", ("T " if name == "a" else "") + f"text {name}")
        for query, grades in QRELS.items() for name, grade in grades.items() if grade >= 1
    ]  # fmt: skip


@pytest.mark.parametrize(("file", "text", "said"), [
    ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\ta\tyes\n", "test.tsv:2: the score is 'yes'; expected a whole number"),
    ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\ta\n", "test.tsv:2: 2 cells; expected query-id, corpus-id, score,"),
    ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq9\ta\t1\n", "test.tsv:2: the query 'q9' is not in .*queries.jsonl"),
    ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n", "test.tsv: no judgments; expected at least one"),
    ("qrels/dev.txt", "q1 0 nowhere 1\n", "dev.txt:1: the passage 'nowhere' is not in .*corpus.jsonl"),
    ("runs/test.run", "q1 Q0 nowhere 1 0.5 x\n", "test.run: names the passage 'nowhere' for the query 'q1', which is not in"),
    ("runs/test.run", "q1 a 0.5\n", "test.run:1: 'q1 a 0.5'; expected six cells: query, Q0, passage, rank, score"),
    ("runs/test.txt", "", "test.tsv: has several runs: .*test.run, .*test.txt. Keep one of them"),
])  # fmt: skip
def test_what_is_wrong_with_judgments_is_said(collection: Path, file: str, text: str, said: str) -> None:
    (collection / file).write_text(text)
    with pytest.raises(TaskError, match=said):
        task("reranking").read(collection / ("qrels/dev.txt" if "dev" in file else "qrels/test.tsv"))


def test_a_folder_of_judgments_is_no_file(collection: Path) -> None:
    with pytest.raises(TaskError, match=r"a folder with judgments of several parts. Name the judgments of one, .*dev\.txt"):
        task("reranking").read(collection)
    with pytest.raises(TaskError, match="a folder with judgments of several parts"):
        list(RelevanceAnswer().read(collection, COLUMNS))


def test_tables_grade_pairs_or_name_wrong_passages_or_only_relevant_ones(tmp_path: Path) -> None:
    kind = task("reranking", negatives=1)
    graded = tmp_path / "graded.tsv"
    graded.write_text("query\tpassage\tlabel\nq\ta\t2\nr\tb\t0\nq\tc\t0\n")
    assert kind.truth(kind.read(graded), ()) == [
        Judgment(2, "q", "2", "2"), Judgment(0, "r", "3", "3"), Judgment(0, "q", "2", "4"),
    ]  # fmt: skip
    assert [record.answer for record in RelevanceAnswer().read(graded, COLUMNS)] == [1.0, 0.0, 0.0]
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"query": "q", "passage": "a", "wrong": ["b", "c"]}\n{"query": "r", "passage": "d", "wrong": "e"}\n')
    examples = kind.read(wrong)
    assert (examples.others, examples.labels) == (["a", "b", "c", "d", "e"], [1, 0, 0, 1, 0])
    assert examples.passage_ids == ["1", "1.1", "1.2", "2", "2.1"]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("query\tpassage\nq\ta\nr\tb\n")
    examples = kind.read(pairs)
    assert list(zip(examples.texts, examples.others or (), examples.labels or (), strict=True)) == [
        ("q", "a", 1), ("q", "b", 0), ("r", "b", 1), ("r", "a", 0),
    ]  # fmt: skip
    assert kind.read(pairs, labelled=False).others == ["a", "b"]
    graded.write_text("query\tpassage\tlabel\nq\ta\tyes\n")
    with pytest.raises(TaskError, match="graded.tsv:2: the grade is 'yes'; expected a whole number"):
        kind.read(graded)
    faults: list[tuple[int, str]] = []
    assert list(RelevanceAnswer().read(graded, COLUMNS, lambda line, why: faults.append((line, why)))) == []
    assert [line for line, _ in faults] == [2]


def test_bm25_is_that_of_lucene() -> None:
    passages = ["the cat sat", "the dog", "a cat and a cat and a mat"]
    scores = bm25(["cat mat"] * 3, passages)
    idf = {"cat": math.log(1 + 1.5 / 2.5), "mat": math.log(1 + 2.5 / 1.5)}
    norms = [0.9 * (0.6 + 0.4 * length / (13 / 3)) for length in (3, 2, 8)]
    assert scores == pytest.approx([
        idf["cat"] / (1 + norms[0]), 0.0, idf["cat"] * 2 / (2 + norms[2]) + idf["mat"] / (1 + norms[2]),
    ])  # fmt: skip


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queries, each with a passage that has its word and two that have not."""
    rows = [
        {"query": f"the {a}", "passage": f"the mat and the {b}", "label": int(a == b)}
        for number, a in enumerate(TOPICS) for b in (TOPICS[number - 1], a, TOPICS[number - 3])
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tuned(folder: Callable[[str], Path], pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("reranking") / "out"
    return finetune(
        folder("bert"), task="reranking", train=[str(pairs)], dev=[str(pairs)], out=out, overrides=VALUES, report=quiet
    )


def test_a_network_learns_which_passages_are_relevant_and_its_folder_says_the_same(tuned: Any, pairs: Path) -> None:
    learner, task_json = load_tuned(load_checkpoint(tuned.folder))
    examples = learner.task.read(pairs)
    evaluation = evaluate(learner, examples, constant_answer=task_json["constant_answer"], bootstrap=100)
    assert evaluation.metrics == pytest.approx(tuned.outcomes[1].standing.metrics)
    assert len(evaluation.per_example) == len(TOPICS) and evaluation.baseline is not None
    assert evaluation.baseline["always"] == "equal scores"
    assert evaluation.metrics["ndcg@10"] > evaluation.baseline["ndcg@10"]
    assert any(remark.startswith("BM25 on the same candidates: ndcg@10 ") for remark in evaluation.remarks)
    assert evaluation.intervals["ndcg@10"].low <= evaluation.metrics["ndcg@10"] <= evaluation.intervals["ndcg@10"].high
    linear = fit_linear(learner.task, examples)
    assert linear.measure(examples)["ndcg@10"] == pytest.approx(1.0)  # the word that both texts have
    assert linear.task.loss(examples, linear.outputs(examples)) < math.log(2)


def test_transformers_and_sentence_transformers_give_the_same_scores(tuned: Any, pairs: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    learner, _ = load_tuned(load_checkpoint(tuned.folder))
    examples = learner.task.read(pairs)
    predictions = learner.predict(examples)
    model = AutoModelForSequenceClassification.from_pretrained(tuned.folder)
    assert model.config.num_labels == 1
    tokenizer = AutoTokenizer.from_pretrained(tuned.folder)
    with torch.inference_mode():
        logits = model.eval()(**tokenizer(examples.texts, examples.others, padding=True, return_tensors="pt")).logits
    assert [one.score for one in predictions] == pytest.approx(logits[:, 0].tolist(), abs=1e-4)
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder(str(tuned.folder), device="cpu")
    probabilities = cross_encoder.predict(list(zip(examples.texts, examples.others or (), strict=True)), show_progress_bar=False)
    assert [one.probability for one in predictions] == pytest.approx(probabilities.tolist(), abs=1e-4)


def test_two_classes_are_scored_by_the_odds_of_the_second(tuned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, _ = load_tuned(load_checkpoint(tuned.folder))
    monkeypatch.setattr(learner, "all_scores", lambda rows, size, report: np.array([[1.0, 3.0], [2.0, 0.5]], np.float32))
    assert learner.scores_of(["the cat"] * 2, ["the mat"] * 2).tolist() == [2.0, -1.5]


def test_a_group_is_a_relevant_passage_and_others_of_its_query(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    rows = [("q", "a", 1), ("q", "b", 0), ("r", "c", 1), ("q", "d", 2), ("q", "e", 0), ("q", "f", 0)]
    path.write_text("query\tpassage\tlabel\n" + "".join(f"{q}\t{p}\t{grade}\n" for q, p, grade in rows))
    (first, second) = CandidatesAnswer(negatives=2).read(path, COLUMNS)
    assert (first.line, first.texts[:2], first.answer) == (2, ("q", "a"), 0)
    assert (second.line, second.texts[:2], second.answer) == (5, ("q", "d"), 0)
    for record in (first, second):
        assert len(record.texts) == 4 and set(record.texts[2:]) < {"b", "e", "f"}
    path.write_text("query\tpassage\tlabel\nq\ta\t1\nr\tb\t0\n")
    with pytest.raises(TaskError, match="no query has a relevant passage and another one"):
        list(CandidatesAnswer().read(path, COLUMNS))


def test_a_softmax_over_the_passages_of_a_query_trains_a_classifier_with_one_label(
    folder: Callable[[str], Path], pairs: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    result = finetune(
        folder("bert"), recipe="lce", task="lce", train=[str(pairs)], dev=[str(pairs)], out=tmp_path / "out",
        overrides=["training.epochs=2", "training.rate.peak=5e-3", "length=24"], report=quiet,
    )  # fmt: skip
    learner, _ = load_tuned(load_checkpoint(result.folder))
    assert learner.task.negatives == 7
    examples = learner.task.read(pairs)
    assert evaluate(learner, examples).metrics == pytest.approx(result.outcomes[1].standing.metrics)
    model = AutoModelForSequenceClassification.from_pretrained(result.folder).eval()
    tokens = AutoTokenizer.from_pretrained(result.folder)(examples.texts, examples.others, padding=True, return_tensors="pt")
    with torch.inference_mode():
        logits = model(**tokens).logits[:, 0].tolist()
    assert [prediction.score for prediction in learner.predict(examples)] == pytest.approx(logits, abs=1e-4)


def test_listwise_is_the_softmax_of_choose() -> None:
    objective = listwise(width=4, clock=Clock())
    states = {"summary": torch.randn(3, 4, generator=torch.Generator().manual_seed(0))}
    batch = Batch({"targets/label": torch.tensor([1, 0, 0]), "owner": torch.tensor([0, 0, 0])})
    scores = objective.head(states["summary"])[:, 0]
    assert objective(states, batch).total.item() == pytest.approx(-scores.log_softmax(0)[0].item(), abs=1e-6)


def test_predictions_are_runs_of_trec_too(
    tuned: Any, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(tuned.folder), str(pairs), "--out", str(tmp_path / "out.run")]) == 0
    assert main(["predict", str(tuned.folder), str(pairs), "--out", str(tmp_path / "out.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    lines = [line.split() for line in (tmp_path / "out.run").read_text().splitlines()]
    assert lines == [
        [row["query_id"], "Q0", str(row["line"]), str(row["rank"]), f"{row['score']:.6f}", "cloze"] for row in rows
    ]
    assert [row["query_id"] for row in rows[:4]] == ["1", "1", "1", "4"]
    assert sorted(row["rank"] for row in rows[:3]) == [1, 2, 3]
    assert main(["predict", str(tuned.folder), "the cat\tthe mat and the cat"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rank"] == 1


def test_the_second_stage_of_a_search_ranks_what_the_first_has_found(
    tuned: Any, folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passages = tmp_path / "passages.txt"
    passages.write_text("".join(f"the mat and the {topic}\n" for topic in TOPICS))
    search = ["retrieve", str(folder("bert")), "the cat", "--passages", str(passages)]
    assert main([*search, "--rerank", str(tuned.folder), "--top", "2", "--rerank-top", "5"]) == 0
    again = json.loads(capsys.readouterr().out)["passages"]
    assert main([*search, "--top", "5"]) == 0
    first = json.loads(capsys.readouterr().out)["passages"]
    reranker = reranker_of(load_checkpoint(tuned.folder))
    scores = reranker.scores_of(["the cat"] * 5, [hit["text"] for hit in first])
    best = sorted(zip(first, scores, strict=True), key=lambda pair: -pair[1])[:2]
    assert [hit["line"] for hit in again] == [hit["line"] for hit, _ in best]
    assert [hit["score"] for hit in again] == pytest.approx([score for _, score in best], abs=1e-5)
    assert main([*search, "--rerank", str(tuned.folder), "--top", "9", "--rerank-top", "5"]) == 2
    assert "--top 9: only 5 passages are read again (--rerank-top)." in capsys.readouterr().err
    assert main([*search, "--rerank-top", "5"]) == 2
    assert "--rerank-top 5: there is no second stage." in capsys.readouterr().err
    equal = [[Hit(1, 0.5, "the mat"), Hit(2, 0.25, "the mat")], []]
    assert [[hit.passage for hit in ranking] for ranking in rerank(reranker, ["the cat", "the dog"], equal)] == [[1, 2], []]


def test_python_searches_in_two_stages_too(tuned: Any, folder: Callable[[str], Path]) -> None:
    passages = [f"the mat and the {topic}" for topic in TOPICS]
    finder, reranker = cloze.load(folder("bert")), cloze.load(tuned.folder)
    (first, second), alone = cloze.retrieve(finder, ["the cat", "the dog"], passages), cloze.retrieve(finder, "the cat", passages)
    assert [hit.text for hit in first] == [hit.text for hit in alone] and len(first) == len(second) == len(TOPICS)
    assert first[0].text == passages[first[0].passage]
    again = cloze.retrieve(finder, "the cat", passages, top=2, reranker=reranker, rerank_top=5)
    scores = reranker_of(reranker.checkpoint).scores_of(["the cat"] * 5, [hit.text for hit in first[:5]])
    assert [hit.score for hit in again] == pytest.approx(sorted(scores, reverse=True)[:2], abs=1e-5)


def test_how_deep_a_search_goes() -> None:
    for top, rerank_top, depths in [
        (None, None, (100, 100)), (10, None, (10, 100)), (200, None, (200, 200)), (None, 20, (20, 20)), (5, 20, (5, 20)),
        (None, 500, (100, 500)),
    ]:  # fmt: skip
        assert depth_of(top, rerank_top, again=True) == depths
    for again in (False, True):
        with pytest.raises(TaskError, match="--top 0: expected at least one passage for each query"):
            depth_of(0, None, again=again)
    assert depth_of(None, None, again=False) == (100, 100) and depth_of(7, None, again=False) == (7, 7)


def test_a_folder_of_transformers_is_a_second_stage_and_one_of_another_task_is_none(
    tuned: Any, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    texts = ["the cat", "the dog"], ["the mat and the cat", "the river"]
    scores = reranker_of(load_checkpoint(tuned.folder)).scores_of(*texts)
    plain = shutil.copytree(tuned.folder, tmp_path / "plain", ignore=shutil.ignore_patterns("cloze"))
    assert reranker_of(load_checkpoint(plain)).scores_of(*texts) == pytest.approx(scores, abs=1e-5)
    other = shutil.copytree(tuned.folder, tmp_path / "other")
    task_json = json.loads((other / "cloze" / "task.json").read_text())
    (other / "cloze" / "task.json").write_text(json.dumps({**task_json, "task": "regression"}))
    with pytest.raises(TaskError, match="was fine-tuned for regression, not for reranking.\n  Give a folder of cloze finetune"):
        reranker_of(load_checkpoint(other))
    with pytest.raises(CheckpointError, match="not fine-tuned"):
        reranker_of(load_checkpoint(folder("bert")))
