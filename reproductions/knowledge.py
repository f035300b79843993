"""What knowledge is worth: each system that reads facts, next to the same network without them and with wrong ones.

    python reproductions/knowledge.py --data ../shared/data --work runs/knowledge --base RUN [--jobs 2]
    python reproductions/knowledge.py --table

RUN is a RoBERTa of `cloze pretrain` that has learned; every network starts from it, and takes STEPS updates of 32 rows on
Wikipedia text whose names of entities of FB15k-237 are known (knowledge_data.py). Arms of a system: `true`; `shuffled`, the same
knowledge given to other words or entities; `twin`, equal steps of masked words alone. Seeds change the order of the text, the
masks, the shuffling and the new weights. The function of each system says what is measured. A finished cell is a line in
results/knowledge.jsonl and is not repeated (ledger.py).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import knowledge_data
import knowledge_inputs
from cells import parser, share, shown, tuned
from knowledge_inputs import PREFIX, labelled, plain
from knowledge_runs import (
    SEEDS,
    STEPS,
    TRAINING,
    Cell,
    Choice,
    Measures,
    adapted,
    command,
    exchange,
    names,
    on_names,
    pretrain,
    ranked,
    run_cell,
    shuffled_column,
    shuffled_labels,
)  # fmt: skip
from ledger import RESULTS, Ledger


def mlm(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """The twin of all that read Wikipedia: the base with equal steps of masked words."""
    start = pretrained_twin(chosen, cell)
    return on_names(start, names(chosen), cell.seed, out)


def pretrained_twin(chosen: Choice, cell: Cell) -> Path:
    """The base after equal steps of masked words with the seed of a cell, made once."""
    kept = chosen.file(f"twin-{cell.seed}")
    if not kept.exists():
        made = chosen.file(f"making-{cell.system}-{cell.arm}-{cell.seed}")
        pretrain(chosen, cell, adapted("roberta"), made, "--corpus", chosen.file("store"))
        with suppress(OSError):  # another cell has made it meanwhile
            made.rename(kept)
    return kept


def wklm(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, after WKLM; `shuffled`: names are replaced by those of any entity."""
    entities = types = chosen.file("entities.tsv")
    if cell.arm == "shuffled":
        types = shuffled_column(entities, 2, cell.seed, out.with_suffix(".tsv"))
    recipe = adapted("wklm")
    recipe["tables"] = {"entities": {"entities": {"names": str(entities), "types": str(types)}}}
    pretrain(chosen, cell, recipe, out, "--corpus", chosen.file("store"))
    return on_names(out, names(chosen), cell.seed, out.with_name(f"{out.name}-tuned"))


def ernie_thu(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, with the vector of TransE of every name; `shuffled`: entities have the vectors of others."""
    vectors = out.with_name("vectors.txt")
    command("export", chosen.file("kg"), vectors, "--to", "word2vec")
    if cell.arm == "shuffled":
        exchange(vectors, lambda word: word.startswith("/m/"), cell.seed)
    recipe = adapted("ernie-thu")
    recipe["network"]["knowledge_fusion"]["mix_at"] = 1  # of two layers
    pretrain(chosen, cell, recipe, out, "--corpus", chosen.file("store"), "--bind", f"entities={vectors}")
    linker = f"entity=linker:{chosen.file('entities.tsv')}"
    return on_names(out, names(chosen), cell.seed, out.with_name(f"{out.name}-tuned"), annotate=[linker])


def ernie2(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, after the four tasks of ERNIE 2.0, all at once."""
    recipe = adapted("ernie-2.0")
    for name in ("phrase", "entity"):
        recipe["text"]["annotate"][name]["list"]["file"] = str(chosen.file("lists") / f"{name}.txt")
    pretrain(chosen, cell, recipe, out, "--corpus", chosen.file("store-tasks"))
    return on_names(out, names(chosen), cell.seed, out.with_name(f"{out.name}-tuned"))


def sentilare(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """Polarity of sentences on films in percent, 500 labels; `twin`: masked words of the same sentences."""
    folder = chosen.file("reviews")
    store = chosen.file("store-reviews")
    if cell.arm == "shuffled":
        store = out.with_name("store")
        files = {name: folder / f"{name}.tsv" for name in ("pos", "polarity", "stars")}
        layers = labelled({name: shuffled_column(file, 1, cell.seed, out.with_name(file.name)) for name, file in files.items()})
        source = (folder / "text.txt", "--format", "line", "--tokenizer", chosen.base)
        command("corpus", "build", *source, *layers, "--out", store)
    pretrain(chosen, cell, adapted("roberta" if cell.arm == "twin" else "sentilare"), out, "--corpus", store)
    train, dev, test = (folder / f"polarity-{part}.jsonl" for part in knowledge_data.PARTS)
    few = out.with_name(f"{out.name}-train.jsonl")
    few.write_text("".join(line + "\n" for line in train.read_text(encoding="utf-8").splitlines()[:500]), encoding="utf-8")
    return {"polarity": on_names(out, [few, dev, test], cell.seed, out.with_name(f"{out.name}-tuned"))["names"]}


def kepler(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """Hits@10 in percent among 100 random entities, of facts of WN18RR about entities that no fact in training has.

    `shuffled`: entities have the glosses of others in training; `twin`: facts have no weight, so distances are those of a network
    that has learned masked words alone."""
    graph = wordnet_of(chosen, cell, out)
    recipe = adapted("kepler")
    for source in recipe["sources"].values():
        for options in source.values():
            options["length"] = min(options["length"], 64)
    if cell.arm == "twin":
        recipe["mixture"]["facts"]["objectives"][0]["triple_contrast"]["weight"] = 1e-9
    pretrain(chosen, cell, recipe, out, "--corpus", chosen.file("store"), "--bind", f"facts={graph}")
    return ranked(chosen, out, "wordnet-unseen.tsv")


def wordnet_of(chosen: Choice, cell: Cell, out: Path) -> Path:
    """The graph of WN18RR; for `shuffled` one whose entities have the glosses of others."""
    if cell.arm != "shuffled":
        return chosen.file("wordnet")
    graph, glosses = out.with_name("graph"), out.with_suffix(".tsv")
    shuffled_column(chosen.file("wordnet-entities.tsv"), 1, cell.seed, glosses)
    texts = ("--entities", glosses, "--relations", chosen.file("wordnet-relations.tsv"))
    command("corpus", "build", chosen.file("wordnet-train.tsv"), "--format", "triples", *texts, "--out", graph)
    return graph


def kg_bert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """Hits@10 in percent among 100 random entities, of test facts of WN18RR; `twin`: from random weights."""
    graph = wordnet_of(chosen, cell, out)
    recipe = adapted("kg-bert")
    recipe["training"] = {**TRAINING, "steps": 3 * STEPS}
    pretrain(chosen, cell, recipe, out, "--corpus", graph, start=cell.arm != "twin")
    return ranked(chosen, out, "wordnet-test.tsv")


def k_bert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, with two facts about each; an empty graph is the twin `mlm`, bit for bit."""
    start = pretrained_twin(chosen, cell)
    facts = chosen.file("facts.tsv")
    if cell.arm == "shuffled":
        facts = shuffled_column(facts, 0, cell.seed, out.with_suffix(".tsv"))
    return on_names(start, names(chosen), cell.seed, out, recipe="k-bert_classification", binds=[f"facts={facts}"])


def k_adapter(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, with an adapter that has learned relations; `shuffled`: its relations were those of other sentences."""
    start, files = pretrained_twin(chosen, cell), [chosen.file(f"relations-{part}.jsonl") for part in knowledge_data.PARTS]
    if cell.arm == "shuffled":
        files[0] = shuffled_labels(files[0], cell.seed, out.with_name(f"{out.name}-relations.jsonl"))
    adapter = out.with_name(f"{out.name}-adapter")
    overrides = ["training.epochs=3", "training.rate.peak=1e-3", "training.batch=16", "task.patience=0",
                 "network.change.0.knowledge_adapter.width=64", "network.change.0.knowledge_adapter.heads=2"]  # fmt: skip
    tuned(start, tuple(map(str, files)), cell.seed, adapter, recipe="k-adapter", overrides=overrides)  # type: ignore[arg-type]
    return on_names(adapter, names(chosen), cell.seed, out, changes=["tune_trunk"])


def e_bert(chosen: Choice, cell: Cell, out: Path) -> Measures:
    """What names are, with a token for each name in front of it; `shuffled`: entities have the vectors of others."""
    start, vectors = pretrained_twin(chosen, cell), out.with_name(f"{out.name}.txt")
    command("export", chosen.file("named"), vectors, "--to", "word2vec")
    if cell.arm == "shuffled":
        exchange(vectors, lambda word: word.startswith(PREFIX), cell.seed)
    aligned = out.with_name(f"{out.name}-aligned")
    shutil.rmtree(aligned, ignore_errors=True)
    command("vocab", "entities", start, "--vectors", vectors, "--prefix", PREFIX, "--out", aligned)
    return on_names(aligned, [told(chosen, aligned, path, out) for path in names(chosen)], cell.seed, out)


def told(chosen: Choice, run: Path, path: Path, out: Path) -> Path:
    """Rows whose texts have the tokens of the entities that they mention."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    mentions, texts = out.with_name(f"{out.name}-{path.name}"), out.with_name(f"{out.name}-{path.stem}.txt")
    spans = ([{**span, "id": plain(span["id"])} for span in row["spans"]] for row in rows)
    knowledge_data.lines(mentions, ({"text": row["text"], "spans": own} for row, own in zip(rows, spans, strict=True)))
    texts.unlink(missing_ok=True)
    command("vocab", "mentions", run, mentions, "--as", "concat", "--prefix", PREFIX, "--out", texts)
    found = texts.read_text(encoding="utf-8").splitlines()
    knowledge_data.lines(mentions, ({"text": text, "label": row["label"]} for text, row in zip(found, rows, strict=True)))
    return mentions


#: Systems: how a cell is made, its arms, and the measure that the table shows first.
SYSTEMS: Mapping[str, tuple[Callable[[Choice, Cell, Path], Measures], Sequence[str]]] = {
    "mlm": (mlm, ("twin",)),
    "kepler": (kepler, ("true", "shuffled", "twin")),
    "ernie-thu": (ernie_thu, ("true", "shuffled")),
    "k-bert": (k_bert, ("true", "shuffled")),
    "e-bert": (e_bert, ("true", "shuffled")),
    "sentilare": (sentilare, ("true", "shuffled", "twin")),
    "kg-bert": (kg_bert, ("true", "shuffled", "twin")),
    "wklm": (wklm, ("true", "shuffled")),
    "k-adapter": (k_adapter, ("true", "shuffled")),
    "ernie-2.0": (ernie2, ("true",)),
}


def tables(ledger: Ledger) -> Iterator[str]:
    """Mean ± standard deviation over seeds of every measure, a row for each arm."""
    yield "| system | measure | true | shuffled | twin |"
    yield "|---|---|---|---|---|"
    twins = ledger.results(system="mlm", steps=STEPS)
    for system, (_, arms) in SYSTEMS.items():
        found = {arm: ledger.results(system=system, arm=arm, steps=STEPS) for arm in arms}
        measures = {name for runs in found.values() for run in runs for name in run if isinstance(run[name], float)}
        for name in sorted(measures):
            cells = [shown([run[name] for run in found.get(arm, [])], len(SEEDS), 1) for arm in ("true", "shuffled", "twin")]
            if not found.get("twin"):
                cells[2] = shown([run[name] for run in twins if name in run], len(SEEDS), 1)
            yield f"| {system} | {name} | {' | '.join(cells)} |"


def main() -> None:
    """Run what the ledger lacks, then print the table."""
    options = parser(__doc__, "runs/knowledge", "SYSTEM:ARM:SEED")
    options.add_argument("--base", type=Path, help="the run that every network starts from")
    options.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    given = options.parse_args()
    ledger = Ledger(RESULTS / "knowledge.jsonl")
    if not given.table:
        chosen = Choice(given.data, given.work, given.base, ledger)
        if given.only:
            system, arm, seed = given.only.split(":")
            run_cell(chosen, Cell(system, arm, int(seed)), SYSTEMS[system][0])
            return
        given.work.mkdir(parents=True, exist_ok=True)
        knowledge_inputs.prepare(chosen)
        cells = [Cell(system, arm, seed) for seed in SEEDS for system in given.systems for arm in SYSTEMS[system][1]]
        share([str(cell) for cell in cells if not ledger.has(cell.run)], given.jobs)
    print("\n".join(tables(ledger)))


if __name__ == "__main__":
    main()
