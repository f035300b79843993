"""The cells of a comparison: which there are, which are finished, and which can be worked on now.

Of every recipe, a store of the text; of every recipe and budget, runs of pre-training; on each of these, runs of fine-tuning.
Several rates are tried with the first seed, and the best is used with the others: the best by the held-out loss in pre-training,
by the dev set in fine-tuning. Every candidate gets the same number of tries.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from cloze.budget.fit import fit_vocabulary, laws_of
from cloze.budget.fit_task import detects, laws_of_task
from cloze.budget.fit_text import fit_normalisation, sample_for
from cloze.budget.fitted import apply_unless_overridden, text_bytes
from cloze.checkpoint.inputs import store_digest, weights_input
from cloze.comparison.cell import Cell, result_of
from cloze.comparison.design import FULL, CandidateSystem, Design, TaskFiles, Transfer
from cloze.corpus import Store
from cloze.corpus.readers.files import absolute
from cloze.corpus.stores.build import corpus_files
from cloze.corpus.stores.store import file_hash
from cloze.recipe.recipe import PartSpec, Recipe
from cloze.recipe.user_files import copies_in, files_of
from cloze.runs.request import to_be_fitted
from cloze.text.tokenizer import Tokenizer
from cloze.training.schedule.budget import Budget

Result = dict[str, Any]

#: Besides its weights, what decides how a checkpoint is opened, reads text and is fine-tuned: settings, tokenizer, recipe.
_DESCRIPTION = ("*.json", "*.txt", "*.model", "*/config.json", "cloze/network.json", "cloze/recipe.yaml", "cloze/networks/*/**/*")


@dataclass
class Grid:
    """The cells of a design, in the folder `out`; `failed` are those that failed since it was made, by key."""

    design: Design
    out: Path
    failed: dict[str, str] = field(default_factory=dict)
    _known: dict[str, Result] = field(default_factory=dict)
    _digests: dict[Path, str] = field(default_factory=dict)
    _stores: dict[str, Cell | None] = field(default_factory=dict)
    _cells: dict[Any, Cell] = field(default_factory=dict)  # the same cells are needed again and again

    def result(self, cell: Cell) -> Result | None:
        """The result of a cell, None where it is not finished."""
        if cell.key not in self._known and (result := result_of(cell.folder(self.out), cell.until)) is not None:
            self._known[cell.key] = result
        return self._known.get(cell.key)

    def cells(self) -> Iterator[Cell]:
        """Every cell that can be named so far, stores first, then pre-training, then fine-tuning; some may be named twice."""
        for candidate in self.design.candidates:
            if candidate.recipe is not None and (store := self.store(candidate)) is not None:
                yield store
        for candidate, budget in self.starts():
            if budget is not None and self.store_folder(candidate) is not None:
                yield from self.trained(candidate, budget)
        for candidate, budget in self.starts():
            for transfer in self.design.transfers:
                for task in self.design.tasks:
                    yield from self.tuned(candidate, budget, transfer, task)

    def ready(self) -> list[Cell]:
        """The cells to work on now, each once. Those of the first seed come first, so that it gives a whole comparison early."""
        cells = {cell.key: cell for cell in self.cells()}
        missing = [cell for key, cell in cells.items() if key not in self.failed and self.result(cell) is None]
        return sorted(missing, key=lambda cell: cell.identity.get("seed", 0))

    def starts(self) -> list[tuple[CandidateSystem, Budget | None]]:
        """What is fine-tuned: each recipe at each budget, and checkpoints."""
        return [
            (candidate, budget) for candidate in self.design.candidates
            for budget in (self.design.budgets if candidate.recipe is not None else [None])
        ]  # fmt: skip

    def counts(self) -> dict[str, int]:
        """How many cells of each kind there will be, if none fails."""
        tries = {name: self.design.seeds + len(self.factors(name)) - 1 for name in self.design.recipes}
        trained = sum(tries.values()) * len(self.design.budgets)
        tuned = self.design.seeds + len(self.design.factors) - 1
        recipes = [candidate for candidate in self.design.candidates if candidate.recipe is not None]
        stores = {store.key for candidate in recipes if (store := self.store(candidate)) is not None}
        return {
            "corpus": len(stores), "pretrain": trained,
            "finetune": len(self.starts()) * len(self.design.transfers) * len(self.design.tasks) * tuned,
        }  # fmt: skip

    def factors(self, name: str) -> list[float]:
        """What the fitted peak of a recipe is multiplied by; 1 alone where a recipe has no single peak rate."""
        recipe = self.design.recipes[name]
        return [1.0] if recipe.stages or "peak" not in recipe.training.rate.arguments else self.design.factors

    # --- stores ---------------------------------------------------------------------------------------------------------

    def store(self, candidate: CandidateSystem) -> Cell | None:
        """The cell that makes the store of a candidate's text; None where a store was given. Equal texts share it."""
        if candidate.name not in self._stores:
            self._stores[candidate.name] = self._store(candidate)
        return self._stores[candidate.name]

    def _store(self, candidate: CandidateSystem) -> Cell | None:
        design = self.design
        if len(design.corpus) == 1 and Store.is_store(design.corpus[0]):
            return None
        recipe = self._with_vocabulary(candidate)
        canonical = recipe.canonical()
        source = next(iter(canonical["sources"].values()))
        identity = {
            "corpus": self.corpus, "texts": canonical.get("texts"), "format": design.text_format,
            "source": [next(iter(source)), next(iter(source.values())).get("languages")],
            "tokenizer": None if design.tokenizer is None else self._digest_of_tokenizer(design.tokenizer),
            **self._code(recipe.texts, recipe.sources),
        }  # fmt: skip
        request = {
            "recipe": candidate.recipe, "values": list(candidate.values), "size": design.size,
            "budget": str(design.budgets[-1]), "corpus": [absolute(path) for path in design.corpus],
            "format": design.text_format, "tokenizer": None if design.tokenizer is None else os.path.abspath(design.tokenizer),
            "with": self._with, "fit": design.fit,
        }  # fmt: skip
        return Cell("corpus", "text", identity, request)

    def store_folder(self, candidate: CandidateSystem) -> Path | None:
        """The store of a candidate's text; None while it is not built."""
        cell = self.store(candidate)
        if cell is None:
            return Path(os.path.abspath(self.design.corpus[0]))
        result = self.result(cell)
        return None if result is None else (cell.folder(self.out) / result["store"]).resolve()

    def _with_vocabulary(self, candidate: CandidateSystem) -> Recipe:
        """The recipe with the vocabulary that suits the size of the text."""
        recipe, size = self.design.recipes[candidate.name], text_bytes(self.design.corpus)
        command = self.design.command(candidate, self.design.budgets[-1])
        if self.design.tokenizer is not None or size is None or recipe.stages or not to_be_fitted(command, recipe):
            return recipe
        sample = sample_for(recipe, self.design.corpus, self.design.text_format)
        proposals = [*fit_vocabulary(recipe, size, sample), *fit_normalisation(recipe, sample)]
        return apply_unless_overridden(command.load, proposals)[1]

    @cached_property
    def corpus(self) -> str:
        """A digest of the text: of the contents of its files in their order, or of the store."""
        paths = self.design.corpus
        if len(paths) == 1 and Store.is_store(paths[0]):
            return store_digest(Store.open(paths[0]))
        digests = [self._digest(Path(file)) for file in corpus_files(paths, self.design.text_format)]
        return sha256("".join(digests).encode()).hexdigest()

    def _digest_of_tokenizer(self, folder: Path) -> str:
        """The digest of tokenizer.json, or of what the files of an older layout say."""
        file = folder / "tokenizer.json"
        return self._digest(file) if file.is_file() else Tokenizer.load(folder).hash

    def _digest(self, path: Path) -> str:
        """A digest of a file, or of all files of a folder; a source of text that is neither (python-docs) goes by its name."""
        if path not in self._digests:
            inside = sorted(entry for entry in path.rglob("*") if entry.is_file()) if path.is_dir() else []
            digests = [f"{file.relative_to(path).as_posix()} {file_hash(file)}" for file in inside]  # folders may name classes
            digests = digests if path.is_dir() else [file_hash(path) if path.exists() else str(path)]
            self._digests[path] = sha256("".join(digests).encode()).hexdigest()
        return self._digests[path]

    @property
    def _with(self) -> list[str]:
        return [os.path.abspath(file) for file in self.design.with_files]

    def _code(self, *parts: Any) -> dict[str, list[str]]:
        """For the identity of a cell: digests of the user's files (`--with`), if one of them registered some of the parts."""
        return {"code": sorted(self._digest(Path(file)) for file in self.design.with_files)} if files_of(parts) else {}

    # --- pre-training ---------------------------------------------------------------------------------------------------

    def trained(self, candidate: CandidateSystem, budget: Budget) -> list[Cell]:
        """The runs of pre-training that can be named: all rates with the first seed, then the other seeds at the best rate."""
        tries = [self.run(candidate, budget, 1, factor) for factor in self.factors(candidate.name)]
        best = self._best(tries, "held_out", more=False)
        return tries if best is None else [*tries, *self.starting(candidate, budget)[1:]]

    def starting(self, candidate: CandidateSystem, budget: Budget) -> list[Cell]:
        """The runs to fine-tune, one per seed; none before the best rate is known."""
        if self.store_folder(candidate) is None:
            return []
        factors = self.factors(candidate.name)
        best = self._best([self.run(candidate, budget, 1, factor) for factor in factors], "held_out", more=False)
        if best is None:
            return []
        return [self.run(candidate, budget, seed, factors[best]) for seed in range(1, self.design.seeds + 1)]

    def run(self, candidate: CandidateSystem, budget: Budget, seed: int, factor: float = 1.0) -> Cell:
        """A run of pre-training at a multiple of the fitted peak rate; the store of its text is finished."""
        at = (candidate.name, budget, seed, factor)
        if at not in self._cells:
            self._cells[at] = self._new_pretrain(candidate, budget, seed, factor)
        return self._cells[at]

    def _new_pretrain(self, candidate: CandidateSystem, budget: Budget, seed: int, factor: float) -> Cell:
        store, design, recipe = self.store(candidate), self.design, self.design.recipes[candidate.name]
        fitted = to_be_fitted(design.command(candidate, budget), recipe)
        identity = {
            "recipe": recipe.hash, "corpus": self.corpus if store is None else store.key, "budget": str(budget), "seed": seed,
            "rate": factor, "fitted": laws_of(recipe) if fitted else False, **self._code(recipe),
        }  # fmt: skip
        request = {
            "recipe": candidate.recipe, "values": list(candidate.values), "size": design.size, "budget": str(budget),
            "seed": seed, "factor": factor, "store": str(self.store_folder(candidate)), "device": design.device,
            "with": self._with, "fit": design.fit, "track": list(design.track),
        }  # fmt: skip
        return Cell("pretrain", f"{candidate.name}-{budget.typed}-{_tried(seed, factor)}", identity, request)

    def _best(self, tries: Sequence[Cell], key: str, *, more: bool) -> int | None:
        """Which of the tries is best; None while one is neither finished nor failed, and where all failed. One alone is the best
        from the start, so that the other seeds neither wait for it nor fail with it."""
        if len(tries) == 1:
            return 0
        results = [self.result(cell) for cell in tries]
        if any(result is None and cell.key not in self.failed for cell, result in zip(tries, results, strict=True)):
            return None
        worth = {
            i: (result[key] if more else -result[key]) if result[key] is not None else -float("inf")
            for i, result in enumerate(results) if result is not None
        }  # fmt: skip
        return max(worth, key=lambda i: worth[i]) if worth else None

    # --- fine-tuning ----------------------------------------------------------------------------------------------------

    def tuned(self, candidate: CandidateSystem, budget: Budget | None, transfer: Transfer, task: TaskFiles) -> list[Cell]:
        """The runs of fine-tuning that can be named: all rates with the first seed, then the other seeds at the best rate."""
        tries = self._tries(candidate, budget, transfer, task)
        return list({cell.key: cell for cell in [*tries, *self.final(candidate, budget, transfer, task)]}.values())

    def final(self, candidate: CandidateSystem, budget: Budget | None, transfer: Transfer, task: TaskFiles) -> list[Cell]:
        """The runs that count, one per seed whose pre-training is finished; none before the best rate is known."""
        tries = self._tries(candidate, budget, transfer, task)
        best: int | None = 0
        if len(self.design.factors) > 1:
            best = self._best(tries, "dev", more=self.design.metrics[task.name].more) if tries else None
        if best is None:
            return []
        factor = self.design.factors[best]
        seeds = range(1, self.design.seeds + 1)
        cells = [self._finetune(candidate, budget, transfer, task, seed, factor) for seed in seeds]
        return [cell for cell in cells if cell is not None]

    def _tries(self, candidate: CandidateSystem, budget: Budget | None, transfer: Transfer, task: TaskFiles) -> list[Cell]:
        cells = [self._finetune(candidate, budget, transfer, task, 1, factor) for factor in self.design.factors]
        return [cell for cell in cells if cell is not None]

    def _finetune(
        self, candidate: CandidateSystem, budget: Budget | None, transfer: Transfer, task: TaskFiles, seed: int, factor: float
    ) -> Cell | None:
        """A run of fine-tuning; None where the checkpoint is not finished."""
        if budget is None:
            assert candidate.checkpoint is not None
            start, folder = self.weights(candidate.checkpoint), Path(os.path.abspath(candidate.checkpoint))
        else:
            starting = self.starting(candidate, budget)
            if len(starting) < seed or self.result(starting[seed - 1]) is None:
                return None
            start, folder = starting[seed - 1].key, starting[seed - 1].folder(self.out).resolve() / "run"
        at = (start, candidate.name, transfer, task, seed, factor)
        if at not in self._cells:
            self._cells[at] = self._new_finetune(candidate, budget, transfer, task, seed, factor, start, folder)
        return self._cells[at]

    def _new_finetune(
        self, candidate: CandidateSystem, budget: Budget | None, transfer: Transfer, task: TaskFiles, seed: int,
        factor: float, start: str,
        folder: Path,
    ) -> Cell:
        files = {"train": task.train, "dev": task.dev, "test": task.test}
        change_options = transfer.changes_for(task.type)
        changes = [PartSpec("change", change.partition("=")[0], {}) for change in change_options]
        recipe = self.design.task_recipes[task.name]
        encoding = {} if self.design.encoding is None else {"encoding": self.design.encoding}
        detecting = budget is not None and detects(self.design.recipes[candidate.name].canonical())
        identity = {
            "checkpoint": start, "seed": seed, "rate": factor, "recipe": recipe.hash, "transfer": transfer.name,
            "values": self.design.tuning_of(task), "files": {part: self._digest(Path(file)) for part, file in files.items()},
            "fitted": laws_of_task(recipe, detecting=detecting), **self._code(recipe, changes), **encoding,
        }  # fmt: skip
        request = {
            "checkpoint": str(folder), "type": task.type, **files, "seed": seed, "factor": factor, "transfer": transfer.name,
            "changes": change_options, "values": self.design.tuning_of(task), "metric": self.design.metrics[task.name].name,
            "device": self.design.device, "with": self._with, "track": list(self.design.track), **encoding,
        }  # fmt: skip
        way = "" if transfer.name == FULL else f"-{transfer.name}"
        spent = "" if budget is None else f"-{budget.typed}"
        return Cell("finetune", f"{task.name}-{candidate.name}{spent}{way}-{_tried(seed, factor)}", identity, request)

    def ngrams(self, task: TaskFiles) -> Cell:
        """The linear model on n-grams of a task. It is fitted in seconds, so it is none of the cells that are worked on."""
        files = {"train": task.train, "dev": task.dev, "test": task.test}
        identity = {
            "type": task.type, "values": self.design.tuning_of(task), "metric": self.design.metrics[task.name].name,
            "files": {part: self._digest(Path(file)) for part, file in files.items()}, "encoding": self.design.encoding,
        }  # fmt: skip
        return Cell("ngrams", task.name, identity, files)

    def weights(self, checkpoint: Path) -> str:
        """A digest of a checkpoint: of its weights and of how it reads text, and of the user's files if its network has parts of
        theirs."""
        if checkpoint not in self._digests:
            files = sorted(file["sha256"] for file in weights_input(checkpoint)["files"])
            described = {file for pattern in _DESCRIPTION for file in checkpoint.glob(pattern) if file.is_file()}
            files += [f"{file.relative_to(checkpoint).as_posix()} {file_hash(file)}" for file in sorted(described)]
            files += [self._digest(Path(file)) for file in self._with] if copies_in(checkpoint) else []
            self._digests[checkpoint] = sha256("".join(files).encode()).hexdigest()
        return self._digests[checkpoint]


def _tried(seed: int, factor: float) -> str:
    return f"seed{seed}" + ("" if factor == 1 else f"-rate{factor:g}")
