"""A recipe for an imported model: a named recipe with the model's network, vocabulary and heads."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from cloze.errors import CheckpointError
from cloze.interop.architecture import ARCHITECTURES
from cloze.interop.model import PortableHead, class_of, defaults
from cloze.interop.read import Imported
from cloze.reading import Reading
from cloze.registry import names
from cloze.text.tokenizer import Tokenizer
from cloze.text.words import split_of


def base_recipe(imported: Imported) -> str:
    """The named recipe for such a model; a network that only cloze knows has its own recipe in the folder."""
    if imported.architecture is None:
        raise CheckpointError(
            f"{imported.folder}: cloze/recipe.yaml is missing, and no other file says how this network was trained.\n"
            "  The copy is incomplete: copy the whole folder again."
        )
    return ARCHITECTURES[imported.architecture].recipe(imported.model)


def adapted_recipe(imported: Imported, base: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`base`, a recipe as plain data, with the properties of the imported model.

    Network and vocabulary are the model's; exercise, optimizer and budget are those of `base`, because no Hugging Face
    folder says how its model was trained. A discriminator gets a new generator a quarter as wide.
    """
    recipe = copy.deepcopy(dict(base))
    recipe["name"] = name
    recipe["notes"] = (
        f"Read from a Hugging Face folder of transformers' {imported.architecture}: its network and its vocabulary. "
        f"Everything else is that of the recipe {base['name']}, because such a folder does not say how it was trained.\n"
    )
    recipe["text"] = text_of(imported.tokenizer)
    _reframe(recipe, imported.reading)
    arguments = dict(imported.model.arguments)
    if "networks" in recipe:
        parts = {"generator": _generator(arguments), "discriminator": arguments}
        recipe["networks"] = {role: {imported.model.part: part} for role, part in parts.items()}
    else:
        recipe["network"] = {imported.model.part: arguments}
        _put_heads(recipe, imported.model.heads)
        if not imported.model.flat.get("embedding.inputs"):
            _without_languages(recipe)
    if "[SEP]" not in imported.tokenizer.roles and "[EOS]" in imported.tokenizer.roles:
        recipe.update(_ended_by_eos({key: recipe[key] for key in ("exercise", "corpus") if key in recipe}))
    length = imported.model.flat.get("positions.max_length") or arguments.get("max_length")
    if length:
        _shorten(recipe, int(length))
    return recipe


def _reframe(recipe: dict[str, Any], reading: Reading) -> None:
    """The model's reading, also where edits of an encoder-decoder's exercise have the base's templates and start."""
    base, decodes = recipe.get("reading", {}), reading.start is not None
    keys = ("single", "pair", "summary", *(("start", "target") if decodes else ()))
    recipe["reading"] = {key: vars(reading)[key] for key in keys if vars(reading)[key] is not None}
    if decodes and reading.unwritten:
        recipe["reading"]["unwritten"] = list(reading.unwritten)
    for index, edit in enumerate(recipe["exercise"] if decodes else ()):
        name, options = _named(edit)
        if options == base.get("single"):
            recipe["exercise"][index] = {name: reading.single}
        elif isinstance(options, dict) and options.get("frame") == base.get("single"):
            options |= {"frame": reading.target or reading.single, "start": reading.start}


def text_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """The section `text` of a recipe with such a tokenizer."""
    arguments: dict[str, Any] = {"size": tokenizer.size}
    if tokenizer.kind not in names("tokenizer"):  # one that cloze reads and does not train
        return {"tokenizer": {"unigram": arguments}}
    if tokenizer.kind == "words":
        arguments |= {"min_count": 1, "split": split_of(tokenizer), "special": dict(tokenizer.literals)}
    if tokenizer.kind == "byte_bpe":
        spare = {} if "[UNK]" in tokenizer.literals else {"[UNK]": next(iter(tokenizer.literals.values()), "<unk>")}
        arguments["special"] = {**tokenizer.literals, **spare}
        arguments["special_last"] = int(tokenizer.special_ids.min()) > 0
    text: dict[str, Any] = {"tokenizer": {tokenizer.kind: arguments}}
    return {"normalise": {"lower": True}, **text} if tokenizer.lower else text


def _generator(discriminator: Mapping[str, Any]) -> dict[str, Any]:
    """A quarter of the width in heads of 64, sharing the embeddings and so their width (ELECTRA §3.2)."""
    width = max(1, discriminator["width"] // 4 // 64) * 64
    ((maps, options),) = discriminator["feed_forward"].items()
    narrow = {"width": width, "heads": width // 64, "feed_forward": {maps: {**options, "inner": 4 * width}}}
    return {**discriminator, **narrow}


def _put_heads(recipe: dict[str, Any], heads: Mapping[str, PortableHead]) -> None:
    """The model's token prediction, of the state that its head reads (a folder has no enhanced mask decoder); the relation of
    texts, and the edit that makes its targets, only if a head predicts it."""
    token_head = next((head for head in heads.values() if head.kind == "token_prediction"), None)
    learned = {head.argument("set") for head in heads.values() if head.kind == "relation_prediction"}
    objectives, dropped = [], set()
    for objective in recipe["objectives"]:
        name, raw_options = _named(objective)
        kind, options = class_of("objective", name).kind, raw_options or {}
        predicts = options.get("set", defaults("objective", name).get("set"))
        if kind == "relation_prediction" and predicts not in learned:
            dropped.add(predicts)
        elif kind == "token_prediction" and token_head is not None:
            keys = ("transform", "tie", "bias", "biases", "norm_epsilon", "scale")
            arguments = {key: token_head.argument(key) for key in keys if token_head.argument(key) is not None}
            training_options = {key: value for key, value in options.items() if key in ("weight", "z_loss")}
            training_options |= {"read": token_head.read[""]} if "" in token_head.read else {}
            objectives.append({token_head.part: {**arguments, **training_options}})
        else:
            objectives.append(objective)
    recipe["objectives"] = objectives
    if dropped:
        recipe["exercise"] = [_alone(edit, recipe) for edit in recipe["exercise"] if _set_of(edit) not in dropped]


def _named(part: Any) -> tuple[str, Any]:
    """The name of an edit or an objective in a recipe, and what is written after it."""
    return (part, None) if isinstance(part, str) else next(iter(part.items()))


def _set_of(edit: Any) -> str | None:
    """The set of targets that an edit makes."""
    name, options = _named(edit)
    usual: str | None = defaults("edit", name).get("set")
    return options.get("set", usual) if isinstance(options, dict) else usual


def _alone(edit: Any, recipe: Mapping[str, Any]) -> Any:
    """An edit that frames pairs, for single texts; any other edit unchanged."""
    name, _ = _named(edit)
    return {name: recipe["reading"]["single"]} if class_of("edit", name).frames else edit


def _ended_by_eos(value: Any) -> Any:
    """Templates and separators with [EOS] in the place of [SEP], for a tokenizer without the latter."""
    if isinstance(value, dict):
        return {key: _ended_by_eos(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_ended_by_eos(item) for item in value]
    return value.replace("[SEP]", "[EOS]") if isinstance(value, str) else value


def _without_languages(recipe: dict[str, Any]) -> None:
    """No language next to the tokens: rows are framed without one, and no corpus is drawn by language."""
    for index, edit in enumerate(recipe["exercise"]):
        name, options = _named(edit)
        if class_of("edit", name).frames and isinstance(options, dict) and "inputs" in options:
            recipe["exercise"][index] = {name: options["template"]}
    for source in _sources(recipe):
        source.pop("languages", None)


def _sources(recipe: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arguments of the recipe's sources."""
    return [arguments for arguments in recipe.get("corpus", {}).values() if isinstance(arguments, dict)]


def _shorten(recipe: dict[str, Any], most: int) -> None:
    """Limit every length to the model's positions."""
    for source in _sources(recipe):
        if "length" in source:
            source["length"] = min(source["length"], most)
    for phase in recipe.get("schedule", []):
        if "length" in phase.get("set", {}):
            phase["set"]["length"] = min(phase["set"]["length"], most)
