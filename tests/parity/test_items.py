"""Networks of text and items both ways: VisualBERT and LXMERT with their heads, and the others' text towers as BERT."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.checkpoint.build import load_checkpoint
from cloze.interop import Card, PortableHead, PortableModel, Reading, complete, export_folder, import_folder
from cloze.networks.clock import Clock
from cloze.objectives import classify, regress, relation_prediction, token_prediction
from cloze.objectives.transforms import Gelu
from tests.making import data, network_of

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

READING = Reading("[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]", "first")
SIZES: dict[str, Any] = {
    "layers": 2, "width": 16, "heads": 2, "feed_forward.inner": 24, "max_length": 20, "segments": 2, "items.width": 12,
    "dropout": 0.1,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "visualbert": ("visual", {"items": "with_tables"}),
    "lxmert": ("cross_modal", {"item_layers": 1, "cross_layers": 2, "items.transform": True}),
    "uniter": ("visual", {"items": "appended", "items.boxes": 7, "items.norm": "both", "items.hidden": True}),
    "vl-bert": ("visual", {"items": "elements", "items.waves": 2, "segments": 3}),
    "b2t2": ("visual", {"items": "added", "items.places": 4}),
    "vilbert": ("co_attention", {"item_stack.layers": 1, "item_stack.width": 10, "item_stack.heads": 2, "crossing.heads": 2,
                                 "crossing.width": 8, "item_stack.inner": 7}),
}
MASKED, MATCH = {"transform": "gelu", "tie": True}, {"classes": 2, "set": "match"}
ANSWER = {"classes": 5, "set": "label", "reading": "summary", "transform": {"gelu": {"times": 2, "norm_epsilon": 1e-12}}}
OF_ITEMS = {
    "object": ("classify", {"classes": 6, "set": "object"}), "attribute": ("classify", {"classes": 4, "set": "attribute"}),
    "features": ("regress", {"numbers": 12, "set": "features", "reading": "hidden", "deviation": "smooth_l1"}),
}


def randomised(module: Any, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return module.eval()


def system(systems: ModuleType, name: str) -> Any:
    """A network of a kind with random weights and its heads, the arguments, and the tokenizer."""
    part, given = KINDS[name]
    arguments, pieces = {**SIZES, **given}, systems.tokenizer("wordpiece")
    network = randomised(network_of(part, **arguments, vocab_size=pieces.size, clock=Clock()))
    with torch.no_grad():
        network.embeddings.tokens.weight[pieces.roles["[PAD]"]] = 0.0
    clock, width = Clock(), SIZES["width"]
    table = network.embeddings.tokens
    made = {"mlm": token_prediction(**MASKED, width=width, vocab_size=pieces.size, table=table)}
    parts: dict[str, tuple[str, dict[str, Any]]] = {"mlm": ("token_prediction", MASKED)}
    read: dict[str, dict[str, str]] = {}
    matched = {**MATCH, "pool": name != "lxmert"}
    made["match"], parts["match"] = relation_prediction(**matched, width=width, clock=clock), ("relation_prediction", matched)
    if name == "lxmert":
        for key, (kind, more) in OF_ITEMS.items():
            builder: Any = {"classify": classify, "regress": regress}[kind]
            made[key], parts[key] = builder(**more, width=width, clock=clock), (kind, more)
            read[key] = {"hidden": "item_transformed"}
        made["answer"] = classify(**{**ANSWER, "transform": Gelu(times=2, norm_epsilon=1e-12)}, width=width, clock=clock)
        parts["answer"] = ("classify", ANSWER)
        read |= {"match": {"summary": "pooled"}, "answer": {"summary": "pooled"}}
    elif name != "visualbert":
        del made["match"], parts["match"]
        parts["object"] = OF_ITEMS["object"]
        state = network.widths.get("item_hidden", width)
        made["object"], read["object"] = classify(**OF_ITEMS["object"][1], width=state, clock=clock), {"hidden": "item_hidden"}
    for number, head in enumerate(made.values()):
        randomised(head, number + 1)
    heads = {key: PortableHead(*parts[key], head.state_dict(), read.get(key, {})) for key, head in made.items()}
    whole = complete(data(part, **arguments), part)
    model = PortableModel(whole, "open", network.state_dict(), heads, part)
    return SimpleNamespace(network=network, heads=made, model=model, pieces=pieces)


def batch(size: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    block = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    tokens = torch.where(block > 0, torch.randint(5, size, (2, 7), generator=draw), 0)
    features = torch.randn(2, 4, 12, generator=draw)
    boxes = torch.rand(2, 4, 2, 2, generator=draw).sort(2).values.flatten(2)
    return {
        "tokens": tokens, "block": block, "segments": torch.randint(2, (2, 7), generator=draw), "features": features,
        "boxes": boxes, "seen": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    }


def ours(network: Any, want: set[str], given: dict[str, Tensor]) -> dict[str, Tensor]:
    vectors = {"regions": given["features"], "regions/boxes": given["boxes"]}
    with torch.no_grad():
        return dict(network(
            want=frozenset(want), tokens=given["tokens"], block=given["block"], segments=given["segments"], item_vectors=vectors,
            item_length={"regions": given["seen"].sum(1)},
        ))


def words(given: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"input_ids": given["tokens"], "attention_mask": given["block"], "token_type_ids": given["segments"]}


def same(mine: Tensor, other: Tensor, real: Tensor | None = None) -> None:
    mine, other = (x if real is None else x[real > 0] for x in (mine, other))
    torch.testing.assert_close(mine, other, rtol=0, atol=1e-4)


def compared(name: str, network: Any, heads: Any, model: Any, given: dict[str, Tensor]) -> None:
    """All outputs of the pre-training class of transformers against those of a network and its heads."""
    with torch.no_grad():
        if name == "visualbert":
            states = ours(network, {"hidden", "summary", "item_hidden"}, given)
            found = model(**words(given), visual_embeds=given["features"], visual_attention_mask=given["seen"])
            same(heads["mlm"].head(states["hidden"]), found.prediction_logits[:, :7], given["block"])
            same(heads["mlm"].head(states["item_hidden"]), found.prediction_logits[:, 7:], given["seen"])
            same(heads["match"].head(states["summary"]), found.seq_relationship_logits.flip(1))
            return
        states = ours(network, {"hidden", "pooled", "item_transformed"}, given)
        own = {**words(given), "visual_feats": given["features"], "visual_pos": given["boxes"]}
        found = model(**own, visual_attention_mask=given["seen"])
        same(heads["mlm"].head(states["hidden"]), found.prediction_logits, given["block"])
        same(heads["match"].head(states["pooled"]), found.cross_relationship_score)
        same(heads["answer"].head(states["pooled"]), found.question_answering_score)
        scores = model.obj_predict_head(model.lxmert(**own, visual_attention_mask=given["seen"]).vision_output)
        for key, theirs in (("object", "obj"), ("attribute", "attr"), ("features", "feat")):
            same(heads[key].head(states["item_transformed"]), scores[theirs], given["seen"])


CLASSES = {"visualbert": "VisualBertForPreTraining", "lxmert": "LxmertForPreTraining"}


@pytest.mark.parametrize("name", CLASSES)
def test_our_folder_opens_with_all_heads_and_comes_back(systems: ModuleType, tmp_path: Path, name: str) -> None:
    made = system(systems, name)
    remarks = export_folder(tmp_path, model=made.model, tokenizer=made.pieces, reading=READING, card=Card("test"))
    assert remarks == []
    model, info = getattr(transformers, CLASSES[name]).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    compared(name, made.network, made.heads, model.eval(), batch(made.pieces.size))
    back = load_checkpoint(tmp_path)
    assert all(torch.equal(tensor, back.network.state_dict()[key]) for key, tensor in made.network.state_dict().items())
    for key, head in made.heads.items():
        assert all(torch.equal(tensor, back.heads[key].state_dict()[at]) for at, tensor in head.state_dict().items())


@pytest.mark.parametrize("name", CLASSES)
def test_a_folder_of_transformers_opens_here_with_all_heads(systems: ModuleType, tmp_path: Path, name: str) -> None:
    pieces = systems.tokenizer("wordpiece")
    shared = {
        "vocab_size": pieces.size, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "pad_token_id": 0,
        "max_position_embeddings": 20,
    }
    if name == "visualbert":
        config = transformers.VisualBertConfig(**shared, num_hidden_layers=2, visual_embedding_dim=12)
    else:
        config = transformers.LxmertConfig(
            **shared, l_layers=2, r_layers=1, x_layers=2, visual_feat_dim=12, num_qa_labels=5, num_object_labels=6,
            num_attr_labels=4,
        )
    model = randomised(getattr(transformers, CLASSES[name])(config))
    model.save_pretrained(tmp_path / "theirs")
    pieces.save(tmp_path / "theirs", length=20, frame_single=READING.single, frame_pair=READING.pair)
    back = load_checkpoint(tmp_path / "theirs")
    assert back.imported.remarks == ()
    named = {"token_prediction": "mlm", "relation_prediction": "match", "classify": "object", "regress": "features"}
    heads = {named.get(key, key): head for key, head in back.heads.items()}
    compared(name, back.network.eval(), heads, model, batch(pieces.size))


@pytest.mark.parametrize("name", ["uniter", "vl-bert", "b2t2", "vilbert"])
def test_the_text_tower_of_the_others_opens_as_bert(systems: ModuleType, tmp_path: Path, name: str) -> None:
    made = system(systems, name)
    remarks = export_folder(tmp_path, model=made.model, tokenizer=made.pieces, reading=READING, card=Card("test"))
    assert any("reads texts alone" in remark for remark in remarks) and any(remark.startswith("object: ") for remark in remarks)
    model, info = transformers.BertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    given = batch(made.pieces.size)
    if name in ("uniter", "b2t2"):  # without items these compute what BERT does
        with torch.no_grad():
            states = made.network(want=frozenset({"hidden"}), tokens=given["tokens"], block=given["block"],
                                  segments=given["segments"])
            same(made.heads["mlm"].head(states["hidden"]), model.eval()(**words(given)).logits, given["block"])
    back = load_checkpoint(tmp_path)
    assert back.imported.architecture is None and back.imported.model.part == KINDS[name][0]
    assert all(torch.equal(tensor, back.network.state_dict()[key]) for key, tensor in made.network.state_dict().items())
    assert all(torch.equal(t, back.heads["object"].state_dict()[key]) for key, t in made.heads["object"].state_dict().items())
    shutil.rmtree(tmp_path / "cloze")
    assert import_folder(tmp_path).model.part == "transformer"


def test_config_json_says_which_heads_a_folder_holds(systems: ModuleType, tmp_path: Path) -> None:
    made = system(systems, "lxmert")
    heads = {key: head for key, head in made.model.heads.items() if key not in ("answer", "attribute")}
    model = PortableModel(made.model.arguments, "open", made.model.network, heads, "cross_modal")
    assert export_folder(tmp_path, model=model, tokenizer=made.pieces, reading=READING, card=Card("test")) == []
    config = json.loads((tmp_path / "config.json").read_text())
    said = ("task_qa", "task_obj_predict", "visual_obj_loss", "visual_attr_loss", "visual_feat_loss", "num_object_labels")
    assert [config.get(key) for key in said] == [False, True, True, False, True, 6]
    _, info = transformers.LxmertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))


@pytest.mark.parametrize("task", ["QuestionAnswering", "VisualReasoning", "MultipleChoice"])
def test_a_folder_of_visualbert_that_transformers_has_tuned_answers_here(
    systems: ModuleType, tmp_path: Path, task: str
) -> None:
    pieces = systems.tokenizer("wordpiece")
    config = transformers.VisualBertConfig(
        vocab_size=pieces.size, hidden_size=16, num_attention_heads=2, intermediate_size=24, pad_token_id=0,
        max_position_embeddings=20, num_hidden_layers=2, visual_embedding_dim=12, num_labels=3,
    )
    model = randomised(getattr(transformers, f"VisualBertFor{task}")(config))
    model.save_pretrained(tmp_path / "theirs")
    pieces.save(tmp_path / "theirs", length=20, frame_single=READING.single, frame_pair=READING.pair)
    loaded = load_checkpoint(tmp_path / "theirs")
    (head,) = loaded.heads.values()
    answers = task == "QuestionAnswering"
    assert all("pooler" in remark for remark in loaded.imported.remarks)
    assert loaded.reading.summary == ("mask" if answers else "first")
    assert len(loaded.imported.remarks) == answers  # this class has a pooler that it does not read
    given = batch(pieces.size)
    last = given["block"].sum(1) - 2  # where transformers reads the answer
    mask = pieces.roles["[MASK]"]
    given["tokens"][torch.arange(2), last] = mask
    summaries = torch.arange(2) * 7 + (last if task == "QuestionAnswering" else 0)
    with torch.no_grad():
        states = loaded.network.eval()(
            want=frozenset({"summary"}), tokens=given["tokens"], block=given["block"], segments=given["segments"],
            item_vectors={"regions": given["features"]}, item_length={"regions": given["seen"].sum(1)}, summaries=summaries,
        )  # fmt: skip
        shown = {**words(given), "visual_embeds": given["features"], "visual_attention_mask": given["seen"]}
        chooses = task == "MultipleChoice"
        found = model(**{name: value[None] if chooses else value for name, value in shown.items()}).logits
    same(head.eval().head(states["summary"]), found.T if chooses else found)
