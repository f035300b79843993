"""Fine-tuning with everything of transfer: unfreezing, rates by depth, pooling, the language model beside it, pieces."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cloze.cli.main import main
from cloze.decoding.reader import Reader
from cloze.errors import TaskError
from cloze.interop import Reading
from cloze.networks import Clock
from cloze.networks.lstm import LSTM
from cloze.networks.transformer_xl import TransformerXL
from cloze.networks.word_vectors import WordVectors
from cloze.objectives import token_prediction
from cloze.tasks.classifier import Labelled, begin
from cloze.tasks.finetune import finetune
from cloze.tasks.result import load_tuned, save_result
from cloze.tasks.settings import Settings
from cloze.tasks.task import task
from cloze.tasks.truncated import states_in_pieces
from cloze.training.dropouts import Dropouts
from cloze.training.movement import Only, ladder
from cloze.transfer import Divide, Gradual, Sequential

Make = Callable[..., Any]
KIND = task("sentence_classification")
QUICK = Settings(epochs=3, batch=16, rate=2e-3, length=24, patience=None)


@pytest.fixture(scope="module")
def examples(tables: Path) -> Any:
    return KIND.read(tables / "train.tsv"), KIND.read(tables / "dev.tsv")


@pytest.fixture(scope="module")
def recurrent(checkpoint: Make) -> Make:
    """`recurrent()`: a random LSTM language model with GPT-2's pieces; `recurrent(TransformerXL, …)` another that carries."""

    def make(kind: Any = LSTM, **changes: Any) -> Any:
        pieces = checkpoint("gpt2").tokenizer
        shape = {"layers": 2, "width": 16, "inner": 24} if kind is LSTM else {"layers": 2, "width": 16, "heads": 2, "memory": 50}
        arguments = {**shape, **changes}
        torch.manual_seed(0)
        network = kind(**arguments, vocab_size=pieces.size, clock=Clock())
        head = token_prediction(tie=True, width=16, vocab_size=pieces.size, table=network.tables["tokens"])
        return SimpleNamespace(
            network=network, heads={"token_prediction": head}, tokenizer=pieces, reading=Reading("{A}", None, "last"),
            order="left_to_right", network_arguments=arguments, folder=Path("nowhere"), clock=Clock(),
        )

    return make


def changed(loaded: Any, tuned: Any) -> list[int]:
    """The depth groups of a tuned network that are not what they were."""
    before, after = ladder(loaded.network), ladder(tuned.network)
    return [
        number for number, (old, new) in enumerate(zip(before, after, strict=True))
        if any(not torch.equal(a, b) for a, b in zip(old, new, strict=True))
    ]


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_gradual_unfreezing_frees_a_group_an_epoch(checkpoint: Make, recurrent: Make, examples: Any, epochs: int) -> None:
    for loaded in (checkpoint("bert", dropout=0.1), recurrent(weight_dropout=0.2)):
        groups = len(loaded.network.depth_groups())
        settings = replace(QUICK, epochs=epochs, unfreeze=Gradual(), metric="accuracy")
        result = finetune(loaded, KIND, examples[0], examples[0], settings=settings)
        at_most = list(range(groups - (result.best.epoch - 1), groups))
        assert changed(loaded, result.tuned) == at_most  # what the best epoch had come to
        assert all(p.requires_grad for p in result.tuned.network.parameters())


def test_rates_by_depth_slow_the_lower_groups(checkpoint: Make, examples: Any) -> None:
    """With so large a divisor nothing below the top layer can move visibly."""
    loaded = checkpoint("gpt2")
    tuned = finetune(loaded, KIND, *examples, settings=replace(QUICK, layerwise=Divide(1e9), weight_decay=0.0)).tuned
    far = [(a - b).abs().max() for old, new in zip(ladder(loaded.network), ladder(tuned.network), strict=True)
           for a, b in zip(old, new, strict=True)]
    assert max(far) < 1e-7


@pytest.mark.parametrize("pool", ["concat", "attention", "mean", "max", "last"])
def test_every_pooling_learns_an_easy_task_and_its_folder_says_the_same(
    checkpoint: Make, examples: Any, tmp_path: Path, pool: str
) -> None:
    from cloze.assembly.build import load_checkpoint

    loaded = checkpoint("gpt2", dropout=0.0)
    settings = Settings(epochs=8, batch=8, rate=1e-2, length=24, patience=None, dropout=0.0, pool=pool)
    result = finetune(loaded, KIND, *examples, settings=settings)
    assert result.best.metrics["accuracy"] >= 0.9
    remarks = save_result(tmp_path / "out", result, loaded, facts={})
    assert len(remarks) == 1 and "no such head" in remarks[0]
    again, described = load_tuned(load_checkpoint(tmp_path / "out"))
    rows = result.tuned.encode(examples[1])
    assert torch.allclose(again.scores(rows), result.tuned.scores(rows), atol=1e-5)
    assert described["settings"]["pool"] == pool


def test_an_auxiliary_weight_of_zero_is_plain_transfer_step_for_step(checkpoint: Make, recurrent: Make, examples: Any) -> None:
    for loaded in (checkpoint("gpt2", dropout=0.1), recurrent(word_dropout=0.1)):
        plain = finetune(loaded, KIND, *examples, settings=QUICK)
        none = finetune(loaded, KIND, *examples, settings=replace(QUICK, auxiliary=(0.0, 0.0)))
        assert plain.log == none.log
        names = dict(none.tuned.named_parameters())
        assert all(torch.equal(p, names[name]) for name, p in plain.tuned.named_parameters())
        assert torch.equal(none.tuned.language.head.weight, none.tuned.network.tables["tokens"].weight)


def test_a_large_auxiliary_weight_keeps_the_language_model(recurrent: Make, examples: Any) -> None:
    loaded = recurrent()
    losses, once = {}, replace(QUICK, epochs=1, batch=2, rate=1e-2, clip=100.0, warmup=0.0)
    for weight in (1e-4, 10.0):
        tuned = finetune(loaded, KIND, *examples, settings=replace(once, auxiliary=(weight, weight))).tuned
        losses[weight] = tuned.language_loss(tuned.answered(examples[1]))
    before = begin(loaded, KIND, ["animal", "weather"], replace(QUICK, auxiliary=(0.1, 0.1)), seed=1)
    start = before.language_loss(before.answered(examples[1]))
    assert start == pytest.approx(math.log(loaded.tokenizer.size), abs=0.3)
    assert losses[10.0] < start - 1 and losses[10.0] < losses[1e-4] - 1


def test_the_auxiliary_loss_is_that_of_the_next_token(recurrent: Make, examples: Any) -> None:
    loaded = recurrent()
    tuned = begin(loaded, KIND, ["animal", "weather"], replace(QUICK, auxiliary=(0.5, 0.5)), seed=1).eval()
    rows = tuned.answered(examples[1])[:3]
    total, number = 0.0, 0
    for row in rows:  # one at a time and by hand
        ids = torch.from_numpy(row.framed.ids)[None].long()
        with torch.no_grad():
            hidden = loaded.network.eval()(want=frozenset({"hidden"}), tokens=ids)["hidden"][0]
            scores = loaded.heads["token_prediction"].head(hidden[:-1])
        total += float(torch.nn.functional.cross_entropy(scores, ids[0, 1:], reduction="sum"))
        number += len(scores)
    assert tuned.language_loss(rows) == pytest.approx(total / number, rel=1e-5)
    alone = replace(QUICK, auxiliary=(0.0, 0.0))
    task_loss = begin(loaded, KIND, ["animal", "weather"], alone, seed=1).eval().loss(rows).item()
    assert tuned.loss(rows).item() == pytest.approx(task_loss + 0.5 * total / number, rel=1e-5)


def test_an_auxiliary_loss_needs_a_language_model(checkpoint: Make, examples: Any) -> None:
    with pytest.raises(TaskError, match="--auxiliary needs a language model that predicts the next token"):
        finetune(checkpoint("bert"), KIND, *examples, settings=replace(QUICK, auxiliary=(0.2, 0.1)))
    with pytest.raises(TaskError, match="a randomly initialised twin has none"):
        finetune(checkpoint("gpt2"), KIND, *examples, settings=replace(QUICK, auxiliary=(0.2, 0.1), from_scratch=True))


def test_siatls_weights_come_by_epoch() -> None:
    settings = Settings(epochs=15, auxiliary=(math.exp(-1.6), math.exp(-2.3)))
    found = [settings.auxiliary_weight(step / (15 * 7)) for step in range(15 * 7)]
    assert [found[7 * epoch] for epoch in (0, 1, 7, 14)] == pytest.approx([0.201897, 0.192050, 0.142274, 0.100259], abs=1e-6)
    assert all(found[7 * epoch] == found[7 * epoch + 6] for epoch in range(15))


@pytest.mark.parametrize("kind", [LSTM, TransformerXL])
def test_reading_in_pieces_is_reading_at_once(recurrent: Make, kind: Any) -> None:
    loaded = recurrent(kind)
    loaded.network.eval()
    reader = Reader.of(loaded)
    texts = ["the cat saw the dog and dreamed of the mice in the garden", "rain", "the river rose all night"]
    batch = reader.batch(reader.encode(texts))
    whole = reader.states(batch, ("hidden",))["hidden"]
    real = batch["block"] > 0
    for every in (1, 3, 7, 100):
        hidden, counts = states_in_pieces(reader, batch, every=every, keep=1000)
        assert torch.allclose(hidden[real], whole[real], atol=1e-6) and torch.equal(counts, real)


def test_pieces_count_from_the_last_of_a_texts_own_tokens(recurrent: Make) -> None:
    reader = Reader.of(recurrent())
    batch = reader.batch(reader.encode(["the cat saw the dog and dreamed", "rain fell"]))
    lengths = (batch["block"] > 0).sum(1).tolist()
    _, counts = states_in_pieces(reader, batch, every=3, keep=5)
    for row, length in enumerate(lengths):
        kept = [place for place in range(length) if place // 3 * 3 >= length - 5]
        assert counts[row].nonzero().flatten().tolist() == kept


def test_gradients_end_at_the_border_of_pieces(recurrent: Make) -> None:
    """The last piece's states have no gradient in earlier ones; a piece that does not count has none of its own either."""
    loaded = recurrent()
    reader = Reader.of(loaded)
    batch = reader.batch(reader.encode(["the cat saw the dog and dreamed of mice"]))
    length = batch["tokens"].shape[1]
    made: list[torch.Tensor] = []
    hook = loaded.network.embeddings.register_forward_hook(lambda module, given, vectors: made.append(vectors))
    for keep in (1000, 6):
        made.clear()
        hidden, counts = states_in_pieces(reader, batch, every=4, keep=keep)
        assert len(made) == -(-length // 4)
        assert [v.requires_grad for v in made] == [bool(counts[0, 4 * n]) for n in range(len(made))]
        grown = [v for v in made if v.requires_grad]
        *earlier, last = torch.autograd.grad(hidden[0, -1].sum(), grown)
        assert bool(last.any()) and not any(bool(gradient.any()) for gradient in earlier)
    assert len(grown) == 2
    hook.remove()


def test_only_networks_that_carry_read_in_pieces(checkpoint: Make, examples: Any) -> None:
    with pytest.raises(TaskError, match="--truncate is for networks that carry a state"):
        finetune(checkpoint("gpt2"), KIND, *examples, settings=replace(QUICK, pool="concat", truncate=(70, 1400)))
    with pytest.raises(TaskError, match="say how with --pool"):
        Settings(truncate=(70, 1400))


def test_a_whole_ulmfit_classifier_learns_and_its_folder_says_the_same(recurrent: Make, examples: Any, tmp_path: Path) -> None:
    from cloze.assembly.build import load_checkpoint

    loaded = recurrent(weight_dropout=0.1)
    settings = Settings(
        epochs=10, batch=8, rate=5e-2, length=60, patience=None, betas=(0.8, 0.99), schedule="slanted_triangular", pool="concat",
        layerwise=Divide(2.6), unfreeze=Gradual(), truncate=(5, 20), clip=25.0,
    )
    result = finetune(loaded, KIND, *examples, settings=settings)
    assert result.best.metrics["accuracy"] >= 0.9
    save_result(tmp_path / "out", result, loaded, facts={})
    again, described = load_tuned(load_checkpoint(tmp_path / "out"))
    rows = result.tuned.encode(examples[1])
    assert again.truncate == (5, 20) and torch.allclose(again.scores(rows), result.tuned.scores(rows), atol=1e-5)
    assert described["settings"]["unfreeze"] == {"gradual": {"every": 1.0, "of": "epochs", "together": None}}


def test_penalties_are_means_over_what_counts_and_dropouts_are_those_of_the_settings(recurrent: Make, examples: Any) -> None:
    rates = {"embeddings.dropout": 0.0, "input_dropout": 0.9, "layers.*": 0.0, "hidden_dropouts.*": 0.0, "final_dropout": 0.0}
    settings = replace(QUICK, pool="mean", dropout=0.0)
    plain = begin(recurrent(), KIND, ["a", "b"], settings, 1)
    some = plain.encode(examples[0])[:4]
    rows = [Labelled(framed, 0) for framed in some]
    fined = begin(recurrent(), KIND, ["a", "b"], replace(settings, penalties=(2.0, 1.0)), 1)
    network, want = plain.reader.network, frozenset({"hidden"})
    hidden = [network(want=want, tokens=torch.tensor([row.ids.tolist()]))["hidden"][0] for row in some]
    size = torch.cat(hidden).square().mean()
    change = torch.cat([one[1:] - one[:-1] for one in hidden]).square().mean()
    unfined = plain.loss(rows).detach()
    assert fined.loss(rows).item() == pytest.approx(float(unfined + 2 * size.detach() + change.detach()), rel=1e-5)
    dropping = begin(recurrent(), KIND, ["a", "b"], replace(settings, dropouts=Dropouts(rates, ("input_dropout",))), 1).train()
    assert dropping.loss(rows).item() != pytest.approx(float(unfined), rel=1e-5)
    assert dropping.eval().loss(rows).item() == pytest.approx(float(unfined), rel=1e-6)


def test_a_run_with_gradual_unfreezing_has_a_triangle_for_every_stage(recurrent: Make, examples: Any) -> None:
    settings = replace(QUICK, epochs=4, batch=4, pool="mean", schedule="slanted_triangular", unfreeze=Gradual(), rate=0.032)
    rates: list[list[float]] = [[], [], [], []]
    finetune(
        recurrent(), KIND, *examples, settings=settings,
        report=lambda moment: rates[moment.epoch - 1].append(moment.learning_rate) if moment.dev is None else None,
    )
    assert [one[0] for one in rates] == pytest.approx([0.001] * 4) and rates[0] == pytest.approx(rates[1])
    assert all(max(one) > 0.025 and one[-1] < max(one) for one in rates)


def test_a_whole_siatl_classifier_learns(recurrent: Make, examples: Any) -> None:
    settings = Settings(
        epochs=10, batch=4, rate=1e-2, length=60, patience=None, pool="attention", task_lstm=12, auxiliary=(0.02, 0.01),
        unfreeze=Sequential(embeddings=2), schedule="constant",
    )
    result = finetune(recurrent(down=True), KIND, *examples, settings=settings)
    assert result.best.metrics["accuracy"] >= 0.9


def test_a_plateau_follows_the_dev_metric(checkpoint: Make, examples: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.tasks.classifier import Classifier

    figures = iter([0.5, 0.5, 0.8, 0.7])
    rest = {"macro_f1": 0.0, "matthews": 0.0}
    monkeypatch.setattr(Classifier, "measure", lambda *given, **more: {**rest, "accuracy": next(figures)})
    settings = replace(QUICK, epochs=4, batch=64, schedule="plateau", rate=1.0)
    log = finetune(checkpoint("bert"), KIND, *examples, settings=settings).log
    assert [record["learning_rate"] for record in log] == [1.0, 1.0, 0.25, 0.25]


@pytest.mark.parametrize("wrong", [
    {"schedule": "slanted"}, {"pool": "sum"}, {"task_lstm": -1}, {"auxiliary": (0.1, 0.2)},
    {"truncate": (70, 10), "pool": "mean"}, {"clip": 0.0}, {"betas": (0.9, 1.0)}, {"penalties": (-1.0, 1.0)},
])
def test_settings_that_cannot_be_are_refused(wrong: Any) -> None:
    with pytest.raises(TaskError):
        Settings(**wrong)


def test_a_text_is_not_classified_by_an_lstm_that_nothing_pools(checkpoint: Make, examples: Any) -> None:
    with pytest.raises(TaskError, match="--task-lstm 5: say with --pool"):
        finetune(checkpoint("bert"), KIND, *examples, settings=replace(QUICK, task_lstm=5))


@pytest.mark.parametrize("hashed", [{}, {"subwords": (3, 4), "buckets": 50}, {"word_ngrams": 2, "buckets": 50}])
def test_vectors_alone_are_classified_by_one_linear_map_on_their_mean(checkpoint: Make, examples: Any, hashed: Any) -> None:
    """FastText's classifier, from vectors or from a random start; frozen vectors are features."""
    pieces = checkpoint("bert").tokenizer
    given = {"vocab_size": pieces.size, "spellings": pieces.spellings, "clock": Clock()}
    loaded = SimpleNamespace(
        network=WordVectors(width=16, **hashed, **given), heads={}, tokenizer=pieces, reading=Reading("{A}", None, "first"),
        order="open", network_arguments={"width": 16, **hashed}, folder=Path("nowhere"), clock=given["clock"],
    )
    settings = Settings(epochs=10, batch=8, rate=5e-2, length=24, patience=None, dropout=0.0)
    for from_scratch in (False, True):
        result = finetune(loaded, KIND, *examples, settings=replace(settings, from_scratch=from_scratch))
        assert result.best.metrics["accuracy"] >= 0.9
        assert {n for n, _ in result.tuned.head.named_parameters()} == {"head.output.weight", "head.output.bias"}
    frozen = finetune(loaded, KIND, *examples, settings=replace(settings, epochs=1, unfreeze=Only(), pool="mean"))
    assert changed(loaded, frozen.tuned) == []


def test_the_verb_takes_it_all(folder: Any, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["finetune", str(folder("gpt2")), "--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv"), "--json"]
    options = "--epochs 2 --unfreeze gradual:1 --layerwise 2 --schedule slanted_triangular --pool concat --auxiliary 0.2,0.1 "
    options += "--optimizer adamw:0.8,0.99 --clip 25"
    assert main([*line, "--out", str(tmp_path / "o"), *options.split()]) == 0
    assert main(["predict", str(tmp_path / "o"), "--json", str(tables / "dev.tsv")]) in (0, 2)
    for wrong, message in (
        ("--unfreeze chian", "Did you mean"), ("--layerwise fast", "expected numbers"), ("--auxiliary x", "expected one number"),
        ("--truncate 70,1400", "say how with --pool"), ("--pool sum", "unknown pool"),
        ("--optimizer adamw:0.8,1", "betas 0.8,1; expected two numbers"),
        ("--optimizer adafactor:0.8,0.9", "only adamw has betas"), ("--clip 0", "--clip 0: expected a length"),
        ("--manner siatl", "--manner siatl is for the network lstm"),
        ("--truncate 70,1400 --pool mean", "networks that carry a state"),
    ):
        capsys.readouterr()
        assert main([*line, "--out", str(tmp_path / "p"), *wrong.split()]) != 0
        assert message in capsys.readouterr().err and not (tmp_path / "p").exists()
