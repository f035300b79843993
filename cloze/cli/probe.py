"""`cloze probe`: what the layers and heads of checkpoints hold."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.with_files import WithFiles

if TYPE_CHECKING:
    from cloze.probes.finding import Finding, Subject


def command(
    kind: Annotated[str, typer.Argument(help="geometry, or heads.")],
    checkpoints: Annotated[list[Path], typer.Argument(help="Run folders or Hugging Face folders.")],
    out: Annotated[Path | None, typer.Option(help="A folder for probe.json and probe.html.")] = None,
    text: Annotated[str | None, typer.Option(help="geometry, heads: a file with a sentence per line.")] = None,
    task: Annotated[str | None, typer.Option(help="heads of a fine-tuned folder: a labelled file, or NAME=FILE.")] = None,
    steps: Annotated[str | None, typer.Option(help="Saved steps of one run: all, or 100,1000 (see training.keep_steps).")] = None,
    most: Annotated[int, typer.Option(min=2, help="Read at most this many sentences.")] = 5000,
    least: Annotated[int, typer.Option(min=2, help="geometry: measure words that occur at least so often.")] = 5,
    each: Annotated[bool, typer.Option("--each", help="heads: also close every head alone.")] = False,
    seed: Annotated[int, typer.Option(help="The seed of samples and controls.")] = 0,
    length: Annotated[int | None, typer.Option(min=2, help="Cut texts to this many tokens.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Texts per batch.")] = 32,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    with_files: WithFiles = None,
) -> None:
    """Measure what is inside networks, layer by layer, and write a page with figures.

    geometry: how contextual the vectors of words are.
    heads: how important each head is, and the loss or the accuracy as heads are closed, least important first.

    Examples: cloze probe geometry BERT GPT2 --text sentences.txt --out DIR; cloze probe heads TUNED --task test.tsv --out DIR;
    cloze probe heads RUN --steps all --text sentences.txt --out DIR
    """
    from cloze.errors import UserError, nearest
    from cloze.probes.finding import as_text, plain, subjects
    from cloze.reports.probe import write_finding

    if kind not in KINDS:
        raise UserError(f"unknown probe {kind!r}. {nearest(kind, KINDS)}")
    if out is not None and out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: a file; expected a folder.")
    asked = Asked(text, task, most, least, each, seed, length, batch, device)
    found = KINDS[kind](subjects(checkpoints, steps), asked)
    if as_json:
        import json

        typer.echo(json.dumps(plain(found.data), ensure_ascii=False, indent=1, allow_nan=False))
    else:
        typer.echo(as_text(found))
    if out is not None:
        typed = shlex.join(["cloze", *sys.argv[1:]]) if Path(sys.argv[0]).name == "cloze" else ""
        page = write_finding(found, out, command=typed)
        typer.echo(f"Next: open {shlex.quote(str(page))} in a browser", err=True)


@dataclass(frozen=True)
class Asked:
    """The options of a probe."""

    text: str | None
    task: str | None
    most: int
    least: int
    each: bool
    seed: int
    length: int | None
    batch: int
    device: str


def _geometry(subjects: list[Subject], asked: Asked) -> Finding:
    from cloze.probes.geometry import Sampled, finding, geometry

    texts = _texts(asked, "geometry")
    sampled = Sampled(least=asked.least, seed=asked.seed)
    return finding(subjects, {
        one.name: geometry(loaded, texts, sampled, length=asked.length, size=asked.batch)
        for one, loaded in _opened(subjects, asked)
    })  # fmt: skip


def _heads(subjects: list[Subject], asked: Asked) -> Finding:
    from cloze.probes.gates import families
    from cloze.probes.heads import finding, probe_heads
    from cloze.probes.losses import task_examples, text_examples

    texts = _texts(asked, "heads", "or, for a fine-tuned folder, --task FILE: labelled text") if asked.task is None else []
    found = {}
    for one, loaded in _opened(subjects, asked):
        families(loaded.network)  # refuses a network without attention before the texts are read
        if asked.task is None:
            examples = text_examples(loaded, texts, seed=asked.seed, length=asked.length)
        else:
            examples = task_examples(*_labelled(loaded, asked.task))
        found[one.name] = probe_heads(examples, seed=asked.seed, size=asked.batch, each=asked.each)
    return finding(subjects, found)


def _labelled(loaded: Any, task: str) -> tuple[Any, Any]:
    """The learner of a fine-tuned folder, and the examples of a labelled file."""
    from cloze.corpus.readers.text_files import require_files
    from cloze.tasks.result import load_tuned

    name, _, file = task.rpartition("=")
    require_files([file])
    learner = load_tuned(loaded, name=name or None)[0]
    return learner, learner.task.read(file)


def _opened(subjects: list[Subject], asked: Asked) -> Any:
    """Every checkpoint, opened when its turn comes."""
    from cloze.assembly.build import load_checkpoint

    for one in subjects:
        if sys.stderr.isatty():
            typer.echo(f"{one.name} …", err=True)
        yield one, load_checkpoint(one.folder, asked.device)


def _texts(asked: Asked, kind: str, otherwise: str = "") -> list[str]:
    """The sentences of --text."""
    from cloze.decoding.texts import gather
    from cloze.errors import UserError

    if asked.text is None:
        said = f", {otherwise}" if otherwise else ""
        raise UserError(f"cloze probe {kind} needs --text FILE: a file with a sentence per line{said}.")
    return [text for text in gather([], asked.text) if text.strip()][: asked.most]


KINDS: dict[str, Callable[[list[Subject], Asked], Finding]] = {"geometry": _geometry, "heads": _heads}
