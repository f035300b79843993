"""The inputs of a run: text, tokenizer, held-out text and weights. A run resumes only with the same inputs.

`cloze/run.json` records the digests of stores, tokenizer and weights under `inputs`. Next to each store that a run has built,
`text.json` records the files that it was built from. Files are compared by SHA-256. To save time, a file with the same inode,
size and times as before counts as unchanged and is not read again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloze.corpus import Store
from cloze.corpus.readers.hub_datasets import is_dataset, is_pinned
from cloze.corpus.readers.hub_tables import with_dataset_names
from cloze.corpus.stores.store import file_hash
from cloze.errors import CheckpointError

RECORD = "text.json"
#: What the record of a text says that is compared with the recipe, the tokenizer and the seed of the run.
_COMPARED_ELSEWHERE = frozenset({"text", "texts", "records", "tokenizer", "known", "seed"})
# The network in transformers' format or cloze's own, heads that transformers lacks, and tables.
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "cloze/*.safetensors", "cloze/tables/*.safetensors")


@dataclass(frozen=True)
class FileState:
    """A file: its name as given, its size in bytes and SHA-256 (None for standard input and pipes), and its last known state.

    `seen` is (inode, modified, changed), both times in ns.
    """

    path: str
    bytes: int | None
    sha256: str | None
    seen: tuple[int, ...] = ()

    @classmethod
    def of(cls, path: str, earlier_state: FileState | None = None) -> FileState:
        """The state of a file, which is read unless `earlier_state` shows that it is unchanged."""
        if not Path(path).is_file():
            return cls(path, None, None)
        status = Path(path).stat()
        seen = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        if earlier_state is not None and (earlier_state.bytes, earlier_state.seen) == (status.st_size, seen):
            return cls(path, earlier_state.bytes, earlier_state.sha256, seen)
        return cls(path, status.st_size, file_hash(Path(path)), seen)

    @classmethod
    def of_record(cls, entry: Mapping[str, Any]) -> FileState:
        """The state that a JSON file records, as `asdict` makes it."""
        return cls(entry["path"], entry["bytes"], entry["sha256"], tuple(entry["seen"]))

    def __str__(self) -> str:
        size = "" if self.bytes is None else f" ({self.bytes:,} bytes, sha256 {str(self.sha256)[:12]})"
        return f"{self.path}{size}"


def file_states(files: Sequence[str], earlier_states: Sequence[FileState] = ()) -> list[FileState]:
    """The states of files, in order; `earlier_states` are those of the same files."""
    padded = [*earlier_states[: len(files)], *[None] * (len(files) - len(earlier_states))]
    return [FileState.of(file, earlier) for file, earlier in zip(files, padded, strict=True)]


def difference(recorded_files: Sequence[FileState], current_files: Sequence[FileState]) -> str:
    """The first difference between two lists of files, in words; empty if their contents are equal."""
    for old, new in zip(recorded_files, current_files, strict=False):
        if (old.sha256 or old.path) != (new.sha256 or new.path):
            return f"then {old}, now {new}"
    if len(recorded_files) != len(current_files):
        return f"{len(recorded_files)} {'file' if len(recorded_files) == 1 else 'files'} then, {len(current_files)} now"
    return ""


@dataclass(frozen=True)
class TextRecord:
    """What a store was built from: the paths as given, the files, the settings, and the digest of the store."""

    given: tuple[str, ...]
    files: tuple[FileState, ...]
    how: Mapping[str, Any]
    store: str

    @classmethod
    def read(cls, folder: Path) -> TextRecord | None:
        """The record of the store in a folder; None if there is none, or if it belongs to another store."""
        try:
            raw = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            files = tuple(map(FileState.of_record, raw["files"]))
            record = cls(tuple(raw["given"]), files, dict(raw["how"]), str(raw["store"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return record if record.store == store_digest(Store.open(folder / "store")) else None

    def write(self, folder: Path) -> None:
        """Write the record atomically."""
        fresh = folder / f".{RECORD}.new"
        fresh.unlink(missing_ok=True)
        fresh.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(folder / RECORD)


def store_digest(store: Store) -> str:
    """A digest of a store's contents: of the checksums in its header and of its tokenizer's hash."""
    files = {name: entry["sha256"] for name, entry in sorted(store.header["files"].items())}
    files |= {shard["name"]: shard["sha256"] for shard in store.header.get("shards", ())}
    return hashlib.sha256(json.dumps([files, store.tokenizer_hash]).encode()).hexdigest()


def store_input(store: Store, paths: Sequence[str]) -> dict[str, Any]:
    """A store as `run.json` records it, with the data sets of the hub that it was built from, at their commits."""
    files = [file["path"] for file in store.header.get("report", {}).get("files", ())]
    names = list(filter(is_pinned, map(with_dataset_names, [*files, *paths])))
    datasets = {"datasets": names} if names else {}
    return {"given": list(paths), "store": store_digest(store), "tokens": store.size, **datasets}


def weights_input(folder: Path, record: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Initial weights as `run.json` records them; `record` is its record of the weights that the run started from."""
    old = {entry["path"]: FileState.of_record(entry) for entry in (record or {}).get("files", ())}
    files = sorted(str(path) for pattern in _WEIGHTS for path in folder.glob(pattern))
    return {"given": str(folder), "files": [asdict(FileState.of(file, old.get(file))) for file in files]}


def table_inputs(tables: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> dict[str, Any]:
    """The files of tables as `run.json` records them, by table and argument; `tables` are their arguments, `record` is the
    earlier record."""
    return {
        name: asdict(FileState.of(value, FileState.of_record(record[name]) if name in record else None))
        for table, arguments in tables.items() for argument, value in arguments.items()
        if isinstance(value, str) and Path(value).is_file() and (name := f"{table}.{argument}")
    }  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of weights in a folder, by its path there."""
    return {Path(os.path.relpath(file["path"], folder)).as_posix(): file["sha256"] for file in weights_input(folder)["files"]}


def require_inputs(out: Path, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs to record in `run.json`: `new`, with the initial weights of `old` if none are given now.

    `old` are the recorded inputs of the run in `out`, or None. An input that differs is a `CheckpointError`.
    """
    if old is None:
        return dict(new)
    for name, record in old["corpus"].items():
        _require_store(out, f"the source {name!r}", record, new["corpus"].get(name), "--corpus or --bind")
    if old["tokenizer"] != new["tokenizer"]:
        raise _refused(
            out, f"the tokenizer with hash {old['tokenizer'][:12]}; the given one has {new['tokenizer'][:12]}", "--tokenizer"
        )
    _require_store(out, "the held-out loss", old["held_out"], new["held_out"], "--held-out")
    for name, record in old["dev"].items():
        _require_store(out, f"the dev set of {name!r}", record, new["dev"].get(name), "--dev")
    for name, entry in old.get("tables", {}).items():  # a file that is gone is an error elsewhere
        current = new["tables"].get(name)
        if current is not None and (differs := difference([FileState.of_record(entry)], [FileState.of_record(current)])):
            raise _refused(out, f"other contents of tables.{name}: {differs}", "the file")
    for network, here in new["networks"].items():
        record = old["networks"].get(network, {"files": []})
        if here["from"] is None and not record["files"]:
            raise _refused(out, f"random weights, without --init {network}={here['given']}", "--init")
        differs = _differing_weights(record, here)
        if differs:
            option = "--init" if here["from"] is None else f"--bind {here['from']}"
            raise _refused(out, f"different weights for the network {network!r}: {differs}", option)
    by_init = {network: weights for network, weights in old["networks"].items() if weights["from"] is None}
    new = {**new, "networks": {**by_init, **new["networks"]}}
    if new["init"] is None:
        return {**new, "init": old["init"]}
    if old["init"] is None:
        raise _refused(out, f"random weights, without --init {new['init']['given']}", "--init")
    differs = _differing_weights(old["init"], new["init"])
    if differs:
        raise _refused(out, f"different initial weights: {differs}", "--init")
    return dict(new)


def require_held_out_known(out: Path, old: Mapping[str, Any] | None, paths: Sequence[str]) -> None:
    """Refuse held-out text if the run started without any, before the text is read."""
    if old is not None and old["held_out"] is None:
        here = f"--held-out {' '.join(paths)}"
        raise _refused(out, f"a share of the corpus for the held-out loss, without {here}", "--held-out")


def _differing_weights(record: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    return difference([FileState.of_record(m) for m in record["files"]], [FileState.of_record(m) for m in current["files"]])


def _require_store(out: Path, what: str, record: Any, current: Any, option: str) -> None:
    if (record or {}).get("store") != (current or {}).get("store"):
        raise _refused(out, f"{_shown(record)} for {what}; now {_shown(current)} is given", option)


def _shown(store: Mapping[str, Any] | None) -> str:
    if store is None:
        return "a share of the corpus"
    return f"{' '.join(store['given'])} ({store['tokens']:,} tokens, digest {store['store'][:12]})"


def _refused(out: Path, what: str, option: str) -> CheckpointError:
    return CheckpointError(
        f"{out}: was started with {what}.\n"
        f"  To resume, rerun the command that started it; {option} differs. To train with the new value, choose another "
        "--out."
    )


def require_read_alike(out: Path, record: TextRecord, how: Mapping[str, Any]) -> None:
    """Refuse to resume a run whose text was read in another way than `how`: in another format, encoding or column."""
    for name in sorted((record.how.keys() & how.keys()) - _COMPARED_ELSEWHERE):
        old, here = record.how[name], how[name]
        if old == here:
            continue
        if name == "format":
            raise _refused(out, f"text that is read with {_reading(old)}; now with {_reading(here)}", "one of these options")
        raise _refused(out, f"text that is read with {name} {old}; now with {name} {here}", "the recipe or an option")


def _reading(text_format: str) -> str:
    """How text is read, as options of a command.

    >>> _reading("jsonl@cp1252:body"), _reading("auto")
    ('--format jsonl --encoding cp1252 --text body', '--format auto')
    """
    read_as, _, column = text_format.partition(":")
    kind, _, encoding = read_as.partition("@")
    options = {"--format": kind, "--encoding": encoding, "--text": column}
    return " ".join(f"{option} {value}" for option, value in options.items() if value)


def require_text_unchanged(out: Path, record: TextRecord, paths: Sequence[str], files: Sequence[str] | None) -> TextRecord:
    """The record of a run's text, with the current state of its files; `files` is None if the text is gone.

    Changed text is a `CheckpointError`. The text itself may be gone if it is given by the same paths as then.
    """
    if files is None:
        if tuple(paths) == record.given:
            return record
        raise CheckpointError(
            f"{out}: was started with the text {' '.join(record.given)}; {' '.join(paths)} does not exist.\n"
            f"  To resume without the text, use the token store in the run folder: --corpus {out}/cloze/corpus/…/store"
        )
    here = file_states(files, record.files)
    differs = difference(record.files, here)
    if differs:
        commits = [old.path for old, new in zip(record.files, here, strict=False) if is_dataset(old.path) and old != new]
        resume = f"  To resume, name the commit: {commits[0]}\n" if commits else ""
        raise CheckpointError(
            f"{out}: was started with different text: {differs}.\n{resume}"
            f"  To train on the new text, choose another --out; --init {out} starts from the weights of this run."
        )
    return TextRecord(record.given, tuple(here), record.how, record.store)
