"""Questions about pictures: soft scores of answers, the accuracy of VQA, and the files of LXMERT from training to predictions."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import cloze
from cloze.batch import Batch
from cloze.checkpoint.new_heads import start_head
from cloze.cli.main import main
from cloze.corpus.records.scored import ScoredClassesAnswer, scores_in
from cloze.errors import TaskError
from cloze.networks import Clock
from cloze.objectives import classify, several
from cloze.objectives.transforms import Gelu
from cloze.tasks import task
from tests.tasks.pictured import pretrain, write_items

ANSWERS = ("red", "blue", "green")
SYSTEMS = ("lxmert", "uniter", "vilbert", "visualbert", "vl-bert")
RATES = {"vilbert": "step_decay"}  # of others linear
COUNT = 24
KIND = np.arange(COUNT) % 3


def test_the_loss_is_the_mean_binary_cross_entropy_times_the_number_of_answers() -> None:
    """`loss.mean() * batch['targets'].size(1)` of UNITER's train_vqa.py, `loss * logit.size(1)` of LXMERT's vqa.py."""
    torch.manual_seed(0)
    objective = several(classes=3, summed=True, width=4, clock=Clock()).double()
    summary = torch.randn(2, 4, dtype=torch.double)
    scores = torch.tensor([[1.0, 0.3, 0], [0, 0, 0]], dtype=torch.double)
    batch = Batch({"values/label": scores, "positions/label": torch.tensor([0, 1])})
    loss = objective({"summary": summary}, batch)
    mean = loss.total.item() / float(objective.count(batch))
    assert mean == pytest.approx(F.binary_cross_entropy_with_logits(objective.head(summary), scores).item() * scores.shape[1])


def test_the_dense_map_and_norm_start_from_the_head_that_answered_in_pretraining() -> None:
    """As `load_lxmert_qa` of LXMERT's qa_answer_table.py copies `logit_fc.0` and `logit_fc.2`; the outputs are new ones."""
    torch.manual_seed(0)
    form = Gelu(times=2, norm_epsilon=1e-12)
    answered = classify(set="answer", classes=5, transform=form, width=4, clock=Clock())
    other = classify(set="object", classes=5, transform=Gelu(norm_epsilon=1e-12), width=4, clock=Clock())
    head = several(classes=3, transform=form, width=4, clock=Clock())
    first = head.head.output.weight.clone()
    assert start_head(head, SimpleNamespace(heads={"object": other, "answer": answered}))  # type: ignore[arg-type]
    assert head.head.dense is not None and head.head.dense.weight.equal(answered.head.dense.weight)
    assert head.head.output.weight.equal(first)
    assert not start_head(head, SimpleNamespace(heads={"object": other}))  # type: ignore[arg-type]


def test_the_accuracy_is_the_mean_score_of_the_likeliest_answers() -> None:
    """`compute_score_with_logits` of UNITER's train_vqa.py, and `VQAEvaluator.evaluate` of LXMERT's vqa_data.py: an answer that
    the file does not name scores 0."""
    asked = task("visual_question_answering")
    truth = [{"red": 1.0, "blue": 0.3}, {"green": 0.6, "unseen": 1.0}, {}]
    outputs = np.array([[0.1, 0.8, 0.2], [0.1, 0.2, 0.3], [0.9, 0.1, 0.1]])
    found = asked.per_example(truth, outputs, ANSWERS)
    assert found.tolist() == [[0.3, 1.0], [0.6, 0.6], [0.0, 0.0]]
    assert asked.compute_metrics(found, ANSWERS) == {"vqa_accuracy": pytest.approx(0.3)}
    assert asked.constant_metrics("red", truth, ANSWERS) == {"vqa_accuracy": pytest.approx(1 / 3)}


@pytest.mark.parametrize(
    ("cell", "found"), [('{"net": 1, "wire": 0.3}', {"net": 1.0, "wire": 0.3}), ("{}", {}), (" net ", {"net": 1.0})]
)
def test_a_cell_holds_the_scores_of_answers_or_one_answer(cell: str, found: dict[str, float]) -> None:
    assert scores_in(cell) == found


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("", "empty; expected a JSON object"), ("{net", "expected a JSON object such as"),
        ('{"net": 2}', "the score of 'net' is 2, expected a number from 0 to 1"),
        ('{"net": true}', "the score of 'net' is True"), ('{"net": NaN}', "the score of 'net' is nan"),
    ],
)
def test_a_cell_without_scores_is_refused_with_its_line(tmp_path: Path, cell: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        scores_in(cell)
    path = tmp_path / "a.tsv"
    path.write_text(f"text\tlabel\nwhat\tred\nwhat\t{cell}\n", encoding="utf-8")
    with pytest.raises(TaskError, match=f"a.tsv:3: 'label' is .*{said}"):
        task("visual_question_answering").read(path)


def test_rows_give_the_score_of_every_class_and_unknown_classes_give_none() -> None:
    stored = {"label": np.array([[1, 0], [2, -1]]), "score": np.array([[1.0, 0.3], [0.6, -1.0]], np.float32)}
    scores = ScoredClassesAnswer().fields(stored, None, 3)["numbers/label"]  # type: ignore[arg-type]
    assert scores == pytest.approx(np.array([[0.3, 1, 0], [0, 0, 0.6]]))
    flat = {"label": np.array([1, 0, 2, 2]), "score": np.array([1.0, 0.3, 0.6, 0.6], np.float32)}
    told = ScoredClassesAnswer().description(flat, ANSWERS)
    assert told["constant_answer"] == "green" and told["label_counts"] == {"red": 0.3, "blue": 1.0, "green": 1.2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions as LXMERT's files have them, which only the second region of a picture answers, the items of the pictures, and
    checkpoints that read them."""
    made = tmp_path_factory.mktemp("questions")
    write_items(made / "f.npz", KIND)
    captions = [{"image": str(n), "text": ["what is it", "it is here"], "label": ANSWERS[n % 2]} for n in range(COUNT)]
    for system in SYSTEMS:
        pretrain(system, made, captions)
    rows = [
        {
            "answer_type": "other", "img_id": str(n), "label": {ANSWERS[KIND[n]]: 1, ANSWERS[KIND[n] - 1]: 0.3},
            "question_id": n, "question_type": "what is", "sent": "what is it",
        }
        for n in range(COUNT)
    ]  # fmt: skip
    (made / "train.json").write_text(json.dumps([*rows, {**rows[0], "label": {}}]), encoding="utf-8")
    (made / "minival.json").write_text(json.dumps([*rows[-8:], {**rows[0], "label": {"unseen": 1}}]), encoding="utf-8")
    return made


@pytest.mark.parametrize("system_", SYSTEMS)
def test_a_file_of_lxmert_is_learned_measured_and_answered(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], system_: str
) -> None:
    out, items = tmp_path / "out", ["--items", str(folder / "f.npz")]
    files = ["--train", str(folder / "train.json"), "--dev", str(folder / "minival.json"), "--out", str(out)]
    values = ["training.epochs=8", "training.batch=8", f"training.rate.{RATES.get(system_, 'linear')}.peak=2e-4"]
    given = [word for value in values for word in ("--set", value)]
    started = str(folder / system_)
    assert main(["finetune", started, "--task", "visual_question_answering", *files, *items, *given, "--device", "cpu"]) == 0
    described = json.loads((out / "cloze/task.json").read_text(encoding="utf-8"))
    assert described["dev"]["vqa_accuracy"] == pytest.approx(8 / 9) and described["columns"]["picture"] == "image"
    assert sorted(described["labels"]) == sorted(ANSWERS)
    recipe = (out / "cloze/recipe.yaml").read_text(encoding="utf-8")
    assert f"name: {system_}_visual_question_answering" in recipe
    capsys.readouterr()
    assert main(["evaluate", str(out), str(folder / "minival.json"), *items, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["metrics"] == pytest.approx({"vqa_accuracy": 8 / 9})
    assert any("3 answers of the training text would reach vqa_accuracy 0.8889" in remark for remark in found["remarks"])
    assert main(["predict", str(out), str(folder / "minival.json"), *items]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["label"] == ANSWERS[KIND[-8]] and list(first["probabilities"])[0] == first["label"]
    (answer,) = cloze.load(out).predict([("what is it", "4")], items=folder / "f.npz")
    assert answer.label == ANSWERS[KIND[4]]
