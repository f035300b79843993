"""`cloze probe`: what the layers and heads of checkpoints hold."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cloze.cli.options import Encoding, WithFiles, with_options

if TYPE_CHECKING:
    from cloze.errors import Phrase
    from cloze.probes.finding import Finding, Subject
    from cloze.probes.losses import LossExamples


@dataclass(frozen=True)
class ProbeOptions:
    """What `cloze probe` is asked for."""

    kind: Annotated[str, typer.Argument(help="geometry, heads, layers, edges, distance, static or curvature.")]
    checkpoints: Annotated[list[Path], typer.Argument(help="Run folders or Hugging Face folders.")]
    out: Annotated[Path | None, typer.Option(help="A folder for probe.json and probe.html.")] = None
    text: Annotated[str | None, typer.Option(help="geometry, heads, static, curvature: a file with a sentence per line.")] = None
    task: Annotated[str | None, typer.Option(
        help="layers: COLUMN=TRAIN,TEST or sense=TRAIN,TEST; edges, distance: TRAIN,TEST; heads, curvature of a tuned folder: "
        "[NAME=]FILE."
    )] = None
    steps: Annotated[str | None, typer.Option(help="Saved steps of one run: all, or 100,1000 (see training.keep_steps).")] = None
    most: Annotated[
        int | None, typer.Option(min=2, help="Read at most this many sentences of each file; default: 200 to 50,000.")
    ] = None
    least: Annotated[
        int | None, typer.Option(min=2, help="geometry: measure words that occur at least this often; default: 5.")
    ] = None
    each: Annotated[bool, typer.Option("--each", help="heads: also close each head alone.")] = False
    control: Annotated[bool, typer.Option(help="layers, edges: also train on random labels (control task).")] = True
    similarity: Annotated[Sequence[str], typer.Option(help="static: a file with two words and a score per line.")] = ()
    against: Annotated[Sequence[Path], typer.Option(help="static: word vectors to compare with.")] = ()
    seed: Annotated[int, typer.Option(help="Seed of samples and controls.")] = 0
    length: Annotated[int | None, typer.Option(min=2, help="Cut texts to this many tokens.")] = None
    batch: Annotated[int, typer.Option(min=1, help="Texts per batch.")] = 32
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "cpu"
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    encoding: Encoding = None
    with_files: WithFiles = None

    @property
    def sentences(self) -> int:
        """How many sentences of a file are read."""
        return self.most or KINDS[self.kind].most


@with_options(ProbeOptions)
def command(options: ProbeOptions) -> None:
    """Measure what the layers and heads of networks encode, and write a page with figures.

    \b
    geometry   how contextual the vectors of words are
    heads      how important each head is; the loss or accuracy as heads are closed (their gates set to 0)
    layers     how well each layer predicts labels or senses of words; with a control task
    edges      how well each layer predicts dependency relations (CoNLL-U)
    distance   structural probe (Hewitt & Manning, 2019): how well distances of vectors match those in dependency trees (CoNLL-U)
    static     one vector per word, the first principal component of its occurrences
    curvature  the curvature of the loss in the weights of each layer

    Examples: cloze probe geometry BERT GPT2 --text sentences.txt --out DIR; cloze probe heads TUNED --task test.tsv --out DIR;
    cloze probe layers RUN --task upos=train.conllu,test.conllu --steps all --out DIR
    """
    from cloze.cli.hints import typed
    from cloze.errors import UserError, propose
    from cloze.probes.finding import as_text, plain, subjects
    from cloze.reports.probe import require_place, write_finding

    kind, out = options.kind, options.out
    if kind not in KINDS:
        raise UserError(f"unknown probe {kind!r}. {propose(kind, KINDS)}\n  Usage: cloze probe PROBE CHECKPOINT…")
    if out is not None:
        require_place(out)
    values = {
        "--text": options.text, "--task": options.task, "--least": options.least, "--each": options.each,
        "--no-control": not options.control, "--similarity": options.similarity, "--against": options.against,
    }  # fmt: skip
    if wrong := [option for option, value in values.items() if value and option not in KINDS[kind].takes]:
        raise UserError(f"{kind} does not use {wrong[0]}. Omit it. {kind} uses {', '.join(KINDS[kind].takes)}.")
    finding = KINDS[kind].measure(subjects(options.checkpoints, options.steps), options)
    if options.as_json:
        import json

        typer.echo(json.dumps(plain(finding.data), ensure_ascii=False, indent=1, allow_nan=False))
    else:
        typer.echo(as_text(finding))
    if out is not None:
        page = write_finding(finding, out, command=typed())
        typer.echo(f"Next: open {shlex.quote(str(page))} in a browser", err=True)


def _geometry(subjects: list[Subject], options: ProbeOptions) -> Finding:
    from cloze.probes.geometry import Sampled, finding, geometry

    texts = _texts(options)
    sampled = Sampled(least=options.least or 5, seed=options.seed)
    return finding(subjects, {
        subject.name: geometry(loaded, texts, sampled, length=options.length, size=options.batch)
        for subject, loaded in _opened(subjects, options)
    })  # fmt: skip


def _heads(subjects: list[Subject], options: ProbeOptions) -> Finding:
    from cloze.probes.gates import families
    from cloze.probes.heads import finding, probe_heads

    return finding(subjects, {
        name: probe_heads(examples, seed=options.seed, size=options.batch, single_heads=options.each)
        for name, examples in _examples(subjects, options, families, options.most)
    })  # fmt: skip


def _curvature(subjects: list[Subject], options: ProbeOptions) -> Finding:
    from cloze.probes.curvature import curvature, finding, layer_weights

    return finding(subjects, {
        name: curvature(examples, most=options.sentences, seed=options.seed, size=options.batch)
        for name, examples in _examples(subjects, options, layer_weights)
    })  # fmt: skip


def _examples(
    subjects: list[Subject], options: ProbeOptions, require: Callable[[Any], Any], rows: int | None = None
) -> Iterator[tuple[str, LossExamples]]:
    """The sentences of --text or the rows of --task, at most so many `rows`, with a loss each, for every checkpoint whose network
    `require` allows."""
    from cloze.errors import UserError
    from cloze.probes.losses import task_examples, text_examples

    if options.text is not None and options.task is not None:
        raise UserError(f"{options.kind} measures plain text (--text) or labelled text (--task). Give one of them.")
    texts = _texts(options, "or, for a fine-tuned folder, --task FILE with labelled text") if options.task is None else []
    for subject, loaded in _opened(subjects, options):
        require(loaded.network)
        if options.task is None:
            yield subject.name, text_examples(loaded, texts, seed=options.seed, length=options.length)
        else:
            yield subject.name, task_examples(loaded, options.task, most=rows)


def _opened(subjects: list[Subject], options: ProbeOptions) -> Any:
    """Every checkpoint, opened when its turn comes."""
    from cloze.checkpoint.build import load_checkpoint

    for subject in subjects:
        if len(subjects) > 1 and sys.stderr.isatty():
            typer.echo(f"{subject.name} …", err=True)
        yield subject, load_checkpoint(subject.folder, options.device)


def _texts(options: ProbeOptions, otherwise: str = "") -> list[str]:
    """The sentences of --text."""
    from cloze.decoding.texts import gather
    from cloze.errors import UserError

    if options.text is None:
        alternative = f", {otherwise}" if otherwise else ""
        raise UserError(f"{options.kind} needs --text FILE, a file with a sentence per line{alternative}.")
    return [text for text in gather([], options.text) if text.strip()][: options.sentences]


def _parts(options: ProbeOptions, expected: str) -> tuple[str, str, str]:
    """The name and the two files of --task."""
    from cloze.corpus.readers.text_files import require_files
    from cloze.errors import UserError

    name, _, files = (options.task or "").rpartition("=")
    paths = [path for path in files.split(",") if path]
    if len(paths) != 2 or bool(name) != ("=" in expected):
        argument = "nothing" if options.task is None else repr(options.task)
        raise UserError(f"{options.kind}: expected --task {expected}, got {argument}.")
    require_files(paths)
    return name, paths[0], paths[1]


def _as_task(phrase: Phrase) -> str | None:
    """How a phrase about the columns of labelled words is written: `--task` names that of the label, and no other is chosen."""
    if phrase.parameter.key == "label":
        return phrase.naming(f"--task {phrase.parameter.value}=TRAIN,TEST")
    return "" if phrase.parameter.key in ("text", "columns") else None


def _layers(subjects: list[Subject], options: ProbeOptions) -> Finding:
    from cloze.errors import spelled_by
    from cloze.probes.layers import finding, marked_spans, nearest_senses, split_of, tagged_words
    from cloze.probes.linear import probe_linear

    name, *files = _parts(options, "COLUMN=TRAIN,TEST or sense=TRAIN,TEST")
    if name == "sense":
        train, test = (marked_spans(file, most=options.sentences) for file in files)
    else:
        with spelled_by(_as_task):
            train, test = (tagged_words(file, name, most=options.sentences) for file in files)
    scores, senses, remarks = {}, {}, []
    for subject, loaded in _opened(subjects, options):
        split, notes = split_of(loaded, train, test, length=options.length, size=options.batch)
        kind: Any = ("shuffled" if name == "sense" else "kinds") if options.control else None
        scores[subject.name] = probe_linear(split, seed=options.seed, control=kind)
        remarks += [f"{subject.name}: {remark}" for remark in notes]
        if name == "sense":
            senses[subject.name] = nearest_senses(split)
    return finding("layers", name, subjects, scores, senses, remarks)


def _edges(subjects: list[Subject], options: ProbeOptions) -> Finding:
    from cloze.probes.layers import finding, related_words, split_of
    from cloze.probes.linear import probe_linear

    _, *files = _parts(options, "TRAIN,TEST")
    train, test = (related_words(file, most=options.sentences) for file in files)
    scores, remarks = {}, []
    for subject, loaded in _opened(subjects, options):
        split, notes = split_of(loaded, train, test, length=options.length, size=options.batch)
        scores[subject.name] = probe_linear(split, seed=options.seed, control="kinds" if options.control else None)
        remarks += [f"{subject.name}: {remark}" for remark in notes]
    return finding("edges", "relations of words to their heads", subjects, scores, remarks=remarks)


def _distance(subjects: list[Subject], options: ProbeOptions) -> Finding:
    from cloze.probes.distance import finding, probe_distance, read_trees

    _, *files = _parts(options, "TRAIN,TEST")
    train, test = (read_trees(file, most=options.sentences) for file in files)
    return finding(subjects, {
        subject.name: probe_distance(loaded, train, test, seed=options.seed, length=options.length, size=options.batch)
        for subject, loaded in _opened(subjects, options)
    })  # fmt: skip


def _static(subjects: list[Subject], options: ProbeOptions) -> Finding:
    from cloze.errors import UserError
    from cloze.interop.vectors import open_vectors
    from cloze.probes.static import compare, finding, static_vectors
    from cloze.tasks.intrinsic.similarity import read_pairs

    texts = _texts(options)
    if not options.similarity:
        raise UserError("static needs --similarity FILE: two words and a score per line; repeatable.")
    sets = {Path(file).name.partition(".")[0]: read_pairs(file) for file in options.similarity}
    references = {path.name: open_vectors(path) for path in options.against}
    words = {word for pairs in sets.values() for pair in pairs for word in (pair.one, pair.two)}
    return finding(subjects, {
        subject.name: compare(
            static_vectors(loaded, texts, sorted(words), length=options.length, size=options.batch), sets, references
        )
        for subject, loaded in _opened(subjects, options)
    })  # fmt: skip


class ProbeKind(NamedTuple):
    """A probe: what measures, the options that not every probe has, and how many sentences of a file it reads by default."""

    measure: Callable[[list[Subject], ProbeOptions], Finding]
    takes: tuple[str, ...]
    most: int


KINDS: dict[str, ProbeKind] = {
    "geometry": ProbeKind(_geometry, ("--text", "--least"), 5000),
    "heads": ProbeKind(_heads, ("--text", "--task", "--each"), 500),
    "layers": ProbeKind(_layers, ("--task", "--no-control"), 1500),
    "edges": ProbeKind(_edges, ("--task", "--no-control"), 1500),
    "distance": ProbeKind(_distance, ("--task",), 1000),
    "static": ProbeKind(_static, ("--text", "--similarity", "--against"), 50_000),
    "curvature": ProbeKind(_curvature, ("--text", "--task"), 200),
}
