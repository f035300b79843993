"""Writes the shards of a store as one ordinary store."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from cloze.corpus.shards.manifest import ShardedStore
from cloze.corpus.stores.store import TOKENIZER, Store
from cloze.corpus.stores.writer import StoreWriter
from cloze.errors import CorpusError

_DOCUMENTS = 1 << 12  # written at a time


def write_as_one(store: Store, out: Path) -> Store:
    """The text of all shards in order, as one store at `out`."""
    if not isinstance(store, ShardedStore):
        raise CorpusError(f"{store.path}: is one store already. Copy it: cloze corpus copy {store.path} {out}")
    header, first = store.header, store.shard(0)
    annotation_header = {key: header[key] for key in ("words", "annotations", "line_ends") if key in header}
    labels = {name: first.label_names(name) for name in first.labels}
    with StoreWriter(
        out, vocab_size=store.vocab_size, roles=header["roles"], tokenizer_hash=store.tokenizer_hash,
        annotations=annotation_header, labels=labels,
    ) as writer:
        for number in range(len(store.shards)):
            _append(writer, store.shard(number))
        return writer.finish(store.report, lambda folder: copied(store.path / TOKENIZER, folder))


def copied(folder: Path, to: Path) -> None:
    """Copy a folder."""
    shutil.copytree(folder, to)


def _append(writer: StoreWriter, shard: Store) -> None:
    for low in range(0, shard.documents, _DOCUMENTS):
        high = min(low + _DOCUMENTS, shard.documents)
        sentences = shard.document_sentences[low : high + 1]
        starts = shard.sentence_starts[sentences[0] : sentences[-1] + 1]
        tokens = np.arange(starts[0], starts[-1])
        within = slice(int(starts[0]), int(starts[-1]))
        writer.append(
            shard.tokens[within], shard.words(tokens), np.diff(starts), np.diff(sentences),
            layers={name: layer[within] for name, layer in shard.layers.items()},
            labels={name: values[within] for name, values in shard.labels.items()},
        )


