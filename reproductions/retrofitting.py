"""Vectors of words before and after retrofitting to a lexicon of synonyms, and to the same lexicon with its words exchanged.

    python reproductions/retrofitting.py --data ../shared/data --work runs/retrofitting
    python reproductions/retrofitting.py --table

`word2vec-skipgram` and `glove`, 100 numbers, are trained on English Wikipedia; then `cloze words retrofit` moves them towards
PPDB's synonyms in ten passes (Faruqui et al., "Retrofitting Word Vectors to Semantic Lexicons", 2015). In the control,
*shuffled*, the second words of all pairs are permuted: every word keeps its number of pairs, but they mean nothing. Figures are
Spearman's correlation of cosines with people's scores on the twelve sets of `wordsim_en`, over the pairs with two known words,
the same pairs in each row. A seed draws the vectors and the permutation. A finished run is a line in
results/retrofitting.jsonl and is not repeated (ledger.py). What comes out is written to reproductions/retrofitting.md, whatever
it is.
"""

from __future__ import annotations

import argparse
import lzma
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from ledger import RESULTS, Ledger

SEEDS = (1, 2, 3)
RECIPES = ("word2vec-skipgram", "glove")
LEXICONS = ("none", "synonyms", "shuffled")
#: The sets of the table: the paper's, and SimLex, which scores similarity and not association.
SHOWN = {"EN-MEN-TR-3k": "MEN", "EN-RG-65": "RG-65", "EN-WS-353-ALL": "WS-353", "EN-SIMLEX-999": "SimLex"}


def pairs_of(data: Path) -> list[tuple[str, str]]:
    """The synonyms of PPDB."""
    path = data / "lexicon_en_ppdb_synonyms" / "ppdb-1.0-xxxl-lexical.extended.synonyms.uniquepairs.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        found = [line.split() for line in file]
    return [(cells[0], cells[1]) for cells in found if len(cells) == 2]  # some lines lack a word


def exchanged(pairs: Sequence[tuple[str, str]], seed: int) -> list[tuple[str, str]]:
    """The pairs with their second words permuted."""
    order = np.random.default_rng(seed).permutation(len(pairs))
    return [(one, pairs[place][1]) for (one, _), place in zip(pairs, order, strict=True)]


def trained(chosen: argparse.Namespace, recipe: str, seed: int) -> Path:
    """The folder of a run; one that is there is used."""
    import cloze

    out: Path = chosen.work / f"{recipe}-{seed}"
    text: Path = chosen.work / "text.txt"
    if not text.exists():
        chosen.work.mkdir(parents=True, exist_ok=True)
        with lzma.open(chosen.data / "text_en_wiki" / "train.txt.xz", "rt", encoding="utf-8") as file:
            text.write_text(file.read(chosen.megabytes * 1_000_000), encoding="utf-8")
    cloze.pretrain(
        recipe, corpus=text, out=out, budget=f"{chosen.epochs}epochs", fit=False, seed=seed, report=None,
        overrides=["network.width=100", f"training.epochs={chosen.epochs}"],
    )
    return out


def measured(data: Path, vectors: Any) -> dict[str, float]:
    """Spearman's correlation on each set, times 100."""
    from cloze.tasks.intrinsic.similarity import read_pairs, similarity

    files = sorted((data / "wordsim_en").glob("EN-*.txt"))
    found = {file.stem: similarity(vectors, read_pairs(file), lower=True) for file in files}
    return {name: round(100 * one.spearman, 2) for name, one in found.items() if one.spearman is not None}


def run(chosen: argparse.Namespace, ledger: Ledger) -> None:
    """Every run that the ledger lacks."""
    from cloze.decoding.vectors.word_sets import retrofitted
    from cloze.interop.vectors import open_vectors

    pairs = pairs_of(chosen.data)
    for seed, recipe in product(SEEDS[: chosen.seeds], chosen.recipes):
        what = {"recipe": recipe, "megabytes": chosen.megabytes, "epochs": chosen.epochs, "seed": seed}
        if all(ledger.has({**what, "lexicon": lexicon}) for lexicon in LEXICONS):
            continue
        vectors = open_vectors(trained(chosen, recipe, seed))
        for lexicon in LEXICONS:
            made, moved = vectors, 0
            if lexicon != "none":
                made, moved = retrofitted(vectors, pairs if lexicon == "synonyms" else exchanged(pairs, seed))
            ledger.add({**what, "lexicon": lexicon}, {"words": len(vectors), "moved": moved, **measured(chosen.data, made)})
        print(f"{recipe} {seed}", flush=True)


def table(ledger: Ledger) -> str:
    """Recipes and lexicons by sets: mean ± standard deviation over seeds; the last column is the mean of all sets."""
    lines = [f"| vectors | lexicon | words moved | {' | '.join(SHOWN.values())} | all twelve |", "|---" * (len(SHOWN) + 4) + "|"]
    for recipe, lexicon in product(RECIPES, LEXICONS):
        found = ledger.results(recipe=recipe, lexicon=lexicon)
        if not found:
            continue
        sets = [name for name in found[0] if name.startswith("EN-")]
        cells = [_cell([line[name] for line in found]) for name in SHOWN]
        cells.append(_cell([mean(line[name] for name in sets) for line in found]))
        moved = f"{round(mean(line['moved'] for line in found)):,} of {round(mean(line['words'] for line in found)):,}"
        lines.append(f"| `{recipe}` | {lexicon} | {moved} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    """Mean ± standard deviation, or the only figure."""
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def main() -> None:
    """Run what is missing, and print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--data", type=Path, default=Path("../shared/data"))
    asked.add_argument("--work", type=Path, default=Path("runs/retrofitting"))
    asked.add_argument("--megabytes", type=int, default=25, help="how many million characters of the text")
    asked.add_argument("--epochs", type=int, default=5)
    asked.add_argument("--seeds", type=int, default=len(SEEDS))
    asked.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    asked.add_argument("--table", action="store_true")
    chosen = asked.parse_args()
    ledger = Ledger(RESULTS / "retrofitting.jsonl")
    if not chosen.table:
        run(chosen, ledger)
    print(table(ledger))


if __name__ == "__main__":
    main()
