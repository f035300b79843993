"""The `cloze` executable: finds the command, loads only its module, turns errors into up to three lines and an exit code.

Exit codes: 0 done, 1 the work failed, 2 the input was wrong, 130 interrupted, 143 terminated. `CLOZE_DEBUG=1`
shows the traceback.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from cloze.cli.commands import COMMANDS, load_command, overview, parser_of
from cloze.errors import ClozeError, UserError, did_you_mean, propose
from cloze.untrusted import guard_terminal, visible

_format_as_python = warnings.formatwarning
_FEWER_ROWS = "Read fewer rows at once: --set training.micro_batch=N"
_SMALLER_BATCH = "Read fewer texts at once: --batch N"
_RESUMING = frozenset({"pretrain", "finetune", "best", "compare", "sweep"})
#: What takes less memory, for the commands that have an option for it.
LESS_MEMORY = {
    "pretrain": f"{_FEWER_ROWS}. Or use shorter rows (--set length=N) or a smaller --size.",
    "finetune": f"{_FEWER_ROWS}. Or read fewer tokens of each text: --set length=N",
    "compare": f"{_FEWER_ROWS}, or --tune training.micro_batch=N for fine-tuning. Or use a smaller --size.",
    "sweep": f"{_FEWER_ROWS}. Or use a smaller --size.",
    **dict.fromkeys(("augment", "evaluate", "predict", "retrieve"), f"{_SMALLER_BATCH}."),
    **dict.fromkeys(("embed", "probe"), f"{_SMALLER_BATCH}. Or read fewer tokens of each text: --length N"),
    "speed": "Measure smaller --batch and --lengths.",
    "score": "Read fewer tokens at once: --max-length N, or --segment N for streams.",
    "generate": "Write fewer texts at once (one prompt, --count 1), or fewer --tokens.",
    "look": "Read fewer tokens: --length N.",
}


#: By command, values of the recipe that other programs have as options. The epochs of a task are its budget.
_SETTINGS = {
    "finetune": {
        "--budget": "training.epochs=N", "--epochs": "training.epochs=N", "--batch": "training.batch=N",
        "--batch-size": "training.batch=N", "--lr": "training.rate.peak=X", "--learning-rate": "training.rate.peak=X",
    },
}


def run(arguments: list[str]) -> None:
    """Run one command line; errors propagate."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return
    if arguments[0] in ("-V", "--version"):
        from cloze.version import __version__

        print(f"cloze {__version__}")
        return
    if arguments[0] == "--show-completion":
        from cloze.cli.completion import script

        print(script(arguments[1] if len(arguments) > 1 else ""), end="")
        return
    name, *rest = arguments
    command = parser_of(load_command(name))
    require_usage(command, name, rest)  # parses the options once for an error in our form; `main` parses them again
    command.main(args=rest, prog_name=f"cloze {name}")


def require_usage(command: Any, name: str, arguments: list[str]) -> None:
    """A `UserError` for an option that a command does not have, lacks or cannot read, in the form of all other errors.

    Exceptions are recognised by their attributes, because typer re-exports click's classes under names that change between
    versions.
    """
    commands = getattr(command, "commands", {})
    inner = commands.get(arguments[0]) if arguments else None
    if commands and inner is None and arguments and not arguments[0].startswith("-"):
        raise UserError(f"unknown command {arguments[0]!r}. {propose(arguments[0], commands)}\n  More: cloze {name} --help")
    if inner is not None:
        require_usage(inner, f"{name} {arguments[0]}", arguments[1:])
        return
    if hasattr(command, "commands") or "--help" in arguments or "-h" in arguments:
        return
    try:
        command.make_context(f"cloze {name}", list(arguments)).close()
    except Exception as error:
        if not hasattr(error, "format_message"):  # an option that prints something and ends; the command itself sees to it
            return
        param: Any = getattr(error, "param", None)
        missing = param is not None and hasattr(error, "param_type")  # the error of an argument that is not there
        message = _missing(param) if missing else error.format_message()
        option = getattr(error, "option_name", "")
        if setting := _SETTINGS.get(name, {}).get(option):
            message = f"No such option: {option}. The recipe has this value: --set {setting}"
        elif similar := getattr(error, "possibilities", None):
            names = command.proposed(sorted(similar), arguments)
            message = f"No such option: {option}" + (f". {did_you_mean(names)}" if names else "")
        raise UserError(f"{message}\n  All options: cloze {name} --help") from None


def _missing(param: Any) -> str:
    """What is missing, and what it is for."""
    name = param.opts[0] if param.opts[0].startswith("-") else (param.metavar or param.opts[0].upper())
    about = str(getattr(param, "help", None) or "").rstrip(".")
    return f"{name} is missing{f': {about[:1].lower()}{about[1:]}' if about else ''}."


def is_disk_full(error: BaseException) -> bool:
    """Whether an error means that no space is left."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return os.strerror(errno.ENOSPC) in str(error)  # safetensors, torch and tokenizers raise errors without a number


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory is short; torch has a class of its own for a GPU and none for a CPU."""
    torch = sys.modules.get("torch")  # what has not been imported has raised nothing
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return "can't allocate memory" in str(error)


def fault_of_user_code(error: BaseException) -> str | None:
    """What is wrong in a part that the user wrote (`--with FILE`), with file and line; None if the fault is not there."""
    from cloze.errors import hidden_error
    from cloze.registry import USER_MODULE

    if isinstance(error, AttributeError):
        error = hidden_error(error)
    message = f"{type(error).__name__}: {error}"
    frames = [frame for frame in traceback.walk_tb(error.__traceback__)
              if str(frame[0].f_globals.get("__name__", "")).startswith(USER_MODULE)]
    if frames:
        frame, line = frames[-1]
        return f"{frame.f_code.co_filename}:{line}: in {frame.f_code.co_name}: {message}\n  CLOZE_DEBUG=1 shows the traceback."
    owner = error.obj if isinstance(error, AttributeError) else None  # what lacks it
    kind = owner if isinstance(owner, type) else type(owner)
    if isinstance(error, AttributeError) and kind.__module__.startswith(USER_MODULE):
        import inspect

        location = f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
        return f"{location}: {kind.__name__} has no {error.name!r}, which parts of its kind must have. See CONTRIBUTING.md."
    return None


def describe_error(error: BaseException, name: str = "") -> tuple[str, int]:
    """The message and the exit code for an error that reached the top of the command `name`."""
    if isinstance(error, ClozeError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if is_disk_full(error):
        location = f" while writing {file}" if isinstance(error, OSError) and (file := error.filename) else ""
        resumes = " It continues from its last checkpoint, if it has written one." if name in _RESUMING else ""
        return f"disk full{location}. Free some space and run the same command again.{resumes}", 1
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {(error.strerror or str(error)).lower()}.", 2
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop from "):  # Path.resolve, up to Python 3.12
        return f"{str(error).removeprefix('Symlink loop from ')}: its links lead in a circle.", 2
    if (fault := fault_of_user_code(error)) is not None:
        return fault, 2
    if is_out_of_memory(error):
        return f"out of memory. {LESS_MEMORY.get(name, 'Read fewer or shorter texts at once, or use a smaller network.')}", 1
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] != "cloze":
        return (
            f"the package {error.name.partition('.')[0]} is not installed in this Python ({sys.executable}).\n"
            "  Run cloze from the environment in which it was installed, or reinstall it here: pip install cloze-lm"
        ), 2
    return (
        f"unexpected {type(error).__name__}: {error}\n"
        "  This is a bug in cloze. CLOZE_DEBUG=1 shows the traceback; please report it together with the command."
    ), 1


def as_note(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """A warning of cloze as one line; that of another package as Python prints it."""
    from_cloze = Path(__file__).parents[1] in Path(filename).parents
    return f"note: {message}\n" if from_cloze else _format_as_python(message, category, filename, lineno, line)


def main(arguments: list[str] | None = None) -> int:
    """Entry point of the executable: returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    guard_terminal()
    warnings.formatwarning = as_note
    try:
        run(arguments)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BrokenPipeError:
        # The reader of our output has gone (`cloze list | head`): keep the interpreter from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("CLOZE_DEBUG"):
            traceback.print_exc()
        name = arguments[0] if arguments and arguments[0] in COMMANDS else ""
        message, code = describe_error(error, name)
        print(visible(f"cloze {name}".rstrip() + f": {message}"), file=sys.stderr)
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
