"""`cloze import`: a Hugging Face folder → a checkpoint that every verb of cloze opens."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cloze.interop import Imported


def command(
    source: Annotated[Path, typer.Argument(metavar="HF_FOLDER", help="A folder of BERT, RoBERTa, GPT-2 or ELECTRA.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write the checkpoint; must not hold anything yet.")],
    name: Annotated[str | None, typer.Option(help="The model's name; default: the folder's.")] = None,
) -> None:
    """Read a Hugging Face folder (config.json, model.safetensors, tokenizer) and write it as a cloze checkpoint.

    The result is a Hugging Face folder again, with the recipe of its kind in cloze/recipe.yaml. Nothing is downloaded.
    """
    from cloze.errors import CheckpointError
    from cloze.interop import import_folder

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"{out}: holds something already; expected a new or empty folder. Choose another --out.")
    imported = import_folder(source)
    remarks = [*imported.remarks, *write(imported, out, name or source.resolve().name)]
    typer.echo(describe(imported))
    for remark in dict.fromkeys(remarks):
        typer.echo(f"  {remark}")
    typer.echo(f"written to {out}")


def write(imported: Imported, out: Path, name: str) -> list[str]:
    """Write a checkpoint folder, whole or not at all; returns remarks on what could not be expressed."""
    from cloze.assembly.canonical import to_yaml
    from cloze.assembly.load import load_recipe, read_tree, recipe_from_data
    from cloze.interop import Card, export_folder
    from cloze.interop.recipe import adapted_recipe, base_recipe

    out.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        if (imported.folder / "cloze" / "recipe.yaml").is_file():
            recipe = load_recipe(imported.folder)
        else:
            base = read_tree(base_recipe(imported)).plain()
            recipe = recipe_from_data(adapted_recipe(imported, base, name), origin=str(imported.folder))
        card = Card(name, paper=recipe.paper, notes="Imported from a Hugging Face folder.", step=imported.step)
        remarks = export_folder(
            stage, model=imported.model, tokenizer=imported.tokenizer, reading=imported.reading, card=card,
            architecture=imported.architecture, labels=imported.labels or None,
        )  # fmt: skip
        with (stage / "cloze" / "recipe.yaml").open("w", encoding="utf-8") as file:
            file.write(to_yaml(recipe.canonical()))
            file.flush()
            os.fsync(file.fileno())
        stage.chmod(0o777 & ~_umask(stage))
        os.replace(stage, out)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return remarks


def describe(imported: Imported) -> str:
    """One line: what was read."""
    arguments = imported.model.arguments
    heads = ", ".join(imported.model.heads) or "no head"
    tensors = [*imported.model.network.values(), *(t for h in imported.model.heads.values() for t in h.state.values())]
    parameters = sum(tensor.numel() for tensor in tensors)
    return (
        f"{imported.architecture or imported.model.part}: {arguments['layers']} layers, width {arguments['width']}, "
        f"{arguments['heads']} attention heads, {imported.vocab_size:,} pieces, {parameters:,} parameters; {heads}"
    )


def _umask(folder: Path) -> int:
    """The bits that new folders here do not get, asked without changing anything for other threads."""
    probe = folder / "cloze" / ".probe"
    probe.mkdir()
    mode = probe.stat().st_mode
    probe.rmdir()
    return 0o777 & ~mode
