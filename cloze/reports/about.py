"""What a folder or a file is, in one screen: `cloze show PATH`. Read leniently and never changed.

To describe another kind of thing: a function path → `About`, and its line in `about`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cloze.corpus.readers.not_text import what_is
from cloze.errors import CheckpointError, ClozeError, nearest_path
from cloze.reports.fact import About, Fact, command, shown_size, size_of

if TYPE_CHECKING:
    from cloze.reports.about_checkpoint import Opens

TEXT = "TEXT.txt"  # stands for a file of the user's in a command


def about(path: Path, opens: Opens) -> About:
    """What a path is. `opens` opens a checkpoint and finds its uses. A path of no known kind is a `CheckpointError`."""
    from cloze.reports.about_checkpoint import about_checkpoint
    from cloze.reports.about_run import about_prepared, about_run, about_runs, is_prepared, is_run
    from cloze.reports.run import require_no_result

    if not path.exists():
        raise CheckpointError(f"{path}: no such file or folder. {nearest_path(path)}".rstrip())
    if path.is_file():
        return about_vectors(path)
    kind = what_is(path)
    if kind == "a token store":
        return about_store(path)
    if is_run(path):
        return about_run(path, opens)
    if kind == "a checkpoint" or kind == "a run folder":
        return about_checkpoint(path, opens)
    if kind == "a tokenizer folder":
        return about_tokenizer(path)
    if is_prepared(path):
        return about_prepared(path)
    runs = about_runs(path, opens)
    if runs is None:
        require_no_result(path)
        held = sorted(entry.name for entry in path.iterdir())
        listing = ", ".join(held[:6]) + (f" and {len(held) - 6} more" if len(held) > 6 else "")
        raise CheckpointError(
            f"{path}: holds {listing or 'nothing'}; expected a run, a checkpoint, a token store, a tokenizer or word vectors."
        )
    return runs


def about_store(path: Path) -> About:
    """A token store."""
    from cloze.corpus import RecordStore, Store

    store = Store.open(path)
    report, records = store.report, isinstance(store, RecordStore)
    files = [str(file["path"]) for file in report.get("files", ())]
    if isinstance(store, RecordStore):
        files = files or list(store.about["files"])
    facts = [
        Fact("documents", store.documents, f"{store.documents:,}"), Fact("tokens", store.size, f"{store.size:,}"),
        Fact("vocabulary", store.vocab_size, f"{store.vocab_size:,} ids, tokenizer {store.tokenizer_hash[:12]}"),
    ]
    if not records:
        facts.insert(1, Fact("sentences", store.sentences, f"{store.sentences:,}"))
    if store.languages:
        facts.append(Fact("languages", list(store.languages), ", ".join(store.languages)))
    if files:
        more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""
        facts.append(Fact("built_from", files, ", ".join(files[:3]) + more))
    facts.append(Fact("size", size_of(path), shown_size(size_of(path))))
    if records:
        steps = [command("cloze", "finetune", "CHECKPOINT", "--train", path, "--dev", "DEV.tsv", "--out", "TUNED")]
    else:
        steps = [
            command("cloze", "pretrain", "quick", "--corpus", path, "--budget", "10m", "--out", "RUN"),
            command("cloze", "peek", "quick", "--corpus", path),
        ]
    what = "a token store of labelled text" if records else "a token store"
    return About("token_store", path, what, facts, [*steps, command("cloze", "corpus", "check", path)])


def about_tokenizer(path: Path) -> About:
    """A folder with a tokenizer."""
    from cloze.text import Tokenizer

    tokenizer = Tokenizer.load(path)
    facts = [
        Fact("type", tokenizer.kind, tokenizer.kind), Fact("vocabulary", tokenizer.size, f"{tokenizer.size:,} ids"),
        Fact("special_tokens", dict(tokenizer.literals), ", ".join(map(str, tokenizer.literals.values()))),
        Fact("hash", tokenizer.hash, tokenizer.hash[:12]),
    ]
    steps = [command("cloze", "corpus", "build", TEXT, "--tokenizer", path, "--out", "STORE")]
    return About("tokenizer", path, "a tokenizer", facts, steps)


def about_vectors(path: Path) -> About:
    """A file of word vectors; another file is a `CheckpointError`."""
    from cloze.interop.vectors import open_vectors
    from cloze.interop.vectors.opening import kind_of

    formats = {"text": "text", "word2vec-binary": "word2vec's binary file", "fasttext": "fastText's .bin file"}
    try:
        kind, vectors = kind_of(path), open_vectors(path, repeated="first")
    except ClozeError as error:
        raise CheckpointError(
            f"{path}: expected a recipe (.yaml), a run, a checkpoint, a token store, a tokenizer or word vectors.\n"
            f"  As word vectors: {error}"
        ) from None
    words = vectors.words
    facts = [
        Fact("words", len(words), f"{len(words):,}: {', '.join(words[:5])} …"),
        Fact("width", vectors.width, str(vectors.width)), Fact("format", kind, formats[kind]),
        Fact("size", path.stat().st_size, shown_size(path.stat().st_size)),
    ]
    word = next((word for word in words if word.isalpha() and len(word) > 3), words[0] if len(words) else "WORD")
    steps = [
        command("cloze", "neighbours", path, word), command("cloze", "evaluate", path, "--similarity", "PAIRS.txt"),
        command("cloze", "import", path, "--out", f"{path.name.partition('.')[0]}-checkpoint"),
    ]
    return About("word_vectors", path, "word vectors", facts, steps)
