"""Sentences about two pictures (NLVR2): the heads of UNITER and LXMERT, and the authors' files from training to predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import cloze
from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.records import Records
from cloze.decoding.pictures import Pictures
from cloze.errors import CorpusError, RecipeError
from cloze.networks import Clock
from cloze.networks.bert import BertInputs
from cloze.objectives import joint_classification, paired_attention
from cloze.objectives.transforms import Gelu
from cloze.tasks import task
from cloze.tasks.pictures import show_pictures
from cloze.tasks.tuned_folder import load_tuned, task_in_folder
from tests.tasks.pictured import pretrain, write_items

SYSTEMS = ("lxmert", "uniter", "vilbert", "visualbert")
COUNT, WIDTH = 24, 8
KIND = np.arange(COUNT) % 2
OWNER = torch.tensor([0, 0, 1, 1])
TARGETS = torch.tensor([1, 1, 0, 0])


def test_two_summaries_side_by_side_are_classified_as_uniters_paired_form_does() -> None:
    """`UniterForNlvr2Paired`: the pooler, `view(n_pair, -1)`, one linear map, cross-entropy."""
    torch.manual_seed(0)
    objective = joint_classification(pool=True, width=WIDTH, clock=Clock()).double()
    summary = torch.randn(4, WIDTH, dtype=torch.double)
    batch = Batch({"targets/label": TARGETS, "positions/label": torch.arange(4), "owner": OWNER})
    pooled = torch.tanh(objective.pool(summary)).contiguous().view(2, -1)
    expected = F.cross_entropy(objective.head.output(pooled), TARGETS[::2], reduction="sum")
    found = objective({"summary": summary}, batch)
    assert found.total.item() == pytest.approx(expected.item()) and float(objective.count(batch)) == 2


def test_two_pooled_states_pass_the_head_of_lxmert() -> None:
    """`NLVR2Model`: `x.view(-1, hid_dim * 2)`, Linear, GeLU, LayerNorm, Linear."""
    torch.manual_seed(0)
    objective = joint_classification(transform=Gelu(norm_epsilon=1e-12), width=WIDTH, clock=Clock()).double()
    pooled = torch.randn(4, WIDTH, dtype=torch.double)
    head = objective.head
    logits = head.output(F.layer_norm(F.gelu(head.dense(pooled.view(-1, 2 * WIDTH))), [2 * WIDTH], eps=1e-12))
    found = objective.scores({"summary": pooled}, Batch({"targets/label": TARGETS, "owner": OWNER}))
    torch.testing.assert_close(found, logits)


def of_torch(attention: Any, heads: int) -> nn.MultiheadAttention:
    """torch's attention with the parameters of ours."""
    made = nn.MultiheadAttention(WIDTH, heads).double()
    with torch.no_grad():
        made.in_proj_weight.copy_(torch.cat([attention.query.weight, attention.memory.weight]))
        made.in_proj_bias.copy_(torch.cat([attention.query.bias, attention.memory.bias]))
        made.out_proj.load_state_dict(attention.out.state_dict())
    return made


def test_rows_read_each_other_as_in_uniters_paired_attention() -> None:
    """`UniterForNlvr2PairedAttn`, with `attn1` and `attn2` as torch's attention."""
    torch.manual_seed(0)
    objective = paired_attention(heads=2, width=WIDTH, clock=Clock()).double().eval()
    for parameter in objective.parameters():  # biases of zero would hide their places
        nn.init.normal_(parameter, std=0.5)
    text, items = torch.randn(4, 3, WIDTH, dtype=torch.double), torch.randn(4, 2, WIDTH, dtype=torch.double)
    block = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 0]])
    counts = torch.tensor([2, 1, 1, 2])
    batch = Batch({"targets/label": TARGETS, "owner": OWNER, "block": block, "item_length/regions": counts})
    found = objective.scores({"hidden": text, "item_hidden": items}, batch)
    head = objective.head
    mask = torch.cat([block == 0, torch.arange(2) >= counts[:, None]], 1)
    states = torch.cat([text, items], 1)
    left, right = states[::2].transpose(0, 1), states[1::2].transpose(0, 1)
    left_mask, right_mask = mask[::2], mask[1::2]
    l2r, _ = of_torch(head.first, 2)(left, right, right, key_padding_mask=right_mask)
    r2l, _ = of_torch(head.second, 2)(right, left, left, key_padding_mask=left_mask)

    def joined(read: Tensor, own: Tensor, padding: Tensor) -> Tensor:
        out = head.join(torch.cat([read, own], -1)).relu().transpose(0, 1)
        score = head.pool.energy(out).relu().squeeze(-1) + padding.double() * -1e4
        return F.softmax(score, dim=1).unsqueeze(1).matmul(out).squeeze(1)

    expected = head.output(torch.cat([joined(l2r, left, left_mask), joined(r2l, right, right_mask)], -1))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_the_head_starts_as_in_uniters_paired_attention() -> None:
    """torch's attention starts its three projections together, as the authors' copy of it does; `init_weights` draws the rest."""
    torch.manual_seed(0)
    width = 96
    head = paired_attention(heads=2, width=width, clock=Clock()).head
    theirs = nn.MultiheadAttention(width, 2).in_proj_weight
    for attention in (head.first, head.second):
        ours = torch.cat([attention.query.weight, attention.memory.weight])
        assert float(ours.abs().max()) == pytest.approx(float(theirs.abs().max()), rel=1e-3)
        assert float(ours.std()) == pytest.approx(float(theirs.std()), rel=0.02)
    for weight in (head.first.out.weight, head.second.out.weight, head.join.weight):
        assert float(weight.std()) == pytest.approx(0.02, rel=0.05)
        assert float(weight.abs().max()) > 0.05  # not cut at two deviations
    biases = [parameter for name, parameter in head.named_parameters() if name.endswith("bias")]
    assert len(biases) == 9 and not any(bool(bias.any()) for bias in biases)


def test_states_of_two_widths_cannot_stand_in_one_row() -> None:
    objective = paired_attention(heads=2, width=WIDTH, clock=Clock())
    batch = Batch({"targets/label": TARGETS, "owner": OWNER, "item_length/regions": torch.tensor([1, 1, 1, 1])})
    with pytest.raises(RecipeError, match="the states of items have 6 numbers and those of tokens 8"):
        objective.scores({"hidden": torch.zeros(4, 3, WIDTH), "item_hidden": torch.zeros(4, 1, 6)}, batch)


def nlvr2(number: int, other: int) -> dict[str, Any]:
    """A line of the authors' files: the pair is named by the identifier."""
    pair = f"train-{number}-{other}"
    return {"sentence": "what is it", "identifier": f"{pair}-0", "label": str(bool(KIND[number] == KIND[other])), "synset": "ant"}


def test_files_of_the_authors_and_of_lxmert_name_two_pictures(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(nlvr2(1, 2)) + "\n", encoding="utf-8")
    of_lxmert = {
        "identifier": "train-1-2-0", "img0": "train-1-2-img0", "img1": "train-1-2-img1", "label": 0, "sent": "what is it",
        "uid": "nlvr2_train_0",
    }  # fmt: skip
    (tmp_path / "b.json").write_text(json.dumps([of_lxmert]), encoding="utf-8")
    asked = task("picture_pair_classification")
    for name, label in (("a.jsonl", "False"), ("b.json", "0")):
        found = asked.read(tmp_path / name)
        assert found.texts == ["what is it"] and found.labels == [label]
        assert (found.pictures, found.pictures_b) == (["train-1-2-img0"], ["train-1-2-img1"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences as in NLVR2's files, true where both pictures are of one kind, their items, and checkpoints that read them."""
    made = tmp_path_factory.mktemp("pairs")
    write_items(made / "f.npz", KIND)
    captions = [{"image": str(n), "text": ["what is it", "it is here"], "label": "ab"[n % 2]} for n in range(COUNT)]
    for system in SYSTEMS:
        pretrain(system, made, captions)
    pairs = [(number, (number + step) % COUNT) for number in range(COUNT) for step in (1, 2)]
    with np.load(made / "f.npz") as file:  # the pictures of each pair, under the names that NLVR2 has
        keys = [f"train-{a}-{b}-img{side}" for a, b in pairs for side in (0, 1)]
        shown = np.array([number for pair in pairs for number in pair])
        np.savez(made / "pairs.npz", keys=keys, features=file["features"][shown], boxes=file["boxes"][shown])
    lines = [json.dumps(nlvr2(*pair)) + "\n" for pair in pairs]
    (made / "train.jsonl").write_text("".join(lines), encoding="utf-8")
    (made / "dev.jsonl").write_text("".join(lines[-12:]), encoding="utf-8")
    return made


@pytest.mark.parametrize("system_", SYSTEMS)
def test_a_file_of_nlvr2_is_trained_on_measured_and_answered(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], system_: str
) -> None:
    out, items = tmp_path / "out", ["--items", str(folder / "pairs.npz")]
    files = ["--train", str(folder / "train.jsonl"), "--dev", str(folder / "dev.jsonl"), "--out", str(out)]
    heads = ["objectives[0].heads=2"] if system_ == "uniter" else []
    given = [word for value in ["training.epochs=2", "training.batch=8", *heads] for word in ("--set", value)]
    started = str(folder / system_)
    assert main(["finetune", started, "--task", "picture_pair_classification", *files, *items, *given, "--device", "cpu"]) == 0
    described = json.loads((out / "cloze/task.json").read_text(encoding="utf-8"))
    assert described["columns"] == {
        "text": "text", "text_b": None, "label": "label", "picture": "image", "picture_b": "image_b",
    }  # fmt: skip
    capsys.readouterr()
    assert main(["evaluate", str(out), str(folder / "dev.jsonl"), *items, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["metrics"] == pytest.approx({name: described["dev"][name] for name in found["metrics"]})
    assert main(["predict", str(out), str(folder / "dev.jsonl"), *items]) == 0
    predicted = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(predicted) == 12 and all(set(row["probabilities"]) == {"False", "True"} for row in predicted)
    (answer,) = cloze.load(out).predict([("what is it", "train-0-1-img0", "train-0-1-img1")], items=folder / "pairs.npz")
    assert answer.label in ("False", "True")
    assert main(["predict", str(out), str(folder / "dev.jsonl")]) == 2
    assert "each row is about a picture, and the items of these pictures are missing" in capsys.readouterr().err


def test_scores_are_those_of_both_rows_with_their_pictures_alone(folder: Path, tmp_path: Path) -> None:
    """A batch of many examples gives what the network and the head give for one."""
    out, file = tmp_path / "out", str(folder / "pairs.npz")
    files = ["--train", str(folder / "train.jsonl"), "--dev", str(folder / "dev.jsonl"), "--items", file, "--out", str(out)]
    values = ["--set", "training.epochs=1", "--set", "objectives[0].heads=2", "--device", "cpu"]
    assert main(["finetune", str(folder / "uniter"), "--task", "picture_pair_classification", *files, *values]) == 0
    asked = task_in_folder(out)
    examples = asked.read(folder / "dev.jsonl")
    learner: Any = load_tuned(show_pictures(load_checkpoint(out), [file], [examples]), asked)[0]
    found, rows = learner.row_outputs(learner.encode(examples)), learner.encode(examples)
    for number in (0, 5, 11):
        batch = learner.reader.batch(list(rows[number].rows))
        assert batch["item_length/regions"].tolist() == [2, 2]
        with torch.no_grad():
            states = learner.reader.states(batch, learner.head.reads)
            scores = learner.head.scores(states, Batch({**batch, "owner": torch.tensor([0, 0])}, checked=True))
        assert found[number] == pytest.approx(scores.softmax(-1)[0].numpy(), abs=1e-5)
    swapped = learner.predict(type(examples)(**{**vars(examples), "pictures": examples.pictures[::-1]}))
    assert [row.probabilities for row in swapped] != [row.probabilities for row in learner.predict(examples)]


def test_a_record_makes_a_row_for_each_of_its_pictures(folder: Path, tmp_path: Path) -> None:
    source = Records(
        answer="class", items={"regions": ["features"]}, item_files={"regions": str(folder / "pairs.npz")}, picture_b="image_b"
    )
    tokenizer = load_checkpoint(folder / "uniter").tokenizer
    store = source.build_store([folder / "dev.jsonl"], tokenizer, tmp_path / "s", base=None, report=lambda line: None)
    bound: Any = source.bind(store, seed=1, entry="main")
    plan = bound.plan(0, 10)
    rows = bound.read(plan, np.arange(3), frozenset())
    assert rows["owner"].tolist() == [0, 0, 1, 1, 2, 2] and bound.widths(plan, np.arange(3)).tolist() == [2, 2, 2]
    assert (rows["tokens"][::2] == rows["tokens"][1::2]).all()
    records = rows["document"][::2]
    assert store.items is not None and store.items.second is not None
    features = store.items.sets["regions"].arrays["features"].reshape(-1, 2, 6)
    for number, record in enumerate(records):
        assert (rows["item_vectors/regions"][2 * number] == features[store.items.pictures[record]]).all()
        assert (rows["item_vectors/regions"][2 * number + 1] == features[store.items.second[record]]).all()


def test_one_picture_where_two_are_read_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="picture_b: image: is the column of the first picture"):
        Records(picture_b="image")
    single = Records(answer="class", items={"regions": ["features"]}, item_files={"regions": str(folder / "pairs.npz")})
    tokenizer = load_checkpoint(folder / "uniter").tokenizer
    store = single.build_store([folder / "dev.jsonl"], tokenizer, tmp_path / "s", base=None, report=lambda line: None)
    with pytest.raises(CorpusError, match="reads each text with two pictures, and this store has one for each"):
        Records(answer="class", items={"regions": ["features"]}, picture_b="image_b").bind(store, seed=1, entry="main")


def tuned(folder: Path, system: str, out: Path, *values: str) -> Any:
    """A checkpoint that was tuned on the pairs."""
    items = str(folder / "pairs.npz")
    files = ["--train", str(folder / "train.jsonl"), "--dev", str(folder / "dev.jsonl"), "--items", items, "--out", str(out)]
    given = [word for value in ("training.epochs=1", *values) for word in ("--set", value)]
    started = ["finetune", str(folder / system), "--task", "picture_pair_classification", "--device", "cpu"]
    assert main([*started, *files, *given]) == 0
    asked = task_in_folder(out)
    examples = asked.read(folder / "dev.jsonl")
    loaded = show_pictures(load_checkpoint(out), [items], [examples])
    return load_tuned(loaded, asked)[0], examples


def test_both_pictures_follow_the_sentence_with_segments_0_and_1_as_in_visualberts_code(folder: Path, tmp_path: Path) -> None:
    """`NLVRDataset.__getitem__`: the features of both pictures one after another, `visual_embeddings_type` 0 and 1."""
    learner, examples = tuned(folder, "visualbert", tmp_path / "out")
    rows = learner.encode(examples)
    batch = learner.reader.batch(rows[:2])
    with np.load(folder / "pairs.npz") as file:
        features = dict(zip(file["keys"].tolist(), file["features"], strict=True))
    for number in (0, 1):
        expected = np.concatenate([features[examples.pictures[number]], features[examples.pictures_b[number]]])
        assert batch["item_vectors/regions"][number].numpy() == pytest.approx(expected)
    assert batch["items/regions/picture"].tolist() == [[0, 0, 1, 1]] * 2 and batch["item_length/regions"].tolist() == [4, 4]
    network = learner.reader.network
    with torch.no_grad():
        nn.init.normal_(network.items.segments.weight)
    types = batch["items/regions/picture"]
    embeddings, items = network.embeddings, network.items
    appended = items.features(batch["item_vectors/regions"]) + items.positions.weight[0] + items.segments.weight[types]
    given = {"item_vectors": {"regions": batch["item_vectors/regions"]}, "items": {"regions/picture": types}}
    found = network.items.join(embeddings, batch["tokens"], None, None, BertInputs(
        want=frozenset(), tokens=batch["tokens"], item_length={"regions": batch["item_length/regions"]}, **given
    ).item_rows("regions"))
    torch.testing.assert_close(found.appended, embeddings.norm(appended))


def test_rows_of_training_and_of_commands_hold_the_same_two_pictures(folder: Path, tmp_path: Path) -> None:
    source = Records(
        answer="class", items={"regions": ["features", "boxes"]}, item_files={"regions": str(folder / "pairs.npz")},
        picture_b="image_b", joined=True,
    )
    loaded = load_checkpoint(folder / "visualbert")
    store = source.build_store([folder / "dev.jsonl"], loaded.tokenizer, tmp_path / "s", base=None, report=lambda line: None)
    bound: Any = source.bind(store, seed=1, entry="main")
    plan = bound.plan(0, 10)
    rows = bound.read(plan, np.arange(4), frozenset())
    assert "owner" not in rows and store.items is not None and store.items.second is not None
    pictures = Pictures.of_store(store.items)
    numbers = [table[rows["document"]] for table in (store.items.pictures, store.items.second)]
    fields = pictures.fields(loaded.network, numbers[0], second=numbers[1])
    names = ("item_vectors/regions", "items/regions/picture", "item_length/regions")
    assert all((rows[name] == fields[name]).all() for name in names)
    with pytest.raises(RecipeError, match="joined: true joins two pictures; name the column of the second one"):
        Records(joined=True)


def test_the_second_picture_of_uniter_has_a_third_segment_that_begins_as_the_second(folder: Path, tmp_path: Path) -> None:
    """`init_type_embedding` and `img_type_ids = i + 1` of ChenRocks/UNITER, model/nlvr2.py and data/nlvr2.py."""
    learner, examples = tuned(
        folder, "uniter", tmp_path / "out", "objectives[0].heads=2", "training.rate.peak=0", "training.new_heads=drawn"
    )
    table = learner.reader.network.embeddings.segments.weight
    assert len(table) == 3 and torch.equal(table[2], table[1]) and not torch.equal(table[1], table[0])
    assert torch.equal(table[:2], load_checkpoint(folder / "uniter").network.embeddings.segments.weight)
    batch = learner.reader.batch(list(learner.encode(examples)[0].rows))
    assert batch["items/regions/picture"].tolist() == [[0, 0], [1, 1]]
    want = {"item_hidden"}
    before = learner.reader.states(batch, want)["item_hidden"]
    with torch.no_grad():
        nn.init.normal_(table[2])
    after = learner.reader.states(batch, want)["item_hidden"]
    assert torch.equal(before[0], after[0]) and not torch.allclose(before[1], after[1])


@pytest.mark.parity
def test_the_tuned_folder_of_visualbert_opens_as_the_class_that_reasons_about_pictures(folder: Path, tmp_path: Path) -> None:
    """transformers reads the first picture with row 1 of the table of segments and the second with row 0."""
    transformers = pytest.importorskip("transformers")
    learner, examples = tuned(folder, "visualbert", tmp_path / "out")
    model, info = transformers.VisualBertForVisualReasoning.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    rows = learner.encode(examples)[:3]
    batch = learner.reader.batch(rows)
    with torch.no_grad():
        theirs = model.eval()(
            input_ids=batch["tokens"], attention_mask=torch.ones_like(batch["tokens"]), token_type_ids=batch["segments"],
            visual_embeds=batch["item_vectors/regions"], visual_token_type_ids=1 - batch["items/regions/picture"],
            visual_attention_mask=torch.ones(3, 4, dtype=torch.long),
        )
        ours = learner.scores(rows)
    torch.testing.assert_close(ours, theirs.logits, rtol=0, atol=1e-4)
    assert sorted(model.config.id2label.values()) == ["False", "True"]
