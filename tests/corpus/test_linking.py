"""The dictionary linker: what it finds, what an ambiguous name means, and the store that is built from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloze.cli.main import main
from cloze.corpus.stores.build import build_store
from cloze.errors import CorpusError
from cloze.knowledge.linking import link_text, linker_of
from cloze.text import Annotations, Mentions, Normalise, TextSpec, WordPiece, train

TABLE = (
    "id\tlabel\taliases\tcount\r\nQ90\tParis\tCity of Light|Lutetia\t90\r\nQ8\tParis\t\t10\r\nQ1\tMarie Curie\tCurie\t5\r\n"
    "Q4\tPierre Curie\tCurie\t20\r\n"
)
TEXT = "Marie Curie left for Paris. Curie liked the City of Light, and Parisians.\n\nNobody else did.\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "e.tsv").write_bytes(TABLE.encode())
    (tmp_path / "t.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path / "e.tsv", tmp_path / "t.txt"


def test_the_longest_name_wins_and_an_ambiguous_one_means_its_most_frequent_entity(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    table, text = files
    found = link_text([text], linker_of([str(table)]), tmp_path / "m.jsonl")
    assert found == (3, 2, 4, 3)
    rows = [json.loads(row) for row in (tmp_path / "m.jsonl").read_text(encoding="utf-8").splitlines()]
    named = [[(row["text"][s["start"] : s["end"]], s["id"], s["score"]) for s in row["spans"]] for row in rows]
    assert named == [[("Marie Curie", "Q1", 1.0), ("Paris", "Q90", 0.9)], [("Curie", "Q4", 0.8), ("City of Light", "Q90", 1.0)]]
    assert linker_of([str(table)]).ambiguous == 2


def test_a_store_annotated_with_the_links_has_them_at_their_words(files: tuple[Path, Path], tmp_path: Path) -> None:
    table, text = files
    link_text([text], linker_of([str(table)]), tmp_path / "m.jsonl")
    tokenizer = train(TextSpec(Normalise(lower=True), WordPiece(size=100)), [TEXT] * 3)
    layer = Mentions(file=str(tmp_path / "m.jsonl"))
    store = build_store([text], tokenizer, tmp_path / "s", annotations=Annotations(None, {"entity": layer}))
    labels, names = store.labels["entity"][store.layers["entity"] == 1], store.label_names("entity")
    assert [names[label - 1] for label in labels] == ["Q1", "Q90", "Q4", "Q90"]


def test_ids_may_have_spaces_as_those_of_graphs(tmp_path: Path) -> None:
    (tmp_path / "e.tsv").write_text("Marie Curie\tCurie\n")
    (tmp_path / "t.txt").write_text("Curie left.\n")
    link_text([tmp_path / "t.txt"], linker_of([str(tmp_path / "e.tsv")]), tmp_path / "m.jsonl")
    assert list(Mentions(file=str(tmp_path / "m.jsonl")).labels) == ["Marie Curie"]


def test_doubtful_and_short_names_are_left_out_on_request(files: tuple[Path, Path]) -> None:
    clear = {"Paris", "City of Light", "Lutetia", "Marie Curie", "Pierre Curie"}
    assert set(linker_of([str(files[0])], least=0.85).names) == clear
    assert "Paris" not in linker_of([str(files[0])], shortest=6).names


def test_a_text_without_any_of_the_names_is_an_error_and_nothing_is_written(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("nothing of this kind\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="none of the 6 names occurs in 1 sentences"):
        link_text([tmp_path / "other.txt"], linker_of([str(files[0])]), tmp_path / "m.jsonl")
    assert not (tmp_path / "m.jsonl").exists()


def test_the_verb_says_what_it_found(files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, text = files
    assert main(["link", str(text), "--entities", str(table), "--out", str(tmp_path / "m.jsonl")]) == 0
    said = capsys.readouterr().out
    assert "4 mentions of 3 entities in 2 of 3 sentences; 2 of the names mean several entities" in said
