"""`cloze export`: a folder to publish, or word vectors in a file that other tools open."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.cli.options import WithFiles

_FOLDERS = ("huggingface", "hub", "merged")
#: Options, the formats that read them, and what is said where another format is asked for.
_READ_BY = (
    (("--public",), ("hub",), "--public is for --to hub"),
    (("--int8",), ("onnx",), "--int8 is for --to onnx"),
    (("--cutoff", "--piece", "--norms", "--answers"), ("fasttext-quantised",),
     "--cutoff, --piece, --norms and --answers are for --to fasttext-quantised"),
    (("--base",), ("peft", "change"), "--base is for --to peft and --to change"),
    (("--language", "--licence", "--data"), _FOLDERS, "--language, --licence and --data are for --to huggingface"),
    (("--task",), (*_FOLDERS, "onnx"), "--task is for --to huggingface and --to onnx"),
)  # fmt: skip


def _require_read(to: str, options: Set[str]) -> None:
    """A `UserError` if there is no such format or if it does not read one of these options."""
    from cloze.errors import UserError, propose
    from cloze.interop.vectors import FORMATS

    files = (*FORMATS, "fasttext-quantised")
    formats = (*_FOLDERS, "peft", "change", "onnx", *files)
    if to not in formats:
        raise UserError(f"unknown format {to!r}. {propose(to, formats)}")
    for names, readers, sentence in _READ_BY:
        if options & set(names) and to not in readers:
            raise UserError(f"{sentence}, not for --to {to}.")
    if "--overwrite" in options and to not in files:
        file = " or a new file" if to == "onnx" else ""
        raise UserError(f"--overwrite replaces a file of vectors; for --to {to} choose a new or empty folder{file}.")


def command(
    model: Annotated[Path, typer.Argument(help="A run, a fine-tuned folder, or a file of vectors to convert.")],
    out: Annotated[Path, typer.Argument(
        help="The new folder or file; a name ending in .gz is compressed. With --to hub: ORG/NAME."
    )],
    to: Annotated[str, typer.Option(
        help="The format: huggingface, hub, merged, peft, change, onnx, word2vec, word2vec-binary, glove, fasttext[-quantised]."
    )] = "word2vec",
    base: Annotated[Path | None, typer.Option(help="With --to peft or change: the checkpoint that the run started from.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    language: Annotated[str | None, typer.Option(help="For the model card: en, or several, separated by commas.")] = None,
    licence: Annotated[str | None, typer.Option(help="For the model card: mit, apache-2.0, cc-by-4.0, …")] = None,
    task: Annotated[str | None, typer.Option(help="The task to export, if the folder has several.")] = None,
    data: Annotated[str | None, typer.Option(help="For the model card: the training text, in a sentence.")] = None,
    cutoff: Annotated[int | None, typer.Option(
        help="With --to fasttext-quantised: the number of words and n-grams to keep."
    )] = None,
    piece: Annotated[int, typer.Option(help="With --to fasttext-quantised: the size of a product quantiser's subvector.")] = 2,
    norms: Annotated[bool, typer.Option(
        "--norms", help="With --to fasttext-quantised: quantise the norms of rows separately."
    )] = False,
    answers: Annotated[bool, typer.Option(
        "--answers", help="With --to fasttext-quantised: also quantise the output matrix."
    )] = False,
    int8: Annotated[bool, typer.Option("--int8", help="With --to onnx: linear maps multiply in int8.")] = False,
    public: Annotated[bool, typer.Option("--public", help="With --to hub: everybody may see a new model.")] = False,
    with_files: WithFiles = None,
) -> None:
    """Write a folder to publish, or vectors as word2vec's text or binary file, GloVe's text, or fastText's .bin.

    Examples: cloze export RUN my-bert --to huggingface --language en --licence mit; cloze export RUN vectors.bin --to
    word2vec-binary. The folder opens in transformers and sentence-transformers. It holds the model, its tokenizer, its recipe
    and a model card, but not the run's text, log or checkpoints. --to hub uploads that folder to the Hugging Face Hub, as a
    private model unless --public is given.

    After lora, --to merged writes the weights with the updates merged in. After lora, prompt or prefix, --to peft writes the
    trained parameters for the library peft. After any change that adds parameters, --to change writes only the trained
    parameters, the heads and the SHA-256 of the network that they belong to. --to fasttext writes a classifier of
    fasttext-supervised as fastText's .bin, --to fasttext-quantised as its .ftz. --to onnx writes a Transformer and its
    classifier or labeller for onnxruntime.
    """
    from cloze.errors import UserError

    if piece < 1:
        raise UserError(f"--piece {piece}: expected a size of 1 or more, such as 2.")
    options = {
        "--base": base, "--overwrite": overwrite, "--language": language, "--licence": licence, "--task": task, "--data": data,
        "--cutoff": cutoff, "--piece": piece != 2, "--norms": norms, "--answers": answers, "--int8": int8, "--public": public,
    }
    _require_read(to, {name for name, value in options.items() if value is not None and value is not False})
    if to in ("fasttext", "fasttext-quantised") and _is_classifier(model, to):
        from cloze.interop.vectors import Quantising

        _write_classifier(model, out, None if to == "fasttext" else Quantising(piece, norms, answers), cutoff, overwrite)
        return
    if to == "onnx":
        _write_onnx(model, out, int8=int8, task=task)
        return
    if to in ("peft", "change"):
        _write_change(model, out, to, base)
        return
    if to not in _FOLDERS:
        _write_vectors(model, out, to, overwrite=overwrite)
        return
    codes = [code.strip() for code in (language or "").split(",") if code.strip()]
    _share(model, out, to, {"languages": codes, "licence": licence, "data": data, "task": task}, public=public)


def _share(model: Path, out: Path, to: str, card: Mapping[str, Any], *, public: bool) -> None:
    """Write a folder to publish, or upload it; `card` holds what the model card says."""
    from cloze.checkpoint.share import require_merged, share
    from cloze.cli.hints import suggest

    if to == "merged":
        require_merged(model)
    if to == "hub":
        remarks = _upload(model, str(out), card, public=public)
    else:
        remarks = share(model, out, **card)
        print(f"{out}: ready to publish")
    options = {"languages": "--language", "licence": "--licence", "data": "--data"}
    missing = [option for key, option in options.items() if not card[key]]
    if missing:
        print(f"  the model card is incomplete; to complete it, add {', '.join(missing)}")
    for remark in remarks:
        print(f"  {remark}")
    suggest("cloze", "show", out)


def _write_vectors(model: Path, out: Path, to: str, *, overwrite: bool) -> None:
    """Write the vectors of words to a file."""
    from cloze.cli.hints import suggest
    from cloze.interop.vectors import write_vectors

    count, width, remarks = write_vectors(model, to, out, overwrite=overwrite)
    print(f"{out}: {count:,} vectors of width {width}")
    for remark in remarks:
        print(f"  {remark}")
    suggest("cloze", "neighbours", out, "WORD")


def _upload(model: Path, name: str, card: Mapping[str, Any], *, public: bool) -> list[str]:
    """Upload the folder that --to huggingface writes; returns what transformers cannot express."""
    from tempfile import TemporaryDirectory

    from cloze.checkpoint.share import share
    from cloze.hub import publish

    with TemporaryDirectory() as parent:
        folder = Path(parent) / name.rpartition("/")[2]
        remarks = share(model, folder, **card)
        sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
        address = publish(folder, name, public=public)
    print(f"{address}: {len(sizes)} files, {sum(sizes) / 1e6:,.1f} MB")
    return remarks


def _write_change(model: Path, out: Path, to: str, base: Path | None) -> None:
    """Write what was trained of a changed network."""
    from cloze.checkpoint.saved_change import write_change
    from cloze.cli.hints import suggest

    remarks = write_change(model, out, base=base, peft=to == "peft")
    print(f"{out}: what was trained of the network, and the heads")
    for remark in remarks:
        print(f"  {remark}")
    suggest("cloze", "show", out)


def _is_classifier(model: Path, to: str) -> bool:
    """Whether a folder holds a classifier of fastText; a `UserError` if it does not and the format is for these alone."""
    from cloze.errors import UserError
    from cloze.interop.vectors.classifier import is_classifier

    has_classifier = model.is_dir() and is_classifier(model)
    if not has_classifier and to == "fasttext-quantised":
        raise UserError(f"{model}: --to fasttext-quantised is for classifiers of fasttext-supervised. Use --to fasttext.")
    return has_classifier


def _write_classifier(model: Path, out: Path, quantising: Any, cutoff: int | None, overwrite: bool) -> None:
    """Write a classifier as fastText's file."""
    from cloze.atomic import require_output
    from cloze.cli.hints import suggest
    from cloze.interop.vectors.classifier import write_classifier

    require_output(out, overwrite=overwrite)
    words, labels, remarks = write_classifier(model, out, quantising=quantising, cutoff=cutoff)
    print(f"{out}: {words:,} words, {labels:,} labels, {out.stat().st_size / 1e6:,.2f} MB")
    for remark in remarks:
        print(f"  {remark}")
    suggest("cloze", "import", out, "--out", "FOLDER")


def _write_onnx(model: Path, out: Path, *, int8: bool, task: str | None) -> None:
    """Write the network and the head of its task for other runtimes."""
    from cloze.atomic import require_parent
    from cloze.checkpoint.onnx_file import write_onnx, write_onnx_folder
    from cloze.cli.hints import suggest
    from cloze.errors import UserError
    from cloze.interop.onnx_folder import FILE

    if out.suffix not in ("", ".onnx") or out.suffix and out.exists():
        raise UserError(f"{out}: expected a new file that ends in .onnx, or a new folder with a name without an ending.")
    require_parent(out)
    if out.suffix:
        report = write_onnx(model, out, int8=int8, task=task)
    else:
        report = write_onnx_folder(model, out, int8=int8, task=task)
    size = (out if out.suffix else out / FILE).stat().st_size
    print(f"{out}: {', '.join(report.inputs)} → {', '.join(report.outputs)}, {size / 1e6:,.2f} MB")
    print(f"  opened by onnxruntime; largest difference from the network {report.difference:.1e}")
    for remark in report.remarks:
        print(f"  {remark}")
    if "logits" in report.outputs:
        suggest("cloze", "evaluate", out, "FILE")
