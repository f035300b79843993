"""`cloze import`: a Hugging Face folder, word vectors or weights of authors → a checkpoint that every command opens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cloze.cli.options import Encoding, WithFiles

if TYPE_CHECKING:
    from cloze.interop import Imported
    from cloze.interop.vectors.fasttext import FastText
    from cloze.recipe.recipe import Recipe


def command(
    source: Annotated[
        Path, typer.Argument(help="A folder of BERT, GPT-2 …, vectors of word2vec, GloVe, fastText, or weights of ELMo, CoVe …")
    ],
    out: Annotated[Path, typer.Option("--out", help="Where to write the checkpoint: a new or empty folder.")],
    name: Annotated[str | None, typer.Option(help="The model's name; default: the folder's.")] = None,
    repeated: Annotated[str, typer.Option(help="If a word occurs twice in a file: refuse, or keep the first.")] = "refuse",
    words: Annotated[Path | None, typer.Option(help="Word vectors that extend the vocabulary; for CoVe, those of GloVe.")] = None,
    split: Annotated[
        Literal["punctuation", "whitespace"], typer.Option(help="For released weights: where to split texts into words.")
    ] = "punctuation",
    encoder: Annotated[bool, typer.Option("--encoder", help="Import only the encoder of a translation model (cove).")] = False,
    language: Annotated[str | None, typer.Option(help="For a translator of several languages: the one that it reads.")] = None,
    to: Annotated[str | None, typer.Option(help="For a translator of several languages: the one that it writes.")] = None,
    encoding: Encoding = None,
    with_files: WithFiles = None,
) -> None:
    """Read a Hugging Face folder (config.json, model.safetensors, tokenizer) and write it as a cloze checkpoint.

    The result is again a Hugging Face folder, with a matching recipe in cloze/recipe.yaml.

    A file of word vectors (.vec, .txt, .bin, also compressed) becomes a checkpoint of the network word_vectors. A classifier of
    fastText (.bin, .ftz) becomes a fine-tuned folder.

    These released weights are read from their folder or file: ELMo (options.json, weights.hdf5), CoVe (wmtlstm.pth with --words
    GLOVE), Skip-thought (uni_skip.npz with its tables) and fastai's AWD-LSTM (lstm_fwd.pth with itos.pkl); UNITER, ViLBERT,
    VL-BERT, VisualBERT, UniVL, ERNIE (Tsinghua) and KnowBERT from a folder with the weights, the authors' configs and the
    vocabulary, and K-Adapter's adapters from that of their RoBERTa.

    --words adds the words of a larger table of vectors to the vocabulary of a run, by a linear map between the two spaces:
    cloze import SKIP-THOUGHT --words GoogleNews.bin --out LARGER.
    """
    from cloze.atomic import require_new
    from cloze.cli.hints import suggest
    from cloze.errors import UserError
    from cloze.interop.released import import_released, is_released

    require_new(out)
    released = is_released(source)
    if released:
        from cloze.interop.vectors import open_vectors

        vectors = None if words is None else open_vectors(words, repeated=repeated)
        imported = import_released(source, split=split, words=vectors)
    elif source.is_file():
        from cloze.interop.vectors.importing import import_vectors, supervised

        if (classifier := supervised(source)) is not None:
            if split != "punctuation" or repeated != "refuse" or encoder or any((words, language, to)):
                raise UserError(
                    f"--split, --words, --encoder, --repeated, --language and --to do not apply to {source}, a classifier of "
                    "fastText."
                )
            _write_classifier(classifier, source, out, name)
            return
        imported = import_vectors(source, repeated=repeated)
    else:
        imported = _read_folder(source, out)
    if repeated != "refuse" and words is None and (released or not source.is_file()):
        raise UserError(f"--repeated {repeated}: only for files of word vectors, which {source} is not. Leave it out.")
    if split != "punctuation" and not imported.trained_by:
        raise UserError(f"--split {split}: only for released weights of recurrent systems; {source} brings its own tokenizer.")
    if language is not None or to is not None:
        imported = _with_languages(imported, language, to)
    extended = words is not None and not released  # a released system reads --words by itself
    unchanged = source.is_dir() and not imported.trained_by and not extended and not encoder and language is None and to is None
    notes = [] if encoder or extended else _remarks_on_copy(source)
    if encoder:
        from cloze.changes import encoder_only

        imported = encoder_only(imported)
    if words is not None and extended:
        from cloze.changes import expand_vocabulary
        from cloze.interop.vectors import open_vectors

        imported, details = expand_vocabulary(imported, open_vectors(words, repeated=repeated))
        notes += details
    remarks = [*imported.remarks, *notes, *_write(imported, out, name or source.resolve().name, unchanged=unchanged)]
    typer.echo(_describe(imported))
    for remark in dict.fromkeys(remarks):
        typer.echo(f"  {remark}")
    typer.echo(f"written to {out}")
    suggest("cloze", "show", out)


def _read_folder(source: Path, out: Path) -> Imported:
    """The network, heads and tokenizer of a folder that `cloze import` may write to `out`."""
    from cloze.errors import UserError
    from cloze.interop import import_folder
    from cloze.interop.config import is_adapter
    from cloze.missing import require_checkpoint
    from cloze.recipe.user_files import naming_files

    require_checkpoint(source, expected="the folder of a model, or a file of vectors")
    if is_adapter(source):
        raise UserError(
            f"{source}: a folder of peft, which predict, evaluate and finetune open as it is.\n"
            f"  To write the network with the updates merged in: cloze export {source} {out} --to merged"
        )
    with naming_files(source):
        return import_folder(source)


def _with_languages(imported: Imported, language: str | None, to: str | None) -> Imported:
    """A translator that reads `language` and writes `to` from now on."""
    from dataclasses import replace

    from cloze.decoding.languages import speaking
    from cloze.errors import UserError

    tokenizer = speaking(imported, language, to)
    if language is not None and tokenizer.roles.get("[SOURCE]") is None:
        raise UserError(f"{imported.folder}: no token tells this network which language it reads.\n  Leave --language out.")
    return replace(imported, tokenizer=tokenizer)


def _write_classifier(model: FastText, source: Path, out: Path, name: str | None) -> None:
    """Write a classifier of fastText as a fine-tuned folder, whole or not at all."""
    import json

    from cloze.atomic import whole_folder
    from cloze.cli.hints import suggest
    from cloze.interop import Card, export_folder
    from cloze.interop.vectors.classifier import import_classifier, recipe_of_classifier
    from cloze.recipe.canonical import to_yaml
    from cloze.recipe.load import read_tree, recipe_from_data

    imported, task = import_classifier(model, str(source))
    several = "_multi_label" if task["task"] == "multi_label" else ""
    base = read_tree(f"fasttext-supervised{several}").plain()
    model_name = name or source.stem
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(out, new=True) as stage:
        recipe = recipe_from_data(recipe_of_classifier(imported, base, model_name), title=str(source))
        export_folder(
            stage, model=imported.model, tokenizer=imported.tokenizer, reading=imported.reading, labels=imported.labels,
            card=Card(model_name, paper=recipe.paper, notes="Imported from a model of fastText.", step=0, folder=out.name),
        )
        (stage / "cloze" / "recipe.yaml").write_text(to_yaml(recipe.canonical()), encoding="utf-8")
        (stage / "cloze" / "task.json").write_text(json.dumps(task, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    rows = imported.model.tables["ngrams"].arrays["kept"].shape[0]
    typer.echo(f"bag_of_ngrams: {len(model.words):,} words, {rows:,} rows of n-grams, {len(model.labels):,} labels")
    for remark in imported.remarks:
        typer.echo(f"  {remark}")
    typer.echo(f"written to {out}")
    suggest("cloze", "predict", out, "TEXT")


def _remarks_on_copy(source: Path) -> list[str]:
    """A remark on a folder that needs no import; none on any other."""
    if not _has_recipe(source):
        return []
    return [f"{source} is already a checkpoint of cloze, which every command opens; this is a copy without the log"]


def _write(imported: Imported, out: Path, name: str, *, unchanged: bool) -> list[str]:
    """Write a checkpoint folder, whole or not at all; returns remarks on what could not be expressed.

    `unchanged`: the model is that of a folder without any change, so that it keeps its task.
    """
    from dataclasses import replace

    from cloze.atomic import whole_folder
    from cloze.interop import Card, export_folder
    from cloze.interop.files import write_json
    from cloze.recipe.canonical import to_yaml
    from cloze.tasks.tuned_folder import find_task_json, length_of_tuned

    if unchanged and _has_recipe(imported.folder):
        from cloze.checkpoint.share import card_of, write_copy

        card = card_of(imported.folder, imported, languages=(), licence=None, data=None, folder=out.name)
        return write_copy(imported.folder, out, imported, replace(card, name=name))
    task = find_task_json(imported.folder) if unchanged else None
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(out, new=True) as stage:
        recipe, origin = _recipe_and_origin(imported, name)
        card = Card(name, paper=recipe.paper, notes=f"Imported from {origin}.", step=imported.step, folder=out.name)
        remarks = export_folder(
            stage, model=imported.model, tokenizer=imported.tokenizer, reading=imported.reading, card=card,
            architecture=imported.architecture, labels=imported.labels or None,
            length=None if imported.folder.is_file() else length_of_tuned(imported.folder),
        )  # fmt: skip
        (stage / "cloze" / "recipe.yaml").write_text(to_yaml(recipe.canonical()), encoding="utf-8")
        if task is not None:
            write_json(stage / "cloze" / "task.json", task)
    return remarks


def _has_recipe(folder: Path) -> bool:
    return (folder / "cloze" / "recipe.yaml").is_file()


def _recipe_and_origin(imported: Imported, name: str) -> tuple[Recipe, str]:
    """The recipe for training the model further, and what it was read from, in words."""
    from cloze.interop.recipe import adapted_recipe, base_recipe
    from cloze.interop.released import released_recipe
    from cloze.interop.vectors.importing import base_of_vectors, recipe_of_vectors
    from cloze.recipe.load import load_recipe, read_tree, recipe_from_data

    if imported.trained_by:
        base, adapt, origin = imported.trained_by, released_recipe, "its authors' files"
    elif imported.model.network_type.of_words:
        base, adapt, origin = base_of_vectors(imported), recipe_of_vectors, "a file of vectors"
    elif _has_recipe(imported.folder):
        return load_recipe(imported.folder), "a Hugging Face folder"
    else:
        base, adapt, origin = base_recipe(imported), adapted_recipe, "a Hugging Face folder"
    return recipe_from_data(adapt(imported, read_tree(base).plain(), name), title=str(imported.folder)), origin


def _describe(imported: Imported) -> str:
    """One line: what was read."""
    arguments = imported.model.arguments
    if imported.model.network_type.of_words:
        grams = f", {arguments['buckets']:,} rows of n-grams" if arguments["subwords"] else ""
        return f"word_vectors: {imported.vocab_size:,} words, width {arguments['width']}{grams}"
    heads = ", ".join(imported.model.heads) or "no head"
    tensors = [*imported.model.network.values(), *(t for h in imported.model.heads.values() for t in h.state.values())]
    parameters = sum(tensor.numel() for tensor in tensors)
    shape = [f"{arguments['layers']} layers"] if "layers" in arguments else []
    shape += [f"width {arguments['width']}", *([f"{arguments['heads']} attention heads"] if "heads" in arguments else [])]
    return (
        f"{imported.architecture or imported.model.part}: {', '.join(shape)}, {imported.vocab_size:,} pieces, "
        f"{parameters:,} parameters; {heads}"
    )
