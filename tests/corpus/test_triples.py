"""Knowledge graphs: files of triples, the graph's folder, negatives that are never known facts, rows with their owners."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cloze.corpus import Store, TripleStore
from cloze.corpus.stores.graph import Graph, contains
from cloze.errors import ClozeError, CorpusError, RecipeError
from cloze.knowledge import Triples
from cloze.knowledge.check_triples import check_triples
from cloze.knowledge.entities import read_entities
from cloze.knowledge.linking import linker_of
from cloze.knowledge.negatives import Corruption, Negatives, head_rates
from cloze.knowledge.triple_files import read_graph
from cloze.rng import Draw, row_keys

FACTS = "ada\tknows\tbob\nada\tknows\tcleo\nbob\tknows\tcleo\nada\tlikes\tbob\n"


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.tsv"
    path.write_text(FACTS, encoding="utf-8")
    return path


def built(graph: Path, out: Path, known: Store | None = None) -> TripleStore:
    return Triples().build_store([graph], None, out, base=known, report=lambda line: None)


@pytest.mark.parametrize("rows", [
    "ada,knows,bob\nbob,lives in,\"Paris, Texas\"\n", "ada, knows, bob\nbob, lives in, \"Paris, Texas\"\n",
    "head,relation,tail\nada,knows,bob\nbob,lives in,\"Paris, Texas\"\n",
])
def test_facts_are_read_from_csv(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "facts.csv"
    path.write_text(rows)
    graph = read_graph([path])
    assert graph.entities == ("ada", "bob", "Paris, Texas") and graph.relations == ("knows", "lives in")
    path.write_text(rows + "ada,likes,Paris, Texas\n")
    with pytest.raises(CorpusError, match=r"4 cells, expected 3 .*separated by commas\.\n  Quote an id that contains a comma"):
        read_graph([path])


def test_names_with_spaces_between_commas_are_never_split(tmp_path: Path) -> None:
    path = tmp_path / "facts.txt"
    path.write_text("New York,in,New Zealand\nada,lives in,Bonn\nParis,in,France\n")
    assert read_graph([path]).entities == ("New York", "New Zealand", "ada", "Bonn", "Paris", "France")
    path.write_text("Paris,lies right in,France\n")
    with pytest.raises(CorpusError, match=r"facts.txt:1: commas and spaces both separate three cells: .*\n  Separate .* by tabs"):
        read_graph([path])


def test_a_graph_numbers_ids_in_order_of_appearance_and_counts_a_repeated_fact_once(facts: Path) -> None:
    facts.write_text(FACTS + "ada\tlikes\tbob\n", encoding="utf-8")
    graph = read_graph([facts])
    assert graph.entities == ("ada", "bob", "cleo") and graph.relations == ("knows", "likes")
    assert graph.triples.tolist() == [[0, 0, 1], [0, 0, 2], [1, 0, 2], [0, 1, 1]]
    assert graph.report["lines"] == 5 and graph.report["repeats"] == 1


def test_line_ends_with_carriage_returns_change_nothing(facts: Path) -> None:
    plain = read_graph([facts])
    facts.write_bytes(b"\xef\xbb\xbf" + FACTS.replace("\n", "\r\n").encode())
    assert read_graph([facts]).hash == plain.hash


def test_a_saved_graph_is_opened_with_its_texts(facts: Path, tmp_path: Path) -> None:
    entities = tmp_path / "e.tsv"
    entities.write_text("cleo\tCleo, a  cat\nada\nbob\tBob\neve\t\n", encoding="utf-8")
    graph = read_graph([facts], entities=entities)
    assert graph.entities == ("cleo", "ada", "bob", "eve") and graph.triples[0].tolist() == [1, 0, 2]
    graph.save(tmp_path / "graph")
    opened = Graph.open(tmp_path / "graph")
    assert opened.hash == graph.hash and opened.entity_texts == ("Cleo, a cat", "", "Bob", "") and opened.relation_texts is None
    assert opened.texts == ("Cleo, a cat", "ada", "Bob", "eve", "knows", "likes")
    (tmp_path / "graph" / "entities.txt").write_text("cleo\nada\nbob\nmallory\n")
    with pytest.raises(CorpusError, match="damaged or edited"):
        Graph.open(tmp_path / "graph")


@pytest.mark.parametrize("header", ["id\tlabel\ttype", "\nid\tname\ttypes"])
def test_a_table_of_entities_is_one_to_graphs_links_and_tables(header: str, facts: Path, tmp_path: Path) -> None:
    table = tmp_path / "e.tsv"
    table.write_text(f"{header}\ncleo\tCleo\tcat\nada\tAda L.\tperson\nbob\tBob\n", encoding="utf-8")
    graph, names = read_graph([facts], entities=table), {one: entity.names for one, entity in read_entities(str(table)).items()}
    assert graph.entities == ("cleo", "ada", "bob") and graph.entity_texts == ("Cleo", "Ada L.", "Bob")
    assert names == {"cleo": ("Cleo",), "ada": ("Ada L.",), "bob": ("Bob",)}
    assert [found["id"] for found in linker_of([str(table)]).mentions("Ada L. met Cleo")] == ["ada", "cleo"]


def test_a_table_of_entities_without_labels_gives_descriptions_and_wrong_columns_are_told(facts: Path, tmp_path: Path) -> None:
    table = tmp_path / "e.tsv"
    table.write_text("id\tdescription\tcount\nada\twrote  a program\t3\nbob\ncleo\ta cat\t1\n", encoding="utf-8")
    assert read_graph([facts], entities=table).entity_texts == ("wrote a program", "", "a cat")
    table.write_text("id\tlabel\nada\tAda\tperson\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="e.tsv:2: 3 cells, expected up to 2: id, label"):
        read_graph([facts], entities=table)
    table.write_text("id\tlabels\nada\tAda\n", encoding="utf-8")
    for read in (lambda: read_graph([facts], entities=table), lambda: read_entities(str(table))):
        with pytest.raises(CorpusError, match="e.tsv:1: unknown column 'labels'. Did you mean 'label'?"):
            read()


@pytest.mark.parametrize(("text", "said"), [
    ("ada\tknows\n", r"facts\.tsv:1: 2 cells, expected 3 \(head, relation, tail\), separated by tabs.\n  Complete the line"),
    (FACTS + "a\tb\tc\td\n", r"facts\.tsv:5: 4 cells, expected 3"),
    (FACTS + "a\t\tc\n", r"facts\.tsv:5: an empty cell"),
    ("new york knows bob\n", r"facts\.tsv:1: 4 cells.*separated by spaces.\n  Ids that contain spaces need"),
    ("", r"facts\.tsv: no triples"),
    ("ada\tbob\tknows\nbob\tcleo\tknows\n", r"order of its columns is ambiguous: 1 id of the first column are in the second.*\n"
     r"  Build a graph and name the columns: cloze corpus build .*facts\.tsv --format triples --columns head,tail,relation"),
])  # fmt: skip
def test_a_file_that_cannot_be_read_says_where_and_what_to_do(facts: Path, text: str, said: str) -> None:
    facts.write_text(text, encoding="utf-8")
    with pytest.raises(ClozeError, match=said):
        read_graph([facts])


def test_the_order_of_columns_is_stated_never_guessed(facts: Path) -> None:
    expected = read_graph([facts])
    turned = "".join(f"{h}\t{t}\t{r}\n" for h, r, t in (line.split("\t") for line in FACTS.splitlines()))
    facts.write_text(turned, encoding="utf-8")
    named = read_graph([facts], columns=["head", "tail", "relation"])
    assert named.hash == expected.hash
    facts.write_text("subject\tobject\tpredicate\n" + turned, encoding="utf-8")
    assert read_graph([facts]).hash == expected.hash
    with pytest.raises(CorpusError, match="--columns head,tail: expected head, relation and tail"):
        read_graph([facts], columns=["head", "tail"])


def test_files_of_openke_are_known_by_their_count(tmp_path: Path) -> None:
    (tmp_path / "train2id.txt").write_text("3\n0 1 0\n0 2 0\n1 0 1\n")
    (tmp_path / "entity2id.txt").write_text("3\nada\t0\nbob\t1\ncleo\t2\n")
    (tmp_path / "relation2id.txt").write_text("2\nknows\t0\nlikes\t1\n")
    graph = read_graph(
        [tmp_path / "train2id.txt"], entities=tmp_path / "entity2id.txt", relations=tmp_path / "relation2id.txt"
    )
    assert graph.entities == ("ada", "bob", "cleo") and graph.relations == ("knows", "likes")
    assert graph.triples.tolist() == [[0, 0, 1], [0, 0, 2], [1, 1, 0]]
    assert graph.entity_texts is None and "head, tail, relation" in graph.report["files"][0]["said"]


def test_an_id_that_is_not_listed_is_an_error_with_its_line(facts: Path, tmp_path: Path) -> None:
    (tmp_path / "e.tsv").write_text("ada\nbob\n")
    (tmp_path / "r.tsv").write_text("knows\tknows somebody\nlikes\tlikes somebody\n")
    with pytest.raises(CorpusError, match=r"facts\.tsv:2: the entity 'cleo' is not in .*e\.tsv.\n  Add it"):
        read_graph([facts], entities=tmp_path / "e.tsv")
    with pytest.raises(CorpusError, match="Are the columns in another order"):
        read_graph([facts], entities=tmp_path / "e.tsv", relations=tmp_path / "r.tsv", columns=["relation", "head", "tail"])
    (tmp_path / "e.tsv").write_text("ada\nbob\nada\n")
    with pytest.raises(CorpusError, match=r"e\.tsv:3: the id 'ada' is already in line 1"):
        read_graph([facts], entities=tmp_path / "e.tsv")


def test_a_check_finds_shared_facts_and_unknown_ids(facts: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.tsv"
    test.write_text("bob\tknows\tcleo\ncleo\tknows\teve\ncleo\tknows\teve\n")
    found = check_triples([test], against=[facts])
    assert (found.shared, found.unknown, found.repeats, found.unusable) == (1, 2, 1, True)
    assert found.shared_places == [f"{test}:1 is {facts}:3"] and found.unknown_places[0] == f"{test}:2: eve"
    assert "2 triples, 3 entities, 1 relation (1 repeats left out)" in found.lines()
    assert not check_triples([facts]).unusable
    graphs = []
    for path in (test, facts):
        graphs.append(tmp_path / f"{path.stem}-graph")
        read_graph([path]).save(graphs[-1])
    for checked, training, unknown in ((graphs[0], facts, 1), (graphs[0], graphs[1], 1), (test, graphs[1], 2)):
        of_graph = check_triples([checked], against=[training])  # a graph has no repeats
        assert (of_graph.shared, of_graph.unknown, of_graph.unusable) == (1, unknown, True)


def test_a_relation_with_the_id_of_an_entity_gets_a_spelling_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_text("ada\tada\tbob smith\nbob smith\tknows\tada\n")
    store = built(tmp_path / "facts.tsv", tmp_path / "store")
    assert store.tokenizer().spellings == ("[UNK]", "ada", "bob smith", "relation:ada", "knows")
    assert (store.entities, store.relations, store.documents, store.tokens.tolist()) == (2, 2, 4, [1, 2, 3, 4])
    assert store.triples.tolist() == [[0, 2, 1], [1, 3, 0]]


def test_rows_are_a_fact_and_then_its_negatives_whatever_the_block(facts: Path, tmp_path: Path) -> None:
    store = built(facts, tmp_path / "store")
    source = Triples(negatives=Negatives(either=2, head=1, tail=1, one_side=2)).bind(store, seed=3, entry="main")
    plan = source.plan(0, 3)
    rows = source.read(plan, np.arange(4), frozenset())
    assert rows["tokens"].shape == (28, 3) and rows["owner"].tolist() == np.repeat(np.arange(4), 7).tolist()
    assert source.widths(plan, np.arange(4)).tolist() == [7] * 4
    tokens = rows["tokens"].reshape(4, 7, 3)
    assert (tokens[:, 0] - 1).tolist() == store.triples[plan.order].tolist()
    changed = tokens[:, 1:] != tokens[:, :1]
    assert (changed.sum(2) == 1).all() and not changed[:, :, 1].any()
    assert changed[:, 2, 0].all() and changed[:, 3, 2].all() and (changed[:, 4] == changed[:, 5]).all()
    alone = source.read(plan, np.array([2]), frozenset())
    assert alone["tokens"].tolist() == tokens[2].tolist()
    again = source.read(source.plan(1, 3), np.arange(4), frozenset())["tokens"]
    assert not np.array_equal(np.sort(again, 0), np.sort(rows["tokens"], 0))


def test_negatives_are_uniform_over_the_entities_that_make_no_known_fact() -> None:
    triples = np.array([[0, 0, 1], [0, 0, 3], [2, 0, 3], [0, 1, 4]])
    corruption = Corruption(Negatives(tail=50), triples, entities=6, relations=2, path="graph")
    draw = Draw(row_keys("test", items=np.arange(400)))
    _, found = corruption.entities_for(np.zeros(400, np.int64), draw)
    assert np.unique(found).tolist() == [0, 2, 4, 5]
    shares = np.bincount(found.ravel(), minlength=6) / found.size
    assert np.abs(shares[[0, 2, 4, 5]] - 0.25).max() < 0.01
    heads = Corruption(Negatives(head=50), triples, entities=6, relations=2, path="graph")
    assert np.unique(heads.entities_for(np.full(400, 1), draw)[1]).tolist() == [1, 3, 4, 5]
    known = Corruption(Negatives(tail=50, known="include"), triples, entities=6, relations=2, path="graph")
    assert np.unique(known.entities_for(np.zeros(400, np.int64), draw)[1]).tolist() == [0, 2, 3, 4, 5]


def test_the_more_numerous_side_is_replaced_less_often() -> None:
    # one parent of three children: tph 3, hpt 1, so the head is replaced with probability 3 / 4
    rates = head_rates(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 1]), np.array([1, 2, 3, 2]), 3, "bernoulli")
    assert rates.tolist() == [0.75, 0.5, 0.5]


def test_the_one_side_of_all_wrong_triples_of_a_fact_is_drawn_by_the_same_rate() -> None:
    triples = np.array([[0, 0, 1], [0, 0, 2], [0, 0, 3], [1, 1, 2]])  # tph 3, hpt 1
    draw, firsts = Draw(row_keys("test", items=np.arange(4000))), np.zeros(4000, np.int64)
    for side, share in (("bernoulli", 0.75), ("uniform", 0.5)):
        negatives = Negatives(one_side=2, side=side)  # type: ignore[arg-type]
        on_head = Corruption(negatives, triples, entities=6, relations=2, path="graph").sides(firsts, draw)
        assert (on_head[:, 0] == on_head[:, 1]).all() and abs(on_head.mean() - share) < 0.02


def test_a_way_to_draw_sides_that_are_fixed_is_refused() -> None:
    triples = np.array([[0, 0, 1], [0, 0, 2]])
    with pytest.raises(RecipeError, match="only head and tail are written, whose side is fixed.\n  Leave out side"):
        Corruption(Negatives(head=1, tail=1, side="bernoulli"), triples, entities=6, relations=1, path="graph")


def test_a_fact_without_any_wrong_partner_is_refused() -> None:
    everything = np.array([[a, 0, b] for a in range(2) for b in range(2)])
    with pytest.raises(CorpusError, match="no wrong triple is left.\n  Write negatives: {known: include}"):
        Corruption(Negatives(either=1), everything, entities=2, relations=1, path="graph")


def test_held_out_facts_are_numbered_like_the_training_part(facts: Path, tmp_path: Path) -> None:
    store = built(facts, tmp_path / "store")
    dev = tmp_path / "dev.tsv"
    dev.write_text("cleo\tlikes\tada\n")
    held = built(dev, tmp_path / "held", known=store)
    assert held.tokenizer_hash == store.tokenizer_hash and held.triples.tolist() == [[2, 4, 0]]
    dev.write_text("cleo\tlikes\tAda\n")
    with pytest.raises(CorpusError, match=r"the entity 'Ada' is not in the training part \(1 such\). Did you mean 'ada'"):
        built(dev, tmp_path / "other", known=store)
    assert not (tmp_path / "other").exists()


def test_a_store_of_triples_is_checked_when_it_is_opened(facts: Path, tmp_path: Path) -> None:
    store = built(facts, tmp_path / "store")
    assert Store.open(store.path).mixture_size(3) == 2
    triples = np.fromfile(store.path / "triples.bin", np.int32)
    triples[1] = 2  # an entity where a relation must be
    triples.tofile(store.path / "triples.bin")
    with pytest.raises(CorpusError, match="column 1 holds numbers outside of 3 … 4"):
        Store.open(store.path)


def test_sorted_keys_tell_known_triples(facts: Path) -> None:
    graph = read_graph([facts])
    asked = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 1]])
    assert contains(graph.known(), graph.keys(asked)).tolist() == [True, False, True]
    assert json.dumps(graph.report)
