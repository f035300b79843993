"""`cloze import` reads systems built on BERT as their authors release them: states equal their formulas on the file's tensors.

Files are written here with the names and shapes of the authors' modules and random numbers; the expected states are computed from
these tensors by the equations of their code, and never by cloze.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.interop.released_files import (
    BLOCK,
    CLASSES,
    CONFIG,
    FEATURES,
    REAL,
    TOKENS,
    WORDS,
    Names,
    State,
    attend,
    folder,
    imported,
    layer,
    linear,
    meet,
    norm,
    refusal,
    regions,
    text,
    wrapped,
)

# --- UNITER --------------------------------------------------------------------------------------------------------------


def uniter() -> State:
    names = Names()
    names.bert("uniter.")
    for part, inputs in (("img_linear", FEATURES), ("pos_linear", 7)):
        names.linear(f"uniter.img_embeddings.{part}", 8, inputs)
    for part in ("img_layer_norm", "pos_layer_norm", "LayerNorm"):
        names.norm(f"uniter.img_embeddings.{part}", 8)
    names.table("uniter.img_embeddings.mask_embedding.weight", 2, FEATURES)
    names.words("cls.", "uniter.embeddings.word_embeddings.weight")
    for head in ("feat_regress", "region_classifier"):
        names.linear(f"{head}.net.0", 8, 8)
        names.norm(f"{head}.net.2", 8)
    names.linear("region_classifier.net.3", CLASSES, 8)
    names.state["feat_regress.weight"] = names.state["uniter.img_embeddings.img_linear.weight"]
    names.table("feat_regress.bias", FEATURES)
    names.linear("itm_output", 2, 8)
    return names.state


def test_uniters_file_gives_the_states_and_scores_of_the_authors_formulas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, (fields, features, box) = uniter(), regions()
    source = folder(tmp_path / "uniter", state, CONFIG, weights="uniter-base.pt", file="uniter-base.json")
    (source / "vocab.txt").write_text("\n".join(WORDS) + "\n")  # of bert-base-cased
    (source / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    loaded, told = imported(capsys, source, tmp_path / "out")
    assert "visual: 2 layers, width 8" in told and "used by no part" not in told
    assert set(loaded.heads) == {"token_prediction", "match", "features", "classes"}

    lead = "uniter.img_embeddings."
    hidden = torch.tensor([[0, 1, 0], [0, 0, 0]])
    features[0, 1] = 0.0
    masked = features + state[f"{lead}mask_embedding.weight"][1] * hidden[..., None]  # row 0 is set to zero
    size = box[..., 2:] - box[..., :2]
    numbers = torch.cat([box, size, size[..., :1] * size[..., 1:]], -1)  # of data/data.py: corners, width, height, area
    x = norm(state, f"{lead}img_layer_norm", linear(state, f"{lead}img_linear", masked))
    x = x + norm(state, f"{lead}pos_layer_norm", linear(state, f"{lead}pos_linear", numbers))
    x = norm(state, f"{lead}LayerNorm", x + state["uniter.embeddings.token_type_embeddings.weight"][1])
    x, real = torch.cat([text(state, "uniter."), x], 1), torch.cat([BLOCK, REAL], 1)
    for number in range(2):
        x = layer(state, f"uniter.encoder.layer.{number}", x, real)

    states = loaded.network.eval()(
        want=frozenset({"hidden", "item_hidden", "summary"}), tokens=TOKENS, block=BLOCK, items={"regions/masked": hidden},
        **fields,
    )
    torch.testing.assert_close(states["hidden"][BLOCK > 0], x[:, :4][BLOCK > 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states["item_hidden"][REAL > 0], x[:, 4:][REAL > 0], atol=1e-5, rtol=0)
    pooled = linear(state, "uniter.pooler.dense", x[:, 0]).tanh()
    transformed = {
        name: norm(state, f"{name}.net.2", F.gelu(linear(state, f"{name}.net.0", x[:, 4:]))) for name in
        ("feat_regress", "region_classifier")
    }
    expected = {
        "match": linear(state, "itm_output", pooled),
        "features": transformed["feat_regress"] @ state["feat_regress.weight"] + state["feat_regress.bias"],
        "classes": linear(state, "region_classifier.net.3", transformed["region_classifier"]),
    }
    for name, values in expected.items():
        read = states["summary"] if name == "match" else states["item_hidden"]
        torch.testing.assert_close(loaded.heads[name].head(read)[0], values[0], atol=1e-4, rtol=0)


def test_a_file_without_a_config_is_refused_with_what_to_put_next_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder(tmp_path / "uniter", uniter(), {}, weights="uniter-base.pt", file="config.json")
    told = refusal(capsys, source)
    assert "no config of a network; the weights are those of UNITER" in told
    assert "Put uniter-base.json next to them, and the tokenizer of bert-base-cased" in told


# --- ERNIE (Tsinghua) ----------------------------------------------------------------------------------------------------

ERNIE = {**CONFIG, "num_hidden_layers": 3, "layer_types": ["sim", "mix", "norm"]}


def ernie() -> State:
    names = Names()
    names.bert("bert.")
    names.layer("bert.encoder.layer.2")
    for number in (1, 2):
        lead = f"bert.encoder.layer.{number}."
        names.linear(f"{lead}intermediate.dense_ent", 12, 100)
        names.linear(f"{lead}output.dense_ent", 100, 12)
        names.norm(f"{lead}output.LayerNorm_ent", 100)
    for part in ("self_ent.query", "self_ent.key", "self_ent.value", "output_ent.dense"):
        names.linear(f"bert.encoder.layer.2.attention.{part}", 100, 100)
    names.norm("bert.encoder.layer.2.attention.output_ent.LayerNorm", 100)
    names.words("cls.", "bert.embeddings.word_embeddings.weight")
    names.linear("cls.predictions_ent.transform.dense", 100, 8)
    names.norm("cls.predictions_ent.transform.LayerNorm", 100)
    names.linear("cls.seq_relationship", 2, 8)
    return names.state


def ernie_folder(place: Path, config: Mapping[str, Any] = ERNIE) -> tuple[Path, State, Tensor]:
    state, vectors = ernie(), torch.randn(3, 100, generator=torch.Generator().manual_seed(2))
    source = folder(place, state, config, weights="pytorch_model.bin", file="ernie_config.json")
    (source / "kg_embed").mkdir()
    (source / "kg_embed" / "entity2id.txt").write_text("3\nQ7\t0\nQ8\t2\nQ9\t1\n")
    rows = "".join("\t".join(map(repr, row)) + "\t\n" for row in vectors.tolist())
    (source / "kg_embed" / "entity2vec.vec").write_text(rows)
    return source, state, vectors


def test_ernies_file_gives_the_states_of_the_authors_formulas_with_the_vectors_of_its_entities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, state, vectors = ernie_folder(tmp_path / "ernie_base")
    loaded, told = imported(capsys, source, tmp_path / "out")
    assert "knowledge_fusion: 3 layers, width 8" in told and "used by no part" not in told
    assert set(loaded.heads) == {"token_prediction", "relation_prediction", "entity_prediction"}
    table = loaded.tables["entities"]
    assert table.ids == ("Q7", "Q9", "Q8")

    x, mask = text(state, "bert."), torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0]])
    e = torch.zeros(2, 4, 100)  # an entity for each token, as in run_fewrel.py: zeros without one, and the first token is real
    e[0, 1], e[0, 3] = vectors[2], vectors[0]
    for number in range(3):
        lead = f"bert.encoder.layer.{number}"
        x = meet(state, lead, x, BLOCK)
        inner = linear(state, f"{lead}.intermediate.dense", x)
        if number:
            e = (meet(state, lead, e, mask, "_ent", 4) if number == 2 else e) * mask[..., None]
            inner = inner + linear(state, f"{lead}.intermediate.dense_ent", e)
        h = F.gelu(inner)
        x = norm(state, f"{lead}.output.LayerNorm", linear(state, f"{lead}.output.dense", h) + x)
        if number:
            e = norm(state, f"{lead}.output.LayerNorm_ent", linear(state, f"{lead}.output.dense_ent", h) + e)

    states = loaded.network.eval()(
        want=frozenset({"hidden"}), tokens=TOKENS, block=BLOCK, items={"entity": torch.tensor([[3, 1], [0, 0]])},
        links={"entity": torch.tensor([[1, 0], [3, 1]])},
    )
    torch.testing.assert_close(states["hidden"][BLOCK > 0], x[BLOCK > 0], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("file", "contents", "message"), [
    ("ernie_config.json", json.dumps({**ERNIE, "layer_types": ["mix", "sim", "norm"]}), "expected a kind for each layer: sim …"),
    ("kg_embed/entity2id.txt", "2\nQ7\t0\nQ9\t1\n", "3 vectors of width 100; entity2id.txt numbers 2 entities"),
    ("kg_embed/entity2vec.vec", "0.5 zero\n", "cannot be read (could not convert string 'zero'"),
    ("kg_embed/entity2vec.vec", None, "Put entity2vec.vec and entity2id.txt of the authors' kg_embed into"),
])  # fmt: skip
def test_ernies_files_that_do_not_fit_each_other_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, contents: str | None, message: str
) -> None:
    source, _, _ = ernie_folder(tmp_path / "ernie_base")
    (source / file).unlink()
    if contents is not None:
        (source / file).write_text(contents)
    assert message in refusal(capsys, source)


# --- ViLBERT -------------------------------------------------------------------------------------------------------------

VILBERT = {
    **CONFIG, "v_feature_size": FEATURES, "v_target_size": CLASSES, "v_hidden_size": 6, "v_num_hidden_layers": 1,
    "v_num_attention_heads": 3, "v_intermediate_size": 7, "bi_hidden_size": 4, "bi_num_attention_heads": 2,
    "v_biattention_id": [0], "t_biattention_id": [1], "v_hidden_act": "gelu", "pooling_method": "mul",
}  # fmt: skip


def vilbert() -> State:
    names = Names()
    names.bert("bert.")
    for part in ("weight", "bias"):
        del names.state[f"bert.pooler.dense.{part}"]
    names.linear("bert.v_embeddings.image_embeddings", 6, FEATURES)
    names.linear("bert.v_embeddings.image_location_embeddings", 6, 5)
    names.norm("bert.v_embeddings.LayerNorm", 6)
    names.layer("bert.encoder.v_layer.0", 6, 7)
    cross = "bert.encoder.c_layer.0."
    for number, (width, inner, lead) in enumerate(((6, 7, "v"), (8, 12, "t")), 1):
        for part in ("query", "key", "value"):
            names.linear(f"{cross}biattention.{part}{number}", 4, width)
        for part in ("dense", "q_dense"):
            names.linear(f"{cross}biOutput.{part}{number}", width, 4)
        names.norm(f"{cross}biOutput.LayerNorm{number}", width)
        names.linear(f"{cross}{lead}_intermediate.dense", inner, width)
        names.linear(f"{cross}{lead}_output.dense", width, inner)
        names.norm(f"{cross}{lead}_output.LayerNorm", width)
        names.linear(f"bert.{lead}_pooler.dense", 4, width)
    names.words("cls.", "bert.embeddings.word_embeddings.weight")
    names.linear("cls.bi_seq_relationship", 2, 4)
    names.linear("cls.imagePredictions.transform.dense", 6, 6)
    names.norm("cls.imagePredictions.transform.LayerNorm", 6)
    names.linear("cls.imagePredictions.decoder", CLASSES, 6)
    return names.state


def vilbert_folder(place: Path, state: State, config: Mapping[str, Any] = VILBERT) -> Path:
    return folder(place, wrapped(state), config, weights="pytorch_model_9.bin", file="config.json")


def test_vilberts_file_gives_the_states_and_scores_of_the_authors_formulas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, (fields, features, box) = vilbert(), regions()
    loaded, told = imported(capsys, vilbert_folder(tmp_path / "vilbert", state), tmp_path / "out")
    assert "co_attention: 2 layers, width 8" in told and "used by no part" not in told
    assert set(loaded.heads) == {"token_prediction", "match", "classes"}

    size = box[..., 2:] - box[..., :2]
    numbers = torch.cat([box, size[..., :1] * size[..., 1:]], -1)
    count = torch.tensor([3.0, 2.0])
    features = torch.cat([(features.sum(1) / count[:, None])[:, None], features], 1)  # the mean in front
    numbers = torch.cat([torch.tensor([0.0, 0, 1, 1, 1]).expand(2, 1, 5), numbers], 1)
    seen = torch.cat([torch.ones(2, 1), REAL], 1)
    lead = "bert.v_embeddings."
    v = linear(state, f"{lead}image_embeddings", features) + linear(state, f"{lead}image_location_embeddings", numbers)
    v, x = norm(state, f"{lead}LayerNorm", v), layer(state, "bert.encoder.layer.0", text(state, "bert."), BLOCK)
    cross = "bert.encoder.c_layer.0."
    q1, k1, v1 = (linear(state, f"{cross}biattention.{part}1", v) for part in ("query", "key", "value"))
    q2, k2, v2 = (linear(state, f"{cross}biattention.{part}2", x) for part in ("query", "key", "value"))
    v = norm(state, f"{cross}biOutput.LayerNorm1", linear(state, f"{cross}biOutput.dense1", attend(q1, k2, v2, BLOCK)) + v)
    x = norm(state, f"{cross}biOutput.LayerNorm2", linear(state, f"{cross}biOutput.dense2", attend(q2, k1, v1, seen)) + x)
    inner_v, inner_x = (F.gelu(linear(state, f"{cross}{at}_intermediate.dense", y)) for at, y in (("v", v), ("t", x)))
    v = norm(state, f"{cross}v_output.LayerNorm", linear(state, f"{cross}v_output.dense", inner_v) + v)
    x = norm(state, f"{cross}t_output.LayerNorm", linear(state, f"{cross}t_output.dense", inner_x) + x)
    v = layer(state, "bert.encoder.v_layer.0", v, seen, 3)
    x = layer(state, "bert.encoder.layer.1", x, BLOCK)
    pooled = linear(state, "bert.t_pooler.dense", x[:, 0]).relu() * linear(state, "bert.v_pooler.dense", v[:, 0]).relu()

    states = loaded.network.eval()(
        want=frozenset({"hidden", "item_hidden", "pooled"}), tokens=TOKENS, block=BLOCK, **fields,
        summaries=torch.tensor([0, 4]),
    )
    torch.testing.assert_close(states["hidden"][BLOCK > 0], x[BLOCK > 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states["item_hidden"][REAL > 0], v[:, 1:][REAL > 0], atol=1e-5, rtol=0)
    match = loaded.heads["match"].eval().head(states["pooled"])
    torch.testing.assert_close(match.flip(-1), linear(state, "cls.bi_seq_relationship", pooled), atol=1e-5, rtol=0)
    lead = "cls.imagePredictions."
    transformed = norm(state, f"{lead}transform.LayerNorm", F.gelu(linear(state, f"{lead}transform.dense", v[:1, 1:])))
    classes = loaded.heads["classes"].head(states["item_hidden"][:1])
    torch.testing.assert_close(classes, linear(state, f"{lead}decoder", transformed), atol=1e-4, rtol=0)


def test_a_vilbert_of_another_shape_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = vilbert()
    moved = vilbert_folder(tmp_path / "moved", state, {**VILBERT, "t_biattention_id": [0]})
    assert "before the layers [0] of regions and [0] of text; cloze's network has it before [0] and [1]" in refusal(capsys, moved)
    added = vilbert_folder(tmp_path / "added", state, {**VILBERT, "fusion_method": "sum"})
    assert "fusion_method is 'sum'; cloze's network has 'mul' there" in refusal(capsys, added)
    state["bert.embeddings.task_embeddings.weight"] = torch.zeros(20, 8)
    tasks = vilbert_folder(tmp_path / "tasks", state)
    assert "holds vectors of tasks (12-in-1); cloze's network has none" in refusal(capsys, tasks)


# --- VL-BERT -------------------------------------------------------------------------------------------------------------


def vl_bert() -> State:
    names = Names()
    for part, rows in (("word", len(WORDS)), ("end", 1), ("position", 512), ("token_type", 3)):
        names.table(f"vlbert.{part}_embeddings.weight" if part != "end" else "vlbert.end_embedding.weight", rows, 8)
    for part in ("embedding_LayerNorm", "visual_ln_text", "visual_ln_object"):
        names.norm(f"vlbert.{part}", 8)
    for number in range(2):
        names.layer(f"vlbert.encoder.layer.{number}")
    names.linear("image_feature_extractor.obj_downsample.1", 8, 2 * 2048)
    for part in ("object_linguistic_embeddings", "object_mask_word_embedding", "aux_text_visual_embedding"):
        names.table(f"{part}.weight", 1, 8)
    names.table("object_mask_visual_embedding.weight", 1, FEATURES)
    names.words("vlbert.mlm_head.", "vlbert.word_embeddings.weight")
    names.linear("vlbert.mvrc_head.transform.dense", 8, 8)
    names.linear("vlbert.mvrc_head.region_cls_pred", CLASSES, 8)
    return names.state


def test_vl_berts_file_gives_the_states_and_scores_of_the_authors_formulas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, (fields, features, box) = vl_bert(), regions()
    saved = {"state_dict": wrapped(state), "optimizer": {"state": {}, "param_groups": [{"lr": 1e-7}]}}
    source = folder(tmp_path / "vl", saved, CONFIG, weights="vl-bert-base-prec.model", file="bert_config.json")
    loaded, told = imported(capsys, source, tmp_path / "out")
    assert "visual: 2 layers, width 8" in told and "used by no part" not in told
    assert set(loaded.heads) == {"token_prediction", "classes"}

    features[0, 1] = 0.0  # a hidden region
    whole = torch.tensor([[0.0, 0, 1, 1]])
    table = {name: state[f"vlbert.{name}_embeddings.weight"] for name in ("word", "position", "token_type")}
    states = loaded.network.eval()(
        want=frozenset({"hidden", "item_hidden"}), tokens=TOKENS, block=BLOCK, **fields,
        items={"regions/masked": torch.tensor([[0, 1, 0], [0, 0, 0]])},
    )
    for row, (tokens, count) in enumerate(((4, 3), (3, 2))):
        shown = [item for item in range(count) if (row, item) != (0, 1)]
        vectors = torch.stack([
            features[row, item] if item in shown else state["object_mask_visual_embedding.weight"][0] for item in range(count)
        ])
        vectors = torch.cat([features[row, shown].mean(0)[None], vectors])  # the picture is the first of the boxes
        corners = torch.cat([whole, box[row, :count]])
        centred = torch.cat([(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]], 1) * 100
        angles = centred[..., None] / 1000 ** (torch.arange(256) / 256)
        waves = torch.cat([angles.sin(), angles.cos()], -1).flatten(1)
        seen = linear(state, "image_feature_extractor.obj_downsample.1", torch.cat([waves, vectors], 1)).relu()
        kinds = state["object_linguistic_embeddings.weight"].repeat(count + 1, 1)
        if row == 0:
            kinds[2] = state["object_mask_word_embedding.weight"][0]
        words = table["word"][TOKENS[row, :tokens]] + norm(state, "vlbert.visual_ln_text", seen[:1])
        things = kinds + norm(state, "vlbert.visual_ln_object", seen)
        x = torch.cat([words, things, state["vlbert.end_embedding.weight"]])
        places = torch.tensor([*range(tokens), *[tokens] * (count + 1), tokens + 1])  # obj_pos_id_relative
        segments = torch.tensor([0] * tokens + [2] * (count + 2))
        x = norm(state, "vlbert.embedding_LayerNorm", x + table["position"][places] + table["token_type"][segments])[None]
        for number in range(2):
            x = layer(state, f"vlbert.encoder.layer.{number}", x, torch.ones(1, x.shape[1]))
        torch.testing.assert_close(states["hidden"][row, :tokens], x[0, :tokens], atol=1e-5, rtol=0)
        regions_seen = x[0, tokens + 1 : tokens + 1 + count]
        torch.testing.assert_close(states["item_hidden"][row, :count], regions_seen, atol=1e-5, rtol=0)
        classes = linear(state, "vlbert.mvrc_head.region_cls_pred", F.gelu(linear(
            state, "vlbert.mvrc_head.transform.dense", regions_seen
        )))
        made = loaded.heads["classes"].head(states["item_hidden"][row, :count])
        torch.testing.assert_close(made, classes, atol=1e-5, rtol=0)


def test_a_vl_bert_with_a_detector_of_its_own_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = {**vl_bert(), "image_feature_extractor.backbone.conv1.weight": torch.zeros(4, 3, 7, 7)}
    source = folder(tmp_path / "vl", state, CONFIG, weights="vl-bert-base-e2e.model", file="bert_config.json")
    assert "is of a detector that was trained along (take a model …-prec)" in refusal(capsys, source)


# --- VisualBERT ----------------------------------------------------------------------------------------------------------


def visual_bert(width: int = FEATURES) -> State:
    names = Names()
    names.bert("bert.bert.")
    lead = "bert.bert.embeddings."
    names.table(f"{lead}token_type_embeddings_visual.weight", 2, 8)
    names.table(f"{lead}position_embeddings_visual.weight", 512, 8)
    names.linear(f"{lead}projection", 8, width)
    names.words("bert.cls.", f"{lead}word_embeddings.weight")
    names.linear("bert.cls.seq_relationship", 2, 8)
    return names.state


def visual_bert_folder(place: Path, state: State) -> Path:
    return folder(place, state, CONFIG, weights="best.th", file="bert_config.json")


def test_visualberts_file_gives_the_states_and_scores_of_the_authors_formulas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, (fields, features, _) = visual_bert(), regions()
    loaded, told = imported(capsys, visual_bert_folder(tmp_path / "visualbert", state), tmp_path / "out")
    assert "visual: 2 layers, width 8" in told and "used by no part" not in told
    assert set(loaded.heads) == {"token_prediction", "match"}

    lead, base = "bert.bert.embeddings.", "bert.bert."
    word, place, kind = (state[f"{lead}{part}_embeddings.weight"] for part in ("word", "position", "token_type"))
    words = word[TOKENS] + place[: TOKENS.shape[1]] + kind[0]
    first = (state[f"{lead}{part}_embeddings_visual.weight"][0] for part in ("position", "token_type"))  # of all regions
    things = linear(state, f"{lead}projection", features) + sum(first)
    x, real = norm(state, f"{lead}LayerNorm", torch.cat([words, things], 1)), torch.cat([BLOCK, REAL], 1)
    for number in range(2):
        x = layer(state, f"{base}encoder.layer.{number}", x, real)
    states = loaded.network.eval()(want=frozenset({"hidden", "item_hidden", "summary"}), tokens=TOKENS, block=BLOCK, **fields)
    torch.testing.assert_close(states["hidden"][BLOCK > 0], x[:, :4][BLOCK > 0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states["item_hidden"][REAL > 0], x[:, 4:][REAL > 0], atol=1e-5, rtol=0)
    pooled = linear(state, f"{base}pooler.dense", x[:, 0]).tanh()
    match = loaded.heads["match"].eval().head(states["summary"])  # in both, 1 stands for a caption that belongs to the picture
    torch.testing.assert_close(match, linear(state, "bert.cls.seq_relationship", pooled), atol=1e-5, rtol=0)
    transformed = F.gelu(linear(state, "bert.cls.predictions.transform.dense", x[0, :4]))
    transformed = norm(state, "bert.cls.predictions.transform.LayerNorm", transformed)
    scores = transformed @ word.T + state["bert.cls.predictions.bias"]
    torch.testing.assert_close(loaded.heads["token_prediction"].head(states["hidden"][0]), scores, atol=1e-4, rtol=0)


def test_a_visualbert_has_the_width_of_its_features_and_none_with_a_detector_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = visual_bert(1024)  # as for NLVR2, whose fine-tuning adds a classifier
    state["bert.classifier.weight"] = torch.zeros(2, 8)
    loaded, told = imported(capsys, visual_bert_folder(tmp_path / "nlvr2", state), tmp_path / "tuned")
    assert loaded.network.items.features.in_features == 1024
    assert "used by no part of cloze: bert.classifier.weight." in told
    state = {**visual_bert(512), "detector.obj_downsample.1.weight": torch.zeros(512, 2048)}
    assert "is of a detector that was trained along (take a model of NLVR2 or VQA)" in refusal(
        capsys, visual_bert_folder(tmp_path / "vcr", state)
    )
