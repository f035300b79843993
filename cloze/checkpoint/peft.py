"""peft's folders (adapter_config.json, adapter_model.safetensors) of LoRA, prompts and prefixes, written and read.

peft has an update for each linear map of transformers' model, cloze one for each map or part of stacked projections of its own.
The tables of `cloze.interop` say which map is which. peft computes W + (lora_alpha / r) B A.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cloze.changes import LoRA
from cloze.checkpoint.peft_prompt import METHODS
from cloze.checkpoint.plain_form import in_plain_form
from cloze.errors import CheckpointError
from cloze.interop import ARCHITECTURES, Imported, PortableHead, PortableModel, complete, import_folder
from cloze.interop.choice import ArchitectureChoice, choose
from cloze.interop.config import (
    ADAPTER_CONFIG,
    ADAPTER_LEAD,
    ADAPTER_TASKS,
    ADAPTER_WEIGHTS,
    adapter_class,
    adapter_weights,
    architecture_of,
    base_of_adapter,
    read_config,
)
from cloze.interop.export import is_tied, problem_of, write_tokenizer
from cloze.interop.files import read_json, read_tensors, write_json, write_tensors
from cloze.interop.mapping import SAME, STACKED, TURNED, entries, to_theirs
from cloze.interop.model import as_classifier
from cloze.interop.read import import_heads
from cloze.networks.blocks.projections import STACKED as PARTS
from cloze.recipe.builders import build
from cloze.recipe.changes import ChangeDescription

CONFIG, TENSORS, _LEAD = ADAPTER_CONFIG, ADAPTER_WEIGHTS, ADAPTER_LEAD
#: Settings of peft with the only values that cloze computes.
_LEGAL: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA", *METHODS), "use_dora": (False, None), "bias": ("none", None), "lora_bias": (False, None),
    "layer_replication": (None,), "trainable_token_indices": (None,), "alora_invocation_tokens": (None,),
    "use_qalora": (False, None),
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),  # all others also change the weights of the base
}  # fmt: skip
#: peft's classes that open a folder, by its type of task; all others are opened by `AutoPeftModel`.
_CLASSES: Mapping[str | None, str] = {
    "SEQ_CLS": "AutoPeftModelForSequenceClassification", "TOKEN_CLS": "AutoPeftModelForTokenClassification",
    "QUESTION_ANS": "AutoPeftModelForQuestionAnswering",
}  # fmt: skip


class PeftTarget(NamedTuple):
    """A linear map of transformers' model, as rows of one of ours."""

    theirs: str
    ours: str
    rows: slice
    turned: bool


def write_peft(stage: Path, imported: Imported, base: Path, *, folder: str) -> list[str]:
    """Write the files of peft: what was trained, its tokenizer and a card; returns remarks.

    `folder` is what the card calls the model. Heads of classes are written, those over the vocabulary are not.
    """
    model = replace(imported.model, arguments=complete(imported.model.arguments, imported.model.part))
    names = [name for name, _ in model.changes]
    method = next((method for method in METHODS.values() if names == [method.change]), None)
    if method is None and names != ["lora"]:
        raise CheckpointError(
            f"{imported.folder}: peft's layout holds low-rank updates, a prompt or a prefix, and this network has "
            f"{', '.join(names)}.\n"
            "  For cloze: --to change."
        )
    left = [name for name, head in model.heads.items() if method is not None or head.kind == "token_prediction"]
    heads = {name: as_classifier(head) for name, head in model.heads.items() if name not in left}
    plain = replace(model.plain, heads=heads)
    pad = imported.tokenizer.roles.get("[PAD]")
    choice = choose(plain, tokenizer_kind=imported.tokenizer.kind, pad=pad, hint=imported.architecture)
    if not isinstance(choice, ArchitectureChoice) or import_folder(base).architecture is None:
        why = "" if isinstance(choice, ArchitectureChoice) else f": {choice[0]}"
        raise CheckpointError(f"{imported.folder}: peft works on models of transformers, which has none here{why}.")
    tensors, settings = _lora(choice, plain, model, imported, pad) if method is None else method.write(model)
    write_tensors(stage / TENSORS, tensors)
    task = next((task for task, auto in ADAPTER_TASKS.items() if auto == choice.cls.auto), None)
    write_json(stage / CONFIG, {
        "task_type": task, "auto_mapping": {"base_model_class": choice.cls.name, "parent_library": "transformers"}, **settings,
        "base_model_name_or_path": str(base.resolve()), "inference_mode": True,
    })  # fmt: skip
    write_tokenizer(stage, imported.tokenizer, imported.reading, model, choice)
    _write_card(
        stage / "README.md", choice, base, folder=folder, task=task, labels=imported.labels,
        problem=problem_of(imported.model, choice), changes=" and ".join(names),
    )
    opens = f"peft opens it on {choice.cls.name} ({choice.cls.auto}) from {base}."
    return [opens, *(f"{name}: this head is for cloze alone; peft's files do not hold it." for name in [*left, *choice.left_out])]


def _write_card(
    path: Path, choice: ArchitectureChoice, base: Path, *, folder: str, task: str | None, labels: Sequence[str],
    problem: Mapping[str, str],
    changes: str,
) -> None:
    """Write README.md; `folder` is the name of the model in its code, and `changes` are what was trained.

    peft's files have no place for the names of classes, so the lines of Python give them.
    """
    cls, quoted = _CLASSES.get(task, "AutoPeftModel"), json.dumps(folder, ensure_ascii=False)
    label = {"id2label": repr(dict(enumerate(labels)))} if labels else {"num_labels": "1"} if problem else {}
    arguments = {**label, **{key: repr(value) for key, value in problem.items()}}
    options = "".join(f", {key}={value}" for key, value in arguments.items())
    lines = [
        "---", f"base_model: {json.dumps(str(base.resolve()), ensure_ascii=False)}", "library_name: peft", "tags:", "- cloze",
        f"- {choice.architecture.name}", *([f"pipeline_tag: {choice.cls.pipeline}"] if choice.cls.pipeline else []), "---", "",
        f"What was trained ({changes}) on the network in `{base.name}`, for {choice.cls.name}; written by cloze.", "",
        "## Use", "", "```python", f"from peft import {cls}", "from transformers import AutoTokenizer", "",
        f"tokenizer = AutoTokenizer.from_pretrained({quoted})", f"model = {cls}.from_pretrained({quoted}{options})", "```", "",
    ]  # fmt: skip
    path.write_text("\n".join(lines), encoding="utf-8")


def _lora(
    choice: ArchitectureChoice, plain: PortableModel, model: PortableModel, imported: Imported, pad: int | None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """peft's tensors of low-rank updates and of the heads of a class, and what its configuration says of them."""
    lora: LoRA = build(LoRA, model.changes[0][1], {})
    tensors, ranks, turned = _updates(lora, {**model.network, **model.changed}, list(_places(choice, plain, imported, pad)))
    saved = _heads(choice, plain, imported, pad)
    usual = Counter(ranks.values()).most_common(1)[0][0]
    base = choice.architecture.base_of(choice.cls) or choice.architecture.base
    modules = {name.rpartition(".")[0] if name.startswith(base) else name.partition(".")[0] for name in saved}
    return {**tensors, **{_LEAD + name: tensor for name, tensor in saved.items()}}, {
        "peft_type": "LORA", "r": usual, "lora_alpha": lora.scale * usual, "lora_dropout": 0.0, "bias": "none",
        "fan_in_fan_out": turned, "target_modules": sorted(ranks), "modules_to_save": sorted(modules) or None,
        "rank_pattern": {name: rank for name, rank in ranks.items() if rank != usual},
        "alpha_pattern": {name: lora.scale * rank for name, rank in ranks.items() if rank != usual},
    }


def read_peft(folder: Path) -> Imported:
    """A folder of peft: the network that it names, changed by `lora`, `prompt` or `prefix`, and the head of its class
    (`modules_to_save`).

    Raises `CheckpointError` for another method, a setting that cloze does not have, a base that is no folder, and updates of only
    some of the layers.
    """
    config, path = read_json(folder / CONFIG, "what peft trained"), folder / CONFIG
    for key, values in _LEGAL.items():
        if config.get(key, values[0]) not in values:
            options = " or ".join(map(repr, values))
            raise CheckpointError(f"{path}: {key} is {config[key]!r}; cloze reads folders of peft with {key} {options}.")
    _require_numbers(config, path)
    base = base_of_adapter(folder)
    imported = import_folder(base)
    if imported.architecture is None:
        raise CheckpointError(f"{base}: is no model of transformers; peft's updates need one.")
    tensors = read_tensors(adapter_weights(folder))
    method = METHODS.get(str(config.get("peft_type")))
    change, state = (_read_updates if method is None else method.read)(path, imported, tensors, config)
    model = replace(imported.model, network={**imported.model.network, **state}, changes=(change,))
    _require_heads(path, imported, {name.removeprefix(_LEAD) for name in tensors})
    heads, labels, unread = _saved_heads(folder, base, config, {n.removeprefix(_LEAD): t for n, t in tensors.items()})
    remarks = [f"left out, because no head of cloze has them: {', '.join(sorted(unread))}."] if unread else []
    model = replace(model, heads={**model.heads, **heads})
    return replace(
        imported, folder=folder, model=in_plain_form(model, imported.tokenizer, {}), remarks=(*imported.remarks, *remarks),
        labels=labels or imported.labels,
    )


def _require_numbers(config: Mapping[str, Any], path: Path) -> None:
    """A `CheckpointError` if a rank or a scale is no number, or if the name of a map that has its own is no pattern."""
    def sound(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1 << 40

    for key in ("r", "lora_alpha"):
        if config.get("peft_type") == "LORA" and not sound(config.get(key)):
            raise CheckpointError(f"{path}: {key} is {config.get(key)!r:.60}; expected a positive number. Copy the file again.")
    for key in ("rank_pattern", "alpha_pattern"):
        value = config.get(key) or {}
        if not isinstance(value, dict) or not all(map(sound, value.values())):
            raise CheckpointError(f"{path}: {key} is {value!r:.60}; expected positive numbers by name. Copy the file again.")
        for name in value:
            try:
                re.compile(f"({name})")
            except re.error as error:
                raise CheckpointError(
                    f"{path}: {key} has {name!r:.60}; expected a regular expression ({error}). Copy the file again."
                ) from None


def _require_heads(path: Path, imported: Imported, names: set[str]) -> None:
    """A `CheckpointError` if peft saved a tensor of the network itself, not only updates and a head (`modules_to_save`)."""
    architecture = ARCHITECTURES[str(imported.architecture)]
    sizes = architecture.table_sizes(imported.model.flat, imported.vocab_size, base="", pad=imported.tokenizer.roles.get("[PAD]"))
    network = {name for entry in entries(architecture.lines(imported.model.flat), sizes) for name in entry.theirs}
    trained = sorted(name for name in names if {name, name.removeprefix(architecture.base_in([name]))} & network)
    if trained:
        raise CheckpointError(
            f"{path}: peft saved {trained[0]} of the network as well, because modules_to_save names it or the vocabulary was "
            "resized; cloze reads updates of linear maps and heads.\n"
            "  Train without it. For a larger vocabulary, save the resized base first (base.save_pretrained(DIR)) and train on "
            "it with save_embedding_layers=False."
        )


def _saved_heads(
    folder: Path, base: Path, adapter: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[dict[str, PortableHead], tuple[str, ...], list[str]]:
    """The heads that peft saved with what it trained, the names of their classes, and those of tensors that belong to no head."""
    config = read_config(folder)
    if not tensors or adapter_class(architecture_of(base, config), adapter) is None:
        return {}, (), list(tensors)
    return import_heads(base, config, tensors)


def _places(
    choice: ArchitectureChoice, model: PortableModel, imported: Imported, pad: int | None, base: str | None = None
) -> Iterator[PeftTarget]:
    """The linear maps of transformers' model that have one of ours."""
    architecture = choice.architecture
    lead = architecture.base_of(choice.cls) if base is None else base
    sizes = architecture.table_sizes(model.flat, imported.vocab_size, base=lead, pad=pad)
    for entry in entries(architecture.lines(model.flat), sizes):
        if entry.ours.endswith(".weight") and len(entry.shape) == 2 and entry.move in (SAME, STACKED, TURNED):
            height = entry.shape[0] // len(entry.theirs)
            for number, name in enumerate(entry.theirs):
                rows = slice(number * height, (number + 1) * height)
                yield PeftTarget(name.removesuffix(".weight"), entry.ours.removesuffix(".weight"), rows, entry.move is TURNED)


def _updates(
    lora: LoRA, state: Mapping[str, Tensor], places: Sequence[PeftTarget]
) -> tuple[dict[str, Tensor], dict[str, int], bool]:
    """peft's tensors, the rank of every map, and whether the maps are transposed there.

    Updates that fall on one map of theirs are stacked: [B₁ B₂] [A₁; A₂] is their sum.
    """
    tensors: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    turned = False
    updates = lora.updates(state)
    for linear in places:
        parts = []
        for update in updates:
            first, stop = max(update.rows.start, linear.rows.start), min(update.rows.stop, linear.rows.stop)
            if update.map == linear.ours and first < stop:
                up = update.up.new_zeros(linear.rows.stop - linear.rows.start, update.up.shape[1])
                begin = first - update.rows.start
                up[first - linear.rows.start : stop - linear.rows.start] = update.up[begin : begin + stop - first]
                parts.append((update.down, up))
        if parts:
            tensors[f"{_LEAD}{linear.theirs}.lora_A.weight"] = torch.cat([down for down, _ in parts])
            tensors[f"{_LEAD}{linear.theirs}.lora_B.weight"] = torch.cat([up for _, up in parts], dim=1)
            ranks[linear.theirs], turned = lora.rank * len(parts), turned or linear.turned
    lost = {update.map for update in updates} - {matched.ours for matched in places if matched.theirs in ranks}
    if lost:
        raise CheckpointError(f"lora: transformers has no linear map for {min(lost)}. For cloze alone: --to change.")
    return tensors, ranks, turned


def _heads(choice: ArchitectureChoice, model: PortableModel, imported: Imported, pad: int | None) -> dict[str, Tensor]:
    """The tensors of the heads that transformers' class has, under its names."""
    architecture = choice.architecture
    sizes = architecture.table_sizes(model.flat, imported.vocab_size, base=architecture.base_of(choice.cls), pad=pad)
    tensors: dict[str, Tensor] = {}
    for name, table in choice.placed.items():
        head = model.heads[name]
        tensors |= to_theirs(table.all_lines(is_tied(head)), head.state, sizes.with_letters(C=int(head.argument("classes") or 0)))
    return tensors


def _read_updates(
    path: Path, imported: Imported, tensors: dict[str, Tensor], config: Mapping[str, Any]
) -> tuple[ChangeDescription, dict[str, Tensor]]:
    """The change, and its tensors under our names; what is used is taken out of `tensors`."""
    assert imported.architecture is not None  # as the caller has checked
    architecture = ARCHITECTURES[imported.architecture]
    choice = ArchitectureChoice(architecture, architecture.classes[-1], {}, {})
    heights = {
        key.removesuffix(".weight"): len(weight) for key, weight in imported.model.network.items()
        if key.endswith(".weight") and weight.dim() == 2
    }
    pairs: dict[tuple[str, int], _Pair] = {}
    names: dict[str, None] = {}
    for linear in _places(choice, imported.model, imported, imported.tokenizer.roles.get("[PAD]"), base=""):
        for lead in (_LEAD, *(_LEAD + lead for lead in architecture.bases)):
            keys = [f"{lead}{linear.theirs}.lora_{letter}.weight" for letter in "AB"]
            if keys[0] in tensors and (linear.ours, linear.rows.start) not in pairs:
                rank, scale = _rank_and_scale(config, f"{lead.removeprefix(_LEAD)}{linear.theirs}")
                pairs[linear.ours, linear.rows.start] = _Pair(*_require_pair(path, tensors, keys, rank), scale)
                names[_short(linear, heights[linear.ours])] = None
                pair, width = pairs[linear.ours, linear.rows.start], imported.model.network[f"{linear.ours}.weight"].shape[1]
                here, shape = (len(pair.up), pair.down.shape[1]), (linear.rows.stop - linear.rows.start, width)
                if here != shape:
                    raise CheckpointError(
                        f"{path}: the update of {linear.theirs} is for a map of {here[0]} x {here[1]}, and that of "
                        f"{imported.folder} has {shape[0]} x {shape[1]}.\n  base_model_name_or_path names another model: write "
                        "the folder of the one that was trained on."
                    )
    pairs = _joined(pairs, heights)
    left = [name for name in tensors if ".lora_" in name]
    rank, scale = max((len(pair.down) for pair in pairs.values()), default=1), max((p.scale for p in pairs.values()), default=1.0)
    lora = LoRA(rank, scale * rank, _needed(list(names), heights))
    places = {(name, rows.start): at for name, height in heights.items() for rows, at in lora.places(name, height)}
    if left or places.keys() != pairs.keys() or not pairs:
        what = left[0] if left else min(places.keys() ^ pairs.keys())[0] if pairs else "no map"
        raise CheckpointError(f"{path}: cloze updates a kind of map in every layer or in none; {what} is not updated so.")
    state: dict[str, Tensor] = {}
    for where, pair in pairs.items():  # a smaller rank is filled with zeros
        down, up = pair.down.new_zeros(rank, pair.down.shape[1]), pair.up.new_zeros(len(pair.up), rank)
        down[: len(pair.down)], up[:, : len(pair.down)] = pair.down, pair.up * (pair.scale / scale)
        state[f"{places[where]}.down"], state[f"{places[where]}.up"] = down, up
    return ("lora", {"rank": lora.rank, "alpha": lora.alpha, "on": list(lora.on or ())}), state


class _Pair(NamedTuple):
    """An update of peft: A (r, in), B (out, r), and what their product is multiplied with."""

    down: Tensor
    up: Tensor
    scale: float


def _joined(pairs: Mapping[tuple[str, int], _Pair], heights: Mapping[str, int]) -> dict[tuple[str, int], _Pair]:
    """The updates, those of maps that only cloze stacks (gate and up of Llama) as one of the whole: their down maps below one
    another, and each up map in its own rows. Equal down maps, which cloze writes, are one."""
    joined: dict[tuple[str, int], _Pair] = {}
    for (name, start), pair in pairs.items():
        if PARTS.get(name.rpartition(".")[2]) or (start == 0 and len(pair.up) == heights[name]):
            joined[name, start] = pair
            continue
        whole = joined.get((name, 0))
        rows = pair.up.new_zeros(heights[name], len(pair.down))
        rows[start : start + len(pair.up)] = pair.up * pair.scale
        if whole is None:
            joined[name, 0] = _Pair(pair.down, rows, 1.0)
        elif whole.down.shape == pair.down.shape and torch.equal(whole.down, pair.down):
            joined[name, 0] = _Pair(whole.down, whole.up + rows, 1.0)
        else:
            joined[name, 0] = _Pair(torch.cat([whole.down, pair.down]), torch.cat([whole.up, rows], 1), 1.0)
    return joined


def _require_pair(path: Path, tensors: dict[str, Tensor], names: Sequence[str], rank: float) -> tuple[Tensor, Tensor]:
    """A (r, in) and B (out, r) of one map, taken out of `tensors`; a `CheckpointError` if they have another rank than `rank`."""
    down, up = (tensors.pop(name, torch.zeros(())) for name in names)
    shapes = f"{tuple(down.shape)} and {tuple(up.shape)}"
    if down.dim() != 2 or up.dim() != 2 or not len(down) == up.shape[1] == rank:
        raise CheckpointError(
            f"{path}: by r and rank_pattern, the update of {names[0].removesuffix('.lora_A.weight')} has rank {rank:g}, but its "
            f"tensors lora_A and lora_B have the shapes {shapes}; expected ({rank:g}, …) and (…, {rank:g}).\n"
            "  Copy both files again from the same training."
        )
    return down, up


def _rank_and_scale(config: Mapping[str, Any], name: str) -> tuple[float, float]:
    """r and lora_alpha / r of one map, by its full name; with `use_rslora` lora_alpha / √r. The keys of patterns are regular
    expressions for its end that begin behind a dot or at its start, and the first one counts (peft, `get_pattern_key`)."""

    def own(pattern: str, usual: str) -> float:
        values = [value for key, value in (config.get(pattern) or {}).items() if re.match(rf"(.*\.)?({key})$", name)]
        return float(values[0] if values else config[usual])

    rank = own("rank_pattern", "r")
    return rank, own("alpha_pattern", "lora_alpha") / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _needed(names: list[str], heights: Mapping[str, int]) -> tuple[str, ...]:
    """The names without those whose rows the others mean, too."""

    def meant(subset: Sequence[str]) -> set[tuple[str, int]]:
        lora = LoRA(1, None, tuple(subset))
        return {(name, rows.start) for name, height in heights.items() for rows, _ in lora.places(name, height)}

    for name in list(names):
        rest = [other for other in names if other != name]
        if rest and meant([name]) <= meant(rest):
            names = rest
    return tuple(names)


def _short(target: PeftTarget, height: int) -> str:
    """What `on` calls these rows of our map."""
    parts = PARTS.get(target.ours.rpartition(".")[2], ())
    if parts and target.rows.stop - target.rows.start < height:
        return parts[target.rows.start * len(parts) // height]
    *_, before, last = target.ours.split(".")
    return last if before.isdigit() else f"{before}.{last}"
