"""Run by a Python that has transformers 4.57: the last states of folders on given tokens, by the class of each.

Usage: python old_folders.py FOLDERS RESULT. FOLDERS (JSON) is a list of a folder, its class, the tokens of its encoder and, for
an encoder-decoder, those of its decoder. RESULT (safetensors) receives the states by the number of the folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file


def main(folders: str, result: str) -> None:
    found = {}
    for number, (folder, name, tokens, decoder) in enumerate(json.loads(Path(folders).read_text())):
        model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
        wrong = [key for key in info["missing_keys"] if "pooler" not in key] + list(info["mismatched_keys"])
        if wrong:
            raise SystemExit(f"{name} does not open {folder} whole: {wrong}")
        given = {"decoder_input_ids": torch.tensor(decoder)} if decoder else {}
        with torch.no_grad():
            found[str(number)] = model.eval()(input_ids=torch.tensor(tokens), **given).last_hidden_state.contiguous()
    save_file(found, result)


if __name__ == "__main__":
    main(*sys.argv[1:])
