"""Networks of sound of transformers, such as wav2vec 2.0, HuBERT and the encoder of Whisper: recorded words → their states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.items.recordings import Recording
from cloze.corpus.items.sounds import WordMeasure
from cloze.errors import CheckpointError, CorpusError
from cloze.interop.backbones.of_transformers import explained, input_of, library, opened

_INPUTS = frozenset({"input_values", "input_features"})
_POOLER = "masked_spec_embed"  # a weight of training alone


class SpeechNetwork(WordMeasure):
    """The last states of a network, at `frames` evenly spaced moments of each word: frames x width numbers.

    The whole recording is read. A moment has the state of the frame that it lies in.
    """

    def __init__(self, folder: Path, *, label: str, device: torch.device, frames: int = 30) -> None:
        transformers = library("Reading a model of sound")
        self.folder, self.label, self.device, self.frames = folder, label, device, frames
        with explained(folder):
            self.config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        self.input = input_of(transformers.AutoModel, folder, self.config)
        if self.input not in _INPUTS:
            raise CheckpointError(
                f"{folder}: is a model of type {self.config.model_type!r}, which does not read sound; expected one such as "
                "facebook/wav2vec2-base, facebook/hubert-base-ls960 or openai/whisper-base."
            )
        self.network = opened(transformers.AutoModel, folder, self.config, unread=_POOLER).to(device)
        with explained(folder):
            self.extractor = transformers.AutoFeatureExtractor.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        self.rate = int(self.extractor.sampling_rate)
        self.encoder: Any = self.network.get_encoder() if self.config.is_encoder_decoder else self.network

    @property
    def name(self) -> str:
        return f"{self.label} frames={self.frames}"

    @property
    def width(self) -> int:
        return int(self.config.hidden_size)

    def measure(self, spoken: Recording) -> NDArray[np.floating[Any]]:
        """The states of the words of a recording (W, frames · width)."""
        states, seconds = self.states(spoken)
        moments = np.array([np.linspace(start, stop, 2 * self.frames + 1)[1::2] for start, stop in spoken.words])
        index = np.clip(moments.reshape(len(spoken.words), self.frames) / seconds * len(states), 0, len(states) - 1)
        return states[index.astype(np.int64)].reshape(len(spoken.words), -1)

    def states(self, spoken: Recording) -> tuple[NDArray[np.float32], float]:
        """The states (T, width) of a recording, and the seconds that they stand for."""
        if spoken.rate != self.rate:
            raise CorpusError(
                f"{spoken.key}: has {spoken.rate} samples per second, and {self.folder.name} reads {self.rate}.\n"
                f"  Convert it: ffmpeg -i {spoken.key} -ar {self.rate} NEW.wav"
            )
        most = self.extractor.to_dict().get("n_samples")
        if most is not None and len(spoken.samples) > most:
            raise CorpusError(f"{spoken.key}: is longer than the {most / self.rate:g} s that {self.folder.name} reads. Cut it.")
        values = self.extractor(spoken.samples.astype(np.float32), sampling_rate=self.rate, return_tensors="pt")[self.input]
        try:
            with torch.inference_mode():
                states = self.encoder(values.to(self.device)).last_hidden_state[0].float().cpu().numpy()
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            raise CorpusError(f"{spoken.key}: {self.folder.name} cannot read it ({why}). Is it too short?") from None
        return states, (len(spoken.samples) if most is None else most) / self.rate
