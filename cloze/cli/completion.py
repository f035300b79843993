"""Shell completion: a script that knows verbs, their options, recipes and parts, and asks cloze nothing while one types.

A verb takes longer to load than a person waits for a completion, so whatever can follow is written into the script.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from cloze.cli.verbs import VERBS, load_verb
from cloze.errors import UserError, propose

_SHELLS = ("bash", "zsh")
_RECIPES = ("pretrain", "show", "diff", "check", "peek")  # verbs whose arguments are names of recipes, or files

_BASH = """_cloze() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} names=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W {verbs} -- "$word"))
        return
    fi
    case "$verb" in
{cases}
    esac
    case "$word" in
        -*) ;;
        *) case "$verb" in {recipe_verbs}) names={recipes};; esac ;;
    esac
    COMPREPLY=($(compgen -W "$names" -- "$word"))
}}
complete -o default -F _cloze cloze
"""


def script(shell: str) -> str:
    """The script that completes `cloze` in this shell: verbs, their options, and names of recipes; else files."""
    if shell not in _SHELLS:
        raise UserError(
            f"--show-completion {shell}: {propose(shell, _SHELLS)}\n  For example: eval \"$(cloze --show-completion bash)\""
        )
    from cloze.assembly.load import recipe_names

    cases = "\n".join(f"        {verb}) names={shlex.quote(' '.join(_options(verb)))};;" for verb in VERBS)
    made = _BASH.format(
        verbs=shlex.quote(" ".join(VERBS)), cases=cases, recipe_verbs="|".join(_RECIPES),
        recipes=shlex.quote(" ".join(recipe_names())),
    )
    return made if shell == "bash" else "autoload -U +X bashcompinit && bashcompinit\n" + made


def _options(verb: str) -> list[str]:
    """What may follow a verb: its options, or its own verbs and all their options."""
    from typer.core import TyperGroup
    from typer.main import get_command

    command = get_command(load_verb(verb))
    inner: Mapping[str, Any] = command.commands if isinstance(command, TyperGroup) else {}
    every: list[Any] = [command, *inner.values()]
    found = [option for one in every for parameter in one.params for option in parameter.opts if option.startswith("--")]
    return [*inner, *dict.fromkeys([*found, "--help"])]
