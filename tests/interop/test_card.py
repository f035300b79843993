"""The model card of a recipe by somebody else: its text stays text."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from cloze.interop import Card, PortableHead, export_folder
from cloze.interop.architecture import ARCHITECTURES
from cloze.interop.card import _safe

HOSTILE = (
    "<script>alert(1)</script> `\n<img src=x onerror=alert(1)>\n` \\`<b>` ``<i>`` | ` <svg/onload=x>\n\n# Heading\n"
    "[a](javascript:alert(1)) \\[b\\](javascript:x)\n\n- item\n\n1. item"
)
TASK = {
    "task": "sentence_classification", "columns": {"text": "text", "text_b": None, "label": "label"}, "head": "classification",
    "labels": ["animal", "weather"], "length": 12, "dev": {"accuracy": 0.75, "macro_f1": 0.5}, "test": {"accuracy": 0.625},
    "baseline": {"always": "animal", "accuracy": 0.5}, "base": {"name": "tiny", "hub": "someone/tiny"},
}  # fmt: skip


def front(folder: Path) -> dict[str, Any]:
    """The head of a card."""
    found: dict[str, Any] = yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])
    return found


def classifier(systems: ModuleType, folder: Path, card: Card) -> None:
    """Write a classifier of two classes."""
    made = systems.system("bert")
    arguments = {"set": "label", "classes": 2, "dropout": 0.0, "pool": True}
    given = {"width": 16, "vocab_size": made.tokenizer.size, "table": None, "clock": made.network.clock}
    model = made.model()
    head = systems.objective("relation_prediction", arguments, given)
    model.heads.clear()
    model.heads["classification"] = PortableHead("relation_prediction", arguments, head.state_dict())
    export_folder(
        folder, model=model, tokenizer=made.tokenizer, reading=made.reading, card=card, labels=("animal", "weather")
    )


def test_no_field_of_a_recipe_becomes_html(systems: ModuleType, tmp_path: Path) -> None:
    made = systems.system("bert")
    card = Card(HOSTILE, paper=HOSTILE, notes=HOSTILE, step=1)
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=card)
    text = (tmp_path / "README.md").read_text()
    body = text.split("---\n", 2)[2]
    assert set(re.findall(r"<[^>]*>", body)) == {"<code>", "</code>"}
    assert "](" not in body and "\n# Heading" not in body and "\n- item" not in body and "\n1. item" not in body


def test_text_of_one_line_begins_no_block() -> None:
    from cloze.interop.card import _line

    assert _line("# a\n b") == "&#35; a b" and _line("- a") == "&#45; a" and _line("12. a") == "12&#46; a"
    assert _line("see [1]") == "see &#91;1&#93;"


def test_the_card_of_a_classifier_shows_how_it_predicts(systems: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "moods"
    classifier(systems, folder, Card("sentence_classification", step=3, task=TASK))
    text = (folder / "README.md").read_text()
    assert "\n# moods\n" in text and "Labels of `sentence_classification`: `animal`, `weather`." in text
    assert 'pipeline("text-classification", model="moods", truncation=True, max_length=12)' in text
    assert 'cloze predict moods "A text."' in text and "cloze embed" not in text and "SentenceTransformer" not in text
    assert front(folder) == {
        "tags": ["cloze", "sentence_classification", "bert"], "library_name": "transformers",
        "pipeline_tag": "text-classification",
    }


def test_results_are_in_the_card_once_for_readers_and_for_the_hub(systems: ModuleType, tmp_path: Path) -> None:
    from cloze.interop.card_results import add_results

    folder = tmp_path / "moods"
    classifier(systems, folder, Card("sentence_classification", languages=("no",), task=TASK))
    add_results(folder / "README.md", {**TASK, "dev": {"accuracy": 0.1}})
    add_results(folder / "README.md", TASK)
    text = (folder / "README.md").read_text()
    assert text.count("## Results") == 1 and "Fine-tuned from `tiny`." in text
    assert "| accuracy | 0.7500 | 0.6250 | 0.5000 |\n| macro_f1 | 0.5000 |  |  |" in text
    assert front(folder)["language"] == ["no"]
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard.load(folder / "README.md").data
    assert card.base_model == "someone/tiny" and card.model_name == "moods"
    assert [(one.dataset_type, one.metric_type, one.metric_name, one.metric_value) for one in card.eval_results] == [
        ("dev", "accuracy", "accuracy", 0.75), ("dev", "f1", "macro_f1", 0.5), ("test", "accuracy", "accuracy", 0.625),
    ]


def test_an_architecture_is_tagged_once_and_no_licence_is_made_up(systems: ModuleType, tmp_path: Path) -> None:
    made = systems.system("bert")
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("bert"))
    assert front(tmp_path) == {"tags": ["cloze", "bert"], "library_name": "transformers", "pipeline_tag": "fill-mask"}


def test_every_class_that_writes_or_chooses_has_its_pipeline() -> None:
    pipelines: dict[str, set[str | None]] = {}
    for architecture in ARCHITECTURES.values():
        for cls in architecture.classes:
            pipelines.setdefault(cls.auto, set()).add(cls.pipeline)
    assert pipelines["AutoModelForSeq2SeqLM"] == {"text2text-generation", "translation", "summarization"}
    assert pipelines["AutoModelForCausalLM"] == {"text-generation"}
    assert pipelines["AutoModelForMultipleChoice"] == {"multiple-choice"}


def test_a_model_that_cloze_alone_opens_says_what_to_install() -> None:
    from cloze.interop.card import _usage

    lines = _usage(Card("my-network"), ["AutoModel"], "published")
    assert lines[:2] == ["# pip install cloze-lm", "import cloze"] and 'model = cloze.load("published")' in lines


def test_code_in_notes_is_shown_as_written() -> None:
    assert _safe("ends with `</s>`, as `fairseq` does") == "ends with <code>&lt;/s&gt;</code>, as `fairseq` does"
    assert _safe("a < b & c") == "a &lt; b &amp; c"
