"""`cloze features`: pictures with boxes → a file of features for `cloze corpus build --items`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.options import Device, Overwrite

if TYPE_CHECKING:
    from cloze.corpus.items.extractors import FeatureExtractor


def command(
    images: Annotated[Path, typer.Argument(help="A folder of pictures; captions refer to a picture by its path in it.")],
    out: Annotated[Path, typer.Option(help="The .npz file to write.")],
    model: Annotated[
        str | None,
        typer.Option(help="A trained network: ORG/NAME of the Hugging Face Hub or a folder, of transformers or timm."),
    ] = None,
    boxes: Annotated[
        Path | None,
        typer.Option(help="The regions of each picture, as JSON or as torchvision's detections (.pt). Default with --model: "
                     "the cells of its map."),
    ] = None,
    grid: Annotated[int | None, typer.Option(min=1, help="Instead of boxes: this many equal cells along each side.")] = None,
    crops: Annotated[
        bool, typer.Option("--crops", help="With --model: read each region as a picture; a classifier adds its probabilities.")
    ] = False,
    using: Annotated[
        str | None,
        typer.Option(
            "--with", help="Without --model: pixels, random_conv, or your own extractor, a Python file; default: pixels."
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="pixels: the side of a region (8); random_conv: the width of features (128).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of random_conv's weights; default: 0.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="With --model: pictures read together.")] = 8,
    device: Device = "auto",
    number: Annotated[str, typer.Option(help="The type of the numbers: float16 or float32.")] = "float16",
    overwrite: Overwrite = False,
) -> None:
    """Write features of the regions of pictures.

    Example: cloze features PICTURES --model facebook/dinov2-base --grid 6 --out features.npz

    boxes.json: {"dog.jpg": [[x1, y1, x2, y2], ...]}, or {"dog.jpg": {"boxes": [...], "class": ["dog", ...]}} with further arrays.
    Boxes are in pixels, or in shares of the picture if no number is above 1. Your Python file defines features(picture, boxes),
    which maps uint8 (H, W, 3) and pixel boxes (R, 4) to (R, width). To continue an interrupted run, repeat the command.
    """
    from cloze.atomic import require_output
    from cloze.corpus.items.features import count_pictures, write_features
    from cloze.decoding.progress import DecodingProgress
    from cloze.errors import CorpusError
    from cloze.interop.backbones import read_any_boxes

    if number not in ("float16", "float32"):
        raise CorpusError(f"--number {number}: expected float16 or float32.")
    require_output(out, overwrite=overwrite)
    count = count_pictures(images)
    if model is None:
        if crops:
            raise CorpusError("--crops is for a trained network. Add --model ORG/NAME, or omit --crops.")
        extractor = extractor_of(using or "pixels", size=size, seed=seed or 0)
    else:
        extra = {"--with": using, "--size": size, "--seed": seed}
        if chosen := [option for option, value in extra.items() if value is not None]:
            raise CorpusError(f"--model names a trained network; {chosen[0]} is for features without one. Omit one of them.")
        extractor = trained(model, crops=crops, batch=batch, device=device, regions=grid is not None or boxes is not None)
    with DecodingProgress(count, "pictures") as progress:
        summary = write_features(
            images, out, extractor, boxes=boxes, cells=grid, number=number,  # type: ignore[arg-type]  # checked above
            overwrite=overwrite, report=progress, read=read_any_boxes,
        )
    without = f"; {summary.without:,} pictures have no boxes and are left out" if summary.without else ""
    typer.echo(f"{out}: {summary.regions:,} regions of {summary.pictures:,} pictures, {summary.width} numbers per region "
               f"({extractor.name}){without}")


def trained(model: str, *, crops: bool, batch: int, device: str, regions: bool) -> FeatureExtractor:
    """The extractor of a trained network; `regions` says whether boxes or a grid are given."""
    from cloze.errors import CorpusError
    from cloze.interop.backbones import picture_extractor
    from cloze.training.precision import choose_device

    if crops and not regions:
        raise CorpusError("--crops cuts regions out of the pictures. Name them: --grid 3 or --boxes FILE.json.")
    return picture_extractor(model, crops=crops, together=batch, device=choose_device(device))


def extractor_of(name: str, *, size: int | None, seed: int) -> FeatureExtractor:
    """The extractor of a name, or the one in a Python file; a `CorpusError` if there is none."""
    from cloze.corpus.items.extractors import NAMES, OwnFunction, RandomConvolution, SmallPictures
    from cloze.errors import CorpusError, propose

    if name == "pixels":
        return SmallPictures(size or 8)
    if name == "random_conv":
        return RandomConvolution(size or 128, seed)
    if not name.endswith(".py"):
        raise CorpusError(f"--with {name}: no such extractor. {propose(name, NAMES)}\n  Or give a Python file with your own.")
    from cloze.recipe.user_files import function_of

    function, digest = function_of(Path(name), "features")
    if size is not None:
        raise CorpusError(f"--size is for pixels and random_conv; {name} sets the width of its features itself. Omit --size.")
    return OwnFunction(function, Path(name).name, digest)
