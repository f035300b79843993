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
    kind: Annotated[str, typer.Argument(help="geometry, heads, layers, edges, distance or static.")],
    checkpoints: Annotated[list[Path], typer.Argument(help="Run folders or Hugging Face folders.")],
    out: Annotated[Path | None, typer.Option(help="A folder for probe.json and probe.html.")] = None,
    text: Annotated[str | None, typer.Option(help="geometry, heads, static: a file with a sentence per line.")] = None,
    task: Annotated[str | None, typer.Option(
        help="layers: COLUMN=TRAIN,TEST or sense=TRAIN,TEST; edges, distance: TRAIN,TEST; heads of a tuned folder: [NAME=]FILE."
    )] = None,
    steps: Annotated[str | None, typer.Option(help="Saved steps of one run: all, or 100,1000 (see training.keep_steps).")] = None,
    most: Annotated[
        int | None, typer.Option(min=2, help="Read at most this many sentences of each file; default: 500 to 50,000.")
    ] = None,
    least: Annotated[int, typer.Option(min=2, help="geometry: measure words that occur at least so often.")] = 5,
    each: Annotated[bool, typer.Option("--each", help="heads: also close every head alone.")] = False,
    control: Annotated[bool, typer.Option(help="layers, edges: also train on random labels of words.")] = True,
    similarity: Annotated[list[str] | None, typer.Option(help="static: a file with two words and a score per line.")] = None,
    against: Annotated[list[Path] | None, typer.Option(help="static: word vectors to compare with.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of samples and controls.")] = 0,
    length: Annotated[int | None, typer.Option(min=2, help="Cut texts to this many tokens.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Texts per batch.")] = 32,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    with_files: WithFiles = None,
) -> None:
    """Measure what is inside networks, layer by layer, and write a page with figures.

    \b
    geometry  how contextual the vectors of words are
    heads     how important each head is; the loss or accuracy as heads are closed
    layers    labels or senses of words, read from each layer; with a control task
    edges     the relations of words in CoNLL-U, in the same way
    distance  the distances of words in the trees of CoNLL-U
    static    one vector per word: the first component of its occurrences

    Examples: cloze probe geometry BERT GPT2 --text sentences.txt --out DIR; cloze probe heads TUNED --task test.tsv --out DIR;
    cloze probe layers RUN --task upos=train.conllu,test.conllu --steps all --out DIR
    """
    from cloze.errors import UserError, nearest
    from cloze.probes.finding import as_text, plain, subjects
    from cloze.reports.probe import write_finding

    if kind not in KINDS:
        raise UserError(f"unknown probe {kind!r}. {nearest(kind, KINDS)}")
    if out is not None and out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: a file; expected a folder.")
    asked = Asked(
        kind, text, task, most or MOST[kind], least, each, control, similarity or [], against or [], seed, length, batch, device
    )
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

    kind: str
    text: str | None
    task: str | None
    most: int
    least: int
    each: bool
    control: bool
    similarity: list[str]
    against: list[Path]
    seed: int
    length: int | None
    batch: int
    device: str


def _geometry(subjects: list[Subject], asked: Asked) -> Finding:
    from cloze.probes.geometry import Sampled, finding, geometry

    texts = _texts(asked)
    sampled = Sampled(least=asked.least, seed=asked.seed)
    return finding(subjects, {
        one.name: geometry(loaded, texts, sampled, length=asked.length, size=asked.batch)
        for one, loaded in _opened(subjects, asked)
    })  # fmt: skip


def _heads(subjects: list[Subject], asked: Asked) -> Finding:
    from cloze.probes.gates import families
    from cloze.probes.heads import finding, probe_heads
    from cloze.probes.losses import task_examples, text_examples

    texts = _texts(asked, "or, for a fine-tuned folder, --task FILE: labelled text") if asked.task is None else []
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
        if len(subjects) > 1 and sys.stderr.isatty():
            typer.echo(f"{one.name} …", err=True)
        yield one, load_checkpoint(one.folder, asked.device)


def _texts(asked: Asked, otherwise: str = "") -> list[str]:
    """The sentences of --text."""
    from cloze.decoding.texts import gather
    from cloze.errors import UserError

    if asked.text is None:
        said = f", {otherwise}" if otherwise else ""
        raise UserError(f"cloze probe {asked.kind} needs --text FILE: a file with a sentence per line{said}.")
    return [text for text in gather([], asked.text) if text.strip()][: asked.most]


def _parts(asked: Asked, expected: str) -> tuple[str, str, str]:
    """The name and the two files of --task."""
    from cloze.corpus.readers.text_files import require_files
    from cloze.errors import UserError

    name, _, files = (asked.task or "").rpartition("=")
    paths = [path for path in files.split(",") if path]
    if len(paths) != 2 or bool(name) != ("=" in expected):
        given = "nothing" if asked.task is None else repr(asked.task)
        raise UserError(f"cloze probe {asked.kind}: expected --task {expected}, got {given}.")
    require_files(paths)
    return name, paths[0], paths[1]


def _layers(subjects: list[Subject], asked: Asked) -> Finding:
    from cloze.probes.layers import finding, marked_spans, nearest_senses, split_of, tagged_words
    from cloze.probes.linear import probe_linear

    name, *files = _parts(asked, "COLUMN=TRAIN,TEST or sense=TRAIN,TEST")
    if name == "sense":
        train, test = (marked_spans(file, most=asked.most) for file in files)
    else:
        train, test = (tagged_words(file, name, most=asked.most) for file in files)
    found, senses, remarks = {}, {}, []
    for one, loaded in _opened(subjects, asked):
        split, said = split_of(loaded, train, test, length=asked.length, size=asked.batch)
        kind: Any = ("shuffled" if name == "sense" else "kinds") if asked.control else None
        found[one.name] = probe_linear(split, seed=asked.seed, control=kind)
        remarks += [f"{one.name}: {remark}" for remark in said]
        if name == "sense":
            senses[one.name] = nearest_senses(split)
    return finding("layers", name, subjects, found, senses, remarks)


def _edges(subjects: list[Subject], asked: Asked) -> Finding:
    from cloze.probes.layers import finding, related_words, split_of
    from cloze.probes.linear import probe_linear

    _, *files = _parts(asked, "TRAIN,TEST")
    train, test = (related_words(file, most=asked.most) for file in files)
    found, remarks = {}, []
    for one, loaded in _opened(subjects, asked):
        split, said = split_of(loaded, train, test, length=asked.length, size=asked.batch)
        found[one.name] = probe_linear(split, seed=asked.seed, control="kinds" if asked.control else None)
        remarks += [f"{one.name}: {remark}" for remark in said]
    return finding("edges", "relations of words to their heads", subjects, found, remarks=remarks)


def _distance(subjects: list[Subject], asked: Asked) -> Finding:
    from cloze.probes.distance import finding, probe_distance, read_trees

    _, *files = _parts(asked, "TRAIN,TEST")
    train, test = (read_trees(file, most=asked.most) for file in files)
    return finding(subjects, {
        one.name: probe_distance(loaded, train, test, seed=asked.seed, size=asked.batch)
        for one, loaded in _opened(subjects, asked)
    })  # fmt: skip


def _static(subjects: list[Subject], asked: Asked) -> Finding:
    from cloze.errors import UserError
    from cloze.interop.vectors import open_vectors
    from cloze.probes.static import compare, finding, static_vectors
    from cloze.tasks.similarity import read_pairs

    texts = _texts(asked)
    if not asked.similarity:
        raise UserError("cloze probe static needs --similarity FILE: two words and a score per line; repeatable.")
    sets = {Path(file).name.partition(".")[0]: read_pairs(file) for file in asked.similarity}
    others = {path.name: open_vectors(path) for path in asked.against}
    words = {word for pairs in sets.values() for pair in pairs for word in (pair.one, pair.two)}
    return finding(subjects, {
        one.name: compare(static_vectors(loaded, texts, sorted(words), size=asked.batch), sets, others)
        for one, loaded in _opened(subjects, asked)
    })  # fmt: skip


KINDS: dict[str, Callable[[list[Subject], Asked], Finding]] = {
    "geometry": _geometry, "heads": _heads, "layers": _layers, "edges": _edges, "distance": _distance, "static": _static,
}  # fmt: skip
MOST = {"geometry": 5000, "heads": 500, "layers": 1500, "edges": 1500, "distance": 1000, "static": 50_000}
