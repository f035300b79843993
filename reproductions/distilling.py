"""Distillation while pre-training: a tiny student with and without a teacher, at equal seconds.

    cloze pretrain bert --size mini --corpus TEXT --budget 10m --out runs/teacher
    python reproductions/distilling.py --data ../shared/data --work runs/distilling --teacher runs/teacher
    python reproductions/distilling.py --table

The student is a BERT of 2 layers and width 128 that predicts masked tokens of 25 MB of English Wikipedia, in the teacher's
vocabulary. Every run gets the same time on one thread of a core that does nothing else. Batch and heads at offsets are what
cloze fits `bert` with for some two million tokens. Seeds come in turns, so that a slower hour of the machine meets all of them.

- `alone`: masked tokens only.
- `scores`: also the teacher's distribution at the masked tokens (temperature 2, equal weights).
- `all scores`: the teacher's distribution at every token, as DistilBERT learns it, with its weights.
- `alone, cut` and `scores, cut`: the same with a student of width 256 that starts with the teacher's layers 0 and 2.
- `attention`: also how the teacher's top layer attends, by the two losses of MiniLM.

Held-out masks are the same in all runs. A finished run is a line in results/distilling.jsonl and is not repeated (ledger.py).
reproductions/distilling.md says what came out.
"""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cells import parser, shown
from ledger import RESULTS, Ledger

BYTES, SEEDS, BUDGET = 25_000_000, (1, 2, 3), "90s"

STUDENT = """transformer: {layers: 2, width: 128, heads: 4, feed_forward: {plain: {inner: 512, activation: gelu}},
      norm: {post: {epsilon: 1e-12}}, positions: {learned: {max_length: 128}}, segments: 2, dropout: 0.0,
      initial: {truncated: {std: 0.049, offsets: [-1, 1, -2, 2]}}}"""
CUT = "{from: teacher, change: [keep_layers: {layers: [0, 2]}]}"
TRAINING = """training:
  optimizer: {adamw: {betas: [0.9, 0.98], epsilon: 1e-6, weight_decay: 0.01}}
  rate: {linear: {peak: %s, warmup: 0.1}}
  batch: 12
  steps: 1000000
  clip: 1.0
  evaluate_every: 0.2"""
PEAKS = {STUDENT: "1.2e-3", CUT: "5e-4"}  # with four heads at offsets, one seed of two stayed near single tokens at 2e-3
MASKED = "token_prediction: {transform: gelu, tie: true%s}"
EXERCISE = """exercise:
  - frame: "[CLS] {A} [SEP]"
  - mask: {unit: token, rate: 0.15, of: all}
  - corrupt: {mask: 0.8, random: 0.1, keep: 0.1}
  - predict: masked"""
MATCH = "match_scores: {read: {student: token_prediction, teacher: teacher.token_prediction}%s, loss: kl_divergence, %s}"
#: By name of a variant: the student, and the objectives besides masked tokens ("": no teacher).
VARIANTS: Mapping[str, tuple[str, str]] = {
    "alone": (STUDENT, ""), "scores": (STUDENT, "masked"), "all scores": (STUDENT, "all"),
    "alone, cut": (CUT, ""), "scores, cut": (CUT, "masked"), "attention": (STUDENT, "attention"),
}  # fmt: skip


def recipe(variant: str) -> str:
    """The recipe of a variant as YAML."""
    student, teacher = VARIANTS[variant]
    lines = ["name: student", "corpus: {passages: {length: 128}}", "networks:"]
    lines.append("  teacher: {from: teacher, train: none}")  # without a pass it gives nothing but its vocabulary
    lines += [f"  student: {student}" if student == CUT else f"  student:\n    {student}", "order: open", EXERCISE]
    lines += ["  - predict: {what: all, set: all}"] if teacher == "all" else []
    lines.append("passes:")
    if teacher:
        shown_to = {"masked": "", "all": ", set: all", "attention": ""}[teacher]
        read = "" if teacher == "attention" else f", objectives: [{MASKED % (shown_to + ', weight: 0')}]"
        lines.append(f"  - {{network: teacher, grad: false{read}}}")
    lines += ["  - network: student", "    objectives:"]
    weight = {"": "", "masked": ", weight: 0.5", "all": ", weight: 2.0", "attention": ""}[teacher]
    lines.append(f"      - {MASKED % weight}")
    if teacher == "masked":
        lines.append(f"      - {MATCH % ('', 'temperature: 2.0, weight: 0.5')}")
    if teacher == "all":
        lines.append(f"      - {MASKED % ', set: all, weight: 0'}")
        lines.append(f"      - {MATCH % (', set: all', 'temperature: 2.0, weight: 5.0')}")
    if teacher == "attention":
        read = "layers: top, read: {student: %s, teacher: teacher.%s}"
        for of, state, head in (("probabilities", "attention", "attention_of_top"), ("relations", "values", "values_of_top")):
            lines.append(f"      - match_attention: {{of: {of}, head: {head}, {read % (state, state)}}}")
    lines += [TRAINING % PEAKS[student], 'reading: {single: "[CLS] {A} [SEP]", summary: first}', "export: student", ""]
    return "\n".join(lines)


def main() -> None:
    """Run what the ledger lacks, then print the table."""
    options = parser(__doc__, "runs/distilling", "VARIANT:SEED")
    options.add_argument("--teacher", type=Path, help="a folder of `cloze pretrain bert`")
    options.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    options.add_argument("--seeds", type=int, default=len(SEEDS))
    options.add_argument("--budget", default=BUDGET)
    given = options.parse_args()
    ledger = Ledger(RESULTS / "distilling.jsonl")
    if not given.table:
        store = built(given.data, given.work, given.teacher)
        for seed in SEEDS[: given.seeds]:
            for variant in given.variants:
                one(variant, seed, given.budget, given.teacher, store, given.work, ledger)
    print("\n".join(table(ledger, given.budget)))


def built(data: Path, work: Path, teacher: Path) -> Path:
    """The store of the text in the teacher's vocabulary."""
    store, text = work / "store", work / "text.txt"
    if not store.exists():
        work.mkdir(parents=True, exist_ok=True)
        with lzma.open(data / "text_en_wiki" / "train.txt.xz") as packed:
            text.write_text(packed.read(BYTES).decode("utf-8", errors="ignore"), encoding="utf-8")
        call("corpus", "build", text, "--tokenizer", teacher, "--out", store)
    return store


def one(variant: str, seed: int, budget: str, teacher: Path, store: Path, work: Path, ledger: Ledger) -> None:
    """One run of pre-training, into the ledger."""
    run = {"variant": variant, "budget": budget, "seed": seed}
    if ledger.has(run):
        return
    name = f"{variant.replace(', ', '-').replace(' ', '-')}-{seed}"
    file, out = work / f"{name}.yaml", work / name
    file.write_text(recipe(variant), encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    call("pretrain", file, "--corpus", store, "--bind", f"teacher={teacher}", "--budget", budget, "--seed", seed, "--out", out)
    events = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    held = [event for event in events if event["event"] == "held_out"]
    name = next(name for name in ("token_prediction/main", "token_prediction") if name in held[-1]["objectives"])
    ledger.add(run, {
        "loss": held[-1]["objectives"][name], "correct": held[-1]["metrics"][f"{name}.correct"],
        "single": events[0]["baselines"][name]["single"], "tokens": held[-1]["tokens"], "updates": held[-1]["step"],
        "curve": [[event["seconds"], event["tokens"], event["objectives"][name]] for event in held],
    })  # fmt: skip
    print(variant, seed, held[-1]["objectives"], flush=True)
    shutil.rmtree(out)


def call(*words: Any) -> None:
    """Run a command of cloze."""
    subprocess.run([sys.executable, "-m", "cloze", *map(str, words)], check=True, stdout=sys.stderr)


def table(ledger: Ledger, budget: str) -> Iterator[str]:
    """A row for each variant: the held-out loss at the end, and tokens read."""
    yield "| student | held-out loss | under single tokens | right, % | million tokens | updates |"
    yield "|---|---|---|---|---|---|"
    for variant in VARIANTS:
        runs = ledger.results(variant=variant, budget=budget)
        if runs:
            many, under = len(runs), sum(run["single"] - run["loss"] for run in runs)
            losses, right = [run["loss"] for run in runs], [100 * run["correct"] for run in runs]
            read, updates = [run["tokens"] / 1e6 for run in runs], sum(run["updates"] for run in runs)
            cells = [
                shown(losses, len(SEEDS)), f"{under / many:.2f}", shown(right, len(SEEDS), 1), shown(read, len(SEEDS), 2),
                f"{updates / many:,.0f}",
            ]
            yield f"| {variant} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
