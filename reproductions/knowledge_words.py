"""What is known about words and names: LIBERT, SenseBERT and KnowBERT's linker, each next to a twin and to wrong knowledge.

    python reproductions/knowledge_words.py --data ../shared/data --work runs/words --base RUN --streusle FOLDER
    python reproductions/knowledge_words.py --table

Every network starts from RUN, a BERT with WordPiece that `cloze pretrain bert --size mini --budget 10m` trained on the first
25 MB of English Wikipedia. FOLDER holds the files `streusle.ud_PART.vis` of STREUSLE 4.7.1 (github.com/nert-nlp/streusle). Arms:
`true`; `shuffled`, the same knowledge given to other words or entities; `twin`, as much text without it. A finished cell is a
line in results/knowledge_words.jsonl and is not repeated (ledger.py).
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import knowledge_word_inputs
import numpy as np
import torch
from cells import parser, share, shown
from knowledge_runs import (
    TRAINING,
    Cell,
    Choice,
    Measures,
    adapted,
    command,
    exchange,
    pretrain,
    run_cell,
    shuffled_column,
    shuffled_pairs,
)  # fmt: skip
from ledger import RESULTS, Ledger
from numpy.typing import NDArray
from torch import Tensor

Vectors = NDArray[np.float32]
Place = tuple[str, int, str]  # a text, the first character of a word in it, and the word
SEEDS, SIZE = (1, 2, 3), "mini"
#: LIBERT: updates on text, and how many there are on pairs of words for each.
TEXT_STEPS, PAIRS = 250, 8
PROBE = 4000  # words of the training part that the linear map is fitted on
WEIGHTS = (0.0, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  # of the network next to the frequency of senses


def libert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """Spearman's correlation with SimLex-999; `twin`: the updates on text alone."""
    pairs = chosen.file("lexicon.tsv")
    if cell.arm == "shuffled":
        pairs = shuffled_pairs(pairs, cell.seed, out.with_suffix(".tsv"))
    recipe = adapted("libert", segments=2)
    recipe["sources"]["main"]["passages"]["length"] = 32
    recipe["mixture"]["words"]["odds"] = 0 if cell.arm == "twin" else PAIRS
    recipe["training"] = {**TRAINING, "batch": 64, "steps": TEXT_STEPS if cell.arm == "twin" else cell.steps}
    bound = ("--bind", f"lexicon={pairs}", "--bind", f"words={chosen.file('vectors')}")
    pretrain(chosen, cell, recipe, out, "--corpus", chosen.file("store"), *bound, size=SIZE)
    return similarity(chosen, out, related=cell.arm != "twin")


def similarity(chosen: Choice, run: Path, *, related: bool) -> Measures:
    """Spearman's correlation with SimLex-999, in percent: of the cosines of a word's rows in the table, of its top states alone
    and in sentences, each less the mean of all words; and of what the head of `related` words says, both orders added."""
    from scipy.stats import spearmanr

    reader, loaded = opened(run)
    pairs = knowledge_word_inputs.simlex(chosen.data)
    words = sorted({word for pair in pairs for word in pair[:2]})
    table = loaded.network.token_tables["tokens"].weight.detach()
    vectors = {
        "embeddings": np.stack([table[torch.from_numpy(ids).long()].mean(0).numpy() for ids in reader.ids(words)]),
        "alone": states_of(reader, [(word, 0, word) for word in words]), "in sentences": mean_states(chosen, reader, words),
    }  # fmt: skip
    at = {word: number for number, word in enumerate(words)}
    asked = [score for *_, score in pairs]
    found = {}
    for name, made in vectors.items():
        made = made - made.mean(0)
        made = made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)
        cosines = [float(made[at[one]] @ made[at[other]]) for one, other, _ in pairs]
        found[name] = 100 * float(spearmanr(cosines, asked).statistic)
    if related:
        told = [pair_scores(reader, loaded, some) for some in ([pair[:2] for pair in pairs], [pair[1::-1] for pair in pairs])]
        found["head"] = 100 * float(spearmanr(told[0] + told[1], asked).statistic)
    return found


def opened(run: Path) -> tuple[Any, Any]:
    """The reader of a run, and the run."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.reader import Reader

    loaded = load_checkpoint(run, "cpu")
    return Reader.of(loaded), loaded


@torch.inference_mode()
def pair_scores(reader: Any, loaded: Any, pairs: Sequence[tuple[str, ...]]) -> Vectors:
    """How much more probable it is that two words are related than that they are not."""
    from cloze.decoding.bound_head import bind_head

    head = bind_head(loaded.heads["related"], loaded.reads.get("related"))
    batch = reader.batch(reader.encode([one for one, _ in pairs], [other for _, other in pairs]))
    scores: Tensor = reader.scores(head, reader.states(batch, head.reads), batch, torch.arange(len(pairs)))
    return (scores[:, 1] - scores[:, 0]).numpy()


def mean_states(chosen: Choice, reader: Any, words: Sequence[str]) -> Vectors:
    """The mean of the states of each word in its sentences, or its state alone if it has none."""
    rows = [json.loads(line) for line in chosen.file("contexts.jsonl").read_text(encoding="utf-8").splitlines()]
    places = [(row["text"], row["start"], row["word"]) for row in rows] + [(word, 0, word) for word in words]
    states = states_of(reader, places)
    number = {word: i for i, word in enumerate(words)}
    sums, counts = np.zeros((len(words), states.shape[1]), np.float32), np.zeros(len(words), np.float32)
    for (_, _, word), state in zip(places[: len(rows)], states, strict=False):
        sums[number[word]] += state
        counts[number[word]] += 1
    lone = counts == 0
    sums[lone], counts[lone] = states[len(rows) :][lone], 1
    return sums / counts[:, None]


@torch.inference_mode()
def states_of(reader: Any, places: Sequence[Place]) -> Vectors:
    """The mean of the top states of the pieces of each word, (N, D)."""
    from cloze.decoding.lengths import by_length

    framed, columns = [], []
    for text, start, word in places:
        spelled = reader.tokenizer.encode_spelled([text])
        row = reader.single_layout([spelled.ids])
        inside = np.flatnonzero((spelled.end > start) & (spelled.begin < start + len(word)))
        framed.append(row)
        columns.append(np.flatnonzero(row.part == 0)[inside])
    made: dict[int, Tensor] = {}
    for index in by_length([len(row) for row in framed], rows=64):
        hidden = reader.states(reader.batch([framed[i] for i in index]), {"hidden"})["hidden"].float()
        made |= {int(i): hidden[k, columns[i]].mean(0) for k, i in enumerate(index)}
    return torch.stack([made[i] for i in range(len(places))]).numpy()


@dataclass(frozen=True)
class Question:
    """A noun or verb of STREUSLE whose part of speech has several supersenses; `allowed` has the first of WordNet first."""

    part: str
    place: Place
    allowed: Sequence[str]
    sense: str
    lemma: str


def questions(chosen: Choice, known: Callable[[str], bool]) -> list[Question]:
    """The words that are one piece, by `known`, and whose sense is one that WordNet gives them."""
    lines = chosen.file("senses.tsv").read_text(encoding="utf-8").splitlines()
    senses = {lemma: some.split("|") for lemma, some in (line.split("\t") for line in lines)}
    found = []
    for line in chosen.file("occurrences.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        allowed = [one for one in senses.get(row["lemma"], []) if one[:4] == row["sense"][:4]]
        if row["sense"] in allowed and known(row["word"]):
            found.append(Question(row["part"], (row["text"], row["start"], row["word"]), allowed, row["sense"], row["lemma"]))
    return found


def sensebert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """Supersenses of ambiguous nouns and verbs of STREUSLE's dev and test parts, in percent right.

    `first` is WordNet's first sense, `usual` the word's most frequent one in the training part. `shown` and `masked` are
    SenseBERT's own, without any label. `probe` is a linear map of the word's top state, fitted on the training part. `… and
    usual` adds their log-probabilities to those of the word's frequencies, with a weight fitted on the other of dev and test.
    Differs from the recipe: the vocabulary is the base's, with 8,000 pieces, and rows have 64 tokens."""
    senses = chosen.file("senses.tsv")
    if cell.arm == "shuffled":
        senses = shuffled_column(senses, 1, cell.seed, out.with_suffix(".tsv"))
    recipe = adapted("sensebert", segments=2)
    if cell.arm == "twin":
        del recipe["tables"]
        recipe["network"]["transformer"].pop("embedding")
        recipe["exercise"] = [edit for edit in recipe["exercise"] if not {"favour", "predict_senses"} & set(edit)]
        recipe["objectives"] = [objective for objective in recipe["objectives"] if "sense_prediction" not in objective]
    recipe["corpus"]["passages"]["length"] = 64
    recipe["training"] = {**TRAINING, "batch": 16, "steps": cell.steps}
    bound = () if cell.arm == "twin" else ("--bind", f"senses={senses}")
    pretrain(chosen, cell, recipe, out, "--corpus", chosen.file("store"), *bound, size=SIZE)
    reader, loaded = opened(out)
    asked = questions(chosen, lambda word: len(reader.ids([word])[0]) == 1)
    judged = [q for q in asked if q.part != "train" and len(q.allowed) > 1]
    usual = frequencies(asked)
    priors = [usual(q) for q in judged]
    right = {"first": [q.allowed[0] == q.sense for q in judged], "usual": hits(judged, priors)}
    seen = random.Random(0).sample([q for q in asked if q.part == "train"], PROBE)
    scored = {"probe": probed(seen, judged, states_of(reader, [q.place for q in [*seen, *judged]]))}
    if cell.arm != "twin":
        scored |= read_senses(loaded, judged)
    for name, scores in scored.items():
        right[name] = hits(judged, scores)
        if name != "masked":
            right[f"{name} and usual"] = combined(judged, scores, priors)
    found: Measures = {name: 100 * float(np.mean(some)) for name, some in right.items()}
    for name in scored.keys() - {"masked"}:
        both, alone = np.array(right[f"{name} and usual"]), np.array(right["usual"])
        found |= {f"{name}: gained": int((both & ~alone).sum()), f"{name}: lost": int((alone & ~both).sum())}
    return {**found, "words": len(judged)}


def frequencies(asked: Sequence[Question]) -> Callable[[Question], Vectors]:
    """The log-probabilities of the senses that a word may have, from its occurrences in the training part; WordNet's first sense
    has two more, and every one a tenth."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for q in asked:
        counts[q.lemma + q.sense[:4]][q.sense] += q.part == "train"

    def of(q: Question) -> Vectors:
        own = np.array([counts[q.lemma + q.sense[:4]][one] + 0.1 + 2 * (one == q.allowed[0]) for one in q.allowed])
        return np.log(own / own.sum()).astype(np.float32)

    return of


def hits(judged: Sequence[Question], scores: Sequence[Vectors]) -> list[bool]:
    """Whether the best of the senses that a word may have is right."""
    return [q.allowed[int(own.argmax())] == q.sense for q, own in zip(judged, scores, strict=True)]


def combined(judged: Sequence[Question], scores: Sequence[Vectors], priors: Sequence[Vectors]) -> list[bool]:
    """The same for weighted sums of both; dev and test have the weight that is best on the other."""
    made = {weight: np.array(hits(judged, [weight * a + b for a, b in zip(scores, priors, strict=True)])) for weight in WEIGHTS}
    dev = np.array([q.part == "dev" for q in judged])
    best = {part: max(WEIGHTS, key=lambda weight: made[weight][dev != part].mean()) for part in (True, False)}
    return [bool(made[best[bool(part)]][i]) for i, part in enumerate(dev)]


def read_senses(loaded: Any, judged: Sequence[Question]) -> dict[str, list[Vectors]]:
    """The log-probabilities that SenseBERT gives the senses of each word: where it reads the word, and where it reads [MASK]."""
    from cloze.tasks.intrinsic.senses import Judge

    judge, found = Judge.of(loaded, loaded.tables), dict[str, list[Vectors]]()
    for name in ("shown", "masked"):
        rows, columns = [], []
        for q in judged:
            text, start, word = q.place
            spelled = judge.reader.tokenizer.encode_spelled([text])
            (at,) = np.flatnonzero((spelled.end > start) & (spelled.begin < start + len(word)))
            row = judge.reader.single_layout([spelled.ids])
            columns.append(int(np.flatnonzero(row.part == 0)[at]))
            ids = row.ids.copy()
            ids[columns[-1]] = judge.reader.tokenizer.role("[MASK]") if name == "masked" else ids[columns[-1]]
            rows.append(replace(row, ids=ids))
        parts = [judge.scores(rows[i : i + 64], columns[i : i + 64]) for i in range(0, len(rows), 64)]
        found[name] = only_allowed(judged, torch.cat(parts), judge.table.names)
    return found


def only_allowed(judged: Sequence[Question], scores: Tensor, names: Sequence[str]) -> list[Vectors]:
    """Scores (M, S) of all senses as log-probabilities of those that each word may have."""
    at = {name: number for number, name in enumerate(names)}
    return [scores[i, [at[one] for one in q.allowed]].log_softmax(0).numpy() for i, q in enumerate(judged)]


def probed(seen: Sequence[Question], judged: Sequence[Question], states: Vectors) -> list[Vectors]:
    """A softmax regression of the senses on the standardised states of the words of `seen`, the first of `states`, with a penalty
    of 1e-3; its log-probabilities for the others."""
    names = list(knowledge_word_inputs.FILES)
    own = states[: len(seen)]
    x = torch.from_numpy((states - own.mean(0)) / own.std(0))
    y = torch.tensor([names.index(q.sense) for q in seen])
    head = torch.nn.Linear(x.shape[1], len(names))
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(head(x[: len(seen)]), y) + 1e-3 * head.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return only_allowed(judged, head(x[len(seen) :]), names)


def knowbert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """Which entity a shortened name means, in percent of 1,500 held-out sentences; entities have vectors of TransE.

    The linker alone is trained, as in the authors' first stage, to choose among the candidates of a name. `shuffled`: entities
    have the vectors of others; `prior`: the entity that the name means most often in training."""
    folder, vectors = chosen.file("short-names"), out.with_name("vectors.txt")
    command("export", chosen.file("kg"), vectors, "--to", "word2vec")
    if cell.arm == "shuffled":
        exchange(vectors, lambda word: word.startswith("/m/"), cell.seed)
    recipe = adapted("knowbert", segments=2)
    linker = {"after_layer": 9, "table": "surfaces", "width": 100, "heads": 4, "inner": 256, "scorer": 100, "threshold": None}
    recipe["network"] = {"linked": recipe["network"]["linked"] | {"linkers": {"surface": linker}}, "change": ["train_linker"]}
    recipe["tables"]["surfaces"]["surfaces"]["vectors"] = str(vectors)
    recipe["exercise"] = [{"frame": "[CLS] {A} [SEP]"}, *(one for one in recipe["exercise"] if {"match", "ask_links"} & set(one))]
    recipe["objectives"] = [{"link_choice": {"set": "entity", "of": "surface", "table": "surfaces"}}]
    recipe["training"] = {**TRAINING, "steps": cell.steps}
    bound = ("--bind", f"surfaces={folder / 'candidates.tsv'}")
    pretrain(chosen, cell, recipe, out, "--corpus", folder / "store", *bound, size=SIZE)
    rows = [json.loads(line) for line in (folder / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    ours, prior = linked(out, rows), np.array([row["prior"] == row["id"] for row in rows])
    gained, lost = int((ours & ~prior).sum()), int((prior & ~ours).sum())
    return {"linked": 100 * float(ours.mean()), "prior": 100 * float(prior.mean()), "gained": gained, "lost": lost}


@torch.inference_mode()
def linked(run: Path, rows: Sequence[Mapping[str, Any]]) -> NDArray[np.bool_]:
    """Whether the candidate of the highest score is the right one."""
    from cloze.decoding.lengths import by_length

    reader, loaded = opened(run)
    names = loaded.tables["surfaces"].ids
    number = {name: i for i, name in enumerate(names, 1)}
    framed = reader.encode([row["text"] for row in rows])
    right = np.zeros(len(rows), bool)
    for index in by_length([len(one) for one in framed], rows=64):
        batch = reader.batch([framed[i] for i in index])
        scores = reader.states(batch, frozenset({"linking/surface"}))["linking/surface"].float()
        items = batch["items/surface"]
        pairs = reader.network.linkers["surface"].candidates(items)
        for k, i in enumerate(index):
            asked = (pairs.item // items.shape[1] == k) & (pairs.entity == number[rows[i]["id"]])
            if asked.any():
                own = pairs.item == pairs.item[asked][0]
                right[i] = bool((pairs.entity[own][scores[own].argmax()] == number[rows[i]["id"]]).item())
    return right


#: Systems: how a cell is made, its arms, seeds and updates.
SYSTEMS: Mapping[str, tuple[Callable[[Choice, Cell, Path], Measures], Sequence[str], Sequence[int], int]] = {
    "knowbert": (knowbert, ("true", "shuffled"), SEEDS, 600),
    "libert": (libert, ("true", "shuffled", "twin"), SEEDS, (1 + PAIRS) * TEXT_STEPS),
    "sensebert": (sensebert, ("true", "shuffled", "twin"), SEEDS, 2000),
}


def tables(ledger: Ledger) -> Iterator[str]:
    """Mean ± standard deviation over seeds of every measure, a row for each arm."""
    yield "| system | measure | true | shuffled | twin |"
    yield "|---|---|---|---|---|"
    for system, (_, arms, seeds, steps) in SYSTEMS.items():
        found = {arm: ledger.results(system=system, arm=arm, steps=steps) for arm in arms}
        measures = {name: None for runs in found.values() for run in runs for name in run if isinstance(run[name], float)}
        for name in measures:
            values = [[run[name] for run in found.get(arm, []) if name in run] for arm in ("true", "shuffled", "twin")]
            yield f"| {system} | {name} | {' | '.join(shown(some, len(seeds), 1) for some in values)} |"


def main() -> None:
    """Run what the ledger lacks, then print the table."""
    options = parser(__doc__, "runs/words", "SYSTEM:ARM:SEED")
    options.add_argument("--base", type=Path, help="the run that every network starts from")
    options.add_argument("--streusle", type=Path, help="the folder of STREUSLE")
    options.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    given = options.parse_args()
    ledger = Ledger(RESULTS / "knowledge_words.jsonl")
    if not given.table:
        chosen = Choice(given.data, given.work, given.base, ledger)
        if given.only:
            system, arm, seed = given.only.split(":")
            run_cell(chosen, Cell(system, arm, int(seed), SYSTEMS[system][3]), SYSTEMS[system][0])
            return
        given.work.mkdir(parents=True, exist_ok=True)
        knowledge_word_inputs.prepare(chosen, given.streusle)
        cells = [
            Cell(system, arm, seed, SYSTEMS[system][3])
            for system in given.systems for seed in SYSTEMS[system][2] for arm in SYSTEMS[system][1]
        ]  # fmt: skip
        share([str(cell) for cell in cells if not ledger.has(cell.run)], given.jobs)
    print("\n".join(tables(ledger)))


if __name__ == "__main__":
    main()
