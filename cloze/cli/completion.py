"""Shell completion: a script that knows commands, their options, recipes and parts, and asks cloze nothing while one types.

A command takes longer to load than a person waits for a completion, so whatever can follow is written into the script.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from cloze.cli.commands import COMMANDS, load_command
from cloze.errors import UserError, propose

_SHELLS = ("bash", "zsh")
_RECIPES = ("pretrain", "show", "diff", "check", "peek")  # commands whose arguments are names of recipes, or files

_BASH = """_cloze() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} names=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W {commands} -- "$word"))
        return
    fi
    case "$command" in
{cases}
    esac
    case "$word" in
        -*) ;;
        *) case "$command" in {recipe_commands}) names={recipes};; esac ;;
    esac
    COMPREPLY=($(compgen -W "$names" -- "$word"))
}}
complete -o default -F _cloze cloze
"""


def script(shell: str) -> str:
    """The script that completes `cloze` in this shell: commands, their options, and names of recipes; else files."""
    if shell not in _SHELLS:
        raise UserError(
            f"--show-completion {shell}: {propose(shell, _SHELLS)}\n  For example: eval \"$(cloze --show-completion bash)\""
        )
    from cloze.recipe.load import recipe_names

    cases = "\n".join(f"        {name}) names={shlex.quote(' '.join(_options(name)))};;" for name in COMMANDS)
    completion = _BASH.format(
        commands=shlex.quote(" ".join(COMMANDS)), cases=cases, recipe_commands="|".join(_RECIPES),
        recipes=shlex.quote(" ".join(recipe_names())),
    )
    return completion if shell == "bash" else "autoload -U +X bashcompinit && bashcompinit\n" + completion


def _options(name: str) -> list[str]:
    """What may follow a command: its options, or its own commands and all their options."""
    from typer.core import TyperGroup
    from typer.main import get_command

    command = get_command(load_command(name))
    inner: Mapping[str, Any] = command.commands if isinstance(command, TyperGroup) else {}
    every: list[Any] = [command, *inner.values()]
    options = [option for entry in every for parameter in entry.params for option in parameter.opts if option.startswith("--")]
    return [*inner, *dict.fromkeys([*options, "--help"])]
