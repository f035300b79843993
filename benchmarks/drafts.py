"""Writing with a draft against writing without one: tokens per CPU second, and the share of proposed tokens that are accepted.

    OMP_NUM_THREADS=1 python benchmarks/drafts.py TARGET DRAFT --text TEXT [--prompts 6] [--tokens 48] [--rounds 3]

TARGET and DRAFT are two runs of left-to-right Transformers with the same tokenizer; TEXT is held-out text, a passage per line,
whose first words are the prompts. Texts are written one at a time on both sides, at temperature 0 and 1, sides in turn; medians
over rounds. CPU seconds are compared, because other work shares the machine. That both sides have one distribution is tested in
tests/decoding/test_drafting.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--proposed", type=int, nargs="+", default=[2, 5], help="tokens that the draft proposes at a time")
    parser.add_argument("--dry", action="store_true", help="write no results")
    given = parser.parse_args()
    from results import write_results

    records = measured(given)
    for record in records:
        print("  ".join(f"{key} {value}" for key, value in record.items()))
    if not given.dry:
        print(write_results("drafts", records))


def measured(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A record for each temperature and each number of proposed tokens, 0 for none."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.generating.drafting import Draft
    from cloze.decoding.generating.generation import generate
    from cloze.decoding.generating.options import WritingOptions, parts_of
    from cloze.decoding.reader_and_head import to_generate

    target, small = (to_generate(load_checkpoint(folder, "cpu")) for folder in (given.target, given.draft))
    lines = [line.split() for line in given.text.read_text(encoding="utf-8").splitlines()]
    prompts = [" ".join(words[:8]) for words in lines if len(words) >= 40][: given.prompts]
    sizes = [sum(p.numel() for p in one.reader.network.parameters()) for one in (target, small)]
    spent: dict[tuple[float, int], list[float]] = {}
    accepted: dict[tuple[float, int], float] = {}
    written: dict[tuple[float, int], int] = {}
    for number in range(given.rounds + 1):  # the first warms up and does not count
        for temperature in (0.0, 1.0):
            for count in (0, *given.proposed):
                how = parts_of(target.reader, WritingOptions(temperature=temperature))
                draft = Draft(small.reader, small.head, count) if count else None
                begun = time.process_time()
                made = generate(target.reader, target.head, prompts, tokens=given.tokens, seed=1, rows=1, draft=draft, **how)
                key = temperature, count
                spent.setdefault(key, [])
                if number:
                    spent[key].append(time.process_time() - begun)
                written[key] = sum(len(one.ids) for one in made)
                accepted[key] = draft.accepted / max(draft.proposed, 1) if draft is not None else 0.0
    per_second = {key: written[key] / statistics.median(values) for key, values in spent.items()}
    return [
        {
            "temperature": temperature, "proposed": count, "accepted": round(accepted[temperature, count], 3),
            "tokens_per_cpu_second": round(value, 1), "times_without": round(value / per_second[temperature, 0], 2),
            "target_parameters": sizes[0], "draft_parameters": sizes[1], "prompts": len(prompts), "tokens": given.tokens,
            "rounds": given.rounds,
        }
        for (temperature, count), value in per_second.items()
    ]


if __name__ == "__main__":
    main()
