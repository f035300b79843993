"""NEZHA against transformers 4.57, the last version that has it, in a second environment.

`CLOZE_PYTHON_WITH_TRANSFORMERS_4` names that environment's Python; without it the tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cloze.batch import Batch
from cloze.interop import Card, complete, export_folder, import_folder
from cloze.interop.choice import ArchitectureChoice, choose
from cloze.interop.export import tensors_there
from tests.making import completed, data

PYTHON = os.environ.get("CLOZE_PYTHON_WITH_TRANSFORMERS_4", "")
pytestmark = [
    pytest.mark.parity,
    pytest.mark.skipif(not PYTHON, reason="CLOZE_PYTHON_WITH_TRANSFORMERS_4 names no Python"),
]
NEZHA: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "feed_forward.inner": 24, "positions.max_length": 24,
    "segments": 2, "positions": "functional", "positions.limit": 5}
HEADS = {"mlm": ("token_prediction", {"transform": "gelu", "tie": True}), "nsp": ("relation_prediction", {"classes": 2})}
OUTPUTS = {"mlm": "prediction_logits", "nsp": "seq_relationship_logits"}


def batch(system: Any) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    ordinary = torch.from_numpy(system.tokenizer.ordinary_ids).long()
    block = torch.ones(3, 20, dtype=torch.long)
    block[1, 7:], block[2, 13:] = 0, 0
    tokens = ordinary[torch.randint(len(ordinary), (3, 20), generator=generator)].where(block > 0, 0)
    return {"tokens": tokens, "block": block, "segments": torch.randint(2, (3, 20), generator=generator)}


def test_logits_and_gradients_are_those_of_transformers_and_come_back(systems: ModuleType, tmp_path: Path) -> None:
    system = systems.build(NEZHA, "open", HEADS, systems.tokenizer("wordpiece"), systems.BERT_READING)
    folder = tmp_path / "model"
    assert export_folder(
        folder, model=system.model(), tokenizer=system.tokenizer, reading=system.reading, card=Card("test")
    ) == []
    found = batch(system)
    states = system.network(want=frozenset({"hidden", "summary"}), **found)
    scores = {}
    for name, objective in system.objectives.items():
        state = states[objective.reads[0]]
        positions = torch.arange(state.flatten(0, -2).shape[0])
        scores[name] = objective.scores({objective.reads[0]: state}, Batch({objective.positions_field: positions}))
    generator = torch.Generator().manual_seed(1)
    weights = {name: torch.randn(s.shape, generator=generator) / s.numel() ** 0.5 for name, s in scores.items()}
    weights["mlm"] *= found["block"].view(-1, 1)
    torch.stack([(scores[name] * weight).sum() for name, weight in weights.items()]).sum().backward()
    given = {"input_ids": found["tokens"], "attention_mask": found["block"], "token_type_ids": found["segments"]}
    given["weights/prediction_logits"] = weights["mlm"].view(3, 20, -1)
    given["weights/seq_relationship_logits"] = weights["nsp"]
    save_file(given, tmp_path / "batch.safetensors")
    script = Path(__file__).parent / "old_transformers.py"
    files = [str(tmp_path / name) for name in ("batch.safetensors", "result.safetensors")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    run = subprocess.run(
        [PYTHON, str(script), str(folder), "NezhaForPreTraining", *files], capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr[-2000:]
    theirs = load_file(files[1])
    real = found["block"].flatten() > 0
    torch.testing.assert_close(scores["mlm"][real], theirs["prediction_logits"].flatten(0, 1)[real], atol=1e-4, rtol=0)
    torch.testing.assert_close(scores["nsp"], theirs["seq_relationship_logits"], atol=1e-4, rtol=0)
    assert_same_gradients(system, theirs)
    back = import_folder(folder)
    assert back.architecture == "nezha" and back.model.flat == completed(NEZHA)


def assert_same_gradients(system: Any, theirs: dict[str, Tensor]) -> None:
    whole = replace(system.model(), arguments=complete(data("transformer", **NEZHA)))
    choice = choose(whole, tokenizer_kind="wordpiece", pad=0)
    assert isinstance(choice, ArchitectureChoice)
    network = {name: parameter.grad for name, parameter in system.network.named_parameters()}
    heads = {
        name: replace(head, state={key: p.grad for key, p in system.objectives[name].named_parameters()})
        for name, head in whole.heads.items()
    }
    carried = replace(whole, network=network, heads=heads)
    mapped = tensors_there(carried, choice, vocab_size=system.tokenizer.size, pad=0)
    names = {key.removeprefix("gradient/") for key in theirs if key.startswith("gradient/")}
    assert names <= mapped.keys()
    for key in names:
        expected = theirs[f"gradient/{key}"]
        assert float((mapped[key] - expected).abs().max()) <= 1e-4 * max(1.0, float(expected.abs().max())), key
