"""Run by a Python that has transformers 4.57: a class that version 5 has dropped, its outputs and gradients on a given batch.

Usage: python old_transformers.py FOLDER CLASS BATCH RESULT. BATCH (safetensors) holds the inputs by name and, as
`weights/<output>`, what each output is multiplied with; RESULT receives the outputs by name and `gradient/<parameter>`.
"""

from __future__ import annotations

import sys

import torch
import transformers
from safetensors.torch import load_file, save_file


def main(folder: str, name: str, batch: str, result: str) -> None:
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    wrong = {kind: keys for kind, keys in info.items() if keys}
    if wrong:
        raise SystemExit(f"{name} does not open the folder whole: {wrong}")
    given = load_file(batch)
    output = model.eval()(**{key: value for key, value in given.items() if not key.startswith("weights/")})
    weights = {key.removeprefix("weights/"): value for key, value in given.items() if key.startswith("weights/")}
    torch.stack([(output[key] * value).sum() for key, value in weights.items()]).sum().backward()
    found = {key: output[key].detach().contiguous() for key in weights}
    for key, parameter in model.named_parameters():
        found[f"gradient/{key}"] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.contiguous()
    save_file(found, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
