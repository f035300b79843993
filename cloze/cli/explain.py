"""`cloze explain`: what a part of the recipe language does, and its keys."""

from __future__ import annotations

from typing import Annotated

import typer

from cloze.cli.with_files import WithFiles


def command(
    part: Annotated[str, typer.Argument(help="A part's name, such as mask or adamw; or kind.name, such as rate.linear.")],
    with_files: WithFiles = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a part does: its keys with types, bounds and defaults, and the recipes that use it."""
    from cloze.assembly.explain import explain

    found = explain(part)
    if as_json:
        import json

        shown = [{**one._asdict(), "keys": [key._asdict() for key in one.keys]} for one in found]
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        return
    for number, one in enumerate(found):
        lines = [f"{one.name} ({one.kind})", "", *one.text.split("\n"), ""] if one.text else [f"{one.name} ({one.kind})", ""]
        wide = max((len(key.name) for key in one.keys), default=0)
        lines += [f"  {key.name:<{wide}}  {key.accepts}; {_default(key.default)}" for key in one.keys] or ["  no keys"]
        lines += ["", f"used by {', '.join(one.recipes)}" if one.recipes else "used by no built-in recipe"]
        typer.echo(("\n" if number else "") + "\n".join(lines))


def _default(text: str) -> str:
    return text if text == "needed" else f"default: {text}"
