"""The weights that a run begins with: those of checkpoints, for the networks that come from one and for their heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from cloze.assembly.build import Loaded, head_key, load_checkpoint
from cloze.assembly.new_heads import start_head
from cloze.assembly.origins import borrowed, frozen_heads
from cloze.assembly.recipe import ObjectiveSpec, Recipe
from cloze.errors import CheckpointError
from cloze.text import Tokenizer
from cloze.training.step import Step
from cloze.transfer import matched_rows, transfer_rows

Say = Callable[[str], None]
Fit = Callable[[Tensor, Tensor | None], Tensor]


def begin_with(step: Step, recipe: Recipe, label: str, folder: Path, tokenizer: Tokenizer, *, say: Say = print) -> None:
    """Load the weights of a checkpoint into the network `label`, and into those of its heads that the checkpoint has.

    A head is the checkpoint's if it has the same state name and part. One of another shape (other classes) begins at random,
    unless nothing would ever train it. Rows of another vocabulary are taken over word by word where the recipe says so
    (`change: [vocabulary]`), and where both vocabularies are lists of words.

    Raises:
        CheckpointError: the network, the tokenizer or a head that is never trained does not fit.
    """
    given: Loaded = load_checkpoint(folder)
    fit = _fitting(recipe, label, given, tokenizer, folder, say)
    network = step.networks[label]
    mine = network.state_dict()
    theirs = {name: fit(tensor, mine.get(name)) for name, tensor in given.network.state_dict().items()}
    wrong = [name for name in mine if name not in theirs or mine[name].shape != theirs[name].shape]
    if wrong:
        raise CheckpointError(
            f"{folder}: does not fit the network {label!r} of {recipe.name}: {wrong[0]} is "
            f"{tuple(theirs[wrong[0]].shape) if wrong[0] in theirs else 'missing'} there and {tuple(mine[wrong[0]].shape)} here."
        )
    network.load_state_dict(theirs)
    frozen = frozen_heads(recipe)
    for entry in recipe.entries.values():
        for run, spec in entry.objectives():
            if run.network == label:
                head = step.objectives[head_key(recipe, run, spec)]
                lacks = _load_head(head, spec, given, fit)
                if lacks and recipe.task is not None:
                    start_head(head, given)
                if lacks and recipe.head_name(run, spec) in frozen:
                    raise CheckpointError(_random_head(folder, label, spec, given, lacks))


def _load_head(head: nn.Module, spec: ObjectiveSpec, given: Loaded, fit: Fit) -> str:
    """Load the head of the same name and part; returns what is wrong with it, or nothing."""
    here = head.state_dict()
    theirs = given.heads.get(spec.state)
    if theirs is None or given.imported.model.heads[spec.state].part != spec.part.name:
        return "the checkpoint has no such head" if here else ""
    there = {key: fit(tensor, here.get(key)) for key, tensor in theirs.state_dict().items()}
    wrong = [key for key in {**here, **there} if key not in here or key not in there or here[key].shape != there[key].shape]
    if wrong:
        shapes = [str(tuple(state[wrong[0]].shape)) if wrong[0] in state else "missing" for state in (there, here)]
        return f"{wrong[0]} is {shapes[0]} there and {shapes[1]} here"
    head.load_state_dict(there)
    return ""


def _random_head(folder: Path, label: str, spec: ObjectiveSpec, given: Loaded, lacks: str) -> str:
    known = ", ".join(f"{name} ({head.part})" for name, head in given.imported.model.heads.items()) or "none"
    return (
        f"{folder}: the head {spec.state!r} ({spec.part.name}) of network {label!r} would stay random, for no pass trains it: "
        f"{lacks}.\n  Heads of the checkpoint: {known}. Name one of them with `head:`, or train this one in a pass with gradient."
    )


def _fitting(recipe: Recipe, label: str, given: Loaded, tokenizer: Tokenizer, folder: Path, say: Say) -> Fit:
    """What makes a tensor of the checkpoint one for this tokenizer: itself, or its rows under the new vocabulary."""
    if given.tokenizer.hash == tokenizer.hash:
        return lambda tensor, here: tensor
    change = next((part for part in recipe.networks[label].change if part.name == "vocabulary"), None)
    if change is None and not given.tokenizer.kind == tokenizer.kind == "words":
        raise CheckpointError(
            f"{folder}: has a tokenizer of {given.tokenizer.size} ids, the corpus one of {tokenizer.size}, and they differ.\n"
            f"  Build the corpus with the checkpoint's: --tokenizer {folder}\n"
            "  Or keep the rows of pieces that both know: `network: {…, change: [vocabulary: {new: mean}]}` in the recipe."
        )
    if given.network.tables:  # a network that reads characters knows every word
        known = int((matched_rows(given.tokenizer, tokenizer) >= 0).sum())
        say(f"{folder}: {known:,} of {tokenizer.size:,} ids are known there; the others begin with the mean of all rows.")
    new: Literal["mean", "random"] = "mean" if change is None else change.arguments["new"]

    def fit(tensor: Tensor, here: Tensor | None) -> Tensor:
        per_id = here is not None and tensor.dim() in (1, 2) and tensor.shape[0] == given.tokenizer.size
        if per_id and here is not None and here.shape == (tokenizer.size, *tensor.shape[1:]):
            return transfer_rows(given.tokenizer, tokenizer, tensor, new)
        return tensor

    return fit


def borrowed_parts(recipe: Recipe) -> frozenset[str]:
    """The parts of a step whose tensors no checkpoint holds: borrowed networks, and their heads that nothing trains."""
    networks, frozen = borrowed(recipe), frozen_heads(recipe)
    heads = {
        f"objectives.{head_key(recipe, run, spec)}" for entry in recipe.entries.values() for run, spec in entry.objectives()
        if run.network in networks and recipe.head_name(run, spec) in frozen
    }
    return frozenset({f"networks.{name}" for name in networks} | heads)


def load_origins(
    step: Step, recipe: Recipe, origins: Mapping[str, Path], tokenizer: Tokenizer, *, resumes: bool, say: Say
) -> None:
    """Load every network that comes from a checkpoint; of a run that resumes only what its own checkpoints do not hold."""
    never = borrowed(recipe)
    for label, folder in origins.items():
        if not resumes or label in never:
            begin_with(step, recipe, label, folder, tokenizer, say=(lambda text: None) if resumes else say)
