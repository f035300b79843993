"""Nothing is decided by the words of a message or the name of a class, as far as a syntax tree shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import cloze
from cloze.recipe import parts as registry

PACKAGE = Path(cloze.__file__).parent
SENTENCES = {"describe", "did_you_mean", "nearest_path", "propose"}  # functions that write sentences for people
TESTS = {
    "count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace", "rpartition", "split",
    "startswith",
}  # methods of a string by which something would be decided

_CLASS_NAMES = ("__name__", "__qualname__")
#: Attributes of objects of other packages, which are made to be assigned.
FOREIGN = {
    "FREQ": "jieba", "initialized": "jieba", "normalizer": "tokenizers", "pre_tokenizer": "tokenizers",
    "encode_special_tokens": "tokenizers", "writeable": "the flags of an array of numpy", "_cache": "numba",
    "intra_op_num_threads": "onnxruntime", "qconfig": "torch.ao", "num_embeddings": "torch.nn.Embedding",
    "__class__": "a module of torch gets a class that computes its weights", "atexit": "weakref.finalize",
    "filename": "OSError", "formatwarning": "the module warnings", "__annotations__": "typer reads them",
    "__signature__": "typer reads it",
}

_NO_NUMBER = "the errors of a package in another language have no number and no class of their own"
_NO_CLASS = "Path.resolve raises a plain RuntimeError up to Python 3.12"
_FIRST_LINE = "shows the first line; decides nothing"
#: What is left, by rule: the file and the code, and why. The list may only shrink.
LEFT: dict[str, dict[str, str]] = {
    "sentences": {
        "recipe/schema.py: describe(annotation).replace('a list of', 'lists of', 1)": "writes the plural",
    },
    "errors": {
        "runs/binds.py: str(error).replace('--bind NAME=', f'--bind {name}=')": "a table does not know its name",
        "recipe/faults.py: str(error).partition('\\n')": _FIRST_LINE,
        "decoding/scores/text_figures.py: str(error).partition('\\n')": _FIRST_LINE,
        "cli/main.py: \"can't allocate memory\" in str(error)": "torch has no class for a CPU without memory",
        "cli/main.py: os.strerror(errno.ENOSPC) in str(error)": _NO_NUMBER,
        "cli/main.py: str(error).removeprefix('Symlink loop from ')": _NO_CLASS,
        "cli/main.py: str(error).startswith('Symlink loop from ')": _NO_CLASS,
        "comparison/design.py: str(error).removeprefix(f'{recipe.name}: ')": "names the candidate instead",
        "interop/files.py: 'os error 28' in str(error)": _NO_NUMBER,
        "training/checkpoints/checkpoint.py: 'os error 28' in str(error)": _NO_NUMBER,
    },
    "parts": {
        "runs/corpora.py: text.tokenizer.name == 'words'": "tokenizers declare no members yet",
        "budget/fit_text.py: text.tokenizer.name == 'words'": "tokenizers declare no members yet",
        "runs/request.py: recipe.texts['main'].tokenizer.name == 'words'": "tokenizers declare no members yet",
        "budget/peaks.py: positions.name == 'learned'": "positions declare no members yet",
        "runs/phasing.py: positions.name == 'rotary'": "positions declare no members yet",
    },
}


class Found(NamedTuple):
    """A decision on text: the file with the code, and its line."""

    code: str
    line: int


@cache
def sources() -> dict[str, str]:
    """The text of every module of the package, by its path."""
    return {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree_of(path: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(sources()[path])


@pytest.fixture(scope="module", autouse=True)
def freed_trees() -> Iterator[None]:
    """The trees do not stay with the process."""
    yield
    tree_of.cache_clear()


def functions(tree: ast.AST) -> Iterator[ast.AST]:
    """The functions of a module, and the module for what is outside them."""
    yield tree
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def called(node: ast.AST) -> str | None:
    """The name of the function that an expression calls."""
    if not isinstance(node, ast.Call):
        return None
    return node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else None


def operands(function: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Each expression that is compared, searched or cut, with the expression that does it."""
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and not any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops):
            yield from ((operand, node) for operand in (node.left, *node.comparators))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TESTS:
            yield node.func.value, node


def named_by(function: ast.AST, is_source: object) -> set[str]:
    """The local names that are assigned an expression for which `is_source` holds."""
    assert callable(is_source)
    assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign | ast.NamedExpr | ast.AnnAssign)]
    pairs = [
        (target, node.value) for node in assigned
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return {target.id for target, value in pairs if isinstance(target, ast.Name) and value is not None and is_source(value)}


def is_sentence(node: ast.AST) -> bool:
    """Whether an expression is what a function wrote for people."""
    return called(node) in SENTENCES


def sentences(tree: ast.Module) -> Iterator[ast.AST]:
    """Tests of sentences that were written for people."""
    for function in functions(tree):
        names = set() if function is tree else named_by(function, is_sentence)
        for operand, test in operands(function):
            if is_sentence(operand) or (isinstance(operand, ast.Name) and operand.id in names):
                yield test


def lists_in_messages(tree: ast.Module) -> Iterator[ast.AST]:
    """Lists of `nearest` that a message shows as such; `propose` and `did_you_mean` write the sentence."""
    ours = any(isinstance(node, ast.ImportFrom) and node.module == "cloze.errors" and
               any(name.name == "nearest" for name in node.names) for node in ast.walk(tree))
    for node in ast.walk(tree) if ours else ():
        if isinstance(node, ast.FormattedValue) and called(node.value) == "nearest":
            yield node.value


def errors(tree: ast.Module) -> Iterator[ast.AST]:
    """Tests of the words of an error."""
    for function in functions(tree):
        caught = {node.name for node in ast.walk(function) if isinstance(node, ast.ExceptHandler) and node.name} | {"error"}

        def is_text(node: ast.AST, caught: set[str] = caught) -> bool:
            return called(node) == "str" and isinstance(node, ast.Call) and bool(node.args) and (
                isinstance(node.args[0], ast.Name) and node.args[0].id in caught
            )

        names = set() if function is tree else named_by(function, is_text)
        for operand, test in operands(function):
            if is_text(operand) or (isinstance(operand, ast.Name) and operand.id in names):
                yield test


def classes(tree: ast.Module) -> Iterator[ast.AST]:
    """Tests of the name of a class."""
    for operand, test in operands(tree):
        if isinstance(operand, ast.Attribute) and operand.attr in _CLASS_NAMES and called(operand.value) == "type":
            yield test


def parts(tree: ast.Module) -> Iterator[ast.AST]:
    """Tests whether a part has a certain name; its class declares what it is."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or not isinstance(node.left, ast.Attribute):
            continue
        if node.left.attr not in ("name", "part") or is_field(node.left.value):
            continue
        literals = [inner for operand in node.comparators for inner in
                    (operand.elts if isinstance(operand, ast.Tuple | ast.List | ast.Set) else [operand])]
        if any(isinstance(literal, ast.Constant) and literal.value in names_of_parts() for literal in literals):
            yield node


@cache
def names_of_parts() -> set[str]:
    """The names of all parts."""
    return {name for kind in registry.MODULES for name in registry.names(kind)}


def is_field(node: ast.AST) -> bool:
    """Whether an expression is a field of the batch; some parts and fields have the same names."""
    return called(node) == "find" or (isinstance(node, ast.Name) and node.id == "field")


@cache
def declared_by(cls: str) -> set[str] | None:
    """The attributes that the classes of this name in the package, and their base classes, declare or assign; None for a class of
    another package."""
    holding = [path for path, text in sources().items() if re.search(rf"(?m)^\s*class {cls}\b", text)]
    nodes = [node for path in holding for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef) and node.name == cls]
    names: set[str] = set()
    for node in nodes:
        names |= {target.attr for target in stored(node) if isinstance(target.value, ast.Name) and target.value.id == "self"}
        for inner in node.body:
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                names.add(inner.target.id)
            elif isinstance(inner, ast.Assign):
                names |= {target.id for target in inner.targets if isinstance(target, ast.Name)}
            elif isinstance(inner, ast.FunctionDef):
                names.add(inner.name)
        names = names.union(*(declared_by(base.id) or set() for base in node.bases if isinstance(base, ast.Name)))
    return names if nodes else None


@cache
def declared_somewhere() -> set[str]:
    """The attributes that some class of the package declares or assigns."""
    pattern = re.compile(r"(?m)^    (\w+): |\bself\.(\w+)\b[^\n=(]*=|^    (\w+) = |^    def (\w+)")
    return {name for text in sources().values() for names in pattern.findall(text) for name in names if name}


def stored(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Every attribute that is assigned."""
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))


def foreign_attributes(tree: ast.Module) -> Iterator[ast.AST]:
    """Attributes that are assigned to another object whose class, if the function names it, or no class else declares."""
    for function in functions(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        of = {argument.arg: argument.annotation.id for argument in (*function.args.args, *function.args.kwonlyargs)
              if isinstance(argument.annotation, ast.Name)}
        for target in stored(function):
            owner = target.value.id if isinstance(target.value, ast.Name) else None
            if owner in ("self", "cls"):
                continue
            members = declared_by(of[owner]) if owner in of else None
            if target.attr not in FOREIGN and target.attr not in (declared_somewhere() if members is None else members):
                yield target


RULES = {
    "sentences": sentences, "lists in messages": lists_in_messages, "errors": errors, "classes": classes, "parts": parts,
    "foreign attributes": foreign_attributes,
}


#: What the text of a module has if a rule can see anything in it: most modules need not be parsed.
WITH = {
    "sentences": rf"\b({'|'.join(SENTENCES)})\(", "lists in messages": r"\bnearest\(",
    "errors": r"\bstr\(error\)|except [^\n]* as (\w+):[\s\S]*\bstr\(\1\)",
    "classes": r"\)\.__(qual)?name__", "parts": r"\.(name|part) (==|!=|in|not in) ",
    "foreign attributes": r"(?m)^\s+(?!self\.|cls\.)[\w.]+\.\w+ ([-+*/|&]?=|: .*=) |, (?!self\.)\w+\.\w+ = ",
}


@pytest.mark.parametrize("rule", RULES)
def test_nothing_is_decided_on_text_and_no_attribute_is_put_on_another_object(rule: str) -> None:
    found = {
        Found(f"{path}: {ast.unparse(node)}", node.lineno)  # type: ignore[attr-defined]
        for path, text in sources().items() if re.search(WITH[rule], text) for node in RULES[rule](tree_of(path))
    }
    left = LEFT.get(rule, {})
    fresh = sorted(f"{one.code} (line {one.line})" for one in found if one.code not in left)
    assert not fresh, "ask the part, the list or the number of the error; see the docstring of this file:\n" + "\n".join(fresh)
    assert not left.keys() - {one.code for one in found}, "these are gone; delete them from LEFT, which may only shrink"


#: Code that breaks each rule.
BROKEN = {
    "sentences": "def f(name, known):\n    hint = propose(name, known)\n    return hint.startswith('Did')",
    "lists in messages": "from cloze.errors import nearest\nf'unknown. {nearest(name, known)}'",
    "errors": "def f():\n    try:\n        g()\n    except OSError as wrong:\n        return 'full' in str(wrong)",
    "classes": "type(event).__name__ == 'AliasEvent'",
    "parts": "spec.part.name in ('mask', 'delete')",
    "foreign attributes": "def f(objective: Objective) -> None:\n    objective.instead = None",
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_sees_what_breaks_it(rule: str) -> None:
    tree = ast.parse(BROKEN[rule])
    assert re.search(WITH[rule], BROKEN[rule]) and list(RULES[rule](tree))
