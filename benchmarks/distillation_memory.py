"""Peak memory of distillation over a whole vocabulary at every token, beyond what the two networks themselves need.

    python benchmarks/distillation_memory.py [--rows 32] [--length 512] [--vocabulary 30522] [--width 768]

A teacher and a student, one layer each, read a batch of random tokens; at every token, the student learns the teacher's scores
over the vocabulary (`match_scores`, as in the recipe distilbert). Counted are the storages of all tensors that exist at once in a
forward and a backward pass in fp32, gradients included, parameters not. `networks_mb` is the peak of the same two networks with
`match_hidden` alone, and `beyond_mb` the difference. `scores_mb` is the size of the scores of one network, if they were held.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

RECIPE = """
name: memory
text: {{tokenizer: {{wordpiece: {{size: {vocabulary}}}}}}}
corpus: {{passages: {{length: {length}}}}}
networks:
  teacher: {{transformer: {shape}, train: none}}
  student: {{transformer: {shape}}}
order: open
exercise:
  - frame: "{{A}}"
  - predict: {{what: all, set: all}}
passes:
  - network: teacher
    grad: false
    objectives: [{teaches}]
  - network: student
    objectives: [{learns}]
training: {{optimizer: adamw, rate: {{linear: {{peak: 1e-4}}}}, batch: {rows}, steps: 10}}
reading: {{single: "{{A}}"}}
export: student
"""
HEAD = "token_prediction: {transform: gelu, tie: true, set: all, weight: 0}"
READ = "{student: token_prediction, teacher: teacher.token_prediction}"
MATCH_SCORES = f"match_scores: {{read: {READ}, set: all, temperature: 2.0, weight: 5.0}}"
MATCH_HIDDEN = "match_hidden: {read: {student: hidden, teacher: teacher.hidden}, loss: cosine, weight: 1.0}"


def main() -> None:
    """Measure once and print the peaks."""
    from results import write_results

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--dry", action="store_true", help="write no results")
    given = parser.parse_args()
    networks, _ = peak(given, teaches="", learns=MATCH_HIDDEN)
    both, seconds = peak(given, teaches=HEAD, learns=", ".join([HEAD, MATCH_SCORES, MATCH_HIDDEN]))
    record = {
        "rows": given.rows, "length": given.length, "vocabulary": given.vocabulary, "width": given.width,
        "networks_mb": round(networks / 1e6), "beyond_mb": round((both - networks) / 1e6),
        "scores_mb": round(given.rows * given.length * given.vocabulary * 4 / 1e6), "seconds": round(seconds, 1),
    }
    print("  ".join(f"{key} {value}" for key, value in record.items()), flush=True)
    if not given.dry:
        print(write_results("distillation_memory", [record]))


def peak(given: argparse.Namespace, *, teaches: str, learns: str) -> tuple[int, float]:
    """The bytes of all tensors of a forward and a backward pass with these objectives, and its seconds."""
    from cloze.batch import Batch
    from cloze.checkpoint.build import build_step
    from cloze.document import read_yaml
    from cloze.recipe.load import load_recipe
    from cloze.training.forecasting.memory import peaks

    heads = given.width // 64
    shape = f"{{layers: 1, width: {given.width}, heads: {heads}, positions: {{learned: {{max_length: {given.length}}}}}}}"
    text = RECIPE.format(**vars(given), shape=shape, teaches=teaches, learns=learns)
    step = build_step(load_recipe(read_yaml(text, "memory.yaml").plain()), vocab_size=given.vocabulary).train()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(5, given.vocabulary, (given.rows, given.length), generator=generator)
    fields = {"tokens": tokens, "targets/all": tokens.flatten(), "positions/all": torch.arange(tokens.numel())}
    batch = Batch({**fields, "summaries": torch.arange(given.rows) * given.length})
    started = time.perf_counter()

    def work(mark: Any) -> None:
        losses = step("main", batch)
        mark()
        torch.stack([loss.total for loss in losses.values() if loss.total.requires_grad]).sum().backward()

    _, most = peaks(work, torch.device("cpu"))
    return most, time.perf_counter() - started


if __name__ == "__main__":
    main()
