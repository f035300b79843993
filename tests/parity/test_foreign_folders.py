"""Folders of others that say something unusual: read with transformers' own scores, or refused with the reason."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cloze.checkpoint.bound import BoundCheckpoints
from cloze.checkpoint.build import build_step
from cloze.checkpoint.warm_start import load_origins
from cloze.cli.main import main
from cloze.errors import CheckpointError
from cloze.interop import import_folder
from cloze.recipe.load import load_recipe

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity


@pytest.fixture
def made(systems: ModuleType, foreign: ModuleType) -> Any:
    """A model of one architecture with some keys changed, and its tokenizer."""

    def build(name: str, cls: str | None = None, **changes: Any) -> tuple[Any, Any]:
        pieces = systems.tokenizer(foreign.KINDS[name].tokenizer)
        return foreign.model_of(foreign.KINDS[name], pieces, cls=cls, **changes), pieces

    return build


def test_an_untied_bart_with_two_tables_of_tokens_is_refused(made: Any, foreign: ModuleType, tmp_path: Path) -> None:
    folder = foreign.save(*made("bart", tie_word_embeddings=False), tmp_path)
    with pytest.raises(CheckpointError, match="encoder.embed_tokens.weight differs from model.shared.weight"):
        import_folder(folder)


def test_an_untied_bart_with_one_table_of_tokens_keeps_its_output_rows(made: Any, foreign: ModuleType, tmp_path: Path) -> None:
    model, pieces = made("bart", tie_word_embeddings=False)
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_tokens.weight = torch.nn.Parameter(model.model.shared.weight.detach().clone())
    foreign.save(model, pieces, tmp_path)
    foreign.assert_equal(model, tmp_path)
    assert import_folder(tmp_path).model.heads["token_prediction"].argument("tie") is False


def test_a_bart_with_a_bias_on_the_vocabulary_is_refused(made: Any, foreign: ModuleType, tmp_path: Path) -> None:
    model, pieces = made("bart")
    model.final_logits_bias[0, 7] = 1.0
    with pytest.raises(CheckpointError, match="final_logits_bias is not zero; cloze's network has none"):
        import_folder(foreign.save(model, pieces, tmp_path))


@pytest.mark.parametrize(("name", "key", "value", "meant"), [
    ("xlm", "summary_type", "mean", "first"), ("flaubert", "summary_activation", "tanh", None),
    ("xlnet", "summary_type", "first", "last"), ("xlnet", "summary_activation", "relu", "tanh"),
])  # fmt: skip
def test_a_classifier_that_sums_up_in_another_way_is_left_out_with_the_reason(
    made: Any, foreign: ModuleType, tmp_path: Path, name: str, key: str, value: str, meant: str | None
) -> None:
    imported = import_folder(foreign.save(*made(name, foreign.KINDS[name].classifier, **{key: value}), tmp_path))
    assert not imported.model.heads
    assert f"{key} is {value!r}, where cloze has {meant!r} in the head classifier" in imported.remarks[0]


def test_that_xlm_reads_a_language_where_transformers_is_told_none_is_said(
    made: Any, foreign: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, pieces = made("xlm")
    foreign.save(model, pieces, tmp_path / "in")
    assert main(["import", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
    assert "adds a language's vector only where it is given `langs`; cloze reads language 0" in capsys.readouterr().out
    foreign.assert_equal(model, tmp_path / "out", langs=0)


def test_an_untied_generator_with_narrower_embeddings_is_refused_before_anything_is_written(
    made: Any, foreign: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign.save(*made("electra", "ElectraForMaskedLM", tie_word_embeddings=False), tmp_path / "in")
    assert main(["import", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "the head masked_lm cannot be read: its output rows are its own and as wide as the layers (64)" in said
    assert not (tmp_path / "out").exists()


def test_a_t5_of_transformers_5_without_rows_of_its_own_predicts_with_the_table(
    made: Any, foreign: ModuleType, tmp_path: Path
) -> None:
    model, pieces = made("t5", tie_word_embeddings=False)
    assert model.config.scale_decoder_outputs is False and model.config.tie_word_embeddings is True
    foreign.save(model, pieces, tmp_path)
    foreign.assert_equal(model, tmp_path)
    (remark,) = import_folder(tmp_path).remarks
    assert remark.startswith("lm_head.weight is not in the file: transformers uses the token table in its place")


def test_rows_that_config_json_ties_but_the_file_holds_apart_are_used_as_in_transformers_5(
    made: Any, foreign: ModuleType, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    foreign.save(*made("bert"), tmp_path)
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    table = tensors["bert.embeddings.word_embeddings.weight"]
    save_file({**tensors, "cls.predictions.decoder.weight": table.flip(0).contiguous()}, weights, {"format": "pt"})
    model = transformers.AutoModelForPreTraining.from_pretrained(tmp_path).eval()
    assert not torch.equal(model.cls.predictions.decoder.weight, model.bert.embeddings.word_embeddings.weight)
    foreign.assert_equal(model, tmp_path)
    assert "although config.json ties the two" in import_folder(tmp_path).remarks[0]


def test_a_class_whose_head_the_file_lacks_is_named(made: Any, foreign: ModuleType, tmp_path: Path) -> None:
    foreign.save(*made("xlm", "XLMForSequenceClassification", summary_use_proj=False, n_langs=1), tmp_path)
    assert import_folder(tmp_path).remarks == (
        "config.json names XLMForSequenceClassification, and the file lacks its head (classifier).",
    )


def test_vectors_behind_the_ids_of_the_tokenizer_are_left_out_of_a_run_that_starts_there(
    made: Any, foreign: ModuleType, tmp_path: Path
) -> None:
    """As in the published DeBERTaV3, T5 and ModernBERT, whose tables are larger than their tokenizers."""
    model, pieces = made("bert", "BertForMaskedLM")
    model.resize_token_embeddings(pieces.size + 9)
    foreign.save(model, pieces, tmp_path)
    imported = import_folder(tmp_path)
    written = {**load_recipe("bert", size="tiny").canonical(), "networks": {"main": {"from": "start"}}}
    for key in ("exercise", "passes", "sources", "schedule"):
        del written[key]
    recipe = load_recipe({
        **written, "sources": {"main": {"passages": {"length": 16}}},
        "exercise": [{"frame": "[CLS] {A} [SEP]"}, {"mask": {}}, {"predict": "masked"}],
        "objectives": [{"token_prediction": {"transform": "gelu", "tie": True}}],
    }, checkpoints=BoundCheckpoints({"start": tmp_path}))  # fmt: skip
    step, said = build_step(recipe, vocab_size=pieces.size, to_be_loaded=frozenset({"main"})), list[str]()
    load_origins(step, recipe, {"main": tmp_path}, pieces, resumes=False, say=said.append)
    state, old = step.state_dict(), imported.model
    assert torch.equal(state["networks.main.embeddings.tokens.weight"], old.network["embeddings.tokens.weight"][: pieces.size])
    bias = old.heads["token_prediction"].state["head.bias"]
    assert torch.equal(state["objectives.token_prediction.head.bias"], bias[: pieces.size]) and len(bias) == pieces.size + 9
    assert said == [f"{tmp_path}: has 9 vectors more than its tokenizer has ids; they are padding and left out."]
