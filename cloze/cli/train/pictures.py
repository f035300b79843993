"""`cloze evaluate RUN STORE --task retrieval`: the right picture of a text, and the right text of a picture, among many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.cli.modes import Mode
from cloze.cli.options import AsJson, Batch, Candidates, Device, Encoding, Seed, Task, count_of
from cloze.errors import TaskError


@dataclass(frozen=True, kw_only=True)
class PicturesMode(Mode):
    """Rank pictures for texts and texts for pictures, and print the measures."""

    purpose = "a store of texts with pictures"
    how = "--task retrieval"

    task: Task = None
    candidates: Candidates = None
    seed: Seed = None
    batch: Batch = 64
    device: Device = "auto"
    encoding: Encoding = None
    as_json: AsJson = False

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether a store is to be searched."""
        from cloze.corpus.stores.store import Store

        return options["task"] == "retrieval" and any(Store.is_store(file) for file in options["files"] or ())

    def run(self, checkpoint: Path, files: Sequence[str]) -> None:
        """Measure a checkpoint on stores of texts with pictures."""
        import json

        from cloze.checkpoint.build import load_checkpoint
        from cloze.cli.train.measures import show
        from cloze.decoding.progress import DecodingProgress
        from cloze.tasks.intrinsic.picture_retrieval import Captions, evaluate_pictures, matcher_of

        candidate_count = None if self.candidates is None else count_of(self.candidates)
        loaded = load_checkpoint(checkpoint, self.device)
        every = {file: Captions.of_store(opened(file, loaded)) for file in files}
        evaluations = {}
        for file, captions in every.items():
            matcher = matcher_of(loaded, captions, whose=file, size=self.batch)
            count = matcher.default_candidates if self.candidates is None else candidate_count
            if count is not None and count >= max(len(captions.texts), len(captions.pictures.keys)) - 1:
                count = None
            if count is None and self.seed is not None:
                raise TaskError(f"--seed {self.seed}: all are ranked, so nothing is drawn at random. Omit it.")
            with DecodingProgress(captions.count(count), "pairs") as progress:
                evaluations[file] = evaluate_pictures(matcher, captions, candidates=count, seed=self.seed or 0, report=progress)
        if self.as_json:
            print(json.dumps({file: figures.record() for file, figures in evaluations.items()}, indent=2, ensure_ascii=False))
            return
        for file, figures in evaluations.items():
            show(file, figures)


def opened(file: str, loaded: Any) -> Any:
    """The store of texts with pictures in a folder, with the tokenizer of a checkpoint."""
    from cloze.corpus.records.record_store import RecordStore
    from cloze.corpus.stores.store import Store

    store = Store.open(file) if Store.is_store(file) else None
    if not isinstance(store, RecordStore) or store.items is None:
        raise TaskError(
            f"{file}: no store of texts with pictures. Build one: cloze corpus build CAPTIONS.jsonl --items regions=FEATURES.npz "
            f"--tokenizer {loaded.folder} --out STORE"
        )
    store.require_tokenizer(loaded.tokenizer.hash, whose=str(loaded.folder))
    return store
