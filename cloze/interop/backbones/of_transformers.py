"""Networks of pictures of transformers, such as ViT, DINOv2, Swin, ConvNeXT, ResNet, and the vision towers of CLIP and SigLIP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cloze.corpus.items.extractors import Pixels
from cloze.errors import CheckpointError, MissingExtra
from cloze.interop.backbones.pictures import Maps, PictureNetwork, class_names, resized

_CLASSES = "ForImageClassification"
_POOLER = "pooler."  # weights that are not read: features are those of the map
_OTHERS = "cloze reads ViT, DINOv2, Swin, ConvNeXT, ResNet, the vision towers of CLIP and SigLIP, and others with one map"


class TransformersNetwork(PictureNetwork):
    """A network of pictures in a folder of transformers, with its classifier if `crops` are to be classified and it has one."""

    def __init__(
        self, folder: Path, config: Mapping[str, Any], *, label: str, crops: bool, device: torch.device
    ) -> None:
        transformers = library("Reading a model of pictures")
        self.folder, self.label, self.device = folder, label, device
        with explained(folder):
            full_config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        self.config = full_config.vision_config if "vision_config" in full_config.sub_configs else full_config
        architectures = config.get("architectures") or ()
        classifies = crops and self.config is full_config and any(str(name).endswith(_CLASSES) for name in architectures)
        auto = transformers.AutoModelForImageClassification if classifies else transformers.AutoModel
        if input_of(auto, folder, self.config) != "pixel_values":
            raise CheckpointError(
                f"{folder}: is a model of type {full_config.model_type!r}, which does not read pictures alone; expected a "
                f"backbone such as google/vit-base-patch16-224.\n  {_OTHERS}."
            )
        self.network = opened(auto, folder, self.config, unread=_POOLER).to(device)
        self.processor = self._processor(transformers)
        self.side = self._side()
        if classifies:
            self.classes = class_names(self.config.id2label, self.config.num_labels)
        self._base: Any = self.network.base_model if classifies else self.network

    def _processor(self, transformers: Any) -> Any:
        if not (self.folder / "preprocessor_config.json").is_file():
            raise CheckpointError(
                f"{self.folder}: has no preprocessor_config.json, which says how pictures are scaled. Fetch it with the model."
            )
        with explained(self.folder):
            return transformers.AutoImageProcessor.from_pretrained(
                self.folder, local_files_only=True, trust_remote_code=False, backend="pil"
            )

    def _side(self) -> tuple[int, int]:
        """Height and width of the pictures that the network was trained on."""
        settings = self.processor.to_dict()
        for size in (settings.get("crop_size") if settings.get("do_center_crop") else None, settings.get("size")):
            sizes = {"height": size, "width": size} if isinstance(size, int) else dict(size or {})
            shortest = sizes.get("shortest_edge")
            height, width = sizes.get("height") or shortest, sizes.get("width") or shortest
            if height and width:
                return int(height), int(width)
        raise CheckpointError(f"{self.folder}/preprocessor_config.json: names no size of pictures; expected size: height, width.")

    def prepare(self, pictures: Sequence[Pixels]) -> Tensor:
        """Differs: the whole picture is scaled to the size of the network, also where the processor would cut off its edges."""
        resample = int(self.processor.resample or 2)
        squares = [resized(picture, self.side, resample) for picture in pictures]
        prepared = self.processor(
            squares, do_resize=False, do_center_crop=False, input_data_format="channels_last", return_tensors="pt"
        )
        pixels: Tensor = prepared["pixel_values"].to(self.device)
        return pixels

    def run(self, pixels: Tensor) -> Maps:
        states: list[Any] = []
        hook = self._base.register_forward_hook(lambda module, inputs, outputs: states.append(outputs))
        try:
            outputs = self.network(pixel_values=pixels)
        finally:
            hook.remove()
        return Maps(self._cells(states[0]), outputs.logits if self.classes else None)

    def _cells(self, outputs: Any) -> Tensor:
        """The last map (B, H, W, C) from the states of a network: a map (B, C, H, W), or tokens (B, T, C) of which those of
        patches are the last."""
        states = outputs.get("last_hidden_state")
        if states is None or states.ndim not in (3, 4):
            raise CheckpointError(f"{self.folder}: gives no map of features and no tokens of patches.\n  {_OTHERS}.")
        if states.ndim == 4:
            return states.permute(0, 2, 3, 1)
        rows, columns = self._grid(states.shape[1])
        return states[:, -rows * columns :].unflatten(1, (rows, columns))

    def _grid(self, tokens: int) -> tuple[int, int]:
        """Rows and columns of the patches among the tokens of a picture; before them may stand tokens of the class, of
        distillation and registers."""
        height, width = self.side
        settings = self.config.to_dict()
        patch = settings.get("patch_size")
        first = patch if isinstance(patch, int) else max(int(part) for part in patch) if patch else 1
        most = 2 + int(settings.get("num_register_tokens") or 0)
        cell = first
        while (height // cell) * (width // cell) > tokens:  # networks that join patches: each time two by two
            cell *= 2
        rows, columns = height // cell, width // cell
        if not rows or not columns or tokens - rows * columns > most:
            raise CheckpointError(
                f"{self.folder}: {tokens} tokens for a picture of {height} x {width} in patches of {first} are not a map.\n"
                f"  {_OTHERS}."
            )
        return rows, columns


def library(purpose: str) -> Any:
    """transformers, or `MissingExtra`."""
    try:
        import transformers
    except ModuleNotFoundError:
        raise MissingExtra("transformers", "backbones", purpose) from None
    return transformers


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Whatever transformers raises about a folder becomes a sentence; it prints nothing."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except Exception as error:  # of nearly every kind, for a damaged or foreign folder
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise CheckpointError(f"{folder}: transformers does not open it as a model ({first}).\n  {_OTHERS}.") from None
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def input_of(auto: Any, folder: Path, config: Any) -> str:
    """The main input of the network that a config describes, which is built without memory for its weights."""
    with explained(folder), torch.device("meta"):
        return str(auto.from_config(config).main_input_name)


def opened(auto: Any, folder: Path, config: Any, *, unread: str) -> Any:
    """A network of a folder in fp32, for use alone. Refuses one whose weights are not all there, but for those that are
    `unread`."""
    with explained(folder):
        network, loaded = auto.from_pretrained(
            folder, config=config, local_files_only=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
        )
    missing = sorted(name for name in loaded["missing_keys"] if unread not in name)
    if missing:
        raise CheckpointError(
            f"{folder}: lacks weights of {type(network).__name__}: {', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}.\n"
            "  The folder holds another network than config.json says, or was cut: copy it again."
        )
    return network.eval().requires_grad_(False)

