"""The error tree. Every message says where, what was given, what was expected and the way out.

ClozeError                 anything cloze reports to a person; never shown as a traceback
├── UserError              the input is wrong (exit code 2)
│   ├── RecipeError        a recipe: syntax, unknown or ill-typed keys, fields that do not match
│   │   └── UnknownPart    a part that no code has registered
│   ├── CorpusError        text files and token stores
│   ├── CheckpointError    run folders and Hugging Face folders
│   ├── TaskError          task files and labels
│   ├── BudgetError        budget strings
│   ├── DeviceError        a device or a precision that is not there
│   └── MissingExtra       an optional package is not installed
└── RunError               the work itself failed (exit code 1): disk full, loss not finite
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

#: Prints one line for the user, as `print` does.
Say = Callable[[str], None]


@dataclass(frozen=True)
class Parameter:
    """A parameter that a message names, with a value for it. A front end writes it in its own way (`spelled_by`).

    By itself it is written in its `style`: a value of the recipe, an option of the command line, an argument in Python, or the
    `value` alone. A tuple is a list. `quoted`: a shell needs quotes around a value of the recipe.

    >>> for style in ("set", "option", "argument"):
    ...     print(Parameter("corpus.columns", ("A", "B"), style))
    --set corpus.columns=[A,B]
    --columns A,B
    columns=[A,B]
    """

    path: str
    value: str | tuple[str, ...] | None = None
    style: Literal["set", "option", "argument", "words"] = "set"
    quoted: bool = False

    @classmethod
    def of_override(cls, override: str) -> Parameter:
        """The value of the recipe that `path=value` sets."""
        path, equals, value = override.partition("=")
        return cls(path, value if equals else None)

    @property
    def key(self) -> str:
        """The last step of the path."""
        return self.path.rpartition(".")[2]

    @property
    def assignment(self) -> str:
        """As `path=value`, with quotes if a shell needs them; the path alone without a value."""
        text = self.path if self.value is None else f"{self.path}={self._value}"
        return f"'{text}'" if self.quoted else text

    @property
    def _value(self) -> str:
        return f"[{','.join(self.value)}]" if isinstance(self.value, tuple) else self.value or ""

    def __str__(self) -> str:
        plain = ",".join(self.value) if isinstance(self.value, tuple) else self._value
        if self.style == "set":
            return f"--set {self.assignment}"
        if self.style == "option":
            return f"--{self.key.replace('_', '-')} {plain}".rstrip()
        return plain if self.style == "words" else self.key if self.value is None else f"{self.key}={self._value}"

    def sibling(self, name: str, value: str | tuple[str, ...]) -> Parameter:
        """The parameter of another name in the same section of the recipe, written alike; one in words has options next to it.

        >>> str(Parameter("corpus.text", "NAME").sibling("format", "tsv"))
        '--set corpus.format=tsv'
        """
        section, dot, _ = self.path.partition(".")
        return Parameter(f"{section}.{name}" if dot else name, value, "option" if self.style == "words" else self.style)


@dataclass(frozen=True)
class Phrase:
    """A piece of a message that names a parameter, with the text around it, which a front end may write in another way."""

    before: str
    parameter: Parameter
    after: str = ""

    def __str__(self) -> str:
        return self.naming(self.parameter)

    def naming(self, parameter: object) -> str:
        """The phrase with its parameter written like this."""
        return f"{self.before}{parameter}{self.after}"


#: A piece of a message.
MessagePiece = str | Phrase | Parameter

#: How a front end writes a phrase; None: as it is.
Spelling = Callable[[Phrase], str | None]


def argument(name: str, value: str | None = None) -> Parameter:
    """An argument in Python, and a value for it."""
    return Parameter(name, value, "argument")


def text_in(store: Path) -> Parameter:
    """The text that is stored in a folder: a run names what the user gave, by itself it is the folder."""
    return Parameter("store", str(store), "words")


class ClozeError(Exception):
    """An error that a user can fix: its message says what is wrong and what to do. The command line exits with `exit_code`."""

    exit_code = 1


class UserError(ClozeError):
    """What was given is wrong; nothing has been written. The message consists of texts, and of phrases that name parameters."""

    exit_code = 2

    def __init__(self, *pieces: MessagePiece) -> None:
        super().__init__(*(Phrase("", piece) if isinstance(piece, Parameter) else piece for piece in pieces))
        self._spellings: list[Spelling] = []

    def spell(self, spelling: Spelling) -> None:
        """Write the phrases like this from now on, except those that an earlier spelling writes."""
        self._spellings.append(spelling)

    def __str__(self) -> str:
        return "".join(map(self._spelled, self.args))

    def _spelled(self, piece: object) -> str:
        texts = (spelling(piece) for spelling in self._spellings) if isinstance(piece, Phrase) else ()
        return next((text for text in texts if text is not None), str(piece))


class RecipeError(UserError):
    """One or more faults of a recipe, collected and printed together."""


class UnknownPart(RecipeError):
    """A part that no code has registered; `kind` and `name` are those that were asked for."""

    def __init__(self, kind: str, name: str, choices: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}. {propose(name, choices)}")
        self.kind, self.name = kind, name


class CorpusError(UserError):
    """A text file or a token store that cannot be used."""


class CheckpointError(UserError):
    """A run folder or a Hugging Face folder that cannot be used."""


class TaskError(UserError):
    """A task file, a column or a label that cannot be used."""


class BudgetError(UserError):
    """A budget that cannot be read or spent."""


class DeviceError(UserError):
    """A device or a precision that this machine does not have."""


class RunError(ClozeError):
    """The work failed although the input was right."""


class MissingExtra(UserError):
    """An optional package is needed: names the extra that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed.\n"
            f'  Install it with: pip install "cloze-lm[{extra}]"'
        )


def hidden_error(error: AttributeError) -> AttributeError:
    """The error of a property's own code, where torch reports that the property is missing.

    Python looks an attribute up a second time if a property raises AttributeError, and `nn.Module.__getattr__` then says that
    the module has no attribute of the property's name.
    """
    getter = inspect.getattr_static(type(error.obj), error.name, None) if error.name else None
    if isinstance(getter, property) and getter.fget is not None:
        try:
            getter.fget(error.obj)
        except AttributeError as inner:
            return hidden_error(inner)
    return error


def nearest_path(missing: Path) -> str:
    """A sentence that names the files most like a missing path, or all files of its folder if they are few; else nothing."""
    if not missing.parent.is_dir():
        return f"The folder {missing.parent} is not there either."
    names = sorted(path.name for path in missing.parent.iterdir())
    if close := nearest(missing.name, names):
        return did_you_mean(close)
    if len(names) > 16:
        return ""
    return f"In its folder: {', '.join(names)}." if names else "Its folder is empty."


def nearest(name: str, choices: Iterable[str]) -> list[str]:
    """The `choices` closest to `name`, the best first: three at most, and none if none is similar."""
    return get_close_matches(str(name), sorted(set(choices)), n=3, cutoff=0.55)


def did_you_mean(names: Sequence[str]) -> str:
    """The question that offers names, such as those of `nearest`; nothing without names.

    >>> did_you_mean(["mask", "match"]), did_you_mean([])
    ("Did you mean 'mask' or 'match'?", '')
    """
    return f"Did you mean {_either(names)}?" if names else ""


def propose(name: str, choices: Iterable[str]) -> str:
    """A sentence naming the `choices` closest to `name`, or all of them when they are few."""
    names = sorted(set(choices))
    if close := nearest(name, names):
        return did_you_mean(close)
    if len(names) <= 16:
        return f"Known: {', '.join(names) or 'none'}."
    return f"No known name is similar; there are {len(names)}, such as {', '.join(names[:5])}."


def require_table(path: str, name: str, tables: Iterable[str]) -> None:
    """A `RecipeError` if a part, whose `path` in the recipe is given, names a look-up table that is not among `tables`."""
    names = tuple(tables)
    if name not in names:
        raise RecipeError(f"{path}: there is no table {name!r}. {propose(name, names)}")


def _either(names: Sequence[str]) -> str:
    """Names to choose from: 'a', 'b' or 'c'."""
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}" if first else last


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "record"), counted(2400, "class")
    ('1 record', '2,400 classes')
    """
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def sized(number: float) -> str:
    """Bytes in a unit that suits them.

    >>> sized(238_025), sized(15e11)
    ('238 kB', '1.5 TB')
    """
    unit, power = next((pair for pair in (("TB", 12), ("GB", 9), ("MB", 6)) if number >= 10 ** pair[1]), ("kB", 3))
    return f"{number / 10**power:.3g} {unit}"


@contextmanager
def spelled_by(spelling: Spelling) -> Iterator[None]:
    """Inside the block, a front end says how the messages of errors write the phrases that name parameters.

    >>> with spelled_by(lambda phrase: phrase.naming("--text NAME")):
    ...     raise UserError("no column 'text'.", Phrase(" Choose one with ", Parameter("corpus.text", "NAME"), "."))
    Traceback (most recent call last):
    cloze.errors.UserError: no column 'text'. Choose one with --text NAME.
    """
    try:
        yield
    except UserError as error:
        error.spell(spelling)
        raise
