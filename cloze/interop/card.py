"""The model card, README.md: front matter for the hub, then what a reader needs to use the model and to trust it."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from torch import Tensor

from cloze.interop.model import PortableModel
from cloze.interop.sentences import sentence_head
from cloze.registry import lookup, made_by, names

if TYPE_CHECKING:
    from cloze.interop.choice import ArchitectureChoice


TRAINING = "## Training"  # the heading before which results are added
MOST_LABELS = 40
CLASSIFYING = ("text-classification", "token-classification")


@dataclass(frozen=True)
class Card:
    """What the card says besides the numbers: the recipe's name and paper, steps taken, notes in plain sentences.

    `data` describes the training text and `results` the quality, both in sentences. `languages` are codes such as `en`, `licence`
    is a name from the Hub such as `mit`. `folder` is the name that the commands use, by default the folder's. `advice` is for the
    person who publishes the folder; `settings` is the file that holds them. `task` is the contents of task.json, for a model of
    one task or several. `base` is the model of the hub that training started from, `ORG/NAME@COMMIT`.
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
    task: Mapping[str, Any] | None = None
    base: str | None = None


def write_card(
    path: Path, card: Card, choice: ArchitectureChoice | list[str], model: PortableModel, vocab_size: int,
    remarks: list[str], *, folder: str, sentences: bool
) -> None:
    """Write README.md. `folder` is the name of the model in the commands; `sentences`: sentence-transformers opens it, too.
    Only the owner of text and weights can choose a licence."""
    folder = re.sub(r"\s+", " ", folder)
    title = card.name if card.task is None else folder
    lines = [*_front(card, choice), "", f"# {_line(title)}", "", _opening(card, choice, model, vocab_size), ""]
    if card.paper:
        lines += [f"Recipe after: {_line(card.paper)}", ""]
    for paragraph in re.split(r"\n\s*\n", card.notes.strip()) if card.notes else ():
        lines += [_line(paragraph), ""]
    lines += [line for task in _tasks(card).values() for line in _answers(task)]
    commands = _commands(card, choice, model, folder)
    lines += ["## Use", "", "```python", *_usage(card, choice, folder), "```", "", "```console", *commands, "```", ""]
    if sentences and (sentence_head(model) is not None or not _predicts(card, choice)):
        lines += ["```python", *_sentences(folder), "```", ""]
    lines += [TRAINING, ""]
    start = "" if card.base is None else f"Training started from {card.base}."
    for text in (start, card.data, card.results):
        lines += [_line(text), ""] if text else []
    lines += [f"All settings are in `{card.settings}`. The network's arguments:", "", *_table(model)]
    if remarks:
        lines += ["", "## What transformers does not see", "", *(f"- {_line(remark)}" for remark in remarks)]
    lines += ["", "## Licence", "", _licence(card), ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def _licence(card: Card) -> str:
    stated = (
        f"{card.licence}." if card.licence
        else "No licence is stated. Choose one before you publish; it depends on the text of the training."
    )
    return f"{stated} {card.advice}".strip()


def _front(card: Card, choice: ArchitectureChoice | list[str]) -> list[str]:
    lines = ["---", *(["language:", *(f"- {_scalar(code)}" for code in card.languages)] if card.languages else [])]
    lines += [f"license: {card.licence}"] if card.licence else []
    lines += [f"base_model: {card.base.partition('@')[0]}"] if card.base else []
    tags = ["cloze", card.name, *([] if isinstance(choice, list) else [choice.architecture.name])]
    lines += ["tags:", *(f"- {json.dumps(tag, ensure_ascii=False)}" for tag in dict.fromkeys(tags))]
    lines.append(f"library_name: {'cloze' if isinstance(choice, list) else 'transformers'}")
    pipeline = _pipeline(card, choice)
    return [*lines, *([f"pipeline_tag: {pipeline}"] if pipeline else []), "---"]


def _scalar(text: str) -> str:
    """A text in YAML, quoted where YAML takes it for something else, such as the code of Norwegian, no."""
    return text if yaml.safe_load(text) == text else json.dumps(text)


def pipeline_of(task: str) -> str | None:
    """The Hub's name of what models of a type of task do; None if it has none, or the type is unknown."""
    task_type = _task_type(task)
    pipeline: str | None = None if task_type is None else task_type.pipeline
    return pipeline


def _task_type(name: str) -> Any:
    """The class of a registered type of task; None if the type is unknown."""
    return made_by(lookup("task", name)) if name in names("task") else None


def _pipeline(card: Card, choice: ArchitectureChoice | list[str]) -> str | None:
    """The Hub's name of what the model does."""
    kinds = {pipeline_of(str(task.get("task"))) for task in _tasks(card).values()}
    of_task = kinds.pop() if len(kinds) == 1 else None
    return of_task or (None if isinstance(choice, list) else choice.cls.pipeline)


def _predicts(card: Card, choice: ArchitectureChoice | list[str]) -> bool:
    """Whether `cloze predict` is what the model is for."""
    return card.task is not None or _pipeline(card, choice) in ("text-classification", "token-classification")


def _tasks(card: Card) -> Mapping[str, Mapping[str, Any]]:
    """The tasks of the model by name; the only one has an empty name."""
    return {} if card.task is None else card.task.get("tasks") or {"": card.task}


def _answers(task: Mapping[str, Any]) -> list[str]:
    """The labels of a task, and how much it reads of a text."""
    labels, length = task.get("labels") or (), task.get("length")
    names = ", ".join(_code(str(label)) for label in labels[:MOST_LABELS])
    more = f" and {len(labels) - MOST_LABELS} more" if len(labels) > MOST_LABELS else ""
    lines = [f"Labels of {_code(str(task.get('task')))}: {names}{more}.", ""] if labels else []
    read = f"It was trained on the first {length} tokens of each text; cloze reads as many, or `--length` of them."
    return lines + ([read, ""] if length else [])


def _opening(card: Card, choice: ArchitectureChoice | list[str], model: PortableModel, vocab_size: int) -> str:
    parameters = sum(tensor.numel() for tensor in _all(model))
    kind = model.part if isinstance(choice, list) else choice.cls.name
    size = f"{kind}, {parameters:,} parameters, {vocab_size:,} pieces"
    trained = f"after {card.step:,} steps of" if card.step else "with the recipe"
    if card.task is not None:
        steps = f" after {card.step:,} steps of {_code(card.name)}" if card.step else ""
        kinds = " and ".join(_code(str(task.get("task"))) for task in _tasks(card).values())
        return f"A model for {kinds} ({size}){steps}, written by cloze."
    return f"A language model ({size}) {trained} {_code(card.name)}, written by cloze."


def _all(model: PortableModel) -> Iterable[Tensor]:
    yield from model.network.values()
    for head in model.heads.values():
        yield from head.state.values()
    yield from model.spare.values()


def _usage(card: Card, choice: ArchitectureChoice | list[str], folder: str) -> list[str]:
    path = json.dumps(folder, ensure_ascii=False)
    if isinstance(choice, list):
        prediction = ["", 'print(model.predict("A text."))'] if _tasks(card).keys() == {""} else []
        return ["# pip install cloze-lm", "import cloze", "", f"model = cloze.load({path})", *prediction]
    if choice.cls.pipeline in CLASSIFYING and choice.architecture.until is None:
        return _classifying(card, choice.cls.pipeline, path)
    until = choice.architecture.until
    old = [] if until is None else [
        f"# Version {until} of transformers is the last with {choice.cls.name}: pip install 'transformers<5'", ""
    ]  # fmt: skip
    return [
        *old,
        f"from transformers import {choice.cls.auto}, AutoTokenizer",
        "",
        f"tokenizer = AutoTokenizer.from_pretrained({path})",
        f"model = {choice.cls.auto}.from_pretrained({path})",
    ]


def _sentences(folder: str) -> list[str]:
    return [
        "from sentence_transformers import SentenceTransformer",
        "",
        f'SentenceTransformer({json.dumps(folder, ensure_ascii=False)}).encode(["A text.", "Another text."])',
    ]


def _classifying(card: Card, pipeline: str, model: str) -> list[str]:
    """How a pipeline of transformers classifies. It reads as much of a text as cloze does."""
    task = next(iter(_tasks(card).values()), {})
    options = ", truncation=True" if pipeline == "text-classification" else ', aggregation_strategy="simple"'
    options += f", max_length={task['length']}" if pipeline == "text-classification" and task.get("length") else ""
    options += ", top_k=None" if task.get("task") == "multi_label" else ""
    pair = (task.get("columns") or {}).get("text_b")
    text = '{"text": "A text.", "text_pair": "Another text."}' if pair else '"A text."'
    return [
        "from transformers import pipeline", "", f'classify = pipeline("{pipeline}", model={model}{options})',
        f"print(classify({text}))",
    ]


def _example(task: Mapping[str, Any]) -> str:
    """What `cloze predict` is given for a task."""
    task_type = _task_type(str(task.get("task")))
    if task_type is not None and not task_type.one_text:
        return "FILE"
    return "$'A text.\\tAnother text.'" if (task.get("columns") or {}).get("text_b") else '"A text."'


def _commands(card: Card, choice: ArchitectureChoice | list[str], model: PortableModel, folder: str) -> list[str]:
    path = shlex.quote(folder)
    if _predicts(card, choice):
        return [
            f"cloze predict {path}{f' --task {shlex.quote(name)}' if name else ''} {_example(task)}"
            for name, task in (_tasks(card) or {"": {}}).items()
        ]
    embed = f'cloze embed {path} "A text." "Another text." --out vectors.npy'
    if model.answers:
        return [f'cloze generate {path} "A text to answer" --beams 4']
    if all(head.kind != "token_prediction" for head in model.heads.values()):
        return [embed]
    if model.order == "left_to_right":
        return [f'cloze generate {path} "Once upon a time"', embed]
    return [f'cloze fill {path} "The capital of France is [MASK]."', embed]


def _table(model: PortableModel) -> list[str]:
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in sorted(model.flat.items()) if value is not None]
    return ["| argument | value |", "|---|---|", *rows]


def _line(text: str) -> str:
    """Text as one line of Markdown that begins neither a heading nor a list, and holds no link."""
    line = _safe(re.sub(r"\s+", " ", text).strip())
    return f"&#{ord(line[0])};{line[1:]}" if re.match(r"[#>+*=~|-]", line) else re.sub(r"^(\d+)([.)])", r"\1&#46;", line)


def _safe(text: str) -> str:
    """Text of a recipe as Markdown that holds no HTML and no link; code between backticks is shown as it was written."""
    spans = re.split(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", text)
    plain, codes = spans[::3], spans[2::3]
    pieces = [_without_links(html.escape(part, quote=False)) for part in plain]
    pieces[1:] = [f"{_code(code.strip())}{part}" for code, part in zip(codes, pieces[1:], strict=True)]
    return "".join(pieces)


def _without_links(text: str) -> str:
    """Brackets as entities, which no backslash before them makes part of a link again."""
    return text.replace("[", "&#91;").replace("]", "&#93;")


def _code(text: str) -> str:
    """A span of code on one line: between backticks, or as HTML if its text contains backticks or looks like a tag."""
    text = re.sub(r"\s+", " ", text).strip()
    if not set(text) & set("`<>&\\\n"):
        return f"`{text}`"
    escaped = _without_links(html.escape(text, quote=False)).replace("`", "&#96;").replace("\\", "&#92;")
    return f"<code>{escaped}</code>"


def _cell(value: object) -> str:
    """A value in a table."""
    return _without_links(html.escape(str(value), quote=False)).replace("|", "&#124;").replace("\n", " ")
