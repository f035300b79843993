"""LSTMs by task recipes: the plain one with concat pooling, ULMFiT's and SiATL's classifiers, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import build_step, load_checkpoint
from cloze.checkpoint.checks.check import check_recipe
from cloze.errors import RecipeError
from cloze.interop import Card, PortableHead, PortableModel, Reading, export_folder
from cloze.networks import Clock
from cloze.networks.recurrent.lstm_encoder_decoder import LSTMEncoderDecoder
from cloze.networks.recurrent.lstm_language_model import LSTM
from cloze.networks.static.word_vectors import WordVectors
from cloze.objectives import token_prediction
from cloze.recipe.canonical import to_yaml
from cloze.recipe.load import load_recipe
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_for, recipe_onto
from cloze.runs.options import FinetuneOptions
from cloze.tasks.evaluation import evaluate
from cloze.tasks.tuned_folder import load_tuned
from cloze.training.schedule.rates import Restarting, SlantedTriangular
from tests.making import network_of

Folder = Callable[[str], Path]
SHAPE: dict[str, Any] = {"layers": 2, "width": 16, "inner": 24}
QUICK = ["training.batch=8", "training.epochs=12", "length=24", "task.patience=0"]
DRY = [f"network.dropout.{name}=0" for name in ("word", "input", "weight", "hidden", "output")]
LEARN = {
    "sentence_classification": ["training.rate.peak=0.02"],
    "ulmfit_classification": [*DRY, "training.rate.rate.peak=0.2", "training.layerwise_rates.by=1.2"],
    "siatl_classification": [*DRY, "training.rate.peak=0.02", "objectives[0].energy_dropout=0", "objectives[0].recurrent=16"],
}


@pytest.fixture(scope="session")
def lstm(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random LSTM language model with GPT-2's pieces, exported."""
    pieces = load_checkpoint(folder("gpt2")).tokenizer
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = network_of("lstm", **SHAPE, vocab_size=pieces.size, clock=Clock())
        head = token_prediction(tie=True, width=16, vocab_size=pieces.size, table=network.token_tables["tokens"])
    heads = {"token_prediction": PortableHead("token_prediction", {"tie": True}, head.state_dict())}
    place = tmp_path_factory.mktemp("checkpoints") / "lstm"
    export_folder(
        place, model=PortableModel(SHAPE, "left_to_right", network.state_dict(), heads, "lstm"), tokenizer=pieces,
        reading=Reading("{A}", None, "last"), card=Card("lstm"),
    )
    return place


def tune(folder: Path, tables: Path, out: Path, recipe: str, *values: str) -> Any:
    return finetune(
        folder, recipe=recipe, train=[str(tables / "train.tsv")], dev=[str(tables / "dev.tsv")], out=out, overrides=values,
        report=lambda line: None,
    )


@pytest.mark.parametrize("recipe", ["sentence_classification", "ulmfit_classification", "siatl_classification"])
def test_every_manner_learns_an_easy_task_and_its_folder_says_the_same(
    lstm: Path, tables: Path, tmp_path: Path, recipe: str
) -> None:
    made = tune(lstm, tables, tmp_path / "out", recipe, *QUICK, *LEARN[recipe])
    standing = made.outcomes[1].standing
    assert standing.metrics["accuracy"] >= 0.75
    learner, told = load_tuned(load_checkpoint(tmp_path / "out"))
    measured = evaluate(learner, learner.task.read(tables / "dev.tsv"), constant_answer=told["constant_answer"])
    assert measured.metrics == pytest.approx(standing.metrics)
    assert told["task"] == "sentence_classification"


def test_the_published_classifier_of_a_checkpoint_is_the_one_of_its_recipe(lstm: Path) -> None:
    loaded = load_checkpoint(lstm)
    for name, recipe in (("ulmfit", "ulmfit_classification"), ("siatl", "siatl_classification"), ("awd-lstm", None)):
        known = replace(loaded, recipe={"name": name})
        assert recipe_for(FinetuneOptions(lstm), known) == (recipe or "sentence_classification")
        assert recipe_for(FinetuneOptions(lstm, task="token_labelling"), known) == "token_labelling"


def test_a_plain_lstm_is_classified_by_all_of_its_tokens(lstm: Path) -> None:
    made = recipe_onto("sentence_classification", load_checkpoint(lstm))
    ((_, head),) = made.entries["main"].objectives()
    assert (head.part.name, head.part.arguments["pool"]) == ("pooled_classification", "concat")


def test_a_recipe_changes_arguments_of_the_checkpoints_network(lstm: Path) -> None:
    made = recipe_onto("ulmfit_classification", load_checkpoint(lstm), overrides=["network.dropout.weight=0.1"])
    part = made.exported.part
    assert part is not None and made.exported.change == ()
    arguments = part.arguments
    assert {key: arguments[key] for key in SHAPE} == SHAPE
    assert (arguments["dropout"]["word"], arguments["dropout"]["weight"], arguments["truncate"]) == (0.05, 0.1, 70)
    with pytest.raises(RecipeError, match="no argument|unknown"):
        recipe_onto("ulmfit_classification", load_checkpoint(lstm), overrides=["network.wordiness=1"])


def test_the_language_model_is_the_checkpoints_and_its_weight_falls_by_epoch(lstm: Path, folder: Folder, tmp_path: Path) -> None:
    made = recipe_onto("siatl_classification", load_checkpoint(lstm))
    head = next(o for _, o in made.entries["main"].objectives() if o.part.name == "token_prediction")
    assert head.part.arguments["tie"] is True and head.state == "token_prediction"
    step = build_step(made, vocab_size=load_checkpoint(lstm).tokenizer.size)
    weight = next(w for pass_ in step.entries["main"] for w in pass_.objectives if w.key == "token_prediction")
    found = [weight.weight_at((epoch + 0.5) / 15) for epoch in range(15)]
    assert found[0] == pytest.approx(0.2019) and found[-1] == pytest.approx(0.1003)
    assert found == sorted(found, reverse=True) and len(set(found)) == 15
    said = load_recipe("siatl_classification").canonical()
    del said["networks"]["main"]["change"]
    with pytest.raises(RecipeError, match="(?s)bert: language_model: needs a head that predicts .*leave the objective out"):
        recipe_onto(said, load_checkpoint(folder("bert")))


def test_arguments_that_a_network_does_not_have_are_one_refusal_that_names_those_that_have_them(folder: Folder) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe_onto("siatl_classification", load_checkpoint(folder("bert")))
    assert str(caught.value) == (
        f"siatl_classification: networks.main.change[0]: {folder('bert')}: transformer has no noise, "
        "which this change sets.\n"
        "  Use a checkpoint whose network is lstm, or a recipe without this change, such as --task sentence_classification."
    )


def test_a_recipe_as_it_is_shown_fits_networks_of_every_order(lstm: Path, folder: Folder, tmp_path: Path) -> None:
    """`cloze show NAME > mine.yaml` leaves to the checkpoint what the recipe leaves to it."""
    mine = tmp_path / "mine.yaml"
    mine.write_text(to_yaml(load_recipe("sentence_classification").canonical()))
    for place, order in ((lstm, "left_to_right"), (folder("bert"), "open")):
        assert recipe_onto(mine, load_checkpoint(place), overrides=["length=24"]).entries["main"].order == order


def test_a_rate_begins_again_in_every_stage() -> None:
    triangle = SlantedTriangular(0.01)
    rate = Restarting(triangle, at=[0.2, 0.4, 0.6])
    assert [rate(share) for share in (0.0, 0.1, 0.2, 0.5, 0.6, 0.8)] == pytest.approx(
        [triangle(share) for share in (0.0, 0.5, 0.0, 0.5, 0.0, 0.5)]
    )
    for wrong in ([], [0.5, 0.2], [0.0, 0.5], [0.5, 1.0]):
        with pytest.raises(RecipeError, match="restarting.at"):
            Restarting(triangle, at=wrong)


def drawn(**changed: Any) -> LSTM:
    torch.manual_seed(0)
    return network_of("lstm", **{**SHAPE, "vocab_size": 30, "clock": Clock(), **changed})


@pytest.mark.parametrize("every", [1, 3, 7, 100])
def test_truncated_reading_gives_the_same_states(every: int) -> None:
    tokens = torch.randint(0, 30, (3, 10), generator=torch.Generator().manual_seed(1))
    block = (torch.arange(10) < torch.tensor([10, 4, 7])[:, None]).long()
    whole, cut = (
        drawn(truncate=n).train()(want=frozenset({"hidden"}), tokens=tokens, block=block)["hidden"] for n in (0, every)
    )
    real = block > 0
    assert torch.allclose(whole[real], cut[real], atol=1e-6)


def test_gradients_end_at_the_border_of_pieces() -> None:
    network = drawn(truncate=4).train()
    made: list[Any] = []
    network.embeddings.register_forward_hook(lambda module, given, vectors: made.append(vectors.retain_grad() or vectors))
    tokens = torch.arange(10)[None]
    network(want=frozenset({"hidden"}), tokens=tokens)["hidden"][0, -1].sum().backward()
    assert made[0].grad[0].abs().sum(1).gt(0).tolist() == [False] * 8 + [True] * 2
    made.clear()
    network.eval()(want=frozenset({"hidden"}), tokens=tokens)["hidden"][0, -1].sum().backward()
    assert made[0].grad[0].abs().sum(1).gt(0).all()


@pytest.mark.parametrize("hashed", [{}, {"subwords": (3, 4), "buckets": 50}])
def test_vectors_alone_are_classified_by_one_linear_map_on_their_mean(
    folder: Folder, tables: Path, tmp_path: Path, hashed: Any
) -> None:
    pieces = load_checkpoint(folder("bert")).tokenizer
    arguments: dict[str, Any] = {"width": 16, **hashed}
    network = WordVectors(**arguments, vocab_size=pieces.size, spellings=pieces.spellings, clock=Clock())
    export_folder(
        tmp_path / "vectors", model=PortableModel(arguments, "open", network.state_dict(), {}, "word_vectors"), tokenizer=pieces,
        reading=Reading("{A}", None, "first"), card=Card("vectors"),
    )
    values = [*QUICK, "training.epochs=8", "training.rate.peak=0.1", "objectives[0].dropout=0"]
    made = tune(tmp_path / "vectors", tables, tmp_path / "out", "sentence_classification", *values)
    assert made.outcomes[1].standing.metrics["accuracy"] >= 0.9
    learner, _ = load_tuned(load_checkpoint(tmp_path / "out"))
    assert {name for name, _ in learner.head.named_parameters()} == {"head.output.weight", "head.output.bias"}


def test_a_network_whose_words_came_from_elsewhere_brings_them_and_they_stay_as_they_are(folder: Folder, tmp_path: Path) -> None:
    """CoVe's GloVe vectors: the table that they were read from is not needed again."""
    pieces = load_checkpoint(folder("bert")).tokenizer
    arguments: dict[str, Any] = {"width": 16, "layers": 1, "vectors": "glove"}
    network = LSTMEncoderDecoder(**arguments, vocab_size=pieces.size, clock=Clock())
    model = PortableModel(arguments, "open", network.state_dict(), {}, "lstm_encoder_decoder")
    export_folder(tmp_path / "cove", model=model, tokenizer=pieces, reading=Reading("{A}", None, "last"), card=Card("cove"))
    made = recipe_onto("sentence_classification", load_checkpoint(tmp_path / "cove"))
    check_recipe(made)
    words = build_step(made, vocab_size=pieces.size).networks["main"].get_submodule("embeddings.tokens").weight
    assert not words.requires_grad
