"""A YAML file as a tree of nodes, each of which knows its line and column.

YAML 1.2, read strictly: `1e-4` is a number, `no` stays text (it is also a language code), a repeated key, a merge key, a
tag or a second document is an error. Aliases (`&x`, `*x`) inside a file are allowed. Integer keys stay integers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from cloze.errors import MessagePiece, Parameter, RecipeError

Key = str | int

# The core schema of YAML 1.2 (§10.3.2), which knows neither `yes` and `no` nor dates nor numbers in base 60.
_null = re.compile(r"~|null|Null|NULL|")
_boolean = re.compile(r"true|True|TRUE|false|False|FALSE")
_integer = re.compile(r"[-+]?[0-9]{1,40}")  # more digits are text: no number of a recipe has them
_float = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_based: tuple[tuple[str, int], ...] = (("0o", 8), ("0x", 16))
_special = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}

DEEPEST = 60          # mappings and lists within each other
MOST_NODES = 20_000  # a file whose aliases unfold to more than this is not a recipe


@dataclass(frozen=True)
class Where:
    """A place in a file; lines and columns count from 1, line 0 means the file as a whole.

    With `numbered=False`, messages show no line, because the file is not one of the user's. `parameter`: the option that set the
    value, if no file did.
    """

    file: str
    line: int = 0
    column: int = 0
    numbered: bool = True
    parameter: Parameter | None = None

    @classmethod
    def of_override(cls, override: str) -> Where:
        """The place of a value that `path=value` sets."""
        parameter = Parameter.of_override(override)
        return cls(str(parameter), parameter=parameter)

    @property
    def as_piece(self) -> MessagePiece:
        """The place as a piece of a message."""
        return str(self) if self.parameter is None else self.parameter

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line and self.numbered else self.file


@dataclass
class Node:
    """A scalar, a list of nodes or a mapping of nodes, whose keys stand at `key_places` in the file.

    `part_kind` is the kind of a part that has been expanded to `{name: {…}}`. `shorthand_field`: of a section that a bare number
    may stand for, the field that the number sets.
    """

    value: Any
    where: Where
    key_places: dict[Key, Where] = field(default_factory=dict)
    part_kind: str | None = None
    shorthand_field: str | None = None

    @property
    def is_mapping(self) -> bool:
        """Whether the node is a mapping."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """Whether the node is a list."""
        return isinstance(self.value, list)

    def items(self) -> Iterator[tuple[Key, Node]]:
        """The pairs of a mapping; none for anything else."""
        return iter(self.value.items() if self.is_mapping else ())

    def get(self, key: Key) -> Node | None:
        """The value of a key; None where there is none, and for anything that is not a mapping."""
        return self.value.get(key) if self.is_mapping else None

    def pairs_at(self, key: Key) -> list[tuple[str, Node]]:
        """The pairs of the mapping under a key, with names as text; none where there is no mapping."""
        node = self.get(key)
        return [] if node is None else [(str(name), inner) for name, inner in node.items()]

    def items_at(self, key: Key) -> list[Node]:
        """The items of the list under a key; none where there is no list. The list is the tree's own."""
        node = self.get(key)
        return node.value if node is not None and node.is_list else []

    def put(self, key: Key, node: Node) -> None:
        """Set one value of a mapping."""
        self.value[key] = node
        self.key_places.setdefault(key, node.where)

    def place(self, key: Key) -> Where:
        """The place of a key of this mapping in the file."""
        return self.key_places.get(key, self.where)

    def plain(self) -> Any:
        """The tree as plain Python data."""
        if self.is_mapping:
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if self.is_list else self.value

    def copy(self) -> Node:
        """A tree that shares no container with this one."""
        value = self.value
        if self.is_mapping:
            value = {key: node.copy() for key, node in value.items()}
        elif self.is_list:
            value = [node.copy() for node in value]
        return Node(value, self.where, dict(self.key_places), self.part_kind, self.shorthand_field)


def from_data(data: Any, where: Where) -> Node:
    """Plain Python data (mappings, sequences, scalars) as a tree whose nodes all have one place."""
    if isinstance(data, dict):
        pairs = {key: from_data(value, where) for key, value in data.items()}
        return Node(pairs, where, dict.fromkeys(pairs, where))
    if isinstance(data, (list, tuple)):
        return Node([from_data(value, where) for value in data], where)
    return Node(data, where)


_CHECK = "Check indentation, brackets and quotes near this line."
_NO_VALUE = {"|", ">", "#"}  # YAML would read these as an empty text, or as null


def read_yaml(text: str, file: str, *, numbered: bool = True, way_out: str = _CHECK) -> Node:
    """The tree of one YAML document; anything that is not strict YAML is a `RecipeError` with file and line, and a `way_out`."""
    return _parsed(text, file, numbered, way_out).copy()


def parse_value(text: str, where: Where, *, option: str, prefix: str = "") -> Node:
    """The tree of a value on the command line: the `text` behind an `option` and a `prefix`, such as `--set` and `length=`."""
    way_out = (
        "Close every bracket and quote. Text that begins with punctuation needs quotes, which the shell must not remove:\n"
        f"  {option} '{prefix}\"{text}\"'"
    )
    if (sign := text.strip()[:1]) in _NO_VALUE:
        raise RecipeError(f"{where}: {sign!r} begins a block or a comment in YAML, not a value.\n  {way_out}")
    value = read_yaml(f"x: {text}", where.file, numbered=False, way_out=way_out).value["x"]
    if comment := _comment_of(text):
        raise RecipeError(f"{where}: YAML reads {comment!r} as a comment and leaves it out.\n  {way_out}")
    return value


def _comment_of(text: str) -> str:
    """The comment behind a value that YAML can read; empty if there is none."""
    import yaml

    if "#" not in text:
        return ""
    content = (yaml.ScalarEvent, yaml.SequenceEndEvent, yaml.MappingEndEvent)
    end = max(event.end_mark.index for event in yaml.parse(text, yaml.SafeLoader) if isinstance(event, content))
    return text[end:].strip()


@lru_cache(maxsize=256)  # more than there are built-in recipes
def _parsed(text: str, file: str, numbered: bool, way_out: str) -> Node:
    """The tree of a text, cached: one run reads its recipe a dozen times, and parsing takes most of the time."""
    import yaml

    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        return _Composer(yaml.parse(text, loader), file, numbered=numbered).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = Where(file, mark.line + 1, mark.column + 1, numbered) if mark else Where(file)
        why = " ".join(str(reason) for reason in (error.context, error.problem) if reason)
        raise RecipeError(f"{where}: not YAML: {why}.\n  {way_out}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else (str(error).splitlines() or ["unreadable"])[0]
        raise RecipeError(f"{file}: not YAML: {reason}.") from None


def read_plain(path: Path) -> Any:
    """The plain data of a YAML file; anything else is a `RecipeError`."""
    return read_yaml(read_text(path), str(path)).plain()


def read_text(path: Path) -> str:
    """The text of a YAML file; a `RecipeError` if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: not UTF-8 text (byte {error.start}). A recipe is a YAML file.\n"
                          f"  Convert it, such as: iconv -f LATIN1 -t UTF-8 {path} > NEW") from None


class _Composer:
    """Builds nodes from the events of libyaml and enforces the strict rules of the language."""

    def __init__(self, events: Iterator[Any], file: str, *, numbered: bool) -> None:
        from yaml import events as kinds

        self._events = events
        self._alias_kind = kinds.AliasEvent
        self._ends = kinds.CollectionEndEvent
        self._around = (kinds.StreamStartEvent, kinds.StreamEndEvent, kinds.DocumentStartEvent, kinds.DocumentEndEvent)
        self._builders: dict[type, Callable[[Any], Node]] = {
            kinds.ScalarEvent: self._scalar, kinds.SequenceStartEvent: self._list, kinds.MappingStartEvent: self._mapping,
        }
        self._file = file
        self._numbered = numbered
        self._anchors: dict[str, Node | None] = {}
        self._count = 0
        self._depth = 0

    def document(self) -> Node:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, self._around):
                continue
            if root is not None:
                raise self._error(event, "a second YAML document begins here", "A file holds one recipe.")
            root = self._node(event)
        if root is None or root.value is None:
            raise RecipeError(f"{self._file}: the file is empty. Start from `cloze show bert`.")
        return root

    def _node(self, event: Any) -> Node:
        self._count += 1
        if isinstance(event, self._alias_kind):
            return self._alias(event)
        if event.tag is not None:
            raise self._error(event, f"the tag {event.tag} is not part of the recipe language", "Leave it out.")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._error(event, f"lists and mappings are nested more than {DEEPEST} deep", "Flatten the file.")
        node = self._builders[type(event)](event)
        self._depth -= 1
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            raise self._error(event, f"the alias *{event.anchor} has no anchor before it", f"Write &{event.anchor} first.")
        node = self._anchors[event.anchor]
        if node is None:
            raise self._error(event, f"the alias *{event.anchor} is inside its own anchor", "Write it out.")
        self._count += _size(node)
        if self._count > MOST_NODES:
            raise self._error(event, f"aliases unfold to more than {MOST_NODES} values", "Write a smaller file.")
        return node.copy()

    def _scalar(self, event: Any) -> Node:
        plain = event.style is None or event.style == ""
        return Node(_scalar(event.value) if plain else event.value, self._where(event))

    def _list(self, event: Any) -> Node:
        items: list[Node] = []
        for inner in self._events:
            if isinstance(inner, self._ends):
                break
            items.append(self._node(inner))
        return Node(items, self._where(event))

    def _mapping(self, event: Any) -> Node:
        pairs: dict[Key, Node] = {}
        keys: dict[Key, Where] = {}
        for inner in self._events:
            if isinstance(inner, self._ends):
                break
            key = self._node(inner)
            if key.value == "<<" and not inner.style:  # quoted, it is a key like any other
                raise self._error(inner, "merge keys (<<) are not part of the recipe language", "Write the keys out.")
            if isinstance(key.value, bool) or not isinstance(key.value, (str, int)):
                raise self._error(inner, f"a key must be text or a whole number, not {key.plain()!r}", "Quote it.")
            if key.value in pairs:
                before = keys[key.value].line
                raise self._error(inner, f"the key {key.value!r} is repeated (first on line {before})", "Keep one.")
            keys[key.value] = key.where
            pairs[key.value] = self._node(next(self._events))
        return Node(pairs, self._where(event), keys)

    def _where(self, event: Any) -> Where:
        return Where(self._file, event.start_mark.line + 1, event.start_mark.column + 1, self._numbered)

    def _error(self, event: Any, what: str, way_out: str) -> RecipeError:
        return RecipeError(f"{self._where(event)}: {what}.\n  {way_out}")


def _scalar(text: str) -> Any:
    if _null.fullmatch(text):
        return None
    if _boolean.fullmatch(text):
        return text[0] in "tT"
    if _integer.fullmatch(text):
        return int(text)
    if _float.fullmatch(text):
        return float(text)
    for prefix, base in _based:
        if text.startswith(prefix) and re.fullmatch(r"[0-9a-fA-F]{1,32}", text[2:]):
            try:
                return int(text[2:], base)
            except ValueError:  # a digit that base 8 does not have
                return text
    return _special.get(text.lower(), text)


def _size(node: Node) -> int:
    inner = node.value.values() if node.is_mapping else node.value if node.is_list else ()
    return 1 + sum(_size(child) for child in inner)
