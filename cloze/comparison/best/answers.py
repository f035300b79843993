"""The work of cells: what a system answers to labelled rows that it has not seen, to test rows, and to texts without labels."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from cloze.assembly.assignment import Assignment
from cloze.assembly.build import Loaded, load_checkpoint
from cloze.assembly.finetune import learn
from cloze.comparison.best.question import Question, Rows, read_rows
from cloze.decoding.embedding import embed, length_of, sentence_head
from cloze.decoding.reader import Reader
from cloze.tasks.linear.fit import FOLDS, fit_linear, fold_numbers, fold_outputs
from cloze.tasks.linear.shares import Shares, choose_shares
from cloze.tasks.linear.task import Outputs
from cloze.tasks.linear.unlabelled import fit_with_texts
from cloze.tasks.linear.vectors import Scaling, Vectors, fit_vectors
from cloze.tasks.mixture import pooled
from cloze.tasks.result import load_tuned
from cloze.tasks.task import selected

OUTPUTS, VECTORS = "outputs.safetensors", "vectors.safetensors"  # in the folder of a cell
HELD, TEST = "held", "test"  # arrays of outputs
LABELLED, WITHOUT = "labelled", "without"  # arrays of vectors
NGRAMS = "ngrams"  # the folder of a linear model in that of a cell
_TAUGHT = 4_000  # texts without labels that a student learns from, at most
_EPOCHS = 2  # of a student, which reads each of its texts so often
_CURVE = {"a quarter": 0.25, "half": 0.5}  # of the labelled rows
_DRAWS = 3


def question_of(request: Mapping[str, Any]) -> Question:
    """The question in the request of a cell."""
    values = dict(request["question"])
    return Question(**{**values, "models": [Path(model) for model in values["models"]]})


def rows_of(request: Mapping[str, Any]) -> Rows:
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
    vectors = {LABELLED: vectors_of(loaded, rows.labelled)}
    if rows.test is not None:
        vectors[TEST] = vectors_of(loaded, rows.test)
    if rows.texts is not None:
        vectors[WITHOUT] = vectors_of(loaded, selected(rows.texts, range(min(_TAUGHT, len(rows.texts)))))
    save_file(vectors, folder / VECTORS)
    model, held = fit_vectors(rows.linear, rows.labelled, vectors[LABELLED], scaling_of(vectors))
    _write(folder, held, model.outputs(vectors[TEST]) if TEST in vectors else None)
    return {"seconds": time.perf_counter() - began, "width": int(vectors[LABELLED].shape[1])}


def vectors_of(loaded: Loaded, examples: Any) -> Vectors:
    """The vectors (N, W) of examples: those that a sentence encoder was trained to give, else the means of the states of the
    middle layer and of the top layer, one after the other."""
    reader, head = Reader.of(loaded), sentence_head(loaded)
    framed = reader.encode(examples.texts, examples.others, max_length=length_of(loaded))
    network: Any = loaded.network
    depth = len(network.layers) if head is None and "layers" in network.gives and not network.of_words else 0
    chosen = [depth // 2, -1] if depth > 1 else [-1]
    return np.concatenate([embed(reader, framed, layer=layer, head=head) for layer in chosen], axis=1)


def scaling_of(vectors: Mapping[str, Vectors]) -> Scaling:
    """The scaling of the vectors of labelled rows and of texts without labels."""
    return Scaling.of(np.concatenate([vectors[name] for name in (LABELLED, WITHOUT) if name in vectors]))


def answer_by_fasttext(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """fastText's classifier, trained without each fold in turn, and with all rows."""
    rows, began = rows_of(request), time.perf_counter()
    fold = fold_numbers(len(rows.labelled))
    held: Any = None
    for number in (*range(FOLDS), None):
        if number is None and rows.test is None:
            break
        files = _divided(rows, folder / "rows", None if number is None else fold != number)
        run = folder / f"run-{number}"
        learn("fasttext-supervised", _assignment(request, files), out=run, device="cpu", report=print)
        learner, _ = load_tuned(load_checkpoint(run))
        names = list(learner.labels or ())
        order = [names.index(label) for label in rows.labels]
        outputs = learner.outputs(rows.labelled if number is not None else rows.test)[:, order]
        held = _filled(held, outputs, fold == number) if number is not None else held
    _write(folder, held, outputs if rows.test is not None else None)
    return {"seconds": time.perf_counter() - began}


def tune(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """A network fine-tuned without a fold of the labelled rows, or with all of them (`fold` None).

    Where there are texts without labels, the network learns from them, too: from the answers of its teacher, which is the linear
    model on n-grams mixed with that on the vectors of the frozen network. This is self-training: neither has seen the fold.
    """
    rows, began = rows_of(request), time.perf_counter()
    number, fold = request["fold"], fold_numbers(len(rows.labelled))
    inside = np.zeros(len(fold), bool) if number is None else fold == number
    taught: list[tuple[str, str]] = []
    if rows.texts is not None:
        vectors = load_file(Path(request["vectors"]) / VECTORS)
        taught = _teach(rows, vectors, ~inside)
    files = _divided(rows, folder / "rows", ~inside, taught)
    learn(
        request["start"], _assignment(request, files, taught=bool(taught)), out=folder / "run",
        device=request["question"]["device"], report=print,
    )
    learner, described = load_tuned(load_checkpoint(folder / "run", request["question"]["device"]))
    held = learner.outputs(selected(rows.labelled, np.flatnonzero(inside).tolist())) if inside.any() else None
    _write(folder, held, learner.outputs(rows.test) if number is None and rows.test is not None else None)
    return {"seconds": time.perf_counter() - began, "texts": len(taught), "dev": described.get("dev")}


def _teach(rows: Rows, vectors: Mapping[str, Vectors], learned: NDArray[np.bool_]) -> list[tuple[str, str]]:
    """Texts without labels, with the answers of a teacher that has `learned` some of the labelled rows (N,)."""
    train = selected(rows.labelled, np.flatnonzero(learned).tolist())
    words = fit_with_texts(rows.kind, train, rows.texts, labels=rows.labels)
    model, held = fit_vectors(rows.linear, train, vectors[LABELLED][learned], scaling_of(vectors))
    shares = shares_of(rows, train, held, words.held)
    texts = selected(rows.texts, range(len(vectors[WITHOUT])))
    answers = pooled(rows.linear, model.outputs(vectors[WITHOUT]), words.linear.outputs(texts), *shares)
    return [(text, rows.labels[number]) for text, number in zip(texts.texts, answers.argmax(1), strict=True)]


def shares_of(rows: Rows, examples: Any, first: Outputs, second: Outputs) -> Shares:
    """How two systems are mixed best, by their answers to examples that they have not seen."""
    task = rows.linear
    return choose_shares(
        lambda share, sharp: task.loss(examples, pooled(task, first, second, share, sharp)), len(examples),
        sharpens=task.estimator.sharpens,
    )


def learn_from_parts(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """The learning curve: the metric of the simple systems after a quarter and after half of the labelled rows, measured on the
    others, in the mean over some draws."""
    rows, began = rows_of(request), time.perf_counter()
    vectors = load_file(Path(request["vectors"]) / VECTORS)
    scores: dict[str, dict[str, list[float]]] = {}
    for part, share in _CURVE.items():
        for draw in range(_DRAWS):
            learned = _drawn(rows, share, draw)
            train, others = (selected(rows.labelled, np.flatnonzero(chosen).tolist()) for chosen in (learned, ~learned))
            linear = fit_linear(rows.kind, train, labels=rows.labels)
            model, held = fit_vectors(rows.linear, train, vectors[LABELLED][learned], scaling_of(vectors))
            known = fold_outputs(rows.kind, train, labels=rows.labels)
            if rows.texts is not None:
                learned_from = fit_with_texts(rows.kind, train, rows.texts, labels=rows.labels)
                best, known = learned_from.linear, learned_from.held
            else:
                best = linear
            shares = shares_of(rows, train, held, known)
            mixed = pooled(rows.linear, model.outputs(vectors[LABELLED][~learned]), best.outputs(others), *shares)
            for system, outputs in (("n-grams", linear.outputs(others)), ("mixture", mixed)):
                metrics = rows.linear.metrics(rows.linear.judged(others, outputs))
                scores.setdefault(system, {}).setdefault(part, []).append(metrics[rows.metric])
    return {
        "seconds": time.perf_counter() - began,
        "curve": {system: {part: float(np.mean(values)) for part, values in parts.items()} for system, parts in scores.items()},
        "rows": {part: int(_drawn(rows, share, 0).sum()) for part, share in _CURVE.items()},
    }


def _drawn(rows: Rows, share: float, draw: int) -> NDArray[np.bool_]:
    """A share of the labelled rows, the same share of each class where there are classes."""
    order = np.random.default_rng([draw, 46]).permutation(len(rows.labelled))
    answers = np.array([json.dumps(answer) for answer in rows.labelled.known()]) if rows.labels else np.zeros(len(order), str)
    chosen = np.zeros(len(order), bool)
    for answer in np.unique(answers):
        own = order[answers[order] == answer]
        chosen[own[: max(2, round(share * len(own)))]] = True
    return chosen


def _divided(
    rows: Rows, folder: Path, learned: NDArray[np.bool_] | None, taught: Sequence[tuple[str, str]] = ()
) -> dict[str, Path]:
    """Files of rows to train on and of dev rows, a fifth of those that are `learned` (N,); all of them without it."""
    numbers = np.arange(len(rows.labelled)) if learned is None else np.flatnonzero(learned)
    held = fold_numbers(len(numbers)) == 0
    parts = {"train": selected(rows.labelled, numbers[~held].tolist()), "dev": selected(rows.labelled, numbers[held].tolist())}
    folder.mkdir(parents=True, exist_ok=True)
    paths = {part: folder / f"{part}.jsonl" for part in parts}
    for part, examples in parts.items():
        lines = [json.dumps(_record(rows.kind, texts, answer), ensure_ascii=False)
                 for texts, answer in zip(examples.rows(), examples.known(), strict=True)]  # fmt: skip
        lines += [json.dumps(_record(rows.kind, (text,), label), ensure_ascii=False) for text, label in taught if part == "train"]
        paths[part].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def _record(kind: Any, texts: Sequence[str], answer: Any) -> dict[str, Any]:
    """A row of a task as a JSON object."""
    second = {} if len(texts) == 1 else {kind.text_b: texts[1]}
    return {kind.text: texts[0], **second, kind.label: answer}


def _assignment(request: Mapping[str, Any], files: Mapping[str, Path], *, taught: bool = False) -> Assignment:
    question = question_of(request)
    values = [f"training.epochs={_EPOCHS}", "task.patience=0"] if taught else []
    return Assignment(
        question.type, [str(files["train"])], [str(files["dev"])], overrides=[*values, *question.tuning], baselines=False
    )


def _filled(held: Any, outputs: Any, inside: NDArray[np.bool_]) -> Any:
    """The outputs of all rows with those `inside` a fold filled in."""
    filled = np.zeros_like(outputs) if held is None else held
    filled[inside] = outputs[inside]
    return filled


def _write(folder: Path, held: Any, test: Any) -> None:
    given = {HELD: held, TEST: test}
    save_file({name: np.ascontiguousarray(outputs) for name, outputs in given.items() if outputs is not None}, folder / OUTPUTS)


def outputs_in(folder: Path) -> dict[str, NDArray[Any]]:
    """The outputs that a cell has written: of labelled rows that it has not seen, and of test rows."""
    return load_file(folder / OUTPUTS)
