"""Words of a segmenter and layers of units: in the store, in its header, in the rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cloze.corpus import Passages, Store
from cloze.corpus.stores.build import build_store, build_store_from_texts
from cloze.errors import CorpusError
from cloze.text import Annotations, Dictionary, ListAnnotator, Mentions, Normalise, TextSpec, Tokenizer, WordPiece, train

TEXTS = ["我们在图书馆学习。他们没有回答。", "北京大学在北京！cat在哪里？", "今天他们没有学习，因为图书馆今天不是开着的。"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TextSpec(Normalise(lower=True), WordPiece(size=200)), TEXTS * 3)


@pytest.fixture
def annotations(tmp_path: Path) -> Annotations:
    (tmp_path / "entities.txt").write_text("北京大学\n北京\n图书馆\n", encoding="utf-8")
    return Annotations(Dictionary(), {"entity": ListAnnotator(file=str(tmp_path / "entities.txt"))})


def test_a_store_keeps_words_and_layers_of_every_sentence(
    tokenizer: Tokenizer, annotations: Annotations, tmp_path: Path
) -> None:
    store = build_store_from_texts(TEXTS, tokenizer, tmp_path / "store", annotations=annotations)
    assert store.tokens.tolist() == build_store_from_texts(TEXTS, tokenizer, tmp_path / "plain").tokens.tolist()
    first = [tokenizer.piece(i) for i in store.tokens[:9]]
    assert first == list("我们在图书馆学习。")
    assert store.words(np.arange(9)).astype(int).tolist() == [1, 0, 1, 1, 0, 0, 1, 0, 1]
    assert store.layers["entity"][:9].tolist() == [0, 0, 0, 1, 2, 2, 0, 0, 0]
    start = int(store.document_starts[1])
    assert store.layers["entity"][start : start + 8].tolist() == [1, 2, 2, 2, 0, 1, 2, 0]
    assert store.header["words"] == Dictionary().hash
    Store.open(store.path, verify=True)


def test_workers_make_the_same_store(tokenizer: Tokenizer, annotations: Annotations, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS * 40), encoding="utf-8")
    alone, together = (
        build_store([tmp_path / "text.txt"], tokenizer, tmp_path / f"store{n}", annotations=annotations, workers=n)
        for n in (1, 2)
    )
    assert {k: v for k, v in alone.header.items() if k != "report"} == {k: v for k, v in together.header.items() if k != "report"}


def test_passages_give_the_layers_and_word_starts_with_every_separator(
    tokenizer: Tokenizer, annotations: Annotations, tmp_path: Path
) -> None:
    store = build_store_from_texts(TEXTS * 2, tokenizer, tmp_path / "store", annotations=annotations)
    bound = Passages(across_documents=True, separator="[SEP]").bind(store, seed=1, entry="main")
    assert {"layers/entity", "next.layers/entity", "distractor.layers/entity"} <= bound.gives and "language" not in bound.gives
    plan = bound.plan(0, 40)
    names = frozenset({"word_start", "layers/entity", "next.layers/entity"})
    rows = bound.read(plan, np.argsort(plan.order), names)
    for row in range(len(plan)):
        n = int(rows["length"][row])
        ids, layer = rows["tokens"][row, :n], rows["layers/entity"][row, :n]
        text = "".join(tokenizer.piece(i) if i != 3 else "|" for i in ids)
        units = "".join("." if v == 0 else "B" if v == 1 else "I" for v in layer)
        for unit, marks in (("北京大学", "BIII"), ("图书馆", "BII"), ("|", ".")):
            for at in range(len(text)):
                if len(text) == n and text.startswith(unit, at):
                    assert units[at : at + len(unit)] == marks
    assert rows["next.layers/entity"].dtype == np.uint8


def test_a_store_with_other_words_or_layers_is_refused(tokenizer: Tokenizer, annotations: Annotations, tmp_path: Path) -> None:
    plain = build_store_from_texts(TEXTS, tokenizer, tmp_path / "plain")
    store = build_store_from_texts(TEXTS, tokenizer, tmp_path / "store", annotations=annotations)
    plain.require_annotations(Annotations(), whose="bert")
    store.require_annotations(Annotations(), whose="bert")
    store.require_annotations(annotations, whose="ernie")
    with pytest.raises(CorpusError, match=r"the tokenizer's own words, but bert-wwm says `text\.words`"):
        plain.require_annotations(Annotations(Dictionary()), whose="bert-wwm")
    with pytest.raises(CorpusError, match="other words"):
        store.require_annotations(Annotations(Dictionary(built_in=False)), whose="bert-wwm")
    with pytest.raises(CorpusError, match="no annotation layer 'phrase'"):
        store.require_annotations(Annotations(None, {"phrase": annotations.layers["entity"]}), whose="ernie")
    with pytest.raises(CorpusError, match=r"(?s)no annotation layer 'link'.*--annotate link=PART:FILE, such as .*=mentions:FILE"):
        store.require_annotations(Annotations(None, {"link": Mentions()}), whose="wklm")
    (tmp_path / "others.txt").write_text("今天\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="another list for annotation layer 'entity'"):
        store.require_annotations(
            Annotations(None, {"entity": ListAnnotator(file=str(tmp_path / "others.txt"))}), whose="ernie"
        )


def test_a_damaged_layer_is_found(tokenizer: Tokenizer, annotations: Annotations, tmp_path: Path) -> None:
    store = build_store_from_texts(TEXTS, tokenizer, tmp_path / "store", annotations=annotations)
    path = store.path / "layers" / "entity.bin"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorpusError, match="damaged or edited; its checksum"):
        Store.open(store.path, verify=True)
    path.write_bytes(data[:-1])
    with pytest.raises(CorpusError, match="only partly copied"):
        Store.open(store.path)
