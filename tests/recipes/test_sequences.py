"""What recipes of sequences take from their authors' commands and papers, and how these values act."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cloze.batching import Cursor
from cloze.checkpoint.build import build_part, build_step
from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.feeds import build_data, edits_of, first_length
from cloze.exercises import Exercise, TokenFacts
from cloze.exercises.frame import split_template
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.recurrence.locked import LockedDropout
from cloze.recipe.load import load_recipe
from cloze.recipe.recipe import Recipe
from cloze.rng import Draw, row_keys
from cloze.rows import Rows
from cloze.runs.phasing import phases_of, with_dropouts
from cloze.text.normalise import Normalise

from .test_every_recipe import opened

ROLES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[BOS]", "[EOS]", "[EOD]")
FACTS = TokenFacts(
    size=5000, roles={role: number for number, role in enumerate(ROLES)}, ordinary=np.arange(10, 5000, dtype=np.int32),
    read=lambda text: [], spellings=["▁a"] * 5000,
)
SEP, MASK, EOD = (FACTS.roles[role] for role in ("[SEP]", "[MASK]", "[EOD]"))


def examples(recipe: Recipe, entry: str, arrays: dict[str, NDArray[Any]], count: int) -> tuple[Exercise, Rows]:
    """An entry's exercise, and what it makes of `count` rows of its source."""
    store: Any = SimpleNamespace(counts=lambda: np.ones(FACTS.size, np.int64))
    edits = edits_of(recipe, recipe.entries[entry], FACTS, store=store, tables={})
    exercise = Exercise(edits, first_length(recipe))
    return exercise, exercise(Rows(arrays), Draw(row_keys(7, entry, 0, items=np.arange(count))))


def named(name: str, *changes: str) -> Recipe:
    return load_recipe(name, size="tiny", overrides=list(changes))


@pytest.mark.parametrize("name", ["bart-base", "bart-large"])
def test_bart_ends_without_any_dropout_and_begins_with_that_of_attention(name: str) -> None:
    """Lewis et al. (2020), §5.1; facebookresearch/fairseq, issue 1899."""
    recipe = named(name)
    step = build_step(recipe, vocab_size=50, device="meta")
    first, last = with_dropouts(phases_of(recipe), recipe, step, vocab_size=50)
    assert (first.until, last.until) == (0.9, 1.0)
    attention = [rate for module, rate in first.rates.items() if module.endswith((".attention.dropout", ".crossing.dropout"))]
    assert len(attention) == 6 and set(attention) == {0.1}
    assert set(last.rates.values()) == {0.0}
    assert (recipe.training.batch, recipe.training.steps, recipe.training.clip) == (8000, 500_000, 0.1)


GPT3 = [
    ("gpt3", 0.524e6, 4e9, 6e-4), ("gpt3-xl", 1.05e6, 6e9, 2e-4),
    ("gpt3-13b", 2.1e6, 8e9, 1e-4), ("gpt3-175b", 3.28e6, 12e9, 6e-5),
]


@pytest.mark.parametrize(("name", "batch", "growing", "peak"), GPT3)
def test_gpt3_grows_its_batch_and_reaches_its_rates_after_the_published_tokens(
    name: str, batch: float, growing: float, peak: float
) -> None:
    """Brown et al. (2020), appendix B: 32 thousand tokens first, all after 4 to 12 billion; 375 million; 260 of 300 billion."""
    training = load_recipe(name).training
    rate, growth, steps = build_part(training.rate), build_part(training.batch_warmup), training.steps
    assert steps is not None
    share = np.arange(steps) / steps
    tokens = 2048 * np.maximum(np.rint(training.batch * np.array([growth(s) for s in share])), 1)
    read = np.cumsum(tokens)
    assert (tokens[0], tokens[-1]) == (pytest.approx(32e3, rel=0.03), pytest.approx(batch, rel=0.01))
    assert read[-1] == pytest.approx(300e9, rel=1e-3)
    assert read[np.argmax(tokens == tokens[-1])] == pytest.approx(growing, rel=0.01)
    rates = np.array([rate(s, steps) for s in share])
    assert rates.max() == pytest.approx(peak, rel=1e-4) and read[rates.argmax()] == pytest.approx(375e6, rel=0.01)
    assert read[np.argmax(rates[1000:] <= peak / 10 * 1.000001) + 1000] == pytest.approx(260e9, rel=2e-3)


def test_mass_hides_a_fragment_of_every_64_tokens_and_asks_for_it_where_it_stands() -> None:
    """microsoft/MASS, MASS-summarization, `masked_dataset.py` with the default of `--mask-s2s-prob`, 0.15."""
    text = np.arange(20, 532, dtype=np.int32) + np.zeros((60, 1), np.int32)
    text[:, 100] = SEP
    _, out = examples(named("mass"), "main", {"tokens": text, "length": np.full(60, 512, np.int32)}, 60)
    assert "crossing" not in out and (out["decoder.length"] == 76).all()
    asked = out["decoder.position_ids"] + 1
    stretches = np.bincount(((asked - 1) // 64 + 8 * np.arange(60)[:, None]).ravel()).reshape(60, 8)
    assert set(stretches.ravel()) <= {9, 10} and asked.min() > 0
    assert (np.diff(asked, axis=1) > 1).sum() <= 7 * 60  # one fragment each
    begins = asked[:, 0]
    assert begins.min() < 4 and begins.max() > 50  # anywhere alike
    assert (np.take_along_axis(text, asked, 1) == out["decoder.targets/main"]).all()
    assert (np.take_along_axis(text, asked - 1, 1) == out["decoder.tokens"]).all()  # each read where it stands
    hidden = np.zeros((60, 512), bool)
    np.put_along_axis(hidden, asked, True, 1)
    assert (out["tokens"][~hidden] == text[~hidden]).all() and abs((out["tokens"][hidden] == MASK).mean() - 0.8) < 0.02
    ends = (out["decoder.targets/main"] == SEP).sum()
    assert 3 < ends < 18  # of 60, with odds of 9 / 56: the end of a document is learned


def test_mass_writes_a_text_at_the_positions_at_which_it_learned_to() -> None:
    recipe = named("mass")
    text = np.full((40, 130), 20, np.int32)
    _, out = examples(recipe, "main", {"tokens": text, "length": np.full(40, 130, np.int32)}, 40)
    kinds = [kind for kind, _ in split_template(recipe.reading.single)]
    assert recipe.reading.start == "[SEP]" and kinds[0] == "part"
    # Behind the start at position 0 the decoder writes what stands at position 1: so it was trained, and so a target is framed.
    assert out["decoder.position_ids"].min() == 0 == kinds.index("part")


def test_mass_trains_as_its_authors_command_says() -> None:
    """microsoft/MASS, MASS-summarization, `README.md` and `s2s_model.py` (transformer_mass_base)."""
    recipe = load_recipe("mass")
    rate, steps, found = build_part(recipe.training.rate), recipe.training.steps, check_recipe(recipe)
    assert (recipe.training.batch, steps, recipe.training.clip) == (4096, 125_000, None)
    assert [rate(step / 125_000, steps) for step in (5000, 10_000, 67_500, 125_000)] == pytest.approx([2.5e-4, 5e-4, 2.5e-4, 0])
    optimizer = build_part(recipe.training.optimizer)
    assert (optimizer.betas, optimizer.epsilon, optimizer.weight_decay, optimizer.decay) == ((0.9, 0.98), 1e-6, 0.01, "all")
    step = build_step(named("mass"), vocab_size=50, device="meta")
    assert {module.rate for module in step.modules() if isinstance(module, Dropout)} == {0.1} and not recipe.schedule
    assert found.networks["main"] + sum(found.heads.values()) == 123_468_288  # the README says 123 million


def test_unilm_reads_one_segment_in_one_direction_and_pairs_otherwise_all_in_one_batch() -> None:
    """Dong et al. (2019), §2.3-2.4; microsoft/unilm for the segments."""
    recipe, count = named("unilm"), 30
    text = np.arange(100, 600, dtype=np.int32) + np.zeros((count, 1), np.int32)
    arrays = {"tokens": text, "length": np.full(count, 500, np.int32), "sentence": (text - 100) // 20, "document": text[:, 0]}
    arrays |= {f"distractor.{field}": value for field, value in arrays.items()} | {"target_length": arrays["length"]}
    segments, borders = {}, {}
    for entry in recipe.entries:
        _, out = examples(recipe, entry, arrays, count)
        segments[entry] = np.unique(out["segments"]).tolist()
        borders[entry] = set((out["tokens"] == SEP).sum(1).tolist())
    assert segments == {"bidirectional": [0, 1], "sequence_to_sequence": [4, 5], "left_to_right": [2], "right_to_left": [3]}
    assert borders == {"bidirectional": {2}, "sequence_to_sequence": {2}, "left_to_right": {1}, "right_to_left": {1}}
    assert recipe.mixing == "row" and [entry.odds for entry in recipe.entries.values()] == [2, 2, 1, 1]
    assert (recipe.training.batch, recipe.training.steps) == (330, 770_000)


@pytest.mark.parametrize("name", ["two-tower", "two-tower-links"])
def test_the_pairs_of_a_step_of_two_towers_are_of_all_tasks_with_equal_odds(name: str) -> None:
    """Chang et al. (2020), §4.1: one combined set of pairs, so that the passages of other tasks are negatives, too."""
    recipe = load_recipe(name)
    assert recipe.mixing == "row" and {entry.odds for entry in recipe.entries.values()} == {1}


def test_unilms_maps_into_the_residual_begin_smaller_from_layer_to_layer() -> None:
    (network,) = build_step(load_recipe("unilm", size="small"), vocab_size=50).networks.values()
    usual = float(network.layers[0].inner.weight.detach().std())
    found = [float(linear.weight.detach().std()) for layer in network.layers for linear in (layer.attention.out, layer.outer)]
    expected = [usual / (2 * number) ** 0.5 for number in (1, 1, 2, 2, 3, 3, 4, 4)]
    assert found == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("name", "kind", "read"),
    [("transformer-iwslt", "bpe", "ä école für"),  # bert-nmt/bert-nmt prepare-iwslt14.sh:67: lowercase.perl alone
     ("xlnet-base", "unigram", "A Ecole fur"), ("xlnet-large", "unigram", "A Ecole fur")],  # zihangdai/xlnet prepro_utils.py:59
)
def test_accents_are_kept_where_the_authors_keep_them(name: str, kind: str, read: str) -> None:
    assert Normalise.of(load_recipe(name).texts["main"].normalise).applied(kind)("Ä École für") == read


@pytest.mark.parametrize("name", ["xlnet-base", "xlnet-large"])
def test_xlnets_rows_are_running_text_and_a_pair_with_43_and_42_answers(name: str) -> None:
    """zihangdai/xlnet, `data_utils.py`: create_tfrecords, with reuse_len 256 and num_predict 85."""
    recipe, count = named(name), 40
    text = np.arange(100, 609, dtype=np.int32) + np.zeros((count, 1), np.int32)
    arrays = {"tokens": text, "length": np.full(count, 509, np.int32), "sentence": text // 20, "word_start": text % 3 > 0}
    arrays |= {f"distractor.{field}": value + 2000 if field == "tokens" else value for field, value in arrays.items()}
    exercise, out = examples(recipe, "main", arrays, count)
    assert exercise.max_tokens == 509 and recipe.sources["main"].arguments["reuse"] == 509 - 256
    assert (out["length"] == 512).all()
    asked = out["positions/main"]
    assert ((asked >= 0) & (asked < 256)).sum(1).tolist() == [43] * count
    assert (asked >= 256).sum(1).tolist() == [42] * count
    assert (out["tokens"][:, -1] == FACTS.roles["[CLS]"]).all() and (out["segments"][:, -1] == 2).all()
    assert (out["tokens"] == SEP).sum(1).tolist() == [2] * count
    first = np.argmax(out["tokens"] == SEP, axis=1)
    columns = np.arange(511)
    assert (out["segments"][:, :-1] == (columns > first[:, None])).all() and first.min() > 256
    assert 8 < (out["tokens"] >= 2000).any(1).sum() < 32  # from elsewhere
    assert set(out["order"][:, 255].tolist()) != {0}  # the order is there, half by half
    rate, steps = build_part(recipe.training.rate), recipe.training.steps
    assert [rate(step / 500_000, steps) for step in (20_000, 40_000, 500_000)] == pytest.approx([2e-4, 4e-4, 4e-7])


@pytest.mark.parametrize("taken", [False, True])
def test_a_field_that_only_an_objective_takes_is_in_the_batch(tmp_path: Path, taken: bool) -> None:
    recipe, stores, tokenizer, _ = opened("bert", tmp_path)
    step = build_step(recipe, vocab_size=tokenizer.size, seed=0)
    network, objective = step.networks["main"], step.objectives["token_prediction"]
    network.takes -= {"segments"}
    objective.takes |= {"segments"} if taken else set()
    (micro, *_), _ = build_data(recipe, stores, step, tokenizer, seed=0).next("main", Cursor())
    assert ("segments" in micro.batch) == taken


def test_xlnets_segments_learn_as_much_as_its_other_biases(tmp_path: Path) -> None:
    recipe, stores, tokenizer, _ = opened("xlnet-base", tmp_path)
    assert recipe.sources["main"].arguments["separator"] == "[EOD]" and tokenizer.piece(tokenizer.role("[EOD]")) == "<eod>"
    step = build_step(recipe, vocab_size=tokenizer.size, seed=0)
    (entry,) = recipe.step_entries
    (micro, *_), _ = build_data(recipe, stores, step, tokenizer, seed=0).next(entry, Cursor())
    step.clock.set(seed=0, step=0, first_row=0, share=0.0)
    torch.stack([loss.total for loss in step(entry, micro.batch).values()]).sum().backward()
    sizes = {path: float(p.grad.norm()) for path, p in step.named_parameters() if p.grad is not None}
    for layer in (0, 1):
        place = f"networks.main.layers.{layer}.attention."
        usual = min(sizes[place + part] for part in ("content_bias", "distance_bias"))
        assert min(sizes[place + part] for part in ("segments", "segment_bias")) > 0.01 * usual > 0


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("t5-small", 60_506_624), ("t5-base", 222_903_552), ("t5-large", 737_668_096), ("t5-v1.1-small", 76_961_152),
        ("t5-v1.1-base", 247_577_856),
    ],
)
def test_t5_has_its_authors_number_of_parameters_and_z_loss(name: str, parameters: int) -> None:
    """google-research/text-to-text-transfer-transformer, gin files: 32,128 rows; Mesh TensorFlow's z_loss."""
    found = check_recipe(load_recipe(name))
    assert sum(found.networks.values()) + sum(found.heads.values()) == parameters
    step = build_step(named(name), vocab_size=50)
    (objective,) = step.objectives.values()
    assert objective.z_loss == 1e-4
    rates = {module.rate for module in step.modules() if isinstance(module, Dropout)}
    assert rates == ({0.0} if "v1.1" in name else {0.1})
    if "v1.1" in name:  # the output table begins from what it reads
        table = objective.head.output.weight.detach()
        assert float(table.std()) == pytest.approx(table.shape[1] ** -0.5, rel=0.03)
    else:
        assert all(isinstance(module, LockedDropout) for module in step.modules() if isinstance(module, Dropout))
