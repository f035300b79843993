"""DualTrain: counts, a teacher that reads two vocabularies, and what each part of the recipe teaches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.batch import Batch
from cloze.batching import Cursor
from cloze.budget.baselines import baselines
from cloze.budget.micro_batch import require_one_process
from cloze.checkpoint.bound import BoundCheckpoints
from cloze.checkpoint.build import build_step, load_checkpoint, plain_arguments
from cloze.checkpoint.feeds import build_data
from cloze.checkpoint.publish import Publisher
from cloze.checkpoint.warm_start import load_origins
from cloze.errors import RecipeError
from cloze.networks.clock import Clock
from cloze.recipe.builders import build
from cloze.recipe.load import load_recipe
from cloze.registry import lookup
from cloze.runs.binds import make_tables, open_stores
from cloze.text import Tokenizer
from cloze.training.step import StepModule

SAMPLE = Path(__file__).resolve().parents[2] / "cloze" / "samples" / "english.txt"
SMALL = ["length=48", "training.batch=8", "training.held_out=0.0"]
SIZES = ("layers=2", "width=32", "heads=2", "feed_forward.inner=128", "positions.max_length=64")
STUDENT = ["text.tokenizer.wordpiece.size=300", *(f"networks.student.{size}" for size in SIZES)]
MASKS = ("mask=1.0", "random=0.0", "keep=0.0")


class Pair:
    """A teacher of two layers with random weights, and steps of the recipe over it."""

    def __init__(self, folder: Path) -> None:
        recipe = load_recipe("bert", size="tiny", overrides=[*SMALL, "network.layers=2", "network.positions.max_length=64"])
        stores, self.own = open_stores(
            recipe, {"main": [str(SAMPLE)]}, folder / "run", tokenizer=None, text_format="auto", seed=0, say=lambda line: None
        )
        step = build_step(recipe, vocab_size=self.own.size, seed=0)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            for parameter in step.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        self.teacher, self.folder = folder / "teacher", folder
        Publisher(recipe, self.own)(self.teacher, step.state_dict(), 0)

    def step(self, *changes: str, tokenizer: Path | None = None) -> tuple[StepModule, Batch, Tokenizer]:
        """The step of the recipe with its teacher and without dropout, its first batch, and the tokenizer of the text."""
        bound = BoundCheckpoints({"teacher": self.teacher})
        recipe = load_recipe("dualtrain", overrides=[*SMALL, *STUDENT, *changes], checkpoints=bound)
        begin = {"teacher": self.teacher}
        out = self.folder / ("own" if tokenizer is None else "given")
        stores, chosen = open_stores(
            recipe, {"main": [str(SAMPLE)]}, out, tokenizer=tokenizer, text_format="auto", seed=0, say=lambda line: None
        )
        tables = make_tables(recipe, stores, begin)
        step = build_step(recipe, vocab_size=chosen.size, tables=tables, store=stores["main"], tokenizer=chosen)
        load_origins(step, recipe, begin, chosen, resumes=False, say=lambda line: None, tables=tables)
        step.eval()
        step.clock.set(seed=0, step=0, first_row=0, share=0.0)
        data = build_data(recipe, stores, step, chosen, seed=0, tables=tables)
        self.known = baselines(recipe, data, stores["main"], step)
        return step, data.next("main", Cursor())[0][0].batch, chosen


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("pair"))


@pytest.mark.parametrize("width", [48, 96, 192])
def test_students_have_the_counts_of_a_bert_with_4_928_pieces(width: int) -> None:
    sizes = (f"width={width}", f"feed_forward.inner={4 * width}")
    recipe = load_recipe("dualtrain", overrides=[f"networks.student.{size}" for size in sizes])
    part = recipe.networks["student"].part
    assert part is not None and recipe.texts["main"].tokenizer.arguments["size"] == 4928
    with torch.device("meta"):
        made = build(lookup("network", part.name), plain_arguments(part.arguments), {"vocab_size": 4928, "clock": Clock()})
    layer = 4 * (width + 1) * width + (width + 1) * 4 * width + (4 * width + 1) * width + 4 * width
    assert sum(p.numel() for p in made.parameters()) == (4928 + 512 + 2 + 2) * width + 12 * layer
    assert made.embeddings.tokens.weight.shape == (4928, width)


def test_the_teacher_has_a_row_for_every_piece_of_both_vocabularies_and_words_of_both_begin_alike(pair: Pair) -> None:
    step, _, tokenizer = pair.step()
    old: Any = load_checkpoint(pair.teacher)
    networks: list[Any] = [step.networks["teacher"], old.network]
    table, before = (network.embeddings.tokens.weight.detach() for network in networks)
    assert table.shape == (300 + pair.own.size, before.shape[1])
    torch.testing.assert_close(table[300:], before)
    shared = {piece: pair.own.id(piece) for piece in tokenizer.spellings}
    assert sum(number is not None for number in shared.values()) > 250
    for number, piece in enumerate(tokenizer.spellings):
        if shared[piece] is not None:
            torch.testing.assert_close(table[number], before[shared[piece]])
    head: Any = step.objectives["joined_prediction"].head
    torch.testing.assert_close(head.bias[300:], old.heads["token_prediction"].head.bias)
    torch.testing.assert_close(head.dense.weight, old.heads["token_prediction"].head.dense.weight)


def test_without_words_of_the_text_s_vocabulary_the_teacher_predicts_as_it_did_before(pair: Pair) -> None:
    """With probability 0 its loss is that of its checkpoint for the same masks, in its own ids."""
    step, batch, tokenizer = pair.step("exercise.mix_vocabularies.rate=0.0", *(f"exercise[7].corrupt.{odds}" for odds in MASKS))
    mixed = batch.view("mixed")
    old = load_checkpoint(pair.teacher)

    known = [pair.own.id(piece) or 0 for piece in tokenizer.spellings]
    for name in tokenizer.roles:
        known[tokenizer.role(name)] = pair.own.role(name)

    def own(ids: torch.Tensor) -> torch.Tensor:
        return torch.where(ids >= 300, ids - 300, torch.tensor(known)[ids.clamp(max=299)])

    asked = mixed["targets/main"] >= 300  # all but the ends of words that the rows cut
    assert int((mixed["tokens"] >= 300).sum()) > 100 and float(asked.float().mean()) > 0.9
    given = {name: value for name, value in mixed.items() if name in ("segments", "block", "position_ids")}
    states = old.network(tokens=own(mixed["tokens"]), order="open", want=frozenset({"hidden"}), **given)
    weighed = {**mixed, "weights/main": asked.float()}
    expected = old.heads["token_prediction"](states, Batch({**weighed, "targets/main": own(mixed["targets/main"])}))
    hidden = step.states_of("main", batch, frozenset({"teacher.hidden"}))["teacher.hidden"]
    found = step.objectives["joined_prediction"]({"hidden": hidden}, Batch(weighed))
    torch.testing.assert_close(hidden, states["hidden"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.total, expected.total, rtol=1e-5, atol=1e-4)


def test_a_student_that_equals_its_teacher_is_at_no_distance_from_it(pair: Pair) -> None:
    sizes = ("layers=2", "width=128", "heads=2", "feed_forward.inner=512", "positions.max_length=64")
    step, batch, tokenizer = pair.step(*(f"networks.student.{size}" for size in sizes), tokenizer=pair.teacher)
    assert tokenizer.hash == pair.own.hash
    step.networks["student"].load_state_dict(load_checkpoint(pair.teacher).network.state_dict())
    assert step("main", batch)["match_parameters"].total.item() == 0.0


def test_the_teacher_learns_the_text_s_pieces_from_words_and_nothing_from_the_student(pair: Pair) -> None:
    step, batch, _ = pair.step()
    losses = step("main", batch)
    assert losses.keys() == {
        "joined_prediction", "relation_prediction", "token_prediction", "relation_prediction/next", "match_parameters"
    }

    assert pair.known.keys() == {"token_prediction", "relation_prediction", "relation_prediction/next"}  # two vocabularies: none

    def moved(name: str) -> Mapping[str, bool]:
        step.zero_grad()
        losses[name].total.backward(retain_graph=True)
        return {key.split(".")[1]: True for key, p in step.named_parameters() if p.grad is not None and bool(p.grad.any())}

    assert set(moved("match_parameters")) == {"student", "match_parameters"}
    assert set(moved("joined_prediction")) == {"teacher", "joined_prediction"}
    table: Any = step.networks["teacher"].embeddings.tokens.weight  # type: ignore[union-attr]
    assert bool(table.grad[:300].any()) and bool(table.grad[300:].any())
    assert set(moved("token_prediction")) == {"student", "token_prediction"}


def test_the_folder_of_a_run_holds_the_student_alone(pair: Pair, tmp_path: Path) -> None:
    recipe = load_recipe("dualtrain", overrides=[*SMALL, *STUDENT], checkpoints=BoundCheckpoints({"teacher": pair.teacher}))
    step, _, tokenizer = pair.step()
    Publisher(recipe, tokenizer)(tmp_path / "run", step.state_dict(), 1)
    student = load_checkpoint(tmp_path / "run")
    assert student.tokenizer.size == 300 and student.network_arguments["width"] == 32
    assert not (tmp_path / "run" / "cloze" / "networks" / "teacher").exists()


def test_parameters_that_are_compared_are_not_divided_among_processes(pair: Pair) -> None:
    step, _, _ = pair.step()
    recipe = load_recipe("dualtrain")
    assert step.reads_parameters
    require_one_process(recipe, step, 2, "ddp")
    with pytest.raises(RecipeError, match="dualtrain: an objective reads the parameters of a network, .*\n  Use --strategy ddp"):
        require_one_process(recipe, step, 2, "fsdp")


def test_a_network_that_reads_two_vocabularies_is_not_exported(pair: Pair) -> None:
    with pytest.raises(RecipeError, match=r"networks.teacher: join_vocabulary gives a teacher the ids of two tokenizers.*"):
        pair.step("export=teacher")
