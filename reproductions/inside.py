"""What the layers of ELMo, BERT and GPT-2 hold, trained by cloze at one budget, and of MiniLM.

    python reproductions/inside.py --data ../shared/data --work runs/inside
    python reproductions/inside.py --table [--figures FOLDER]        # `make docs` draws them, too

ELMo, BERT and GPT-2 of size tiny (the Transformers with four layers) read the same number of tokens of 25 MB of English
Wikipedia. Untrained BERT has the same shape and random weights. Then `cloze probe` measures, for every network:

- `geometry`: how similar the vectors of one word are in different sentences, by layer (Ethayarajh, 2019), on 2,000 held-out
  sentences;
- `upos`: parts of speech of UD-EWT, 600 sentences for training and 400 for testing, with a control task (Hewitt and Liang, 2019);
- `sense`: the senses of *interest* and *line* (Senseval; Leacock et al., 1993; Bruce and Wiebe, 1994), 1,000 sentences for each;
- `static`: the first component of a word's vectors in 20,000 sentences against human similarity, and against GloVe trained on the
  same text, over the same pairs;
- `heads`: the loss on 200 sentences as heads are closed, least important first and in random order (Michel et al., 2019); MiniLM,
  which has no head for tokens, is tuned on the polarity of sentences and measured by its accuracy there.

A finished probe is a line in results/inside.jsonl and is not repeated (ledger.py). reproductions/inside.md says what came out.
"""

from __future__ import annotations

import json
import lzma
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import task_files
from cells import parser
from figures import following_the_page
from ledger import RESULTS, Ledger

from cloze.probes.measures import ESTIMATORS

BYTES, HELD = 25_000_000, 3_000_000  # of text for training, and behind it for sentences
TOKENS = "4Mtokens"
TRAINED = ("elmo", "bert", "gpt2")
DEEPER = ("--size", "tiny", "--set", "network.layers=4")
SIZES: Mapping[str, Sequence[str]] = {"elmo": ("--size", "tiny"), "bert": DEEPER, "gpt2": DEEPER, "glove": ()}
NETWORKS = (*TRAINED, "untrained", "minilm")
SETS = ("EN-SIMLEX-999", "EN-WS-353-ALL", "EN-MEN-TR-3k")  # of pairs of words
#: By probe the number of sentences it reads, at most.
PROBES: Mapping[str, int] = {"geometry": 2000, "upos": 600, "sense": 1000, "static": 20_000, "heads": 200}
HEADLESS = ("elmo", "untrained")  # networks without attention, and one whose heads say nothing


def main() -> None:
    """Run what the ledger lacks, then print the tables."""
    options = parser(__doc__, "runs/inside", "NETWORK:PROBE")
    options.add_argument("--tokens", default=TOKENS, help="the budget of every pre-training")
    options.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    options.add_argument("--probes", nargs="+", choices=list(PROBES), default=list(PROBES))
    options.add_argument("--figures", type=Path, help="draw the figures into this folder (needs matplotlib)")
    given = options.parse_args()
    ledger = Ledger(RESULTS / "inside.jsonl")
    if not given.table:
        texts(given.data, given.work)
        for network in given.networks:
            for probe in given.probes:
                if not (probe == "heads" and network in HEADLESS):
                    one(network, probe, given.data, given.work, given.tokens, ledger)
    print("\n".join(tables(ledger, given.tokens)))
    if given.figures is not None:
        draw(ledger, given.tokens, given.figures)


def one(network: str, probe: str, data: Path, work: Path, tokens: str, ledger: Ledger) -> None:
    """One probe of one network, into the ledger."""
    run = {"network": network, "tokens": None if network == "minilm" else tokens, "probe": probe, "most": PROBES[probe]}
    if ledger.has(run):
        return
    folder = tuned_minilm(data, work) if (network, probe) == ("minilm", "heads") else folder_of(network, work, tokens)
    out = work / f"probe-{network}-{probe}"
    shutil.rmtree(out, ignore_errors=True)
    kind = "layers" if probe in ("upos", "sense") else probe
    call("probe", kind, folder, *options_of(network, probe, data, work), "--most", PROBES[probe], "--out", out)
    found = json.loads((out / "probe.json").read_text(encoding="utf-8"))["checkpoints"]
    for measured in found.values():
        measured.pop("words", None)  # the self-similarity of every word
    ledger.add(run, {"loss": held_out(folder, work), "found": found})
    print(network, probe, flush=True)


def options_of(network: str, probe: str, data: Path, work: Path) -> list[Any]:
    """The options of `cloze probe`."""
    if probe == "upos":
        train, _, test = task_files.write("ewt", (600, 100, 400), data, work / "tasks")
        return ["--task", f"upos={train},{test}"]
    if probe == "sense":
        return ["--task", f"sense={senses(data, work)}"]
    if probe == "heads" and network == "minilm":
        return ["--task", task_files.write("polarity", (500, 300, 1000), data, work / "tasks")[2]]
    more: list[Any] = []
    if probe == "static":
        for name in SETS:
            more += ["--similarity", pairs(name, data, work)]
        more += ["--against", trained("glove", work, "15epochs")]
    return ["--text", work / "sentences.txt", *more]


# ---- networks -----------------------------------------------------------------------------------------------------------


def folder_of(network: str, work: Path, tokens: str) -> Path:
    """The folder of a network, trained if it is not there."""
    if network == "minilm":
        return task_files.minilm()
    if network == "untrained":
        return trained("bert", work, "1steps", name="untrained", more=["--set", "training.rate.linear.peak=0"])
    return trained(network, work, tokens)


def trained(recipe: str, work: Path, budget: str, *, name: str = "", more: Sequence[str] = ()) -> Path:
    """Pre-train a recipe on the text; a stopped run resumes."""
    out = work / (name or recipe)
    if not (out / "config.json").exists():
        options = [*SIZES[recipe], "--corpus", work / "text.txt", "--budget", budget, "--seed", 1, *more]
        call("pretrain", recipe, *options, "--out", out)
    return out


def tuned_minilm(data: Path, work: Path) -> Path:
    """MiniLM tuned on the polarity of 500 sentences."""
    out = work / "minilm-polarity"
    train, dev, _ = task_files.write("polarity", (500, 300, 1000), data, work / "tasks")
    if not (out / "cloze" / "task.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        call("finetune", task_files.minilm(), "--task", "sentence_classification", "--train", train, "--dev", dev, "--seeds", 1,
             "--set", "training.rate.peak=2e-4", "--out", out)  # fmt: skip
    return out


def held_out(folder: Path, work: Path) -> dict[str, float]:
    """The last held-out losses of a run, by objective; empty if it was not trained here."""
    log = folder / "cloze" / "log.jsonl"
    if work not in folder.parents or not log.exists():
        return {}
    lines = [json.loads(text) for text in log.read_text(encoding="utf-8").splitlines()]
    found = [one["objectives"] for one in lines if one["event"] == "held_out"]
    return dict(found[-1]) if found else {}


def call(*words: Any) -> None:
    """Run a command of cloze."""
    subprocess.run([sys.executable, "-m", "cloze", *map(str, words)], check=True, stdout=sys.stderr)


# ---- files --------------------------------------------------------------------------------------------------------------


def texts(data: Path, work: Path) -> None:
    """The text of pre-training, and sentences from behind it, shuffled."""
    work.mkdir(parents=True, exist_ok=True)
    if (work / "sentences.txt").exists():
        return
    with lzma.open(data / "text_en_wiki" / "train.txt.xz") as packed:
        (work / "text.txt").write_text(packed.read(BYTES).decode("utf-8", errors="ignore"), encoding="utf-8")
        rest = packed.read(HELD).decode("utf-8", errors="ignore")
    lines = (line.strip() for line in rest.splitlines() if not line.startswith("<"))
    found = [one for line in lines for one in re.split(r"(?<=[.!?]) (?=[A-Z])", line) if 6 <= len(one.split()) <= 40]
    random.Random(0).shuffle(found)
    (work / "sentences.txt").write_text("\n".join(found) + "\n", encoding="utf-8")


def pairs(name: str, data: Path, work: Path) -> Path:
    """Pairs of words with people's scores."""
    out = work / f"{name}.txt"
    shutil.copy(data / "wordsim_en" / f"{name}.txt", out)
    return out


def senses(data: Path, work: Path) -> str:
    """Files of marked words with their senses for training and testing, half and half."""
    paths = [work / f"sense-{part}.jsonl" for part in ("train", "test")]
    if not paths[1].exists():
        rows: list[str] = []
        for word in ("interest", "line"):
            found = list(marked(task_files.unpacked(data / "care_wsd_en_senseval2" / f"{word}.pos.xz"), word))
            random.Random(0).shuffle(found)
            rows += found[: PROBES["sense"]]
        random.Random(0).shuffle(rows)
        for path, some in zip(paths, (rows[::2], rows[1::2]), strict=True):
            path.write_text("".join(some), encoding="utf-8")
    return ",".join(map(str, paths))


def marked(text: str, word: str) -> Iterator[str]:
    """The sentence of every instance with the place of its marked word and the sense, as rows of span_classification."""
    for instance in re.findall(r"<instance.*?</instance>", text, re.DOTALL):
        sense = re.search(r'senseid="([^"]+)"', instance)
        context = re.search(r"<context>(.*?)</context>", instance, re.DOTALL)
        assert sense is not None and context is not None
        line = next(line for line in context[1].splitlines() if "<head>" in line)
        before, inside, after = (words(part) for part in re.split(r"</?head>", line))
        if inside:
            sentence = [*before, *inside, *after]
            spans = [[len(before), len(before) + len(inside)]]
            yield task_files.line(text=sentence, spans=spans, label=f"{word}-{sense[1]}")


def words(part: str) -> list[str]:
    """The words of a piece of a sentence."""
    return [text.strip() for text in ElementTree.fromstring(f"<a>{part}</a>").itertext() if text.strip()]


# ---- tables and figures -------------------------------------------------------------------------------------------------


def results(ledger: Ledger, tokens: str, probe: str) -> dict[str, dict[str, Any]]:
    """By network what its probe found."""
    own = {one["network"]: one for one in ledger.results(probe=probe) if one["tokens"] in (tokens, None)}
    return {name: next(iter(own[name]["found"].values())) for name in NETWORKS if name in own}


def series(ledger: Ledger, tokens: str) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """What is shown by layer: a title, and by network a value for each layer from the embeddings to the top."""
    yield "self-similarity minus baseline", {
        name: one["measures"]["adjusted"] for name, one in results(ledger, tokens, "geometry").items()
    }
    for probe, title in (("upos", "part of speech"), ("sense", "sense")):
        found = results(ledger, tokens, probe)
        yield f"{title}, accuracy", {name: one["accuracy"] for name, one in found.items()}
        yield f"{title}, selectivity", {name: one["selectivity"] for name, one in found.items()}
        if probe == "sense":
            yield f"{title}, nearest mean", {name: one["nearest_sense"] for name, one in found.items()}
    found = results(ledger, tokens, "static")
    for name in SETS:
        yield f"{name}, first component", {network: one["first"][name] for network, one in found.items()}


def explained(ledger: Ledger, tokens: str) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """The share of a word's variance that one direction explains, by estimator, as `series` yields it."""
    found = results(ledger, tokens, "geometry")
    for estimator in ESTIMATORS:
        for name in (estimator, f"{estimator} baseline"):
            yield f"variance explained, {name}", {network: one["measures"][name] for network, one in found.items()}


def tables(ledger: Ledger, tokens: str) -> Iterator[str]:
    """The held-out losses, a row for each measure and network with a value for each layer, GloVe's rows, and the heads."""
    yield from ("| network | held-out loss per token |", "|---|---|")
    for one in ledger.results(tokens=tokens, probe="geometry"):
        losses = ", ".join(f"{name} {value:.2f}" for name, value in one["loss"].items())
        yield f"| {one['network']} | {losses or '–'} |"
    yield from ("", "| measure | network | by layer, from the embeddings to the top |", "|---|---|---|")
    for title, lines in (*series(ledger, tokens), *explained(ledger, tokens)):
        for name, values in lines.items():
            yield f"| {title} | {name} | {', '.join(f'{value:.3f}' for value in values)} |"
    for one in [*results(ledger, tokens, "static").values()][:1]:  # the pairs are those of all
        for title, own in one["against"].items():
            for each in SETS:
                yield f"| {each}, {one['pairs'][each]:,} pairs | {title} | {own[each]:.3f} |"
    yield from ("", "| network | closed | least important first | random order |", "|---|---|---|---|")
    for name, one in results(ledger, tokens, "heads").items():
        columns = zip(one["shares"], one["curve"], one["random"], one["deviation"], strict=True)
        for share, curve, chance, spread in columns:
            yield f"| {name}, {one['measure']} | {share:.0%} | {curve:.3f} | {chance:.3f} ± {spread:.3f} |"


def draw(ledger: Ledger, tokens: str, folder: Path) -> None:
    """A figure of what is shown by layer, and one of the heads."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    shown = [(title, lines) for title, lines in series(ledger, tokens) if lines]
    heads = results(ledger, tokens, "heads")
    folder.mkdir(parents=True, exist_ok=True)
    for file, number in (("inside_layers", len(shown)), ("inside_heads", len(heads))):
        if not number:
            continue
        rows = -(-number // 3)
        figure, grid = plt.subplots(rows, 3, figsize=(12, 3.2 * rows), squeeze=False)
        for axes in grid.flat[number:]:
            axes.axis("off")
        if file == "inside_layers":
            for axes, (title, lines) in zip(grid.flat, shown, strict=False):
                for name, values in lines.items():
                    colour = f"C{NETWORKS.index(name)}"
                    axes.plot([n / (len(values) - 1) for n in range(len(values))], values, marker="o", label=name, color=colour)
                axes.set(title=title, xlabel="depth")
        else:
            for axes, (name, one) in zip(grid.flat, heads.items(), strict=False):
                axes.plot(one["shares"], one["curve"], marker="o", label="least important first")
                axes.errorbar(one["shares"], one["random"], one["deviation"], linestyle="--", label="random order")
                axes.set(title=f"{name}: {one['measure']}", xlabel="share of heads closed")
        lines, names = grid.flat[0].get_legend_handles_labels()
        figure.legend(lines, names, loc="upper center", ncols=len(names), frameon=False)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / (3.2 * rows)))
        path = folder / f"{file}.svg"
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
        path.write_text(following_the_page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
