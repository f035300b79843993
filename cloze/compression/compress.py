"""Makes a smaller, sparser or coarser checkpoint of a checkpoint, without training.

`compress` does what a run does with `change: […]`: the shape, the network with the changes, the checkpoint's tensors under
their new names; then it writes the folder. Masks stay with the network, so that further training keeps the zeros.
`prune_rows` takes rows from fastText's classifier, as its `quantize -cutoff` does before -retrain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cloze.atomic import require_new
from cloze.changes import Change, Shape, Transition
from cloze.changes.compressing.quantise import Quantise
from cloze.changes.keep_layers import KeepLayers
from cloze.checkpoint.borrowed import NETWORKS
from cloze.checkpoint.build import Loaded, load_checkpoint
from cloze.checkpoint.loaded import network_inputs
from cloze.checkpoint.plain_form import in_plain_form
from cloze.checkpoint.share import card_of, write_copy
from cloze.errors import CheckpointError
from cloze.interop import Imported
from cloze.interop.export import OWN_CHANGED
from cloze.interop.files import write_json
from cloze.interop.vectors.classifier import is_classifier, pruned
from cloze.networks.blocks.computed import bake_computed, is_added
from cloze.networks.blocks.initial import SkipInit
from cloze.networks.clock import Clock
from cloze.recipe.builders import build
from cloze.recipe.canonical import to_yaml
from cloze.recipe.changes import ChangeDescription, type_of
from cloze.recipe.load import load_recipe
from cloze.recipe.parts import load_kind
from cloze.registry import lookup
from cloze.tasks.tuned_folder import TASK_FILE, read_task_json

RECORD = Path("cloze") / "compression.json"
MEASURED = ("dev", "spread", "trials", "frozen_start")  # in task.json, figures of the network before

@dataclass(frozen=True)
class Size:
    """A network with its heads: how many `parameters`, how many of these are `zeros`, and the `bytes` of their files.

    The file with masks is not counted: it only serves further training.
    """

    parameters: int
    zeros: int
    bytes: int

    @classmethod
    def of(cls, loaded: Loaded, folder: Path) -> Size:
        """Of an opened checkpoint."""
        tensors = [p for module in (loaded.network, *loaded.heads.values()) for p in module.parameters()]
        files = [*folder.glob("*.safetensors"), *folder.glob("cloze/*.safetensors"), *folder.glob("cloze/tables/*.safetensors")]
        size = sum(file.stat().st_size for file in files if file != folder / OWN_CHANGED)
        return cls(sum(p.numel() for p in tensors), sum(int((p == 0).sum()) for p in tensors), size)

    def __str__(self) -> str:
        share = self.zeros / max(self.parameters, 1)
        return f"{self.parameters:,} parameters, {share:.1%} of them zero, {self.bytes / 1e6:,.2f} MB on disk"


@dataclass(frozen=True)
class CompressionResult:
    """The result: the changes that were made, both sizes, and remarks."""

    changes: Sequence[ChangeDescription]
    before: Size
    after: Size
    remarks: Sequence[str]

    def record(self, source: str) -> dict[str, Any]:
        """The contents of cloze/compression.json."""
        return {
            "from": source, "changes": [{name: dict(arguments)} for name, arguments in self.changes],
            "before": vars(self.before), "after": vars(self.after),
        }


def compress(source: Path, out: Path, changes: Sequence[ChangeDescription]) -> CompressionResult:
    """Write the checkpoint `source` with these changes to the new folder `out`.

    `changes` are registered parts with their arguments, such as `("keep_layers", {"layers": [0, 2]})`. Masks stay with the
    network; all other changes become part of its weights. Raises a `CheckpointError` for a change that the network does not
    allow; `out` appears whole or not at all.
    """
    require_new(out)
    load_kind("change")
    loaded = load_checkpoint(source)
    lost_masks: list[str] = []
    if not _keeps_masks(loaded, changes):
        lost_masks = [name for name, _ in loaded.imported.model.changes if type_of(name).masks]
        loaded = load_checkpoint(source, plain_form=True)
        loaded = replace(loaded, imported=replace(loaded.imported, model=loaded.imported.model.plain))
    imported: Imported = loaded.imported
    parts = [build(lookup("change", name), values, {}) for name, values in changes]
    network, arguments = changed_network(loaded, parts)
    state = network.state_dict()
    remaining = [*imported.model.changes, *(change for change in changes if type_of(change[0]).masks)]
    model = replace(imported.model, arguments=arguments, network=state, changes=tuple(remaining), changed={}, no_plain_form="")
    if model.changes:
        model = in_plain_form(model, loaded.tokenizer, loaded.tables)

    def complete(stage: Path) -> Size:
        size = Size.of(load_checkpoint(stage, plain_form=True), stage)
        _write_recipe(stage, loaded.network_arguments, arguments)
        return size

    listing = "; ".join(" ".join([name, *(f"{key}={value}" for key, value in values.items())]) for name, values in changes)
    sentence = f"Compressed without training: {listing}. Its quality after that was not measured here."
    result = _write(source, out, replace(imported, model=model), sentence, changes, Size.of(loaded, source), complete)
    if lost_masks:
        remark = (
            f"the masks of {source} ({', '.join(lost_masks)}) are not in {out}: its zeros are still zero, but further training "
            "changes them. To keep masks, compress the network before pruning it, and prune the result."
        )
        result = replace(result, remarks=[*result.remarks, remark])
    masks = out / OWN_CHANGED
    if not masks.is_file():
        return result
    remark = (
        f"{OWN_CHANGED} ({masks.stat().st_size / 1e6:.2f} MB) holds the masks, which keep the zeros in further training; cloze "
        "export --to merged leaves them out."
    )
    return replace(result, remarks=[*result.remarks, remark])


def prune_rows(source: Path, out: Path, rows: int) -> CompressionResult:
    """Write a classifier of fastText with a row for its `rows` longest words and n-grams to the new folder `out`
    (`cloze compress CLASSIFIER --rows N`).

    Any other checkpoint is a `CheckpointError`; `out` appears whole or not at all.
    """
    require_new(out)
    loaded = load_checkpoint(source)
    if not is_classifier(source):
        raise CheckpointError(f"{source}: --rows is for classifiers of fasttext-supervised, which have a row for each n-gram.")
    sentence = f"Only {rows:,} rows of words and n-grams were kept. Its quality was not measured after that."
    changes = [("prune_rows", {"rows": rows})]
    return _write(
        source, out, pruned(loaded.imported, rows), sentence, changes, Size.of(loaded, source),
        lambda stage: Size.of(load_checkpoint(stage), stage),
    )


def _write(
    source: Path, out: Path, imported: Imported, sentence: str, changes: Sequence[ChangeDescription], before: Size,
    complete: Callable[[Path], Size],
) -> CompressionResult:
    """Write the compressed model to `out`, with the `sentence` on its quality in the card and a record of both sizes.

    `complete` is called with the folder before it appears, writes what is missing, and measures it.
    """
    sizes: list[Size] = []

    def finish(stage: Path) -> None:
        sizes.append(complete(stage))
        record = CompressionResult(changes, before, sizes[0], ()).record(source.resolve().name)
        write_json(stage / RECORD, record)

    card = card_of(source, imported, languages=(), licence=None, data=None, folder=out.name)
    card = replace(card, results=sentence)
    remarks = write_copy(source, out, imported, card, description=description_of(source), finish=finish)
    return CompressionResult(changes, before, sizes[0], [*remarks, *_as_before(out)])


def _as_before(out: Path) -> Iterator[str]:
    """A remark on each further network of the folder, such as the other tower of a retriever."""
    for folder in sorted((out / NETWORKS).glob("*/")):
        yield (
            f"{folder}: this network is unchanged, and the sizes do not include it. To compress it, too, run cloze compress "
            f"{folder} --out NEW with the same options, and replace it with NEW."
        )


def _keeps_masks(loaded: Loaded, changes: Sequence[ChangeDescription]) -> bool:
    """Whether the changes of a checkpoint are masks that fit the compressed network; if not, it is opened in its plain form."""
    cut = any(name == "keep_layers" for name, _ in changes)  # masks name layers by their numbers before
    return not cut and all(type_of(name).masks for name, _ in loaded.imported.model.changes)


@torch.no_grad()
def changed_network(loaded: Loaded, changes: Sequence[Change]) -> tuple[nn.Module, dict[str, Any]]:
    """The network of a checkpoint with changes, their weights computed once and for all, and its arguments.

    Roundings come before masks, so that a zero stays zero.
    """
    part: str = loaded.imported.model.part
    arguments: Mapping[str, Any] = loaded.network_arguments
    for change in changes:
        arguments = change.shape(Shape(str(loaded.folder), part, arguments))
    available = network_inputs(loaded.imported.vocab_size, loaded.tokenizer, Clock(), loaded.tables)
    roundings = [change for change in changes if isinstance(change, Quantise)]
    inherited = [build(lookup("change", name), values, {}) for name, values in loaded.imported.model.changes]
    with SkipInit():
        network: nn.Module = build(lookup("network", part), arguments, available)
        for change in [*roundings, *inherited, *(change for change in changes if change not in roundings)]:
            change.apply(network)
    transition = Transition(
        Shape(str(loaded.folder), part, loaded.network_arguments), loaded.network, network, arguments, loaded.tokenizer,
        loaded.tokenizer,
    )
    state: Mapping[str, Tensor] = loaded.network.state_dict()
    for change in changes:
        state = change.weights(state, transition)
    added = {name: tensor for name, tensor in network.state_dict().items() if is_added(name)}
    state = {**added, **state}
    try:
        network.load_state_dict(state)
    except RuntimeError:
        if any(isinstance(change, KeepLayers) for change in changes):
            _require_weights_in_layers(loaded, state, network)
        raise
    network.eval()
    bake_computed(network)
    return network, dict(arguments)


def _require_weights_in_layers(loaded: Loaded, state: Mapping[str, Tensor], network: nn.Module) -> None:
    """A `CheckpointError` if weights of a user's network depend on its depth without being part of a layer."""
    here, old = ({name: tuple(tensor.shape) for name, tensor in weights.items()} for weights in (network.state_dict(), state))
    name = next((name for name in sorted(here | old) if here.get(name) != old.get(name)), None)
    if name is not None:
        before, after = ("no such weight" if shape is None else shape for shape in (old.get(name), here.get(name)))
        raise CheckpointError(
            f"{loaded.folder}: {name} of the network {loaded.imported.model.part!r} depends on the number of layers, but is not "
            f"part of `layers`: {before} in the checkpoint, {after} with fewer layers.\n"
            "  In the file of the network, give each module in `layers` all weights of its layer, and train it again."
        )


def _write_recipe(stage: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Put the arguments that were changed into the recipe of the folder, so that it describes the folder's network."""
    path = stage / "cloze" / "recipe.yaml"
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    if not changed or not path.is_file():
        return
    recipe = load_recipe(stage)
    data = recipe.canonical()
    part = recipe.exported.part
    assert part is not None  # the recipe of a folder describes its network in full
    data["networks"][recipe.export][part.name].update(changed)
    path.write_text(to_yaml(data), encoding="utf-8")


def description_of(source: Path) -> dict[str, Any] | None:
    """task.json without the figures of the network before, but with thresholds of decisions; None if the folder has none."""
    if not (source / TASK_FILE).is_file():
        return None
    contents = read_task_json(source)
    dev = {key: value for key, value in (contents.get("dev") or {}).items() if key.rpartition("/")[2] == "threshold"}
    return {key: value for key, value in contents.items() if key not in MEASURED} | ({"dev": dev} if dev else {})
