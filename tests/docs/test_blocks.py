"""Every code block of every page: commands can be parsed and name files that there are, recipes are read, Python compiles.

The pages of `RUN_WHOLE` are also run from top to bottom by tests of their own, and the blocks of the others by test_excerpts.py.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from cloze.cli.commands import COMMANDS, load_command
from cloze.document import read_yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "benchmarks").glob("*.md")]
    + [*(ROOT / "docs").rglob("*.md"), *(ROOT / "reproductions").glob("*.md")]
)
#: Programs in shell blocks that are neither cloze nor scripts of the repository.
OTHERS = {"wikiextractor", "torchrun", "sed"}
PLACEHOLDERS = ("…", "...", "[--")


class Block(NamedTuple):
    """A fenced block of a page: its place, its language and its code."""

    place: str
    language: str
    code: str


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, also indented ones."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(f"{page.relative_to(ROOT)}:{line}", found[2], found[3])


BLOCKS = [block for page in PAGES for block in blocks(page)]


def command_lines(block: Block) -> Iterator[str]:
    """The commands of a block: lines that begin with a program's name or `$`, with their continuations."""
    for line in block.code.replace("\\\n", " ").splitlines():
        line = line.strip().removeprefix("$ ")
        if re.match(r"(?:cloze|python|make|torchrun|wikiextractor) \S", line):
            yield line


def inline_commands(page: Path) -> Iterator[str]:
    """Commands in the prose and the tables of a page that are written whole."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for found in re.findall(r"`(cloze [^`]+)`", text):
        yield " ".join(found.split())


def fault_of_command(line: str) -> str | None:
    """Why a line cannot be run, as far as parsing tells; None for one with a placeholder."""
    try:
        words = [word for word in shlex.split(line.split(" | ")[0], comments=True) if word not in ("&", ";")]
    except ValueError as error:
        return str(error)
    program, *rest = words
    if program == "make":
        return None if re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE) else "no target"
    if program == "python":
        return None if rest[0].startswith("-") or (ROOT / rest[0]).is_file() else "no such script"
    if program != "cloze":
        return None if program in OTHERS else "an unknown program"
    return fault_of_arguments(rest)


def fault_of_arguments(words: list[str]) -> str | None:
    """Why cloze would refuse these words; nothing is run, and placeholders are left out."""
    words = [word for word in words if not any(mark in word for mark in PLACEHOLDERS)]
    if words[0] in ("--help", "--version", "--show-completion"):
        return None
    if words[0] not in COMMANDS:
        return f"no verb {words[0]}"
    command: Any = get_command(load_command(words[0]))
    rest = words[1:]
    while hasattr(command, "commands") and rest:
        if rest[0] not in command.commands:
            return f"{words[0]}: no command {rest[0]}"
        command, rest = command.commands[rest[0]], rest[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    unknown = [word for word in rest if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]
    return f"unknown options: {unknown}" if unknown else None


def test_every_command_of_the_pages_has_a_verb_options_and_files_that_there_are() -> None:
    faults = [
        f"{block.place}: {line}: {fault}" for block in BLOCKS if block.language in ("", "sh", "text")
        for line in command_lines(block) if (fault := fault_of_command(line)) is not None
    ]  # fmt: skip
    assert faults == []


def test_every_command_in_the_prose_of_the_pages_has_a_verb_and_options_that_there_are() -> None:
    faults = [
        f"{page.relative_to(ROOT)}: {line}: {fault}" for page in PAGES for line in inline_commands(page)
        if (fault := fault_of_command(line)) is not None
    ]  # fmt: skip
    assert faults == []


def test_every_other_block_of_the_pages_is_read() -> None:
    faults = []
    for block in BLOCKS:
        try:
            if block.language == "yaml":
                read_yaml(block.code, block.place)
            elif block.language == "json":
                _ = [json.loads(line) for line in block.code.splitlines()]
            elif block.language == "python":
                compile(block.code, block.place, "exec")
            else:
                assert block.language in ("", "sh", "text", "pycon"), f"a block of an unknown kind: {block.language}"
        except Exception as error:  # whatever it is, it is a fault of the page
            faults.append(f"{block.place}: {error}")
    assert faults == []


@pytest.mark.parametrize(("line", "fault"), [
    ("cloze pretrian bert --corpus TEXT", "no verb pretrian"),
    ("cloze pretrain bert --corpos TEXT", "unknown options: ['--corpos']"),
    ("cloze corpus bild TEXT", "corpus: no command bild"),
    ("make dcos", "no target"),
    ("python benchmarks/nothing.py", "no such script"),
    ("cloze pretrain bert --corpus TEXT …  # a comment with --nothing", None),
])  # fmt: skip
def test_a_command_that_cannot_run_is_noticed(line: str, fault: str | None) -> None:
    assert fault_of_command(line) == fault
