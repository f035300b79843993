"""`cloze compress`: a smaller, sparser or coarser checkpoint of a checkpoint, without training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.cli.with_files import WithFiles


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A run, a fine-tuned folder or a Hugging Face folder.")],
    out: Annotated[Path, typer.Option(help="The new folder.")],
    layers: Annotated[str | None, typer.Option(help="Keep only these layers, from 0: 0,2,4; or every_other, or half.")] = None,
    depth: Annotated[int | None, typer.Option(min=1, help="Keep so many layers, at equal distances.")] = None,
    heads: Annotated[float | None, typer.Option(help="Prune this share of the heads, the least important first.")] = None,
    scores: Annotated[Path | None, typer.Option(help="With --heads: what cloze probe heads --out wrote.")] = None,
    task: Annotated[
        str | None, typer.Option(help="With --heads: labelled rows that measure the importance of heads: FILE or NAME=FILE.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="With --heads: plain text that measures it, a sentence per line.")] = None,
    magnitude: Annotated[float | None, typer.Option(help="Set this share of each matrix to zero, the smallest first.")] = None,
    bits: Annotated[int | None, typer.Option(help="Round weights to this many bits.")] = None,
    groups: Annotated[int, typer.Option(min=1, help="With --bits: groups of rows, each with its own range.")] = 1,
    asymmetric: Annotated[bool, typer.Option("--asymmetric", help="With --bits: a range not centred on 0.")] = False,
    embeddings: Annotated[
        bool | None, typer.Option("--embeddings/--no-embeddings", help="Also the table of tokens (--bits: on; --magnitude: off).")
    ] = None,
    with_files: WithFiles = None,
) -> None:
    """Write a smaller, sparser or coarser checkpoint: fewer layers, pruned heads or weights, weights of few bits.

    Examples: cloze compress RUN --layers 0,2,4 --out SMALL; cloze compress TUNED --heads 0.4 --task TRAIN.tsv --out SMALL;
    cloze compress TUNED --magnitude 0.5 --bits 8 --out SMALL. The folder opens in transformers: a shallower class, or zeros and
    rounded numbers in its weights. Zeros make nothing faster, and rounded weights are still stored as floats:
    cloze speed measures. Pruned weights stay zero when you train further.
    """
    from cloze.cli.hints import suggest
    from cloze.errors import UserError

    changes = described(_kept(layers, depth), magnitude, bits, groups, asymmetric, embeddings)
    if heads is None and scores is None and task is None and text is None:
        if not changes:
            raise UserError(
                "nothing to do. Give one or more of --layers 0,2,4, --depth 3, --heads 0.4, --magnitude 0.5 and --bits 8."
            )
    else:
        if layers is not None or depth is not None:
            option = "--layers" if layers is not None else "--depth"
            raise UserError(f"{option} and --heads: cut the layers first, then prune the heads of the folder that this writes.")
        changes = [*_heads(checkpoint, heads, scores, task, text), *changes]

    from cloze.assembly.compress import compress

    made = compress(checkpoint, out, changes)
    print(f"{out}: {made.after}")
    print(f"  before: {made.before}")
    for remark in made.remarks:
        print(f"  {remark}")
    suggest("cloze", "show", out)


def described(
    layers: list[int] | int | str | None, magnitude: float | None, bits: int | None, groups: int, asymmetric: bool,
    embeddings: bool | None,
) -> list[tuple[str, Mapping[str, Any]]]:
    """The changes that the options mean; a `UserError` for values that mean none."""
    from cloze.errors import UserError

    made: list[tuple[str, Mapping[str, Any]]] = []
    if layers is not None:
        made.append(("keep_layers", {"layers": layers}))
    if magnitude is not None:
        if not 0 < magnitude < 1:
            raise UserError(f"--magnitude {magnitude}: expected a share between 0 and 1: 0.5.")
        made.append(("sparsify", {"share": magnitude, "embeddings": bool(embeddings)}))
    if bits is None and (groups != 1 or asymmetric):
        raise UserError("--groups and --asymmetric say how weights are rounded. Add --bits.")
    if bits is not None:
        table = embeddings if embeddings is not None else True
        made.append(("quantise", {"bits": bits, "groups": groups, "symmetric": not asymmetric, "embeddings": table}))
    if embeddings is not None and magnitude is None and bits is None:
        raise UserError("--embeddings belongs to --magnitude or --bits. Add one of them.")
    return made


def _kept(layers: str | None, depth: int | None) -> list[int] | int | str | None:
    """Which layers --layers and --depth keep, as `keep_layers` has them."""
    from cloze.errors import UserError

    if layers is not None and depth is not None:
        raise UserError("--layers says which layers are kept, --depth how many. Give one of them.")
    if layers is None or layers in ("half", "every_other"):
        return depth if layers is None else layers
    try:
        return [int(layer) for layer in layers.split(",")]
    except ValueError:
        raise UserError(
            f"--layers {layers}: expected numbers of layers, counted from 0, with commas: 0,2,4; or every_other, or half."
        ) from None


def _heads(
    checkpoint: Path, share: float | None, scores: Path | None, task: str | None, text: str | None
) -> list[tuple[str, Mapping[str, Any]]]:
    """The changes that prune heads by the scores in a file, or by those measured on rows or texts."""
    from cloze.assembly.head_scores import head_changes, measured_scores, read_scores, require_choice

    require_choice(share, scores, task, text)
    assert share is not None  # as just required

    from cloze.assembly.build import load_checkpoint

    loaded = load_checkpoint(checkpoint)
    if scores is not None:
        return head_changes(loaded, share, read_scores(scores, loaded))
    found, remarks = measured_scores(loaded, task=task, text=text)
    for remark in remarks:
        typer.echo(remark, err=True)
    return head_changes(loaded, share, found)
