"""Multiple choice about pictures as VCR publishes it: objects in texts, answers and rationales."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.readers.pictured.task_rows import NAMES, choice_row
from cloze.decoding.reader import Reader
from cloze.errors import TaskError
from cloze.networks import Clock
from cloze.objectives import judge
from cloze.objectives.transforms import Relu
from cloze.tasks import task
from tests.tasks.pictured import pretrain, write_items

SYSTEMS = ("uniter", "vilbert", "visualbert", "vl-bert")
COUNT = 24
KIND = np.arange(COUNT) % 3
ROW = {
    "objects": ["person", "car", "person"], "question": ["Why", "is", [2], "in", [1], "?"], "img_id": "train-0",
    "answer_choices": [[[0, 2], "wait", "."], [[1], "is", "red", "."], ["no", "."], ["yes", "."]], "answer_label": 1,
    "rationale_choices": [["so", "."], [[0], "told", [2], "."], ["no", "."], ["yes", "."]], "rationale_label": 3,
}  # fmt: skip


def test_objects_become_classes_and_people_names() -> None:
    """`objects_replace_name` and `retokenize_and_convert_to_ids_with_tag` of VL-BERT's vcr.py."""
    row = choice_row(ROW)
    assert row is not None
    assert row["text"] == f"Why is {NAMES[1]} in car ?" and row["image"] == "train-0"
    assert row["choices"] == [f"{NAMES[0]} and {NAMES[1]} wait .", "car is red .", "no .", "yes ."] and row["label"] == 1
    assert row["question_answer"] == f"Why is {NAMES[1]} in car ? car is red ." and row["rationale_label"] == 3
    assert row["rationales"][1] == f"{NAMES[0]} told {NAMES[1]} ."
    bare = choice_row({name: value for name, value in ROW.items() if not name.endswith("label")})
    assert bare is not None and "label" not in bare and "question_answer" not in bare
    with pytest.raises(TaskError, match="a text names object 3 of 3"):
        choice_row({**ROW, "question": [[3]]})
    assert choice_row({"objects": "x", "question": ["a"]}) is None


def test_answers_and_rationales_are_columns_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "val.jsonl"
    path.write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    asked = task("multiple_choice", picture="image").read(path)
    assert asked.labels == [1] and asked.others is not None and len(asked.others[0]) == 4 and asked.pictures == ["train-0"]
    columns = {"text": "question_answer", "text_b": "rationales", "label": "rationale_label"}
    why = task("multiple_choice", picture="image", **columns).read(path)
    assert why.labels == [3] and why.others is not None and why.others[0][0] == "so ."


@pytest.mark.parametrize(("change", "message"), [
    ({"question": [[3]]}, r"val.jsonl:2: a text names object 3 of 3: \[\[3\]\]; expected numbers from 0"),
    ({"answer_label": 4}, "val.jsonl:2: answer_label is 4; expected 0 to 3, the number of the right answer"),
    ({"answer_choices": None}, "val.jsonl:2: answer_choices: None; expected a list of texts, each a list of words"),
])  # fmt: skip
def test_questions_that_are_not_those_of_vcr_are_refused_with_their_line(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "val.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, **change}) + "\n", encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        task("multiple_choice", picture="image").read(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions of VCR, the items of their pictures, and checkpoints that read them."""
    made = tmp_path_factory.mktemp("vcr")
    write_items(made / "f.npz", KIND)
    for system in SYSTEMS:
        pretrain(system, made, [{"image": str(n), "text": ["what is it", "it is here"]} for n in range(COUNT)])
    rows = [{**ROW, "img_id": str(n), "answer_label": int(KIND[n])} for n in range(COUNT)]
    (made / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return made


def tune(folder: Path, system: str, out: Path, *more: str) -> Path:
    """A checkpoint that was tuned on the questions."""
    file = str(folder / "train.jsonl")
    given = ["--train", file, "--dev", file, "--items", str(folder / "f.npz"), "--set", "training.epochs=1", "--device", "cpu"]
    assert main(["finetune", str(folder / system), "--task", "multiple_choice", *given, "--out", str(out), *more]) == 0
    return out


@pytest.mark.parametrize("system_", SYSTEMS)
def test_a_file_of_vcr_is_trained_on_measured_and_answered(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], system_: str
) -> None:
    out, file, items = tune(folder, system_, tmp_path / "out"), str(folder / "train.jsonl"), ["--items", str(folder / "f.npz")]
    described = json.loads((out / "cloze/task.json").read_text(encoding="utf-8"))
    assert f"name: {system_}_multiple_choice" in (out / "cloze/recipe.yaml").read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["evaluate", str(out), file, *items, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["metrics"] == pytest.approx({"accuracy": described["dev"]["accuracy"]})
    assert main(["predict", str(out), file, *items]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == COUNT and all(len(answer["probabilities"]) == 4 for answer in answers)


def test_answers_have_the_third_segment_of_uniter_which_begins_as_the_first(folder: Path, tmp_path: Path) -> None:
    """`init_type_embedding` of ChenRocks/UNITER, model/vcr.py: rows 2 and 3 of four begin as row 0."""
    out = tune(folder, "uniter", tmp_path / "out", "--set", "training.rate.peak=0")
    loaded = load_checkpoint(out)
    table: Any = loaded.network.embeddings.segments.weight
    assert len(table) == 4 and torch.equal(table[2], table[0]) and torch.equal(table[3], table[0])
    reader = Reader.of(loaded)
    rows = reader.encode(["what is it"], ["it is here"])
    assert reader.batch(rows)["segments"].tolist() == [[0, 0, 0, 0, 2, 2, 2, 2, 2]]


@pytest.mark.parity
def test_the_tuned_folder_of_visualbert_opens_as_the_class_that_chooses(folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    loaded = load_checkpoint(tune(folder, "visualbert", tmp_path / "out"))
    model, info = transformers.VisualBertForMultipleChoice.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    reader = Reader.of(loaded)
    batch = reader.batch(reader.encode(["what is it"] * 2, ["it is here", "what"]))
    features = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(0))
    given = Batch({**batch, "item_vectors/regions": features, "owner": torch.tensor([0, 0])}, checked=True)
    with torch.no_grad():
        ours = loaded.heads["multiple_choice"].scores(reader.states(given, ("summary",)), given)
        theirs = model.eval()(
            input_ids=batch["tokens"][None], attention_mask=batch["block"][None], token_type_ids=batch["segments"][None],
            visual_embeds=features[None], visual_attention_mask=torch.ones(1, 2, 3, dtype=torch.long),
        )
    torch.testing.assert_close(ours, theirs.logits[0], rtol=0, atol=1e-4)


def test_uniter_judges_each_answer_by_two_outputs() -> None:
    """`UniterForVisualCommonsenseReasoning.forward`: the pooler, Linear, ReLU, LayerNorm, Linear to 2; the mean cross-entropy of
    all rows, and ranks by the second output."""
    torch.manual_seed(0)
    objective = judge(outputs=2, pool=True, transform=Relu(times=2, norm_epsilon=1e-12), width=6, clock=Clock()).double()
    states, head = torch.randn(5, 6, dtype=torch.double), objective.head
    owner, targets = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 0, 1, 0])
    hidden = head.dense(torch.tanh(head.pool(states))).relu()
    logits = head.output(F.layer_norm(hidden, [12], head.norm.weight, head.norm.bias, 1e-12))
    batch = Batch({"targets/label": targets, "owner": owner})
    loss = objective({"summary": states}, batch)
    assert loss.total.item() / float(objective.count(batch)) == pytest.approx(F.cross_entropy(logits, targets).item())
    torch.testing.assert_close(objective.scores({"summary": states}, batch), logits)


def test_vl_bert_judges_each_answer_by_one_output() -> None:
    """`binary_cross_entropy_with_logits(logits, label_binary)` of resnet_vlbert_for_vcr.py with CLASSIFIER_SIGMOID."""
    torch.manual_seed(0)
    objective = judge(outputs=1, pool=True, width=6, clock=Clock()).double()
    states, head = torch.randn(8, 6, dtype=torch.double), objective.head
    owner, answers = torch.arange(2).repeat_interleave(4), torch.tensor([2, 0])
    logits = head.output(torch.tanh(head.pool(states))).view(2, 4)
    binary = (torch.arange(4) == answers[:, None]).double()
    batch = Batch({"targets/label": binary.flatten().long(), "owner": owner})
    loss = objective({"summary": states}, batch)
    assert loss.total.item() / float(objective.count(batch)) == pytest.approx(
        F.binary_cross_entropy_with_logits(logits, binary).item()
    )
    assert loss.metrics["correct"].item() == ((logits > 0) == (binary > 0)).sum().item()


def test_an_answer_counts_with_its_rationale_if_both_are_right(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`compute_accuracies` of ChenRocks/UNITER, train_vcr.py: matched_qa & matched_qar, the rationale given the right answer."""
    answers = tune(folder, "uniter", tmp_path / "qa")
    columns = ("text=question_answer", "text_b=rationales", "label=rationale_label")
    rationales = tune(folder, "uniter", tmp_path / "qar", *(word for value in columns for word in ("--set", f"corpus.{value}")))
    file, items = str(folder / "train.jsonl"), ["--items", str(folder / "f.npz")]
    rows = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    right = []
    for out, label in ((answers, "answer_label"), (rationales, "rationale_label")):
        capsys.readouterr()
        assert main(["predict", str(out), file, *items]) == 0
        chosen = [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()]
        right.append(np.array([choice == row[label] for choice, row in zip(chosen, rows, strict=True)]))
    assert main(["evaluate", str(answers), str(rationales), file, *items, "--bootstrap", "100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["both_right"] == {file: pytest.approx((right[0] & right[1]).mean())}
    assert [found[str(out)][file]["metrics"]["accuracy"] for out in (answers, rationales)] == pytest.approx(
        [side.mean() for side in right]
    )
    assert main(["evaluate", str(answers), str(rationales), file, *items, "--bootstrap", "100"]) == 0
    assert f"both right   {(right[0] & right[1]).mean():.4f}" in capsys.readouterr().out
