"""The table of surface forms: candidates and priors as the tokenizer reads the names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cloze.corpus import Store
from cloze.corpus.stores.build import build_store_from_texts
from cloze.errors import CorpusError, RecipeError
from cloze.knowledge import Surfaces
from cloze.knowledge.surfaces import read_surfaces
from cloze.text import Normalise, TextSpec, WordPiece, train

TEXTS = ["the bank of the river", "a river bank and the bank"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    tokenizer = train(TextSpec(Normalise(lower=True), WordPiece(size=60)), TEXTS * 3)
    return build_store_from_texts(TEXTS, tokenizer, tmp_path_factory.mktemp("s") / "store")


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_priors_are_shares_of_a_name_and_only_the_most_probable_candidates_stay(store: Store, tmp_path: Path) -> None:
    """Two spellings that are one to the tokenizer are one name."""
    rows = "bank\tmoney\t6\nBank\tshore\t1\nbank\tshore\t1\nbank\tslope\t1\nriver bank\tshore\n"
    found = Surfaces(file=written(tmp_path / "c.tsv", rows), most=2).bind(store)
    assert found.ids == ("money", "shore", "slope") and found.size == 3 and found.null == 4
    assert found.candidates.tolist() == [[0, 0], [1, 2], [2, 0], [5, 0]]
    np.testing.assert_allclose(found.priors, [[0, 0], [0.75, 0.25], [1, 0], [1, 0]])


def test_a_name_is_found_at_the_start_of_a_text_and_behind_a_space(tmp_path: Path) -> None:
    """Byte-level BPE has other pieces for the two."""
    tokenizer = train(TextSpec.of({}, "byte_bpe", {"size": 300}), ["Rome and Rome", "at Rome", *TEXTS] * 3)
    store = build_store_from_texts(["Rome and Rome"], tokenizer, tmp_path / "store")
    found = Surfaces(file=written(tmp_path / "c.tsv", "Rome\tcity\n")).bind(store)
    read = tokenizer.encode_batch(["Rome", " Rome"])
    assert read[0].ids.tolist() != read[1].ids.tolist()
    grams = {tuple(number for number in row if number >= 0) for row in found.arrays["grams"].tolist()}
    assert grams == {(), *(tuple(one.ids.tolist()) for one in read)}


@pytest.mark.parametrize(("rows", "problem"), [
    ("bank\tmoney\nbank\n", r"c\.tsv:2: 'bank'; expected a surface form, the id of an entity and a prior from 0 on"),
    ("bank\tmoney\tmuch\n", r"c\.tsv:1: .*a prior from 0 on"),
    ("bank\tmoney\t-1\n", r"c\.tsv:1: .*a prior from 0 on"),
    ("bank\tmoney\tnan\n", r"c\.tsv:1: .*a prior from 0 on"),
    ("bank\tmoney\t1\tmore\n", r"c\.tsv:1: .*a prior from 0 on"),
    ("\tmoney\n", r"c\.tsv:1: .*expected a surface form"),
    ("\n", r"c\.tsv: no surface forms; expected lines of surface form, id and prior"),
])
def test_a_file_that_is_no_table_of_candidates_is_refused_with_its_line(tmp_path: Path, rows: str, problem: str) -> None:
    with pytest.raises(CorpusError, match=problem):
        read_surfaces(written(tmp_path / "c.tsv", rows))


def test_names_in_another_script_and_a_missing_file_are_told(store: Store, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no surface form has 1 to 16 tokens of .* without \[UNK\]\.\n  Give surface forms in"):
        Surfaces(file=written(tmp_path / "c.tsv", "Москва\tQ649\n")).bind(store)
    with pytest.raises(CorpusError, match="no file of candidates. Name one: --bind NAME=FILE"):
        Surfaces().bind(store)
    with pytest.raises(RecipeError, match=r"surfaces\.most: got 0"):
        Surfaces(most=0)
    with pytest.raises(CorpusError, match="The file is damaged: copy it again"):
        Surfaces.restored({"ids": np.frombuffer(b"[]", np.uint8)})
