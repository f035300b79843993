"""Held-out text of its own: it gets the layers of the recipe, and its labels may have other numbers than those of the corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloze.corpus import Store
from cloze.corpus.stores.build import build_store_from_texts
from cloze.errors import CorpusError, RecipeError
from cloze.runs.run import pretrain
from cloze.text import Annotations, Mentions, Normalise, TextSpec, Tokenizer, WordPiece, train

NAMES = {"rome": "Q1", "oslo": "Q2", "bern": "Q3", "lima": "Q4"}
TEXTS = [f"{name} is a city, and {other} is another one." for name in NAMES for other in NAMES if name != other]
RECIPE = """\
name: mine
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 200}}, annotate: {entity: LAYER}}
corpus: {passages: {length: 24}}
TABLE
network: {transformer: {layers: 1, width: 16, heads: 1, positions: {learned: {max_length: 24}}}}
exercise:
  - EDIT
  - frame: "[CLS] {A} [SEP]"
  - mask: {unit: [token, entity], rate: 0.5}
  - corrupt: {}
  - predict: masked
objectives: [token_prediction: {transform: gelu, tie: true}]
training: {optimizer: adamw, rate: {constant: {peak: 1e-3}}, batch: 4, held_out: 0.2}
reading: {single: "[CLS] {A} [SEP]"}
"""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TextSpec(Normalise(lower=True), WordPiece(size=200)), TEXTS)


def recipe(folder: Path, layer: str, *, table: str = "", edit: str = 'close: "."') -> Path:
    made = RECIPE.replace("LAYER", layer).replace("TABLE", table).replace("  - EDIT\n", f"  - {edit}\n" if table else "")
    (folder / "mine.yaml").write_text(made, encoding="utf-8")
    return folder / "mine.yaml"


def store_of(folder: Path, tokenizer: Tokenizer, *, backwards: bool = False) -> Store:
    """A store of the texts with their mentions; read `backwards`, the file of the mentions numbers the labels differently."""
    folder.mkdir()
    lines = [
        {"text": text, "spans": [
            {"start": text.find(name), "end": text.find(name) + 4, "id": one} for name, one in NAMES.items() if name in text
        ]} for text in (reversed(TEXTS) if backwards else TEXTS)
    ]  # fmt: skip
    (folder / "mentions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    annotations = Annotations(None, {"entity": Mentions(file=str(folder / "mentions.jsonl"))})
    return build_store_from_texts(TEXTS, tokenizer, folder / "store", annotations=annotations)


def held_out_loss(out: Path, given: Path, *, corpus: Path, held_out: Path) -> float:
    """The held-out loss after one step."""
    said: dict[str, Any] = {"corpus": [str(corpus)], "held_out": [str(held_out)], "report": lambda line: None}
    pretrain(given, out=out, device="cpu", budget="1steps", **said)
    log = [json.loads(line) for line in (out / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    (loss,) = [event["loss"] for event in log if event["event"] == "held_out"]
    return float(loss)


def test_a_table_finds_the_entities_of_held_out_text_by_its_own_labels(tmp_path: Path, tokenizer: Tokenizer) -> None:
    corpus = store_of(tmp_path / "corpus", tokenizer)
    other = store_of(tmp_path / "other", tokenizer, backwards=True)
    assert corpus.label_names("entity") != other.label_names("entity")
    names = "".join(f"{one}\t{name}\n" for name, one in NAMES.items())
    (tmp_path / "names.tsv").write_text(f"id\tlabel\n{names}", encoding="utf-8")
    mine = recipe(
        tmp_path, "{mentions: {}}", table=f"tables: {{known: {{entities: {{names: {tmp_path / 'names.tsv'}}}}}}}",
        edit="replace_mentions: {layer: entity, table: known, rate: 0.5, same: any}",
    )
    same, another = (
        held_out_loss(tmp_path / f"run-{number}", mine, corpus=corpus.path, held_out=aside.path)
        for number, aside in enumerate((corpus, other))
    )
    assert same == another


def test_held_out_text_gets_the_layers_of_the_recipe(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "list.txt").write_text("".join(f"{name}\n" for name in NAMES), encoding="utf-8")
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS) + "\n", encoding="utf-8")
    mine = recipe(tmp_path, f"{{list: {{file: {tmp_path / 'list.txt'}}}}}")
    assert held_out_loss(tmp_path / "run", mine, corpus=tmp_path / "text.txt", held_out=tmp_path / "text.txt") > 0
    built = Store.open(tmp_path / "run" / "cloze" / "corpus" / "held_out" / "store")
    assert [tokenizer.decode([token]) for token in built.tokens[built.layers["entity"] > 0][:2]] == ["rome", "oslo"]


def test_held_out_text_or_a_store_without_the_layers_of_the_recipe_is_refused_with_the_way_out(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    corpus, mine = store_of(tmp_path / "corpus", tokenizer), recipe(tmp_path, "{mentions: {}}")
    (tmp_path / "text.txt").write_text(TEXTS[0] + "\n", encoding="utf-8")
    with pytest.raises(RecipeError, match="give a store that is annotated already: cloze corpus build TEXT --annotate entity="):
        held_out_loss(tmp_path / "run", mine, corpus=corpus.path, held_out=tmp_path / "text.txt")
    plain = build_store_from_texts(TEXTS, tokenizer, tmp_path / "plain")
    with pytest.raises(CorpusError, match="this store has no annotation layer 'entity', which mine asks for"):
        held_out_loss(tmp_path / "run", mine, corpus=corpus.path, held_out=plain.path)
    assert not (tmp_path / "run" / "cloze" / "corpus" / "held_out" / "store").exists()


@pytest.mark.parametrize(("corpus", "held_out", "named"), [(12, 1, "held.txt"), (1, 12, "text.txt")])
def test_a_text_of_one_document_for_pairs_is_named_as_it_was_given(
    tmp_path: Path, corpus: int, held_out: int, named: str
) -> None:
    for name, count in (("text.txt", corpus), ("held.txt", held_out)):
        (tmp_path / name).write_text("the big cat sees. an old cat sees the cat.\n" * count, encoding="utf-8")
    with pytest.raises(CorpusError) as refused:
        pretrain(
            "bert", corpus=tmp_path / "text.txt", held_out=[str(tmp_path / "held.txt")], out=tmp_path / "run", budget="1steps",
            size="tiny", overrides=["text.tokenizer.size=60"], report=lambda line: None,
        )
    told = f"{tmp_path / named}: `pair: {{wrong: random_document}}` needs a random document, but the corpus has only the"
    assert str(refused.value).startswith(f"{told} passage's own document.\n  Give a text of at least two documents,")
