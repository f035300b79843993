"""`cloze demo`: the whole story on the documentation that Python carries, in a few minutes on two cores."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.errors import RunError

CORPUS = "python-docs"  # the corpus readers know this name
BLANKS = (
    "Return True if the object is a [MASK], False otherwise.",
    "Raise a [MASK] if the argument is not a string.",
    "If the file does not [MASK], an exception is raised.",
    "The default value is [MASK].",
)
OVERRIDES = ("text.tokenizer.size=6000",)  # a smaller vocabulary splits the names of modules, which distinguish packages
LABELS = 100  # docstrings whose package is known
LENGTH = 64  # most docstrings are shorter, and the start of the others suffices


def command(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("demo-run"),
    budget: Annotated[str, typer.Option(help="The budget of pre-training: 2m, 500steps, 1Mtokens.")] = "2m",
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 1,
) -> None:
    """Pre-train a small encoder on Python's own documentation, fine-tune it with a hundred labels, and compare it.

    Needs no data and no internet connection: the text consists of the standard library's docstrings and help topics. The task is
    to tell which package a docstring comes from; a linear model on n-grams and a random start stand next to the network. Takes
    less than five minutes on two cores.
    """
    from cloze.training.schedule.budget import Budget

    Budget.parse(budget)  # a mistake is an error before anything is written
    started = time.monotonic()
    say("cloze demo: an encoder trained from scratch on the documentation that comes with Python")
    with chapter("1  Text"):
        packages = write_task(out, seed=seed)
    with chapter(f"2  Pre-training: quick, budget {budget}"):
        run = pretrain(out / "quick", budget=budget, seed=seed)
    with chapter("3  Filled masks"):
        fill_blanks(run)
    with chapter("4  Fine-tuning: from which package does a docstring come?"):
        rows, note = compare_starts(run, packages, out / "packages", seed=seed)
    with chapter("5  Report"):
        record_table(run, rows, note)
        say(f"   {write_page(run)}    open it in a browser")
    say(f"\nDone in {time.monotonic() - started:.0f} s. Try next:")
    for line in what_next(run, out):
        say(f"   {line}")


def say(text: str) -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


@contextmanager
def chapter(title: str) -> Iterator[None]:
    """A heading, and below the chapter the seconds it took."""
    say(f"\n{title}")
    started = time.monotonic()
    yield
    say(f"   ({time.monotonic() - started:.1f} s)")


# --- 1 text -----------------------------------------------------------------------------------------------------------


def write_task(out: Path, *, seed: int) -> dict[str, Path]:
    """Say what the text is, and write docstrings as JSON lines: a few with their package as label, those to test on, and all
    others of the packages without labels."""
    from cloze.atomic import require_output
    from cloze.corpus.readers.python_docs import python_docs, python_docs_records

    parts = {part: out / f"packages-{part}.jsonl" for part in ("labelled", "unlabelled", "test")}
    for path in parts.values() if out.is_dir() else ():
        require_output(path, what="docstrings of the demo", holds=_holds_docstrings)
    documents = list(python_docs())
    size = sum(len(document.text.encode()) for document in documents) / 1e6
    say(
        f"   docstrings of the standard library and the language reference: {len(documents):,} documents, {size:.1f} MB"
    )
    records = python_docs_records()
    train = [record for record in records if record.part == "train"]
    chosen = labelled_rows([record.package for record in train], seed=seed)
    rows = {
        "labelled": [_row_of(train[number], labelled=True) for number in chosen],
        "unlabelled": [_row_of(train[number], labelled=False) for number in range(len(train)) if number not in set(chosen)],
        "test": [_row_of(record, labelled=True) for record in records if record.part != "train"],
    }
    say(
        f"   of {len(rows['labelled'])} docstrings the package is known, of {len(rows['unlabelled']):,} it is not; "
        f"{len(rows['test'])} from other modules are for testing"
    )
    out.mkdir(parents=True, exist_ok=True)
    for part, path in parts.items():
        path.write_text("".join(f"{line}\n" for line in rows[part]), encoding="utf-8")
    return parts


def labelled_rows(packages: Sequence[str], *, seed: int) -> list[int]:
    """The numbers of `LABELS` rows, as many of each package."""
    import numpy as np

    draws = np.random.default_rng(seed)
    rows: list[int] = []
    names = sorted(set(packages))
    for name in names:
        same = [number for number, package in enumerate(packages) if package == name]
        rows += [same[index] for index in draws.permutation(len(same))[: LABELS // len(names)]]
    return rows


def _row_of(record: Any, *, labelled: bool) -> str:
    import json

    text = " ".join(record.text.split())
    return json.dumps({"text": text, "label": record.package} if labelled else {"text": text})


def _holds_docstrings(path: Path) -> bool:
    """Whether a file begins as `write_task` writes it."""
    with path.open("rb") as file:
        return file.read(10) == b'{"text": "'


# --- 2 pre-training ---------------------------------------------------------------------------------------------------


def pretrain(out: Path, *, budget: str, seed: int) -> Path:
    """Pre-train; a finished run in the same folder is taken as it is."""
    from cloze.runs.run import pretrain as run

    outcome = run("quick", corpus=[CORPUS], out=out, budget=budget, overrides=OVERRIDES, seed=seed)
    if not outcome.finished:
        raise RunError(f"{out}: {outcome.reason} at step {outcome.step}. Rerun the command; it resumes there.")
    return outcome.folder


# --- 3 filled masks ---------------------------------------------------------------------------------------------------


def fill_blanks(run: Path) -> None:
    """Print what the network puts into a few blanks."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.filling import fill
    from cloze.decoding.reader import Reader, prediction_head

    loaded = load_checkpoint(run)
    for filled in fill(Reader.of(loaded), prediction_head(loaded, verb="fill"), BLANKS, top=4):
        say(f"   {filled.given}")
        for candidates in filled.masks:
            say("      " + " · ".join(f"{c.word} {100 * c.probability:.0f} %" for c in candidates))


# --- 4 fine-tuning ----------------------------------------------------------------------------------------------------


def compare_starts(run: Path, packages: dict[str, Path], out: Path, *, seed: int) -> tuple[list[list[str]], str]:
    """What a linear model on n-grams, a random start and the pre-trained network, kept in `out`, make of the labelled docstrings;
    returns a table and a note under it. The network also learns from docstrings without labels, if scikit-learn is there."""
    from importlib.util import find_spec

    from cloze.checkpoint.build import load_checkpoint
    from cloze.comparison.best.question import BestQuestion, read_rows, write_texts
    from cloze.comparison.best.teaching import STUDENT, teach, write_rows
    from cloze.comparison.best.vectors import vectors_for
    from cloze.tasks.measures.metrics import measure

    question = BestQuestion(
        "sentence_classification", [str(packages["labelled"])], str(packages["test"]), [CORPUS],
        [str(packages["unlabelled"])],
    )
    texts = out.with_name(f"{out.name}-texts.json")
    write_texts(question, texts)
    rows = read_rows(question, texts)
    test: Any = rows.test
    counts = Counter(test.labels)
    most_frequent = max(counts, key=lambda name: counts[name])
    truth = rows.linear.targets(test)
    table = [_row(f"always {most_frequent!r}", measure(truth, truth * 0 + rows.labels.index(most_frequent), len(rows.labels)))]
    plain = write_rows(rows, out.with_name(f"{out.name}-rows"))
    random = _tuned(run, plain, out.with_name(f"{out.name}-random"), seed=seed, from_scratch=True)
    table.append(_row("random start", _metrics(random, rows)))
    if find_spec("sklearn") is None:
        table.append(_row("pre-trained", _metrics(_tuned(run, plain, out, seed=seed), rows)))
        say('   n-grams, and learning from docstrings without labels, need scikit-learn: pip install "cloze-lm[baselines]"')
    else:
        from cloze.runs.finetuning.measure_result import add_entries, add_mixture
        from cloze.tasks.linear.fit import fit_linear
        from cloze.tasks.linear.shares import Shares
        from cloze.tasks.linear.unlabelled import fit_with_texts

        table.append(_row("n-grams", fit_linear(rows.kind, rows.labelled, labels=rows.labels).measure(test)))
        taught = teach(rows, vectors_for(load_checkpoint(run), rows))
        files = write_rows(rows, out.with_name(f"{out.name}-taught"), taught=taught)
        network = _tuned(run, files, out, seed=seed, values=STUDENT)
        table.append(_row("pre-trained", _metrics(network, rows)))
        linear = fit_with_texts(rows.kind, rows.labelled, rows.texts, labels=rows.labels).linear
        add_mixture(out, linear, Shares(0.5, 1.0), learned=[files["dev"]])
        mixed = _metrics(out, rows, mixed=True)
        add_entries(out, test=mixed)
        table.append(_row("pre-trained + n-grams", mixed))
    return table, (
        f"{len(rows.labels)} packages; {len(rows.labelled)} docstrings with labels, {len(rows.texts or ()):,} without; "
        f"{len(test)} to test, from modules that no other part has. The pre-trained network also learns from docstrings without "
        f"labels, as a teacher of n-grams and vectors labels them. Seed {seed}."
    )


def _tuned(
    run: Path, files: Mapping[str, Path], out: Path, *, seed: int, from_scratch: bool = False, values: Sequence[str] = ()
) -> Path:
    """Fine-tune a start, or the same network with random weights."""
    from cloze.runs.finetuning.finetune import finetune

    tuned = finetune(
        run, train=[str(files["train"])], dev=[str(files["dev"])], out=out, overrides=[f"length={LENGTH}", *values],
        seeds=(seed,), from_scratch=from_scratch, report=lambda line: None, baselines=False,
    )
    if not tuned.task_json:
        raise RunError(f"{out}: stopped. Rerun the command; it resumes there.")
    return out


def _metrics(folder: Path, rows: Any, *, mixed: bool = False) -> Mapping[str, Any]:
    """The metrics of a fine-tuned folder on the test rows: of its network, or of what it answers."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.tasks.tuned_folder import load_tuned

    learner, _ = load_tuned(load_checkpoint(folder))
    outputs = learner.network_outputs(rows.test)
    if mixed and learner.mixture is not None:
        outputs = learner.mixture.outputs(rows.test, outputs)
    metrics: Mapping[str, Any] = rows.linear.compute_metrics(rows.linear.per_example(rows.test, outputs))
    return metrics


def _row(name: str, metrics: Mapping[str, Any]) -> list[str]:
    """A table row, printed as it is made."""
    row = [name, f"{100 * metrics['accuracy']:.1f} %", f"{100 * metrics['macro_f1']:.1f} %"]
    say(f"   {row[0]:<24}accuracy {row[1]:>7}   macro-F1 {row[2]:>7}")
    return row


# --- 5 report ---------------------------------------------------------------------------------------------------------


def record_table(run: Path, rows: list[list[str]], note: str) -> None:
    """Write the comparison into the run's log, where the report finds it."""
    import json

    path = run / "cloze" / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    record = {
        "event": "table",
        "step": max(json.loads(line).get("step", 0) for line in lines),
        "title": "From which package does a docstring come?",
        "columns": ["start", "accuracy", "macro-F1"],
        "rows": rows,
        "note": note,
    }
    with path.open("a", encoding="utf-8") as log:
        log.write(json.dumps(record, ensure_ascii=False) + "\n")


def write_page(run: Path) -> Path:
    """The report of the run."""
    from cloze.reports.page import write_report

    return write_report(run)


def what_next(run: Path, out: Path) -> list[str]:
    """Commands that use what the demo made."""
    return [
        f'cloze fill {run} "Return the [MASK] of the list."',
        f"cloze evaluate {out / 'packages'} {out / 'packages-test.jsonl'}",
        f"cloze peek quick --corpus {CORPUS}",
        "cloze diff roberta bert",
        f"cloze pretrain electra-small --size tiny --corpus {CORPUS} --budget 2m --out {out / 'electra'}",
        f"cloze report {run} {out / 'electra'}",
        "cloze pretrain quick --corpus YOUR_TEXT --budget 10m --out my-model",
    ]
