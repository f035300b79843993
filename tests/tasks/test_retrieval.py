"""Retrieval: which passage belongs to a query, by one network that reads both, among the passages of the whole step."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import cloze
from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.share import share
from cloze.cli.main import main
from cloze.cli.use.retrieve import _texts as passages_of
from cloze.corpus.records import Records
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError, RecipeError, TaskError
from cloze.exercises.companions.separate import Separate
from cloze.exercises.exercise import Exercise, PlacedEdit
from cloze.objectives import Contrast
from cloze.rng import Draw, row_keys
from cloze.rows import Rows
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto
from cloze.tasks.evaluation import evaluate
from cloze.tasks.kinds.retrieval import Row, untuned
from cloze.tasks.measures.ranking import METRICS, mean_metrics, metrics_by_query, nearest, ranks
from cloze.tasks.task import LabelledRow
from cloze.tasks.tuned_folder import load_tuned
from cloze.training.checkpoints.checkpoint import Checkpoints

VALUES = ["training.batch=16", "training.epochs=8", "training.rate.peak=5e-3", "length=24", "network.dropout=0"]
TOPICS = ["cat", "dog", "mice", "rain", "river", "night", "garden", "mat"]


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queries and passages that share a word, in 8 of them; every pair of words in some order."""
    rows = [(f"the {a} saw the {b}", f"on the mat {b} and all {a}") for a in TOPICS for b in TOPICS if a != b]
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("query\tpassage\n" + "".join(f"{q}\t{p}\n" for q, p in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tuned(folder: Callable[[str], Path], pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("retrieval") / "out"
    return finetune(
        folder("bert"), task="retrieval", train=[str(pairs)], dev=[str(pairs)], out=out, overrides=VALUES, report=quiet
    )


def test_a_network_learns_which_passages_belong_to_queries_and_its_folder_says_the_same(
    tuned: Any, folder: Callable[[str], Path], pairs: Path
) -> None:
    learner, _ = load_tuned(load_checkpoint(tuned.folder))
    examples = learner.task.read(pairs)
    found = evaluate(learner, examples)
    assert found.metrics == pytest.approx(tuned.outcomes[1].standing.metrics)
    before = untuned(load_checkpoint(folder("bert")))
    assert found.metrics["mrr"] > 2 * before.measure(before.encode_labelled(examples))["mrr"]
    ranked = learner.predict(examples)
    long = replace(examples, texts=[examples.texts[0] + " cat" * 30, *examples.texts[1:]])
    assert f"1 of {2 * len(examples)} texts are longer than 24 tokens" in evaluate(learner, long).remarks[0]
    assert found.remarks == ()
    worth = learner.per_example(learner.encode_labelled(examples))
    assert [1 / one.rank for one in ranked] == pytest.approx(worth[:, 0].tolist())
    first = ranked[0]
    assert json.loads(json.dumps(first.record()))["line"] == 2
    assert (first.passage == examples.others[0]) == (first.rank == 1)


@pytest.fixture(scope="module")
def two(folder: Callable[[str], Path], pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run whose queries and passages have networks of their own."""
    out = tmp_path_factory.mktemp("dpr") / "out"
    values = [*VALUES[:-1], "training.epochs=2", "training.rate.peak=2e-2"]
    return finetune(
        folder("bert"), recipe="dpr", train=[str(pairs)], dev=[str(pairs)], out=out, overrides=values, report=quiet,
        keep_checkpoints=True,
    )


def test_queries_and_passages_may_have_networks_of_their_own_that_are_stored_and_used(
    two: Any, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = load_checkpoint(two.folder)
    learner, told = load_tuned(loaded)
    assert told["towers"] == {
        "query": {"network": None, "head": "embedding"}, "key": {"network": "passage", "head": "embedding"},
    }  # fmt: skip
    state = Checkpoints(two.folder).load(two.outcomes[1].standing.step)[1]
    for name, network in (("query", learner.network), ("passage", learner.passage_network)):
        own = network.state_dict()
        assert all(torch.equal(state[f"networks.{name}.{key}"], value) for key, value in own.items())
    examples = learner.task.read(pairs)
    assert evaluate(learner, examples).metrics == pytest.approx(two.outcomes[1].standing.metrics)
    assert not np.allclose(learner.vectors(examples.texts[:4]), learner.passage_vectors(examples.texts[:4]), atol=1e-2)
    passage = load_checkpoint(two.folder / "cloze" / "networks" / "passage")
    reader = Reader.of(passage)
    batch = reader.batch(reader.encode(examples.others))
    with torch.inference_mode():
        exact = reader.states(batch, {"summary"})["summary"].numpy()
    scores = learner.vectors(examples.texts) @ exact.T
    best = [one.passage for one in learner.predict(examples)]
    assert best == [examples.others[place] for place in scores.argmax(1)]
    assert main(["retrieve", str(two.folder), examples.texts[0], "--passages", str(pairs), "--top", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["passages"][0]["text"] == best[0]


def test_both_networks_are_exported_and_a_folder_that_lacks_one_is_refused(
    two: Any, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["export", str(two.folder), str(out), "--to", "huggingface"]) == 0
    learner, _ = load_tuned(load_checkpoint(out))
    assert evaluate(learner, learner.task.read(pairs)).metrics == pytest.approx(two.outcomes[1].standing.metrics)
    shutil.rmtree(out / "cloze" / "networks")
    assert main(["evaluate", str(out), str(pairs)]) == 2
    assert "the network 'passage' is missing" in capsys.readouterr().err


def test_a_tower_that_is_never_trained_is_kept_with_its_head(folder: Callable[[str], Path], pairs: Path, tmp_path: Path) -> None:
    text = (resources.files("cloze") / "recipes" / "tasks" / "dpr.yaml").read_text()
    still = text.replace("passage: {from: start}", "passage: {from: start, train: none}")
    start = shutil.copytree(folder("bert"), tmp_path / "start")

    def tune(recipe: str) -> Any:
        (tmp_path / "still.yaml").write_text(recipe)
        return finetune(start, recipe=tmp_path / "still.yaml", train=[str(pairs)], dev=[str(pairs)], out=tmp_path / "out",
                        report=quiet, overrides=["length=24", "training.epochs=1"])  # fmt: skip

    with pytest.raises(RecipeError, match=r"networks\.passage: only passes with `grad: false`.*\n.*Leave `grad: false` out"):
        tune(still.replace("view: passage\n    objectives", "view: passage\n    grad: false\n    objectives"))
    made = tune(still)
    before = load_checkpoint(start).network.state_dict()
    shutil.rmtree(start)
    learner, _ = load_tuned(load_checkpoint(tmp_path / "out"))
    assert evaluate(learner, learner.task.read(pairs)).metrics == pytest.approx(made.outcomes[1].standing.metrics)
    after = learner.passage_network.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_a_row_with_one_text_that_is_too_long_is_counted_as_cut(
    tuned: Any, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "long.tsv"
    path.write_text("query\tpassage\nthe cat\t" + "the dog " * 9 + "\nthe cat saw the dog\tthe dog saw the cat\n")
    source = Records(text="query", text_b="passage", answer="match")
    store = source.build_store([path], load_checkpoint(folder("bert")).tokenizer, tmp_path / "s", base=None, report=quiet)
    exercise = Exercise([PlacedEdit(Separate())], 12)
    assert store.row_sizes.tolist() == [20, 10] and (exercise.row_max_tokens, exercise.text_max_tokens) == (24, 12)
    assert store.cut(exercise.row_max_tokens, exercise.text_max_tokens) == 1 and store.cut(19) == 1 and store.cut(20) == 0
    assert tuned.task_json["cut"] == {"train": 0, "dev": 0}


def test_the_loss_of_random_vectors_is_the_logarithm_of_the_passages() -> None:
    contrast = Contrast(width=64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        readings = {name: torch.randn(512, 64) * 0.02 for name in ("query", "key")}
    loss = contrast(readings, Batch({"tokens": torch.arange(512)[:, None]}))
    assert float(loss.total) / 512 == pytest.approx(np.log(512), abs=1e-3)


def test_the_negatives_are_those_of_the_whole_step_however_it_is_divided(
    folder: Callable[[str], Path], pairs: Path, tmp_path: Path
) -> None:
    values = [*VALUES[:-1], "training.epochs=1", "training.precision=fp32"]  # with dropout
    losses = []
    for name, more in (("whole", ()), ("parts", ("training.micro_batch=5",))):
        finetune(folder("bert"), task="retrieval", train=[str(pairs)], dev=[str(pairs)], out=tmp_path / name, report=quiet,
                 overrides=[*values, *more])  # fmt: skip
        log = [json.loads(line) for line in (tmp_path / name / "cloze" / "log.jsonl").read_text().splitlines()]
        losses.append([one["loss"] for one in log if one["event"] == "train"])
    assert len(losses[0]) == 4 and losses[1] == pytest.approx(losses[0], abs=1e-4)


ICT = """
name: ict
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 300}}}
corpus: {passages: {length: 32, overrun: false, lead: 3}}
network: {transformer: {layers: 1, width: 32, heads: 2}}
exercise:
  - EDIT
  - frame: "[CLS] {A} [SEP]"
  - frame: {in: passage, template: "[CLS] {A} [SEP]"}
passes:
  - {name: query, network: main, objectives: [embedding: {reading: mean, project: 16, normalise: false, weight: 0}]}
  - name: passage
    network: main
    view: passage
    objectives:
      - embedding: {reading: mean, project: 16, normalise: false, weight: 0}
      - contrast: {read: {query: query.embedding, key: passage.embedding}}
training: {optimizer: adamw, rate: {linear: {peak: 1e-3}}, batch: 8, steps: 3, held_out: 0.0}
reading: {single: "[CLS] {A} [SEP]"}
"""


@pytest.mark.parametrize("edit", ["inverse_cloze: {to: passage, keep: 0.1}", "body_first: {to: passage}"])
def test_a_network_is_pre_trained_by_telling_where_sentences_come_from(tmp_path: Path, edit: str) -> None:
    from cloze.runs.run import pretrain

    (tmp_path / "ict.yaml").write_text(ICT.replace("EDIT", edit))
    chance = np.random.default_rng(0)
    documents = ["\n".join(" ".join(chance.choice(TOPICS, 6)) + "." for _ in range(5)) for _ in range(40)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents) + "\n")
    out = tmp_path / "out"
    pretrain(tmp_path / "ict.yaml", corpus=[str(tmp_path / "text.txt")], out=out, report=quiet)
    log = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text().splitlines()]
    assert next(one["loss"] for one in log if one["event"] == "train") == pytest.approx(np.log(8), abs=0.1)
    learner = untuned(load_checkpoint(out))
    assert learner.vectors(["the cat"]).shape == (1, 16)  # those of the head that was trained


def test_dpr_with_bm25_compares_a_query_with_the_right_and_the_wrong_passages_of_all_rows(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """dpr/models/biencoder.py, `BiEncoderNllLoss`: the mean over queries of the loss among all passages of the step."""
    rows = [(f"the {a} saw a mat", f"on the mat {a} and all", f"no {b} on {a}") for a, b in pairwise([*TOPICS, TOPICS[0]])]
    path, out = tmp_path / "rows.tsv", tmp_path / "out"
    path.write_text("query\tpassage\twrong\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    dry = [f"networks.{name}.dropout=0" for name in ("query", "passage")]
    values = ["training.batch=8", "training.epochs=1", "training.precision=fp32", "length=24", *dry]
    tuned = finetune(
        folder("bert"), recipe="dpr-bm25", train=[str(path)], dev=[str(path)], out=out, report=quiet, fit=False, overrides=values
    )
    start = load_checkpoint(folder("bert"))
    reader = Reader.of(start)
    firsts = []
    for texts in zip(*rows, strict=True):
        batch = reader.batch(reader.encode(list(texts)))
        firsts.append(reader.states(batch, {"hidden"})["hidden"][:, 0])
    queries, passages, wrong = firsts
    oracle = torch.nn.functional.cross_entropy(queries @ torch.cat([passages, wrong]).T, torch.arange(8))
    log = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text().splitlines()]
    assert next(one["loss"] for one in log if one["event"] == "train") == pytest.approx(oracle.item(), rel=1e-4)
    assert tuned.task_json["towers"] == {
        "query": {"network": None, "head": "embedding"}, "key": {"network": "passage", "head": "embedding"},
        "wrong": {"network": "passage", "head": "embedding"},
    }  # fmt: skip
    learner, _ = load_tuned(load_checkpoint(out))
    assert learner.passage_network is not learner.reader.network


def test_a_run_of_two_networks_that_is_not_tuned_reads_passages_with_theirs_also_after_export(tmp_path: Path) -> None:
    from cloze.runs.run import pretrain

    shapes = "{ask: {transformer: {layers: 1, width: 32, heads: 2}}, tell: {transformer: {layers: 2, width: 16, heads: 2}}}"
    recipe = ICT.replace("EDIT", "inverse_cloze: {to: passage}")
    recipe = recipe.replace("network: {transformer: {layers: 1, width: 32, heads: 2}}", f"networks: {shapes}\nexport: ask")
    recipe = recipe.replace("name: query, network: main", "name: query, network: ask").replace("network: main", "network: tell")
    (tmp_path / "two.yaml").write_text(recipe)
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("\n\n".join("\n".join(f"the {a} saw a {b}." for a in TOPICS) for b in TOPICS) + "\n")
    pretrain(tmp_path / "two.yaml", corpus=[str(text)], out=out, report=quiet)
    share(out, tmp_path / "shared")
    for folder in (out, tmp_path / "shared"):
        learner, passages = untuned(load_checkpoint(folder)), load_checkpoint(folder / "cloze" / "networks" / "tell")
        assert (learner.reader.network.width, learner.passage_network.width) == (32, 16)
        reader, head = Reader.of(passages), passages.heads["embedding"]
        batch = reader.batch(reader.encode(["the cat saw a dog."]))
        mean = reader.states(batch, {"hidden"})["hidden"][0].mean(0)  # the row is not padded
        oracle = (head.head.weight @ mean + head.head.bias).detach().numpy()
        assert learner.passage_vectors(["the cat saw a dog."])[0] == pytest.approx(oracle, abs=1e-5)
        assert not np.allclose(learner.vectors(["the cat saw a dog."])[0], oracle, atol=1e-2)
    shutil.rmtree(tmp_path / "shared" / "cloze" / "networks")
    with pytest.raises(CheckpointError, match="the network 'tell' is missing"):
        untuned(load_checkpoint(tmp_path / "shared"))


def test_either_text_has_the_room_of_a_row() -> None:
    tokens = np.arange(20, dtype=np.int32)[None].repeat(2, 0)
    parts = np.array([[[0, 4], [4, 20]], [[0, 1], [1, 2]]])
    rows = Rows({"tokens": tokens, "length": np.array([20, 2], np.int32), "parts": parts})
    edit = Separate().for_length(6)
    assert edit.max_input(6) == 12
    made = edit(rows, Draw(row_keys(0, "main", 0, items=np.arange(2))))
    assert made["length"].tolist() == [4, 1] and made["tokens"].tolist() == [[0, 1, 2, 3], [0, 0, 0, 0]]
    assert made["passage.length"].tolist() == [6, 1]
    assert made["passage.tokens"].tolist() == [[4, 5, 6, 7, 8, 9], [1, 0, 0, 0, 0, 0]]


def test_ranks_and_nearest_vectors_are_those_of_sorting_all_products() -> None:
    chance = np.random.default_rng(0)
    queries, passages = (chance.integers(-2, 3, (n, 4)).astype(np.float32) for n in (40, 90))  # with many ties
    right = [sorted({int(p) for p in chance.integers(0, 90, 2)}) for _ in range(40)]
    scores = queries @ passages.T
    for query, own in enumerate(right):
        ordered = sorted(range(90), key=lambda p: (-scores[query, p], p in own))  # of equals the wrong ones come first
        assert ranks(queries, passages, right)[query].tolist() == [1 + n for n, p in enumerate(ordered) if p in own]
    order = np.array([sorted(range(90), key=lambda p: (-scores[q, p], p)) for q in range(40)])
    for size in (1, 7, 90):
        blocks = [(np.arange(s, min(s + size, 90)), passages[s : s + size]) for s in range(0, 90, size)]
        found = nearest(queries, blocks, 12)
        assert (found.passages == order[:, :12]).all()
        assert (found.scores == np.take_along_axis(scores, order[:, :12], axis=1)).all()
    few = nearest(queries, [(np.arange(3), passages[:3])], 12)
    assert few.passages.shape == (40, 3)


def test_vectors_that_are_all_the_same_find_nothing() -> None:
    same = np.ones((5, 3), np.float32)
    found = mean_metrics(metrics_by_query(ranks(same, same, [[q] for q in range(5)])))
    assert found["mrr"] == pytest.approx(0.2) and found["recall@1"] == found["success@1"] == 0.0
    assert found["recall@10"] == found["success@10"] == found["success@100"] == 1.0
    wrong = np.full((1, 3), np.nan, np.float32)
    assert mean_metrics(metrics_by_query(ranks(wrong, same, [[0]])))["recall@1"] == 0.0  # nor do those that are not numbers


def test_long_vectors_that_differ_by_rounding_alone_find_nothing() -> None:
    """A collapsed network without normalisation: products of a million, of which float32 has seven digits."""
    g = np.random.default_rng(0)
    long = np.full((6, 8), 400.0, np.float32) * (1 + g.integers(-1, 2, (6, 8)) * np.float32(2**-23))
    assert all(rank.tolist() == [6] for rank in ranks(long, long, [[n] for n in range(6)]))


def test_figures_are_those_of_trec_eval() -> None:
    found = metrics_by_query([np.array([2, 3, 40]), np.array([1])])
    expected = {  # of the first query; trec_eval 9.0 prints the same numbers
        "mrr": 1 / 2, "map": (1 / 2 + 2 / 3 + 3 / 40) / 3,
        "ndcg@10": (1 / np.log2(3) + 1 / np.log2(4)) / (1 + 1 / np.log2(3) + 1 / np.log2(4)),
        "recall@1": 0.0, "recall@10": 2 / 3, "recall@100": 1.0, "success@1": 0.0, "success@10": 1.0, "success@100": 1.0,
    }
    assert dict(zip(METRICS, found[0].tolist(), strict=True)) == pytest.approx(expected)
    assert found[1].tolist() == [1.0] * 9
    assert mean_metrics(found)["recall@10"] == pytest.approx(5 / 6)


def test_figures_of_many_right_passages_are_those_of_trec_eval() -> None:
    found = dict(zip(METRICS, metrics_by_query([np.arange(1, 13)])[0].tolist(), strict=True))
    assert found["ndcg@10"] == pytest.approx(1.0) and found["recall@10"] == pytest.approx(10 / 12) and found["map"] == 1.0


def test_a_query_of_several_rows_counts_once_and_its_recall_is_the_share_of_its_passages(tuned: Any) -> None:
    learner, _ = load_tuned(load_checkpoint(tuned.folder))
    rows = [Row("the cat saw the dog", text) for text in ("the cat", "rain and wind", "a river")] + [Row("night", "the night")]
    worth = learner.per_example([LabelledRow(row, row.passage) for row in rows])
    found = learner.compute_metrics(worth)
    vectors = learner.vectors(["the cat saw the dog", "night"]), learner.passage_vectors([row.passage for row in rows])
    own = ranks(*vectors, [[0, 1, 2], [3]])
    assert worth[:, -1].tolist() == [1 / 3, 1 / 3, 1 / 3, 1.0]
    assert found["recall@1"] == pytest.approx(np.mean([(one <= 1).mean() for one in own]))
    assert found["success@1"] == pytest.approx(np.mean([(one <= 1).any() for one in own]))
    assert found["mrr"] == pytest.approx(np.mean([1 / one[0] for one in own]))


def test_the_verb_finds_the_best_passages_of_a_file(
    tuned: Any, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passages = tmp_path / "passages.txt"
    passages.write_text("\n".join(line.split("\t")[1] for line in pairs.read_text().splitlines()[1:]) + "\n")
    command = ["retrieve", str(tuned.folder), "the cat saw the dog", "--passages", str(passages), "--top", "3"]
    assert main(command) == 0
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found["query"] == "the cat saw the dog" and len(found["passages"]) == 3
    scores = [one["score"] for one in found["passages"]]
    assert scores == sorted(scores, reverse=True)
    learner, _ = load_tuned(load_checkpoint(tuned.folder))
    texts = passages.read_text().splitlines()
    exact = (learner.vectors([found["query"]]) @ learner.vectors(texts).T)[0]
    assert [one["line"] - 1 for one in found["passages"]] == np.argsort(-exact, kind="stable")[:3].tolist()
    assert [one["text"] for one in found["passages"]] == [texts[i] for i in np.argsort(-exact, kind="stable")[:3]]
    out = tmp_path / "found.jsonl"
    command = ["retrieve", str(tuned.folder), str(pairs), "--passages", str(pairs), "--top", "1", "--out", str(out)]
    assert main(command) == 0
    assert len(out.read_text().splitlines()) == 56
    (tmp_path / "queries.txt").write_text("\nthe cat\n\nthe dog\n")
    assert main([*command[:2], str(tmp_path / "queries.txt"), "--passages", str(passages)]) == 0
    by_line = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [(one["line"], one["query"]) for one in by_line] == [(2, "the cat"), (4, "the dog")], "empty lines are no queries"
    assert main([*command[:3], "--passages", str(tmp_path / "none.txt")]) == 2
    assert "none.txt: no such file" in capsys.readouterr().err


def test_passages_from_standard_input_are_searched_as_those_of_a_file_are(
    tuned: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, command = "the cat saw the dog\nrain on the river\n", ["retrieve", str(tuned.folder), "the cat", "--passages"]
    (tmp_path / "passages.txt").write_text(text)
    assert main([*command, str(tmp_path / "passages.txt")]) == 0
    of_file = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False))
    assert main([*command, "-"]) == 0
    assert json.loads(capsys.readouterr().out) == of_file and len(of_file["passages"]) == 2


def test_a_search_says_how_many_passages_it_has_read_in_part(
    tuned: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["the cat", "rain " * 60]
    (tmp_path / "passages.txt").write_text("".join(f"{text}\n" for text in texts))
    assert main(["retrieve", str(tuned.folder), "the dog", "--passages", str(tmp_path / "passages.txt")]) == 0
    remark = "1 of 3 texts are longer than the network reads and lost their end, 158 tokens in all"
    assert f"note: {remark}\n" in capsys.readouterr().err
    with pytest.warns(UserWarning, match=remark):
        hits = cloze.retrieve(cloze.load(tuned.folder), "the dog", texts)
    assert [hit.passage for hit in hits] and len(hits) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("query\tpassage\na\t\n", "t.tsv:2: an empty 'passage'; expected two texts in every row."),
        ("question\tpassage\na\tb\n", "no column 'query'"),
    ],
)
def test_a_row_without_a_passage_is_told_with_file_and_line(
    folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "t.tsv").write_text(text)
    files = ["--train", str(tmp_path / "t.tsv"), "--dev", str(tmp_path / "t.tsv"), "--out", str(tmp_path / "out")]
    assert main(["finetune", str(folder("bert")), "--task", "retrieval", *files, "--set", "length=24"]) == 2
    assert said in capsys.readouterr().err


def test_a_reading_that_an_embedding_does_not_have_is_refused(folder: Callable[[str], Path]) -> None:
    with pytest.raises(RecipeError, match='reading: got "concat", expected one of summary, mean'):
        recipe_onto("retrieval", load_checkpoint(folder("bert")), overrides=["passes[0].objectives.embedding.reading=concat"])


def test_a_passage_without_text_is_never_found(folder: Callable[..., Path]) -> None:
    texts = ["the cat", "", "the dog", "  "]
    hits = cloze.retrieve(cloze.load(folder("bert")), "the cat", texts)
    assert sorted(hit.passage for hit in hits) == [0, 2]
    for empty in ([], ["", "  "]):
        with pytest.raises(TaskError, match="passages has no text; expected at least one passage to search"):
            cloze.retrieve(cloze.load(folder("bert")), "the cat", empty)


def test_a_missing_column_of_passages_is_named_by_the_options_of_retrieve(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("text\tlabel\na\tb\n")
    with pytest.raises(TaskError, match=r"no column 'passage'; it has: text, label\.\n  Choose a column with --text-b NAME$"):
        list(passages_of(str(tmp_path / "p.tsv"), "passage", "text_b"))


def test_word_vectors_leave_unknown_words_out_of_both_sides(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("3 2\n<unk> 9 9\nlight 1 0\nleaf 0 1\n")
    assert main(["import", str(tmp_path / "v.txt"), "--out", str(tmp_path / "v")]) == 0
    loaded = load_checkpoint(tmp_path / "v")
    retriever = untuned(loaded)
    vectors = retriever.vectors(["light zzz www", "zzz www"])
    np.testing.assert_allclose(vectors[0], retriever.passage_vectors(["light"])[0], atol=1e-6)
    assert not vectors[1].any()


def test_a_file_without_passages_is_refused_before_anything_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "passages.txt").write_text("\n\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert main(["retrieve", str(tmp_path / "model"), "who?", "--passages", str(tmp_path / "passages.txt")]) == 2
    said = "holds no passage; expected one per line, or a table with a column 'passage'."
    assert capsys.readouterr().err == f"cloze retrieve: {tmp_path}/passages.txt: {said}\n"
