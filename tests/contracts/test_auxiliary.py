"""`cloze finetune --auxiliary` on networks that read both sides: their masked language model is trained along with every task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.checks.check import check_recipe
from cloze.errors import RecipeError
from cloze.recipe.load import load_recipe, task_recipe_names
from cloze.runs.finetuning.auxiliary import BERT, masking_of
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto

Start = Callable[[str], Path]
#: Tasks that BERT learns, but for those whose recipes are for other networks.
OTHERS = ("text_to_text", "ulmfit_classification", "siatl_classification", "speechbert_question_answering")
TASKS = [
    name for name in task_recipe_names() if name not in OTHERS and not name.startswith(("gpt_", "lxmert_", "uniter_", "vilbert_"))
]


@pytest.mark.parametrize("task", TASKS)
def test_a_masked_language_model_is_trained_along_with_every_task_as_it_was_before(start: Start, task: str) -> None:
    loaded = load_checkpoint(start("bert"))
    made = recipe_onto(task, loaded, auxiliary="0.5")
    for entry in made.entries.values():
        assert [(o.part.name, o.weight, o.set) for run, o in entry.objectives() if run.view == "auxiliary"] == [
            ("token_prediction", 0.5, "main")
        ]
        before = [(edit.part.name, edit.part.arguments) for edit in load_recipe(loaded.recipe).entries["main"].exercise[-3:]]
        assert [(edit.part.name, edit.part.arguments) for edit in entry.exercise if edit.view == "auxiliary"] == before
    check_recipe(made)


def test_text_is_masked_as_the_checkpoints_own_recipe_does_and_by_berts_where_there_is_none() -> None:
    masked = masking_of(load_recipe("albert-base").canonical())
    assert [name for edit in masked for name in edit] == ["split_words", "mask", "corrupt", "predict"]
    (mask, _, predict) = masking_of(load_recipe("gpt-bert").canonical())
    assert mask["mask"]["unit"] == "partition" and predict["predict"]["shift"] == 1
    for name in ("t5-small", "xlnet-base", "sentence_classification"):
        assert masking_of(load_recipe(name).canonical()) is masking_of(None) is BERT


def test_a_run_trains_both_losses_on_its_own_view(start: Start, tmp_path: Path) -> None:
    out, table = tmp_path / "out", tmp_path / "rows.tsv"
    table.write_text("text\tlabel\n" + "the cat saw the rain\tx\nthe dog saw the night\ty\n" * 4, encoding="utf-8")
    finetune(
        start("bert"), train=[str(table)], dev=[str(table)], out=out, auxiliary="0.5",
        overrides=["training.epochs=1", "task.keep=last"], report=lambda line: None,
    )
    before, after = load_checkpoint(start("bert")), load_checkpoint(out)
    assert set(after.heads) == {"classification", "token_prediction"}
    changed = [
        name for name, tensor in before.heads["token_prediction"].state_dict().items()
        if not torch.equal(tensor, after.heads["token_prediction"].state_dict()[name])
    ]
    assert any(name.endswith("bias") for name in changed)
    lines = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text().splitlines()]
    trained = [line["objectives"] for line in lines if line["event"] == "train"]
    assert trained and all(len(objectives) == 2 for objectives in trained)


@pytest.mark.parametrize(("name", "said"), [
    ("t5-small", "has token_prediction, which reads decoder_hidden"), ("xlnet-base", "has token_prediction, which reads query"),
    ("electra-small", "has none"),
])  # fmt: skip
def test_a_network_that_predicts_no_masked_tokens_has_no_auxiliary(start: Start, name: str, said: str) -> None:
    with pytest.raises(RecipeError, match=f"masked_language_model: needs a head that predicts masked tokens; .* and {said}"):
        recipe_onto("sentence_classification", load_checkpoint(start(name)), auxiliary="0.5")
