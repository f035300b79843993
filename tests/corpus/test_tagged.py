"""Texts of labelled words: lines, CoNLL-U and JSON lines, and what is wrong with a file."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloze.corpus.readers.labelled import Trained
from cloze.corpus.readers.tagged import TaggedSentences
from cloze.errors import TaskError
from cloze.tasks import task
from cloze.tasks.given import has_texts

CONLL_U = """# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\t_\t_\t_\t_\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t_\t_\t_\t_
2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_

1\t#\t#\tSYM\t_\t_\t_\t_\t_\t_
"""


def read(
    folder: Path, name: str, content: str, labelled: bool = True, columns: list[str] | None = None, **options: Any
) -> TaggedSentences:
    (folder / name).write_text(content, encoding="utf-8")
    chosen: Any = task("token_labelling", **options).for_files(columns=columns, format=None, quoting="auto")
    found: TaggedSentences = chosen.read(folder / name, labelled=labelled)
    return found


def test_a_word_a_line_with_empty_lines_between_texts(tmp_path: Path) -> None:
    found = read(tmp_path, "x.conll", "\nAnn\tB-PER\n#\tO\n\n\nno\tO\n")
    assert found.words == [("Ann", "#"), ("no",)] and found.labels == [("B-PER", "O"), ("O",)] and found.lines == (2, 6)
    spaced = read(tmp_path, "x.txt", "-DOCSTART- -X- O O\n\nAnn NNP B-NP B-PER\n", columns=["text", "pos", "chunk", "label"])
    assert spaced.words == [("Ann",)] and spaced.labels == [("B-PER",)]


def test_lines_before_the_words_of_a_text_are_no_words(tmp_path: Path) -> None:
    begun = read(tmp_path, "x.conll", "-DOCSTART- O\nDat B\n\n-DOCSTART- O\n# O\n")  # flair issue 2060
    assert begun.words == [("Dat",), ("#",)]
    rows = "# id 6d3d{}domain=en\nanna _ _ B-PER\n\n# newdoc\n# sent_id = 2\nrome _ _ O\n"
    for apart in " \t":
        found = read(tmp_path, "x.conll", rows.format(apart), columns=["text", "x", "y", "label"])
        assert found.words == [("anna",), ("rome",)] and found.labels == [("B-PER",), ("O",)]


def test_files_of_universal_dependencies_have_their_columns(tmp_path: Path) -> None:
    for named in ({"text": "form", "label": "upos"}, {}):
        found = read(tmp_path, "x.conllu", CONLL_U, **named)
        assert found.words == [("vamos", "nos"), ("#",)] and found.labels == [("VERB", "PRON"), ("SYM",)]
    assert read(tmp_path, "x.conllu", CONLL_U, label="lemma").labels == [("ir", "nosotros"), ("#",)]
    with pytest.raises(TaskError, match=r"no column 'word'; it has: id, form.*misc\.\n  .* --text form --label upos$"):
        read(tmp_path, "x.conllu", CONLL_U, text="word")


def test_only_blanks_of_ascii_separate_words_and_cells(tmp_path: Path) -> None:
    words = ("New\u00a0York", "a\u2009b", "c\u2028d", "e\x85f", "g\x1ch", "\u00a0")
    for apart, name in ((" ", "x.conll"), ("\t", "x.tsv")):
        found = read(tmp_path, name, "".join(f"{word}{apart}O\n" for word in words))
        assert found.words == [words]
    found = read(tmp_path, "x.jsonl", json.dumps({"text": " ".join(words), "label": ["O"] * len(words)}))
    assert found.words == [words]


def test_lines_with_labels_of_the_run_are_words_also_where_spaces_separate_them(tmp_path: Path) -> None:
    rows = "-DOCSTART- O\n\nAda B-PER\nLovelace I-PER\nlives O\n\nAda B-PER\nworks O\n\n"
    (tmp_path / "x.conll").write_text(rows)
    chosen: Any = task("token_labelling")
    chosen = replace(chosen, trained=Trained(labels=frozenset({"B-PER", "I-PER", "O"})))
    (tmp_path / "x.txt").write_text(rows)
    (tmp_path / "tabs.txt").write_text(rows.replace(" ", "\t"))
    (tmp_path / "texts.txt").write_text("Ada lives\nAda works\n")
    assert has_texts(chosen, str(tmp_path / "texts.txt"))
    for name in ("x.conll", "x.txt", "tabs.txt"):
        examples = chosen.read(tmp_path / name, labelled=False)
        assert examples.words == [("Ada", "Lovelace", "lives"), ("Ada", "works")] and examples.running == (None, None)
        assert examples.labels == [("B-PER", "I-PER", "O"), ("B-PER", "O")]
        assert not has_texts(chosen, str(tmp_path / name))
    (tmp_path / "x.conll").write_text(rows.replace("\n\n", "\n"))  # one long text
    assert [len(words) for words in chosen.read(tmp_path / "x.conll", labelled=False).words] == [5]
    (tmp_path / "x.conll").write_text(rows.replace(" ", " NN X ").replace("\n\n-DOC", "-DOC"))
    chosen = replace(chosen, trained=replace(chosen.trained, columns=("text", "x", "y", "label")))
    found = chosen.read(tmp_path / "x.conll", labelled=False)
    assert found.words[0] == ("Ada", "Lovelace", "lives")


def test_a_heading_between_lines_with_labels_of_the_run_does_not_make_them_texts(tmp_path: Path) -> None:
    chosen: Any = task("token_labelling")
    chosen = replace(chosen, trained=Trained(labels=frozenset({"B-PER", "O"})))
    (tmp_path / "x.conll").write_text("Question_ID : 379\n\nAda B-PER\nlives O\nhere O\n\nQuestion_ID : 380\n\nno O\n")
    with pytest.raises(TaskError, match=r"x.conll:1: 3 cells, expected 2 .*\n  A heading or a comment\? Delete the line\.$"):
        chosen.read(tmp_path / "x.conll", labelled=False)


@pytest.mark.parametrize("separator", "|/")
def test_words_with_labels_of_the_run_behind_them_are_refused_as_text(tmp_path: Path, separator: str) -> None:
    chosen: Any = task("token_labelling")
    chosen = replace(chosen, trained=Trained(labels=frozenset({"B-PER", "O"})))
    path, new = tmp_path / "x.txt", tmp_path / "new.txt"
    path.write_text("Ada|B-PER lives|O 1/2|O\n\nno|O one|O\n".replace("|", separator))
    with pytest.raises(TaskError) as caught:
        chosen.read(path, labelled=False)
    said, way_out = str(caught.value).split("\n")
    first = f"Ada{separator}B-PER"
    assert said == f"{path}:1: {first!r} is a word with a label of this run behind {separator!r}; expected words alone."
    subprocess.run(way_out.removeprefix("  Remove the labels: ").replace("NEW", str(new)), shell=True, check=True)
    assert chosen.read(new, labelled=False).running == ("Ada lives 1/2", "no one")
    path.write_text("Ada lives and/or works at 7|8\nThe label is word|O\n")
    assert len(chosen.read(path, labelled=False)) == 2


def test_columns_of_words_that_nothing_tells_from_texts_are_refused(tmp_path: Path) -> None:
    rows = "big dog\nsmall cat\n\n" * 5
    told = r"x: every line has 2 words, and empty lines .*\n.* such as --columns text,label; for .* ending \.txt\.$"
    with pytest.raises(TaskError, match=told):
        read(tmp_path, "x", rows, labelled=False)
    assert len(read(tmp_path, "x.txt", rows, labelled=False)) == 10
    assert len(read(tmp_path, "x", rows, labelled=False, columns=["text", "label"])) == 5


def test_json_lines_hold_lists(tmp_path: Path) -> None:
    found = read(tmp_path, "x.jsonl", '{"text": ["a", "b"], "label": ["X", "Y"]}\n')
    assert found.words == [("a", "b")] and found.labels == [("X", "Y")]
    without = read(tmp_path, "x.jsonl", '{"text": "a  b"}\n', labelled=False)
    assert without.words == [("a", "b")] and without.labels is None


def test_words_alone_can_be_labelled(tmp_path: Path) -> None:
    found = read(tmp_path, "x.conll", "a\nb\n\nc\n", labelled=False)
    assert found.words == [("a", "b"), ("c",)] and found.labels is None


@pytest.mark.parametrize(("name", "text", "said"), [
    ("x.conll", "a\tX\nb\n", r"x.conll:2: 1 cell, expected 2 \(text, label\)"),
    ("x.conll", "a\nb\n", "no column 'label'; it has: text"),
    ("x.iob", "Ada|NNP|B-PER is|VBZ|O\nno|DT|O one|PRP|O\n", r"x.iob:1: a word and its label with '\|' between them"),
    ("x.conll", "a\t\n", "x.conll:1: an empty 'label'"),
    ("x.conll", "\n\n", "no texts"),
    ("x.conllu", CONLL_U + "2\tcut o", r"x.conllu:9: 2 cells, expected 10 .*\n.*truncated"),
    ("x.tsv", "text\tlabel\nthe cat\tX\n", r"x.tsv:1: this line is a header .*\n  Delete .* JSON lines: {.text"),
    ("x.tsv", "the cat\tX\na\tX\nthe dog\tY\n", r"x.tsv:1: 'the cat' is not a word; expected one word per line .*\n.*JSON lines"),
    ("x.txt", "the cat sleeps\n", r"x.txt:1: 3 cells, expected 2 .*\n.*\n.*JSON lines"),
    ("x.csv", "text,label\n", r"x.csv: labelled words are read from tsv .*, not from csv.*\n  {.text.: \[.Anna., "),
    ("x.conll", "a\tN\tX\n", r"x.conll:1: 3 cells, expected 2 .*\n.*in order, such as --columns text,x,label"),
    ("x.conll", "Question_ID : 379\n\na\tX\nb\tX\n", r"x.conll:1: 3 cells, expected 2 .*\n  A heading or a comment\? Delete"),
    ("x.conll", "a\tX\nb\tX\n\n# no word\nc\tX\n", r"x.conll:4: 1 cell, expected 2 .*\n  A heading or a comment\? Delete"),
    ("x.conll", "a N B X\n", r"x.conll:1: 4 cells, expected 2 .*\n.*in order, such as --columns text,x,y,label"),
    ("x.jsonl", '{"text": ["a"], "label": ["X", "Y"]}\n', "x.jsonl:1: 1 words and 2 labels"),
    ("x.jsonl", '{"text": ["a"]}\n', "x.jsonl:1: no field 'label'"),
    ("x.jsonl", '{"text": "a b", "entities": [[0, 1, "X"]]}\n', r"no field 'label'.*\n  Expected a label for each word: "),
    ("x.jsonl", '{"text": ["a", ""], "label": ["X", "Y"]}\n', "'text' is not a list of words"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        read(tmp_path, name, text)


def test_lines_of_text_are_kept_as_they_are_where_words_are_to_be_labelled(tmp_path: Path) -> None:
    chinese = "北京是中华人民共和国的首都和政治中心。"
    english = "the cat sleeps.\nrain\nthe dog\n"
    for name, text in (("x.txt", "rain\n\n the cat\n"), ("x", f"{chinese}\n{chinese}\n"), ("x", english)):
        found = read(tmp_path, name, text, labelled=False)
        assert found.running == tuple(line for line in text.split("\n") if line) and found.labels is None
    assert found.lines == (1, 2, 3)
    found = read(tmp_path, "x.jsonl", '{"text": "the cat."}\n{"text": ["the", "cat"]}\n', labelled=False)
    assert found.running == ("the cat.", None)
    (tmp_path / "words.txt").write_text("the\ncat\n\nrain\n")
    chosen = task("token_labelling").for_files(columns=None, format="tsv", quoting="auto")
    words = chosen.read(tmp_path / "words.txt", labelled=False)
    assert words.words == [("the", "cat"), ("rain",)] and words.running == (None, None)
    found = read(tmp_path, "x.conll", "北\n京\n\n雨\n", labelled=False)
    assert found.words == [("北", "京"), ("雨",)] and found.running == (None, None)
    found = read(tmp_path, "x.jsonl", '{"text": "the cat", "label": ["X", "Y"]}\n', labelled=False)
    assert found.words == [("the", "cat")] and found.running == (None,)


def test_sentences_are_refused_also_where_they_are_to_be_labelled(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="'the cat sleeps' is not a word"):
        read(tmp_path, "x.tsv", "the cat sleeps\tanimal\nthe rain\tweather\n", labelled=False)
    found = read(tmp_path, "x.tsv", "New York\tB\nis\tO\nbig\tO\n")
    assert found.words == [("New York", "is", "big")]


def test_manners_that_mean_nothing_here_are_refused() -> None:
    chosen: Any = task("token_labelling")
    with pytest.raises(TaskError, match="--quoting standard"):
        chosen.for_files(columns=None, format=None, quoting="standard")
    with pytest.raises(TaskError, match="--beams"):
        chosen.with_beam_search(beams=2, length_penalty=None)
    with pytest.raises(TaskError, match="--format csv"):
        chosen.for_files(columns=None, format="csv", quoting="auto").read("x.csv")
