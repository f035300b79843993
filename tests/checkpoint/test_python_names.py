"""cloze from Python: what `import cloze` shows, what a loaded checkpoint says of itself, what is no corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, propose
from cloze.interop import Card, PortableModel, Reading, export_folder
from cloze.networks.clock import Clock
from cloze.runs.run import pretrain
from cloze.text import TextSpec, WordPiece, train
from tests.making import data, network_of


def test_the_package_shows_its_public_names_alone() -> None:
    assert dir(cloze) == sorted(cloze.__all__)
    assert "pretrain" in dir(cloze) and "Any" not in dir(cloze)


@pytest.mark.parametrize(("corpus", "said"), [
    (["The cat sleeps.", "A dog barks."], "'The cat sleeps.' names no file and looks like text"),
    ("One line.\nAnother line.", r"'One line.\\nAnother line.' names no file and looks like text"),
    (["x" * 5000], "names no file and looks like text"),
    ([{"text": "The cat sleeps."}], "a dict is no path"),
])  # fmt: skip
def test_texts_in_place_of_paths_are_refused_in_words(tmp_path: Path, corpus: Any, said: str) -> None:
    with pytest.raises(CorpusError, match=said) as caught:
        pretrain("bert", corpus=corpus, out=tmp_path / "run", budget="1steps")
    assert "From Python, pass texts in memory as a list" in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("missing", ["texts/my file.txt", "my texts/*", "my file.jsonl.gz"])
def test_a_missing_file_with_a_space_in_its_name_is_still_a_missing_file(tmp_path: Path, missing: str) -> None:
    with pytest.raises(CorpusError) as caught:
        cloze.pretrain("bert", corpus=[missing], out=tmp_path / "run", budget="1steps")
    assert "looks like text" not in str(caught.value)


def test_a_loaded_checkpoint_says_what_it_is_in_a_line(tmp_path: Path) -> None:
    pieces = train(TextSpec(tokenizer=WordPiece(size=60)), ["a cat sleeps on the mat"] * 4)
    arguments = {"layers": 1, "width": 16, "heads": 2, "feed_forward.inner": 8, "positions.max_length": 12}
    network = network_of("transformer", **arguments, vocab_size=pieces.size, clock=Clock())
    export_folder(
        tmp_path / "small", model=PortableModel(data("transformer", **arguments), "open", network.state_dict()), tokenizer=pieces,
        reading=Reading("[CLS] {A} [SEP]", None, "first"), card=Card("x"),
    )  # fmt: skip
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert repr(load_checkpoint(tmp_path / "small")) == (
        f"<Loaded '{tmp_path / 'small'}': transformer, layers 1, width 16, {parameters:,} parameters; heads: none; "
        f"wordpiece of {pieces.size}; order open>"
    )


def test_a_name_without_a_neighbour_is_answered_with_examples() -> None:
    assert propose("qqq", [f"name{n}" for n in range(20)]) == (
        "No known name is similar; there are 20, such as name0, name1, name10, name11, name12."
    )


@pytest.mark.parametrize("text_format", ["auto", "line", "csv"])
def test_texts_in_memory_are_read_as_they_are_next_to_files(tmp_path: Path, text_format: str) -> None:
    texts = [f"the cat number {number} sat on the mat ." for number in range(40)]
    (tmp_path / "held.csv").write_text("text,body\n" + "".join(f"wrong,{text}\n" for text in texts[:8]))
    (tmp_path / "held.txt").write_text("".join(f"{text}\n" for text in texts[:8]))
    held_out = tmp_path / ("held.txt" if text_format == "line" else "held.csv")
    cloze.pretrain(
        "quick", corpus=[{"body": text} for text in texts], held_out=held_out, text="body", text_format=text_format,
        out=tmp_path / "run", budget="1steps", size="tiny", fit=False, report=None,
        overrides={"training.batch": 4, "text.tokenizer.size": 100},
    )
    stores = [Store.open(tmp_path / "run" / "cloze" / "corpus" / name / "store") for name in ("main", "held_out")]
    words = [store.tokenizer().decode(store.tokens[: len(store.tokens)]) for store in stores]
    assert [store.documents for store in stores] == [40, 8]
    assert not any("wrong" in text or "{" in text or "body" in text for text in words)
