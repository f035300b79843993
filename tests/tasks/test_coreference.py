"""Coreference from the command line and Python: chains are learned, measured, and written as CoNLL-2012 and JSON lines."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cloze
from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.readers.coreference import each_document
from cloze.errors import TaskError
from cloze.interop import Card, PortableModel, Reading, export_folder
from cloze.networks import Clock
from cloze.objectives import coreference
from cloze.runs.finetuning.finetune import finetune
from cloze.tasks import load_tuned, task
from cloze.tasks.evaluation import evaluate
from cloze.tasks.kinds.coreference import NAMES, GoldDocument, as_conll, match_strings
from cloze.text.normalise import Normalise
from cloze.text.words import Words
from tests.making import data as described
from tests.making import network_of

SHE, HE = ("anna", "dora", "eva", "mia"), ("ben", "carl", "finn", "leo")
ARGUMENTS: dict[str, Any] = {
    "layers": 1, "width": 32, "heads": 4, "feed_forward.inner": 48, "positions.max_length": 32, "dropout": 0.0,
}  # fmt: skip
SIZES = (
    "objectives[0].inner=24", "objectives[0].longest=3", "objectives[0].dropout=0", "training.rate.peak=1e-2",
    "training.layerwise_rates.times=1", "training.batch=8", "corpus.length=28", "corpus.stride=12",
)  # fmt: skip


def document(chance: random.Random) -> dict[str, Any]:
    """Two people meet, then pronouns speak of them; a name may have two words, and who is not spoken of is in no chain."""
    sentences: list[list[str]] = []
    chains: dict[str, list[list[int]]] = {}
    pairs = [(chance.choice(SHE), "she", "her"), (chance.choice(HE), "he", "him")]
    chance.shuffle(pairs)

    def say(*cells: str | tuple[str, str]) -> None:
        words: list[str] = []
        begin = sum(map(len, sentences))
        for cell in cells:
            mention = (cell if isinstance(cell, str) else cell[0]).split()
            if not isinstance(cell, str):
                first = begin + len(words)
                chains.setdefault(cell[1], []).append([first, first + len(mention) - 1])
            words += mention
        sentences.append(words)

    (one, subject, to_one), (other, to_other, _) = pairs
    say((f"old {one}" if chance.random() < 0.4 else one, one), "meets", (other, other), ".")
    for _ in range(2):
        if chance.random() < 0.5:
            say((subject, one), chance.choice(["sings", "sleeps"]), ".")
        else:
            say((to_other, other), "sees", (to_one, one), "in", "the", "rain", ".")
    return {"sentences": sentences, "clusters": [chain for chain in chains.values() if len(chain) > 1]}


def rows_of(count: int, seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    return [document(chance) for _ in range(count)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def start_of(path: Path, kind: str, order: str = "open", **arguments: Any) -> Path:
    tokenizer = Words(min_count=1).train([" ".join(sum(row["sentences"], [])) for row in rows_of(64, 0)], Normalise())
    torch.manual_seed(0)
    network = network_of(kind, **arguments, vocab_size=tokenizer.size, clock=Clock())
    model = PortableModel(described(kind, **arguments), order, network.state_dict(), {}, kind)
    export_folder(path, model=model, tokenizer=tokenizer, reading=Reading("{A} [EOS]", None, "last"), card=Card(kind))
    return path


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("resolver")
    train, dev = write(folder / "train.jsonl", rows_of(64, 0)), write(folder / "dev.jsonl", rows_of(24, 1))
    tuned = finetune(
        start_of(folder / "start", "transformer", **ARGUMENTS), task="coreference", train=[str(train)], dev=[str(dev)],
        out=folder / "out", overrides=[*SIZES, "training.epochs=8", "training.evaluate_every=0.5"], report=lambda line: None,
    )
    return tuned, folder


def test_chains_are_learned_far_beyond_equal_words_and_the_folder_answers_as_in_training(
    resolver: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned, folder = resolver
    standing = tuned.outcomes[1].standing
    learner, told = load_tuned(load_checkpoint(folder / "out"))
    evaluation = evaluate(learner, learner.task.read(folder / "dev.jsonl"), constant_answer=told["constant_answer"])
    assert evaluation.metrics == pytest.approx(standing.metrics) and tuple(evaluation.metrics) == NAMES
    assert evaluation.baseline is not None and evaluation.metrics["conll"] > 0.9 > 0.5 > evaluation.baseline["conll"]
    assert json.loads(told["constant_answer"])[0] in ("he", "she") and told["mentions"] > told["chains"] > 64
    assert [row["metric"] for row in evaluation.by_class] == list(NAMES[1:])
    (remark,) = (remark for remark in evaluation.remarks if remark.startswith("with the mentions of the file known"))
    assert float(remark.split()[-1]) < 0.5
    assert main(["evaluate", str(folder / "out"), str(folder / "dev.jsonl"), "--bootstrap", "100"]) == 0
    printed = capsys.readouterr().out
    assert f"conll        {evaluation.metrics['conll']:.4f}" in printed and "95 % interval" in printed and "b_cubed" in printed


def test_chains_are_written_as_conll_2012_and_read_again(resolver: Any, tmp_path: Path) -> None:
    _, folder = resolver
    learner, _ = load_tuned(load_checkpoint(folder / "out"))
    predictions = learner.predict(learner.task.read(folder / "dev.jsonl", labelled=False))
    for _ in range(2):
        out = tmp_path / "dev.conll"
        assert main(["predict", str(folder / "out"), str(folder / "dev.jsonl"), "--out", str(out), "--overwrite"]) == 0
        for made, read, row in zip(predictions, each_document(out), rows_of(24, 1), strict=True):
            assert read.chains == made.clusters and read.words == made.tokens == tuple(sum(row["sentences"], []))
            assert read.sentences == tuple(map(len, row["sentences"]))
    assert main(["predict", str(folder / "out"), str(folder / "dev.jsonl"), "--out", str(tmp_path / "dev.jsonl")]) == 0
    first = json.loads((tmp_path / "dev.jsonl").read_text().splitlines()[0])
    assert set(first) == {"line", "tokens", "clusters", "mentions", "text", "offsets"}
    assert [document.chains for document in each_document(tmp_path / "dev.jsonl")] == [made.clusters for made in predictions]


def test_documents_are_texts_or_lists_of_words(resolver: Any) -> None:
    _, folder = resolver
    model = cloze.load(folder / "out")
    text, words = model.predict(["old anna meets ben. she sings.", ["old", "anna", "meets", "ben", ".", "she", "sings", "."]])
    assert text.clusters == words.clusters == (((0, 1), (5, 5)),)
    assert text.mentions == (("old anna", "she"),) and text.text[text.offsets[4][0]] == "."
    assert model.evaluate([(["anna", "sings"], [[[0, 0]]])]).metrics["mentions"] == 0.0
    assert [row["chains"] for row in words.word_rows()] == ["(0", "0)", "-", "-", "-", "(0)", "-", "-"]


def test_a_document_longer_than_the_network_reads_has_chains_over_all_of_it(resolver: Any) -> None:
    _, folder = resolver
    model = cloze.load(folder / "out")
    (long,) = model.predict([("anna meets ben . she sings . " * 8).split()])
    assert len(long.tokens) == 56 and max(last for chain in long.clusters for _, last in chain) > 40
    assert any({0, 49} <= {first for first, _ in chain} for chain in long.clusters)


@pytest.mark.parametrize(("kind", "order", "arguments"), [
    ("lstm", "left_to_right", {"layers": 1, "width": 16}), ("word_vectors", "open", {"width": 16}),
])  # fmt: skip
def test_other_networks_learn_from_windows_of_long_documents_and_marked_singletons(
    tmp_path: Path, kind: str, order: str, arguments: dict[str, Any]
) -> None:
    words = ("anna meets ben . she sings . " * 8).split()
    chains = [[[n, n] for n, word in enumerate(words) if word in ("anna", "she")], [[2, 2]]]
    path = write(tmp_path / "train.jsonl", [{"tokens": words, "clusters": chains}] * 8)
    tuned = finetune(
        start_of(tmp_path / "start", kind, order, **arguments), task="coreference", train=[str(path)], dev=[str(path)],
        out=tmp_path / "out", overrides=[*SIZES, "training.epochs=2"], report=lambda line: None,
    )
    learner, _ = load_tuned(load_checkpoint(tmp_path / "out"))
    assert learner.head.head.singletons
    standing = tuned.outcomes[1].standing
    assert standing is not None and evaluate(learner, learner.task.read(path)).metrics == pytest.approx(standing.metrics)


def test_what_cannot_be_found_is_told(resolver: Any, tmp_path: Path) -> None:
    _, folder = resolver
    learner, _ = load_tuned(load_checkpoint(folder / "out"))
    clusters = [[[0, 3]], [[0, 1], [3, 3], [3, 3]]]
    path = write(tmp_path / "x.jsonl", [{"tokens": ["old", "anna", "meets", "ben", "."], "clusters": clusters}])
    remarks = evaluate(learner, learner.task.read(path)).remarks
    assert "1 chain of a single mention: the training text marked none, so they are not looked for" in remarks
    assert "1 mention of more than 3 words: so long ones are not looked for" in remarks
    assert any("1 repeated mentions (each counts in its first chain)" in remark for remark in remarks)


def test_what_means_nothing_here_is_refused() -> None:
    chosen: Any = task("coreference")
    with pytest.raises(TaskError, match="--columns: files with chains have columns of their own"):
        chosen.for_files(columns=("a", "b"), format=None, quoting="auto")
    with pytest.raises(TaskError, match="a quote is a word like any other"):
        chosen.for_files(columns=None, format=None, quoting="standard")


def test_equal_strings_are_chains() -> None:
    gold = [GoldDocument(("Old", "Ann", "saw", "Bea", ".", "old", "ann", "saw", "her"), ())]
    assert match_strings(gold, {"old ann", "saw", "bea"}) == [(((0, 1), (5, 6)), ((2, 2), (7, 7)))]


@pytest.mark.parametrize("name", ["(bc/a/00); part 003", "bc/a/00"])
def test_a_document_keeps_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.conll"
    path.write_text(as_conll(name, ("a b", "c"), (2,), [((0, 1),), ((0, 0),), ((1, 1),)]), encoding="utf-8")
    (document,) = each_document(path)
    assert document.name == ("(bc/a/00); part 003" if "part" in name else "(bc/a/00); part 000")
    assert document.words == ("a_b", "c") and document.chains == (((0, 0),), ((0, 1),), ((1, 1),))


WIDTH, INNER = 6, 5


def objective_of(**options: Any) -> Any:
    torch.manual_seed(0)
    objective = coreference(width=WIDTH, inner=INNER, dropout=0.0, clock=Clock(), **options).double().eval()
    for parameter in objective.parameters():
        parameter.data.normal_(std=0.5, generator=torch.Generator().manual_seed(parameter.numel()))
    return objective


def batch_of(words: list[int], mentions: list[tuple[int, int, int]], shape: tuple[int, int]) -> Batch:
    first, last, chain = (torch.tensor([mention[n] for mention in mentions], dtype=torch.long) for n in range(3))
    positions = torch.tensor(words, dtype=torch.long)
    return Batch({
        "tokens": torch.zeros(shape, dtype=torch.long), "positions/chains": positions, "targets/chains": positions * 0,
        "positions/chains_first": first, "positions/chains_last": last, "targets/chains_first": chain,
        "targets/chains_last": chain,
    })  # fmt: skip


@torch.no_grad()
def written_out(objective: Any, views: torch.Tensor, chains: dict[tuple[int, int], int]) -> float:
    """The loss of one document, span by span and pair by pair."""
    head = objective.head
    parts = views.split(INNER, dim=1)
    spans = [(i, j) for i in range(len(views)) for j in range(i, min(i + head.longest, len(views)))]
    scores = {
        (i, j): float(head.first(parts[0][i]) + head.last(parts[1][j]) + head.pair(parts[0][i]) @ parts[1][j]) for i, j in spans
    }
    total = objective.mentions * sum(np.logaddexp(0, -s if span in chains else s) for span, s in scores.items())
    chosen = sorted(sorted(spans, key=lambda span: -scores[span])[: int(np.ceil(head.candidates * len(views)))])
    vectors = {span: torch.cat([parts[2][span[0]], parts[3][span[1]]]) for span in chosen}
    for number, span in enumerate(chosen):
        pairs = {
            other: float(head.antecedent(vectors[span]) @ vectors[other]) + scores[span] + scores[other]
            for other in chosen[:number]
        }
        right = [pairs[other] for other in pairs if span in chains and chains.get(other) == chains[span]] or [0.0]
        total += np.logaddexp.reduce([*pairs.values(), 0.0]) - np.logaddexp.reduce(right)
    return float(total)


@pytest.mark.parametrize(("longest", "mentions"), [(30, 0.0), (30, 1.0), (2, 0.5)])
def test_the_loss_is_the_marginal_likelihood_of_right_antecedents(longest: int, mentions: float) -> None:
    objective = objective_of(longest=longest, mentions=mentions, candidates=0.9)
    states = torch.randn(3, 8, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    words = [1, 2, 3, 5, 6, *range(16, 24)]  # the second row has no words
    batch = batch_of(words, [(1, 2, 0), (3, 3, 0), (6, 6, 0), (16, 16, 4), (17, 19, 2), (22, 23, 4), (20, 20, 4)], (3, 8))
    views = objective.head(states).flatten(0, 1)[words]
    expected = written_out(objective, views[:5], {(0, 1): 0, (2, 2): 0, (4, 4): 0}) + written_out(
        objective, views[5:], {(0, 0): 4, (1, 3): 2, (6, 7): 4, (4, 4): 4}
    )
    found = objective({"hidden": states}, batch)
    assert found.total.item() == pytest.approx(expected) and float(objective.count(batch)) == 13
    padded = Batch({
        name: value if name == "tokens" else torch.cat([value, value.new_zeros(3)]) for name, value in batch.items()
    } | {
        "weights/chains": torch.tensor([1.0] * 13 + [0.0] * 3),
        **{f"weights/chains_{side}": torch.tensor([1.0] * 7 + [0.0] * 3) for side in ("first", "last")},
    })  # fmt: skip
    assert objective({"hidden": states}, padded).total.item() == pytest.approx(expected)
    nothing = objective({"hidden": states.requires_grad_()}, batch_of([], [], (3, 8))).total
    nothing.backward()
    assert nothing.item() == 0.0 and all(parameter.grad is not None for parameter in objective.parameters())


def test_spans_and_antecedents_are_scored_in_blocks_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = objective_of(longest=4, singletons=True)
    views = objective.head(torch.randn(1, 23, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))[0]
    whole, chains = objective.head.mentions(views), objective.head.resolve(views)
    monkeypatch.setattr("cloze.objectives.labels.coreference._BLOCK", 3)
    torch.testing.assert_close(objective.head.mentions(views), whole)
    assert objective.head.resolve(views) == chains and any(len(chain) > 1 for chain in chains)
    mentions = [mention for chain in chains for mention in chain]
    assert len(set(mentions)) == len(mentions) and objective.head.resolve(views[:0]) == []
    objective.head.singletons = False
    assert objective.head.resolve(views) == [chain for chain in chains if len(chain) > 1]
