"""`cloze compress CLASSIFIER --rows N`: fastText's classifier with fewer rows, as its `quantize -cutoff` before -retrain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.share import card_of, write_copy
from cloze.compression.compress import RECORD, Compressed, Size, description_of
from cloze.errors import CheckpointError
from cloze.interop.files import write_json
from cloze.interop.vectors.classifier import is_classifier, pruned
from cloze.whole import require_new


def prune_rows(source: Path, out: Path, rows: int) -> Compressed:
    """Write a classifier of fastText with a row for its `rows` longest words and n-grams to the new folder `out`.

    Any other checkpoint is a `CheckpointError`; `out` appears whole or not at all.
    """
    require_new(out)
    loaded = load_checkpoint(source)
    if not is_classifier(source):
        raise CheckpointError(f"{source}: --rows is for classifiers of fasttext-supervised, which have a row for each n-gram.")
    imported = pruned(loaded.imported, rows)
    before, results = Size.of(loaded, source), list[Compressed]()

    def finish(stage: Path) -> None:
        result = Compressed([("prune_rows", {"rows": rows})], before, Size.of(load_checkpoint(stage), stage), ())
        write_json(stage / RECORD, result.record(source.resolve().name))
        results.append(result)

    card = card_of(source, imported, languages=(), licence=None, data=None, folder=out.name)
    card = replace(card, results=f"Only {rows:,} rows of words and n-grams were kept. Its quality was not measured after that.")
    remarks = write_copy(source, out, imported, card, description=description_of(source), finish=finish)
    return replace(results[0], remarks=remarks)
