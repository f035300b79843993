"""Dependency trees: CoNLL-U files, what is wrong in them, and records of trees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cloze.corpus.readers.trees import each_tree
from cloze.corpus.records import Records
from cloze.errors import TaskError
from cloze.exercises.targets.arcs import Arcs
from cloze.rng import Draw, row_keys
from cloze.text import TextSpec, train

SENTENCE = [
    "# text = The cats don't sleep", "1\tThe\t_\tDET\t_\t_\t2\tdet\t_\t_", "2\tcats\t_\tNOUN\t_\t_\t5\tnsubj\t_\t_",
    "3-4\tdon't\t_\t_\t_\t_\t_\t_\t_\t_", "3\tdo\t_\tAUX\t_\t_\t5\taux\t_\t_", "4\tn't\t_\tPART\t_\t_\t5\tadvmod\t_\t_",
    "4.1\tever\t_\tADV\t_\t_\t_\t_\t5:advmod\t_", "5\tsleep\t_\tVERB\t_\t_\t0\troot\t_\t_",
]  # fmt: skip


def write(folder: Path, *sentences: list[str]) -> Path:
    path = folder / "x.conllu"
    path.write_text("\n\n".join("\n".join(lines) for lines in sentences) + "\n\n", encoding="utf-8")
    return path


def test_ranges_and_empty_nodes_are_no_words(tmp_path: Path) -> None:
    first, second = each_tree(write(tmp_path, SENTENCE, SENTENCE[1:]))
    assert first.words == ("The", "cats", "do", "n't", "sleep") and first.heads == (2, 5, 5, 5, 0)
    assert first.relations == ("det", "nsubj", "aux", "advmod", "root") and first.rows == tuple(SENTENCE)
    assert (first.line, second.line) == (1, 10) and second.words == first.words
    (bare,) = each_tree(write(tmp_path, [row.replace("\t5\t", "\t_\t") for row in SENTENCE]), labelled=False)
    assert bare.words == first.words and bare.heads == ()


@pytest.mark.parametrize(("old", "new", "said"), [
    ("2\tdet\t_\t_", "2\tdet", ":2: 8 tab-separated cells, expected the 10 of CoNLL-U"),
    ("2\tcats", "3\tcats", ":3: the id '3', expected 2, a range such as 2-3"),
    ("3-4\t", "2-3\t", ":4: the id '2-3', expected 3"),
    ("3-4\t", "3-9\t", ":4: a range up to the word 9; the sentence has 5"),
    ("5\tnsubj", "9\tnsubj", ":3: the head '9'; expected another word of the sentence, 1 to 5, or 0, the root"),
    ("2\tcats", "9" * 5000 + "\tcats", ":3: the id '999"),
    ("5\tnsubj", "9" * 5000 + "\tnsubj", ":3: the head '999"),
    ("5\tnsubj", "2\tnsubj", ":3: the head '2'; expected another word"),
    ("5\tnsubj", "_\tnsubj", ":3: the head '_'; expected another word"),
    ("5\tnsubj", "5\t_", ":3: an empty 'deprel'; expected the relation"),
    ("5\taux", "0\taux", ":8: a second root; the first is in line 5"),
    ("0\troot", "2\troot", ":2: the word 1 is not connected to the root: its heads form a cycle"),
    ("2\tcats", "2\t", ":3: an empty 'form'"),
])  # fmt: skip
def test_what_is_no_tree_is_told_with_the_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write(tmp_path, "\n".join(SENTENCE).replace(old, new, 1).split("\n"), SENTENCE)
    with pytest.raises(TaskError, match="x.conllu" + said):
        list(each_tree(path))
    told: list[tuple[int, str]] = []
    (kept,) = each_tree(path, fault=lambda line, why: told.append((line, why)))
    assert kept.line == 10 and len(told) == 1 and f":{told[0][0]}: {told[0][1]}".startswith(said)


def test_a_file_that_is_no_conllu_is_told(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"x.conllu:1: 1 tab-separated cell, expected the 10"):
        list(each_tree(write(tmp_path, ["the cat sleeps"])))
    with pytest.raises(TaskError, match="no sentences; expected CoNLL-U"):
        list(each_tree(write(tmp_path, ["# nothing"])))
    with pytest.raises(TaskError, match="no column 'text' in CoNLL-U"):
        list(each_tree(write(tmp_path, SENTENCE), text="text"))


def test_words_are_counted_as_far_as_they_are_shown(tmp_path: Path) -> None:
    """A word whose head is cut off is not asked; one that the tokenizer drops is in no tree, and heads are counted without it."""
    spec = TextSpec.of({"lower": True}, "wordpiece", {"size": 90})
    tokenizer = train(spec, ["the cats do n't sleep"])
    dropped = [row.replace("cats", "\u200b").replace("5\tnsubj", "3\tnsubj") for row in SENTENCE]
    source = Records(answer="tree", text="form", label="deprel")
    path = write(tmp_path, SENTENCE, dropped)
    store = source.build_store([path], tokenizer, tmp_path / "store", base=None, report=lambda line: None)
    assert store.classes == ("advmod", "aux", "det", "nsubj", "root")
    bound = source.bind(store, seed=1, entry="main")
    last = int(store.columns["first"][4])  # the first token of the first sentence's last word
    for max_tokens, heads in ((100, {0: [2, 5, 5, 5, 0], 1: [-1, -1, 4, 4, 0]}), (last, {0: [2, -1, -1, -1, -1]})):
        plan = bound.plan(0, max_tokens)
        rows = bound.read(plan, np.arange(len(plan)), frozenset())
        asked = Arcs()(rows, Draw(row_keys(1, "main", 0, items=np.arange(len(plan)))))
        for record, expected in heads.items():
            row = plan.order.tolist().index(record)
            assert rows["column/head"][row].tolist() == expected
            assert asked["weights/head"][row].tolist() == [float(head >= 0) for head in expected]
            assert asked["positions/label"][row].tolist() == asked["positions/head"][row].tolist() == rows["words"][row].tolist()


def test_real_treebanks_are_read_whole(shared_data: Path) -> None:
    english, chinese = shared_data / "tag_en_ud_ewt", shared_data / "tag_zh_ud_gsdsimp"
    for path, sentences, words in (
        (english / "en_ewt-ud-dev.conllu.xz", 2001, 25147), (english / "en_ewt-ud-test.conllu.xz", 2077, 25094),
        (chinese / "zh_gsdsimp-ud-dev.conllu.xz", 500, 12663),
    ):
        trees = list(each_tree(path))
        assert (len(trees), sum(len(tree.words) for tree in trees)) == (sentences, words)
        assert all(tree.relations[tree.heads.index(0)] == "root" for tree in trees)
