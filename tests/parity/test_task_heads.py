"""The head that a task puts on a checkpoint of each architecture is the one that transformers' class has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.complete import CheckpointFacts
from cloze.interop import Card, PortableHead, export_folder
from cloze.interop.architecture import ARCHITECTURES
from cloze.interop.classification import AUTO
from cloze.objectives.labels.head_from_checkpoint import TextChoice, TextClassification
from cloze.tasks.tuned_folder import load_tuned

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

#: What transformers' newest version still has, with and without a class for a text's classes.
WITH = [name for name, one in ARCHITECTURES.items() if one.until is None and any(cls.auto == AUTO for cls in one.classes)]
WITHOUT = [name for name, one in ARCHITECTURES.items() if one.until is None and name not in (*WITH, "visual_bert", "lxmert")]
CHOOSING = [name for name in WITH if any(table.role == "chooser" for table in ARCHITECTURES[name].heads)]
TEXTS = ("The cat sleeps on the mat.", "rain")


def tuned(systems: ModuleType, foreign: ModuleType, name: str, asked: Any, out: Path) -> list[str]:
    """Put the head that a checkpoint chooses on it, random, and export both; the remarks."""
    kind = foreign.KINDS[name]
    pieces = systems.tokenizer(kind.tokenizer)
    loaded = load_checkpoint(foreign.save(foreign.model_of(kind, pieces), pieces, out.with_name("start")))
    part, said = asked.resolve(CheckpointFacts.of(loaded).head_facts)
    arguments = {**said, "classes": 3} if part != "choose" else said
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = systems.objective(part, arguments, {"width": loaded.network.width, "clock": loaded.clock})
        for parameter in head.parameters():
            torch.nn.init.normal_(parameter, std=0.3 if parameter.requires_grad else 0.0)
    assert loaded.imported is not None
    model = replace(loaded.imported.model, heads={"class": PortableHead(part, arguments, head.state_dict())})
    return export_folder(
        out, model=model, tokenizer=loaded.tokenizer, reading=loaded.reading, card=Card(name),
        architecture=loaded.imported.architecture,
    )  # fmt: skip


def assert_scored_alike(out: Path, cls: str, **fields: int) -> None:
    """That `cloze predict` scores texts as the class does that transformers opens the folder with."""
    model, told = transformers.AutoModelForSequenceClassification.from_pretrained(out, output_loading_info=True)
    assert type(model).__name__ == cls and not told["missing_keys"]
    learner: Any = load_tuned(load_checkpoint(out))[0]
    for text in TEXTS:
        (row,) = rows = learner.reader.encode([text])
        ids = torch.from_numpy(row.ids[None]).long()
        with torch.inference_mode():
            theirs = model.eval()(ids, **{name: torch.full_like(ids, value) for name, value in fields.items()}).logits
        torch.testing.assert_close(learner.scores(rows), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", WITH)
def test_a_classifier_of_texts_is_opened_by_transformers_with_its_head(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, name: str
) -> None:
    tuned(systems, foreign, name, TextClassification(), tmp_path / "out")
    assert_scored_alike(tmp_path / "out", foreign.KINDS[name].classifier, **({"langs": 0} if name == "xlm" else {}))


@pytest.mark.parametrize("name", WITHOUT)
def test_where_no_class_has_such_a_head_the_export_says_so(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, name: str
) -> None:
    remarks = tuned(systems, foreign, name, TextClassification(), tmp_path / "out")
    assert f"class: transformers' {ARCHITECTURES[name].title} has no such head." in " ".join(remarks)


@pytest.mark.parametrize("name", CHOOSING)
def test_a_chooser_is_in_the_class_that_transformers_has_for_it(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, name: str
) -> None:
    tuned(systems, foreign, name, TextChoice(), tmp_path / "out")
    _, told = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not told["missing_keys"]
