"""Loads the initial weights of a run: checkpoints into the networks that come `from` them, and into their heads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from cloze.changes import Change, Shape, Transition, Vocabulary, matched_rows
from cloze.changes.vocabulary import STARTS
from cloze.checkpoint.build import Loaded, build_part, load_checkpoint, plain
from cloze.checkpoint.grafting import Side, completed, fresh_parts, report, require_fit, shape
from cloze.checkpoint.new_heads import start_head
from cloze.checkpoint.several import START
from cloze.errors import CheckpointError
from cloze.exercises.retokenize import reading_of
from cloze.interop import Model
from cloze.recipe.changes import lasts
from cloze.recipe.origins import borrowed, frozen_heads
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import ObjectiveSpec, PartSpec, Recipe
from cloze.text import Tokenizer
from cloze.training.step import Step

Say = Callable[[str], None]


def begin_with(
    step: Step, recipe: Recipe, label: str, folder: Path, tokenizer: Tokenizer, *, say: Say = print,
    drawn: Callable[[], Step] | None = None, labels: Sequence[str] = (),
) -> frozenset[str]:
    """Load the weights of a checkpoint into the network `label`, and into those of its heads that the checkpoint has. Returns the
    keys in the step of the new heads of a task that take over nothing, or of all new ones if these are fitted.

    The `change`s of the network adapt the checkpoint's tensors to it. A head takes the weights of the checkpoint's head with the
    same state name and part. A head of another shape (other classes) starts at random, or is refused if nothing would train it.
    So do modules that the network has in addition (`Network.fresh`); one line says what starts at random. `drawn` builds the step
    with random weights, for a network that was built without (`filled` of `build_step`). `labels` are the classes of the
    task: the outputs of a checkpoint's head for the same classes in another order are put in theirs.

    Raises:
        CheckpointError: the network, the tokenizer, or a head that is never trained does not fit.
    """
    spec = recipe.networks[label]
    loaded: Loaded = load_checkpoint(folder)
    inherited = _inherited(spec.change, loaded.imported.model)
    if loaded.imported.model.changes and not inherited:
        loaded = load_checkpoint(folder, plain=True)
    changes: list[Change] = [build_part(part) for part in spec.change if not any(part is other for other in inherited)]
    changes = _with_vocabulary(changes, loaded, tokenizer, folder, say)
    network: Any = step.networks[label]
    assert spec.part is not None  # the network is built
    transition = Transition(
        Shape(str(folder), loaded.imported.model.part, loaded.network_arguments), loaded.network, network,
        plain(spec.part.arguments), loaded.tokenizer, tokenizer,
    )
    tensors: Mapping[str, Tensor] = loaded.network.state_dict()
    for change in changes:
        tensors = change.weights(tensors, transition)
    new = fresh_parts(network, tensors)
    if new and drawn is not None:
        network.load_state_dict(drawn().networks[label].state_dict())
    tensors = completed(network, tensors)
    require_fit(
        network, Side(spec.part.name, plain(spec.part.arguments)), tensors,
        Side(loaded.imported.model.part, loaded.network_arguments), folder=folder, label=label, recipe=recipe.name,
        changed=bool(spec.change),
    )
    network.load_state_dict(dict(tensors))
    frozen, drawn_heads = frozen_heads(recipe), set[str]()
    for entry in recipe.entries.values():
        for run, objective in entry.objectives():
            if run.network == label:
                key = recipe.head_key(run, objective)
                head = step.objectives[key]
                stays = recipe.head_name(run, objective) in frozen
                lacks = _load_head(head, objective, loaded, changes, transition, or_alone=stays, labels=labels)
                fitted = recipe.training.new_heads == "fitted"
                if lacks and recipe.task is not None and (not start_head(head, loaded, pooler=not fitted) or fitted):
                    drawn_heads.add(key)
                if lacks and stays:
                    raise CheckpointError(_random_head(folder, recipe, label, objective, loaded, lacks))
                if lacks and recipe.task is None:
                    new[f"head {objective.state}"] = sum(tensor.numel() for tensor in head.state_dict().values())
    if new:
        say(report(folder, new))
    return frozenset(drawn_heads)


def _inherited(specs: Sequence[PartSpec], model: Model) -> list[PartSpec]:
    """The changes of a recipe that the checkpoint's network already has: all of the checkpoint's changes, or none.

    If the recipe does not start with all of them, the network's plain form is loaded.
    """
    first = [spec for spec in specs if lasts(spec.name)][: len(model.changes)]
    here = json.dumps([[spec.name, plain(spec.arguments)] for spec in first], sort_keys=True)
    return first if here == json.dumps([[name, dict(arguments)] for name, arguments in model.changes], sort_keys=True) else []


def _load_head(
    head: nn.Module, spec: ObjectiveSpec, given: Loaded, changes: Sequence[Change], transition: Transition, *, or_alone: bool,
    labels: Sequence[str] = (),
) -> str:
    """Load the head of the same name and part, `or_alone` the only one of that part that predicts the same set; returns what does
    not fit, or an empty string."""
    here, (alike, same) = head.state_dict(), _alike(spec, given)
    heads, takes_over = given.imported.model.heads, class_of("objective", spec.part.name).takes_over
    name = same[0] if (or_alone or takes_over) and spec.state not in heads and len(same) == 1 else spec.state
    source_head = given.heads.get(name)
    if source_head is None or name not in alike:
        return "the checkpoint has no such head" if here else ""
    there: Mapping[str, Tensor] = source_head.state_dict()
    for change in changes:
        there = change.head_state(there, head, transition)
    wrong = [key for key in {**here, **there} if shape(key, here) != shape(key, there)]
    if wrong:
        return f"{wrong[0]} is {shape(wrong[0], there)} in the checkpoint and {shape(wrong[0], here)} in the recipe"
    head.load_state_dict(_ordered(there, given.imported.labels, labels))
    return ""


def _ordered(state: Mapping[str, Tensor], theirs: Sequence[str], ours: Sequence[str]) -> dict[str, Tensor]:
    """A head with its outputs in the order of our classes, if they are the same as theirs."""
    if sorted(theirs) != sorted(ours) or list(theirs) == list(ours):
        return dict(state)
    order = torch.tensor([theirs.index(label) for label in ours])
    return {name: tensor[order] if name.startswith("head.output.") else tensor for name, tensor in state.items()}


def _alike(spec: ObjectiveSpec, given: Loaded) -> tuple[list[str], list[str]]:
    """The heads of a checkpoint of the part that an objective can take over, and those of them that predict the same set."""
    heads = given.imported.model.heads
    parts = {spec.part.name, *class_of("objective", spec.part.name).takes_over}
    alike = [name for name in heads if heads[name].part in parts]
    return alike, [name for name in alike if heads[name].argument("set") == spec.set]


def _random_head(folder: Path, recipe: Recipe, label: str, spec: ObjectiveSpec, given: Loaded, lacks: str) -> str:
    head_names = ", ".join(f"{name} ({head.part})" for name, head in given.imported.model.heads.items()) or "none"
    fitting, origin = _alike(spec, given)[1], recipe.networks[label].origin
    if len(fitting) > 1:
        way = f"Name the one that is meant with `head:` in a recipe of your own: {', '.join(fitting)}."
    elif recipe.task is None:
        way = f"Bind a checkpoint with such a head: --bind {origin}=FOLDER. Or train this one in a recipe of your own."
    else:
        task = "" if recipe.task.type is None else f" --task {recipe.task.type}"
        tuned = f"cloze finetune {folder}{task} --train FILE --dev FILE --out TUNED"
        given_as = "cloze finetune TUNED" if origin == START else f"--bind {origin}=TUNED"
        way = f"Tune the checkpoint on this task first, with the same classes, then give {given_as}:\n    {tuned}"
    return (
        f"{folder}: the head {spec.state!r} ({spec.part.name}) of network {label!r} would stay random, because no pass trains "
        f"it: {lacks}.\n  Heads of the checkpoint: {head_names}. {way}"
    )


def _with_vocabulary(
    changes: list[Change], given: Loaded, tokenizer: Tokenizer, folder: Path, say: Say
) -> list[Change]:
    """The changes, and one of vocabulary if both tokenizers have whole words or the new one has further words behind the old ids.

    For any other new tokenizer the recipe must have the change.
    """
    if given.tokenizer.hash == tokenizer.hash:
        return changes
    fits = any(change.changes_vocabulary for change in changes)
    words = given.tokenizer.kind == tokenizer.kind == "words"
    if not fits and not words and tokenizer.spellings[: given.tokenizer.size] != given.tokenizer.spellings:
        raise CheckpointError(
            f"{folder}: its tokenizer ({given.tokenizer.size} ids) is not that of the corpus ({tokenizer.size} ids).\n"
            f"  Build the corpus with the checkpoint's tokenizer: --tokenizer {folder}\n"
            "  Or keep the embeddings of the pieces that both have, in the recipe: "
            "`network: {…, change: [vocabulary: {new: pieces}]}`"
        )
    if given.network.tables:  # a network that reads characters knows every word
        known_ids = int((matched_rows(given.tokenizer, tokenizer) >= 0).sum())
        method = next((change for change in changes if isinstance(change, Vocabulary)), Vocabulary("mean" if words else "pieces"))
        say(f"{folder}: knows {known_ids:,} of {tokenizer.size:,} ids; the embeddings of the others start {STARTS[method.new]}.")
    return changes if fits else [*changes, Vocabulary("mean" if words else "pieces")]


def borrowed_parts(recipe: Recipe) -> frozenset[str]:
    """The parts of a step that the run's checkpoints do not hold: borrowed networks, and their heads that are never trained."""
    networks, frozen = borrowed(recipe), frozen_heads(recipe)
    heads = {
        f"objectives.{recipe.head_key(run, spec)}" for entry in recipe.entries.values() for run, spec in entry.objectives()
        if run.network in networks and recipe.head_name(run, spec) in frozen
    }
    return frozenset({f"networks.{name}" for name in networks} | heads)


def load_origins(
    step: Step, recipe: Recipe, origins: Mapping[str, Path], tokenizer: Tokenizer, *, resumes: bool, say: Say,
    tables: Mapping[str, Any] = MappingProxyType({}), drawn: Callable[[], Step] | None = None, labels: Sequence[str] = (),
) -> frozenset[str]:
    """Load every network that comes from a checkpoint; if the run resumes, only those that its own checkpoints do not hold.

    Returns the keys of new heads as `begin_with` does. `tables` are those of `make_tables`, `drawn` and
    `labels` are as in `begin_with`.
    """
    never, drawn_heads = borrowed(recipe), frozenset[str]()
    for label, folder in origins.items():
        if not resumes or label in never:
            reading = reading_of(label, tables)
            network_tokenizer = tokenizer if reading is None or reading.first else reading.tokenizer
            heard: Say = (lambda text: None) if resumes else say
            drawn_heads |= begin_with(step, recipe, label, folder, network_tokenizer, say=heard, drawn=drawn, labels=labels)
    return drawn_heads
