"""The model card, README.md: front matter for the hub, then what a reader needs to use the model and to trust it."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from cloze.interop.model import Model
from cloze.interop.sentences import gives_sentences

if TYPE_CHECKING:
    from cloze.interop.choice import Choice


@dataclass(frozen=True)
class Card:
    """What the card says besides the numbers: the recipe's name and paper, steps taken, notes in plain sentences.

    `data` describes the training text and `results` the quality, both in sentences. `languages` are codes such as `en`, `licence`
    is a name from the Hub such as `mit`. `folder` is the name that the commands use, by default the folder's. `advice` is for the
    person who publishes the folder; `settings` is the file that holds them.
    """

    name: str
    step: int = 0
    paper: str | None = None
    notes: str = ""
    data: str = ""
    results: str = ""
    languages: tuple[str, ...] = ()
    licence: str | None = None
    folder: str = ""
    advice: str = ""
    settings: str = "cloze/recipe.yaml"


def write_card(
    path: Path, card: Card, choice: Choice | list[str], model: Model, vocab_size: int, remarks: list[str], *, folder: str
) -> None:
    """Write README.md; `folder` is the name of the model in the commands. Only the owner of text and weights can choose a
    licence."""
    folder = re.sub(r"\s+", " ", folder)
    lines = [*_front(card, choice), "", f"# {_safe(card.name)}", "", _opening(card, choice, model, vocab_size), ""]
    if card.paper:
        lines += [f"Recipe after: {_safe(card.paper)}", ""]
    if card.notes:
        lines += [_safe(card.notes.strip()), ""]
    lines += ["## Use", "", "```python", *_usage(choice, folder), "```", "", "```console", *_commands(model, folder), "```", ""]
    if gives_sentences(model, choice):
        lines += ["```python", *_sentences(folder), "```", ""]
    lines += ["## Training", ""]
    for text in (card.data, card.results):
        lines += [_safe(text), ""] if text else []
    lines += [f"All settings are in `{card.settings}`. The network's arguments:", "", *_table(model)]
    if remarks:
        lines += ["", "## What transformers does not see", "", *(f"- {_safe(remark)}" for remark in remarks)]
    lines += ["", "## Licence", "", _licence(card), ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def _licence(card: Card) -> str:
    stated = (
        f"{card.licence}." if card.licence
        else "No licence is stated. Choose one before you publish; it depends on the text of the training."
    )
    return f"{stated} {card.advice}".strip()


def _front(card: Card, choice: Choice | list[str]) -> list[str]:
    lines = ["---", *(["language:", *(f"- {code}" for code in card.languages)] if card.languages else [])]
    lines += [f"license: {card.licence or 'unknown'}", "tags:", "- cloze", f"- {json.dumps(card.name, ensure_ascii=False)}"]
    if not isinstance(choice, list):
        lines += [f"- {choice.architecture.name}", "library_name: transformers"]
        if choice.cls.pipeline:
            lines.append(f"pipeline_tag: {choice.cls.pipeline}")
    else:
        lines.append("library_name: cloze")
    return [*lines, "---"]


def _opening(card: Card, choice: Choice | list[str], model: Model, vocab_size: int) -> str:
    parameters = sum(tensor.numel() for tensor in _all(model))
    kind = model.part if isinstance(choice, list) else choice.cls.name
    size = f"{kind}, {parameters:,} parameters, {vocab_size:,} pieces"
    trained = f"after {card.step:,} steps of" if card.step else "with the recipe"
    return f"A language model ({size}) {trained} {_code(card.name)}, written by cloze."


def _all(model: Model) -> Iterable[Tensor]:
    yield from model.network.values()
    for head in model.heads.values():
        yield from head.state.values()
    yield from model.spare.values()


def _usage(choice: Choice | list[str], folder: str) -> list[str]:
    place = json.dumps(folder, ensure_ascii=False)
    if isinstance(choice, list):
        return ["import cloze", "", f"model = cloze.load({place})"]
    until = choice.architecture.until
    old = [] if until is None else [
        f"# Version {until} of transformers is the last with {choice.cls.name}: pip install 'transformers<5'", ""
    ]  # fmt: skip
    return [
        *old,
        f"from transformers import {choice.cls.auto}, AutoTokenizer",
        "",
        f"tokenizer = AutoTokenizer.from_pretrained({place})",
        f"model = {choice.cls.auto}.from_pretrained({place})",
    ]


def _sentences(folder: str) -> list[str]:
    return [
        "from sentence_transformers import SentenceTransformer",
        "",
        f'SentenceTransformer({json.dumps(folder, ensure_ascii=False)}).encode(["A text.", "Another text."])',
    ]


def _commands(model: Model, folder: str) -> list[str]:
    place = shlex.quote(folder)
    embed = f'cloze embed {place} "A text." "Another text." --out vectors.npy'
    if model.answers:
        return [f'cloze generate {place} "A text to answer" --beams 4']
    if all(head.kind != "token_prediction" for head in model.heads.values()):
        return [embed]
    if model.order == "left_to_right":
        return [f'cloze generate {place} "Once upon a time"', embed]
    return [f'cloze fill {place} "The capital of France is [MASK]."', embed]


def _table(model: Model) -> list[str]:
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in sorted(model.flat.items()) if value is not None]
    return ["| argument | value |", "|---|---|", *rows]


def _safe(text: str) -> str:
    """Text of a recipe as Markdown that holds no HTML of its own; code between backticks is shown as it was written."""
    spans = re.split(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", text)
    plain, codes = spans[::3], spans[2::3]
    made = [html.escape(part, quote=False) for part in plain]
    made[1:] = [f"{_code(code.strip())}{part}" for code, part in zip(codes, made[1:], strict=True)]
    return "".join(made)


def _code(text: str) -> str:
    """A span of code: between backticks, or as HTML if its text contains backticks or looks like a tag."""
    if not set(text) & set("`<>&\\\n"):
        return f"`{text}`"
    escaped = html.escape(text, quote=False).replace("`", "&#96;")
    return f"<code>{escaped}</code>"


def _cell(value: object) -> str:
    """A value in a table."""
    return html.escape(str(value), quote=False).replace("|", "\\|").replace("\n", " ")
