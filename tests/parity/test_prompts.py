"""Folders of sentence-transformers with prompts, old files and pickled maps: their vectors, and what is found, are theirs."""

from __future__ import annotations

import json
import shutil
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import cloze
from cloze.cli.main import main
from cloze.errors import CheckpointError, TaskError, UserError
from cloze.interop import Card, export_folder, import_folder

pytestmark = pytest.mark.parity
if util.find_spec("sentence_transformers") is None:
    pytest.skip("sentence-transformers is not installed", allow_module_level=True)

QUERIES = ["what sleeps on the mat", "the river"]
PASSAGES = ["The cat sleeps on the mat and dreams.", "Rain fell, and the river rose.", "A dog", "mice"]
PROMPTS = {"query": "a dog: ", "passage": "rain fell, the mat, ", "clustering": "mice "}


@pytest.fixture
def folder(systems: ModuleType, tmp_path: Path) -> Path:
    """A folder of sentence-transformers that cloze did not write: means, compared by cosines."""
    made = systems.system("bert")
    place = tmp_path / "model"
    export_folder(place, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"))
    shutil.rmtree(place / "cloze")
    return place


def write_prompts(folder: Path, **values: Any) -> None:
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": PROMPTS, **values}), encoding="utf-8")


def opened(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("default", [None, "clustering"])
def test_the_prompt_that_is_named_and_the_usual_one_come_before_each_text(folder: Path, default: str | None) -> None:
    write_prompts(folder, default_prompt_name=default)
    model, theirs = cloze.load(folder), opened(folder)
    np.testing.assert_allclose(model.embed(PASSAGES), theirs.encode(PASSAGES), atol=2e-5)
    for name in PROMPTS:
        expected = theirs.encode(PASSAGES, prompt_name=name)
        np.testing.assert_allclose(model.embed(PASSAGES, prompt=name), expected, atol=2e-5)
    plain = theirs.encode(PASSAGES, prompt="")
    np.testing.assert_allclose(model.embed(PASSAGES, pooling="mean"), plain, atol=2e-5)
    assert (np.abs(model.embed(PASSAGES) - plain).max() > 1e-2) == (default is not None)


@pytest.mark.parametrize(
    ("similarity", "names"),
    [("cosine", ("query", "passage")), ("dot", ("query", "passage")), (None, ("query", "document")), (None, ("query", "corpus"))],
)
def test_queries_and_passages_are_compared_with_their_prompts(
    folder: Path, similarity: str | None, names: tuple[str, str]
) -> None:
    prompts = {names[0]: PROMPTS["query"], names[1]: PROMPTS["passage"]}
    write_prompts(folder, prompts=prompts, similarity_fn_name=similarity, default_prompt_name=names[0])
    theirs = opened(folder)
    passage_vectors = theirs.encode(PASSAGES, prompt_name=names[1])
    if names[1] == "document":
        np.testing.assert_array_equal(theirs.encode_document(PASSAGES), passage_vectors)
    scores = theirs.similarity(theirs.encode_query(QUERIES), passage_vectors).numpy()
    for hits, row in zip(cloze.retrieve(cloze.load(folder), QUERIES, PASSAGES), scores, strict=True):
        assert [hit.passage for hit in hits] == np.argsort(-row).tolist()
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(row)[::-1], atol=2e-4)


def test_another_similarity_is_refused_with_its_name(folder: Path) -> None:
    write_prompts(folder, similarity_fn_name="manhattan")
    with pytest.raises(TaskError, match="compares vectors by 'manhattan'"):
        cloze.retrieve(cloze.load(folder), QUERIES, PASSAGES)


def test_prompts_that_no_text_got_are_said_and_a_wrong_name_lists_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prompts(folder)
    assert main(["embed", str(folder), "A dog"]) == 0
    shown = capsys.readouterr()
    assert f"note: {folder} has prompts for query, passage, clustering; no text got one. Name it: --prompt NAME" in shown.err
    assert main(["embed", str(folder), "A dog", "--prompt", "query"]) == 0
    with_prompt = capsys.readouterr()
    assert "has prompts" not in with_prompt.err and with_prompt.out != shown.out
    assert main(["embed", str(folder), "A dog", "--prompt", "document"]) == 2
    assert f"--prompt document: {folder}: it has prompts for query, passage, clustering." in capsys.readouterr().err
    (folder / "config_sentence_transformers.json").unlink()
    with pytest.raises(UserError, match="it has no prompts"):
        cloze.load(folder).embed("A dog", prompt="query")


def test_import_and_export_keep_the_prompts_and_a_model_without_them_removes_them(
    folder: Path, systems: ModuleType, tmp_path: Path
) -> None:
    write_prompts(folder, default_prompt_name="clustering", similarity_fn_name="dot")
    assert main(["import", str(folder), "--out", str(tmp_path / "again")]) == 0
    written = json.loads((tmp_path / "again" / "config_sentence_transformers.json").read_text())
    assert written == {"prompts": PROMPTS, "default_prompt_name": "clustering", "similarity_fn_name": "dot"}
    expected = opened(folder).encode(PASSAGES)
    for reader in (opened(tmp_path / "again").encode, cloze.load(tmp_path / "again").embed):
        np.testing.assert_allclose(reader(PASSAGES), expected, atol=2e-5)
    made = systems.system("bert")
    place = tmp_path / "again"
    export_folder(place, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"))
    assert not (place / "config_sentence_transformers.json").exists()


def test_a_network_in_a_folder_of_its_own_is_refused_with_the_line_that_helps(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    expected = opened(folder).encode(PASSAGES)
    (folder / "0_Transformer").mkdir()
    for file in [path for path in folder.iterdir() if path.is_file() and path.name != "modules.json"]:
        file.rename(folder / "0_Transformer" / file.name)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([{**modules[0], "path": "0_Transformer"}, *modules[1:]]))
    with pytest.raises(CheckpointError, match=r"places the network in 0_Transformer.*\n.*SentenceTransformer\(FOLDER\).save"):
        cloze.load(folder)
    SentenceTransformer(str(folder), device="cpu").save(str(tmp_path / "new"))
    np.testing.assert_allclose(cloze.load(tmp_path / "new").embed(PASSAGES), expected, atol=2e-5)


def test_a_dense_map_in_a_pickle_and_the_length_in_its_old_file_are_read(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer, models

    transformer, pooling = models.Transformer(str(folder)), models.Pooling(16, "mean")
    torch.manual_seed(0)
    SentenceTransformer(modules=[transformer, pooling, models.Dense(16, 5)], device="cpu").save(str(folder / "saved"))
    saved = folder / "saved"
    dense = next(saved.glob("*_Dense"))
    torch.save(load_file(dense / "model.safetensors"), dense / "pytorch_model.bin")
    (dense / "model.safetensors").unlink()
    (saved / "sentence_bert_config.json").unlink()
    (saved / "sentence_roberta_config.json").write_text('{"max_seq_length": 6, "do_lower_case": false}')
    head = import_folder(saved).model.heads["embedding"]
    assert dict(head.arguments)["length"] == 6 and dict(head.arguments)["project"] == 5
    with pytest.warns(UserWarning, match="are longer than 6 tokens and lost their end"):
        vectors = cloze.load(saved).embed(PASSAGES)
    np.testing.assert_allclose(vectors, opened(saved).encode(PASSAGES), atol=2e-5)
