"""`cloze demo`: the whole story on the documentation that Python carries, in a few minutes on two cores."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
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
EPOCHS = 8
LENGTH = 64  # most docstrings are shorter, and the start of the others suffices


def command(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("demo-run"),
    budget: Annotated[str, typer.Option(help="The budget of pre-training: 2m, 500steps, 1Mtokens.")] = "2m",
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 1,
) -> None:
    """Pre-train a small encoder on Python's own documentation, fine-tune it, and compare it with a random start.

    Needs no data and no internet connection: the text consists of the standard library's docstrings and help topics. The task is
    to tell which package a docstring comes from. Takes less than five minutes on two cores.
    """
    from cloze.training.budget import Budget

    Budget.parse(budget)  # a mistake is an error before anything is written
    started = time.monotonic()
    say("cloze demo: an encoder trained from scratch on the documentation that comes with Python")
    with chapter("1  Text"):
        packages = write_task(out)
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


def write_task(out: Path) -> dict[str, Path]:
    """Say what the text is, and write the labelled docstrings, one JSON-lines file per part."""
    import json

    from cloze.corpus.readers.python_docs import python_docs, python_docs_records
    from cloze.whole import require_output

    parts = {part: out / f"packages-{part}.jsonl" for part in ("train", "dev", "test")}
    for path in parts.values() if out.is_dir() else ():
        require_output(path, what="docstrings of the demo", holds=_holds_docstrings)
    documents = list(python_docs())
    size = sum(len(document.text.encode()) for document in documents) / 1e6
    say(
        f"   docstrings of the standard library and the language reference: {len(documents):,} documents, {size:.1f} MB"
    )
    out.mkdir(parents=True, exist_ok=True)
    records = python_docs_records()
    for part, path in parts.items():
        lines = [json.dumps({"text": r.text, "label": r.package}) for r in records if r.part == part]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return parts


def _holds_docstrings(path: Path) -> bool:
    """Whether a file begins as `write_task` writes it."""
    with path.open("rb") as file:
        return file.read(10) == b'{"text": "'


# --- 2 pre-training ---------------------------------------------------------------------------------------------------


def pretrain(out: Path, *, budget: str, seed: int) -> Path:
    """Pre-train; a finished run in the same folder is taken as it is."""
    from cloze.assembly.run import pretrain as run

    outcome = run("quick", corpus=[CORPUS], out=out, budget=budget, overrides=OVERRIDES, seed=seed)
    if not outcome.finished:
        raise RunError(f"{out}: {outcome.reason} at step {outcome.step}. Rerun the command; it resumes there.")
    return outcome.folder


# --- 3 filled masks ---------------------------------------------------------------------------------------------------


def fill_blanks(run: Path) -> None:
    """Print what the network puts into a few blanks."""
    from cloze.assembly.build import load_checkpoint
    from cloze.decoding.filling import fill
    from cloze.decoding.reader import Reader, prediction_head

    loaded = load_checkpoint(run)
    for filled in fill(Reader.of(loaded), prediction_head(loaded, verb="fill"), BLANKS, top=4):
        say(f"   {filled.given}")
        for candidates in filled.masks:
            say("      " + " · ".join(f"{c.word} {100 * c.probability:.0f} %" for c in candidates))


# --- 4 fine-tuning ----------------------------------------------------------------------------------------------------


def compare_starts(run: Path, packages: dict[str, Path], out: Path, *, seed: int) -> tuple[list[list[str]], str]:
    """Fine-tune the pre-trained network, kept in `out`, and a random twin; returns a table and a note under it."""
    from cloze.assembly.build import load_checkpoint
    from cloze.assembly.finetune import finetune
    from cloze.tasks.evaluation import evaluate
    from cloze.tasks.result import load_tuned

    rows: list[list[str]] = []
    values = [f"training.epochs={EPOCHS}", f"length={LENGTH}", "task.patience=0"]
    found: Any = None
    for name, folder in (("random start", out.with_name(f"{out.name}-random")), ("pre-trained", out)):
        tuned = finetune(
            run, train=[str(packages["train"])], dev=[str(packages["dev"])], out=folder, overrides=values, seeds=(seed,),
            from_scratch=folder != out, report=lambda line: None,
        )
        if not tuned.described:
            raise RunError(f"{folder}: stopped. Rerun the command; it resumes there.")
        learner, described = load_tuned(load_checkpoint(folder))
        found = evaluate(learner, learner.task.read(packages["test"]), always=described["usual"])
        if not rows:
            rows.append(_row(f"always {described['usual']!r}", found.baseline))
        rows.append(_row(name, found.metrics))
    examples = described["examples"]
    return rows, (
        f"{len(described['labels'])} packages; {examples['train']:,} docstrings to train on, {examples['dev']:,} to choose the "
        f"epoch, {found.examples:,} to test; no module is in two parts. Both runs: {EPOCHS} epochs, seed {seed}."
    )


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
