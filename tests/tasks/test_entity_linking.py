"""E-BERT-MLM: rounds, overlaps and scores as in NPoe/ebert (code/run_aida.py, code/score_aida.py), and a network from training to
links."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.batch import Batch
from cloze.batching.collate import collate, one_per_row
from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.entity_rows import add_entities
from cloze.cli.main import main
from cloze.exercises.exercise import Exercise, PlacedEdit
from cloze.exercises.facts import TokenFacts
from cloze.exercises.frame import Frame
from cloze.exercises.knowledge.ask_links import AskLinks
from cloze.exercises.knowledge.ask_mention import AskMention
from cloze.exercises.knowledge.match import Match
from cloze.networks.routing import routed
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.tasks.intrinsic.entity_linking import (
    EntityLink,
    EntityLinker,
    LinkingScores,
    Proposal,
    TextPiece,
    halved,
    surest,
    without_overlap,
)
from tests.simulated_gpu import SimulatedGpu


def proposal(start: int, stop: int, none: float, score: float, token: int = 1) -> Proposal:
    return Proposal(start, stop, none, token, score)


def test_of_mentions_that_overlap_the_one_with_the_lowest_probability_of_no_entity_decides() -> None:
    short, long, apart = proposal(0, 1, 0.3, 0.7), proposal(0, 2, 0.1, 0.5), proposal(2, 3, 0.2, 0.6)
    assert without_overlap([short, long, apart]) == [long, apart]


def test_a_mention_that_means_no_entity_links_nothing_but_blocks_those_that_are_less_sure() -> None:
    none, inside = proposal(0, 3, 0.4, 0.35), proposal(1, 2, 0.45, 0.55)
    assert without_overlap([none, inside]) == []
    assert without_overlap([none._replace(none=0.5), inside]) == [inside]


@pytest.mark.parametrize(("links", "before", "number", "rounds", "count"), [
    (7, 0, 0, 3, 2), (5, 2, 1, 3, 2), (3, 4, 2, 3, 3),  # 7 // 3; 2 · 7 // 3 - 2; all
    (1, 0, 0, 3, 1), (2, 4, 1, 3, 1),                   # at least one
    (5, 0, 0, 1, 5),
])  # fmt: skip
def test_each_round_brings_the_links_to_its_share_of_all(links: int, before: int, number: int, rounds: int, count: int) -> None:
    proposals = [proposal(n, n + 1, 0.0, 0.5 + n / 100) for n in range(links)]
    assert surest(proposals, before, number, rounds) == proposals[::-1][:count]


def piece(words: str) -> TextPiece:
    tokens = words.split()
    ends = np.cumsum([len(word) + 1 for word in tokens]) - 1
    return TextPiece(
        0, np.array([0 if word == "." else 1 for word in tokens], np.int32),
        np.array([not word.startswith("##") for word in tokens]), ends - [len(word) for word in tokens], ends,
    )


def test_the_tokens_of_entities_take_the_places_of_their_mentions() -> None:
    text = piece("the New York of Paris .")
    made = text.linked([proposal(1, 3, 0, 0.9, 70), proposal(4, 5, 0, 0.8, 80)], {70: "Q60", 80: "Q90"})
    assert made.ids.tolist() == [1, 70, 1, 80, 0] and made.word_start.all()
    assert made.begin.tolist() == [0, 4, 13, 16, 22] and made.end.tolist() == [3, 12, 15, 21, 23]
    assert sorted(made.links) == [EntityLink(4, 12, "Q60", 0.9), EntityLink(16, 21, "Q90", 0.8)]


def sizes(words: str, most: int) -> list[int]:
    return [len(part.ids) for part in halved(piece(words), most, 0)]


def test_long_texts_are_halved_behind_the_full_stop_next_to_the_middle_else_at_a_word() -> None:
    word = ["w"] * 30
    assert sizes(" ".join(word), 30) == [30] and sizes(" ".join(word), 20) == [15, 15]
    for stop, cut in ((12, 13), (18, 19), (6, 7), (5, 15), (24, 25), (25, 15)):  # at most 9 from the middle, which is 15
        assert sizes(" ".join([*word[:stop], ".", *word[stop + 1 :]]), 25) == [cut, 30 - cut]
    both = " ".join(["." if number in (12, 18) else "w" for number in range(30)])
    assert sizes(both, 25) == [13, 17] and sizes(both, 16) == [13, 8, 9]  # 12 is as near as 18, which is then too far away
    assert sizes(" ".join(["w", *["##w"] * 18, "w"]), 19) == [19, 1]


def test_scores_are_those_of_the_authors_scorer() -> None:
    """By hand: three of four links have their gold place, two of them the entity; precision and recall of entities A, B, C, D."""
    gold = {(0, 0, 1): "A", (0, 2, 3): "B", (0, 5, 6): "B", (1, 0, 1): "C"}
    links = {(0, 0, 1): "A", (0, 2, 3): "B", (0, 5, 6): "A", (1, 4, 5): "D"}
    scores = LinkingScores.of(2, gold, links)
    assert (scores.texts, scores.gold, scores.links) == (2, 4, 4)
    assert (scores.micro_precision, scores.micro_recall, scores.micro_f1) == (0.5, 0.5, 0.5)
    # A: 1 of 2 links, 1 of 1 gold; B: 1 of 1, 1 of 2; C has no link: precision 1; D no gold mention: recall 1.
    precision, recall = (0.5 + 1 + 1 + 0) / 4, (1 + 0.5 + 0 + 1) / 4
    assert (scores.macro_precision, scores.macro_recall) == (precision, recall)
    assert scores.macro_f1 == pytest.approx(2 * precision * recall / (precision + recall))


def test_without_links_precision_is_one_and_f1_zero() -> None:
    scores = LinkingScores.of(1, {(0, 0, 1): "A"}, {})
    assert (scores.micro_precision, scores.micro_recall, scores.micro_f1) == (1.0, 0.0, 0.0)
    assert LinkingScores.of(1, {}, {}).micro_f1 == 1.0


TEXT = "the cat saw a dog on the mat . the dog saw the cat on a mat . the cat on the mat"
SPANS = [(4, 7, "Q1"), (14, 17, "Q2"), (35, 38, "Q2"), (47, 50, "Q12"), (66, 69, "Q1")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT with entities as tokens, texts with links, names with candidates, and a run."""
    from cloze.interop import Card, export_folder
    from tests.decoding.conftest import load_systems

    made = tmp_path_factory.mktemp("e")
    system = load_systems().system("bert", **{"positions.max_length": 40})
    export_folder(
        made / "bert", model=system.model(), tokenizer=system.tokenizer, reading=system.reading, card=Card("bert")
    )
    loaded: Any = load_checkpoint(made / "bert")
    table = loaded.network.embeddings.tokens.weight.detach().numpy()
    words = {loaded.tokenizer.piece(number): table[number] for number in loaded.tokenizer.ordinary_ids.tolist()}
    rows = {word: row for word, row in words.items() if not word.startswith("##")}
    draw = np.random.default_rng(1)
    rows |= {f"ENTITY/Q{number}": draw.standard_normal(16).astype(np.float32) for number in (1, 2, 12)}
    lines = [f"{len(rows)} 16", *(" ".join([word, *(f"{x:.9g}" for x in row)]) for word, row in rows.items())]
    (made / "wiki.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    add_entities(made / "bert", made / "wiki.txt", made / "e-bert")
    (made / "t.txt").write_text(f"{TEXT}\n\n" * 30, encoding="utf-8")
    spans = [{"start": start, "end": end, "id": name} for start, end, name in SPANS]
    (made / "links.jsonl").write_text(json.dumps({"text": TEXT, "spans": spans}) + "\n", encoding="utf-8")
    (made / "names.tsv").write_text("cat\tQ1\t6\ncat\tQ12\t3\ncat\tQ77\t1\ndog\tQ2\t1\nmat\tQ12\t1\n", encoding="utf-8")
    tagged = f"entity=mentions:{made / 'links.jsonl'}"
    build = ["corpus", "build", str(made / "t.txt"), "--annotate", tagged, "--tokenizer", str(made / "e-bert")]
    assert main([*build, "--out", str(made / "store")]) == 0
    binds = ["--bind", f"e-bert={made / 'e-bert'}", "--bind", f"surfaces={made / 'names.tsv'}"]
    settings = ["training.batch=8", "length=40", "training.rate.linear.peak=1e-2", "training.log_every=1"]
    train = ["pretrain", "e-bert-mlm", *binds, "--corpus", str(made / "store"), "--budget", "60steps", "--as-published"]
    assert main([*train, *(part for value in settings for part in ("--set", value)), "--out", str(made / "run")]) == 0
    return made


def test_training_lowers_the_loss_and_leaves_the_token_table_as_it_was(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "run" / "cloze" / "log.jsonl").read_text().splitlines()]
    costs = [line["loss"] for line in lines if line["event"] == "train"]
    assert np.mean(costs[-5:]) < 0.5 * np.mean(costs[:5])
    before, after = (load_checkpoint(folder / name) for name in ("e-bert", "run"))
    one, other = (loaded.network.state_dict() for loaded in (before, after))  # type: ignore[union-attr]
    assert torch.equal(one["embeddings.tokens.weight"], other["embeddings.tokens.weight"])
    assert not torch.equal(one["layers.0.outer.weight"], other["layers.0.outer.weight"])


def test_a_text_is_read_in_use_as_in_training(folder: Path) -> None:
    """The probabilities of a mention, by the edits of the recipe and by the linker."""
    loaded: Any = load_checkpoint(folder / "run")
    linker = EntityLinker.of(loaded)
    spelled = loaded.tokenizer.encode("the dog saw a bird")
    size = len(spelled.ids)
    marks = (np.arange(size) == 1).astype(np.uint8)[None]
    table = loaded.tables["surfaces"].naming({"entity": ["Q2"]})
    facts, tables = TokenFacts.of(loaded.tokenizer), {"surfaces": table}
    edits = [
        Frame("[CLS] {A} [SEP]", tokenizer=facts), Match(table="surfaces", give="surface", tables=tables),
        AskLinks(layer="entity", tables=tables), AskMention(tables=tables, tokenizer=facts),
    ]
    rows = Rows({
        "tokens": spelled.ids[None], "length": np.array([size], np.int32), "word_start": spelled.word_start[None],
        "layers/entity": marks, "labels/entity": marks.astype(np.int32),
    })
    made = Exercise([PlacedEdit(edit) for edit in edits], 40)(rows, Draw(np.zeros(1, np.uint64)))
    takes = loaded.network.takes
    arrays = collate(made.without("word_start"), one_per_row(made["length"]), takes=takes)
    batch = Batch({name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()})
    with torch.no_grad():
        states = loaded.network.eval()(want=frozenset({"hidden"}), **routed(loaded.network, batch, "open"))
        head, candidates = loaded.heads["token_prediction"], loaded.heads["candidate_prediction"]
        scores = candidates.scores({"scores": head.product(states, batch)}, batch)
    ((found,),) = linker.proposals(linker.pieces(["the dog saw a bird"]))
    expected = scores.softmax(1)[0].numpy()
    assert (found.start, found.stop, linker.ids[found.token]) == (1, 2, "Q2")
    np.testing.assert_allclose([found.none, found.score], expected, rtol=1e-5)


def test_a_gpu_links_as_a_cpu_does(folder: Path) -> None:
    near = EntityLinker.of(load_checkpoint(folder / "run")).link([TEXT])[0]
    with SimulatedGpu():
        far = EntityLinker.of(load_checkpoint(folder / "run", "cuda")).link([TEXT])[0]
    assert [link[:3] for link in far] == [link[:3] for link in near]
    assert [link.score for link in far] == pytest.approx([link.score for link in near], rel=1e-3)


def test_links_of_known_texts_are_right_and_candidates_without_a_token_are_never_chosen(folder: Path) -> None:
    linker = EntityLinker.of(load_checkpoint(folder / "run"))
    links = [(link.start, link.end, link.id) for link in linker.link([TEXT, "nothing"])[0]]
    right = {(start, end) for start, end, _ in SPANS}
    assert {(start, end) for start, end, _ in links} <= right and len(links) >= 3
    assert set(linker.ids.values()) == {"Q1", "Q2", "Q12"} and linker.link(["nothing"]) == [[]]


def test_several_rounds_read_the_tokens_of_entities_that_were_decided(folder: Path) -> None:
    loaded = load_checkpoint(folder / "run")
    linker = EntityLinker.of(loaded, rounds=3)
    read: list[list[list[int]]] = []
    proposals = linker.proposals

    def recorded(pieces: Sequence[TextPiece]) -> list[list[Proposal]]:
        read.append([piece.ids.tolist() for piece in pieces])
        return proposals(pieces)

    linker.proposals = recorded  # type: ignore[method-assign]
    linker.link(["the cat saw a dog and the cat saw a dog"])
    entities = [sum(number in linker.ids for number in rows[0]) for rows in read]
    assert entities[0] == 0 and entities == sorted(set(entities)) and 1 < len(read) <= 3


def test_a_document_is_read_as_a_whole_and_mentions_count_from_their_sentence(folder: Path) -> None:
    linker = EntityLinker.of(load_checkpoint(folder / "run"))
    sentences = ["the cat saw a dog on the mat .", "the dog saw the cat on a mat ."]
    found = linker.document_mentions(sentences)
    whole = linker.link([" ".join(sentences)])[0]
    flat = [(span["start"] + shift, span["end"] + shift, span["id"]) for shift, spans in zip((0, 31), found, strict=True)  # type: ignore[operator]
            for span in spans]
    assert flat == [(link.start, link.end, link.id) for link in whole] and all(found)


def test_texts_longer_than_the_network_reads_are_linked_in_pieces(folder: Path) -> None:
    linker = EntityLinker.of(load_checkpoint(folder / "run"))
    assert linker.most == 40 - 2 - 3
    long = " ".join([TEXT] * 4)
    assert all(len(piece.ids) <= 35 for piece in linker.pieces([long]))
    links = linker.link([long])[0]
    assert {long[link.start : link.end] for link in links} <= {"cat", "dog", "mat"} and links[-1].start > len(TEXT) * 3


def test_the_commands_link_and_measure(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = str(folder / "run"), tmp_path / "m.jsonl"
    assert main(["link", str(folder / "t.txt"), "--model", run, "--out", str(out)]) == 0
    assert " mentions of " in capsys.readouterr().out
    row = json.loads(out.read_text(encoding="utf-8").splitlines()[0])
    assert row["text"] in TEXT and {span["id"] for span in row["spans"]} <= {"Q1", "Q2", "Q12"}
    assert main(["evaluate", run, str(folder / "links.jsonl"), "--task", "entity_linking", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)[str(folder / "links.jsonl")]
    assert scores["texts"] == 1 and scores["gold"] == 5 and scores["micro_f1"] > 0.5
    assert main(["evaluate", run, str(folder / "links.jsonl"), "--task", "entity_linking", "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    assert "1 texts, 5 gold mentions" in said and "micro" in said and "macro" in said


def test_the_run_opens_in_transformers_as_an_ordinary_bert(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder / "run").eval()
    loaded: Any = load_checkpoint(folder / "run")
    ids = torch.tensor([loaded.tokenizer.encode_template("[CLS] the cat [MASK] [SEP]").ids.tolist()])
    with torch.no_grad():
        theirs = model.bert(ids).last_hidden_state
        ours = loaded.network.eval()(want=frozenset({"hidden"}), tokens=ids)["hidden"]
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-4)


TRAIN = ["pretrain", "e-bert-mlm", "--corpus", "STORE", "--set", "length=40", "--budget", "2steps", "--out", "O"]


@pytest.mark.parametrize(("words", "said"), [
    (["link", "T", "--model", "BERT", "--out", "O"], "was not trained to choose the candidates of mentions"),
    (["link", "T", "--out", "O"], "expected a table of entities, or a network that links"),
    (["link", "T", "--model", "RUN", "--least", "0.5", "--out", "O"], "--least has no meaning for a network that chooses"),
    (["link", "T", "--entities", "E", "--rounds", "2", "--out", "O"], "--rounds is for a network that chooses"),
    (["evaluate", "RUN", "--task", "entity_linking"], "no texts to evaluate on"),
    (["evaluate", "RUN", "NAMES", "--task", "entity_linking"], 'expected {"text": "…", "spans": [{"start": 0'),
    (["evaluate", "BERT", "LINKS", "--task", "entity_linking"], "recipe e-bert-mlm"),
    ([*TRAIN, "--bind", "e-bert=BERT", "--bind", "surfaces=NAMES"], "was built with another tokenizer"),
    (
        [*TRAIN, "--bind", "e-bert=E-BERT", "--bind", "surfaces=OTHER"],
        "no candidate of the table 'surfaces', such as X1, has a token in the vocabulary",
    ),
    ([*TRAIN, "--bind", "e-bert=E-BERT"], "--bind surfaces=FILE"),
])  # fmt: skip
def test_mistakes_are_told_in_words(
    words: list[str], said: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.tsv").write_text("Q1\tcat\n", encoding="utf-8")
    (tmp_path / "other.tsv").write_text("cat\tX1\t1\n", encoding="utf-8")
    places = {
        "T": folder / "t.txt", "BERT": folder / "bert", "E-BERT": folder / "e-bert", "RUN": folder / "run",
        "E": tmp_path / "e.tsv", "NAMES": folder / "names.tsv", "LINKS": folder / "links.jsonl", "STORE": folder / "store",
        "O": tmp_path / "o", "OTHER": tmp_path / "other.tsv",
    }

    def filled(word: str) -> str:
        name, equals, value = word.partition("=")
        return f"{name}={places[value]}" if equals and value in places else str(places.get(word, word))

    assert main([filled(word) for word in words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "o" / "config.json").exists()
