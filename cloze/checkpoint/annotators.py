"""The annotators of the texts that a network reads: on the command line, in a recipe and in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloze.document import Node, Where, from_data, parse_value
from cloze.errors import CorpusError, RecipeError, propose
from cloze.recipe.builders import build
from cloze.recipe.parts import builder_of, names
from cloze.recipe.recipe import EntrySpec, PartSpec, Recipe, as_plain_data
from cloze.recipe.schema import arguments_of_part, check_part
from cloze.text import Annotations
from cloze.text.annotation.mentions import FileAnnotator

if TYPE_CHECKING:
    from cloze.interop import Annotating  # loads torch, which building a store does without

#: Annotators by layer, each as a recipe writes it: {part: {argument: value}}.
LayerAnnotators = Mapping[str, Mapping[str, Any]]


def parse_annotators(options: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What every `--annotate` writes in a recipe, by layer.

    Each is `NAME=PART`, `NAME=PART:FILE`, `NAME=PART:{file: FILE, ARGUMENT: VALUE}` or `NAME=FILE` (a list).
    """
    annotators: dict[str, dict[str, Any]] = {}
    for option in options:
        layer, equals, rest = option.partition("=")
        if not equals or not layer or not rest:
            raise RecipeError(f"--annotate {option}: expected NAME=PART:FILE or NAME=FILE, for example entity=names.txt.")
        part, colon, file = rest.partition(":")
        if part not in names("annotator"):
            if colon and not Path(rest).exists() and Path(file).exists():
                raise RecipeError(f"--annotate {option}: unknown annotator {part!r}. {propose(part, names('annotator'))}")
            part, file = "list", rest
        annotators[layer] = {part: _arguments(part, file, option)}
    return annotators


def _arguments(part: str, text: str, option: str) -> dict[str, Any]:
    """The arguments of an annotator: its file, or several in braces. `option` is all that `--annotate` was given."""
    if not text.lstrip().startswith("{"):
        return {"file": text} if text else {}
    where = Where(f"--annotate {option}")
    arguments: dict[str, Any] = parse_value(text, where, option="--annotate", prefix=option.removesuffix(text)).plain()
    check_part("annotator", from_data({part: arguments}, where))
    return arguments


def add_annotators(tree: Node, new_annotators: LayerAnnotators) -> None:
    """Add annotators to every source of labelled text of a recipe as written, and of its stages."""
    for source, arguments in sources_that_take("annotate", tree) if new_annotators else ():
        node = arguments.value.get("annotate")
        annotators = {} if node is None or node.value is None else node.plain()
        arguments.put("annotate", from_data({**annotators, **new_annotators}, source.where))


def sources_that_take(argument: str, tree: Node) -> Iterator[tuple[Node, Node]]:
    """Every source of a recipe as written, and of its stages, that has such an argument, and its arguments."""
    stages = tree.value.get("stages") if tree.is_mapping else None
    for recipe in [tree] if stages is None else [tree, *(stage for _, stage in stages.items())]:
        nodes = [recipe.value[key] for key in ("corpus", "sources") if recipe.is_mapping and key in recipe.value]
        for source in [candidate for node in nodes for candidate in (node, *(inner for _, inner in node.items()))]:
            for part, arguments in source.items() if source.is_mapping else ():
                if arguments.is_mapping and str(part) in names("source") and argument in arguments_of_part("source", str(part)):
                    yield source, arguments


def complete_annotators(new_annotators: LayerAnnotators, saved_annotators: Mapping[str, Annotating]) -> dict[str, dict[str, Any]]:
    """Annotators with the arguments that those of a checkpoint have, above all its labels. A layer that the checkpoint does not
    read is a `RecipeError`."""
    annotators: dict[str, dict[str, Any]] = {}
    for layer, annotator in new_annotators.items():
        if layer not in saved_annotators:
            raise RecipeError(
                f"--annotate {layer}: this checkpoint reads no layer of that name. " + (
                    propose(layer, saved_annotators) if saved_annotators
                    else "It reads no annotations: its recipe has no link and no show."
                )
            )
        ((part, arguments),) = annotator.items()
        accepted = arguments_of_part("annotator", part)
        saved_arguments = {key: value for key, value in saved_annotators[layer].arguments.items() if key in accepted}
        annotators[layer] = {part: {**saved_arguments, **arguments}}
    return annotators


def describe_annotators(annotators: Mapping[str, Annotating]) -> dict[str, dict[str, Any]]:
    """The annotators of a checkpoint that mark any text, as a recipe writes them."""
    return {
        layer: {annotator.part: {**annotator.arguments, **({} if annotator.file is None else {"file": str(annotator.file)})}}
        for layer, annotator in annotators.items() if annotator.file is not None or not _asks_for_file(annotator.part)
    }


def annotations_of(saved_annotators: Mapping[str, Annotating], new_annotators: LayerAnnotators | None = None) -> Annotations:
    """The annotations by which a checkpoint reads texts: those that are given, and its own that mark any text."""
    descriptions = {**describe_annotators(saved_annotators), **complete_annotators(new_annotators or {}, saved_annotators)}
    layers = {
        layer: build(builder_of("annotator", part), arguments, {})
        for layer, description in descriptions.items() for part, arguments in description.items()
    }
    return Annotations(layers=layers)


def unlabelled_layers(saved_annotators: Mapping[str, Annotating], options: Sequence[str]) -> list[str]:
    """The layers that a checkpoint reads and that nothing labels: their annotators need a file, and neither they nor an
    `--annotate` name one."""
    labelled = {*describe_annotators(saved_annotators), *parse_annotators(options)}
    return [layer for layer in saved_annotators if layer not in labelled]


def annotators_read(folder: Path, options: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The annotators of `--annotate` whose layers the checkpoint of a run reads; the others were for its training alone."""
    annotators = json.loads((folder / "cloze" / "network.json").read_text(encoding="utf-8")).get("annotators", {})
    return {layer: annotator for layer, annotator in parse_annotators(options).items() if layer in annotators}


def require_matches(annotations: Annotations, options: Sequence[str]) -> None:
    """Raise `CorpusError` if a file of `--annotate` that names its texts has named none of those that were read."""
    for layer in parse_annotators(options):
        annotator = annotations.layers[layer]
        if isinstance(annotator, FileAnnotator) and annotator.hash is not None and layer not in annotations.met_layers:
            option = next(candidate for candidate in options if candidate.partition("=")[0] == layer)
            raise CorpusError(
                f"--annotate {option}: the file names none of the texts that were read, so the network saw no annotations.\n"
                "  Give the file that belongs to these texts; cloze link TEXT --entities FILE --out mentions.jsonl writes one. "
                "A prompt is another text than its parts."
            )


def read_layers(edits: Sequence[PartSpec]) -> list[str]:
    """The labelled layers that edits read."""
    takes = [name for spec in edits for name in build(builder_of(spec.kind, spec.name), as_plain_data(spec.arguments), {}).takes]
    return list(dict.fromkeys(name.removeprefix("labels/") for name in sorted(takes) if name.startswith("labels/")))


def annotators_in(recipe: Recipe, entry: EntrySpec | None = None) -> dict[str, PartSpec]:
    """The annotators of a recipe, by layer: of the text, and of the labelled text of an entry, or of all."""
    annotators = dict(recipe.texts["main"].annotate) if "main" in recipe.texts else {}
    for name, source in recipe.sources.items():
        if entry is None or entry.source == name:
            annotators |= source.arguments.get("annotate") or {}
    return annotators


def entry_annotations(recipe: Recipe, entry: EntrySpec, layers: Sequence[str]) -> Annotations:
    """The annotations of some layers by which the texts of an entry are read while it is trained; those without a file are left
    out."""
    annotators = {
        layer: build(builder_of("annotator", spec.name), as_plain_data(spec.arguments), {})
        for layer, spec in annotators_in(recipe, entry).items() if layer in layers
    }
    return Annotations(layers={layer: annotator for layer, annotator in annotators.items() if annotator.hash is not None})


def kept_annotators(recipe: Recipe, layers: Sequence[str], labels: Mapping[str, Sequence[str]]) -> dict[str, Annotating]:
    """What a checkpoint keeps of the annotators of the layers that it reads: the arguments, with the names of the `labels` in
    their order, and the file if it marks any text."""
    from cloze.interop import Annotating

    annotators: dict[str, Annotating] = {}
    for layer, spec in annotators_in(recipe).items():
        if layer not in layers:
            continue
        arguments = as_plain_data(spec.arguments)
        file = arguments.pop("file", None)
        if "labels" in arguments and arguments["labels"] is None:
            arguments["labels"] = list(labels[layer]) if layer in labels else None
        of_any_text = file is not None and builder_of("annotator", spec.name).of_any_text  # type: ignore[attr-defined]
        annotators[layer] = Annotating(spec.name, arguments, Path(file).expanduser().resolve() if of_any_text else None)
    return annotators


def _asks_for_file(part: str) -> bool:
    return "file" in arguments_of_part("annotator", part) or not builder_of("annotator", part).of_any_text  # type: ignore[attr-defined]
