"""Answers a question: runs the cells that are missing, writes the table and the page, and keeps the best model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cloze.atomic import require_new
from cloze.budget.fit_text import sample_text
from cloze.checkpoint.build import load_checkpoint
from cloze.comparison.best.answers import NGRAMS
from cloze.comparison.best.best_page import write_page
from cloze.comparison.best.cells import Systems
from cloze.comparison.best.question import BestQuestion, repeated, require_answerable
from cloze.comparison.best.verdict import CONSTANT, Verdict, as_data, sentences, tuned_name, verdict_of
from cloze.comparison.cell import planned, read_json, write_json
from cloze.comparison.compare import finished, require_own
from cloze.corpus.readers.files import TextFile
from cloze.corpus.readers.not_text import require_apart
from cloze.corpus.stores.build import corpus_files
from cloze.errors import CheckpointError, Say
from cloze.interop.card_results import rename_card
from cloze.jobs import LocalWorkers, Workers
from cloze.runs.finetuning.measure_result import add_mixture
from cloze.runs.text_distance import text_distance
from cloze.tasks.linear.fit import fit_linear
from cloze.tasks.linear.model import LinearModel, load_linear
from cloze.tasks.tuned_folder import TASK_FILE, task_in_folder
from cloze.text.encodings import reading_as
from cloze.training.precision import choose_device

KEPT = "kept"  # in task.json: which system of a comparison it is


def answer(
    question: BestQuestion, out: Path, workers: Workers, *, keep: Path | None = None, command: str = "",
    say: Say = lambda line: None
) -> tuple[Verdict, Path]:
    """The verdict and its page. A cell that is finished is never run again; after Ctrl-C the page says what the finished cells
    say, and `Interrupted` is raised. The model is written into `keep`. Raises a `UserError` before anything is written."""
    require(question, out, workers, keep)
    with reading_as(question.encoding, say):
        systems = Systems(question, out)
        remarks = repeated(systems.rows)
    if systems.rows.texts is None:
        remarks.append(f"no unlabelled texts are used: {systems.rows.why_no_texts}")
    for remark in remarks:
        say(f"note: {remark}")

    def write(cells: Systems) -> tuple[Verdict, Path]:
        verdict = verdict_of(cells)
        write_json(out / "best.json", as_data(verdict))
        return verdict, write_page(verdict, out, command=command)

    verdict, page = finished(systems, workers, write, say=say)
    if keep is not None and verdict.kept is not None:
        keep_model(systems, verdict, keep)
        say(f"{keep}: {verdict.kept}, a Hugging Face folder")
    return verdict, page


def plan_of(question: BestQuestion, out: Path, workers: Workers, *, keep: Path | None = None) -> list[str]:
    """Lines that say how many cells there will be, how many texts are like the rows, and how far the text is from what each model
    has read. Writes nothing; raises as `answer` does."""
    require(question, out, workers, keep)
    with TemporaryDirectory() as folder, reading_as(question.encoding, lambda line: None):
        fresh = Systems(question, out if out.exists() else Path(folder))
        texts = 0 if fresh.rows.texts is None else len(fresh.rows.texts)
        counted = f"{len(fresh.rows.labelled):,} labelled rows, {texts:,} unlabelled texts"
        return [*planned(fresh), counted, *_distances(question)]


def _distances(question: BestQuestion) -> Iterator[str]:
    """Lines on how far the corpus is from what each model has read."""
    sample = sample_text(question.corpus, question.text_format)
    size = sum(TextFile(file).size or 0 for file in corpus_files(question.corpus, question.text_format))
    for model in question.models if sample.strip() else ():
        yield from text_distance(model, sample, text_bytes=size, device=question.device).lines


def require(question: BestQuestion, out: Path, workers: Workers, keep: Path | None) -> None:
    """Raise a `UserError` if the question cannot be answered, or a folder cannot be written."""
    test = [] if question.test is None else [question.test]
    require_apart([*question.corpus, *question.labelled, *question.unlabelled, *test], out)
    require_own(out)
    if keep is not None and keep.resolve() in (out.resolve(), *out.resolve().parents):
        raise CheckpointError(f"--keep {keep}: holds the folder of the comparison, {out}. Choose another folder for the model.")
    if keep is not None and not _is_kept(keep):
        require_new(keep)
    if isinstance(workers, LocalWorkers):
        choose_device(question.device)
    require_answerable(question)


def keep_model(systems: Systems, verdict: Verdict, keep: Path) -> None:
    """Write the network that was fine-tuned with all rows, with the linear model on n-grams next to it and their shares."""
    if verdict.start is None or verdict.shares is None:
        raise CheckpointError(f"{keep}: no model was fine-tuned, so there is none to keep.")
    run = systems.tuned(verdict.start)[-1].folder(systems.out) / "run"
    fresh = keep.with_name(f".{keep.name}.part")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(run, fresh, ignore=shutil.ignore_patterns("checkpoints", "lock"))
    task_json = json.loads((fresh / TASK_FILE).read_text(encoding="utf-8"))
    labels = tuple(task_json.get("labels") or ())
    rows, words = systems.rows, systems.words()
    assert words is not None  # a start was fine-tuned, so n-grams have answered
    linear = load_linear(words.folder(systems.out) / NGRAMS, task_in_folder(fresh), labels=labels)
    if linear is None:
        linear = fit_linear(rows.kind, rows.labelled, labels=labels)
    remarks = [*task_json.get("remarks", []), *sentences(verdict)]
    rename_card(fresh / "README.md", keep.name)
    add_mixture(
        fresh, linear, verdict.shares, learned=[run.parent / "rows" / "dev.jsonl"], mixed=_scores(verdict, verdict.kept),
        remarks=remarks, **{KEPT: verdict.kept}, **_figures(verdict, task_json, linear),
    )
    load_checkpoint(fresh)  # it opens
    if _is_kept(keep):
        shutil.rmtree(keep)
    fresh.rename(keep)  # refuses a folder that has got files meanwhile


def _figures(verdict: Verdict, task_json: Mapping[str, Any], linear: LinearModel) -> dict[str, Any]:
    """What task.json says of a kept model: the scores of the table, in place of those of the run."""
    assert verdict.start is not None  # what is kept was fine-tuned
    ngrams = {part: scores for part in ("dev", "test") if (scores := _scores(verdict, linear.fit.reads, part))}
    always = (task_json.get("baseline") or {}).get("always")
    return {
        "dev": _scores(verdict, tuned_name(verdict.start.name)), "ngrams": {**asdict(linear.fit), **ngrams},
        "dev_rows": "the labelled rows, each answered by a model that had not learned from it (cross-validation)",
        "examples": {**task_json["examples"], "dev": verdict.labelled},
        "base": {**(task_json.get("base") or {}), "name": verdict.start.name},
        **({} if always is None else {"baseline": {"always": always, **_scores(verdict, CONSTANT)}}),
        **({"test": test} if (test := _scores(verdict, verdict.kept, "test")) else {}),
    }


def _scores(verdict: Verdict, system: str | None, part: str = "dev") -> dict[str, float]:
    """The score of a system on labelled rows that it had not seen, or on test rows; empty without one."""
    standing = None if system is None else verdict.standing(system)
    score = None if standing is None else standing.score.value if part == "dev" else standing.test
    return {} if score is None else {verdict.metric: score}


def _is_kept(folder: Path) -> bool:
    """Whether a folder holds a model that a comparison has kept, so that another may take its place."""
    return KEPT in (read_json(folder / TASK_FILE) or {})
