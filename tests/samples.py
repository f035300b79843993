"""What a recipe reads from files besides its text, taken from the sample texts: lists, mentions, and tables of vectors."""

from __future__ import annotations

from pathlib import Path

from cloze.assembly.recipe import Recipe

SAMPLES = Path(__file__).resolve().parents[1] / "cloze" / "samples"
WIDTH = 32  # of vectors.txt
#: What a table of each kind reads, by its argument `file`.
_FILES = {
    "triples": "chinese_facts.tsv", "vectors": "vectors.txt", "text_vectors": "vectors.txt", "senses": "supersenses.tsv",
    "surfaces": "candidates.tsv",
}
_LISTS = {
    "phrase": "chinese_phrases.txt", "entity": "chinese_entities.txt", "pos": "english_pos.tsv",
    "polarity": "english_polarity.tsv", "stars": "english_stars.tsv",
}


def from_samples(recipe: Recipe) -> list[str]:
    """The values, as of `--set`, that name the files of a recipe's annotators and tables."""
    values = []
    for name, part in [item for text in recipe.texts.values() for item in text.annotate.items()]:
        if part.name not in ("case", "repeats"):  # these read no file
            file = "english_mentions.jsonl" if part.name == "mentions" else _LISTS[name]
            values.append(f"text.annotate.{name}.file={SAMPLES / file}")
    for name, part in recipe.tables.items():
        if part.name in _FILES:
            values.append(f"tables.{name}.file={SAMPLES / _FILES[part.name]}")
        if part.name == "surfaces":
            values.append(f"tables.{name}.vectors={SAMPLES / 'vectors.txt'}")
        if part.name == "entities":
            networked = any("entities" in network.part.arguments for network in recipe.networks.values() if network.part)
            files = {"vectors": "vectors.txt"} if networked else {"names": "entities.tsv", "types": "entities.tsv"}
            values += [f"tables.{name}.{key}={SAMPLES / file}" for key, file in files.items()]
    networks = [network.part for network in recipe.networks.values() if network.part is not None]
    if any("entities" in part.arguments for part in networks):
        values.append(f"network.entities.width={WIDTH}")
    objectives = [spec.part.name for entry in recipe.entries.values() for _, spec in entry.objectives()]
    return values + [f"objectives.entity_prediction.entity_width={WIDTH}"] * ("entity_prediction" in objectives)
