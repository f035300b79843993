"""Fine-tuning: learns, repeats itself, keeps the best epoch, writes what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.assembly.build import load_checkpoint
from cloze.errors import CheckpointError, RunError, TaskError
from cloze.tasks.classifier import Classifier, begin
from cloze.tasks.evaluation import evaluate, predict
from cloze.tasks.finetune import Moment, finetune, finetune_seeds, shuffled_batches
from cloze.tasks.labels import baseline
from cloze.tasks.result import check_new, load_tuned, save_result
from cloze.tasks.settings import Settings
from cloze.tasks.task import clock_of, task

Make = Callable[..., Any]
KIND = task("sentence_classification")
REST = {"macro_f1": 0.0, "matthews": 0.0}
QUICK = Settings(epochs=3, batch=8, rate=2e-3, length=24, patience=None)


@pytest.fixture(scope="module")
def examples(tables: Path) -> Any:
    return KIND.read(tables / "train.tsv"), KIND.read(tables / "dev.tsv")


@pytest.mark.parametrize("system", ["bert", "roberta", "electra", "gpt2", "modern"])
def test_every_system_learns_an_easy_task_and_its_folder_says_the_same(
    checkpoint: Make, examples: Any, tmp_path: Path, system: str
) -> None:
    loaded = checkpoint(system, dropout=0.0)
    settings = Settings(epochs=10, batch=8, rate=1e-2, length=24, patience=None, dropout=0.0)
    result = finetune(loaded, KIND, *examples, settings=settings)
    assert result.best.metrics["accuracy"] >= 0.9
    remarks = save_result(tmp_path / "out", result, loaded, facts={})
    assert remarks == []
    again, described = load_tuned(load_checkpoint(tmp_path / "out"))
    rows = result.tuned.encode(examples[1])
    assert np.allclose(again.probabilities(rows), result.tuned.probabilities(rows), atol=1e-5)
    measured = evaluate(again, examples[1], always="animal")
    assert measured.metrics == result.best.metrics == described["dev"]
    assert measured.baseline is not None and measured.baseline["always"] == "animal"


def test_the_same_seed_gives_the_same_weights_and_another_does_not(checkpoint: Make, examples: Any) -> None:
    loaded = checkpoint("bert", dropout=0.1)
    before = {name: tensor.clone() for name, tensor in loaded.network.state_dict().items()}
    one, two, other = (finetune(loaded, KIND, *examples, settings=QUICK, seed=seed).tuned for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(before[name], tensor) for name, tensor in loaded.network.state_dict().items())


def test_several_seeds_give_their_spread_and_the_best(checkpoint: Make, examples: Any) -> None:
    loaded = checkpoint("bert")
    result = finetune_seeds(loaded, KIND, *examples, settings=QUICK, seeds=(1, 2))
    assert [trial.seed for trial in result.trials] == [1, 2]
    assert result.best.metrics["accuracy"] == max(t.metrics["accuracy"] for t in result.trials)
    alone = finetune(loaded, KIND, *examples, settings=QUICK, seed=2)
    assert alone.trials[0] == result.trials[1]
    with pytest.raises(TaskError, match="seeds 1,1: expected one or more different numbers"):
        finetune_seeds(loaded, KIND, *examples, seeds=(1, 1))


def test_the_best_epoch_is_kept_and_patience_ends_the_run(
    checkpoint: Make, examples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter([0.5, 0.8, 0.8, 0.7, 0.9])
    measured: list[dict[str, torch.Tensor]] = []  # the weights of every epoch

    def measure(self: Classifier, *given: Any, **more: Any) -> dict[str, float]:
        measured.append({name: tensor.clone() for name, tensor in self.state_dict().items()})
        return {**REST, "accuracy": next(figures)}

    monkeypatch.setattr(Classifier, "measure", measure)
    moments: list[Moment] = []
    settings = Settings(epochs=5, batch=32, rate=1e-3, patience=2)
    result = finetune(checkpoint("bert"), KIND, *examples, settings=settings, report=moments.append)
    assert (result.best.epoch, result.best.epochs, result.best.metrics["accuracy"]) == (2, 4, 0.8)
    assert [m.dev["accuracy"] for m in moments if m.dev] == [0.5, 0.8, 0.8, 0.7]
    assert len([m for m in moments if m.dev is None]) == 4 * 2
    assert [record["epoch"] for record in result.log] == [1, 2, 3, 4]
    kept = result.tuned.state_dict()
    assert all(torch.equal(tensor, measured[1][name]) for name, tensor in kept.items())
    assert any(not torch.equal(tensor, measured[3][name]) for name, tensor in kept.items())


def test_gradients_are_clipped_together(checkpoint: Make, examples: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    learners: list[Classifier] = []
    lossed = Classifier.loss
    monkeypatch.setattr(Classifier, "loss", lambda self, rows: (learners.append(self), lossed(self, rows))[1])

    def norms(clip: float) -> list[float]:
        found: list[float] = []

        def note(moment: Moment) -> None:
            if moment.dev is None:  # the gradients of the last update are still there
                found.append(float(torch.cat([p.grad.flatten() for p in learners[-1].parameters() if p.grad is not None]).norm()))

        finetune(checkpoint("bert"), KIND, *examples, settings=replace(QUICK, epochs=1, clip=clip), report=note)
        return found

    free = norms(1e6)
    clip = min(free) / 2
    assert norms(clip) == pytest.approx([clip] * len(free), rel=1e-3)


def test_every_step_of_fine_tuning_draws_its_own_dropout(
    checkpoint: Make, examples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    lossed = Classifier.loss

    def note(self: Classifier, rows: Any) -> torch.Tensor:
        steps.append(int(clock_of(self.reader.network).step))
        return lossed(self, rows)

    monkeypatch.setattr(Classifier, "loss", note)
    finetune(checkpoint("bert", dropout=0.5), KIND, *examples, settings=replace(QUICK, epochs=2, batch=32))
    assert steps == [0, 1, 2, 3]


def test_an_epoch_has_its_own_order_of_examples() -> None:
    orders = [[row for batch in shuffled_batches([1] * 30, 8, 1, epoch) for row in batch] for epoch in (1, 2, 1)]
    assert orders[0] == orders[2] != orders[1]
    members = [{frozenset(batch.tolist()) for batch in shuffled_batches([1] * 30, 8, 1, epoch)} for epoch in (1, 2)]
    assert members[0] != members[1]  # not the same batches in another order


def test_the_rate_warms_up_and_decays(checkpoint: Make, examples: Any) -> None:
    moments: list[Moment] = []
    settings = Settings(epochs=2, batch=8, rate=1e-3, warmup=0.25, patience=None)
    finetune(checkpoint("bert"), KIND, *examples, settings=settings, report=moments.append)
    rates = [moment.learning_rate for moment in moments if moment.dev is None]
    assert len(rates) == 16 and rates[0] == 0 and rates[4] == pytest.approx(1e-3)
    assert rates[:5] == sorted(rates[:5]) and rates[4:] == sorted(rates[4:], reverse=True)
    assert Settings().rate_for(768) == pytest.approx(5e-5) and Settings().rate_for(128) == pytest.approx(3e-4)


def test_a_twin_from_scratch_has_the_shape_and_not_the_weights(checkpoint: Make) -> None:
    loaded = checkpoint("bert")
    twin = begin(loaded, KIND, ["a", "b"], Settings(from_scratch=True), seed=1)
    same = begin(loaded, KIND, ["a", "b"], Settings(from_scratch=True), seed=1)
    for (name, ours), (_, theirs), (_, again) in zip(
        loaded.network.named_parameters(), twin.network.named_parameters(), same.network.named_parameters(), strict=True
    ):
        assert ours.shape == theirs.shape and not torch.equal(ours, theirs), name
        assert torch.equal(theirs, again)
    norms = [layer for layer in twin.modules() if isinstance(layer, torch.nn.LayerNorm)]
    assert norms and all(torch.equal(layer.weight, torch.ones_like(layer.weight)) for layer in norms)


def test_the_pretrained_pooler_is_taken_over(checkpoint: Make) -> None:
    loaded = checkpoint("bert")
    made = begin(loaded, KIND, ["a", "b"], Settings(), seed=1)
    assert torch.equal(made.head.head.pool.weight, loaded.heads["nsp"].head.pool.weight)
    scratch = begin(loaded, KIND, ["a", "b"], Settings(from_scratch=True), seed=1)
    assert not torch.equal(scratch.head.head.pool.weight, loaded.heads["nsp"].head.pool.weight)


def test_pairs_are_read_as_pairs(checkpoint: Make, tables: Path) -> None:
    kind = task("pair_classification", text="one", text_b="two")
    pairs = kind.read(tables / "pairs.csv")
    result = finetune(checkpoint("bert"), kind, pairs, pairs, settings=Settings(epochs=1, batch=32))
    first = predict(result.tuned, pairs)[0]
    assert first.text_b == pairs.others[0] and sum(first.probabilities.values()) == pytest.approx(1, abs=1e-5)
    framed = result.tuned.encode(pairs)[0]
    assert set(framed.part.tolist()) == {-1, 0, 1} and framed.segments[-1] == 1


def test_the_baseline_is_the_majority_of_the_training_labels(examples: Any) -> None:
    found = baseline(*examples)
    assert found["always"] == "animal" and found["accuracy"] == 0.5 and found["counts"] == {"animal": 32, "weather": 32}


@given(st.lists(st.integers(1, 50), min_size=1, max_size=300), st.integers(1, 7), st.integers(0, 9))
def test_every_row_is_in_one_batch_of_every_epoch(lengths: list[int], size: int, seed: int) -> None:
    batches = shuffled_batches(lengths, size, seed, 1)
    assert sorted(i for batch in batches for i in batch.tolist()) == list(range(len(lengths)))
    assert all(len(batch) <= size for batch in batches)
    assert [b.tolist() for b in batches] == [b.tolist() for b in shuffled_batches(lengths, size, seed, 1)]


def test_a_loss_that_is_not_finite_stops_the_run(checkpoint: Make, examples: Any) -> None:
    loaded = checkpoint("bert")
    with torch.no_grad():
        loaded.network.embeddings.tokens.weight.fill_(float("nan"))
    with pytest.raises(RunError, match="the loss is nan at step 1. Try a lower learning rate"):
        finetune(loaded, KIND, *examples, settings=QUICK)


def test_results_are_written_whole_and_never_over_others(checkpoint: Make, examples: Any, tmp_path: Path) -> None:
    loaded = checkpoint("bert")
    result = finetune(loaded, KIND, *examples, settings=Settings(epochs=1, batch=32))
    out = tmp_path / "out"
    save_result(out, result, loaded, facts={})
    with pytest.raises(TaskError, match="there is something already. Choose another --out, or give --overwrite"):
        save_result(out, result, loaded, facts={})
    save_result(out, result, loaded, facts={"second": True}, overwrite=True)
    assert json.loads((out / "cloze" / "task.json").read_text())["second"] is True
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "animal", "1": "weather"}


def test_only_what_was_fine_tuned_is_ever_overwritten(tmp_path: Path) -> None:
    run, letter, file = tmp_path / "run", tmp_path / "letters", tmp_path / "notes.txt"
    (run / "cloze" / "checkpoints" / "step-00000004").mkdir(parents=True)
    letter.mkdir()
    for path in (letter / "a.txt", file):
        path.write_text("mine")
    for out in (run, letter, file):
        with pytest.raises(TaskError, match="cloze finetune did not write; --overwrite would delete all of it"):
            check_new(out, overwrite=True)
    check_new(tmp_path / "new" / "out", overwrite=True)


def test_a_folder_that_cannot_be_written_is_told_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TaskError, match="file is no folder that you can write to. Choose another --out"):
        check_new(tmp_path / "file" / "out", overwrite=False)
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(TaskError, match="is no folder that you can write to"):
        check_new(tmp_path / "new" / "out", overwrite=False)


def test_a_folder_that_is_no_classifier_says_how_to_make_one(folder: Any) -> None:
    with pytest.raises(CheckpointError, match="(?s)not fine-tuned.*cloze finetune"):
        load_tuned(load_checkpoint(folder("bert")))


@pytest.mark.parity
@pytest.mark.parametrize("system", ["bert", "roberta", "electra", "gpt2", "modern"])
def test_transformers_gives_the_same_probabilities(checkpoint: Make, examples: Any, tmp_path: Path, system: str) -> None:
    transformers = pytest.importorskip("transformers")
    loaded = checkpoint(system)
    result = finetune(loaded, KIND, *examples, settings=Settings(epochs=1, batch=32, rate=1e-3))
    save_result(tmp_path / "out", result, loaded, facts={})
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = ["the cat saw the dog", "rain", "the mice dreamed of the garden"]
    encoded = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        theirs = model(**encoded).logits
    ours = result.tuned.scores(result.tuned.reader.encode(texts)).detach()
    assert torch.allclose(ours, theirs, atol=1e-4)
    assert list(model.config.id2label.values()) == ["animal", "weather"]


def test_a_head_begins_with_the_layers_that_predicted_words_where_transformers_has_one_name_for_both(checkpoint: Make) -> None:
    loaded = checkpoint("modern")
    words = loaded.heads["mlm"].head
    tuned, fresh = (begin(loaded, KIND, ["a", "b"], replace(QUICK, from_scratch=scratch), 0) for scratch in (False, True))
    assert torch.equal(tuned.head.head.dense.weight, words.dense.weight)
    assert torch.equal(tuned.head.head.norm.weight, words.norm.weight)
    assert tuned.head.head.dense.bias is None and tuned.head.head.norm.eps == words.norm.eps
    assert not torch.equal(fresh.head.head.dense.weight, words.dense.weight) and fresh.head.head.norm.bias is None


@pytest.mark.parity
def test_a_classifier_that_transformers_wrote_is_read(checkpoint: Make, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    system = checkpoint("bert")
    config = transformers.BertConfig(
        vocab_size=system.tokenizer.size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=40, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1},
    )
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    system.tokenizer.save(tmp_path, length=40, frame_single=system.reading.single, frame_pair=system.reading.pair)
    classifier, _ = load_tuned(load_checkpoint(tmp_path))
    assert classifier.labels == ("no", "yes")
    rows = classifier.reader.encode(["the cat"])
    with torch.inference_mode():
        theirs = model(torch.from_numpy(rows[0].ids[None]).long()).logits
    assert torch.allclose(classifier.scores(rows), theirs, atol=1e-5)
