"""The documentation that every Python installation carries, as a corpus and as a classification task.

The text is the standard library's docstrings, read from the source files' syntax trees (no module is imported), and the
topics of `pydoc_data` (the language reference): about two megabytes of English. The task: from which package does a
docstring come?
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import sysconfig
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from cloze.errors import CorpusError

_LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "pydoc_data", "test", "tests", "idle_test", "__pycache__", "lib-dynload"}
)
_SHORTEST = 20        # characters: shorter docstrings carry no information
_PACKAGES = 10
_FEWEST_MODULES = 6   # a package with fewer cannot be split by module
_SHARE = 0.15         # of a package's docstrings that dev and test may each take
_BLOCKS = ("body", "handlers", "orelse", "finalbody")

Part = Literal["train", "dev", "test"]


class Doc(NamedTuple):
    """A piece of documentation and the package it comes from."""

    text: str
    package: str


class DocstringRecord(NamedTuple):
    """A labelled docstring of the task."""

    text: str
    package: str
    module: str
    part: Part


def python_docs() -> Iterator[Doc]:
    """Docstrings of the standard library, module by module, then the topics of the language reference.

    A document consists of the docstrings of one module, so consecutive sentences belong together. Raises
    `CorpusError` if this installation has no standard library sources.
    """
    for module, texts in _modules():
        yield Doc("\n\n".join(texts), module.split(".")[0])
    for topic in _topics():
        yield Doc(topic, "pydoc_data")


def python_docs_records() -> list[DocstringRecord]:
    """Docstrings of the ten packages that have most, split by module: no module is in two parts.

    Short docstrings and repeated ones are left out.
    """
    by_package: dict[str, dict[str, list[str]]] = {}
    seen: set[str] = set()
    for module, texts in _modules():
        fresh = [text for text in dict.fromkeys(texts) if text not in seen]
        seen.update(fresh)
        if fresh:
            by_package.setdefault(module.split(".")[0], {})[module] = fresh
    sizes = Counter(
        {
            package: sum(map(len, modules.values()))
            for package, modules in by_package.items()
            if len(modules) >= _FEWEST_MODULES
        }
    )
    records = []
    for package, _ in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:_PACKAGES]:
        for module, part in _split(by_package[package]).items():
            records += [DocstringRecord(text, package, module, part) for text in by_package[package][module]]
    return records


def _split(modules: dict[str, list[str]]) -> dict[str, Part]:
    """Deal modules in a fixed shuffled order: to dev or test where they fit into its share, else to train."""
    room = _SHARE * sum(map(len, modules.values()))
    sizes: dict[Part, int] = {"dev": 0, "test": 0}
    parts: dict[str, Part] = {}
    for module in sorted(modules, key=lambda module: hashlib.sha256(module.encode()).hexdigest()):
        emptier = min(sizes, key=lambda part: sizes[part])
        fits = sizes[emptier] + len(modules[module]) <= room
        parts[module] = emptier if fits else "train"
        if fits:
            sizes[emptier] += len(modules[module])
    return parts


def _modules() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every module with docstrings, sorted by name, with its docstrings in the order of the file."""
    root, documented = Path(sysconfig.get_path("stdlib")), False
    for path in sorted(_files(root)):
        inside = path.relative_to(root)
        texts = _docstrings(path)
        if texts:
            documented = True
            yield ".".join(inside.with_suffix("").parts).removesuffix(".__init__"), texts
    if not documented:
        raise CorpusError(f"{root}: this Python installation has no standard library sources; give a corpus of your own.")


def _files(root: Path) -> Iterator[Path]:
    """The modules below `root`, without the folders that are left out; installed packages have far more files than Python."""
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in _LEFT_OUT]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))


@cache
def _docstrings(path: Path) -> tuple[str, ...]:
    tree = _tree(path)
    texts = []
    waiting: list[ast.AST] = [] if tree is None else [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text and len(text.strip()) >= _SHORTEST:
                texts.append(text.strip())
        # Statements only: docstrings do not hide in expressions, of which there are ten times as many.
        blocks = dict(ast.iter_fields(node))
        inner = [child for name in _BLOCKS for child in blocks.get(name, ())]
        waiting += reversed(inner)
    return tuple(texts)


def _topics() -> list[str]:
    """The values of `topics = {...}`, read from the syntax tree; empty where the file is not installed."""
    path = Path(sysconfig.get_path("stdlib")) / "pydoc_data" / "topics.py"
    tree = _tree(path) if path.is_file() else None
    if tree is None:
        return []
    return [
        inspect.cleandoc(ast.literal_eval(value))
        for node in ast.walk(tree) if isinstance(node, ast.Dict)
        for value in node.values if isinstance(value, (ast.Constant, ast.BinOp, ast.JoinedStr))
    ]


def _tree(path: Path) -> ast.Module | None:
    try:
        with tokenize.open(path) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's sources
            return ast.parse(stream.read())
    except (SyntaxError, UnicodeDecodeError, ValueError, OSError):
        return None  # templates and deliberately broken files
