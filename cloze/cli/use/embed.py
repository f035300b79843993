"""`cloze embed`: sentences into vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.options import Encoding, Overwrite, Precision, WithFiles

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def command(
    checkpoint: Annotated[Path, typer.Argument(help="A run folder or a Hugging Face folder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; none: --file or standard input.")] = None,
    file: Annotated[str | None, typer.Option(help="A text per line, or TSV, CSV, JSON lines, Parquet; - for stdin.")] = None,
    field: Annotated[str, typer.Option(help="The column or JSON field with the text.")] = "text",
    json_input: Annotated[bool, typer.Option("--jsonl", help="Read standard input as JSON lines.")] = False,
    out: Annotated[Path | None, typer.Option(help="A .npy file for the vectors, float32 (texts, width).")] = None,
    layer: Annotated[int, typer.Option(help="The layer to read: -1 is the top layer, 0 the embeddings.")] = -1,
    layers: Annotated[
        str | None, typer.Option(help="all, or 0,1,2: a vector per token from each of these layers; needs --out F.npz.")
    ] = None,
    pooling: Annotated[
        str | None, typer.Option(help="mean, max, first or summary (the recipe's summary token); default: as trained, or mean.")
    ] = None,
    normalise: Annotated[bool, typer.Option("--normalise", help="Scale vectors to length 1: dot products are cosines.")] = False,
    length: Annotated[int | None, typer.Option(min=1, help="Cut texts to this many tokens.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Texts per batch; default: by their length.")] = None,
    prompt: Annotated[
        str | None, typer.Option(help="The name of one of the folder's prompts, which comes before each text, such as query.")
    ] = None,
    items: Annotated[
        list[str] | None, typer.Option("--items", help="Items of pictures: FILE, or NAME=FILE for each set.")
    ] = None,
    picture: Annotated[str | None, typer.Option(help="With --items: the key of the picture of all texts.")] = None,
    picture_field: Annotated[str | None, typer.Option(help="With --items: the field of a JSON line with its key.")] = None,
    of: Annotated[str, typer.Option(help="What vectors are of: text, items, or pair, both in one vector.")] = "text",
    language: Annotated[str | None, typer.Option(help="The language, if the network knows several; default: the first.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "cpu",
    precision: Precision = "fp32",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
    encoding: Encoding = None,
    overwrite: Overwrite = False,
    with_files: WithFiles = None,
) -> None:
    """Turn texts into vectors. Example: cloze embed RUN --file sentences.txt --out vectors.npy

    Features of every token, for models trained elsewhere: cloze embed ELMO --file sentences.txt --layers all --out features.npz

    Texts about pictures: cloze embed LXMERT --file captions.jsonl --items features.npz --picture-field image --of pair
    """
    from cloze.atomic import require_output
    from cloze.decoding.texts import gather

    inputs = gather(texts or [], file, field=field, json_input=json_input or None)
    keys = picture if picture_field is None else picture_keys_in_field(texts or [], file, picture_field, picture)
    ending = ".npy" if layers is None else ".npz"
    if out is not None:
        out = with_ending(out, ending)
        require_output(out, overwrite=overwrite)
    _check_layers(layers, out, {
        "--layer": layer != -1, "--pooling": bool(pooling), "--normalise": normalise, "--of": of != "text", "--json": as_json
    })  # fmt: skip

    from dataclasses import replace

    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.pictures import pictures_for
    from cloze.decoding.progress import DecodingProgress
    from cloze.decoding.reader_and_head import to_embed
    from cloze.decoding.unknown import vector_remarks
    from cloze.decoding.vectors.embedding import as_trained, cut_text_remark, embed, frame_texts
    from cloze.decoding.vectors.features import save_features, token_features
    from cloze.decoding.vectors.prompted import prompt_remark

    loaded = load_checkpoint(checkpoint, device, precision=precision)
    reader, trained_head, _ = to_embed(loaded, language=language)
    trained = layers is None and as_trained(layer, pooling, of)
    framed = frame_texts(loaded, reader, inputs, trained=trained, prompt=prompt, length=length)
    pictures, framed = pictures_for(loaded, framed, items or [], keys)
    reader = replace(reader, pictures=pictures)
    if cut := cut_text_remark(framed):
        typer.echo(f"note: {cut}", err=True)
    if layers is not None and out is not None:
        with DecodingProgress(len(inputs), "texts") as progress:
            path = save_features(out, token_features(reader, framed, layers, rows=batch or 64, report=progress), inputs)
        typer.echo(f"{path}: an array (layers, tokens, width) for each of {len(inputs)} texts")
        return
    head = trained_head if trained else None
    with DecodingProgress(len(inputs), "texts") as progress:
        vectors = embed(
            reader, framed, layer=layer, pooling=pooling,  # type: ignore[arg-type]  # checked by embed
            normalise=normalise, rows=batch, head=head, of=of, report=progress,  # type: ignore[arg-type]
        )
    for remark in (*prompt_remark(loaded, prompt), *vector_remarks(reader, framed, vectors, head=head)):
        typer.echo(f"note: {remark}", err=True)
    if out is not None:
        _save(out, vectors)
        return
    print_vectors(inputs, vectors, as_json=as_json)


def _check_layers(layers: str | None, out: Path | None, of_text: Mapping[str, bool]) -> None:
    """A `UserError` if layers are asked for without a file, or with options for one vector per text."""
    from cloze.errors import UserError

    if layers is None:
        return
    if out is None:
        raise UserError("--layers gives many vectors per text: name the file to write, such as --out F.npz.")
    if any(of_text.values()):
        raise UserError(
            f"--layers writes the vector of every token as the layers give it; {next(filter(of_text.get, of_text))} is for one "
            "vector per text. Leave one of them out."
        )


def print_vectors(texts: Sequence[str], vectors: NDArray[np.float32], *, as_json: bool) -> None:
    """A line of numbers, or a JSON object, for each text."""
    for text, vector in zip(texts, vectors.tolist(), strict=True):
        if as_json:
            import json

            print(json.dumps({"text": text, "vector": vector}, ensure_ascii=False))
        else:
            print("\t".join(f"{number:.6g}" for number in vector))


def picture_keys_in_field(texts: Sequence[str], file: str | None, field: str, picture: str | None) -> list[str]:
    """The keys of the pictures in the field of a file's lines. Raises a `UserError` if the texts are no file's."""
    from cloze.decoding.texts import gather, named_file
    from cloze.errors import UserError

    source = named_file(texts) or file
    if source in (None, "-") or picture is not None:
        raise UserError("--picture-field names a field of a file of JSON lines, in place of --picture. Give --file FILE.jsonl.")
    return gather([], source, field=field)


def with_ending(out: Path, ending: str) -> Path:
    """The file to write. Raises a `UserError` if its name asks for another format."""
    from cloze.errors import UserError

    suffixes = {".npy", ".npz", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".pt", ".safetensors", ".bin", ".vec"}
    if out.suffix in suffixes - {ending}:
        what = "--layers writes" if ending == ".npz" else "cloze embed writes"
        way = "" if ending == ".npz" else "; without --out, numbers or, with --json, JSON lines are printed"
        raise UserError(f"--out {out}: {what} a {ending} file of numpy. Name one, such as {out.with_suffix(ending)}{way}.")
    return out if out.suffix == ending else out.with_name(out.name + ending)


def _save(out: Path, vectors: Any) -> None:
    """Save vectors (N, D), and say where and how many."""
    from cloze.decoding.vectors.embedding import save_vectors
    from cloze.errors import counted

    path = save_vectors(out, vectors)
    typer.echo(f"{path}: {counted(len(vectors), 'vector')} of width {vectors.shape[1]}")
