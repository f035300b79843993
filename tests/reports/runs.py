"""Writes made-up run folders in the format of cloze/log.jsonl."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

RECIPE = """name: {name}
paper: "BERT: Pre-training of Deep Bidirectional Transformers (Devlin et al., 2019)"
network: {{transformer: {{layers: 4, width: {width}, heads: 4}}}}
exercise:
  - mask: {{unit: token, rate: 0.15}}
  - predict: masked
training: {{batch: 32, rate: {{linear: {{peak: 1e-4}}}}}}
"""
TEXTS = ["The capital of France is [MASK].", "A list is a [MASK] of values."]


def write_run(
    folder: Path, *, name: str = "bert", steps: int = 300, seed: int = 0, fall: float = 6.0, width: int = 256
) -> Path:
    """A run of `steps` steps whose loss falls by `fall`; logs every fifth step, held-out losses and samples."""
    rng, records = random.Random(seed), []
    for step in range(5, steps + 1, 5):
        share, base = step / steps, 9.0 - fall * (1 - math.exp(-4 * step / steps))
        loss = base + rng.gauss(0, 0.15)
        records.append(
            {
                "event": "train", "step": step, "tokens": step * 4000, "seconds": step * 0.21, "loss": loss,
                "objectives": {"token_prediction": loss - 0.6, "relation_prediction": 0.6},
                "learning_rate": 1e-4 * min(10 * share, 1 - share), "grad_norm": 1 + rng.random(),
                "tokens_per_second": 19000 + 500 * rng.random(), "mfu": 0.41,
            }
        )  # fmt: skip
        if step % (steps // 10) == 0:
            records.append(
                {"event": "held_out", "step": step, "tokens": step * 4000, "seconds": step * 0.21, "loss": base + 0.1}
            )
        if step % (steps // 3) == 0:
            answers = [[f"paris {0.62 * share:.0%}", "london 11%", "the 0%"], ["list 30%", "set 20%"]]
            samples = [{"text": text, "answers": own} for text, own in zip(TEXTS, answers, strict=True)]
            records.append({"event": "samples", "step": step, "samples": samples})
    (folder / "cloze").mkdir(parents=True)
    (folder / "cloze" / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "cloze" / "recipe.yaml").write_text(RECIPE.format(name=name, width=width))
    environment: dict[str, Any] = {
        "cloze": "0.1.0",
        "torch": "2.13.0",
        "python": "3.11.7",
        "hardware": {"cores": 2, "memory": "24 GB"},
    }
    (folder / "cloze" / "environment.json").write_text(json.dumps(environment))
    return folder
