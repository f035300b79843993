"""`cloze explain`: what a part of the recipe language does, and its keys."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from cloze.cli.options import WithFiles


def command(
    part: Annotated[
        str | None, typer.Argument(help="A part's name, such as mask or adamw; kind.name, such as rate.linear; or a kind.")
    ] = None,
    with_files: WithFiles = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain a part: what it does, its keys with types, bounds and defaults, and the recipes that use it.

    For a kind, such as rate, list its parts; without an argument, list all kinds.
    """
    from cloze.recipe.explain import explain, summaries

    docs = [] if part is None else explain(part)
    listed = summaries(part)
    if not docs:
        _print_list(listed, as_json)
        return
    if as_json:
        import json

        records = [{**doc._asdict(), "keys": [key._asdict() for key in doc.keys]} for doc in docs]
        typer.echo(json.dumps(records, ensure_ascii=False, indent=2))
        return
    for number, doc in enumerate(docs):
        lines = [f"{doc.name} ({doc.kind})", "", *doc.text.split("\n"), ""] if doc.text else [f"{doc.name} ({doc.kind})", ""]
        width = max((len(key.name) for key in doc.keys), default=0)
        lines += [f"  {key.name:<{width}}  {key.accepts}; {_default(key.default)}" for key in doc.keys] or ["  no keys"]
        lines += ["", f"used by {', '.join(doc.recipes)}" if doc.recipes else "used by no built-in recipe"]
        typer.echo(("\n" if number else "") + "\n".join(lines))
    if listed:
        typer.echo(f"\n{part} is also a kind of part: {', '.join(listed[str(part)])}")


def _print_list(listed: dict[str, dict[str, str]], as_json: bool) -> None:
    """Parts by kind: of several kinds their names, of one kind what each of them does."""
    if as_json:
        import json

        typer.echo(json.dumps(listed, ensure_ascii=False, indent=2))
        return
    rows = {kind: ", ".join(texts) for kind, texts in listed.items()} if len(listed) > 1 else dict(*listed.values())
    width = max(map(len, rows))
    for name, text in rows.items():
        typer.echo(textwrap.fill(text, 110, initial_indent=f"{name:<{width}}  ", subsequent_indent=" " * (width + 2)))
    if len(listed) > 1:
        typer.echo("Next: cloze explain KIND shows what each part of a kind does, cloze explain PART the keys of a part.")


def _default(text: str) -> str:
    return text if text == "needed" else f"default: {text}"
