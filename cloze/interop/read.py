"""A folder → `Imported`: a model as plain tensors and arguments under our names, its tokenizer and its reading.

There are three kinds of folders. One that transformers wrote has config.json and model.safetensors, which the tables of its
`Architecture` translate. One that cloze wrote has cloze/network.json in addition, from which arguments, names of heads and the
reading are taken if config.json still agrees. A network that transformers lacks is in cloze/network.safetensors. Modules are
built later, by `cloze.checkpoint.build.load_checkpoint`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cloze.bounds import DEEPEST
from cloze.corpus.readers.not_text import what_is
from cloze.errors import CheckpointError
from cloze.interop.architecture import NAMED_ROLES, Architecture, HeadTable, ReadingFacts, Setting
from cloze.interop.architectures.tower import has_tower, tower_arguments, whole_of
from cloze.interop.arguments import derived, flat, nested
from cloze.interop.config import architecture_of, classes_of, config_file, read_config
from cloze.interop.embeddings import with_own_embeddings
from cloze.interop.export import OWN_NETWORK
from cloze.interop.files import DESCRIPTION, WEIGHTS, read_json, read_stored, read_tensors, read_weights, weights_file
from cloze.interop.heads import default_names, named_heads, read_heads
from cloze.interop.mapping import TableSizes, entries, to_ours
from cloze.interop.model import PortableHead, PortableModel, defaults
from cloze.interop.own import own_description, read_own_parts
from cloze.interop.prompts import prompts_of
from cloze.interop.purpose import labels_of
from cloze.interop.sentences import NAME as SENTENCES
from cloze.interop.sentences import length_of_texts, read_sentences
from cloze.interop.tokenizer_settings import gives_segments, tokenizer_settings
from cloze.missing import require_checkpoint
from cloze.reading import Reading
from cloze.text.layout import saved_frame
from cloze.text.tokenizer import Tokenizer

VOCAB_SIZE = 30522  # of a config that does not say it: BERT's


@dataclass(frozen=True)
class Imported:
    """An imported folder: the model, how it reads text, and `remarks` on omissions and decisions.

    `architecture` is the one that expresses the network; None if there is none, or one for its text tower alone. `trained_by` is
    the named recipe that trains such a network, for files that bring neither a recipe nor an architecture. `encoder_alone`: it
    trains a decoder, too, which the files lack.
    """

    folder: Path
    architecture: str | None
    model: PortableModel
    tokenizer: Tokenizer
    reading: Reading
    labels: tuple[str, ...] = ()
    step: int = 0
    remarks: tuple[str, ...] = ()
    trained_by: str = ""
    encoder_alone: bool = False

    @property
    def vocab_size(self) -> int:
        """Rows of the token table; for a network without a single table, the size of the tokenizer."""
        table = self.model.network.get("embeddings.tokens.weight")
        return self.tokenizer.size if table is None else int(table.shape[0])


def import_folder(folder: Path | str) -> Imported:
    """Read a folder written by cloze or by transformers, of any architecture in `ARCHITECTURES`, with or without heads.

    Every fault is a `CheckpointError`: no folder, unknown architecture, an option that our network lacks, missing or
    misshapen tensors, damaged files, pickled weights, a tokenizer with another vocabulary.
    """
    folder = Path(folder)
    require_folder(folder)
    description = own_description(folder)
    if description is not None and description["architecture"] is None:
        return _read_own(folder, description)
    if what_is(folder) in ("a token store", "a knowledge graph"):
        way_out = f"Train one on it: cloze pretrain RECIPE --corpus {folder} --out RUN"
        raise CheckpointError(f"{folder}: is {what_is(folder)}, not a checkpoint.\n  {way_out}")
    config = read_config(folder)
    architecture = architecture_of(folder, config)
    model, labels, remarks = _model(folder, config, architecture, description)
    tokenizer, about_tokens = fitting_tokenizer(folder, Tokenizer.load(folder), model)
    remarks += about_tokens
    reading = (
        Reading.of(description["reading"]) if description else _reading(folder, config, architecture, model, tokenizer)
    )
    if description is None and (from_facts := architecture.reading_of(_reading_facts(folder, config, tokenizer))) is not None:
        reading, tokenizer, notes = from_facts
        remarks += notes
    return Imported(
        folder=folder,
        architecture=architecture.name if model.part == architecture.part else None,
        model=model,
        tokenizer=tokenizer,
        reading=reading,
        labels=labels,
        step=int(description.get("step") or 0) if description else 0,
        remarks=tuple(remarks),
    )


def import_heads(
    folder: Path, config: Mapping[str, Any], further: Mapping[str, Tensor]
) -> tuple[dict[str, PortableHead], tuple[str, ...], list[str]]:
    """The heads that the class in `config` has on the network of a folder, the names of its classes, and those of tensors in
    `further` that belong to no head.

    `further` are tensors of the heads under transformers' names, which come before those of the folder.
    """
    architecture = architecture_of(folder, config)
    roles = {role for cls in classes_of(architecture, config) for role in cls.roles}
    architecture = replace(architecture, heads=tuple(table for table in architecture.heads if table.role in roles))
    arguments, (tensors, base) = config_arguments(folder, config, architecture), modernised(read_weights(folder), architecture)
    lead = architecture.base_in(further)
    upstream_names = {base + name.removeprefix(lead) if lead and name.startswith(lead) else name: name for name in further}
    tensors |= {name: further[upstream] for name, upstream in upstream_names.items()}
    _, heads_by_role, _ = _translate(folder, config, architecture, arguments, tensors, base)
    heads = named_heads(heads_by_role, None, folder, config)
    labels = _labels(folder, config, heads, default_names(heads_by_role, config))
    return heads, labels, [upstream for name, upstream in upstream_names.items() if name in tensors]


def _model(
    folder: Path, config: Mapping[str, Any], architecture: Architecture, description: Mapping[str, Any] | None
) -> tuple[PortableModel, tuple[str, ...], list[str]]:
    """The model, the names of its classes, and remarks."""
    remarks: list[str] = []
    arguments = config_arguments(folder, config, architecture)
    if description is not None:
        own_arguments = _own_arguments(description, architecture, folder / DESCRIPTION)
        if _agrees(own_arguments, config, architecture):
            arguments = own_arguments
        else:
            remarks.append(f"config.json was changed since cloze wrote {DESCRIPTION}; config.json is followed.")
            description = None
    weights = read_stored(folder)
    tensors, base = modernised(weights.tensors, architecture)
    if weights.narrow:
        remarks.append(f"the weights are stored in {' and '.join(weights.narrow)}; cloze computes and writes in float32.")
    network, heads_by_role, about_heads = _translate(folder, config, architecture, arguments, tensors, base)
    remarks += about_heads
    heads = named_heads(heads_by_role, description, folder, config)
    if description is None:
        sentences = read_sentences(folder, arguments, architecture.reading)
        heads |= {} if sentences is None else {SENTENCES: sentences}
    drop_ignored(architecture, tensors, base)
    if tensors:
        names = ", ".join(sorted(tensors)[:4]) + (" …" if len(tensors) > 4 else "")
        remarks.append(f"carried along, but used by no part of cloze: {names}.")
    remarks += architecture.remarks(arguments)
    longest = architecture.longest(config)
    if description is None and longest is not None and longest < arguments["positions.max_length"]:
        remarks.append(
            f"transformers' {architecture.title} sees all tokens only in rows of up to {longest}, to which cloze cuts texts."
        )
    model = PortableModel(
        arguments=nested(arguments, architecture.part),
        order=_order(config, architecture) if description is None else description["order"],
        network=network,
        heads=heads,
        part=architecture.part,
        spare={name.removeprefix(base): tensor for name, tensor in tensors.items()},
        prompts=prompts_of(folder),
        **({} if description is None else read_own_parts(folder, description)),
    )
    if description is not None and _is_tower(description, architecture):
        model = whole_of(model, folder, description["part"], description["arguments"])
    roles = default_names(heads_by_role, config) if description is None else {
        name: entry["role"] for name, entry in description["heads"].items()
    }  # fmt: skip
    return with_own_embeddings(model, folder), _labels(folder, config, heads, roles), remarks


def _translate(
    folder: Path, config: Mapping[str, Any], architecture: Architecture, arguments: Mapping[str, Any],
    tensors: dict[str, Tensor], base: str,
) -> tuple[dict[str, Tensor], dict[str, tuple[HeadTable, PortableHead]], list[str]]:
    """The network's state, its heads by role, each with its table, and remarks. What is used is taken out of `tensors`.

    The order counts: a single segment becomes part of the positions and copies of the token table become one before the network
    is read, and heads that are tied are compared with the network's table.
    """
    source, pad = str(weights_file(folder)), config.get("pad_token_id", 1 if architecture.paddings else 0)
    sizes = architecture.table_sizes(arguments, config.get("vocab_size", VOCAB_SIZE), base=base, pad=pad)
    _fold_segments(tensors, architecture, config, arguments, base, source)
    _drop_buffers(architecture, tensors, base, source, arguments)
    _drop_copies(architecture, tensors, base, source)
    network = network_state(architecture, arguments, tensors, sizes, source)
    heads_by_role, remarks = read_heads(architecture, config, tensors, network, arguments, sizes, source)
    return network, heads_by_role, remarks


def network_state(
    architecture: Architecture, arguments: Mapping[str, Any], tensors: dict[str, Tensor], sizes: TableSizes, path: str
) -> dict[str, Tensor]:
    """The network's state, whose tensors are taken out of `tensors`; of those that follow from the arguments, the ones that the
    file lacks are computed."""
    lines, computed = architecture.lines(arguments), architecture.computed(arguments)
    present = {entry.ours for entry in entries(lines, sizes) if all(name in tensors for name in entry.theirs)}
    absent = computed.keys() - present
    return {name: computed[name] for name in absent} | to_ours(
        [line for line in lines if line.ours not in absent], tensors, sizes, path
    )


def drop_ignored(architecture: Architecture, tensors: dict[str, Tensor], base: str) -> None:
    """Remove the tensors that `Architecture.ignored` names."""
    for pattern in architecture.ignored:
        buffer = re.compile(re.escape(pattern.replace("{base}", base)).replace(r"\{i\}", r"\d+"))
        for name in [name for name in tensors if buffer.fullmatch(name)]:
            del tensors[name]


def _own_arguments(description: Mapping[str, Any], architecture: Architecture, path: Path) -> dict[str, Any]:
    """The flat arguments in cloze/network.json; a `CheckpointError` if one is missing, or a mapping where a number belongs."""
    try:
        own_arguments = description["arguments"]
        arguments = tower_arguments(own_arguments) if _is_tower(description, architecture) else own_arguments
        flat_arguments = flat(arguments, architecture.part)
        unknown = flat_arguments.keys() - flat(nested(flat_arguments, architecture.part), architecture.part).keys()
        if unknown:
            raise CheckpointError(
                f"{path}: {architecture.part} has no argument {min(unknown)!r}: another version of cloze wrote the folder, or "
                "the file was changed.\n  Open it with the version that wrote it, or copy the folder again."
            )
        _check_own_arguments(flat_arguments, architecture, path)
        return derived(flat_arguments)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the network's arguments are damaged: {error}. Copy the file again.") from None


def _is_tower(description: Mapping[str, Any], architecture: Architecture) -> bool:
    """Whether the architecture expresses only the text tower of the network in cloze/network.json."""
    return description["part"] != architecture.part and has_tower(description["part"])


def _check_own_arguments(arguments: Mapping[str, Any], architecture: Architecture, path: Path) -> None:
    for setting in architecture.settings:
        value = arguments.get(setting.ours)
        if "." not in setting.ours and setting.ours not in arguments:
            missing = f"{path}: says nothing of {setting.ours}; expected all settings of the network."
            raise CheckpointError(f"{missing} Copy the file again.")
        if isinstance(value, Mapping) or (setting.is_number and not isinstance(value, int | float | None)):
            raise CheckpointError(f"{path}: {setting.ours} is {value!r}; expected a number. Copy the file again.")


def _reading(
    folder: Path, config: Mapping[str, Any], architecture: Architecture, model: PortableModel, tokenizer: Tokenizer
) -> Reading:
    """How a folder that cloze did not write reads text; rows end where transformers cuts them, if that is before the network's
    last position."""
    positions, limits = model.flat.get("positions.max_length"), (length_of_texts(folder), architecture.longest(config))
    longest = min((limit for limit in limits if limit is not None), default=None)
    limited = positions is not None and longest is not None and longest < positions and not architecture.generates
    reading = architecture.reading
    reading = replace(reading, single=saved_frame(tokenizer, folder)) if architecture.framed else reading
    return replace(reading, max_length=longest) if limited else reading


def _reading_facts(folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer) -> ReadingFacts:
    path = folder / "generation_config.json"
    generation = read_json(path, "how texts are generated") if path.is_file() else {}
    return ReadingFacts({**config, **generation}, tokenizer_settings(folder), tokenizer)


def _order(config: Mapping[str, Any], architecture: Architecture) -> str:
    return architecture.orders[0] if architecture.order_of is None else architecture.order_of(config)


def config_arguments(folder: Path, config: Mapping[str, Any], architecture: Architecture) -> dict[str, Any]:
    """The network's flat arguments that a config asks for; an unsound value is a `CheckpointError`."""
    path = folder / "config.json"
    segments = {"segments": 0} if "segments" in defaults("network", architecture.part) else {}  # unless config.json counts them
    arguments: dict[str, Any] = {**segments, **architecture.assumed, **architecture.fixed}
    for setting in (*architecture.settings, Setting("vocab_size", "vocab_size", VOCAB_SIZE)):
        value = config.get(setting.theirs, setting.default)
        if not _sound(value, setting.default):
            raise CheckpointError(
                f"{path}: {setting.theirs} is {value!r}; expected a value such as {setting.default!r}.\n"
                "  Copy the file again."
            )
        arguments[setting.ours] = setting.back(value)
        if "layers" in setting.ours and isinstance(value, int) and value > DEEPEST:
            raise CheckpointError(f"{path}: {setting.theirs} is {value}; expected at most {DEEPEST}. Copy the file again.")
    del arguments["vocab_size"]
    try:
        arguments.update(architecture.from_config(config))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error} This model cannot be imported.") from None
    if architecture.paddings:
        pad = config.get("pad_token_id", 1)
        if not isinstance(pad, int) or pad < 0 or arguments["positions.max_length"] <= pad + 1:
            raise CheckpointError(
                f"{path}: pad_token_id is {pad!r}, and {architecture.title} counts its "
                f"{arguments['positions.max_length']} positions from there.\n"
                "  Copy the file again."
            )
        arguments["positions.max_length"] -= pad + 1
    if architecture.segments is not None and arguments.get("segments") and not gives_segments(folder, architecture):
        arguments["segments"] = 0
    own_width = arguments.get("head_width") or arguments.get("attention.head_width")
    if not own_width and arguments["width"] % arguments.get("heads", 1):
        raise CheckpointError(
            f"{path}: {arguments['heads']} attention heads do not divide the width {arguments['width']}. Copy the file again."
        )
    return derived(flat(nested(arguments, architecture.part), architecture.part))


def _sound(value: Any, example: Any) -> bool:
    """Whether a value from config.json has the type of the default; whole numbers must be positive, or 0 where that is the
    default."""
    if isinstance(example, bool):
        return isinstance(value, bool)
    if isinstance(example, float):
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    if isinstance(example, str):
        return isinstance(value, str)
    positive = isinstance(value, int) and not isinstance(value, bool) and (example != 0) <= value < 1 << 40
    return (value is None and example is None) or positive


def _agrees(arguments: Mapping[str, Any], config: Mapping[str, Any], architecture: Architecture) -> bool:
    """Whether config.json still agrees with these arguments."""
    shift = config.get("pad_token_id", 1) + 1 if architecture.paddings else 0
    for setting in architecture.settings:
        if setting.ours not in arguments:  # an argument of another part
            continue
        if isinstance(arguments[setting.ours], Mapping) and setting.is_number:  # a schedule, which config.json cannot express
            continue
        value = setting.there(arguments[setting.ours])
        if config.get(setting.theirs, setting.default) != (value + shift if setting.ours == "positions.max_length" else value):
            return False
    expected = architecture.keys(arguments, architecture.orders[0])
    return dict(architecture.from_config({**expected, **config})) == dict(architecture.from_config(expected))


def modernised(weights: Mapping[str, Tensor], architecture: Architecture) -> tuple[dict[str, Tensor], str]:
    """Tensors under their present names, and the prefix before the body's."""
    tensors = {_modern(name): tensor for name, tensor in weights.items()}
    base = architecture.base_in(tensors)
    return {base + architecture.renamed(n.removeprefix(base)) if n.startswith(base) else n: t for n, t in tensors.items()}, base


def _modern(name: str) -> str:
    """The current name of a tensor: before 2020, LayerNorm's weight and bias were called gamma and beta."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _fold_segments(
    tensors: dict[str, Tensor], architecture: Architecture, config: Mapping[str, Any], arguments: Mapping[str, Any], base: str,
    path: str,
) -> None:
    """A segment that all tokens share carries no information: its vector is added to the positions instead."""
    if architecture.segments is None or arguments.get("segments"):
        return
    pattern = architecture.segments.theirs
    assert isinstance(pattern, str)
    name = pattern.replace("{base}", base)
    table = tensors.pop(name, None)
    positions = f"{base}embeddings.position_embeddings.weight"
    if table is not None and positions not in tensors and bool(table[:1].any()):
        raise CheckpointError(
            f"{path}: the tokenizer gives no segments (model_input_names), and {architecture.title} has no vectors of positions "
            "to which that of segment 0 could be added.\n"
            "  If texts have segments after all, add token_type_ids to model_input_names in tokenizer_config.json."
        )
    if table is not None and positions in tensors:
        setting = architecture.setting("segments")
        segments = 1 if setting is None else config.get(setting.theirs, setting.default)
        expected = (segments, tensors[positions].shape[1])
        if table.shape != expected:
            raise CheckpointError(
                f"{path}: {name}: the file gives {tuple(table.shape)}, config.json asks for {expected}.\n"
                "  The two files belong to different models: copy both again from one source."
            )
        tensors[positions] = tensors[positions] + table[:1]


def _drop_buffers(
    architecture: Architecture, tensors: dict[str, Tensor], base: str, path: str, arguments: Mapping[str, Any]
) -> None:
    """Remove the buffers in the file, which must have the values of ours, or be zero where ours has none."""
    for name, expected in architecture.buffers(arguments).items():
        held = tensors.pop(base + name, expected)
        # A file in bfloat16 rounds a sine by up to 0.002.
        if held.shape != expected.shape or not torch.allclose(held.float(), expected, rtol=0, atol=4e-3):
            raise CheckpointError(
                f"{path}: {base + name} differs from the numbers that {architecture.title} has there, which cloze's network "
                "computes; this model cannot be imported."
            )
    for name in architecture.blank:
        if name in tensors and bool(tensors.pop(name).any()):
            raise CheckpointError(f"{path}: {name} is not zero; cloze's network has none, so this model cannot be imported.")


def _drop_copies(architecture: Architecture, tensors: dict[str, Tensor], base: str, path: str) -> None:
    """Reduce the copies of the token table in the file to one, under its name in the table."""
    if not architecture.copies:
        return
    line = next(line for line in architecture.body if line.ours == "embeddings.tokens.weight")
    names = [str(name).replace("{base}", base) for name in (line.theirs, *architecture.copies)]
    tables = {name: tensors.pop(name) for name in names if name in tensors}
    for name, rows in tables.items():
        first, expected = next(iter(tables.items()))
        if not torch.equal(rows, expected):
            raise CheckpointError(
                f"{path}: {name} differs from {first}; cloze's network has one table of tokens for both, so this model "
                "cannot be imported."
            )
        tensors[names[0]] = rows


def _read_own(folder: Path, description: Mapping[str, Any]) -> Imported:
    """A folder of a network that transformers cannot express: everything is in `cloze/`."""
    model = PortableModel(
        arguments=description["arguments"],
        order=description["order"],
        network=read_tensors(folder / OWN_NETWORK),
        heads=named_heads({}, description, folder),
        part=description["part"],
        no_plain_form=str(description.get("no_plain_form", "")),
        **read_own_parts(folder, description),
    )
    tokenizer, _ = fitting_tokenizer(folder, Tokenizer.load(folder), model)
    return Imported(
        folder=folder, architecture=None, model=model, tokenizer=tokenizer, reading=Reading.of(description["reading"]),
        labels=tuple(description.get("labels") or ()), step=int(description.get("step") or 0),
    )


def fitting_tokenizer(folder: Path, tokenizer: Tokenizer, model: PortableModel) -> tuple[Tokenizer, list[str]]:
    """The tokenizer without last special tokens that have no vector, and a remark on them (BART for summaries has no vector for
    the mask). Every other id needs a vector; up to the next multiple of 256, or a hundredth more (Qwen2, mDeBERTa), further
    vectors are padding that some trainers add."""
    if "embeddings.tokens.weight" not in model.network:
        return tokenizer, []
    rows = int(model.network["embeddings.tokens.weight"].shape[0])
    if tokenizer.size <= rows <= max(-(-tokenizer.size // 256) * 256, tokenizer.size + tokenizer.size // 100):
        return tokenizer, []
    fitting = tokenizer.without_last(rows) if rows < tokenizer.size else None
    if fitting is None:
        raise CheckpointError(
            f"{folder}: the tokenizer has {tokenizer.size} ids and the network has vectors for {rows}.\n"
            "  They belong to different models: put the tokenizer files of this checkpoint into the folder."
            + (f" If no text uses the further vectors, save it without: model.resize_token_embeddings({tokenizer.size})"
               if rows > tokenizer.size else "")
        )
    lost = ", ".join(tokenizer.piece(id) for id in range(rows, tokenizer.size))
    return fitting, [f"the network has no vector for {lost}: the tokenizer is read without."]


def _labels(
    folder: Path, config: Mapping[str, Any], heads: Mapping[str, PortableHead], roles: Mapping[str, str | None]
) -> tuple[str, ...]:
    """The names of the classes, if a head has some; a `CheckpointError` if it has more or fewer. `roles`: those of the heads in
    transformers, by their names here."""
    classes = [head.argument("classes") for name, head in heads.items() if roles.get(name) in NAMED_ROLES]
    classes = [number for number in classes if number is not None]
    if not classes:
        return ()
    labels = labels_of(folder, config)
    if classes[0] != len(labels):
        raise CheckpointError(
            f"{config_file(folder)}: names {len(labels)} labels (id2label), and the head in {WEIGHTS} has {classes[0]} outputs.\n"
            "  The two files belong to different models: copy both again from one source."
        )
    return labels


def require_folder(folder: Path) -> None:
    """A `CheckpointError` if there is no such folder."""
    if not folder.is_dir():
        raise CheckpointError(_no_folder(folder))


def _no_folder(folder: Path) -> str:
    require_checkpoint(folder)
    return f"{folder}: a file; expected a folder with config.json and {WEIGHTS} in it."
