"""Coreference chains: three formats of files, what is left out and what is refused, and answers of two levels in the store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from cloze.corpus import Store
from cloze.corpus.readers.coreference import (
    DISCONTINUOUS,
    EMPTY,
    REPEATED,
    describe_left_out,
    each_document,
    read_documents,
)
from cloze.corpus.records import Answer, ChainAnswers, Record, Records, RecordStore
from cloze.corpus.records.answer import Columns, RecordBlock, RecordEncoder
from cloze.corpus.records.build_records import build_records
from cloze.errors import CorpusError, TaskError
from cloze.text import TextSpec, Tokenizer, train

CONLL = """#begin document (bc/a); part 000
bc/a 0 0 Anna X * - - - Sp * (0|(2)
bc/a 0 1 Smith X * - - - Sp * 0)
bc/a 0 2 met X * - - - Sp * -
bc/a 0 3 her X * - - - Sp * (1(0)
bc/a 0 4 . X * - - - Sp * -

#end document
#begin document (bc/a); part 001
bc/a 1 0 it X * - - - Sp * (7)
bc/a 1 1 rains X * - - - Sp * -

bc/a 1 0 It X * - - - Sp * (7)
#end document
"""


def conll(*cells: str) -> str:
    rows = [f"d 0 {number} {cell.split()[0]} X {cell.split()[1]}\n" for number, cell in enumerate(cells)]
    return "".join(["#begin document (d); part 000\n", *rows, "\n#end document\n"])


def node(number: str, form: str, entity: str = "") -> str:
    return "\t".join([number, form, *"_" * 7, f"Entity={entity}" if entity else "_"]) + "\n"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TextSpec.of({"lower": True}, "wordpiece", {"size": 120}), ["anna smith met her . it rains on the mat all night"])


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_every_part_of_conll_2012_is_a_document_with_nested_mentions(tmp_path: Path) -> None:
    path = write(tmp_path / "x.v4_gold_conll", CONLL.replace("(1(0)", "(0)"))
    first, second = each_document(path)
    assert (first.line, first.name, first.words, first.sentences) == (
        1, "(bc/a); part 000", ("Anna", "Smith", "met", "her", "."), (5,)
    )  # fmt: skip
    assert first.chains == (((0, 0),), ((0, 1), (3, 3))) and first.left_out == {}
    assert (second.line, second.sentences, second.chains) == (9, (2, 1), (((0, 0), (2, 2)),))


@pytest.mark.parametrize(("text", "said"), [
    (CONLL, r"x.conll:5: '\(1\(0\)' in the last column; expected '\(7', '7\)', '\(7\)' or '-'"),
    (conll("a (0", "b -"), r"x.conll:2: a mention of '0' begins and does not end in its document; expected '0\)' after it"),
    (conll("a -", "b 0)"), r"x.conll:3: a mention of '0' ends without a beginning; expected '\(0' before"),
    ("#begin document (d)\nd 0 a\n", r"x.conll:2: 3 columns; expected those of CoNLL-2012: document, part"),
    ("#begin document (d)\n#end document\n", r"x.conll: no documents; expected CoNLL-2012"),
    (conll("a -"), r"x.conll: 1 document without a mention; expected chains"),
    ("a\tO\n", r"x.conll: no documents with chains; expected CoNLL-2012, which begins with \"#begin document\", CorefUD"),
])  # fmt: skip
def test_what_is_no_conll_2012_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        list(each_document(write(tmp_path / "x.conll", text)))


def test_a_document_that_cannot_be_used_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    faults: list[int] = []
    path = write(tmp_path / "x.conll", CONLL)
    (document,) = each_document(path, fault=lambda line, why: faults.append(line))
    assert document.name == "(bc/a); part 001" and faults == [5]


def test_corefud_has_nested_mentions_empty_nodes_and_pieces(tmp_path: Path) -> None:
    rows = [
        "# newdoc id = d1\n", "# global.Entity = eid-etype-head\n", "# sent_id = 1\n",
        node("1-2", "AnnaSmith"), node("1", "Anna", "(e1-person-1(e2-name-1)"), node("2", "Smith", "e1)"),
        node("2.1", "_", "(e1-person-1)"), node("3", "met", "(e4[1/2]--1)"), node("4", "her", "(e1-person-1)(e3-event-"),
        node("4.1", "_", "(e3--(e2--1)"), node("5", "now", "e2)e3)(e4[2/2]--1)"), node("5.1", "_", "e3)"), "\n",
        "# newdoc id = d2\n", node("1", "it", "(e1)"), "\n", node("1", "It", "(e1)"), "\n",
    ]  # fmt: skip
    rows[8] = node("4", "her", "(e1-person-1)(e3-event-1")
    rows[9] = node("4.1", "_", "(e3--1(e2--1")
    first, second = each_document(write(tmp_path / "x.conllu", "".join(rows)))
    assert (first.name, first.words, first.sentences) == ("d1", ("Anna", "Smith", "met", "her", "now"), (5,))
    # e2 and e3 begin at an empty node, so at the next word; e3 also ends at one, so at the word before.
    assert first.chains == (((0, 0), (4, 4)), ((0, 1), (3, 3)), ((3, 4),))
    assert first.left_out == {DISCONTINUOUS: 1, EMPTY: 1, REPEATED: 1}
    assert second.chains == (((0, 0), (1, 1)),) and second.sentences == (1, 1) and second.line == 14
    assert describe_left_out([first.left_out, first.left_out, {}]) == [
        "left out of the chains, which hold spans of words, each once: 2 discontinuous mentions, 2 mentions of empty nodes "
        "alone, 2 repeated mentions (each counts in its first chain)"
    ]


def test_the_header_of_corefud_says_which_attribute_is_the_entity(tmp_path: Path) -> None:
    rows = ["# global.Entity = etype-GRP-x\n", node("1", "it", "(object-7-new)"), node("2", "It", "(object-7-giv)"), "\n"]
    (document,) = each_document(write(tmp_path / "x.conllu", "".join(rows)))
    assert document.chains == (((0, 0), (1, 1)),)


@pytest.mark.parametrize(("rows", "said"), [
    (node("1", "it", "(e1"), r"x.conllu:1: a mention of 'e1' begins and does not end"),
    (node("1", "it", "e1"), r"x.conllu:1: Entity=e1; expected brackets such as '\(e7-person-1-'"),
    ("1\tit\n", r"x.conllu:1: expected the 10 tab-separated cells of CoNLL-U \(id, form"),
    (node("1", "it"), r"x.conllu: 1 document without a mention"),
])  # fmt: skip
def test_what_is_no_corefud_is_refused_with_its_line(tmp_path: Path, rows: str, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        list(each_document(write(tmp_path / "x.conllu", rows + "\n")))


def test_json_lines_hold_words_or_sentences(tmp_path: Path) -> None:
    rows = [
        {"doc_key": "d", "sentences": [["Anna", "met"], ["her"]], "clusters": [[[2, 2], [0, 0]]]},
        {"tokens": ["a", "cat"], "clusters": []},
        {"words": ["a", "cat"], "clusters": [[[0, 1]], [[0, 1]]]},
    ]
    documents = list(each_document(write(tmp_path / "x.jsonl", "".join(json.dumps(row) + "\n" for row in rows))))
    assert [d.chains for d in documents] == [(((0, 0), (2, 2)),), (), (((0, 1),),)]
    assert [d.sentences for d in documents] == [(2, 1), (2,), (2,)] and documents[0].name == "d"
    assert documents[2].left_out == {REPEATED: 1}


@pytest.mark.parametrize(("row", "said"), [
    ({"text": ["a"], "clusters": []}, r"x.jsonl:1: no field 'tokens'"),
    ({"tokens": ["a"]}, r"x.jsonl:1: no field 'clusters'.*\[\[\[0, 0\], \[2, 3\]\]\]"),
    ({"tokens": ["a", ""], "clusters": []}, r"x.jsonl:1: 'tokens' is not a list of words"),
    ({"tokens": ["a"], "clusters": {}}, r"x.jsonl:1: 'clusters' is not a list"),
    ({"tokens": ["a"], "clusters": [[0, 0]]}, r"x.jsonl:1: 0 is not a mention; expected a list of chains"),
    ({"tokens": ["a"], "clusters": [[[0, 1]]]}, r"x.jsonl:1: the mention \[0, 1\]; expected the numbers of its first and of its "
     r"last word, from 0 to 0.\n  If these are the word after the last one, subtract 1"),
])  # fmt: skip
def test_what_is_no_row_of_chains_is_refused_with_its_line(tmp_path: Path, row: Any, said: str) -> None:
    with pytest.raises(TaskError, match=f"(?s){said}"):
        list(each_document(write(tmp_path / "x.jsonl", json.dumps(row) + "\n")))


def test_files_without_chains_are_read_for_predictions(tmp_path: Path) -> None:
    texts = {
        "a.jsonl": '{"tokens": "it rains"}\n', "b.jsonl": '{"tokens": ["it", "rains"]}\n',
        "c.conllu": node("1", "it") + node("2", "rains"), "d.txt": "it rains\n",
    }  # fmt: skip
    for name, text in texts.items():
        read = read_documents(write(tmp_path / name, text), text="tokens", label="clusters", format=None, labelled=False)
        assert read.words == [("it", "rains")] and read.sentences == ((2,),) and len(read) == 1
        assert read.running == ("it rains" if name[0] in "ad" else None,)
    with pytest.raises(TaskError, match=r"chains are not read from csv; expected CoNLL-2012"):
        read_documents(tmp_path / "b.jsonl", text="tokens", label="clusters", format="csv", labelled=True)


def test_chains_are_answers_of_two_levels(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "x.jsonl", "".join(json.dumps(row) + "\n" for row in [
        {"tokens": ["Anna", "Smith", "met", "her"], "clusters": [[[0, 1], [3, 3]], [[2, 2]]]},
        {"tokens": ["it"], "clusters": []},
        {"tokens": ["it", "rains", "it"], "clusters": [[[0, 0], [2, 2], [1, 1]]]},
    ]))  # fmt: skip
    source = Records(text="tokens", label="clusters", answer="chains")
    store = source.build_store([path], tokenizer, tmp_path / "store", base=None, report=lambda line: None)
    assert store.bounds is None and {name: array.tolist() for name, array in store.offsets.items()} == {
        "words": [0, 4, 5, 8], "chains": [0, 2, 2, 3], "mentions": [0, 2, 3, 6],
    }  # fmt: skip
    tokens = [len(tokenizer.encode(word).ids) for word in ("anna", "smith", "met")]
    begins = np.cumsum([0, *tokens]).tolist()
    again = Store.open(store.path, verify=True)
    assert isinstance(again, RecordStore)
    answers = again.answers(np.array([2, 0, 1]))
    rain = len(tokenizer.encode("it").ids), len(tokenizer.encode("it rains").ids)
    places = [0, *rain]
    assert answers["word"].tolist() == [[*places, -1], begins, [0, -1, -1, -1]]
    assert answers["first"].tolist() == [[places, [-1] * 3], [[0, begins[3], -1], [begins[2], -1, -1]],
                                         [[-1] * 3, [-1] * 3]]  # fmt: skip
    assert answers["last"][1].tolist() == [[begins[1], begins[3], -1], [begins[2], -1, -1]]
    assert ChainAnswers().head_arguments(store.stored, ()) == {"singletons": True}
    assert ChainAnswers().description(store.stored, ()) == {"chains": 3, "mentions": 6}
    assert json.loads(store.about["constant_answer"])[:2] == ["it", "anna smith"]


def test_a_window_has_the_mentions_that_it_contains_whole(tmp_path: Path, tokenizer: Tokenizer) -> None:
    words = ["it"] * 6
    path = write(tmp_path / "x.jsonl", json.dumps({"tokens": words, "clusters": [[[0, 0], [2, 3], [5, 5]], [[1, 1]]]}) + "\n")
    size = len(tokenizer.encode("it").ids)
    source = Records(text="tokens", label="clusters", answer="chains", stride=2 * size)
    store = source.build_store([path], tokenizer, tmp_path / "store", base=None, report=lambda line: None)
    bound = source.bind(store, seed=1, entry="main")
    plan = bound.plan(0, 3 * size)
    rows = bound.read(plan, np.argsort(plan.order), frozenset())
    spans = rows["spans"].reshape(len(plan), 2, 3, 2) // size  # chains, mentions, ends
    assert [sorted(map(tuple, row[row[..., 0] >= 0].tolist())) for row in spans] == [
        [(0, 0), (1, 1)], [(0, 1)], [(1, 1)],
    ]  # fmt: skip
    assert rows["column/chain"].reshape(len(plan), 2, 3)[0].tolist() == [[0, -1, -1], [1, -1, -1]]


class _Deep(RecordEncoder):
    """A list of lists of lists of numbers for each text."""

    def __call__(self, records: Sequence[Record], path: str) -> RecordBlock:
        block = super().__call__(records, path)
        outer = [record.answer for record in records]
        middle = [item for answer in outer for item in answer]
        inner = [item for items in middle for item in items]
        nested = {
            name: np.array([len(items) for items in level], np.int64)
            for name, level in (("outer", outer), ("middle", middle), ("inner", inner))
        }
        numbers = np.array([number for items in inner for number in items], np.int32)
        return block._replace(columns={"number": numbers, "size": nested["inner"].astype(np.int32)}, nested=nested)


class _DeepAnswer(Answer):
    columns: ClassVar[Mapping[str, Any]] = {"number": np.int32, "size": np.int32}
    nested: ClassVar[Mapping[str, tuple[str, ...]]] = {"number": ("outer", "middle", "inner"), "size": ("outer", "middle")}
    encodes = _Deep

    def __init__(self, answers: Sequence[Any]) -> None:
        self.given = answers

    def read(self, path: Path | str, columns: Columns, fault: Any = None) -> Any:
        return (Record(n, ("it rains",), answer) for n, answer in enumerate(self.given, start=1))


DEEP: list[Any] = [[[[1, 2], []], []], [], [[[3]], [[4, 5, 6], [7]]], [[[]]]]


def _laid(answers: Sequence[Any], shape: Sequence[int]) -> NDArray[np.int64]:
    laid = np.full(shape, -1)
    for record, outer in enumerate(answers):
        for i, middle in enumerate(outer):
            for j, inner in enumerate(middle):
                laid[record, i, j, : len(inner)] = inner
    return laid


@pytest.mark.parametrize("chosen", [[0, 1, 2, 3], [2], [1], [3, 1], [2, 2, 0]])
def test_answers_may_have_any_number_of_levels(tmp_path: Path, tokenizer: Tokenizer, chosen: list[int]) -> None:
    columns = Columns("text", None, "label", None, None, "auto")
    store = build_records([tmp_path / "none"], tokenizer, tmp_path / "store", answer=_DeepAnswer(DEEP), columns=columns)
    answers = store.answers(np.array(chosen))
    assert answers["number"].tolist() == _laid([DEEP[n] for n in chosen], answers["number"].shape).tolist()
    assert answers["size"].shape == answers["number"].shape[:3]
    sizes = [[[len(inner) for inner in middle] for middle in DEEP[n]] for n in chosen]
    for row, outer in zip(answers["size"], sizes, strict=True):
        assert [[n for n in middle if n >= 0] for middle in row[: len(outer)].tolist()] == outer
        assert (row[len(outer) :] == -1).all()


def test_a_store_whose_levels_do_not_fit_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    columns = Columns("text", None, "label", None, None, "auto")
    store = build_records([tmp_path / "none"], tokenizer, tmp_path / "store", answer=_DeepAnswer(DEEP), columns=columns)
    header = json.loads((store.path / "store.json").read_text())
    header["records"]["nested"]["size"] = ["outer"]
    (store.path / "store.json").write_text(json.dumps(header))
    with pytest.raises(CorpusError, match="records/size has 6 entries, expected 5. Build it again"):
        Store.open(store.path)
