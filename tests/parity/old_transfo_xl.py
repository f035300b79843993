"""Run by a Python that has transformers 4.57: a random Transformer-XL, and what it makes of segments that follow each other.

Usage: python old_transfo_xl.py CONFIG RESULT. CONFIG is JSON: `model` is the configuration of a random model, or `folder`
names one to open; `segments`, `rows`, `length` and `seed` say what is read. RESULT (safetensors)
receives `weight/<name>`, and for segment s `tokens/s`, `scores/s` (log-probabilities), `gradient/s/<name>` of their mean at
the tokens themselves, and `memory/s/<layer>` before it.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import TransfoXLConfig, TransfoXLLMHeadModel


def repair() -> None:
    """4.57.1 calls `type_as(dtype=…)`, which no torch accepts: without this its Transformer-XL reads nothing."""
    plain = torch.Tensor.type_as
    torch.Tensor.type_as = lambda self, other=None, *, dtype=None: self.to(dtype) if other is None else plain(self, other)


def drawn(config: dict[str, object]) -> TransfoXLLMHeadModel:
    model = TransfoXLLMHeadModel(TransfoXLConfig(**config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model


def opened(folder: str) -> TransfoXLLMHeadModel:
    model, info = TransfoXLLMHeadModel.from_pretrained(folder, output_loading_info=True)
    wrong = {kind: keys for kind, keys in info.items() if keys}
    if wrong:
        raise SystemExit(f"the folder is not opened whole: {wrong}")
    return model.eval()


def main(config: str, result: str) -> None:
    warnings.simplefilter("ignore")
    repair()
    wanted = json.loads(Path(config).read_text(encoding="utf-8"))
    torch.manual_seed(wanted["seed"])
    model = opened(wanted["folder"]) if "folder" in wanted else drawn(wanted["model"])
    found = {f"weight/{name}": tensor.clone() for name, tensor in model.state_dict().items()}
    memory = None
    for number in range(wanted["segments"]):
        tokens = torch.randint(model.config.vocab_size, (wanted["rows"], wanted["length"]))
        model.zero_grad()
        if memory is None:
            memory = model.init_mems(wanted["rows"])
        for layer, states in enumerate(memory or ()):
            found[f"memory/{number}/{layer}"] = states.transpose(0, 1).contiguous()
        output = model(tokens, mems=memory)
        scores = output.prediction_scores
        scores.gather(2, tokens[..., None]).mean().backward()
        found[f"tokens/{number}"], found[f"scores/{number}"] = tokens, scores.detach().contiguous()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:  # an opened folder holds shared biases once more at the top, where nobody reads them
                found[f"gradient/{number}/{name}"] = parameter.grad.clone()
        memory = output.mems
    save_file(found, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
