"""`cloze corpus copy`: a store to another folder, to object storage or back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cloze.corpus.shards.place import RemoteFolder, is_address
from cloze.corpus.shards.remote import parsed_header
from cloze.corpus.stores.store import HEADER, PLANS, SHARDS, Store
from cloze.errors import CorpusError, Say
from cloze.untrusted import parse_json

_AGAIN = "Run the same command again: it copies only what is missing."


def copy_store(source: str, target: str, say: Say) -> None:
    """Copy a store; either side may be an address. Every file is checked on the way.

    Files that are there already are left, and the header is written last, so that a copy that was stopped can be resumed. Raises
    `CorpusError` if there is no store, or if the target holds something else.
    """
    if not is_address(source):
        Store.open(source, content=False)
    read, write = _at(source), _at(target)
    if f"{write.address}/".startswith(f"{read.address}/") or f"{read.address}/".startswith(f"{write.address}/"):
        raise CorpusError(f"{target}: is the same place as {source}, or one is inside the other. Choose another target.")
    text = read.read(HEADER)
    sizes = _require_own(write, target, text)
    copied, names = 0, 0
    header = parsed_header(read, HEADER, text)
    folders = [("", header, text)]
    for shard in header.get(SHARDS, ()):
        inside = f"{SHARDS}/{shard['name']}/"
        data = read.read(f"{inside}{HEADER}")
        folders.insert(-1, (inside, parsed_header(read, f"{inside}{HEADER}", data), data))
    for inside, about, data in folders:
        other = f"{inside}{HEADER}" in sizes and write.read(f"{inside}{HEADER}") != data
        for name, entry in about["files"].items():
            if other or sizes.get(f"{inside}{name}") != entry["bytes"]:
                write.put(read, f"{inside}{name}", entry["bytes"], entry["sha256"])
                copied += 1
        if inside and (other or sizes.get(f"{inside}{HEADER}") != len(data)):
            write.write(data, f"{inside}{HEADER}")
            copied += 1
        names += len(about["files"]) + bool(inside)
    for name in [name for name in read.sizes(PLANS) if name.endswith("/rows.json")]:
        write.put(read, name)
    write.write(text, HEADER)
    say(f"{target}: {copied:,} of {names:,} files copied, the others were there")


def _at(path: str) -> RemoteFolder:
    return RemoteFolder.of(path if is_address(path) else Path(path).resolve().as_uri(), _AGAIN)


def _require_own(write: RemoteFolder, target: str, text: bytes) -> Mapping[str, int]:
    """The files of the target with their sizes. Raises `CorpusError` if they are not a part of a copy of this store."""
    if not is_address(target) and Path(target).exists() and not Path(target).is_dir():
        raise CorpusError(f"{target}: is a file. Choose another target.")
    sizes = write.sizes()
    if HEADER in sizes and write.read(HEADER) != text:
        raise CorpusError(f"{target}: already holds another store. Choose another target, or remove that store yourself.")
    expected = {HEADER, SHARDS, PLANS, *(name.split("/")[0] for name in parse_json(text)["files"])}
    strange = [name for name in sizes if name.split("/")[0] not in expected]
    if strange and HEADER not in sizes:
        raise CorpusError(f"{target}: already holds something else, such as {strange[0]}. Choose another target.")
    return sizes
