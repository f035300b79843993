"""The cells of a question: which systems answer, which cells are finished, and which can be worked on now.

First the text and the runs of pre-training, which take the time; then the answers of every system by cross-validation; then the
best start is fine-tuned once without each fold, and once with all rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from cloze.budget.fit_text import is_unspaced, sample_text
from cloze.comparison.best.answers import HELD, outputs_in
from cloze.comparison.best.question import BestQuestion, QuestionRows, read_rows, write_texts
from cloze.comparison.best.teaching import shares_of
from cloze.comparison.cell import Cell, result_of
from cloze.comparison.design import CandidateSystem, Design, checked
from cloze.comparison.grid import Grid
from cloze.corpus.readers.files import absolute
from cloze.corpus.stores.store import file_hash
from cloze.reports.page import unique_names
from cloze.tasks.linear.cutting import Cutter
from cloze.tasks.linear.fit import FOLDS
from cloze.tasks.mixture import pooled
from cloze.training.schedule.budget import Budget

NGRAMS, TEXTS, FASTTEXT, VECTORS, QUICK = "n-grams", "n-grams and texts", "fastText", "word vectors", "quick"
_RECIPES = {QUICK: "quick", VECTORS: "word2vec-skipgram"}
_WORKS = {NGRAMS: "ngrams", TEXTS: "texts", FASTTEXT: "fasttext"}  # kinds of cells
_VERSION = 2  # of what cells hold


class VectorNetwork(NamedTuple):
    """A network whose vectors are used: its name, the cell that trains it (None for a folder of the user's), and its folder
    (None while it is not trained)."""

    name: str
    cell: Cell | None
    folder: Path | None


@dataclass
class Systems:
    """The cells of a question in the folder `out`; `failed` are those that failed since it was made, by key."""

    question: BestQuestion
    out: Path
    failed: dict[str, str] = field(default_factory=dict)
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.texts_file.exists():  # its name needs checked recipes, so what cannot be trained is refused first
            write_texts(self.question, self.texts_file)

    @cached_property
    def texts_file(self) -> Path:
        """Where the texts without labels of this question are kept; another corpus or other rows have another file."""
        unlabelled = [file_hash(Path(file)) for file in self.question.unlabelled]
        question = self.question
        depends = json.dumps([
            self._grids[QUICK].corpus, question.text_format, self._files, unlabelled, question.type, list(question.tuning),
            question.encoding,
        ])  # fmt: skip
        return self.out / f"texts-{sha256(depends.encode()).hexdigest()[:12]}.json"

    @cached_property
    def _files(self) -> list[str]:
        """Digests of the files of rows."""
        question = self.question
        return [file_hash(Path(file)) for file in (*question.labelled, *([] if question.test is None else [question.test]))]

    @cached_property
    def rows(self) -> QuestionRows:
        """The rows of the question."""
        return read_rows(self.question, self.texts_file)

    @cached_property
    def _grids(self) -> dict[str, Grid]:
        """The pre-training of each recipe, by the name of the system."""
        question = self.question
        shared: dict[str, Any] = {
            "corpus": question.corpus, "seeds": 1, "text_format": question.text_format, "device": question.device,
            "with_files": question.with_files,
        }  # fmt: skip
        budget = Budget.parse(question.budget)
        less = replace(budget, amount=budget.amount / 4) if budget.kind == "seconds" else budget  # vectors learn fast
        options: dict[str, dict[str, Any]] = {QUICK: {"size": question.size, "budgets": [budget]}, VECTORS: {"budgets": [less]}}
        rows = read_rows(question)
        # Rows of words say nothing of the spaces of the text.
        unspaced = is_unspaced(sample_text(question.corpus, question.text_format))
        unspaced = unspaced or not Cutter.of(rows.linear.texts(rows.labelled)).spaced
        values = {VECTORS: ("text.normalise.cjk_spacing=true",) if unspaced else ()}  # a word of every character
        designs = {
            name: Design([CandidateSystem(recipe, recipe, values.get(name, ()))], [], **options[name], **shared)
            for name, recipe in _RECIPES.items()
        }
        return {name: Grid(checked(design), self.out, self.failed) for name, design in designs.items()}

    def result(self, cell: Cell) -> dict[str, Any] | None:
        """The result of a cell, None where it is not finished."""
        if cell.key not in self._known and (finished := result_of(cell.folder(self.out), cell.until)) is not None:
            self._known[cell.key] = finished
        return self._known.get(cell.key)

    def cells(self) -> Iterator[Cell]:
        """Every cell that can be named so far."""
        for grid in self._grids.values():
            yield from grid.cells()
        yield from self.answers().values()
        best = self.best_start()
        if best is not None:
            yield self.curve(best)
            yield from self.tuned(best)

    def ready(self) -> list[Cell]:
        """The cells to work on now, each once."""
        cells = {cell.key: cell for cell in self.cells()}
        return [cell for key, cell in cells.items() if key not in self.failed and self.result(cell) is None]

    def counts(self) -> dict[str, int]:
        """How many cells of each stage there will be, if none fails."""
        return {
            "corpus": len(_RECIPES), "pretrain": len(_RECIPES), **{_WORKS[name]: 1 for name in self._simple},
            "network": len(_RECIPES) + len(self.question.models), "curve": 1, "tune": FOLDS + 1,
        }

    # --- answers ----------------------------------------------------------------------------------------------------------

    @property
    def _simple(self) -> list[str]:
        """The systems without a network of their own; fastText has a recipe for the classification of one text."""
        texts = [TEXTS] if self.rows.texts is not None else []
        return [NGRAMS, *texts, *([FASTTEXT] if self.question.type == "sentence_classification" else [])]

    def starts(self) -> list[VectorNetwork]:
        """The networks that there will be, the trained ones first."""
        trained = []
        for name, grid in self._grids.items():
            candidate, budget = grid.starts()[0]
            cells = [] if grid.store_folder(candidate) is None or budget is None else grid.starting(candidate, budget)
            cell = cells[0] if cells else None
            done = cell is not None and self.result(cell) is not None
            trained.append(VectorNetwork(
                name, cell, cell.folder(self.out).resolve() / "run" if cell is not None and done else None
            ))
        short = unique_names(list(self.question.models)) if self.question.models else []
        reserved = {*_RECIPES, *_WORKS}
        names = [str(path) if name in reserved else name for name, path in zip(short, self.question.models, strict=True)]
        folders = [Path(os.path.abspath(model)) for model in self.question.models]
        return [*trained, *(VectorNetwork(name, None, folder) for name, folder in zip(names, folders, strict=True))]

    def answers(self) -> dict[str, Cell]:
        """The cells of answers that can be named, by system."""
        simple = {name: self._cell(_WORKS[name], name, {}) for name in self._simple}
        return {**simple, **{start.name: self._network(start) for start in self.starts() if start.folder is not None}}

    def _network(self, start: VectorNetwork) -> Cell:
        return self._cell("network", start.name, {"start": str(start.folder)}, start=self._weights(start))

    def _weights(self, start: VectorNetwork) -> str:
        """What tells the weights of a start from others."""
        return start.cell.key if start.cell is not None else self._grids[QUICK].weights(Path(str(start.folder)))

    def _cell(self, kind: Any, label: str, more: dict[str, Any], **identity: Any) -> Cell:
        return Cell(kind, label, {**self._identity, **identity}, {**self._request, **more})

    @cached_property
    def _identity(self) -> dict[str, Any]:
        question = self.question
        return {
            "version": _VERSION, "type": question.type, "files": self._files,
            "tested": question.test is not None, "texts": file_hash(self.texts_file), "tuning": list(question.tuning),
            "encoding": question.encoding,
            **({"code": [file_hash(Path(file)) for file in question.with_files]} if question.with_files else {}),
        }  # fmt: skip

    @cached_property
    def _request(self) -> dict[str, Any]:
        question = {
            **asdict(self.question), "models": [os.path.abspath(model) for model in self.question.models],
            "unlabelled": [os.path.abspath(file) for file in self.question.unlabelled],
            "with_files": [os.path.abspath(file) for file in self.question.with_files],
            "corpus": [absolute(path) for path in self.question.corpus],
        }  # fmt: skip
        return {
            "question": question, "texts": os.path.abspath(self.texts_file), "encoding": self.question.encoding,
            "with": question["with_files"],
        }  # fmt: skip

    # --- the best start, fine-tuned ---------------------------------------------------------------------------------------

    def words(self) -> Cell | None:
        """The linear model on n-grams that networks are mixed with: the one that learned from texts where there is one."""
        answers = self.answers()
        cell = answers.get(TEXTS, answers[NGRAMS])
        return cell if self.result(cell) is not None else None

    def mixed(self, name: str) -> Any | None:
        """The held answers of a system mixed with the linear model on n-grams; None while one of the two has not answered."""
        words, cell = self.words(), self.answers().get(name)
        if words is None or cell is None or self.result(cell) is None:
            return None
        first, second = (outputs_in(answering.folder(self.out), self.rows)[HELD] for answering in (cell, words))
        return pooled(self.rows.linear, first, second, *shares_of(self.rows, self.rows.labelled, first, second))

    def best_start(self) -> VectorNetwork | None:
        """The network whose mixture with n-grams has the lowest loss on labelled rows that it has not seen; None until every
        network has answered or failed."""
        starts = [start for start in self.starts() if start.name != VECTORS]
        held = {start.name: self.mixed(start.name) for start in starts}
        waiting = [start for start in starts if held[start.name] is None and not self._has_failed(start)]
        if waiting or all(outputs is None for outputs in held.values()):
            return None
        losses = {
            name: self.rows.linear.loss(self.rows.labelled, outputs) for name, outputs in held.items() if outputs is not None
        }
        return next(start for start in starts if start.name == min(losses, key=lambda name: losses[name]))

    def _has_failed(self, start: VectorNetwork) -> bool:
        if start.folder is None:
            return any(cell.key in self.failed for cell in self._grids[start.name].cells())
        return self._network(start).key in self.failed

    def curve(self, start: VectorNetwork) -> Cell:
        """The cell of the learning curve."""
        vectors = str(self._network(start).folder(self.out).resolve())
        return self._cell("curve", start.name, {"vectors": vectors}, start=self._weights(start))

    def tuned(self, start: VectorNetwork) -> list[Cell]:
        """The start fine-tuned without each fold of the labelled rows, and with all of them."""
        vectors = str(self._network(start).folder(self.out).resolve())
        return [
            self._cell(
                "tune", f"{start.name}-{'all' if fold is None else fold + 1}",
                {"start": str(start.folder), "fold": fold, "vectors": vectors}, start=self._weights(start), fold=fold,
            )
            for fold in (*range(FOLDS), None)
        ]  # fmt: skip
