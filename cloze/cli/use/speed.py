"""`cloze speed`: how large networks are and how long they take, measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.cli.options import Overwrite, WithFiles


def command(
    checkpoints: Annotated[list[Path], typer.Argument(help="Run folders, fine-tuned folders or Hugging Face folders.")],
    lengths: Annotated[str, typer.Option(help="Tokens per text, separated by commas.")] = "32,128",
    batch: Annotated[str, typer.Option(help="Texts per batch, separated by commas.")] = "1,32",
    formats: Annotated[str, typer.Option("--as", help="Separated by commas: fp32, bf16, int8, onnx, onnx-int8.")] = "fp32",
    rounds: Annotated[int, typer.Option(min=2, help="How often each one is timed.")] = 20,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:<number>.")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="A JSON file to write.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    overwrite: Overwrite = False,
    with_files: WithFiles = None,
) -> None:
    """Measure checkpoints: parameters, bytes, floating-point operations and milliseconds of a forward pass.

    Example: cloze speed BIG SMALL --lengths 32,128 --batch 1,32 --as fp32,bf16,int8

    They are timed in turn on random tokens, without padding and without heads; the table shows the median and the quartiles.
    bf16 is autocast; int8 is torch's dynamic quantisation of linear maps on a CPU. onnx and onnx-int8 run the files of
    cloze export --to onnx in onnxruntime (pip install "cloze-lm[onnx]"). OMP_NUM_THREADS sets the number of threads.
    """
    import json
    import os
    import tempfile
    from importlib.metadata import version

    from cloze.atomic import require_output, whole_file
    from cloze.errors import UserError

    if out is not None:
        require_output(out, overwrite=overwrite)
    sizes = {"--lengths": _numbers("--lengths", lengths), "--batch": _numbers("--batch", batch)}
    chosen = [kind.strip() for kind in formats.split(",")]

    from cloze.checkpoint.build import load_checkpoint
    from cloze.checkpoint.onnx_file import FILES
    from cloze.compression.speed import FORMATS, TimedNetwork, measure
    from cloze.errors import propose
    from cloze.interop.onnx_folder import is_onnx
    from cloze.training.hardware import environment
    from cloze.training.precision import choose_device

    for kind in chosen:
        if kind not in FORMATS:
            raise UserError(f"--as {formats}: unknown format {kind!r}. {propose(kind, FORMATS)}")
    for folder in checkpoints:
        if is_onnx(folder):  # its weights cannot be counted, and it has one format
            raise UserError(
                f"{folder}: an ONNX file. Give the folder that it was exported from, which is timed in onnxruntime with "
                "--as onnx or --as onnx-int8."
            )
    torch_device, subjects = choose_device(device), []
    names = [Path(os.path.abspath(folder)).name for folder in checkpoints]  # a link has its own
    with tempfile.TemporaryDirectory() as directory:
        for number, (folder, name) in enumerate(zip(checkpoints, names, strict=True)):
            loaded = load_checkpoint(folder, device)
            files = _files(folder, Path(directory) / str(number), chosen)
            label = name if names.count(name) == 1 else str(folder)
            subjects.append(TimedNetwork(label, loaded.network, loaded.order, files, loaded.imported.vocab_size))
        rows = measure(
            subjects, lengths=sizes["--lengths"], batches=sizes["--batch"], formats=chosen, rounds=rounds, device=torch_device,
            report=lambda line: typer.echo(line, err=True),
        )
    machine = environment(torch_device, ",".join(chosen))
    if set(FILES) & set(chosen):
        machine["packages"]["onnxruntime"] = version("onnxruntime")
    results = {"rounds": rounds, "machine": machine, "rows": [row.record() for row in rows]}
    text = json.dumps(results, ensure_ascii=False, indent=2)
    if out is not None:
        with whole_file(out) as fresh:
            fresh.write_text(text + "\n", encoding="utf-8")
    typer.echo(text if as_json else _table(results))


def _files(folder: Path, target: Path, formats: list[str]) -> Mapping[str, Path | str]:
    """The files that onnxruntime reads, if one of its formats is asked for."""
    from cloze.checkpoint.onnx_file import FILES

    if not set(FILES) & set(formats):
        return {}
    from cloze.checkpoint.onnx_file import files_to_time

    target.mkdir()
    return files_to_time(folder, target, formats)


def _numbers(option: str, value: str) -> list[int]:
    from cloze.errors import UserError

    numbers = [int(number) if number.strip().isdigit() else 0 for number in value.split(",")]
    if min(numbers) < 1:
        raise UserError(f"{option} {value}: expected whole numbers of 1 or more, separated by commas: 32,128.")
    return numbers


def _table(measurements: Mapping[str, Any]) -> str:
    """The rows as a table, and what they were measured on."""
    head = ["checkpoint", "as", "length", "batch", "parameters", "MB", "GFLOP", "ms", "quartiles"]
    cells = [head]
    for row in measurements["rows"]:
        labels = [row["checkpoint"], row["format"], str(row["length"]), str(row["batch"]), f"{row['parameters']:,}"]
        if row["fault"]:
            cells.append([*labels, "–", "–", "–", row["fault"]])
            continue
        spread = f"{row['low']:.2f} – {row['high']:.2f}"
        cells.append([*labels, f"{row['bytes'] / 1e6:.2f}", f"{row['flops'] / 1e9:.3f}", f"{row['median']:.2f}", spread])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(w) if n < 2 or n == len(widths) - 1 else cell.rjust(w)
                  for n, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip() for row in cells
    ]
    about = measurements["machine"]
    packages = ("torch", "cloze", "numba", "onnxruntime")
    versions = [f"{name} {version}" for name, version in about["packages"].items() if name in packages]
    threads = f"{about['threads']} thread{'' if about['threads'] == 1 else 's'}"
    machine = ", ".join([about.get("gpu") or about["processor"], threads, *versions])
    return "\n".join([*lines, "", f"{measurements['rounds']} interleaved rounds; {machine}"])
