"""config.json of a folder that cloze did not write: read and checked, or what stands for it, and the architecture that it names.

Older folders have bert_config.json, or a config.json without `model_type`. A folder of peft has adapter_config.json, and its
config is that of the network in `base_model_name_or_path`, with the class and the number of labels of the head that peft saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from cloze.errors import CheckpointError, did_you_mean, nearest, propose
from cloze.hub import is_name, local_folder
from cloze.interop.architecture import ACTIVATIONS_BACK, ARCHITECTURES, Architecture, ModelClass
from cloze.interop.files import names_of_weights, parse_modules, read_json, read_tensors
from cloze.interop.not_read import NOT_READ
from cloze.interop.prompts import MODULES
from cloze.untrusted import require_ordinary

CONFIG, OLD_CONFIG = "config.json", "bert_config.json"
ADAPTER_CONFIG, ADAPTER_WEIGHTS, ADAPTER_LEAD = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
_ADAPTER_PICKLE = "adapter_model.bin"  # of peft before 0.5
#: peft's types of tasks → the auto classes of transformers that they are for.
ADAPTER_TASKS: Mapping[str, str] = {
    "SEQ_CLS": "AutoModelForSequenceClassification", "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
}  # fmt: skip


def config_file(folder: Path) -> Path:
    """The file that holds a folder's config: bert_config.json if it has no other."""
    old = folder / OLD_CONFIG
    return old if old.is_file() and not (folder / CONFIG).exists() else folder / CONFIG


def has_config(folder: Path) -> bool:
    """Whether a folder has a config of transformers or of peft."""
    return config_file(folder).is_file() or (folder / ADAPTER_CONFIG).is_file()


def is_adapter(folder: Path) -> bool:
    """Whether peft wrote a folder: it has no network of its own."""
    return (folder / ADAPTER_CONFIG).is_file() and not config_file(folder).is_file()


def read_config(folder: Path) -> dict[str, Any]:
    """The config of a folder, with its `model_type`. Every fault is a `CheckpointError`, including an `architectures`
    that is not a list of names."""
    if is_adapter(folder):
        return _adapter_config(folder)
    file = config_file(folder)
    if not file.exists() and (folder / MODULES).is_file():
        inner = next((path for kind, path in parse_modules(folder / MODULES) if kind == "Transformer" and path), None)
        if inner is not None:
            raise CheckpointError(
                f"{folder}: {MODULES} places the network in {inner}, as sentence-transformers did before 2021.\n"
                "  Save the folder again in the present layout: SentenceTransformer(FOLDER).save(NEW)"
            )
    config = read_json(file, "a checkpoint: a run folder, or a folder that transformers wrote")
    classes = config.get("architectures")
    if classes is not None and not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
        raise CheckpointError(
            f'{file}: architectures is {classes!r}; expected a list with the name of a class, such as ["BertModel"].\n'
            "  Copy the file again."
        )
    kind = config.get("model_type") or ("bert" if file.name == OLD_CONFIG else _type_of_class(config))
    return {**config, **({"model_type": kind} if kind else {})}


def architecture_of(folder: Path, config: Mapping[str, Any]) -> Architecture:
    """The architecture of a config; an unknown one, or a key whose value cloze lacks, is a `CheckpointError`."""
    path, kind = config_file(folder), str(config.get("model_type") or "")
    if kind not in ARCHITECTURES:
        code = "\n  Its network is code in the repository (auto_map), which cloze never runs." if "auto_map" in config else ""
        raise CheckpointError(f"{path}: {_unknown(folder, kind)}{code}")
    architecture = ARCHITECTURES[kind]
    if "quantization_config" in config:
        raise CheckpointError(f"{path}: the weights are quantised; expected fp32, fp16 or bf16. Take the original folder.")
    for key, values in architecture.legal.items():
        if config.get(key, values[0]) not in values:
            raise CheckpointError(
                f"{path}: {key} is {config[key]!r}; cloze's network has {' or '.join(map(repr, values))} there, "
                "so this model cannot be imported."
            )
    activation = architecture.setting("feed_forward.activation")
    if activation is not None and config.get(activation.theirs, activation.default) not in list(ACTIVATIONS_BACK):
        raise CheckpointError(
            f"{path}: {activation.theirs} is {config[activation.theirs]!r}. "
            f"{propose(str(config[activation.theirs]), ACTIVATIONS_BACK)}"
        )
    return architecture


def classes_of(architecture: Architecture, config: Mapping[str, Any]) -> list[ModelClass]:
    """The classes that a config names, those that the architecture has."""
    return [cls for cls in architecture.classes if cls.name in (config.get("architectures") or ())]


def base_of_adapter(folder: Path) -> Path:
    """The folder with the network that peft trained, fetched if it is named by its name on the hub; a `CheckpointError` if
    there is none."""
    adapter = read_json(folder / ADAPTER_CONFIG, "what peft trained")
    name, revision = str(adapter.get("base_model_name_or_path") or ""), adapter.get("revision")
    if name and Path(name).is_dir():
        return Path(name)
    if not is_name(name):
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG}: base_model_name_or_path is {name!r}, which is neither a folder here nor the name of a "
            "model on the hub.\n  Write the folder that holds the network there, or ORG/NAME."
        )
    try:
        return local_folder(f"{name}@{revision}" if revision else name)
    except CheckpointError as problem:
        raise CheckpointError(f"{folder / ADAPTER_CONFIG}: names the network {problem}") from None


def adapter_weights(folder: Path) -> Path:
    """The file with what peft trained: a pickle if it has no other."""
    old = folder / _ADAPTER_PICKLE
    return old if old.is_file() and not (folder / ADAPTER_WEIGHTS).exists() else folder / ADAPTER_WEIGHTS


def adapter_class(architecture: Architecture, adapter: Mapping[str, Any]) -> ModelClass | None:
    """The class that peft worked on, from `auto_mapping` or the type of the task; None if it names none that cloze has."""
    mapped, auto = adapter.get("auto_mapping"), ADAPTER_TASKS.get(str(adapter.get("task_type")))
    name = mapped.get("base_model_class") if isinstance(mapped, Mapping) else None
    return next((cls for cls in architecture.classes if cls.name == name or cls.auto == auto), None)


def _adapter_config(folder: Path) -> dict[str, Any]:
    base = read_config(base_of_adapter(folder))
    adapter = read_json(folder / ADAPTER_CONFIG, "what peft trained")
    architecture = ARCHITECTURES.get(str(base.get("model_type")))
    cls = None if architecture is None else adapter_class(architecture, adapter)
    if architecture is None or cls is None:
        return base
    outputs = _outputs_of_adapter(folder, architecture, cls)
    labels = {} if outputs in (None, len(base.get("id2label") or ())) else {"id2label": None, "num_labels": outputs}
    return {**base, "architectures": [cls.name], **labels}


def _outputs_of_adapter(folder: Path, architecture: Architecture, cls: ModelClass) -> int | None:
    """The rows of the output map that peft saved; None if it saved none."""
    outputs = {
        line.theirs.removesuffix("*").removesuffix(".weight").rstrip(".") + ".weight"
        for table in architecture.heads if table.role in cls.roles
        for line in table.lines if line.ours.startswith("head.output") and isinstance(line.theirs, str)
    }  # fmt: skip
    path = adapter_weights(folder)
    if path.name == _ADAPTER_PICKLE:
        shapes = {name.removeprefix(ADAPTER_LEAD): tensor.shape for name, tensor in read_tensors(path).items()}
        return next((int(shape[0]) for name, shape in shapes.items() if name in outputs), None)
    try:
        require_ordinary(path)
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            name = next((name for name in names if name.removeprefix(ADAPTER_LEAD) in outputs), None)
            return None if name is None else int(file.get_slice(name).get_shape()[0])
    except (OSError, SafetensorError):  # reading the weights says what is wrong
        return None


def _type_of_class(config: Mapping[str, Any]) -> str | None:
    """The `model_type` whose classes have a name in `architectures`."""
    return next((name for name, architecture in ARCHITECTURES.items() if classes_of(architecture, config)), None)


def _unknown(folder: Path, kind: str) -> str:
    """What is wrong with the `model_type` of a config, and what to write."""
    readable = f"cloze reads {', '.join(sorted(ARCHITECTURES))}."
    if kind in NOT_READ:
        return f"model_type {kind!r}: cloze has no such network. It {NOT_READ[kind]}.\n  {readable}"
    if kind:
        return f"model_type {kind!r}; {readable} {did_you_mean(nearest(kind, ARCHITECTURES))}".rstrip()
    leads = {name.partition(".")[0] for name in names_of_weights(folder)}
    likely = next((ARCHITECTURES[name] for name in sorted(leads) if name in ARCHITECTURES), None)
    if likely is None:
        return f'no model_type; {readable}\n  Write the kind of its network into {CONFIG}, for example: "model_type": "bert",'
    line = f'"model_type": "{likely.name}",'
    return f"no model_type; its tensors have the names of {likely.title}'s.\n  Write this line into {CONFIG}: {line}"
