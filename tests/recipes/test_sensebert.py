"""SenseBERT: senses at the input and as targets, without parameters beyond their vectors; its folder opens in transformers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.publish import Publisher
from cloze.errors import ClozeError, CorpusError, RecipeError
from cloze.exercises.noise.favour import Favour
from cloze.exercises.noise.mask import Mask
from cloze.exercises.targets.predict_senses import PredictSenses
from cloze.knowledge.senses import BoundSenses, SupersenseTable, read_senses, senses_of
from cloze.objectives.tokens.sense_prediction import sense_losses
from cloze.recipe.load import load_recipe
from cloze.rng import Draw, row_keys
from cloze.rows import Rows
from cloze.runs.finetuning.task_recipe import recipe_maker
from cloze.runs.options import FinetuneOptions

from ..contracts.conftest import system  # noqa: F401  the fixture

WANT = frozenset({"hidden"})


def test_with_one_allowed_sense_the_loss_is_twice_its_negative_log_likelihood() -> None:
    scores = torch.randn(4, 45, generator=torch.Generator().manual_seed(0))
    right = torch.tensor([3, 0, 44, 7])
    allowed = torch.zeros(4, 45, dtype=torch.bool).scatter(1, right[:, None], True)
    expected = -2 * torch.log_softmax(scores, 1).gather(1, right[:, None]).squeeze(1)
    torch.testing.assert_close(sense_losses(scores, allowed), expected)


def test_uniform_scores_and_three_allowed_senses_give_the_logarithms_of_15_and_45() -> None:
    allowed = (torch.arange(45) < 3)[None]
    assert float(sense_losses(torch.zeros(1, 45), allowed)) == pytest.approx(math.log(15) + math.log(45), rel=1e-6)


def test_beyond_bert_it_has_the_vectors_of_45_senses_and_twice_the_pieces_of_the_paper() -> None:
    sense, bert = (check_recipe(load_recipe(name)) for name in ("sensebert", "bert"))
    more = 60_000 - 30_522  # §3.4: 30,000 more words, some 23 million more parameters
    assert sense.networks["main"] - bert.networks["main"] == (45 + more) * 768
    assert sense.heads == {
        "token_prediction": bert.heads["token_prediction"] + more, "sense_prediction": 0,
        "relation_prediction": bert.heads["relation_prediction"],  # figure 1: trained jointly
    }


def test_short_words_have_no_senses(tmp_path: Path, system: Callable[..., Any]) -> None:  # noqa: F811
    own = system("sensebert")
    (store,) = own.stores.values()
    (tmp_path / "senses.tsv").write_text("old\tadj.all\nsea\tnoun.object\nstone\tnoun.object\n")
    ids = [own.tokenizer.encode(word).ids.tolist()[0] for word in ("old", "sea", "stone")]
    for shortest, expected in ((1, [True, True, True]), (4, [False, False, True])):
        table = SupersenseTable(file=str(tmp_path / "senses.tsv"), shortest=shortest).bind(store)
        assert (table.first[ids] >= 0).tolist() == expected
    assert load_recipe("sensebert").tables["senses"].arguments["shortest"] == 4  # §3.2


def test_regular_word_forms_have_the_senses_of_their_lemma_and_part_of_speech() -> None:
    known = {"dog": ("noun.animal", "verb.motion"), "run": ("verb.motion", "noun.act"), "big": ("adj.all",)}
    known["man"] = ("noun.person",)
    found = {word: senses_of(word, known) for word in ("Dogs", "running", "bigger", "men", "went", "ring")}
    assert found == {
        "Dogs": ("noun.animal", "verb.motion"), "running": ("verb.motion",), "bigger": ("adj.all",), "men": ("noun.person",),
        "went": (), "ring": (),
    }
    assert senses_of("dogs", known, {}) == ()


def test_a_list_that_cannot_be_read_says_where_and_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "senses.tsv").write_text("bank\tnoun.group\nbass noun.animal\n")
    with pytest.raises(CorpusError, match=r"senses.tsv, line 2: got 'bass noun.animal', expected a lemma, a tab"):
        read_senses(str(tmp_path / "senses.tsv"))
    with pytest.raises(RecipeError, match=r"no such file. Did you mean 'senses.tsv'"):
        read_senses(str(tmp_path / "sense.tsv"))


def test_the_mean_of_a_word_with_two_senses_has_half_of_each() -> None:
    allowed = np.array([[True, True], [False, True], [False, False]])
    table = BoundSenses(allowed, np.array([0, 1, -1], np.int32), ("a", "b"), mean=True)
    again = SupersenseTable.restored(table.arrays)
    assert again.mixed.tolist() == [[0.5, 0.5], [0.0, 1.0], [0.0, 0.0]] and again.names == ("a", "b")
    assert BoundSenses(allowed, table.first, table.names).mixed.tolist() == [[1, 1], [0, 1], [0, 0]]


def test_a_sense_is_asked_only_of_masked_words_of_one_token_that_have_senses() -> None:
    first = np.array([-1, 0, 0, -1, 2], np.int32)
    edit = PredictSenses(tables={"senses": BoundSenses(np.ones((5, 3), np.bool_), first, ("a", "b", "c"))})
    rows = Rows({
        "tokens": np.array([[1, 0, 2, 3, 0, 4], [0, 0, 0, 0, 0, 0]]),
        "original": np.array([[1, 1, 2, 3, 2, 4], [4, 1, 3, 2, 0, 0]]),
        "masked": np.array([[0, 1, 1, 0, 1, 0], [1, 0, 1, 0, 0, 0]], bool), "length": np.array([6, 4]),
        "word_start": np.array([[1, 1, 1, 0, 1, 1], [1, 1, 1, 1, 1, 1]], bool),
    })
    found = edit(rows, Draw(row_keys(0, "main", 0, items=np.arange(2))))
    assert found["positions/sense"].tolist() == [[1, 4], [0, -1]]  # column 2 begins a longer word, row 1 column 2 has no sense
    assert found["targets/sense"].tolist() == [[1, 2], [4, 0]]


def test_favoured_words_are_masked_more_often_and_other_tokens_as_before() -> None:
    layer = np.broadcast_to(np.arange(400) % 4 // 2, (200, 400)) > 0  # two tokens of every four
    rows = Rows({
        "tokens": np.ones((200, 400), np.int32), "length": np.full(200, 400), "special": np.zeros((200, 400), bool),
        "word_start": np.broadcast_to(np.arange(400) % 2 == 0, (200, 400)), "layers/polarity": layer.astype(np.uint8),
    })
    draw = Draw(row_keys(0, "main", 0, items=np.arange(200)))
    rows = Favour(layer="polarity")(rows, draw)
    for unit, words in (("whole_word", 100), ("token", 200)):
        masked = Mask(unit=unit, rounding="independent", rate=0.15)(rows, draw)["masked"]
        deviation = math.sqrt(0.25 / (200 * words))
        assert masked[layer].mean() == pytest.approx(0.30, abs=4 * deviation)
        assert masked[~layer].mean() == pytest.approx(0.15, abs=4 * deviation)
        assert unit == "token" or (masked[:, ::2] == masked[:, 1::2]).all()
    with pytest.raises(RecipeError, match="some words are favoured, which needs a coin for every word"):
        Mask()(rows, draw)
    with pytest.raises(RecipeError, match="name the words by one of `layer`"):
        Favour()


def test_words_with_one_sense_are_favoured() -> None:
    allowed = np.array([[0, 0], [1, 0], [1, 1]], bool)
    table = BoundSenses(allowed, np.array([-1, 0, 0], np.int32), ("a", "b"))
    edit = Favour(senses="senses", times=3.0, tables={"senses": table})
    rows = Rows({"tokens": np.array([[0, 1, 2]])})
    assert edit(rows, Draw(row_keys(0, "main", 0, items=np.arange(1))))["favour"].tolist() == [[1, 3, 1]]


def test_the_input_does_not_tell_the_senses_of_masked_words(system: Callable[..., Any]) -> None:  # noqa: F811
    own = system("sensebert")
    table, mask = own.tables["senses"], own.tokenizer.role("[MASK]")
    assert not table.allowed[mask].any() and not table.allowed[own.tokenizer.special_ids].any() and table.allowed.any()
    step = own.step()
    batch = own.batches(step)["main"]
    embeddings: Any = step.networks["main"].embeddings
    hidden = (batch["tokens"] == mask).nonzero()
    assert len(hidden) and len(batch["positions/sense"])
    added = embeddings.senses["senses"](batch["tokens"])
    assert not added[hidden[:, 0], hidden[:, 1]].any() and added.any()


def test_the_vectors_of_senses_learn_from_input_and_output(system: Callable[..., Any]) -> None:  # noqa: F811
    own = system("sensebert")
    step = own.step()
    batch = own.batches(step)["main"]
    losses = step("main", batch)
    assert float(step.count("main", batch)["sense_prediction"]) == len(batch["positions/sense"])
    vectors: Any = step.networks["main"].embeddings.senses["senses"].weight
    for name in ("token_prediction", "sense_prediction"):
        (gradient,) = torch.autograd.grad(losses[name].total, vectors, retain_graph=True)
        assert gradient.any()
    assert not [name for name, _ in step.objectives["sense_prediction"].named_parameters()]


def test_the_folder_opens_in_transformers_and_again_here_bit_for_bit(
    system: Callable[..., Any], tmp_path: Path  # noqa: F811
) -> None:
    from transformers import AutoModelForMaskedLM

    own = system("sensebert")
    step = own.step()
    with torch.no_grad():
        for parameter in step.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)), alpha=0.1)
    publish = Publisher(own.recipe, own.tokenizer, own.tables)
    remarks = publish(tmp_path / "run", step.state_dict(), 1)
    assert remarks == ["sense_prediction: transformers' BERT has no such head. transformers opens the folder without this head."]
    here = load_checkpoint(tmp_path / "run")
    network: Any = step.networks["main"]
    there = here.network.state_dict()
    assert there.keys() == network.state_dict().keys()
    assert all(torch.equal(there[name], tensor) for name, tensor in network.state_dict().items())
    tuning = recipe_maker(FinetuneOptions(here.folder), here)()  # it can be fine-tuned
    assert check_recipe(tuning).heads.keys() == {"classification"}
    assert here.heads["token_prediction"].head.output is None and "head.bias" in here.heads["token_prediction"].state_dict()
    tokens = torch.tensor([own.tokenizer.encode("the old bank of the river").ids.tolist()])
    theirs: Any = AutoModelForMaskedLM.from_pretrained(tmp_path / "run").eval()
    assert type(theirs).__name__ == "BertForMaskedLM"
    with torch.no_grad():
        hidden = here.network(want=WANT, tokens=tokens)["hidden"]
        scores = here.heads["token_prediction"].head(hidden[0])
        torch.testing.assert_close(theirs(tokens).logits[0], scores, atol=1e-4, rtol=1e-4)
    again = Publisher(own.recipe, own.tokenizer, own.tables)
    again(tmp_path / "again", step.state_dict(), 1)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()
    (tmp_path / "run" / "cloze" / "embeddings.safetensors").unlink()
    with pytest.raises(ClozeError, match="embeddings.safetensors: there is no such file; the network adds vectors of senses"):
        load_checkpoint(tmp_path / "run")
