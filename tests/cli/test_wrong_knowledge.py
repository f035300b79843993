"""What a new user of the knowledge systems gets wrong: one sentence, the way out, exit code 2, and nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloze.cli.main import main
from cloze.errors import CorpusError, RecipeError
from cloze.knowledge import Entities, Surfaces
from cloze.knowledge.fact_table import read_triples
from cloze.knowledge.senses import read_senses
from cloze.runs.binds import naming_table


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with a text, the table of its entities, facts about them, and their graph."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("Oslo lies north of Rome .\n\nRome lies south of Oslo .\n")
    Path("entities.tsv").write_text("id\tlabel\nQ1\tOslo\nQ2\tRome\n")
    Path("facts.tsv").write_text("Q1\tnorth of\tQ2\nQ2\tsouth of\tQ1\n")
    assert main(["corpus", "build", "facts.tsv", "--format", "triples", "--out", "GRAPH"]) == 0
    Path("KG/cloze").mkdir(parents=True)
    Path("KG/cloze/network.json").write_text(json.dumps({"part": "graph_vectors"}))
    capsys.readouterr()
    return tmp_path


@pytest.mark.parametrize(("line", "said"), [
    ("corpus build text.txt --format triples --out NEW",
     "text.txt:1: 6 cells, expected 3 (head, relation, tail), separated by spaces.\n  Ids that contain spaces need a file"),
    ("corpus build facts.tsv --format triples --entities gone.tsv --out NEW", "gone.tsv: no such file."),
    ("corpus build facts.tsv --format triples --columns head,tail --out NEW", "--columns head,tail: expected head, relation"),
    ("corpus build GRAPH --out NEW",
     "GRAPH: is a knowledge graph, not text.\n  To train vectors of its entities: cloze pretrain transe --corpus GRAPH --out KG"),
    ("corpus build text.txt --annotate entity=mention:entities.tsv --out NEW",
     "--annotate entity=mention:entities.tsv: unknown annotator 'mention'. Did you mean 'mentions'"),
    ("corpus build text.txt --annotate entity=lexicon:GRAPH --out NEW", "GRAPH: is a folder, expected a file."),
    ("link GRAPH --entities entities.tsv --out NEW",
     "GRAPH: is a knowledge graph, not text.\n  Give the text files, or the folder that holds them."),
    ("link text.txt --entities facts.tsv --out NEW", "facts.tsv:1: 'Q1\\tnorth of\\tQ2'; expected id, label"),
    ("link text.txt --entities entities.tsv --out facts.tsv",
     "facts.tsv: holds something else than mentions, which would be lost. Choose another --out."),
    ("evaluate KG facts.tsv",
     "KG: not fine-tuned: it holds the vectors of a knowledge graph.\n"
     "  To rank entities: cloze evaluate KG TEST.tsv --task link_prediction"),
    ("evaluate GRAPH facts.tsv --task link_prediction",
     "GRAPH: is a knowledge graph, not a checkpoint.\n  Train one on it: cloze pretrain RECIPE --corpus GRAPH --out RUN"),
    ("evaluate KG --facts facts.tsv", "facts.tsv: no column 'text'; it has: Q1, north of, Q2."),
    ("evaluate KG --senses gone.tsv", "gone.tsv: no such file."),
])  # fmt: skip
def test_a_wrong_input_is_told_with_the_way_out_and_nothing_is_written(
    here: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    before = {path: path.read_bytes() if path.is_file() else b"" for path in here.rglob("*")}
    assert main(line.split()) == 2
    shown = capsys.readouterr()
    assert said in shown.err and len(shown.err.strip().splitlines()) <= 3 and shown.out == ""
    assert {path: path.read_bytes() if path.is_file() else b"" for path in here.rglob("*")} == before


def test_mentions_may_be_linked_again_into_their_file(here: Path) -> None:
    line = ["link", "text.txt", "--entities", "entities.tsv", "--out", "mentions.jsonl"]
    assert main(line) == main(line) == 0
    assert len(Path("mentions.jsonl").read_text().splitlines()) == 2


def test_a_table_without_its_file_asks_for_it_by_the_name_that_the_recipe_gives_it() -> None:
    said = r"\(--bind places=RUN\), or name a file: --set tables.places.names=FILE"
    with pytest.raises(CorpusError, match=said), naming_table("places"):
        Entities().bind(None)  # type: ignore[arg-type]
    with pytest.raises(CorpusError, match="Name one: --bind words=FILE"), naming_table("words"):
        Surfaces().bind(None)  # type: ignore[arg-type]


def test_a_folder_in_place_of_a_file_is_called_one(here: Path) -> None:
    with pytest.raises(RecipeError, match="GRAPH: is a folder; expected a file with lines `subject TAB predicate TAB object`"):
        read_triples("GRAPH")
    with pytest.raises(RecipeError, match="GRAPH: is a folder, expected a file"):
        read_senses("GRAPH")


SHOWN = """\
name: shown
text: {tokenizer: {wordpiece: {size: 60}}, annotate: {pos: {lexicon: {}}}}
corpus: {passages: {length: 16}}
network: {transformer: {layers: 1, width: 16, heads: 2, embedding: {table_with_labels: {inputs: {pos: 3}}}}}
exercise: [frame: "[CLS] {A} [SEP]", mask: {}, corrupt: {}, predict: masked, show: {layer: pos}]
objectives: [token_prediction]
training: {optimizer: adamw, rate: {linear: {peak: 1e-3}}, batch: 4}
reading: {single: "[CLS] {A} [SEP]"}
"""


def test_a_layer_with_more_labels_than_the_network_has_rows_is_refused_with_the_way_out(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("shown.yaml").write_text(SHOWN)
    Path("pos.tsv").write_text("Oslo\tname\nlies\tverb\nnorth\tadverb\n")
    Path("more.txt").write_text(Path("text.txt").read_text() * 20)
    assert main(["corpus", "build", "more.txt", "--recipe", "shown.yaml", "--annotate", "pos=lexicon:pos.tsv", "--out", "S"]) == 0
    capsys.readouterr()
    line = ["pretrain", "shown.yaml", "--corpus", "S", "--budget", "1steps", "--out"]
    assert main([*line, "NEW"]) == 2
    said, row = capsys.readouterr().err, "network.embedding.table_with_labels.inputs.pos=4"
    assert "S: the annotation layer 'pos' has 3 labels (name, verb, adverb), and the network has room for 2." in said
    assert row in said
    assert not Path("NEW/cloze/run.json").exists()
    assert main([*line, "NEW", "--set", row]) == 0
