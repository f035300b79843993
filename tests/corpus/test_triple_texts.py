"""A graph whose entities and relations are texts: rows that are triples, rows that are entities, their wrong triples and cuts."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.corpus import Store
from cloze.errors import CorpusError, RecipeError
from cloze.knowledge import EntityTexts, TripleTexts
from cloze.knowledge.negatives import Negatives
from cloze.knowledge.triple_files import read_graph
from cloze.knowledge.triple_texts import _Texts
from cloze.text import Normalise, TextSpec, Tokenizer, Words
from cloze.text.vocabularies.training import train

FACTS = [("Q1", "P1", "Q2"), ("Q2", "P2", "Q3"), ("Q3", "P1", "Q1"), ("Q4", "P2", "Q1")]
ENTITIES = {"Q1": "red old house", "Q2": "river", "Q3": "a very long text of eight words", "Q4": ""}
RELATIONS = {"P1": "stands by", "P2": "flows to"}
SIDES = ("", "relation.", "tail.")
WANT = frozenset({"relation.tokens", "tail.tokens", "column/fact"})


def graph(folder: Path, facts: list[tuple[str, str, str]] = FACTS) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "facts.tsv").write_text("".join("\t".join(fact) + "\n" for fact in facts))
    for name, texts in (("entities", ENTITIES), ("relations", RELATIONS)):
        (folder / f"{name}.tsv").write_text("".join(f"{key}\t{text}\n" if text else f"{key}\n" for key, text in texts.items()))
    made = read_graph([folder / "facts.tsv"], entities=folder / "entities.tsv", relations=folder / "relations.tsv")
    made.save(folder / "graph")
    return folder / "graph"


def tokenizer() -> Tokenizer:
    return train(TextSpec(Normalise(), Words(min_count=1)), [*ENTITIES.values(), *RELATIONS.values(), "Q4 P3"])


def store(source: _Texts, folder: Path) -> Store:
    return source.build_store([graph(folder)], tokenizer(), folder / "store", base=None, report=lambda line: None)


def spelled(bound: Any, epoch: int = 0, max_tokens: int = 40) -> list[tuple[str, str, str, int]]:
    plan = bound.plan(epoch, max_tokens)
    rows = bound.read(plan, np.arange(len(plan)), WANT)
    read = bound.store.tokenizer()
    texts = [
        [read.decode(rows[f"{side}tokens"][i, : rows[f"{side}length"][i]]) for side in SIDES] for i in range(len(plan))
    ]
    return [(*text, int(fact)) for text, fact in zip(texts, rows["column/fact"], strict=True)]


def text_of(name: str) -> str:
    return {**ENTITIES, **RELATIONS}[name] or name


TRUE = {tuple(map(text_of, fact)) for fact in FACTS}


def test_rows_are_facts_and_wrong_triples_of_one_side(tmp_path: Path) -> None:
    source = TripleTexts(negatives=Negatives(one_side=2))
    bound = source.bind(store(source, tmp_path), seed=1, entry="main")
    found = spelled(bound)
    assert len(found) == 4 * 3
    assert {row[:3] for row in found if row[3]} == TRUE
    wrong = [row[:3] for row in found if not row[3]]
    assert len(wrong) == 8 and not set(wrong) & TRUE
    assert [fact for *_, fact in found] != sorted((fact for *_, fact in found), reverse=True)  # spread over the epoch
    plan = bound.plan(0, 40)
    document = bound.read(plan, np.arange(12), WANT)["document"]
    for number, fact in enumerate(FACTS):
        own = [row[:3] for row, of in zip(found, document, strict=True) if of == number and not row[3]]
        changed = {tuple(a != text_of(b) for a, b in zip(row, fact, strict=True)) for row in own}
        assert changed in ({(True, False, False)}, {(False, False, True)})


def test_wrong_triples_are_new_in_every_epoch_and_the_same_wherever_a_row_is_made(tmp_path: Path) -> None:
    source = TripleTexts(negatives=Negatives(one_side=2))
    bound = source.bind(store(source, tmp_path), seed=1, entry="main")
    assert len({frozenset(spelled(bound, epoch)) for epoch in range(6)}) > 1
    plan = bound.plan(0, 40)
    whole, alone = bound.read(plan, np.arange(12), WANT), pickle.loads(pickle.dumps(bound)).read(plan, np.array([5]), WANT)
    for side in SIDES:
        length = alone[f"{side}length"][0]
        assert whole[f"{side}length"][5] == length
        assert (whole[f"{side}tokens"][5, :length] == alone[f"{side}tokens"][0, :length]).all()


def test_the_longest_text_of_a_row_loses_its_end(tmp_path: Path) -> None:
    source = TripleTexts(negatives=Negatives())
    bound = source.bind(store(source, tmp_path), seed=1, entry="main")
    found = {row[:3] for row in spelled(bound, max_tokens=8)}
    assert ("river", "flows to", "a very long text of") in found and ("a very long", "stands by", "red old house") in found
    with pytest.raises(RecipeError, match="can hold 2 tokens of text; a triple needs 3"):
        bound.plan(0, 2)


def test_a_text_that_is_not_read_takes_no_room_from_the_others(tmp_path: Path) -> None:
    """`_truncate_seq_pair(tokens_a, tokens_b)` of run_bert_relation_prediction.py: head and tail share the room."""
    source = TripleTexts(negatives=Negatives())
    bound = source.bind(store(source, tmp_path), seed=1, entry="main")
    plan = bound.plan(0, 8)
    for want, tail in ((frozenset({"tail.tokens"}), 7), (WANT, 5)):  # "river", "flows to", "a very long text of eight words"
        rows = bound.read(plan, np.arange(len(plan)), want)
        (fact,) = np.flatnonzero(rows["document"] == 1)
        assert (rows["length"][fact], rows["tail.length"][fact]) == (1, tail)


def test_rows_are_entities_and_triples_tell_which(tmp_path: Path) -> None:
    source = EntityTexts(negatives=Negatives(head=1, tail=2))
    bound = source.bind(store(source, tmp_path), seed=1, entry="main")
    plan = bound.plan(0, 40)
    rows = bound.read(plan, np.arange(4), frozenset())
    read = bound.store.tokenizer()
    texts = [read.decode(rows["tokens"][i, : rows["length"][i]]) for i in range(20)]
    assert bound.widths(plan, np.arange(4)).tolist() == [5] * 4
    assert rows["owner"].tolist() == [n for n in range(4) for _ in range(5)]
    for owner in range(4):
        own, triples = texts[5 * owner : 5 * owner + 5], rows["triple"][5 * owner : 5 * owner + 5]
        named = [(own[h], text_of(f"P{r + 1}"), own[t]) for h, r, t in triples[:4]]
        assert triples[4].tolist() == [-1, -1, -1]
        assert named[0] in TRUE and not set(named[1:]) & TRUE
        assert triples[:4, 0].tolist() == [0, 2, 0, 0] and triples[:4, 2].tolist() == [1, 1, 3, 4]
        assert own[:2] == [named[0][0], named[0][2]]


def test_conditioned_entities_are_read_with_their_relation_and_stand_in_facts_and_wrong_triples(tmp_path: Path) -> None:
    """As KEscore of THU-KEG/KEPLER: (h_r, t), (h, t_r), (wrong head, t_r), (h_r, wrong tail)."""
    source = EntityTexts(conditioned=True)
    bound = source.bind(store(source, tmp_path), seed=1, entry="main")
    plan = bound.plan(0, 8)
    rows = bound.read(plan, np.arange(4), frozenset({"relation.tokens", "relation.length"}))
    read = bound.store.tokenizer()
    texts, relations = (
        [read.decode(rows[f"{side}tokens"][i, : rows[f"{side}length"][i]]) for i in range(24)] for side in ("", "relation.")
    )
    for owner in range(4):
        own, triples = texts[6 * owner : 6 * owner + 6], rows["triple"][6 * owner : 6 * owner + 6]
        assert triples.tolist() == [[4, r := triples[0, 1], 1], [0, r, 5], [2, r, 5], [4, r, 3], [-1] * 3, [-1] * 3]
        assert relations[6 * owner : 6 * owner + 6] == [""] * 4 + [text_of(f"P{r + 1}")] * 2
        cut = {"a very long text of eight words": "a very long text of eight"}  # beside two words, of 8
        assert own[4:] == [cut.get(text, text) for text in own[:2]]
    assert not source.keeps_empty and source.gives >= {"relation.tokens", "relation.length"}
    with pytest.raises(RecipeError, match="entity_texts: relation_texts and conditioned are two uses of the same texts"):
        EntityTexts(relation_texts=True, conditioned=True)


def test_held_out_relations_have_the_numbers_of_training(tmp_path: Path) -> None:
    source = EntityTexts()
    known = store(source, tmp_path)
    other = graph(tmp_path / "dev", [("Q2", "P2", "Q1"), ("Q1", "P1", "Q3")])
    made = source.build_store([other], tokenizer(), tmp_path / "dev" / "store", base=known, report=lambda line: None)
    assert made.relation_ids == ["P1", "P2"] == known.relation_ids
    assert (made.triples[:, 1] - made.entities).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("Q1\tP9\tQ2\n", "the entities of the training part have texts, and these have none"), ("", "no triples"),
    ],
)
def test_held_out_facts_that_cannot_be_read_are_refused(tmp_path: Path, facts: str, message: str) -> None:
    source = EntityTexts()
    known = store(source, tmp_path)
    (tmp_path / "dev.tsv").write_text(facts)
    with pytest.raises(CorpusError, match=message):
        source.build_store([tmp_path / "dev.tsv"], tokenizer(), tmp_path / "dev", base=known, report=lambda line: None)


def test_an_unknown_relation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("a\tlikes\tb\nb\tlikes\ta\n")
    (tmp_path / "dev.tsv").write_text("a\tlike\tb\n")
    source, said = EntityTexts(), list[str]()
    known = source.build_store([tmp_path / "train.tsv"], tokenizer(), tmp_path / "store", base=None, report=said.append)
    assert said[0].endswith("2 entities have no text and are read as their ids")
    with pytest.raises(CorpusError, match=r"the relation 'like' is not in the training part.* Did you mean 'likes'\?"):
        source.build_store([tmp_path / "dev.tsv"], tokenizer(), tmp_path / "dev", base=known, report=said.append)


def test_other_stores_and_no_negatives_are_refused(tmp_path: Path) -> None:
    from cloze.knowledge import Triples

    plain = Triples().build_store([graph(tmp_path)], None, tmp_path / "ids", base=None, report=lambda line: None)
    with pytest.raises(CorpusError, match="this store does not hold the texts of a graph.\n  Give a graph: cloze corpus build"):
        TripleTexts().bind(plain, seed=1, entry="main")
    with pytest.raises(RecipeError, match="entity_texts.negatives: none"):
        EntityTexts(negatives=Negatives())
