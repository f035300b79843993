"""A trained model → a Hugging Face folder, and remarks on what the folder cannot express."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.architecture import NAMED_ROLES, Architecture, HeadTable
from cloze.interop.architectures.tower import OWN_ITEMS, has_tower, outside_tower, text_tower, tower_remark
from cloze.interop.arguments import complete
from cloze.interop.card import Card, write_card
from cloze.interop.choice import ArchitectureChoice, against_hint, choose, likely_architecture
from cloze.interop.embeddings import OWN_EMBEDDINGS, plain_embeddings, summed_tables
from cloze.interop.files import DESCRIPTION, WEIGHTS, read_json, staged, write_json, write_tensors
from cloze.interop.mapping import MappingLine, entries, to_theirs
from cloze.interop.model import PROBLEMS, Annotating, PortableHead, PortableModel, as_classifier, is_of_texts
from cloze.interop.sentences import drop_sentences, gives_sentences, sentence_head, write_sentences
from cloze.reading import Reading, SummaryToken
from cloze.text.tokenizer import Tokenizer

OWN_HEADS = "cloze/heads.safetensors"
OWN_NETWORK = "cloze/network.safetensors"
OWN_TABLES = "cloze/tables"
OWN_ANNOTATORS = "cloze/annotators"
OWN_CHANGED = "cloze/changed.safetensors"
_OWN_TENSORS = (OWN_HEADS, OWN_CHANGED, OWN_ITEMS, OWN_EMBEDDINGS)
_UNLIMITED = int(1e30)  # how transformers writes that a tokenizer cuts no text


def export_folder(
    folder: Path,
    *,
    model: PortableModel,
    tokenizer: Tokenizer,
    reading: Reading,
    card: Card,
    architecture: str | None = None,
    labels: Sequence[str] | None = None,
    length: int | None = None,
) -> list[str]:
    """Write everything that transformers needs to open `model`; return remarks on what it cannot express.

    Files: config.json, model.safetensors (fp32, tied weights once), the tokenizer's, README.md, generation_config.json where
    transformers generates with the class, modules.json where sentence-transformers can pool it, and in addition
    cloze/network.json (our arguments and heads), cloze/heads.safetensors (heads that transformers does not know),
    cloze/changed.safetensors (of a changed network, what its plain form lacks), cloze/embeddings.safetensors (vectors of senses
    and labels) and cloze/tables/ and cloze/annotators/ (what is looked up while reading text, if anything is). They appear
    whole or not at all. `architecture` selects one by its `model_type` if several fit the shape (the generator of ELECTRA); if
    another one is chosen, a remark gives the reason. `labels` are the names of a classifier's classes. `length` is the most
    tokens of a row that the model was fine-tuned with, if it was: transformers cuts rows to it, as cloze does.

    Errors: a tokenizer with more ids than the network has vectors is a `CheckpointError`.
    """
    folder = Path(folder)
    full_model = _completed(model)
    model = _with_classifiers(plain_embeddings(full_model))  # from here on as transformers would have it
    vocab_size = int(model.network["embeddings.tokens.weight"].shape[0]) if _has_table(model) else tokenizer.size
    if tokenizer.size > vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer has {tokenizer.size} ids and the network has vectors for {vocab_size}.\n"
            "  Save the network with the tokenizer it was trained with."
        )
    pad = tokenizer.roles.get("[PAD]")
    model, choice, outside = _choose(model, tokenizer.kind, pad, architecture, reading.summary)
    remarks = remarks_of(model, choice, reading)
    if outside:
        remarks.insert(0, tower_remark(full_model.part))
    if isinstance(choice, ArchitectureChoice):
        expected = architecture or likely_architecture(model, tokenizer_kind=tokenizer.kind, pad=pad)
        remarks = [*against_hint(model, choice, pad=pad, hint=expected), *remarks]
    if tokenizer.targets is not tokenizer:
        remarks.append("transformers' tokenizer of this folder cuts targets as it cuts texts; cloze has another one for them.")
    with staged(folder) as stage:
        (stage / "cloze").mkdir()
        if isinstance(choice, ArchitectureChoice):
            write_tensors(stage / WEIGHTS, tensors_there(model, choice, vocab_size=vocab_size, pad=pad))
            config = config_of(model, choice, vocab_size, tokenizer.roles, labels, reading)
            write_json(stage / "config.json", {**config, **problem_of(full_model, choice)})
            if choice.architecture.generates:
                write_json(stage / "generation_config.json", _generation(choice.architecture, tokenizer.roles, reading))
        else:
            write_tensors(stage / OWN_NETWORK, full_model.network)
        for name, table in model.tables.items():
            write_tensors(stage / OWN_TABLES / f"{name}.safetensors", table.arrays)
        for name, annotating in model.annotators.items():
            if annotating.file is not None:
                path = stage / annotator_file(name, annotating.file)
                path.parent.mkdir(exist_ok=True)
                shutil.copyfile(annotating.file, path)
        own_tensors = _own_tensors(full_model, model, choice, outside)
        for name, tensors in own_tensors.items():
            write_tensors(stage / name, tensors)
        write_tokenizer(stage, tokenizer, reading, model, choice, length)
        sentences = gives_sentences(model, choice, reading)
        if sentences:
            write_sentences(stage, model, reading)
        write_json(stage / DESCRIPTION, _description(full_model, choice, reading, card, labels, remarks))
        label = card.folder or folder.name
        write_card(stage / "README.md", card, choice, model, vocab_size, remarks, folder=label, sentences=sentences)
    for name in set(_OWN_TENSORS) - own_tensors.keys():
        (folder / name).unlink(missing_ok=True)  # files of an earlier model in the folder
    drop_sentences(folder, sentences, prompts=sentences and model.prompts.similarity is not None)
    return remarks


def _choose(
    model: PortableModel, tokenizer_kind: str, pad: int | None, hint: str | None, summary: SummaryToken
) -> tuple[PortableModel, ArchitectureChoice | list[str], dict[str, Tensor]]:
    """The model, or its text tower if only that fits an architecture; the choice for it, or the reasons why nothing fits; and the
    parameters outside the tower."""
    if model.no_plain_form:
        return model, [model.no_plain_form], {}
    choice = choose(model, tokenizer_kind=tokenizer_kind, pad=pad, hint=hint, summary=summary)
    if not isinstance(choice, ArchitectureChoice) and has_tower(model.part):
        tower = text_tower(model)
        of_tower = choose(tower, tokenizer_kind=tokenizer_kind, pad=pad, hint=hint, summary=summary)
        if isinstance(of_tower, ArchitectureChoice):
            return tower, of_tower, outside_tower(model)
    return model, choice, {}


def annotator_file(layer: str, file: Path) -> str:
    """Where a folder keeps the file of the annotator of a layer."""
    return f"{OWN_ANNOTATORS}/{layer}{''.join(file.suffixes[-2:])}"


def _annotator(layer: str, annotator: Annotating) -> dict[str, Any]:
    """An annotator as the description has it: mappings become pairs, since JSON is written with sorted keys and labels have an
    order."""
    plain = {
        key: [list(pair) for pair in value.items()] if isinstance(value, Mapping) else value
        for key, value in annotator.arguments.items()
    }
    file_argument = {} if annotator.file is None else {"file": annotator_file(layer, annotator.file)}
    return {annotator.part: {**plain, **file_argument}}


def tensors_there(model: PortableModel, choice: ArchitectureChoice, *, vocab_size: int, pad: int | None) -> dict[str, Tensor]:
    """All tensors of model.safetensors under transformers' names."""
    architecture = choice.architecture
    base = architecture.base_of(choice.cls)
    sizes = architecture.table_sizes(model.flat, vocab_size, base=base, pad=pad)
    result = to_theirs(architecture.lines(model.flat), model.network, sizes)
    for name, copies in architecture.repeated(model.flat).items():
        tensor = result.pop(base + name)
        result.update({base + copy: tensor.clone() for copy in copies})
    result.update({base + name: tensor for name, tensor in architecture.buffers(model.flat).items()})
    if architecture.segments is not None and not model.arguments.get("segments"):
        tokens = model.network["embeddings.tokens.weight"]
        result[_there(architecture.segments, base)] = tokens.new_zeros(1, tokens.shape[1])  # a segment without effect
    for name, table in choice.placed.items():
        head = model.heads[name]
        with_classes = sizes.with_letters(C=int(head.argument("classes") or 0))
        result.update(to_theirs(table.all_lines(is_tied(head)), head.state, with_classes))
        if not is_tied(head):
            result.update({copy: result[source] for copy, source in table.copies.items()})
    for name, tensor in model.spare.items():
        result.setdefault(base + name if not _outside(name, architecture) else name, tensor)
    for entry in entries(architecture.unused, sizes) if choice.cls.roles else ():
        for name in entry.theirs:
            result.setdefault(name, torch.zeros(entry.shape))
    return result


def config_of(
    model: PortableModel,
    choice: ArchitectureChoice,
    vocab_size: int,
    roles: Mapping[str, int],
    labels: Sequence[str] | None = None,
    reading: Reading | None = None,
) -> dict[str, Any]:
    """config.json in the layout of transformers 5, which 4.57 reads too."""
    architecture = choice.architecture
    config: dict[str, Any] = {
        "architectures": [choice.cls.name],
        "model_type": architecture.name,
        "dtype": "float32",
        "vocab_size": vocab_size,
        "tie_word_embeddings": _tied(model, choice.placed),
        **_ids(architecture, roles, reading),
        **architecture.keys(model.flat, model.order),
    }
    if architecture.paddings:
        config["max_position_embeddings"] += roles["[PAD]"] + 1
    for name, table in choice.placed.items():
        if table.role in NAMED_ROLES:
            label_names = labels or model.heads[name].arguments.get("relations")
            words = list(label_names or (f"LABEL_{i}" for i in range(model.heads[name].argument("classes"))))
            config["id2label"] = {str(i): word for i, word in enumerate(words)}
            config["label2id"] = {word: i for i, word in enumerate(words)}
            config["classifier_dropout"] = model.heads[name].argument("dropout")
        config.update({**table.required, **table.to_config(model.heads[name])})
    return config


def remarks_of(model: PortableModel, choice: ArchitectureChoice | list[str], reading: Reading) -> list[str]:
    """Remarks on what transformers' files cannot express, one sentence each."""
    if not isinstance(choice, ArchitectureChoice):
        return [
            "transformers has no architecture for this network: "
            + "; ".join(choice).rstrip(".")
            + f". Its parameters are in {OWN_NETWORK}; cloze opens the folder, transformers does not."
        ]
    pooling_head = sentence_head(model) if gives_sentences(model, choice, reading) else None  # modules.json says what it computes
    remarks = [
        f"{name}: {reason}. "
        + (f"Its parameters are in {OWN_HEADS}; " if model.heads[name].state else "")
        + "transformers opens the folder without this head."
        for name, reason in choice.left_out.items() if model.heads[name] is not pooling_head
    ]
    for setting in choice.architecture.settings:
        if isinstance(model.flat.get(setting.ours), Mapping) and setting.is_number:
            remarks.append(f"{setting.ours} follows a schedule; config.json says 0.0.")
    remarks += choice.architecture.remarks(model.flat)
    title = choice.architecture.title
    orders = [order for order in reading.orders if order not in choice.architecture.orders]
    if orders:
        remarks.append(f"transformers' {title} does not read in the order {' or '.join(orders)}; cloze does.")
    if reading.shift and choice.placed:
        remarks.append(
            f"a masked token is asked {reading.shift} place to the left of where it stands; "
            f"transformers' pipelines ask at the mask itself."
        )
    if choice.architecture.has_pooler and not choice.cls.roles and "pooler.dense.weight" not in model.spare:
        remarks.append(
            f"{choice.cls.name} also has a pooling layer (pooler_output), which was not trained here: transformers initialises "
            "it at random and warns. Use last_hidden_state, or open the folder with add_pooling_layer=False."
        )
    return remarks


def is_tied(head: PortableHead) -> bool:
    """Whether the head projects by the token table; also true of heads that predict no tokens, which have no `tie`."""
    tie = head.argument("tie")
    return tie is None or bool(tie)


def _tied(model: PortableModel, placed: Mapping[str, HeadTable]) -> bool:
    return all(is_tied(model.heads[name]) for name in placed)


def _completed(model: PortableModel) -> PortableModel:
    return replace(model, arguments=complete(model.arguments, model.part))


def _with_classifiers(model: PortableModel) -> PortableModel:
    return replace(model, heads={name: as_classifier(head) for name, head in model.heads.items()})


def problem_of(model: PortableModel, choice: ArchitectureChoice) -> dict[str, str]:
    """transformers' `problem_type` of a classifier that does not predict a single class."""
    problem = next((PROBLEMS[model.heads[name].part] for name in choice.placed if is_of_texts(model.heads[name])), None)
    return {} if problem is None else {"problem_type": problem}


def _has_table(model: PortableModel) -> bool:
    return "embeddings.tokens.weight" in model.network


def _there(line: MappingLine, base: str) -> str:
    assert isinstance(line.theirs, str)
    return line.theirs.replace("{base}", base)


def _outside(name: str, architecture: Architecture) -> bool:
    """Whether a tensor that cloze does not use belonged to a head there, outside the body."""
    names = [line.theirs for line in architecture.body if isinstance(line.theirs, str)]
    inside = {re.split(r"[.{]", name.removeprefix("{base}"))[0] for name in names if name.startswith("{base}")}
    return name.partition(".")[0] not in inside | set(architecture.carried)


def _ids(architecture: Architecture, roles: Mapping[str, int], reading: Reading | None = None) -> dict[str, int | None]:
    """The ids that the configuration names; `reading` says which token a decoder starts with, if it is not the usual one."""
    ids = {
        key: next((roles[name] for name in names if name in roles), None) for key, names in architecture.tokens.items()
    }
    start = "decoder_start_token_id"
    if start in ids and reading is not None and reading.start is not None:
        ids[start] = roles.get(reading.start, ids[start])
    return {"pad_token_id": roles.get("[PAD]"), **ids}


def _generation(architecture: Architecture, roles: Mapping[str, int], reading: Reading) -> dict[str, Any]:
    """generation_config.json: the ids, what is always written first, and what is never written."""
    first = None if reading.target is None else roles.get(reading.target.split()[0])
    never = [[roles[role]] for role in reading.unwritten if role in roles]
    return {
        **_ids(architecture, roles, reading), **({} if first is None else {"forced_bos_token_id": first}),
        **({"bad_words_ids": never} if never else {}),
    }


def _own_tensors(
    full_model: PortableModel, model: PortableModel, choice: ArchitectureChoice | list[str], outside: Mapping[str, Tensor]
) -> dict[str, Mapping[str, Tensor]]:
    """What transformers' files cannot hold, by the file in the folder that holds it: those of `_OWN_TENSORS` that are needed."""
    files: dict[str, Mapping[str, Tensor]] = {
        OWN_HEADS: _own_heads(full_model, choice), OWN_CHANGED: model.changed, OWN_ITEMS: outside,
        OWN_EMBEDDINGS: summed_tables(full_model) if isinstance(choice, ArchitectureChoice) else {},
    }
    has_plain_form = bool(model.changes) and not model.no_plain_form  # even a change without tensors then has its file
    return {name: tensors for name, tensors in files.items() if tensors or (name == OWN_CHANGED and has_plain_form)}


def _own_heads(model: PortableModel, choice: ArchitectureChoice | list[str]) -> dict[str, Tensor]:
    names = choice.left_out if isinstance(choice, ArchitectureChoice) else model.heads
    return {f"{name}/{key}": tensor for name in names for key, tensor in model.heads[name].state.items()}


def write_tokenizer(
    stage: Path, tokenizer: Tokenizer, reading: Reading, model: PortableModel, choice: ArchitectureChoice | list[str],
    length: int | None = None
) -> None:
    """Write the files that `AutoTokenizer` reads. `length`: the most tokens of a row, if fewer than the network reads."""
    limits = [length, reading.max_length, model.flat.get("positions.max_length") or model.flat.get("max_length")]
    segments = bool(model.arguments.get("segments"))
    default = "BertTokenizer" if segments else None
    tokenizer.save(
        stage,
        length=int(min((limit for limit in limits if limit), default=_UNLIMITED)),
        frame_single=reading.single,
        frame_pair=reading.pair,
        tokenizer_class=choice.architecture.tokenizer_class if isinstance(choice, ArchitectureChoice) else default,
    )
    path = stage / "tokenizer_config.json"
    settings = read_json(path, "the tokenizer's settings")
    # A network without segments must not get segment 1; GPT-2 would add a word vector for it.
    names = ["input_ids", "token_type_ids", "attention_mask"] if segments else ["input_ids", "attention_mask"]
    write_json(path, {**settings, "model_input_names": names})


def _reading(reading: Reading, choice: ArchitectureChoice | list[str]) -> dict[str, Any]:
    """How the system reads text; the start token of a decoder defaults to that of the architecture."""
    description: dict[str, Any] = {"single": reading.single, "pair": reading.pair, "summary": reading.summary}
    start = reading.start
    if start is None and isinstance(choice, ArchitectureChoice):
        start = choice.architecture.reading.start
    rest = {
        "start": start, "target": reading.target, "unwritten": reading.unwritten, "shift": reading.shift,
        "orders": reading.orders, "segments": reading.segments, "max_length": reading.max_length,
    }  # fmt: skip
    return description | {name: list(value) if isinstance(value, tuple) else value for name, value in rest.items() if value}


def _description(
    model: PortableModel,
    choice: ArchitectureChoice | list[str],
    reading: Reading,
    card: Card,
    labels: Sequence[str] | None,
    remarks: list[str],
) -> dict[str, Any]:
    placed = choice.placed if isinstance(choice, ArchitectureChoice) else {}
    return {
        "version": 1,
        "part": model.part,
        "arguments": dict(model.arguments),
        "order": model.order,
        "architecture": choice.architecture.name if isinstance(choice, ArchitectureChoice) else None,
        "reading": _reading(reading, choice),
        "heads": {
            name: {
                "part": head.part,
                "arguments": dict(head.arguments),
                "role": placed[name].role if name in placed else None,
                **({"read": dict(head.read)} if head.read else {}),
            }
            for name, head in model.heads.items()
        },
        **({"input_edits": [{part: dict(arguments)} for part, arguments in model.input_edits]} if model.input_edits else {}),
        **({"tables": {name: table.part for name, table in model.tables.items()}} if model.tables else {}),
        **(
            {"annotators": {name: _annotator(name, annotator) for name, annotator in model.annotators.items()}}
            if model.annotators else {}
        ),
        **({"languages": list(model.languages)} if model.languages else {}),
        **({"changes": [{part: dict(arguments)} for part, arguments in model.changes]} if model.changes else {}),
        **({"no_plain_form": model.no_plain_form} if model.no_plain_form else {}),
        "labels": list(labels) if labels else None,
        "name": card.name,
        "step": card.step,
        "remarks": remarks,
    }
