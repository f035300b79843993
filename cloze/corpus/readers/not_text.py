"""Folders that cloze and transformers write: their files look like text and must never be read as a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from cloze.errors import CorpusError

STORE_FILE = "store.json"
GRAPH_FILE = "graph.json"
_RUN_FILES = ("run.json", "recipe.yaml")  # in the folder `cloze/` of a run, of a checkpoint, of an exported folder
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "tf_model.h5", "*.msgpack")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


class NonTextFolder(NamedTuple):
    """A folder that holds no text, and what it is."""

    kind: str
    path: Path


def what_is(folder: Path) -> str:
    """The kind of a folder: "a token store", "a knowledge graph", "a run folder", "a checkpoint" or "a tokenizer folder"; empty
    for any other."""
    if (folder / STORE_FILE).is_file():
        return "a token store"
    if (folder / GRAPH_FILE).is_file() and (folder / "triples.bin").is_file():
        return "a knowledge graph"
    if any((folder / "cloze" / name).is_file() for name in _RUN_FILES):
        return "a run folder" if (folder / "cloze" / _RUN_FILES[0]).is_file() else "a checkpoint"
    if (folder / "config.json").is_file() and any(True for pattern in _WEIGHTS for _ in folder.glob(pattern)):
        return "a checkpoint"
    return "a tokenizer folder" if any((folder / name).is_file() for name in _TOKENIZER_FILES) else ""


def refuse_made(folder: Path, files: Iterable[Path]) -> None:
    """A `CorpusError` if a folder, or one inside it that holds some of these `files`, was written by cloze or transformers."""
    inside = {parent for file in files for parent in file.parents if parent == folder or folder in parent.parents}
    for path in sorted({folder, *inside}, key=lambda path: (len(path.parts), path)):
        if kind := what_is(path):
            raise CorpusError(_message(folder, NonTextFolder(kind, path)))


def require_apart(paths: Sequence[str | Path], out: Path) -> None:
    """A `CorpusError` if `out` lies inside a folder of text: what is written there would be part of the text."""
    target = out.resolve()
    for path in map(Path, paths):
        if path.is_dir() and not what_is(path) and target.is_relative_to(path.resolve()):
            raise CorpusError(
                f"{out}: lies inside the corpus {path}, where its files would become part of the text.\n"
                f"  Choose an --out elsewhere, or name the text files: '{path / '*.txt'}'"
            )


def _message(path: Path, folder: NonTextFolder) -> str:
    is_itself = folder.path == path
    what = f"is {folder.kind}, not text" if is_itself else f"holds {folder.kind}, {folder.path}, which is not text"
    if folder.kind == "a token store":
        way_out = f"To read the store, give its path: {folder.path}"
        if is_itself:
            way_out = "Give one store alone, without other paths."
    elif folder.kind == "a knowledge graph":
        way_out = f"To train vectors of its entities: cloze pretrain transe --corpus {folder.path} --out KG"
    elif folder.kind == "a run folder":
        stores = sorted(file.parent for file in (folder.path / "cloze" / "corpus").rglob(STORE_FILE))
        way_out = f"To read the text that it was trained on, give its token store: {stores[0]}" if stores else "Give text files."
    elif folder.kind == "a checkpoint":
        init, tokenizer = f"--init {folder.path}", f"--tokenizer {folder.path}"
        way_out = f"cloze pretrain {init} starts from its weights, and {tokenizer} uses its tokenizer."
    else:
        way_out = f"To use this tokenizer: --tokenizer {folder.path}"
    pattern = "" if is_itself else f"\n  To read text files in this folder, name them: '{path / '*.txt'}'"
    return f"{path}: {what}.\n  {way_out}{pattern}"
