"""`cloze look`: a page that shows what a network computes for a text, layer by layer."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.cli.options import WithFiles


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A run folder or a Hugging Face folder.")],
    text: Annotated[str, typer.Argument(help="The text; [MASK] is a mask.")],
    other: Annotated[
        str | None, typer.Argument(help="A second text: the other one of a pair, or what an encoder-decoder writes.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("look.html"),
    length: Annotated[int | None, typer.Option(min=2, help="Cut texts to this many tokens.")] = None,
    top: Annotated[int, typer.Option(min=1, max=50, help="Predictions and neighbours of each token.")] = 5,
    items: Annotated[
        list[str] | None, typer.Option("--items", help="Items of a picture: FILE, or NAME=FILE for each set.")
    ] = None,
    picture: Annotated[str | None, typer.Option(help="With --items: the key of the picture; default: the only one.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "cpu",
    with_files: WithFiles = None,
) -> None:
    """Write a page that shows what a network computes for a text: attention, predictions and neighbours by layer.

    Example: cloze look RUN "The cat sat on the [MASK]." --out page.html

    The page is one file and works offline. It shows the attention of every head and layer, the predictions of the network's own
    head applied to every layer, and the nearest tokens of the text and words of the vocabulary. Networks that read pictures also
    show attention between words and regions: cloze look RUN "a green boat" --items features.npz --picture 7.png
    """
    from cloze.atomic import require_output
    from cloze.cli.hints import typed
    from cloze.errors import UserError
    from cloze.reports.page import is_page

    if out.suffix.lower() not in (".html", ".htm") or out.is_dir():
        raise UserError(f"--out {out}: expected an HTML file, such as page.html.")
    require_output(out, what="a page of cloze", holds=is_page)

    if picture is not None and not items:
        raise UserError(f"--picture {picture}: its items are needed, too. Add their file: --items features.npz")

    from dataclasses import replace

    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.pictures import shown_picture
    from cloze.probes.look import look
    from cloze.reports.look import write_page

    loaded = load_checkpoint(checkpoint, device)
    if items:
        loaded = replace(loaded, pictures=shown_picture(loaded, items, picture))
    seen = look(loaded, text, other, length=length, top=top)
    page = write_page(seen, out, name=str(checkpoint), about=about(loaded), command=typed())
    for remark in seen.remarks:
        typer.echo(remark, err=True)
    typer.echo(f"{page}: {sum(map(len, seen.sequences.values()))} tokens, {page.stat().st_size / 1e6:.1f} MB")
    typer.echo(f"Next: open {shlex.quote(str(page))} in a browser", err=True)


def about(loaded: Any) -> str:
    """A line about a network: its kind, its size, the order in which it reads."""
    arguments = loaded.network_arguments
    sizes = [f"{arguments[key]} {key}" for key in ("layers", "heads") if key in arguments]
    sizes += [f"width {arguments['width']}"] if "width" in arguments else []
    return ", ".join([loaded.imported.model.part.replace("_", " "), *sizes, f"order {loaded.order.replace('_', ' ')}"])
