"""Writes a run's state as Hugging Face folders: the exported network at the top, other networks in `cloze/networks`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cloze import fields
from cloze.checkpoint.annotators import kept_annotators, read_layers
from cloze.checkpoint.borrowed import NETWORKS, write_reference
from cloze.checkpoint.build import plain_arguments
from cloze.checkpoint.plain_form import in_plain_form
from cloze.checkpoint.share import share
from cloze.exercises import TokenFacts
from cloze.interop import Card, PortableHead, PortableModel, PortableTable, complete, export_folder
from cloze.interop.arguments import flat
from cloze.interop.choice import ArchitectureChoice, choose
from cloze.recipe.builders import build, given_names
from cloze.recipe.canonical import to_yaml
from cloze.recipe.changes import joins_vocabulary, lasts
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import EditSpec, PartSpec, Recipe
from cloze.recipe.user_files import UserFile, write_copies
from cloze.registry import lookup
from cloze.tasks.tuned_folder import row_length
from cloze.text import Tokenizer
from cloze.training.checkpoints.checkpoint import publish
from cloze.training.checkpoints.state import part_state
from cloze.training.tie import with_sums

ADVICE = (
    "Do not upload the folder of a run as it is: under `cloze/` it holds the training text as ids, and checkpoints. "
    "`cloze export RUN DIR --to huggingface --language en --licence LICENCE` writes a folder without them."
)


@dataclass(frozen=True)
class Publisher:
    """Writes checkpoint folders of one recipe.

    `tables` are its look-up tables, `label_names` the names of the labels of its text by layer, `languages` the names of the
    languages of its text, `run_name` is that of the run's folder, and `references` point to borrowed networks. `needed` are the
    folders of borrowed networks whose states the exported one reads: every folder holds them, too; in a run, all checkpoints
    link to one copy in `home`. For a recipe on labelled text, `task` is the contents of `cloze/task.json` and `labels` are the
    classes. `code` are the files of users that registered parts. `positions` take the place of those of networks in the recipe,
    by name, because a phase has set them. `bases` are the models of the hub that networks started from, by network.
    """

    recipe: Recipe
    tokenizer: Tokenizer
    tables: Mapping[str, Any] = field(default_factory=dict)
    languages: tuple[str, ...] = ()
    run_name: str = ""
    references: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    task: Mapping[str, Any] | None = None
    labels: tuple[str, ...] | None = None
    code: Mapping[str, UserFile] = field(default_factory=dict)
    needed: Mapping[str, Path] = field(default_factory=dict)
    home: Path = Path()
    label_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    positions: Mapping[str, PartSpec] = field(default_factory=dict)
    bases: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, folder: Path, state: Mapping[str, Tensor], step: int) -> list[str]:
        """Write `folder` from a step's full state; returns the remarks on the exported network."""
        remarks = self._write(folder, self.recipe.export, state, step)
        for name in self.recipe.networks:
            if name in self.references:
                write_reference(folder / NETWORKS / f"{name}.json", self.references[name])
            elif name in self.needed:
                self._write_needed(folder / NETWORKS / name, name)
            elif name != self.recipe.export and not joins_vocabulary(self.recipe, name):
                self._write(folder / NETWORKS / name, name, state, step)
        (folder / "cloze").mkdir(parents=True, exist_ok=True)
        (folder / "cloze" / "recipe.yaml").write_text(to_yaml(self.recipe.canonical()), encoding="utf-8")
        write_copies(folder, self.code)
        if self.task is not None:
            text = json.dumps(self.task, indent=2, ensure_ascii=False) + "\n"
            (folder / "cloze" / "task.json").write_text(text, encoding="utf-8")
        return remarks

    def _write_needed(self, folder: Path, name: str) -> None:
        """A borrowed network: linked to the run's copy, or copied from where it comes from if the run has none yet."""
        if (self.home / NETWORKS / name).is_dir():
            publish(self.home / NETWORKS / name, folder)
        else:
            share(self.needed[name], folder)

    def _write(self, folder: Path, name: str, state: Mapping[str, Tensor], step: int) -> list[str]:
        card = Card(
            name=self.recipe.name if name == self.recipe.export else f"{self.recipe.name}, {name}",
            step=step, paper=self.recipe.paper, notes=self.recipe.notes or "", advice=ADVICE,
            folder=self.run_name if name == self.recipe.export else name,
            task=self.task if name == self.recipe.export else None, base=self.bases.get(name),
        )
        model = self.model(name, state)
        return export_folder(
            folder, model=model, tokenizer=self.tokenizer, reading=self.recipe.reading, card=card,
            architecture=self.recipe.networks[name].architecture or self._shared_architecture(name, model, state),
            labels=self.labels if name == self.recipe.export else None,
            length=None if self.task is None else row_length(self.task),
        )

    def model(self, name: str, state: Mapping[str, Tensor]) -> PortableModel:
        """One network of the recipe with the heads of its passes, as plain tensors."""
        part = self.recipe.networks[name].part
        assert part is not None  # build_step refuses a network without a part
        if name in self.positions:
            part = replace(part, arguments={**part.arguments, "positions": self.positions[name]})
        heads, orders, table_names = {}, [], list[Any]()
        for entry in self.recipe.entries.values():
            for pass_ in entry.passes:
                if pass_.network != name:
                    continue
                orders.append(entry.order)
                for spec in pass_.objectives:
                    key = self.recipe.head_key(pass_, spec)
                    parameters = part_state(state, f"objectives.{key}")
                    if not parameters and class_of("objective", spec.part.name).training_only:
                        continue
                    readings = {reading: path for reading, path in spec.read.items() if "." not in path}
                    table_names += [spec.part.arguments[argument] for argument in class_of("objective", spec.part.name).looks_up]
                    heads[spec.state] = PortableHead(spec.part.name, plain_arguments(spec.part.arguments), parameters, readings)
        edits = input_edits(self.recipe)
        table_names += [value for spec in edits for value in spec.arguments.values()]
        paths = flat(plain_arguments(part.arguments), part.name)
        patterns = class_of("network", part.name).looks_up
        table_names += [value for path, value in paths.items() if any(fnmatchcase(path, pattern) for pattern in patterns)]
        looked_up = set(map(str, table_names)) & self.tables.keys()
        initial_names = class_of("network", part.name).begins_with
        arguments = {key: value for key, value in plain_arguments(part.arguments).items() if key not in initial_names}
        model = PortableModel(
            arguments=complete(arguments, part.name), order=self._order(name, orders),
            network=with_sums(part_state(state, f"networks.{name}"), name, state, self.recipe.tie_detached),
            heads=heads, part=part.name,
            input_edits=tuple((spec.name, plain_arguments(spec.arguments)) for spec in edits),
            tables={table: self._table(table) for table in sorted(looked_up)},
            annotators=kept_annotators(self.recipe, read_layers(edits), self.label_names),
            changes=tuple((c.name, plain_arguments(c.arguments)) for c in self.recipe.networks[name].change if lasts(c.name)),
        )
        if "language" in (model.flat.get("embedding.inputs") or {}):
            model = replace(model, languages=self.languages)
        return in_plain_form(model, self.tokenizer, self.tables) if model.changes else model

    def _order(self, name: str, orders: Sequence[Any]) -> str:
        """The usual order of a network; for the exported one, the first order in `reading`."""
        reading_orders = self.recipe.reading.orders if name == self.recipe.export else ()
        return str(reading_orders[0]) if reading_orders else usual_order(orders)

    def _table(self, name: str) -> PortableTable:
        arrays = {key: torch.from_numpy(array) for key, array in self.tables[name].arrays.items()}
        return PortableTable(self.recipe.tables[name].name, arrays)

    def _shared_architecture(self, name: str, model: PortableModel, state: Mapping[str, Tensor]) -> str | None:
        """The architecture of the exported network, if another one fits it, too: ELECTRA's generator is an ELECTRA model."""
        if name == self.recipe.export:
            return None
        facts: dict[str, Any] = {"tokenizer_kind": self.tokenizer.kind, "pad": self.tokenizer.roles.get("[PAD]")}
        export = self.recipe.networks[self.recipe.export]
        exported = choose(self.model(self.recipe.export, state), hint=export.architecture, **facts)
        hint = exported.architecture.name if isinstance(exported, ArchitectureChoice) else None
        choice = choose(model, hint=hint, **facts)
        return hint if isinstance(choice, ArchitectureChoice) and choice.architecture.name == hint else None


def input_edits(recipe: Recipe) -> list[PartSpec]:
    """The edits by which the trained network needs to read text: they look up further inputs in a recipe's tables by the tokens
    alone, add facts to a text, choose the items to be read, or show labelled layers or number segments in all entries (what only
    some entries show, others ask for)."""
    edits: dict[str, PartSpec] = {}
    for entry in recipe.entries.values():
        for spec in entry.exercise:
            key = _input_key(spec)
            if key is not None:
                edits.setdefault(key, spec.part)
    everywhere = set.intersection(*({_input_key(spec) for spec in entry.exercise} for entry in recipe.entries.values()))
    shown = {key for key, part in edits.items() if read_layers([part]) or class_of("edit", part.name).shows}
    return [part for key, part in edits.items() if key in everywhere or key not in shown]


def _input_key(spec: EditSpec) -> str | None:
    """What an edit gives the network besides tokens, "" for facts; None if it does not serve to read a text."""
    builder, kind = lookup(spec.part.kind, spec.part.name), class_of("edit", spec.part.name)
    if spec.view != "main" or not (kind.shows or kind.selects or "tables" in given_names(builder)):
        return None
    edit = build(builder, plain_arguments(spec.part.arguments), {})
    if edit.adds:
        return ""
    if edit.selects:
        return min(edit.gives)
    reads_tokens = all(name in ("tokens", "length") or name.startswith(("layers/", "labels/")) for name in edit.takes)
    gives_inputs = all(fields.find(name).name in ("items", "links", "inputs", "segments") for name in edit.gives)
    return min(edit.gives) if reads_tokens and gives_inputs else None


def reading_edits(recipe: Recipe, tokenizer: Tokenizer, tables: Mapping[str, Any]) -> tuple[Any, ...]:
    """`input_edits`, built with the tokenizer and the look-up tables of a run."""
    available = {"tables": tables, "tokenizer": TokenFacts.of(tokenizer)}
    return tuple(
        build(lookup(spec.kind, spec.name), plain_arguments(spec.arguments), available) for spec in input_edits(recipe)
    )


def usual_order(orders: Sequence[Any]) -> str:
    """The order in which the trained network reads a text: open, unless it was trained with a single constant order."""
    return str(orders[0]) if len(set(map(str, orders))) == 1 and isinstance(orders[0], str) else "open"
