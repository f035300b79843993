"""The work of cells: what a system answers to labelled rows that it has not seen, to test rows, and to texts without labels."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from cloze.checkpoint.build import load_checkpoint
from cloze.comparison.best.question import BestQuestion, QuestionRows, read_rows
from cloze.comparison.best.teaching import STUDENT, shares_of, teach, write_rows
from cloze.comparison.best.vectors import LABELLED, scaling_of, vectors_for, vectors_of
from cloze.runs.finetuning.finetune import run_finetuning
from cloze.runs.options import FinetuneOptions
from cloze.tasks.linear.fit import FEWEST, FOLDS, fit_linear, fold_outputs, groups_of
from cloze.tasks.linear.linear_task import Outputs
from cloze.tasks.linear.unlabelled import fit_with_texts
from cloze.tasks.linear.vectors import fit_vectors
from cloze.tasks.mixture import pooled
from cloze.tasks.task import selected
from cloze.tasks.tuned_folder import load_tuned

OUTPUTS, VECTORS = "outputs.safetensors", "vectors.safetensors"  # in the folder of a cell
HELD, TEST = "held", "test"  # arrays of outputs
NGRAMS = "ngrams"  # the folder of a linear model in that of a cell
_CURVE = {"a quarter": 0.25, "half": 0.5}  # of the labelled rows
_DRAWS = 3


def question_of(request: Mapping[str, Any]) -> BestQuestion:
    """The question in the request of a cell."""
    values = dict(request["question"])
    return BestQuestion(
        **{**values, **{name: [Path(path) for path in values.get(name, ())] for name in ("models", "with_files")}}
    )


def rows_of(request: Mapping[str, Any]) -> QuestionRows:
    """The rows in the request of a cell."""
    return read_rows(question_of(request), Path(request["texts"]))


def answer_by_ngrams(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """The linear model on n-grams."""
    rows, began = rows_of(request), time.perf_counter()
    linear = fit_linear(rows.kind, rows.labelled, labels=rows.labels)
    held = fold_outputs(rows.kind, rows.labelled, labels=rows.labels)
    _write(folder, held, None if rows.test is None else linear.outputs(rows.test))
    return {"seconds": time.perf_counter() - began, "fit": asdict(linear.fit)}


def answer_by_texts(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """The linear model on n-grams that also learns from texts without labels; kept in the folder."""
    rows, began = rows_of(request), time.perf_counter()
    learned = fit_with_texts(rows.kind, rows.labelled, rows.texts, labels=rows.labels)
    _write(folder, learned.held, None if rows.test is None else learned.linear.outputs(rows.test))
    learned.linear.save(folder / NGRAMS)
    return {"seconds": time.perf_counter() - began, "fit": asdict(learned.linear.fit)}


def answer_by_network(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """A linear model on the vectors of a frozen network. The vectors are kept in the folder."""
    rows, began = rows_of(request), time.perf_counter()
    loaded = load_checkpoint(request["start"], request["question"]["device"])
    vectors = vectors_for(loaded, rows)
    if rows.test is not None:
        vectors[TEST] = vectors_of(rows.linear, loaded, rows.test)
    save_file(vectors, folder / VECTORS)
    model, held = fit_vectors(rows.linear, rows.labelled, vectors[LABELLED], scaling_of(vectors))
    _write(folder, held, model.outputs(vectors[TEST], rows.test) if TEST in vectors else None)
    return {"seconds": time.perf_counter() - began, "width": int(vectors[LABELLED].shape[1])}


def answer_by_fasttext(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """fastText's classifier, trained without each fold in turn, and with all rows."""
    rows, began = rows_of(request), time.perf_counter()
    held: Any = None
    for number in (*range(FOLDS), None):
        if number is None and rows.test is None:
            break
        files = write_rows(rows, folder / "rows", None if number is None else rows.folds != number)
        run = folder / f"run-{number}"
        run_finetuning(replace(_tuning(request, files), checkpoint="fasttext-supervised", out=run, device="cpu"))
        learner, _ = load_tuned(load_checkpoint(run))
        examples = rows.labelled if number is not None else rows.test
        outputs = aligned(learner.network_outputs(examples), learner.labels, rows.labels)
        held = _filled(held, outputs, rows.folds == number) if number is not None else held
    _write(folder, held, outputs if rows.test is not None else None)
    return {"seconds": time.perf_counter() - began}


def tune(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """A network fine-tuned without a fold of the labelled rows, or with all of them (`fold` None); where there are texts without
    labels, also on what a teacher that has not seen the fold either says of them (`teaching.py`)."""
    rows, began = rows_of(request), time.perf_counter()
    number = request["fold"]
    inside = np.zeros(len(rows.labelled), bool) if number is None else rows.folds == number
    taught: list[tuple[str, str]] = []
    if rows.texts is not None:
        vectors = load_file(Path(request["vectors"]) / VECTORS)
        taught = teach(rows, vectors, ~inside)
    files = write_rows(rows, folder / "rows", ~inside, taught)
    run_finetuning(replace(_tuning(request, files, taught=bool(taught)), out=folder / "run"))
    learner, task_json = load_tuned(load_checkpoint(folder / "run", request["question"]["device"]))

    def outputs_of(examples: Any) -> Any:
        return aligned(learner.network_outputs(examples), learner.labels, rows.labels)

    held = outputs_of(selected(rows.labelled, np.flatnonzero(inside).tolist())) if inside.any() else None
    _write(folder, held, outputs_of(rows.test) if number is None and rows.test is not None else None)
    return {"seconds": time.perf_counter() - began, "texts": len(taught), "dev": task_json.get("dev")}


def learn_from_parts(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """The learning curve: the metric of the simple systems after a quarter and after half of the labelled rows, measured on the
    others, in the mean over some draws."""
    rows, began = rows_of(request), time.perf_counter()
    vectors = load_file(Path(request["vectors"]) / VECTORS)
    scores: dict[str, dict[str, list[float]]] = {}
    counts = {part: int(_drawn(rows, share, 0).sum()) for part, share in _CURVE.items()}
    enough = [part for part, count in counts.items() if count >= FEWEST and len(rows.labelled) - count >= FEWEST // 2]
    parts = {part: _CURVE[part] for part in enough}
    for part, share in parts.items():
        for draw in range(_DRAWS):
            learned = _drawn(rows, share, draw)
            train, test_rows = (selected(rows.labelled, np.flatnonzero(chosen).tolist()) for chosen in (learned, ~learned))
            inside = np.repeat(learned, rows.linear.decisions(rows.labelled))
            linear = fit_linear(rows.kind, train, labels=rows.labels)
            model, held = fit_vectors(rows.linear, train, vectors[LABELLED][inside], scaling_of(vectors))
            if rows.texts is None:
                words, held_words = linear, fold_outputs(rows.kind, train, labels=rows.labels)
            else:
                words, held_words = fit_with_texts(rows.kind, train, rows.texts, labels=rows.labels)
            shares = shares_of(rows, train, held, held_words)
            mixed = pooled(rows.linear, model.outputs(vectors[LABELLED][~inside], test_rows), words.outputs(test_rows), *shares)
            for system, outputs in (("n-grams", linear.outputs(test_rows)), ("mixture", mixed)):
                metrics = rows.linear.compute_metrics(rows.linear.per_example(test_rows, outputs))
                scores.setdefault(system, {}).setdefault(part, []).append(metrics[rows.metric])
    return {
        "seconds": time.perf_counter() - began,
        "curve": {
            system: {part: float(np.mean(values)) for part, values in of_parts.items()} for system, of_parts in scores.items()
        },
        "rows": {part: counts[part] for part in parts},
    }


def _drawn(rows: QuestionRows, share: float, draw: int) -> NDArray[np.bool_]:
    """A share of the labelled rows, the same share of each class where there are classes."""
    order = np.random.default_rng([draw, 46]).permutation(len(rows.labelled))
    order = np.argsort(np.argsort(order)[groups_of(rows.linear, rows.labelled)], kind="stable")  # groups stay together
    classes = np.zeros(len(order), np.int64) if rows.classes is None else rows.classes
    chosen = np.zeros(len(order), bool)
    for number in np.unique(classes):
        members = order[classes[order] == number]
        chosen[members[: max(2, round(share * len(members)))]] = True
    return chosen


def _tuning(request: Mapping[str, Any], files: Mapping[str, Path], *, taught: bool = False) -> FinetuneOptions:
    question = question_of(request)
    values = STUDENT if taught else ()
    return FinetuneOptions(
        request.get("start", ""), train=str(files["train"]), dev=str(files["dev"]), task=question.type, device=question.device,
        overrides=[*values, *question.tuning], baselines=False, with_files=question.with_files, report=print,
    )


def aligned(outputs: Any, names: Sequence[str] | None, labels: Sequence[str]) -> Any:
    """Outputs with a column for each of `names` in the order of `labels`; a label that a network has never seen has no
    probability. Other outputs are left as they are; those of each example are aligned alike."""
    if names is None or tuple(names) == tuple(labels):
        return outputs
    if isinstance(outputs, list):
        return [aligned(part, names, labels) for part in outputs]
    columns = np.zeros((len(outputs), len(labels)), outputs.dtype)
    columns[:, [labels.index(name) for name in names]] = outputs
    return columns


def _filled(held: Any, outputs: Any, inside: NDArray[np.bool_]) -> Any:
    """The outputs of all rows with those `inside` a fold filled in."""
    filled = np.zeros_like(outputs) if held is None else held
    filled[inside] = outputs[inside]
    return filled


def _write(folder: Path, held: Any, test: Any) -> None:
    arrays = {name: outputs for name, outputs in ((HELD, held), (TEST, test)) if outputs is not None}
    flat = {name: np.concatenate(outputs) if isinstance(outputs, list) else outputs for name, outputs in arrays.items()}
    save_file({name: np.ascontiguousarray(outputs) for name, outputs in flat.items()}, folder / OUTPUTS)


def outputs_in(folder: Path, rows: QuestionRows, fold: int | None = None) -> dict[str, Outputs]:
    """The outputs that a cell has written: of labelled rows that it has not seen, those of a `fold` if it was trained on the
    others, and of test rows."""
    labelled = rows.labelled
    if fold is not None:
        labelled = selected(labelled, np.flatnonzero(rows.folds == fold).tolist())
    return {
        name: rows.linear.by_example(values, {HELD: labelled, TEST: rows.test}[name])
        for name, values in load_file(folder / OUTPUTS).items()
    }
