"""Smaller models of one tuned network: distilled, replaced, rounded and pruned, on three tasks.

    python reproductions/smaller.py --data ../shared/data --work runs/smaller [--jobs 2]
    python reproductions/smaller.py --table

The teacher is MiniLM (6 layers) tuned on the task with the same seed. Tasks: the polarity of sentences on films (500 labels), 30
of the 150 intents of clinc150 (1,000) and parts of speech in UD-EWT (300 sentences). Students have 3 layers, every second one of
MiniLM, and learn from labels (`tune`), also from the teacher's scores (`scores`), also from its states (`states`), also from
2,000 texts that the teacher has labelled (`unlabelled`). `states, random` starts from random weights and `states, teacher's
layers` from every second layer of the teacher. BERT-of-Theseus grows 3 layers inside the teacher by two schedules, and `cut`
tunes every second layer of the teacher with labels. `halved` keeps every second layer of the teacher and trains no further; for
`halved, layer dropout` MiniLM was tuned with each layer left out in half of the updates. Rounding and pruning keep all 6 layers:
after tuning (`4 bits`), or while tuning (`4 bits, tuned`); by magnitude or at random. `int8` is torch's dynamic quantisation of
the teacher. 300 dev rows (150 sentences for tags) choose the epoch, the test rows are read once. Cells of the first seed also
have the network's size, and the milliseconds of a forward pass, timed by turns with the teacher as `cloze speed` does. A finished
cell is a line in results/smaller.jsonl and is not repeated (ledger.py). reproductions/smaller.md says what is finished.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import task_files
from cells import Files, difference, parser, share, shown, tuned
from ledger import RESULTS, Ledger

SEEDS = (1, 2, 3, 4, 5)
EXTRA = 2000  # rows that only the teacher labels
KEPT = [0, 2, 4]  # layers of a student
LENGTH, BATCHES, ROUNDS = 32, (1, 32), 20  # of the texts that are timed

#: Tasks: the type and the rows of training, dev and test.
TASKS: Mapping[str, tuple[str, tuple[int, int, int]]] = {
    "polarity": ("sentence_classification", (500, 300, 1000)),
    "clinc30": ("sentence_classification", (1000, 300, 900)),
    "ewt": ("token_labelling", (300, 150, 300)),
}
DISTILLED = ("scores", "states", "unlabelled", "states, random", "states, teacher's layers")
#: What is done to a tuned network without training, and what it is tuned with.
AFTER: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "8 bits": ("quantise", {"bits": 8}), "4 bits": ("quantise", {"bits": 4}),
    **{f"magnitude {zeros}": ("sparsify", {"share": zeros}) for zeros in (0.3, 0.5, 0.7, 0.9)},
    **{f"random {zeros}": ("sparsify", {"share": zeros, "by": "random"}) for zeros in (0.1, 0.3, 0.5)},
}  # fmt: skip
WHILE: Mapping[str, str] = {"8 bits, tuned": "quantise={bits: 8}", "4 bits, tuned": "quantise={bits: 4}"}
HALVED = {"halved": None, "halved, layer dropout": "layer_dropout=0.5"}  # and what the network was tuned with
#: The orders that are asked about: is the first better than the second?
ORDERS = (
    ("scores", "tune"), ("states", "tune"), ("states", "scores"), ("unlabelled", "states"), ("unlabelled", "tune"),
    ("states", "states, random"),
    ("states, teacher's layers", "states"), ("theseus", "theseus-constant"), ("theseus", "cut"), ("theseus-constant", "cut"),
    ("cut", "tune"), ("halved, layer dropout", "halved"), ("8 bits", "teacher"), ("int8", "teacher"), ("4 bits", "teacher"),
    ("8 bits, tuned", "8 bits"), ("4 bits, tuned", "4 bits"), ("magnitude 0.3", "teacher"), ("magnitude 0.5", "teacher"),
    ("random 0.1", "teacher"), ("magnitude 0.3", "random 0.3"), ("magnitude 0.5", "random 0.5"),
)  # fmt: skip
VARIANTS = ("teacher", "tune", *DISTILLED, "theseus", "theseus-constant", "cut", *HALVED, "int8", *AFTER, *WHILE)


@dataclass(frozen=True)
class Choice:
    """What the command line says of a run."""

    data: Path
    work: Path
    ledger: Ledger

    def run(self, task: str, variant: str, seed: int) -> dict[str, Any]:
        """What a cell is known by in the ledger."""
        return {"task": task, "variant": variant, "rows": TASKS[task][1][0], "seed": seed}


# ---- rows ---------------------------------------------------------------------------------------------------------------


def files_of(chosen: Choice, task: str) -> Files:
    """Files of training, dev and test rows; sentences with tags as JSON lines of words and labels."""
    _, rows = TASKS[task]
    _cut(chosen, task, rows)
    return tuple(str(chosen.work / f"{task}-{part}.jsonl") for part in task_files.PARTS)  # type: ignore[return-value]


def _cut(chosen: Choice, task: str, rows: tuple[int, int, int]) -> None:
    """Write the rows of all parts, and `TASK-extra.jsonl`: those that only the teacher labels."""
    if (chosen.work / f"{task}-extra.jsonl").exists():
        return
    whole = task_files.write(task, (rows[0] + EXTRA, *rows[1:]), chosen.data, chosen.work / "rows")
    for part, path in zip(task_files.PARTS, whole, strict=True):
        text = path.read_text(encoding="utf-8")
        blocks = [block for block in text.split("\n\n") if block.strip()]
        found = [_words(block) for block in blocks] if path.suffix == ".conllu" else text.splitlines()
        kept = found[: rows[0]] if part == "train" else found
        (chosen.work / f"{task}-{part}.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
        if part == "train":
            extra = found[rows[0] :]
    (chosen.work / f"{task}-extra.jsonl").write_text("\n".join(extra) + "\n", encoding="utf-8")


def _words(block: str) -> str:
    """A sentence of CoNLL-U as a row of JSON lines."""
    cells = [line.split("\t") for line in block.splitlines() if line and line[0].isdigit()]
    words = [cell for cell in cells if cell[0].isdigit()]  # neither "1-2" nor "1.1"
    return json.dumps({"text": [cell[1] for cell in words], "label": [cell[3] for cell in words]}, ensure_ascii=False)


def labelled_by_teacher(chosen: Choice, task: str, teacher: Path, name: str) -> str:
    """The training rows, and the extra rows with the labels that the teacher predicts."""
    import cloze

    model = cloze.load(str(teacher))
    train = (chosen.work / f"{task}-train.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in (chosen.work / f"{task}-extra.jsonl").read_text(encoding="utf-8").splitlines()]
    found = model.predict([{"text": row["text"]} for row in rows])
    named = [one.label if TASKS[task][0] == "sentence_classification" else [*one.labels] for one in found]
    both = [json.dumps({"text": row["text"], "label": label}, ensure_ascii=False) for row, label in zip(rows, named, strict=True)]
    path = chosen.work / f"{name}-train.jsonl"
    path.write_text(train + "\n".join(both) + "\n", encoding="utf-8")
    return str(path)


# ---- recipes ------------------------------------------------------------------------------------------------------------

#: A student: labels, the teacher's scores, and, unless left out, its states at every second layer.
RECIPE = """
name: student
corpus: {{records: {{text: text, label: label, answer: {answer}, length: 128}}}}
networks:
  teacher: {{from: teacher, train: none}}
  student: {{from: start, train: all}}
exercise: [label: {{set: label, of: {of}}}, frame: reading]
passes:
  - network: teacher
    grad: false
    objectives: [{head}: {{set: label, head: teaching, weight: 0}}]
  - network: student
    objectives:
      - {head}: {{set: label, dropout: 0.1, head: classification, weight: 0.5}}
      - match_scores: {{read: {{student: classification, teacher: teacher.teaching}}, set: label, temperature: 4.0, weight: 0.5}}
      {states}
training: {training}
task: {{type: {type}, metric: accuracy, keep: best, patience: 0}}
export: student
"""
STATES = "- match_hidden: {read: {student: layers, teacher: teacher.layers}, layers: every, weight: 1.0}"
#: BERT-of-Theseus for any kind of labels: `odds` are those of the recipe of this name.
THESEUS = """
name: theseus
corpus: {{records: {{text: text, label: label, answer: {answer}, length: 128}}}}
network: {{from: start, change: [replace_layers: {{group: 2, odds: {odds}}}]}}
exercise: [label: {{set: label, of: {of}}}, frame: reading]
objectives: [{head}: {{set: label, dropout: 0.1, head: classification}}]
training: {training}
task: {{type: {type}, metric: accuracy, keep: best, patience: 0}}
"""
ODDS = {
    "theseus": "{linear: {start: 0.3, end: 1.0, until: 0.6}}",
    "theseus-constant": "{linear: {start: 0.5, end: 1.0, stairs: 2}}",
}
EPOCHS: Mapping[str, int] = {"polarity": 5, "clinc30": 8, "ewt": 8}
PEAK = 2e-4  # of MiniLM and everything that is cut from it


def training(task: str, *, epochs: float, peak: float = PEAK, heads: float = 1.0) -> str:
    """The section `training` of a recipe, equal for all variants but for what is given here."""
    return json.dumps({
        "optimizer": {"adamw": {"weight_decay": 0.01}}, "rate": {"linear": {"peak": peak, "warmup": 0.1}},
        "layerwise_rates": {"heads": heads * (20 if task == "ewt" else 1)}, "batch": 32, "epochs": epochs, "clip": 1.0,
        "held_out": 0.0, "evaluate_every": "epoch",
    })  # fmt: skip


def recipe(chosen: Choice, template: str, task: str, name: str, **given: Any) -> Path:
    """A recipe file from a template."""
    kind = TASKS[task][0]
    words = kind == "token_labelling"
    values = {
        "answer": "words" if words else "class", "of": "words" if words else "row", "type": kind,
        "head": "word_labelling" if words else "text_classification",
    }  # fmt: skip
    path = chosen.work / f"{name}.yaml"
    path.write_text(template.format(**values, **given), encoding="utf-8")
    return path


# ---- cells --------------------------------------------------------------------------------------------------------------


def folder_of(chosen: Choice, task: str, seed: int) -> Path:
    """Where the teacher of a task is, or will be."""
    return chosen.work / f"teacher-{task}-{seed}"


def tuned_already(folder: Path) -> bool:
    """Whether a folder is that of a finished run of fine-tuning."""
    return (folder / "cloze" / "task.json").exists()


def teacher_of(chosen: Choice, task: str, seed: int) -> Path:
    """The folder of MiniLM tuned on a task, which is made once and kept."""
    out = folder_of(chosen, task, seed)
    if not tuned_already(out):
        plain(chosen, task, seed, task_files.minilm(), out)
    return out


def plain(chosen: Choice, task: str, seed: int, start: Path, out: Path, *, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Tune a network on labels alone."""
    overrides = [f"training.epochs={EPOCHS[task]}", f"training.rate.peak={PEAK}", "training.batch=32", "task.patience=0"]
    return tuned(
        start, files_of(chosen, task), seed, out, task=TASKS[task][0], overrides=[*overrides, "task.metric=accuracy"],
        changes=changes,
    )


def shallow(source: Path, out: Path) -> Path:
    """Every second layer of a network."""
    from cloze.compression.compress import compress

    shutil.rmtree(out, ignore_errors=True)
    compress(source, out, [("keep_layers", {"layers": KEPT})])
    return out


def measured(folder: Path, files: Files, *, int8: bool = False) -> dict[str, Any]:
    """The metrics of a folder on the test rows; with `int8`, its linear maps multiply in int8."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.compression.int8 import in_int8
    from cloze.tasks import load_tuned
    from cloze.tasks.evaluation import evaluate

    loaded = load_checkpoint(folder, "cpu")
    learner, described = load_tuned(replace(loaded, network=in_int8(loaded.network)) if int8 else loaded)
    evaluation = evaluate(learner, learner.task.read(files[2]), constant_answer=described.get("constant_answer"))
    return {"test": dict(evaluation.metrics)}


def timed(folder: Path, teacher: Path, *, int8: bool = False) -> dict[str, Any]:
    """Parameters and bytes of a network, and the milliseconds of its forward pass and of the teacher's, timed by turns."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.compression.speed import TimedNetwork, measure

    subjects = []
    for name, place in (("teacher", teacher), ("own", folder)):
        loaded = load_checkpoint(place, "cpu", plain_form=True)  # without masks and predecessors, which only training needs
        subjects.append(TimedNetwork(name, loaded.network, loaded.order))
    rows = measure(subjects, lengths=[LENGTH], batches=BATCHES, formats=["fp32", *(["int8"] if int8 else [])], rounds=ROUNDS)
    own = [row for row in rows if (row.checkpoint, row.format) == ("own", "int8" if int8 else "fp32")]
    plain = [row for row in rows if (row.checkpoint, row.format) == ("teacher", "fp32")]
    return {
        "parameters": own[0].parameters, "bytes": own[0].bytes,
        "milliseconds": {str(row.batch): round(row.median, 3) for row in own},
        "teacher_milliseconds": {str(row.batch): round(row.median, 3) for row in plain},
    }  # fmt: skip


def cell(chosen: Choice, task: str, variant: str, seed: int, name: str, out: Path) -> dict[str, Any]:
    """Make one smaller network, and measure it."""
    teacher, int8 = teacher_of(chosen, task, seed), variant == "int8"
    found = made(chosen, task, variant, seed, name, out)
    folder = teacher if variant in ("teacher", "int8") else out
    found = dict(found or measured(folder, files_of(chosen, task), int8=int8))
    return {**found, **(timed(folder, teacher, int8=int8) if seed == SEEDS[0] else {})}


def made(chosen: Choice, task: str, variant: str, seed: int, name: str, out: Path) -> dict[str, Any] | None:
    """Make one smaller network in the folder `out`; its metrics if it was trained."""
    files, teacher = files_of(chosen, task), teacher_of(chosen, task, seed)
    if variant in ("teacher", "int8"):
        return None
    if variant in ("tune", "cut"):
        start = shallow(task_files.minilm() if variant == "tune" else teacher, chosen.work / f"start-{name}")
        return plain(chosen, task, seed, start, out)
    if variant in WHILE:
        return plain(chosen, task, seed, task_files.minilm(), out, changes=[WHILE[variant]])
    if variant in HALVED:
        whole, change = teacher, HALVED[variant]
        if change is not None:
            whole = chosen.work / f"start-{name}"
            plain(chosen, task, seed, task_files.minilm(), whole, changes=[change])
        shallow(whole, out)
        return None
    if variant in AFTER:
        from cloze.compression.compress import compress

        shutil.rmtree(out, ignore_errors=True)
        compress(teacher, out, [AFTER[variant]])
        return None
    if variant in ODDS:
        given = {"odds": ODDS[variant], "training": training(task, epochs=EPOCHS[task], heads=0.0)}
        return tuned(teacher, files, seed, out, task=TASKS[task][0], recipe=recipe(chosen, THESEUS, task, name, **given))
    return distilled(chosen, task, variant, seed, name, out)


def distilled(chosen: Choice, task: str, variant: str, seed: int, name: str, out: Path) -> dict[str, Any]:
    """A student of 3 layers that learns from the teacher."""
    teacher, files, epochs = teacher_of(chosen, task, seed), files_of(chosen, task), float(EPOCHS[task])
    start = shallow(teacher if "layers" in variant else task_files.minilm(), chosen.work / f"start-{name}")
    if variant == "unlabelled":
        files = (labelled_by_teacher(chosen, task, teacher, name), *files[1:])
        epochs /= 4
    random = "random" in variant
    given = {
        "states": "" if variant == "scores" else STATES,
        "training": training(task, epochs=epochs, peak=5e-4 if random else PEAK),
    }
    return tuned(
        start, files, seed, out, task=TASKS[task][0], recipe=recipe(chosen, RECIPE, task, name, **given),
        binds=[f"teacher={teacher}"], from_scratch=random,
    )


def one(chosen: Choice, task: str, variant: str, seed: int) -> None:
    """One cell, into the ledger."""
    name = f"{task}-{variant.replace(' ', '-').replace(',', '').replace(chr(39), '')}-{seed}"
    started, out = time.process_time(), chosen.work / f"out-{name}"
    found = cell(chosen, task, variant, seed, name, out)
    found["processor_seconds"] = round(time.process_time() - started)
    chosen.ledger.add(chosen.run(task, variant, seed), found)
    for folder in (out, chosen.work / f"start-{name}"):
        shutil.rmtree(folder, ignore_errors=True)
    for file in (chosen.work / f"{name}.yaml", chosen.work / f"{name}-train.jsonl"):
        file.unlink(missing_ok=True)
    print(task, variant, seed, json.dumps(found), flush=True)


# ---- tables -------------------------------------------------------------------------------------------------------------


def tables(ledger: Ledger) -> Iterator[str]:
    """Accuracy on the test rows in percent, MB, and milliseconds against the teacher's, of every variant with a finished cell."""
    times = [f"ms, {batch} text{'s' if batch > 1 else ''} (teacher)" for batch in BATCHES]
    yield f"| network | {' | '.join(TASKS)} | parameters | MB | {' | '.join(times)} |"
    yield "|---" * (len(TASKS) + len(BATCHES) + 3) + "|"
    for variant in VARIANTS:
        found = {task: ledger.results(task=task, variant=variant) for task in TASKS}
        every = [run for runs in found.values() for run in runs if "parameters" in run]
        if not every:
            continue
        cells = [shown([100 * run["test"]["accuracy"] for run in runs], len(SEEDS), 1) for runs in found.values()]
        cells += [f"{mean(run['parameters'] for run in every):,.0f}", f"{mean(run['bytes'] for run in every) / 1e6:.1f}"]
        for batch in map(str, BATCHES):
            own, teacher = (mean(run[name][batch] for run in every) for name in ("milliseconds", "teacher_milliseconds"))
            cells.append(f"{own:.1f} ({teacher:.1f})")
        yield f"| {variant} | {' | '.join(cells)} |"


def orders(ledger: Ledger) -> Iterator[str]:
    """Differences of accuracy in points, paired by seed (`difference` in cells.py)."""
    yield f"| difference | {' | '.join(TASKS)} |"
    yield "|---" * (len(TASKS) + 1) + "|"
    for one, other in ORDERS:
        cells = []
        for task in TASKS:
            first, second = (
                {run["seed"]: 100 * run["test"]["accuracy"] for run in ledger.results(task=task, variant=name)}
                for name in (one, other)
            )
            cells.append(difference(first, second, len(SEEDS), 1))
        yield f"| {one} − {other} | {' | '.join(cells)} |"


def main() -> None:
    """Run what the ledger lacks, then print the tables."""
    options = parser(__doc__, "runs/smaller", "TASK:VARIANT:SEED")
    options.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    options.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    options.add_argument("--seeds", type=int, default=len(SEEDS))
    given = options.parse_args()
    ledger = Ledger(RESULTS / "smaller.jsonl")
    if not given.table:
        given.work.mkdir(parents=True, exist_ok=True)
        chosen = Choice(given.data, given.work, ledger)
        if given.only:
            task, variant, seed = given.only.split(":")
            one(chosen, task, variant, int(seed))
            return
        cells = [(task, variant, seed) for seed in SEEDS[: given.seeds] for task in given.tasks for variant in given.variants]
        cells = [each for each in cells if not ledger.has(chosen.run(*each))]
        for first in (True, False):  # files and teachers before what shares them
            some = teachers(chosen, cells) if first else [each for each in cells if not ledger.has(chosen.run(*each))]
            if given.jobs > 1:
                share([":".join(map(str, each)) for each in some], given.jobs)
            else:
                for task, variant, seed in some:
                    one(chosen, task, variant, seed)
    print("\n".join([*tables(ledger), "", *orders(ledger)]))


def teachers(chosen: Choice, cells: Sequence[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """The cells of teachers that these cells need and that are not there. Writes the files of their tasks."""
    for task in dict.fromkeys(task for task, *_ in cells):
        files_of(chosen, task)
    needed = dict.fromkeys((task, "teacher", seed) for task, _, seed in cells)
    return [(task, name, seed) for task, name, seed in needed if not tuned_already(folder_of(chosen, task, seed))]


if __name__ == "__main__":
    main()
