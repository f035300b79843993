"""`cloze peek`: built examples in the terminal: what is hidden, what is shown, who sees whom, and the targets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.cli.options import WithFiles

ITEMS = 8  # lines of items of an example that are printed


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe's name or file.")],
    corpus: Annotated[list[str], typer.Option("--corpus", help="Text files, folders, globs, or a token store.")],
    rows: Annotated[int, typer.Option(min=1, help="How many examples to show.")] = 3,
    length: Annotated[int | None, typer.Option(min=8, help="Tokens per example; default: the recipe's first length.")] = None,
    epoch: Annotated[int, typer.Option(min=0, help="The epoch to show: dynamic masks differ between epochs.")] = 0,
    tokenizer: Annotated[Path | None, typer.Option(help="A folder with a tokenizer; default: trained on the text.")] = None,
    text_format: Annotated[str, typer.Option("--format", help="How the text marks documents; default: detected.")] = "auto",
    column: Annotated[
        str | None, typer.Option("--text", help="In tables and JSON lines, the column or key with the text; default: text.")
    ] = None,
    binds: Annotated[list[str] | None, typer.Option("--bind", help="NAME=PATH for a recipe's other sources.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Change a value of the recipe: path=value.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object per example.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page instead, which also draws the boxes of items.")] = None,
    with_files: WithFiles = None,
) -> None:
    """Show the training examples that a recipe makes from your text."""
    import tempfile

    from cloze.corpus.readers.formats import with_column
    from cloze.errors import UserError
    from cloze.recipe.load import load_recipe, pretraining_recipe_names
    from cloze.recipe.origins import checkpoint_names
    from cloze.runs.binds import bound_paths, bound_tables, check_binds, make_tables, open_stores, parse_binds
    from cloze.runs.examples import examples
    from cloze.runs.unanswered import without_unanswered

    if html is not None and as_json:
        raise UserError("--html writes a page instead of what --json prints. Omit one of them.")
    bound = parse_binds(binds or [])
    tabled = bound_tables(load_recipe(recipe, overrides=overrides or []), bound)
    plan = load_recipe(recipe, overrides=[*(overrides or []), *tabled.values()])
    bound = {name: paths for name, paths in bound.items() if name not in tabled}
    check_binds(plan, bound, checkpoint_names(plan))
    with tempfile.TemporaryDirectory(prefix="cloze-peek-") as folder:
        paths = bound_paths(plan, corpus, bound)
        stores, chosen = open_stores(
            plan, paths, Path(folder), tokenizer=tokenizer, text_format=with_column(text_format, column), seed=seed,
            say=lambda text: None,
        )
        if recipe in pretraining_recipe_names():
            plan = without_unanswered(plan, stores, say=lambda text: None)
        tables = make_tables(plan, stores)
        records = examples(plan, stores, chosen, tables=tables, rows=rows, length=length, epoch=epoch, seed=seed)
        if html is not None:
            from cloze.reports.examples import write_page

            typer.echo(write_page(records, html, recipe=plan.name))
            return
        if as_json:
            import json

            for example in records:
                typer.echo(json.dumps(example, ensure_ascii=False))
            return
        for number, example in enumerate(records):
            _print(number, example)


def _print(number: int, example: dict[str, Any]) -> None:
    """One example: a line of pieces with the hidden ones marked, then who sees whom and the targets."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    names = example["view"] if example["view"] != "main" else ""
    console.rule(f"[bold]{example['entry']}[/] {names} · example {number + 1} · {example['length']} tokens", align="left")
    line = Text()
    glued = any(token.get("starts_word") is False for token in example["tokens"])
    for token in example["tokens"]:
        if glued and token.get("starts_word", True):  # word units, where several tokens make a word
            line.append("▏", style="blue")
        piece = token["shown"]
        if token.get("target") is not None and token["shown"] != token["target"]:
            line.append(piece, style="bold red")
            line.append(f"‹{token['target']}›", style="green")
        elif token.get("target") is not None and example["hides"]:
            line.append(f"{piece}‹=›", style="bold yellow")
        elif token["special"]:
            line.append(piece, style="cyan")
        else:
            line.append(piece, style="dim" if token.get("segment") else "")
        line.append(" ")
    console.print(line)
    console.print(f"  [bold]sees[/]     {example['sees']}")
    console.print(f"  [bold]targets[/]  {example['targets']}")
    for name, target in example["row_targets"].items():
        console.print(f"  [bold]{name}[/]   {target}")
    for group in example["items"]:
        _print_items(console, **group)
    if example["hides"] and any("target" in token for token in example["tokens"]):
        console.print("  [dim]red: shown in place of the ‹target›; yellow ‹=›: a target that is visible[/]")


def _print_items(console: Any, set: str, items: list[dict[str, Any]]) -> None:
    """How many items a row has, and a line for each of the first that are hidden or asked."""
    special = [(index, item) for index, item in enumerate(items, 1) if item["shown"] != "as it is" or item["asked"]]
    hidden = sum(item["shown"] == "hidden" for item in items)
    console.print(f"  [bold]{set}[/]  {len(items)} items, {hidden} hidden, {sum(bool(item['asked']) for item in items)} asked")
    for index, item in special[:ITEMS]:
        box = " ".join(f"{number:.2f}" for number in item.get("box", ()))
        targets = ", ".join(name if answer is None else f"{name} {answer}" for name, answer in item["asked"].items())
        console.print(f"    {index:3}  {box}  {item['shown']}" + (f"; asked: [green]{targets}[/]" if targets else ""))
    if len(special) > ITEMS:
        console.print(f"    … and {len(special) - ITEMS} more")
