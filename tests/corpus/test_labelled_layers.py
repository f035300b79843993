"""Layers whose units have labels: from a file of mentions or CoNLL-U to the store, its rows and the items of a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.corpus import Passages, Store
from cloze.corpus.stores.build import build_store, build_store_from_texts
from cloze.errors import CorpusError, RecipeError
from cloze.exercises.facts import TokenFacts
from cloze.exercises.frame import Frame
from cloze.exercises.knowledge.link import Link
from cloze.knowledge import Entities
from cloze.rng import Draw
from cloze.runs.shard_building import annotations_of
from cloze.text import (
    Annotations,
    Case,
    Conllu,
    LexiconAnnotator,
    Mentions,
    Normalise,
    Repeats,
    TextSpec,
    Tokenizer,
    WordPiece,
    train,
)

CURIE = "Marie Curie was born in Warsaw. She moved to Paris with Pierre Curie."
CAPITALS = "Paris is the capital of France, and Warsaw is not."
IDS = {"Marie Curie": "Q1", "Warsaw": "Q2", "Paris": "Q3", "Pierre Curie": "Q4", "France": "Q5"}
TEXTS = [f"{CURIE}\n{CAPITALS}", f"Nobody is named here.\n{CAPITALS}"]


def record(text: str, names: dict[str, str] = IDS) -> dict[str, Any]:
    return {
        "text": text,
        "spans": [{"start": text.find(n), "end": text.find(n) + len(n), "id": i} for n, i in names.items() if n in text],
    }


def written(path: Path, *records: Any) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TextSpec(Normalise(lower=True), WordPiece(size=300)), [*TEXTS, *TEXTS])


@pytest.fixture
def mentions(tmp_path: Path) -> Mentions:
    return Mentions(file=written(tmp_path / "m.jsonl", record(CURIE), record(CAPITALS)))


@pytest.fixture
def store(tokenizer: Tokenizer, mentions: Mentions, tmp_path: Path) -> Store:
    return build_store_from_texts(TEXTS, tokenizer, tmp_path / "store", annotations=Annotations(None, {"entity": mentions}))


def units(store: Store, layer: str = "entity") -> list[tuple[str, str]]:
    """The words of every unit of a store, with the name of its label."""
    tokenizer, names = store.tokenizer(), store.label_names(layer)
    found: list[tuple[list[int], int]] = []
    for token, mark, label in zip(store.tokens, store.layers[layer], store.labels[layer], strict=True):
        assert (mark > 0) == (label > 0)
        if mark == 1:
            found.append(([], int(label)))
        if mark:
            assert found[-1][1] == label
            found[-1][0].append(int(token))
    return [(tokenizer.decode(ids), names[label - 1]) for ids, label in found]


def test_a_store_keeps_the_label_of_every_token_of_a_mention(store: Store) -> None:
    capitals = [("paris", "Q3"), ("france", "Q5"), ("warsaw", "Q2")]
    assert units(store) == [
        ("marie curie", "Q1"), ("warsaw", "Q2"), ("paris", "Q3"), ("pierre curie", "Q4"), *capitals, *capitals,
    ]
    assert sorted(store.header["files"]) == sorted(
        {"layers/entity.bin", "layers/entity.labels.bin", "layers/entity.names", *store.header["files"]}
    )
    assert store.labels["entity"].dtype == np.int32 and Store.open(store.path, verify=True).label_names("entity")[0] == "Q1"


def test_a_store_without_labels_has_the_same_files_and_header_as_before(tokenizer: Tokenizer, tmp_path: Path) -> None:
    plain = build_store_from_texts(TEXTS, tokenizer, tmp_path / "plain")
    assert not plain.layers and not plain.labels and not plain.aligned
    assert {"labels", "annotations", "words"}.isdisjoint(plain.header)
    assert not [name for name in plain.header["files"] if name.startswith("layers/")]


@pytest.mark.parametrize("cut", ["lines", "wrapped", "crlf"])
def test_mentions_are_found_however_the_corpus_is_cut_into_sentences(tokenizer: Tokenizer, tmp_path: Path, cut: str) -> None:
    text = {
        "lines": f"{CURIE}\n{CAPITALS}\n", "crlf": f"{CURIE}\r\n{CAPITALS}\r\n",
        "wrapped": "Marie Curie was born in Warsaw. She moved to\nParis with Pierre\nCurie.\n\n" + CAPITALS + "\n",
    }[cut]
    (tmp_path / "t.txt").write_bytes(text.encode())
    layer = Mentions(file=written(tmp_path / "m.jsonl", record(CURIE), record(CAPITALS)))
    paths = [build_store([tmp_path / "t.txt"], tokenizer, tmp_path / f"s{n}", annotations=Annotations(None, {"entity": layer}),
                         format="sentence" if n else "auto") for n in range(1 if cut == "wrapped" else 2)]
    for made in paths:
        assert [label for _, label in units(made)] == ["Q1", "Q2", "Q3", "Q4", "Q3", "Q5", "Q2"]


def test_workers_make_the_same_labels(tokenizer: Tokenizer, mentions: Mentions, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n\n".join(TEXTS * 30), encoding="utf-8")
    kept = Annotations(None, {"entity": mentions})
    alone, together = (
        build_store([tmp_path / "t.txt"], tokenizer, tmp_path / f"s{n}", annotations=kept, workers=n) for n in (1, 2)
    )
    assert alone.header["files"] == together.header["files"]


@pytest.mark.parametrize(
    ("span", "problem"),
    [
        ({"start": 0, "end": 3, "id": "Q1"}, r"m\.jsonl:2: the mention 0–3, 'Mar', cuts a word of 'Marie'"),
        ({"start": 0, "end": 3, "id": "Q1"}, r"--annotate 'NAME=mentions:\{file: FILE, cut_words: widen\}'"),
        ({"start": 0, "end": 900, "id": "Q1"}, r"m\.jsonl:2: the mention 0–900 of Q1 is outside the text, which has 69 "),
        ({"start": 5, "end": 5, "id": "Q1"}, r"outside the text, which has 69 characters, or empty"),
        ({"start": 5, "end": 6, "id": "Q1"}, r"is white space"),
        ({"start": 0, "end": 5, "id": "a\tb"}, r"an id without line breaks and tabs"),
        ({"start": 0, "end": 5.5, "id": "Q1"}, r"expected two whole numbers"),
        ({"start": 0, "stop": 5, "id": "Q1"}, r"m\.jsonl:2: expected \{\"text\""),
    ],
)
def test_bad_mentions_are_refused_with_their_line(tmp_path: Path, span: dict[str, Any], problem: str) -> None:
    file = written(tmp_path / "m.jsonl", record(CAPITALS), {"text": CURIE, "spans": [span]})
    with pytest.raises(CorpusError, match=problem):
        Mentions(file=file)


def test_a_mention_that_cuts_a_character_or_overlaps_another_is_refused(tmp_path: Path) -> None:
    cut = {"text": "Cafe\u0301 noir", "spans": [{"start": 0, "end": 4, "id": "Q1"}]}
    both = {"text": CURIE, "spans": [{"start": 0, "end": 11, "id": "Q1"}, {"start": 6, "end": 11, "id": "Q4"}]}
    with pytest.raises(CorpusError, match=r"(?s)m\.jsonl:1: .* cuts a character: .*m\.jsonl:2: the mention 6–11 overlaps 0–11"):
        Mentions(file=written(tmp_path / "m.jsonl", cut, both))


def test_mentions_inside_words_are_widened_on_request(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = written(tmp_path / "m.jsonl", {"text": "The Parisians left.", "spans": [{"start": 4, "end": 9, "id": "Q3"}]})
    assert Mentions(file=file, cut_words="widen").annotate("The Parisians left.") == [(4, 13, 0)]
    layers = annotations_of(None, None, [f"entity=mentions:{{file: {file}, cut_words: widen}}"]).layers
    assert layers["entity"].annotate("The Parisians left.") == [(4, 13, 0)]


def test_mentions_of_another_text_are_refused_and_nothing_is_written(tokenizer: Tokenizer, tmp_path: Path) -> None:
    other = record("Warsaw is in Poland.")
    file = written(tmp_path / "m.jsonl", record(CURIE), other)
    out = tmp_path / "store"
    with pytest.raises(CorpusError, match=r"m\.jsonl:2: the corpus has no such text: 'Warsaw is in Poland\.'\. 1 of 2 texts"):
        build_store_from_texts(TEXTS, tokenizer, out, annotations=Annotations(None, {"entity": Mentions(file=file)}))
    assert not out.exists()
    kept = Annotations(None, {"entity": Mentions(file=file, other_texts="ignore")})
    assert units(build_store_from_texts(TEXTS, tokenizer, out, annotations=kept))[0] == ("marie curie", "Q1")


def test_an_annotator_without_a_file_takes_any_store_with_labels_but_annotates_no_text(
    store: Store, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    open_ = Annotations(None, {"entity": Mentions()})
    store.require_annotations(open_, whose="mine")
    with pytest.raises(CorpusError, match="no annotation layer 'other'"):
        store.require_annotations(Annotations(None, {"other": Mentions()}), whose="mine")
    with pytest.raises(RecipeError, match=r"text\.annotate\.entity: this text has to be annotated"):
        build_store_from_texts(TEXTS, tokenizer, tmp_path / "s", annotations=open_)


def test_a_column_of_conllu_labels_every_word(tokenizer: Tokenizer, tmp_path: Path) -> None:
    words = [("1", "Nobody", "PRON"), ("2", "is", "AUX"), ("3", "named", "VERB"), ("4", "here", "ADV"), ("5", ".", "_")]
    rows = "".join(f"{n}\t{w}\t_\t{pos}\t_\t_\t_\t_\t_\t_\r\n" for n, w, pos in words)
    (tmp_path / "a.conllu").write_bytes(f"# sent_id = 1\r\n# text = Nobody is named here.\r\n{rows}\r\n".encode())
    layer = Conllu(file=str(tmp_path / "a.conllu"))
    made = build_store_from_texts(TEXTS, tokenizer, tmp_path / "s", annotations=Annotations(None, {"pos": layer}))
    assert units(made, "pos") == [("nobody", "PRON"), ("is", "AUX"), ("named", "VERB"), ("here", "ADV")]


def test_names_of_labels_may_hold_the_line_breaks_of_other_alphabets(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "w.tsv").write_text("nobody\tA\u2028B\x85\x0bC\nnamed\tlast\n", encoding="utf-8")
    layers = {"pos": LexiconAnnotator(file=str(tmp_path / "w.tsv"))}
    made = build_store_from_texts(["Nobody is named here."], tokenizer, tmp_path / "s", annotations=Annotations(None, layers))
    assert made.label_names("pos") == ("A\u2028B\x85\x0bC", "last")
    assert units(made, "pos") == [("nobody", "A\u2028B\x85\x0bC"), ("named", "last")]


def test_an_ideograph_is_a_word_that_may_occur_elsewhere() -> None:
    first, other = Repeats().annotate_documents(["北京人口2026年。", "北人2026"], [2])
    assert first == [(0, 1, 1), (1, 2, 0), (2, 3, 1), (3, 4, 0), (4, 8, 1), (8, 9, 0)]
    assert other == [(0, 1, 1), (1, 2, 1), (2, 6, 1)]


def test_words_are_labelled_by_a_lexicon_by_their_case_and_by_whether_they_occur_elsewhere(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (tmp_path / "w.tsv").write_text("# words\nParis\tgood\nnot\tbad\ncapital of\tnone\nborn\tfine\r\n", encoding="utf-8")
    lexicon = LexiconAnnotator(file=str(tmp_path / "w.tsv"), labels={"negative": ["bad"], "positive": ["good", "fine"]})
    layers = {"polarity": lexicon, "case": Case(), "repeats": Repeats()}
    store = build_store_from_texts(TEXTS[:1], tokenizer, tmp_path / "s", annotations=Annotations(None, layers))
    assert store.label_names("polarity") == ("negative", "positive")
    good = [("born", "positive"), ("paris", "positive"), ("paris", "positive"), ("not", "negative")]
    assert units(store, "polarity") == good
    assert [word for word, label in units(store, "case") if label == "capital"] == [
        "marie", "curie", "warsaw", "she", "paris", "pierre", "curie", "paris", "france", "warsaw",
    ]
    assert sorted({word for word, label in units(store, "repeats") if label == "elsewhere"}) == ["curie", "paris", "warsaw"]


def test_a_lexicon_with_a_line_without_a_label_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.tsv").write_text("good\tpositive\nbad negative\n", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"w\.tsv:2: 'bad negative'; expected a word and a label with a tab"):
        LexiconAnnotator(file=str(tmp_path / "w.tsv"))


def test_rows_and_their_companions_carry_labels(store: Store) -> None:
    bound = Passages().bind(store, seed=1, entry="main")
    assert {"labels/entity", "next.labels/entity", "distractor.labels/entity"} <= bound.gives
    plan = bound.plan(0, 64)
    wanted = frozenset({"layers/entity", "labels/entity", "distractor.tokens", "distractor.labels/entity"})
    rows = bound.read(plan, np.argsort(plan.order), wanted)
    assert (rows["labels/entity"][0, :2] == 1).all() and rows["distractor.labels/entity"].max() > 0


def entities(store: Store, tmp_path: Path, **extra: Any) -> Any:
    (tmp_path / "e.tsv").write_text("id\tlabel\ttype\r\nQ9\tOslo\tcity\r\nQ3\tParis\tcity|capital\r\nQ1\tMarie Curie\thuman\r\n")
    return Entities(names=str(tmp_path / "e.tsv")).bind(store, **extra)


class Known:
    """Vectors of two entities."""

    words, width, place = ("Q3", "Q7"), 2, "v.txt"

    def find(self, word: str) -> Any:
        return {"Q3": np.float32([1, 2]), "Q7": np.float32([3, 4])}.get(word)


def test_the_table_of_entities_joins_vectors_names_and_types(store: Store, tmp_path: Path) -> None:
    table = entities(store, tmp_path, vectors=Known())
    assert table.ids == ("Q3", "Q7", "Q9", "Q1") and table.size == 5
    assert table.matrix.tolist() == [[0, 0], [1, 2], [3, 4], [0, 0], [0, 0]]
    assert table.names == ("Paris", "", "Oslo", "Marie Curie") and table.types[0] == ("city", "capital")
    assert table.of_label("entity").tolist() == [0, 4, 0, 1, 0, 0]  # Q1, Q2, Q3, Q4, Q5
    again = Entities.over(Entities.restored(table.arrays), store)
    assert (again.ids, again.names, again.types, again.tokens) == (table.ids, table.names, table.types, table.tokens)
    assert (again.matrix == table.matrix).all() and (again.of_label("entity") == table.of_label("entity")).all()


def test_entities_that_the_store_never_mentions_are_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "e.tsv").write_text("/m/1\tOslo\n")
    with pytest.raises(CorpusError, match=r"no label of the layer 'entity' \(Q1, Q2, Q3, …\) is an entity of .*e\.tsv \(/m/1"):
        Entities(names=str(tmp_path / "e.tsv")).bind(store)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("id\tlabel\tcolour\nQ1\ta\tb\n", r"e\.tsv:1: unknown column 'colour'"),
        ("Q1\tParis\nQ1\tOslo\n", r"e\.tsv:2: the id Q1 has a"),
        ("Q1\tParis\nQ2\n", r"e\.tsv:2: 'Q2'; expected id, label"),
        ("id\tlabel\tcount\nQ1\ta\tmany\n", r"e\.tsv:2: the count 'many'"),
        ("\n", r"e\.tsv: no entities in it"),
    ],
)
def test_bad_tables_of_entities_are_refused(store: Store, tmp_path: Path, lines: str, problem: str) -> None:
    (tmp_path / "e.tsv").write_text(lines)
    with pytest.raises(CorpusError, match=problem):
        Entities(names=str(tmp_path / "e.tsv")).bind(store)


def test_link_gives_each_mention_its_entity_after_the_frame(store: Store, tmp_path: Path) -> None:
    table, tokenizer = entities(store, tmp_path), store.tokenizer()
    bound = Passages().bind(store, seed=1, entry="main")
    plan = bound.plan(0, 64)
    rows = bound.read(plan, np.argsort(plan.order), frozenset({"layers/entity", "labels/entity"}))
    draw = Draw(np.zeros(rows.count, np.uint64))
    framed = Frame("[CLS] {A} [SEP]", tokenizer=TokenFacts.of(tokenizer))(rows, draw)
    for tokens in ("first", "all"):
        made = Link(table="entities", layer="entity", tokens=tokens, tables={"entities": table})(framed, draw)  # type: ignore[arg-type]
        items, links = made["items/entity"][0], made["links/entity"][0]
        kept = links[links[:, 0] >= 0]
        assert [table.ids[item - 1] for item in items[items > 0]] == ["Q1", "Q3", "Q3"]
        spelled = [(tokenizer.decode([int(framed["tokens"][0, column])]), table.ids[items[item] - 1]) for column, item in kept]
        assert spelled[0] == (tokenizer.decode([int(store.tokens[0])]), "Q1")
        assert [one for _, one in spelled[-2:]] == ["Q3", "Q3"] and len(spelled) >= (3 if tokens == "first" else 4)
    assert (made["labels/entity"][:, 0] == 0).all()  # [CLS] has no label
