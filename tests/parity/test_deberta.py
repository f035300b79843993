"""DeBERTa both ways: states, gradients and heads are those of transformers' classes, and what cloze lacks is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.checkpoint.bound import BoundCheckpoints
from cloze.checkpoint.build import build_step, load_checkpoint
from cloze.checkpoint.publish import Publisher
from cloze.checkpoint.share import share
from cloze.checkpoint.warm_start import load_origins
from cloze.errors import CheckpointError, RecipeError
from cloze.interop import Card, export_folder, import_folder
from cloze.interop.arguments import nested
from cloze.networks.clock import Clock
from cloze.recipe.load import load_recipe
from tests.making import network_of

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

LENGTH = 14
V3: dict[str, Any] = {}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "v3": ("deberta-v2", V3),
    "v2-xlarge": ("deberta-v2", {"conv_kernel_size": 3, "conv_act": "gelu", "hidden_act": "gelu_new"}),
    "own maps without buckets": ("deberta-v2", {"share_att_key": False, "position_buckets": -1, "norm_rel_ebd": "none"}),
    "one term, absolute positions and segments": (
        "deberta-v2", {"pos_att_type": ["p2c"], "position_biased_input": True, "type_vocab_size": 2, "conv_kernel_size": 5,
                       "conv_groups": 4},
    ),
    "near distances only": ("deberta-v2", {"max_relative_positions": 9, "pos_att_type": "c2p"}),
    "v1": ("deberta", {}),
    "v1, one term": ("deberta", {"pos_att_type": "p2c", "max_relative_positions": 9}),
    "v1, the other term": ("deberta", {"pos_att_type": "c2p", "position_biased_input": True, "type_vocab_size": 2}),
    "v1 without distances": ("deberta", {"relative_attention": False, "pos_att_type": None, "position_biased_input": True}),
    "no distances": ("deberta-v2", {"relative_attention": False, "pos_att_type": None, "position_biased_input": True}),
}  # fmt: skip


def opened(systems: ModuleType, foreign: ModuleType, folder: Path, form: str, cls: str | None = None) -> tuple[Any, Any]:
    """transformers' model of that form, and what cloze makes of its folder."""
    name, changes = FORMS[form]
    kind = foreign.KINDS[name]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces, cls=cls, **changes)
    return model, load_checkpoint(foreign.save(model, pieces, folder))


def rows(size: int) -> dict[str, Tensor]:
    """Two rows, one of them padded."""
    generator = torch.Generator().manual_seed(1)
    block = (torch.arange(LENGTH) < torch.tensor([[LENGTH], [LENGTH - 4]])).long()
    return {"tokens": torch.where(block > 0, torch.randint(5, size, block.shape, generator=generator), 0), "block": block}


@pytest.mark.parametrize("form", FORMS)
def test_states_and_gradients_are_those_of_transformers(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, form: str
) -> None:
    model, loaded = opened(systems, foreign, tmp_path, form)
    batch = rows(model.config.vocab_size)
    real = batch["block"] > 0
    theirs = model.deberta(input_ids=batch["tokens"], attention_mask=batch["block"], output_hidden_states=True)
    loaded.network.requires_grad_(True)
    ours = loaded.network(want=frozenset({"layers"}), **batch)["layers"]
    for own, other in zip(ours, theirs.hidden_states, strict=True):
        torch.testing.assert_close(own[real], other[real], rtol=0, atol=2e-5)
    for states in (ours[-1], theirs.last_hidden_state):
        (states[real].square() * torch.linspace(-1, 1, states.shape[-1])).sum().backward()
    gradients = [("embeddings.tokens.weight", "embeddings.word_embeddings.weight")]
    if loaded.network.distances is not None:
        gradients.append(("distances.table.weight", "encoder.rel_embeddings.weight"))
    if loaded.network.convolution is not None:
        gradients.append(("convolution.map.weight", "encoder.conv.conv.weight"))
    for own_name, name in gradients:
        own, other = loaded.network.get_parameter(own_name).grad, model.deberta.get_parameter(name).grad
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


@pytest.mark.parametrize("form", ["v3", "v2-xlarge"])
def test_texts_in_one_row_have_the_states_that_each_has_alone(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, form: str
) -> None:
    _, loaded = opened(systems, foreign, tmp_path, form)
    tokens = rows(60)["tokens"][:1]
    block = torch.tensor([[1] * 6 + [2] * 8])
    with torch.no_grad():
        packed = loaded.network(want=frozenset({"hidden"}), tokens=tokens, block=block)["hidden"]
        alone = [loaded.network(want=frozenset({"hidden"}), tokens=part)["hidden"] for part in tokens.split([6, 8], dim=1)]
    torch.testing.assert_close(packed, torch.cat(alone, 1), rtol=0, atol=2e-5)


def test_a_convolution_would_show_tokens_that_another_order_hides(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path
) -> None:
    _, loaded = opened(systems, foreign, tmp_path, "v2-xlarge")
    with pytest.raises(RecipeError, match="a transformer with a convolution reads in the order open alone"):
        loaded.network(want=frozenset({"hidden"}), tokens=rows(60)["tokens"], order="left_to_right")


CLASSES = [
    *(("v3", f"DebertaV2For{task}") for task in ("MaskedLM", "SequenceClassification", "TokenClassification",
                                                 "QuestionAnswering", "MultipleChoice")),
    ("v2-xlarge", "DebertaV2ForMaskedLM"), ("one term, absolute positions and segments", "DebertaV2ForSequenceClassification"),
    ("v3", "DebertaV2Model"),
    *(("v1", f"DebertaFor{task}") for task in ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering")),
    ("v1", "DebertaModel"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "cls"), CLASSES)
def test_every_class_comes_back_with_the_same_tensors_and_its_head(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, form: str, cls: str
) -> None:
    model, loaded = opened(systems, foreign, tmp_path / "theirs", form, cls)
    assert len(loaded.heads) == (0 if cls.endswith("Model") else 1) and not [
        remark for remark in loaded.imported.remarks if "two [SEP]" not in remark
    ]
    share(tmp_path / "theirs", tmp_path / "ours")
    again, info = getattr(transformers, cls).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    expected = model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in again.state_dict().items())


def test_the_head_under_the_authors_names_is_written_under_those_of_transformers(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path
) -> None:
    kind = foreign.KINDS["deberta-v2"]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces, legacy=False)
    foreign.save(model, pieces, tmp_path / "theirs")
    foreign.assert_equal(model, tmp_path / "theirs")
    share(tmp_path / "theirs", tmp_path / "ours")
    again, info = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert again.config.legacy and not info["missing_keys"] and not info["unexpected_keys"]
    foreign.assert_equal(again.eval(), tmp_path / "theirs")


@pytest.mark.parametrize(("changes", "reason"), [
    ({"pos_att_type": "p2c|c2p", "relative_attention": False}, "c2p without relative_attention"),
    ({"pos_att_type": None}, "pos_att_type is None; expected c2p, p2c or both"),
    ({"position_buckets": 7}, "position_buckets is 7; expected an even number from 4 to 29"),
    ({"embedding_size": 32}, "embedding_size is 32; cloze's network has 64 there"),
    ({"type_vocab_size": 1}, "type_vocab_size is 1"),
    ({"position_biased_input": True, "max_relative_positions": 20}, "20 and max_position_embeddings 30"),
])  # fmt: skip
def test_what_cloze_lacks_is_refused_by_name(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    kind = foreign.KINDS["deberta-v2"]
    pieces = systems.tokenizer(kind.tokenizer)
    foreign.save(foreign.model_of(kind, pieces, **changes), pieces, tmp_path)
    with pytest.raises(CheckpointError, match=reason):
        import_folder(tmp_path)


def test_the_heads_of_the_authors_files_of_v3_are_read(systems: ModuleType, foreign: ModuleType, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    kind = foreign.KINDS["deberta-v2"]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.save(foreign.model_of(kind, pieces, legacy=False), pieces, tmp_path) / "model.safetensors"
    width, generator = 64, torch.Generator().manual_seed(2)
    shapes = {"dense.weight": (width, width), "dense.bias": (width,), "LayerNorm.weight": (width,), "LayerNorm.bias": (width,),
              "classifier.weight": (1, width), "classifier.bias": (1,)}  # fmt: skip
    head = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    unread = {"deberta.embeddings.position_embeddings.weight": torch.zeros(30, width)}
    save_file({**load_file(model), **{f"mask_predictions.{n}": t for n, t in head.items()}, **unread}, model, {"format": "pt"})
    loaded = load_checkpoint(tmp_path)
    assert list(loaded.heads) == ["token_prediction", "token_labelling"] and not loaded.imported.remarks
    hidden = torch.randn(2, 7, width, generator=generator)
    block = torch.tensor([[1, 1, 1, 2, 2, 2, 2], [3, 3, 3, 3, 3, 0, 0]])
    summaries = torch.tensor([7, 0, 3])  # in any order
    context = torch.stack([hidden[0, [0, 0, 0, 3, 3, 3, 3]], hidden[1, [0] * 7]])
    normed = torch.nn.functional.layer_norm(hidden + context, (width,), head["LayerNorm.weight"], head["LayerNorm.bias"], 1e-7)
    active = torch.nn.functional.gelu(normed @ head["dense.weight"].t() + head["dense.bias"])
    expected = (active @ head["classifier.weight"].t() + head["classifier.bias"]).squeeze(-1)
    objective: Any = loaded.heads["token_labelling"]
    packed = {"block": block, "summaries": summaries}
    scores = objective.scores({"hidden": hidden, "summary": hidden.flatten(0, 1)[summaries]}, packed).view(2, 7)
    torch.testing.assert_close(scores[block > 0], expected[block > 0], rtol=1e-4, atol=1e-4)
    alone = objective.scores({"hidden": hidden, "summary": hidden[:, 0]}, {}).view(2, 7)
    assert not torch.allclose(alone[0], scores[0]) and torch.allclose(alone[1, :5], scores[1, :5], atol=1e-5)


def test_a_trained_discriminator_opens_in_transformers_with_the_sum_of_both_tables_and_goes_on_from_there(
    systems: ModuleType, tmp_path: Path
) -> None:
    recipe, pieces = load_recipe("deberta-v3-xsmall", size="tiny"), systems.tokenizer("unigram")
    step = build_step(recipe, vocab_size=pieces.size)
    names = {name: f"networks.{name}.embeddings.tokens.weight" for name in ("generator", "discriminator")}
    state = dict(step.state_dict())
    assert not state[names["discriminator"]].any()
    state[names["discriminator"]] = torch.randn_like(state[names["discriminator"]])
    Publisher(recipe, pieces)(tmp_path, state, 0)
    table = state[names["generator"]] + state[names["discriminator"]]
    model, info = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == "DebertaV2Model" and not info["missing_keys"] and not info["unexpected_keys"]
    assert torch.equal(model.embeddings.word_embeddings.weight, table)
    written = recipe.canonical()
    written["networks"] = {"generator": {"from": "g"}, "discriminator": {"from": "d"}}
    folders = {"generator": tmp_path / "cloze" / "networks" / "generator", "discriminator": tmp_path}
    again = load_recipe(written, checkpoints=BoundCheckpoints({"g": folders["generator"], "d": tmp_path}))
    begun = build_step(again, vocab_size=pieces.size, to_be_loaded=frozenset(folders))
    load_origins(begun, again, folders, pieces, resumes=False, say=lambda line: None)
    for name in names.values():
        torch.testing.assert_close(begun.state_dict()[name], state[name], rtol=0, atol=1e-6)


def test_the_mask_decoder_is_the_last_layer_twice_with_positions_in_its_queries(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path
) -> None:
    """As the authors call it, by transformers' layers, which take queries of their own."""
    model, _ = opened(systems, foreign, tmp_path / "theirs", "v3")
    imported = import_folder(tmp_path / "theirs").model
    arguments = nested({**imported.flat, "positions.absolute": "decoder"})
    table = torch.randn(30, 64, generator=torch.Generator().manual_seed(3))
    weights = {**imported.network, "mask_decoder.positions.weight": table}
    network = network_of("transformer", **arguments, vocab_size=model.config.vocab_size, clock=Clock()).eval()
    network.load_state_dict(weights)
    batch = rows(model.config.vocab_size)
    real, encoder = batch["block"] > 0, model.deberta.encoder
    with torch.no_grad():
        states = model.deberta(input_ids=batch["tokens"], attention_mask=batch["block"], output_hidden_states=True)
        read = states.hidden_states[-2]
        expected = read + table[:LENGTH]
        for _ in range(2):
            expected, _ = encoder.layer[-1](
                read, encoder.get_attention_mask(batch["block"]), query_states=expected, relative_pos=encoder.get_rel_pos(read),
                rel_embeddings=encoder.get_rel_embedding(),
            )
        for want in ({"decoded"}, {"decoded", "hidden"}):
            torch.testing.assert_close(network(want=frozenset(want), **batch)["decoded"][real], expected[real], rtol=0, atol=2e-5)
    head = replace(imported.heads["token_prediction"], read={"": "decoded"})
    kept = replace(imported, arguments=arguments, network=weights, heads={"mlm": head})
    reading = load_checkpoint(tmp_path / "theirs").imported.reading
    pieces = systems.tokenizer("unigram")
    remarks = export_folder(tmp_path / "ours", model=kept, tokenizer=pieces, reading=reading, card=Card("test"))
    assert "it reads the mask decoder, which transformers' DeBERTa lacks" in remarks[0]
    again, info = transformers.AutoModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert type(again).__name__ == "DebertaV2Model" and not info["missing_keys"] and not info["unexpected_keys"]
    back = load_checkpoint(tmp_path / "ours")
    assert torch.equal(back.network.mask_decoder.positions.weight, table) and back.imported.model.heads["mlm"].read == head.read
