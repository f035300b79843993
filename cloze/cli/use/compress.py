"""`cloze compress`: a smaller, sparser or coarser checkpoint of a checkpoint, without training."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.options import Encoding, WithFiles

if TYPE_CHECKING:
    from cloze.compression.compress import CompressionResult

TABLE = 8  # bits of the table of tokens where layers have different ones


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A run, a fine-tuned folder or a Hugging Face folder.")],
    out: Annotated[Path, typer.Option(help="The new folder.")],
    layers: Annotated[str | None, typer.Option(help="Keep only these layers, from 0: 0,2,4; or every_other, or half.")] = None,
    depth: Annotated[int | None, typer.Option(min=1, help="Keep this many layers, evenly spaced.")] = None,
    heads: Annotated[float | None, typer.Option(help="Prune this share of the heads, the least important first.")] = None,
    scores: Annotated[Path | None, typer.Option(
        help="With --heads or --bits 2,4: the probe.json of cloze probe heads, or of cloze probe curvature."
    )] = None,
    task: Annotated[
        str | None, typer.Option(
            help="With --heads or --bits 2,4: measure heads or layers on labelled rows: FILE or NAME=FILE."
        )
    ] = None,
    text: Annotated[str | None, typer.Option(help="With --heads or --bits 2,4: measure on text, a sentence per line.")] = None,
    magnitude: Annotated[float | None, typer.Option(help="Set this share of each matrix to zero, the smallest first.")] = None,
    bits: Annotated[str | None, typer.Option(
        help="Round weights to this many bits; 2,4: more bits for more sensitive layers."
    )] = None,
    groups: Annotated[int, typer.Option(min=1, help="With --bits: groups of rows, each with its own range.")] = 1,
    asymmetric: Annotated[bool, typer.Option("--asymmetric", help="With --bits: use ranges that are not centred on 0.")] = False,
    rows: Annotated[int | None, typer.Option(
        min=1, help="For fasttext-supervised: keep the rows of words and n-grams with the largest norms, this many (-cutoff)."
    )] = None,
    embeddings: Annotated[
        bool | None, typer.Option("--embeddings/--no-embeddings", help="Change embeddings, too (--bits: on; --magnitude: off).")
    ] = None,
    encoding: Encoding = None,
    with_files: WithFiles = None,
) -> None:
    """Write a smaller checkpoint: fewer layers, pruned heads or weights, or weights of few bits.

    Examples: cloze compress RUN --layers 0,2,4 --out SMALL; cloze compress TUNED --heads 0.4 --task TRAIN.tsv --out SMALL;
    cloze compress TUNED --magnitude 0.5 --bits 8 --out SMALL; cloze compress TUNED --bits 2,4 --groups 12 --task TRAIN.tsv --out
    SMALL; cloze compress CLASSIFIER --rows 100000 --out SMALL.

    The folder opens in transformers, with fewer layers, or with zeros and rounded numbers in its weights. Zeros alone make
    nothing faster, and rounded weights are still stored as floats; measure it with cloze speed. Pruned weights stay zero in
    further training.
    """
    from cloze.cli.hints import suggest
    from cloze.errors import UserError

    if rows is not None:
        other_options = (layers, depth, heads, scores, task, text, magnitude, bits, embeddings)
        if any(value is not None for value in other_options) or groups != 1 or asymmetric:
            raise UserError("--rows, for classifiers of fasttext-supervised, works alone. Leave the other options out.")
        _keep_rows(checkpoint, out, rows)
        return
    selection, levels = _parse_layers(layers, depth), _parse_bits(bits)
    measured = _measured_option(heads, levels, scores, task, text)
    if measured and selection is not None:
        option = "--layers" if layers is not None else "--depth"
        raise UserError(f"{option} and {measured}: use two commands, first {option}, then {measured} on what it wrote.")
    head_changes = [] if heads is None else _prune_heads(checkpoint, heads, scores, task, text)
    if len(levels) > 1:
        levels = _choose_bits(checkpoint, levels, scores, task, text)
    changes = [*head_changes, *_other_changes(selection, magnitude, levels, groups, asymmetric, embeddings)]
    if not changes:
        examples = "--layers 0,2,4, --depth 3, --heads 0.4, --magnitude 0.5 and --bits 8"
        raise UserError(f"no change was asked for. Give one or more of {examples}.")

    from cloze.compression.compress import compress

    try:
        outcome = compress(checkpoint, out, changes)
    except UserError as error:
        raise type(error)(_by_options(str(error), "--layers" if layers is not None else "--depth")) from None
    _show(outcome, out)
    suggest("cloze", "show", out)
    if len(levels) > 1:
        tuned = next(json.dumps(dict(arguments)) for name, arguments in changes if name == "quantise")
        files = ("--train", "TRAIN", "--dev", "DEV", "--out", "TUNED")
        suggest("cloze", "finetune", checkpoint, *files, "--change", f"quantise={tuned}")


def _by_options(message: str, layers: str) -> str:
    """A message that begins with the name of a change, perhaps behind that of a folder, with the name of its option.

    >>> _by_options("RUN: keep_layers: 9 layers", "--depth")
    'RUN: --depth: 9 layers'
    """
    options = {"keep_layers": layers, "prune_heads": "--heads", "sparsify": "--magnitude", "quantise": "--bits"}
    match = re.match(rf"(?:.*?: )??({'|'.join(options)}): ", message)
    return message if match is None else message[: match.start(1)] + options[match[1]] + message[match.end(1) :]


def _show(result: CompressionResult, out: Path) -> None:
    """Print both sizes and the remarks."""
    print(f"{out}: {result.after}")
    print(f"  before: {result.before}")
    for remark in result.remarks:
        print(f"  {remark}")


def _keep_rows(checkpoint: Path, out: Path, rows: int) -> None:
    """Write a classifier of fastText with this many rows, and say how to train it further."""
    from cloze.cli.hints import suggest
    from cloze.compression.compress import prune_rows
    from cloze.tasks.tuned_folder import read_task_json

    _show(prune_rows(checkpoint, out, rows), out)
    several = ["--task", "multi_label"] if read_task_json(out)["task"] == "multi_label" else []
    recipe = "fasttext-supervised_multi_label" if several else "fasttext-supervised"
    suggest("cloze", "finetune", out, *several, "--recipe", recipe, "--train", "TRAIN", "--dev", "DEV", "--out", "RETRAINED")


def _other_changes(
    layers: list[int] | int | str | None, magnitude: float | None, bits: list[int], groups: int, asymmetric: bool,
    embeddings: bool | None,
) -> list[tuple[str, Mapping[str, Any]]]:
    """The changes that the options besides --heads mean; a `UserError` for values that mean none. `bits`: none, one, or one for
    each layer."""
    from cloze.errors import UserError

    changes: list[tuple[str, Mapping[str, Any]]] = []
    if layers is not None:
        changes.append(("keep_layers", {"layers": layers}))
    if magnitude is not None:
        if not 0 < magnitude < 1:
            raise UserError(f"--magnitude {magnitude}: expected a share between 0 and 1, such as 0.5.")
        changes.append(("sparsify", {"share": magnitude, "embeddings": bool(embeddings)}))
    if not bits and (groups != 1 or asymmetric):
        raise UserError("--groups and --asymmetric configure --bits. Add it, such as --bits 8.")
    if bits:
        table: bool | int = embeddings if embeddings is not None else True
        table = TABLE if table and len(bits) > 1 else table
        of_layers: list[int] | int = bits if len(bits) > 1 else bits[0]
        changes.append(("quantise", {"bits": of_layers, "groups": groups, "symmetric": not asymmetric, "embeddings": table}))
    if embeddings is not None and magnitude is None and not bits:
        raise UserError("--embeddings and --no-embeddings configure --magnitude or --bits. Add one of them.")
    return changes


def _parse_layers(layers: str | None, depth: int | None) -> list[int] | int | str | None:
    """Which layers --layers and --depth keep, as `keep_layers` has them."""
    from cloze.errors import UserError

    if layers is not None and depth is not None:
        raise UserError("--layers names the layers to keep, --depth their number. Give only one of them.")
    if layers is None or layers in ("half", "every_other"):
        return depth if layers is None else layers
    try:
        return [int(layer) for layer in layers.split(",")]
    except ValueError:
        raise UserError(
            f"--layers {layers}: expected layers, counted from 0 and separated by commas: 0,2,4; or every_other, or half."
        ) from None


def _parse_bits(bits: str | None) -> list[int]:
    """The numbers of --bits; empty if it is not given."""
    from cloze.errors import UserError

    try:
        levels = [] if bits is None else [int(level) for level in bits.split(",")]
    except ValueError:
        levels = [0, 0]
    if len(set(levels)) < len(levels):
        raise UserError(f"--bits {bits}: expected a number of bits, such as 8, or several for different layers, such as 2,4.")
    return levels


def _measured_option(
    heads: float | None, levels: list[int], scores: Path | None, task: str | None, text: str | None
) -> str | None:
    """The option that needs a measurement, which exactly one option gives; None if none does."""
    from cloze.errors import UserError

    sources = [name for name, value in (("--scores", scores), ("--task", task), ("--text", text)) if value is not None]
    methods = [name for name, flag in (("--heads", heads is not None), ("--bits with several numbers", len(levels) > 1)) if flag]
    if not methods:
        if sources:
            what = "to choose the heads to prune, or the layers that get more bits"
            raise UserError(f"{sources[0]} is used {what}. Add --heads SHARE or --bits 2,4.")
        return None
    if heads is not None and not 0 < heads < 1:
        raise UserError(f"--heads {heads}: expected a share between 0 and 1, such as 0.4.")
    if len(methods) > 1:
        raise UserError("--heads and --bits with several numbers: use two commands, first --heads, then --bits on what it wrote.")
    if len(sources) != 1:
        what = "importance of heads" if heads is not None else "sensitivity of layers"
        raise UserError(f"{methods[0]} needs the {what}. Give exactly one of --scores FILE, --task ROWS and --text FILE.")
    return methods[0]


def _prune_heads(
    checkpoint: Path, share: float, scores: Path | None, task: str | None, text: str | None
) -> list[tuple[str, Mapping[str, Any]]]:
    """The changes that prune heads by the scores in a file, or by those measured on rows or texts."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.compression.measures import head_changes, measured_scores, read_scores

    loaded = load_checkpoint(checkpoint)
    if scores is not None:
        return head_changes(loaded, share, read_scores(scores, loaded))
    importance, remarks = measured_scores(loaded, task=task, text=text)
    for remark in remarks:
        typer.echo(remark, err=True)
    return head_changes(loaded, share, importance)


def _choose_bits(checkpoint: Path, levels: list[int], scores: Path | None, task: str | None, text: str | None) -> list[int]:
    """A number of bits for each layer, by its sensitivity in a file, or measured on rows or texts."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.compression.measures import bits_by_layer, measured_sensitivity, read_sensitivity

    loaded = load_checkpoint(checkpoint)
    if scores is not None:
        return bits_by_layer(read_sensitivity(scores, loaded), levels)
    sensitivity, remarks = measured_sensitivity(loaded, task=task, text=text)
    for remark in remarks:
        typer.echo(remark, err=True)
    return bits_by_layer(sensitivity, levels)
