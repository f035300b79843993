"""What the code cites is there: documents of the repository, and for every field of the ledger someone who gives and takes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloze import fields

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sorted((ROOT / "cloze").rglob("*.py"))
TEXTS = [*PYTHON, *sorted((ROOT / "cloze" / "recipes").rglob("*.yaml")), *sorted((ROOT / "tests").rglob("*.py"))]

#: A path in one of the repository's own folders of documents. Files that a run writes are under `cloze/`.
PATH = re.compile(r"\b(?:docs|benchmarks|reproductions|tests)/[\w./*-]*\w")
#: A document named by capitals, with a section or an ending. A section of a system's paper (BERT §3.1) is none of ours.
DOCUMENT = re.compile(r"\b(DESIGN|PLAN|SPECS?|CALIBRATION)(?=,? §)|\b([A-Z]{5,})\.md\b")


def without(path: str, stands: Path) -> bool:
    """Whether a path that is cited leads nowhere, from the repository or from the folder of the citing file."""
    return not any(list(start.glob(path)) for start in (ROOT, stands.parent))


@pytest.mark.parametrize("folder", ["cloze", "tests"])
def test_documents_that_are_cited_are_in_the_repository(folder: str) -> None:
    gone = []
    for file in TEXTS:
        if file.relative_to(ROOT).parts[0] != folder or file == Path(__file__).resolve():
            continue
        text = file.read_text(encoding="utf-8")
        named = [m[0] for m in DOCUMENT.finditer(text) if not (ROOT / f"{m[1] or m[2]}.md").is_file()]
        paths = [m[0] for m in PATH.finditer(text) if "NAME" not in m[0] and without(m[0], file)] if folder == "cloze" else []
        gone += [f"{file.relative_to(ROOT)}: {cited}" for cited in (*named, *paths)]
    assert not gone


# ---- the ledger ------------------------------------------------------------------------------------------------------


def literals(folders: tuple[str, ...]) -> Iterator[str]:
    """Every text in the code of some packages, f-strings up to their first hole."""
    for folder in folders:
        for file in sorted((ROOT / "cloze" / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def looked_up(folder: str) -> set[str]:
    """What the code of a package looks up by a constant name: `arrays["document"]`."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "cloze" / folder).rglob("*.py")]
    reads = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    keys = [node.slice for node in reads if isinstance(node.ctx, ast.Load)]
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def taken_in_recipes() -> set[str]:
    """The fields that passes of the recipes take from states."""
    found = set()
    for file in (ROOT / "cloze" / "recipes").glob("*.yaml"):
        for taken in re.findall(r"take: \{(.*?)\}", file.read_text(encoding="utf-8")):
            found |= set(re.findall(r"(\w+): \w+\.\w+", taken))
    return found


def named(folders: tuple[str, ...]) -> set[str]:
    """The fields that the code of some packages names, with or without a view and a set."""
    pattern = re.compile(r"(?:\w*\.)?(\w+)(?:/\w*)?")
    found = {match[1] for text in literals(folders) if (match := pattern.fullmatch(text))}
    return found & {field.name for field in fields.ledger()}


def test_every_field_of_the_ledger_has_a_giver_and_a_taker() -> None:
    given = named(("corpus", "exercises", "batching", "objectives")) | taken_in_recipes()
    reach = named(("networks", "objectives"))
    inside = named(("exercises", "batching")) | looked_up("corpus")
    lonely = {
        field.name: [word for word, known in (("giver", given), ("taker", reach if field.travels else inside))
                     if field.name not in known]
        for field in fields.ledger()
    }
    assert {name: lacks for name, lacks in lonely.items() if lacks} == {}
