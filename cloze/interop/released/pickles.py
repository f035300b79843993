"""Reading lists of words that others pickled.

A pickle is a program, and Python's `pickle` runs whatever it names. This reader builds one list of strings, and refuses every
other instruction. State dictionaries are read by `cloze.interop.pickled`.
"""

from __future__ import annotations

import pickletools
from pathlib import Path
from typing import Any

from cloze.errors import CheckpointError

_MOST_BYTES = 1 << 28  # of a list of words: 256 MB, a hundred times the largest released one
_STRINGS = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"})
_KEPT = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_FETCHED = frozenset({"GET", "BINGET", "LONG_BINGET"})
_NOTHING = frozenset({"PROTO", "FRAME"})
_MARK = object()


def read_words(path: Path) -> list[str]:
    """The list of strings that a pickle holds (fastai's `itos.pkl`). Anything else in it is a `CheckpointError`."""
    if not path.is_file():
        raise CheckpointError(f"{path}: not an ordinary file; expected a pickled list of words.")
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise _refused(path, f"{size:,} bytes")
    try:
        words = _machine(path, path.read_bytes())
    except CheckpointError:
        raise
    except (ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: not a whole pickle ({error}); expected a list of words. Copy the file again.") from None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _refused(path, f"a {type(words).__name__} in which not everything is a word")
    return words


def _machine(path: Path, data: bytes) -> Any:
    """What a pickle of strings and lists leaves on the stack."""
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for code, argument, _ in pickletools.genops(data):
        name = code.name
        if name in _STRINGS:
            stack.append(argument)
        elif name in ("EMPTY_LIST", "MARK"):
            stack.append([] if name == "EMPTY_LIST" else _MARK)
        elif name in ("APPENDS", "LIST"):
            start = len(stack) - 1 - stack[::-1].index(_MARK)
            items = stack[start + 1 :]
            del stack[start:]
            if name == "LIST":
                stack.append(items)
            else:
                _list(stack).extend(items)
        elif name == "APPEND":
            item = stack.pop()
            _list(stack).append(item)
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in _KEPT:
            memo[argument] = stack[-1]
        elif name in _FETCHED:
            stack.append(memo[argument])
        elif name == "STOP":
            return stack[-1]
        elif name not in _NOTHING:
            raise _refused(path, f"the instruction {name}")
    raise ValueError("it does not end")


def _list(stack: list[Any]) -> list[Any]:
    if not isinstance(stack[-1], list):
        raise ValueError("it appends to what is no list")
    return stack[-1]


def _refused(path: Path, content: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: holds {content}; expected a pickled list of words and nothing else, because a pickle can run any code.\n"
        "  If you trust it, save the words again: "
        f"import pickle; words = list(map(str, pickle.load(open({path.name!r}, 'rb')))); "
        f"pickle.dump(words, open({path.name!r}, 'wb'))"
    )
