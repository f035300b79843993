"""Warm start: loads checkpoints into the networks of a run that come `from` them, and into their heads.

`WarmStart` says which tensors of a module are loaded and which are new. A network with further modules, such as `zen`,
starts from a plain one: it names the parts that it extends (`Network.compatible_parts`) and the modules that those lack
(`Network.may_be_missing`), which keep their random weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cloze.changes import Change, Shape, Transition, Vocabulary, matched_rows
from cloze.changes.change import Tensors
from cloze.changes.vocabulary import OtherIds
from cloze.checkpoint.build import Loaded, build_part, load_checkpoint, plain_arguments
from cloze.checkpoint.new_heads import start_head
from cloze.checkpoint.several import START
from cloze.errors import CheckpointError, Say
from cloze.exercises.retokenize import reading_of
from cloze.interop import PortableHead, PortableModel
from cloze.interop.arguments import complete, derived, flat
from cloze.interop.own import own_description
from cloze.networks.blocks.computed import is_added
from cloze.recipe.changes import lasts, with_defaults
from cloze.recipe.origins import borrowed, frozen_heads
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import ObjectiveSpec, PartSpec, PassSpec, Recipe
from cloze.text import Tokenizer
from cloze.training.step import StepModule
from cloze.training.tie import take_off_sums

#: What a network computes from its weights, where their shapes do not tell.
_FORM = ("heads", "norm", "positions", "feed_forward.activation")
#: The sizes that `--set` gives a network so that a checkpoint fits, in the order in which they are told.
_SIZES = ("layers", "width", "heads", "feed_forward.inner", "segments", "max_length", "positions.max_length")
_SEGMENTS = "embeddings.segments.weight"
MOST_LOST = 5  # classes that a note lists


class WarmStart(NamedTuple):
    """Where the tensors of a module come from when it starts from a checkpoint.

    `loaded` is the state of the module: tensors of the checkpoint, and the module's own where it has more. `new` are
    the parts that stay as they are drawn, with their numbers of parameters. `misfit` says in words which tensor is
    extra, missing or of another shape; it is empty if all fit.
    """

    loaded: Tensors
    new: Mapping[str, int]
    misfit: str

    @classmethod
    def of_network(cls, network: Any, checkpoint: Tensors, random_state: Callable[[], Tensors] | None) -> WarmStart:
        """The start of a network from a checkpoint's tensors; `random_state` makes its random weights if it was built without.

        New are the modules of `Network.may_be_missing` that the checkpoint lacks altogether, and segments beyond those of the
        checkpoint, as in the code of VL-BERT's authors (jackroos/VL-BERT, common/visual_linguistic_bert.py), which adds
        a segment for regions. What a change added is the network's own, too.
        """
        state: Tensors = network.state_dict()
        longer = [name for name in state if name.endswith(_SEGMENTS) and _is_longer(state[name], checkpoint.get(name))]
        new = {name.removesuffix(".weight"): state[name].numel() - checkpoint[name].numel() for name in longer}
        for module in network.may_be_missing:
            sizes = [tensor.numel() for name, tensor in state.items() if _inside(name, module)]
            if sizes and not any(_inside(name, module) for name in checkpoint):
                new[module] = sum(sizes)
        if new and random_state is not None:
            state = random_state()
        added = {name: state[name] for name in state if is_added(name) or any(_inside(name, module) for module in new)}
        derived_values = {name: tensor for name, tensor in network.initial_values(checkpoint).items() if name in added}
        rows = {name: checkpoint[name].to(state[name]) for name in longer}
        tables = {name: torch.cat([old, state[name][len(old) :]]) for name, old in rows.items()}
        loaded = {**added, **derived_values, **checkpoint, **tables}
        return cls(loaded, new, _misfit(state, loaded))

    @classmethod
    def of_head(cls, head: nn.Module, checkpoint: Tensors) -> WarmStart:
        """The start of a head from the tensors of a checkpoint's head."""
        return cls(checkpoint, {}, _misfit(head.state_dict(), checkpoint))


def _is_longer(table: Tensor, other: Tensor | None) -> bool:
    """Whether a table has the width of another one and more rows."""
    return other is not None and len(table) > len(other) and table.shape[1] == other.shape[1]


def _misfit(state: Tensors, checkpoint: Tensors) -> str:
    """Which tensor of a checkpoint is extra, missing or of another shape; empty if all fit."""
    for name in {**state, **checkpoint}:
        shapes = [str(tuple(side[name].shape)) if name in side else "missing" for side in (state, checkpoint)]
        if shapes[0] != shapes[1]:
            return f"{name} is {shapes[1]} in the checkpoint and {shapes[0]} in the recipe"
    return ""


def _inside(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


@dataclass(frozen=True)
class AdaptedCheckpoint:
    """A checkpoint, and the changes that adapt its tensors to the network of a recipe."""

    loaded: Loaded
    changes: Sequence[Change]
    transition: Transition

    def network_state(self) -> Tensors:
        """The tensors of the network, adapted."""
        state = self._without_padding(self.loaded.network.state_dict(), self.transition.new_network)
        for change in self.changes:
            state = change.weights(state, self.transition)
        return state

    def head_state(self, name: str, head: nn.Module) -> Tensors:
        """The tensors of the head `name`, adapted to a head of the recipe."""
        state = self._without_padding(self.loaded.heads[name].state_dict(), head)
        for change in self.changes:
            state = change.head_state(state, head, self.transition)
        return state

    @property
    def padding(self) -> int:
        """The number of vectors beyond the ids of the tokenizer."""
        return self.loaded.imported.vocab_size - self.loaded.tokenizer.size

    def _without_padding(self, state: Tensors, module: nn.Module) -> Tensors:
        """The tensors with a row for each id of the checkpoint's tokenizer, where its rows do not fit the module's."""
        rows, module_state = self.loaded.imported.vocab_size, module.state_dict()

        def is_padded(name: str, tensor: Tensor) -> bool:
            shape = module_state[name].shape if name in module_state else tensor.shape
            return self.padding > 0 and len(tensor) == rows and shape[1:] == tensor.shape[1:] and shape != tensor.shape

        return {
            name: tensor[: self.loaded.tokenizer.size] if tensor.dim() and is_padded(name, tensor) else tensor
            for name, tensor in state.items()
        }

    def heads_for(self, spec: ObjectiveSpec) -> tuple[list[str], list[str]]:
        """The heads of the part that an objective can take over, and those of them that predict the same set."""
        heads = self.loaded.imported.model.heads
        parts = {spec.part.name, *class_of("objective", spec.part.name).takes_over}
        fitting = [name for name in heads if heads[name].part in parts]
        return fitting, [name for name in fitting if heads[name].argument("set") == spec.set]


def load_origin(
    step: StepModule, recipe: Recipe, network_name: str, folder: Path, tokenizer: Tokenizer, *, say: Say = print,
    build_random: Callable[[], StepModule] | None = None, class_names: Sequence[str] = (),
) -> frozenset[str]:
    """Load the weights of a checkpoint into the network `network_name`, and into those of its heads that the checkpoint has.

    Returns the new heads that are still to be scaled or fitted (`training.new_heads`), by their keys in the step: those of a
    task that copied nothing from the checkpoint; with `new_heads: fitted`, all new ones.

    A head takes the weights of the checkpoint's head with the same state name and part. A head of another shape (other
    classes) starts at random, or is refused if nothing would train it. One line says what starts at random. `build_random`
    builds the step with random weights, for a network that was built without (`to_be_loaded` of `build_step`). `class_names`
    are the classes of the task: the outputs of a checkpoint's head for the same classes in another order are put in theirs.

    Raises:
        CheckpointError: the network, the tokenizer, or a head that is never trained does not fit.
    """
    network = step.networks[network_name]
    checkpoint = _adapted(recipe, network_name, folder, network, tokenizer, say)
    warm_start = WarmStart.of_network(
        network, checkpoint.network_state(),
        None if build_random is None else lambda: build_random().networks[network_name].state_dict(),
    )
    _require_fit(warm_start, checkpoint.transition, recipe, network_name, folder)
    network.load_state_dict(dict(warm_start.loaded))
    new, frozen, heads_to_start = dict(warm_start.new), frozen_heads(recipe), set[str]()
    fitted = recipe.training.new_heads == "fitted"
    for pass_, spec in _objectives(recipe):
        if pass_.network != network_name:
            continue
        head: Any = step.objectives[recipe.head_key(pass_, spec)]
        is_frozen = recipe.head_name(pass_, spec) in frozen
        misfit = _load_head_if_it_fits(head, spec, checkpoint, or_only=is_frozen, class_names=class_names)
        if (lost := _lost_classes(spec, checkpoint, class_names)):
            say(f"note: {folder}: {lost}")
        if misfit and is_frozen:
            raise CheckpointError(_untrained_head_error(folder, recipe, network_name, spec, checkpoint, misfit))
        if misfit and recipe.task is None:
            new[f"head {spec.state}"] = sum(tensor.numel() for tensor in head.state_dict().values())
        elif misfit:
            copied = start_head(head, checkpoint.loaded, pooler=not fitted)
            if fitted or not copied:
                heads_to_start.add(recipe.head_key(pass_, spec))
    if new:
        listed = ", ".join(f"{part} ({count:,})" for part, count in sorted(new.items(), key=lambda item: -item[1]))
        say(f"{folder}: has no weights for {sum(new.values()):,} parameters, which start fresh: {listed}.")
    return frozenset(heads_to_start)


def _objectives(recipe: Recipe) -> Iterator[tuple[PassSpec, ObjectiveSpec]]:
    for entry in recipe.entries.values():
        yield from entry.objectives()


def _adapted(
    recipe: Recipe, network_name: str, folder: Path, network: nn.Module, tokenizer: Tokenizer, say: Say
) -> AdaptedCheckpoint:
    """The checkpoint in a folder with the changes that adapt it. If the recipe does not start with all of the
    checkpoint's own changes, the checkpoint's plain form is loaded."""
    spec = recipe.networks[network_name]
    assert spec.part is not None  # the network is built
    loaded = load_checkpoint(folder)
    inherited = _inherited(spec.change, loaded.imported.model)
    if loaded.imported.model.changes and not inherited:
        loaded = load_checkpoint(folder, plain_form=True)
    changes: list[Change] = [build_part(part) for part in spec.change if not any(part is other for other in inherited)]
    transition = Transition(
        Shape(str(folder), loaded.imported.model.part, loaded.network_arguments), loaded.network, network,
        plain_arguments(spec.part.arguments), loaded.tokenizer, tokenizer,
    )
    checkpoint = AdaptedCheckpoint(loaded, _with_vocabulary(changes, loaded, tokenizer, folder, say), transition)
    if checkpoint.padding > 0:
        say(f"{folder}: has {checkpoint.padding:,} vectors more than its tokenizer has ids; they are padding and left out.")
    return checkpoint


def _inherited(specs: Sequence[PartSpec], model: PortableModel) -> list[PartSpec]:
    """The changes of a recipe that the checkpoint's network already has: all of the checkpoint's changes, or none."""
    first = [spec for spec in specs if lasts(spec.name)][: len(model.changes)]
    here = json.dumps([[spec.name, plain_arguments(spec.arguments)] for spec in first], sort_keys=True)
    return first if here == json.dumps(with_defaults(model.changes), sort_keys=True) else []


def _with_vocabulary(
    changes: list[Change], loaded: Loaded, tokenizer: Tokenizer, folder: Path, say: Say
) -> list[Change]:
    """The changes, and one of vocabulary if both tokenizers have whole words, or the new one has further words behind
    the old ids. For any other new tokenizer the recipe must have the change."""
    if loaded.tokenizer.hash == tokenizer.hash:
        return changes
    words = loaded.tokenizer.kind == tokenizer.kind == "words"
    if not any(change.changes_vocabulary for change in changes):
        if not words and tokenizer.spellings[: loaded.tokenizer.size] != loaded.tokenizer.spellings:
            raise CheckpointError(
                f"{folder}: its tokenizer ({loaded.tokenizer.size} ids) is not that of the corpus ({tokenizer.size} ids).\n"
                f"  Build the corpus with the checkpoint's tokenizer: --tokenizer {folder}\n"
                "  Or keep the embeddings of the pieces that both have, in the recipe: "
                "`network: {…, change: [vocabulary: {new: pieces}]}`"
            )
        changes = [*changes, Vocabulary("mean" if words else "pieces")]
    if loaded.network.token_tables:  # a network that reads characters knows every word
        known_ids = int((matched_rows(loaded.tokenizer, tokenizer) >= 0).sum())
        start = next(change.start for change in changes if isinstance(change, OtherIds))
        say(f"{folder}: knows {known_ids:,} of {tokenizer.size:,} ids; the embeddings of the others start {start}.")
    return changes


def _load_head_if_it_fits(
    head: nn.Module, spec: ObjectiveSpec, checkpoint: AdaptedCheckpoint, *, or_only: bool, class_names: Sequence[str]
) -> str:
    """Load the head of the same name and part. With `or_only`, or if the part takes over others, the only head of these parts
    that predicts the same set may have another name. Returns what does not fit; empty if the head is loaded."""
    loaded, (fitting, same_set) = checkpoint.loaded, checkpoint.heads_for(spec)
    unnamed = spec.state not in loaded.imported.model.heads and (or_only or class_of("objective", spec.part.name).takes_over)
    name = same_set[0] if unnamed and len(same_set) == 1 else spec.state
    if name not in loaded.heads or name not in fitting:
        return "the checkpoint has no such head" if head.state_dict() else ""
    start = WarmStart.of_head(head, checkpoint.head_state(name, head))
    classes = _classes(loaded)
    if not (start.misfit or or_only) and _shares_some(classes, class_names):
        return "some of its classes differ"  # equally many: its outputs would stand for the wrong ones
    if not start.misfit:
        head.load_state_dict(_ordered(start.loaded, classes, class_names))
    return start.misfit


def _classes(loaded: Loaded) -> Sequence[str]:
    """The names of the classes of a checkpoint's head; also of one that transformers does not know, which has none of its own
    in `config.json`."""
    return loaded.imported.labels or (own_description(loaded.imported.folder) or {}).get("labels") or ()


def _shares_some(classes: Sequence[str], class_names: Sequence[str]) -> bool:
    """Whether two lists of classes have some in common, but not all."""
    return 0 < len({*classes} & {*class_names}) < len({*classes, *class_names})


def _lost_classes(spec: ObjectiveSpec, checkpoint: AdaptedCheckpoint, class_names: Sequence[str]) -> str:
    """A sentence about the classes of the checkpoint's head that the new head will not have; empty if there are none, or if the
    two have no class in common, as for another task."""
    old = _classes(checkpoint.loaded) if spec.state in checkpoint.heads_for(spec)[0] else ()
    lost = [name for name in old if name not in class_names]
    if not lost or len(lost) == len(old):
        return ""
    listed = ", ".join(lost[:MOST_LOST]) + (f" and {len(lost) - MOST_LOST:,} more" if len(lost) > MOST_LOST else "")
    return (
        f"it knows {len(old):,} classes, and the training rows have {len(old) - len(lost):,} of them. The new model will never "
        f"answer {listed}. To keep them, train on rows of all classes."
    )


def _ordered(state: Tensors, checkpoint_classes: Sequence[str], class_names: Sequence[str]) -> dict[str, Tensor]:
    """The tensors of a head with its outputs in the order of `class_names`, if the checkpoint's classes are the same."""
    if sorted(checkpoint_classes) != sorted(class_names) or list(checkpoint_classes) == list(class_names):
        return dict(state)
    order = torch.tensor([checkpoint_classes.index(name) for name in class_names])
    return {name: tensor[order] if name.startswith("head.output.") else tensor for name, tensor in state.items()}


def _untrained_head_error(
    folder: Path, recipe: Recipe, network_name: str, spec: ObjectiveSpec, checkpoint: AdaptedCheckpoint, misfit: str
) -> str:
    """The error for a head that nothing would train, with the ways to get its weights."""
    heads = checkpoint.loaded.imported.model.heads
    head_names = ", ".join(f"{name} ({head.part})" for name, head in heads.items()) or "none"
    fitting, origin = checkpoint.heads_for(spec)[1], recipe.networks[network_name].origin
    trained = heads.get(spec.state) or (heads[fitting[0]] if len(fitting) == 1 else None)
    if options := "" if trained is None else _options_of_head(recipe, spec, trained):
        way = f"Give the head the arguments with which the checkpoint's was trained:\n    {options}"
    elif len(fitting) > 1:
        way = f"Name the one that is meant with `head:` in a recipe of your own: {', '.join(fitting)}."
    elif recipe.task is None:
        way = f"Bind a checkpoint with such a head: --bind {origin}=FOLDER. Or train this one in a recipe of your own."
    else:
        task = "" if recipe.task.type is None else f" --task {recipe.task.type}"
        tuned = f"cloze finetune {folder}{task} --train FILE --dev FILE --out TUNED"
        given_as = "cloze finetune TUNED" if origin == START else f"--bind {origin}=TUNED"
        way = f"Tune the checkpoint on this task first, with the same classes, then give {given_as}:\n    {tuned}"
    return (
        f"{folder}: the head {spec.state!r} ({spec.part.name}) of network {network_name!r} would stay random, because no pass "
        f"trains it: {misfit}.\n  Heads of the checkpoint: {head_names}. {way}"
    )


def _options_of_head(recipe: Recipe, spec: ObjectiveSpec, trained: PortableHead) -> str:
    """The options that give every head of this name the arguments of a checkpoint's; empty if these are the same, or if the
    checkpoint's head is another part.

    The student's head has the name of its teacher's: with the same options it starts from the checkpoint, too.
    """
    if trained.part != spec.part.name:
        return ""
    parts = [
        objective.part for _, objective in _objectives(recipe)
        if (objective.state, objective.part.name) == (spec.state, spec.part.name)
    ]
    return " ".join(
        "--set " + quote(f"{part.path}.{name}={json.dumps(trained.argument(name))}")
        for part in parts for name, value in part.arguments.items() if name != "set" and trained.argument(name) != value
    )


# ---- what is refused -------------------------------------------------------------------------------------------------


def _require_fit(start: WarmStart, transition: Transition, recipe: Recipe, network_name: str, folder: Path) -> None:
    """Raise a `CheckpointError` if a checkpoint does not fit a network; with changes, other arguments may fit."""
    spec, old_shape = recipe.networks[network_name], transition.old_shape
    assert spec.part is not None  # the network is built
    new_shape = Shape(network_name, spec.part.name, transition.new_arguments)
    refused = f"{folder}: does not fit the network {network_name!r} of {recipe.name}: "
    expected = {new_shape.part, *transition.new_network.compatible_parts}
    if old_shape.part not in expected and not spec.change:
        raise CheckpointError(
            f"{refused}it holds a network {old_shape.part!r}, expected {', '.join(sorted(expected))}.\n  {_own_recipe(folder)}"
        )
    if spec.change and not start.misfit:
        return
    old, new = (derived(flat(complete(side.arguments, side.part), side.part)) for side in (old_shape, new_shape))
    differ = [name for name in _FORM if name in old and name in new and old[name] != new[name]]
    misfit = start.misfit
    if not misfit and differ:
        misfit = f"{differ[0]} is {old[differ[0]]} in the checkpoint and {new[differ[0]]} in the recipe"
    widths = [name for name in old.keys() & new.keys() if _of_items(name) and old[name] != new[name]]
    if misfit and widths:
        raise CheckpointError(
            f"{refused}it reads items of {old[widths[0]]} numbers each, and those of the text have {new[widths[0]]}.\n"
            "  Make their features as for its training text: cloze features PICTURES with the same --model or --with."
        )
    if misfit and transition.new_network.of_documents:
        raise CheckpointError(
            f"{refused}{misfit}.\n"
            "  Its vectors belong to the documents that it was trained on; other documents cannot go on with them.\n"
            f"  Vectors of new texts: cloze embed {quote(str(folder))} --file TEXTS --out VECTORS.npy\n"
            "  To train on all of the text again: leave --init out."
        )
    if misfit:
        way = _own_recipe(folder) if new_shape.part == old_shape.part else _way_out(folder, network_name, old, new)
        raise CheckpointError(f"{refused}{misfit}.\n  {way}")


def _of_items(argument: str) -> bool:
    """Whether an argument of a network is the width of the features that it reads, of whatever kind its items are."""
    return argument.startswith("items.") and argument.endswith(".width")


def _own_recipe(folder: Path) -> str:
    """How to continue a checkpoint in its own shape."""
    quoted = quote(str(folder))
    if (folder / "cloze" / "recipe.yaml").is_file():
        return f"To continue it with its own recipe: cloze pretrain {quoted} --init {quoted} --corpus TEXT --out CONTINUED"
    return (
        f"To continue it in its own shape: cloze import {quoted} --out IMPORTED\n"
        "  then: cloze pretrain IMPORTED --init IMPORTED --corpus TEXT --out CONTINUED"
    )


def _way_out(folder: Path, network_name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The arguments of a larger network that make the checkpoint fit; the checkpoint's own recipe if none does."""
    old = {**old, **({"max_length": old["positions.max_length"]} if "positions.max_length" in old else {})}
    differ = [name for name in _SIZES if name in old and name in new and old[name] != new[name]]
    if not differ:
        return _own_recipe(folder)
    network = "network" if network_name == "main" else f"networks.{network_name}"
    return "To give the network the sizes of the checkpoint: " + " ".join(
        f"--set {network}.{name}={old[name]}" for name in differ
    )


# ---- all networks of a run -------------------------------------------------------------------------------------------


def load_origins(
    step: StepModule, recipe: Recipe, origins: Mapping[str, Path], tokenizer: Tokenizer, *, resumes: bool, say: Say,
    tables: Mapping[str, Any] = MappingProxyType({}), build_random: Callable[[], StepModule] | None = None,
    class_names: Sequence[str] = (),
) -> frozenset[str]:
    """Load every network that comes from a checkpoint; if the run resumes, only those that its own checkpoints do not hold.

    Returns the heads that `load_origin` does, and passes `build_random` and `class_names` on to it. `tables` are those of
    `make_tables`.
    """
    borrowed_networks, heads_to_start, loaded = borrowed(recipe), frozenset[str](), list[str]()
    for network_name, folder in origins.items():
        if not resumes or network_name in borrowed_networks:
            reading = reading_of(network_name, tables)
            network_tokenizer = tokenizer if reading is None or reading.first else reading.tokenizer
            say_if_new: Say = (lambda text: None) if resumes else say
            heads_to_start |= load_origin(
                step, recipe, network_name, folder, network_tokenizer, say=say_if_new, build_random=build_random,
                class_names=class_names,
            )
            loaded.append(network_name)
    take_off_sums(step.networks, recipe.tie_detached, loaded)
    return heads_to_start


def borrowed_parts(recipe: Recipe) -> frozenset[str]:
    """The parts of a step that the run's checkpoints do not hold: borrowed networks, and their heads that are never trained.
    """
    networks, frozen = borrowed(recipe), frozen_heads(recipe)
    heads = {
        f"objectives.{recipe.head_key(pass_, spec)}" for pass_, spec in _objectives(recipe)
        if pass_.network in networks and recipe.head_name(pass_, spec) in frozen
    }
    return frozenset({f"networks.{name}" for name in networks} | heads)
