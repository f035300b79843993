"""SentiLARE: hidden words show neither part of speech nor polarity, polar words are hidden twice as often, stars never leak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.publish import Publisher
from cloze.decoding.reader import Reader
from cloze.errors import RecipeError
from cloze.exercises.show import Show
from cloze.exercises.targets.predict_labels import PredictLabels
from cloze.interop.model import Annotating
from cloze.recipe.load import load_recipe
from cloze.rng import Draw, row_keys
from cloze.rows import Rows
from cloze.runs.finetuning.task_checks import unlabelled_notes
from cloze.runs.finetuning.task_recipe import recipe_maker
from cloze.runs.options import FinetuneOptions
from cloze.text import Annotations

from ..contracts.conftest import system  # noqa: F401  the fixture

WANT = frozenset({"hidden"})
DRAW = Draw(row_keys(0, "main", 0, items=np.arange(2)))


@pytest.fixture(scope="module")
def own(system: Callable[..., Any]) -> Any:  # noqa: F811
    return system("sentilare")


def block() -> Rows:
    """Row 0: masked and hidden, masked and kept, masked without label, not masked. Row 1: polar and nothing else; padding."""
    return Rows({
        "tokens": np.array([[9, 2, 3, 4], [9, 6, 0, 0]]), "original": np.array([[1, 2, 3, 4], [5, 6, 0, 0]]),
        "masked": np.array([[1, 1, 1, 0], [1, 0, 1, 0]], bool), "length": np.array([4, 2]),
        "labels/pos": np.array([[4, 2, 0, 1], [0, 3, 0, 0]]), "labels/polarity": np.array([[0, 1, 0, 2], [2, 0, 2, 0]]),
        "labels/stars": np.array([[0, 5, 5, 5], [0, 0, 0, 0]]), "layers/pos": np.ones((2, 4)), "layers/polarity": np.ones((2, 4)),
        "layers/stars": np.ones((2, 4)),
    })


def test_a_hidden_word_shows_no_label_and_a_kept_one_does_and_stars_are_shown_everywhere() -> None:
    assert Show(layer="pos")(block(), DRAW)["inputs/pos"].tolist() == [[0, 2, 0, 1], [0, 3, 0, 0]]
    assert Show(layer="polarity")(block(), DRAW)["inputs/polarity"][:, :2].tolist() == [[0, 1], [0, 0]]
    assert Show(layer="stars", hidden=True)(block(), DRAW)["inputs/stars"].tolist() == [[0, 5, 5, 5], [0, 0, 0, 0]]
    with pytest.raises(RecipeError, match="hidden is for layers"):
        Show(column="stars", hidden=True)


def test_a_masked_word_is_asked_for_both_labels_unless_it_has_none() -> None:
    for layer, targets in (("pos", [[4, 2], [0, 0]]), ("polarity", [[0, 1], [2, 0]])):
        found = PredictLabels(layer=layer, known=("pos", "polarity"))(block(), DRAW)
        assert found[f"positions/{layer}"].tolist() == [[0, 1], [0, -1]]
        assert found[f"targets/{layer}"].tolist() == targets
    assert PredictLabels(layer="pos")(block(), DRAW)["positions/pos"].tolist() == [[0, 1], [-1, -1]]


def test_the_stars_of_a_row_are_those_of_its_first_labelled_token_and_a_row_without_stars_counts_nothing() -> None:
    found = PredictLabels(layer="stars", of="row")(block(), DRAW)
    assert found["targets/stars"].tolist() == [5, 0] and found["weights/stars"].tolist() == [1, 0]
    assert "positions/stars" not in found


def test_it_has_three_tables_more_than_roberta() -> None:
    found, roberta = (check_recipe(load_recipe(name)) for name in ("sentilare", "roberta"))
    assert found.networks["main"] - roberta.networks["main"] == (5 + 3 + 6) * 768
    dense = 768 * 768 + 3 * 768
    assert {name: found.heads[name] for name in ("pos", "polarity", "stars")} == {
        "pos": dense + 5, "polarity": dense + 3, "stars": dense + 6,
    }


def test_reading_no_label_trains_nothing_and_heads_are_tied_to_their_tables(own: Any) -> None:
    step = own.step()
    embeddings: Any = step.networks["main"].embeddings
    batch = own.batches(step)["main"]
    tokens = batch["tokens"]
    shown = {name: torch.zeros_like(tokens) for name in ("pos", "polarity", "stars")}
    shown["pos"][0, 1] = 3
    step.networks["main"](want=WANT, tokens=tokens, inputs=shown)["hidden"].square().sum().backward()
    gradient = embeddings.inputs["pos"].weight.grad
    assert gradient[3].any() and not gradient[[0, 1, 2, 4]].any()
    embeddings.zero_grad()
    step.networks["main"](want=WANT, tokens=tokens)["hidden"].square().sum().backward()
    assert all(table.weight.grad is None for table in embeddings.inputs.values())
    losses = step("main", batch)
    for name, rows in (("pos", 5), ("polarity", 3), ("stars", 6)):
        assert step.objectives[name].head.weight is embeddings.inputs[name].weight and len(embeddings.inputs[name].weight) == rows
        (gradient,) = torch.autograd.grad(losses[name].total, embeddings.inputs[name].weight, retain_graph=True)
        assert gradient[0].any()  # "none" is learned as an answer


def test_fine_tuning_says_which_labels_nothing_gives() -> None:
    lexicon = Annotating("lexicon", {"labels": ["x"]})
    annotators = {"pos": lexicon, "polarity": replace(lexicon, file=Path("polar.tsv"))}
    (note,) = unlabelled_notes(annotators, [])
    assert note.startswith("note: this network reads labels of words (pos), and no file gives any here")
    assert list(unlabelled_notes(annotators, ["pos=lexicon:pos.tsv"])) == list(unlabelled_notes({}, [])) == []


def test_stars_are_seen_or_asked_for_and_never_both(own: Any) -> None:
    step = own.step()
    batch = own.batches(step)["main"]
    shown = batch["inputs/stars"].any(1)
    asked = torch.zeros_like(shown).index_fill(0, batch["positions/stars"].long(), True)
    assert shown.any() and asked.any() and not (shown & asked).any()
    assert (batch["targets/stars"] >= 1).all()


def test_the_folder_opens_in_transformers_and_here_texts_show_their_words_labels_and_no_stars(own: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM

    step = own.step()
    with torch.no_grad():
        for parameter in step.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)), alpha=0.1)
    remarks = Publisher(own.recipe, own.tokenizer, own.tables)(tmp_path / "run", step.state_dict(), 1)
    assert [remark.partition(":")[0] for remark in remarks] == ["pos", "polarity", "stars"]
    here = load_checkpoint(tmp_path / "run")
    network: Any = step.networks["main"]
    assert all(torch.equal(here.network.state_dict()[name], tensor) for name, tensor in network.state_dict().items())
    tuning = recipe_maker(FinetuneOptions(here.folder), here)()  # it can be fine-tuned
    assert check_recipe(tuning).heads.keys() == {"classification"}
    reader = Reader.of(here)
    batch = reader.batch(reader.encode(["warm town"]))
    shown = {name: batch[name].max() for name in batch if name.startswith("inputs/")}
    assert shown == {"inputs/pos": 4, "inputs/polarity": 2}
    assert set(here.annotations.layers) == {"pos", "polarity"}
    reader = replace(reader, annotations=Annotations())
    batch = reader.batch(reader.encode(["a warm and quiet town"]))
    assert not [name for name in batch if name.startswith("inputs/")]
    theirs: Any = AutoModelForMaskedLM.from_pretrained(tmp_path / "run").eval()
    assert type(theirs).__name__ == "RobertaForMaskedLM"
    with torch.no_grad():
        hidden = reader.states(batch, WANT)["hidden"]
        scores = here.heads["token_prediction"].head(hidden[0])
        torch.testing.assert_close(theirs(batch["tokens"]).logits[0], scores, atol=1e-4, rtol=1e-4)
