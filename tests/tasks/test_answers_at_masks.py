"""Answers about pictures that are read at a [MASK]: heads and losses of VL-BERT and VisualBERT, from training to transformers."""

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
from cloze.decoding.reader import Reader
from cloze.networks import Clock
from cloze.objectives import several, soft_classification
from cloze.objectives.transforms import Gelu
from tests.tasks.pictured import pretrain, write_items

COUNT = 12
KIND = np.arange(COUNT) % 3
SCORES = torch.tensor([[1.0, 0.3, 0], [0, 0, 0], [0.6, 0.6, 1]], dtype=torch.double)


def test_the_loss_of_visualbert_is_the_divergence_from_scores_that_need_not_sum_to_one() -> None:
    """`KLDivLoss(reduction="batchmean")` of log_softmax and the scores, in `TrainVisualBERTObjective`."""
    torch.manual_seed(0)
    objective = soft_classification(classes=3, loss="scores", width=4, clock=Clock()).double()
    states = torch.randn(3, 4, dtype=torch.double)
    loss = objective({"summary": states}, Batch({"values/label": SCORES, "positions/label": torch.arange(3)}))
    expected = F.kl_div(F.log_softmax(objective.head(states), -1), SCORES, reduction="batchmean")
    assert loss.total.item() / 3 == pytest.approx(expected.item())


def test_the_head_and_the_loss_of_vl_bert() -> None:
    """`final_mlp` of the type mlm (dense, GELU, LayerNorm, output), and the mean binary cross-entropy times the answers."""
    torch.manual_seed(0)
    objective = several(
        classes=3, summed=True, transform=Gelu(norm_epsilon=1e-12), dropout=0.1, width=4, clock=Clock()
    ).double().eval()
    states, head = torch.randn(3, 4, dtype=torch.double), objective.head
    logits = head.output(F.layer_norm(F.gelu(head.dense(states)), [4], head.norm.weight, head.norm.bias, 1e-12))
    loss = objective({"summary": states}, Batch({"values/label": SCORES, "positions/label": torch.arange(3)}))
    expected = F.binary_cross_entropy_with_logits(logits, SCORES) * SCORES.shape[1]
    assert loss.total.item() / 3 == pytest.approx(expected.item())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions, the items of their pictures, and checkpoints that were tuned for one epoch."""
    made = tmp_path_factory.mktemp("masks")
    write_items(made / "f.npz", KIND)
    captions = [{"image": str(n), "text": ["what is it", "it is here"]} for n in range(COUNT)]
    rows = [{"img_id": str(n), "label": {"abc"[KIND[n]]: 1, "b": 0.3}, "sent": "what is it"} for n in range(COUNT)]
    (made / "train.json").write_text(json.dumps(rows), encoding="utf-8")
    for system in ("vl-bert", "visualbert"):
        pretrain(system, made, captions)
        tune(made, system, made / f"{system}-vqa")
    return made


def tune(folder: Path, system: str, out: Path, *more: str) -> None:
    file = str(folder / "train.json")
    given = ["--train", file, "--dev", file, "--set", "training.epochs=1", "--device", "cpu", "--out", str(out), *more]
    items = [] if "--no-items" in more else ["--items", str(folder / "f.npz")]
    given = [word for word in given if word != "--no-items"]
    assert main(["finetune", str(folder / system), "--task", "visual_question_answering", *items, *given]) == 0


@pytest.mark.parametrize(
    ("system_", "template", "segments"),
    [
        ("vl-bert", "[CLS] {A} [SEP] [MASK] [SEP]", [0, 0, 0, 0, 0, 1, 1]),
        ("visualbert", "[CLS] {A} [MASK] [SEP]", [0, 0, 0, 0, 0, 0]),
    ],
)
def test_a_tuned_checkpoint_reads_the_state_of_the_mask(
    folder: Path, system_: str, template: str, segments: list[int]
) -> None:
    loaded = load_checkpoint(folder / f"{system_}-vqa")
    reader = Reader.of(loaded)
    assert (loaded.reading.single, loaded.reading.summary) == (template, "mask")
    rows = reader.encode(["what is it", "it"])
    batch = reader.batch(rows)
    roles = loaded.tokenizer.roles
    mask = batch["tokens"].flatten()[batch["summaries"]]
    assert mask.tolist() == [roles["[MASK]"]] * 2 and int(batch["tokens"][0, len(rows[0]) - 2]) == roles["[MASK]"]
    assert batch["segments"][0].tolist() == segments
    states = reader.states(batch, ("hidden", "summary"))
    assert torch.equal(states["summary"], states["hidden"].flatten(0, 1)[batch["summaries"]])


def test_the_answers_of_vl_bert_start_from_the_head_that_predicts_words(folder: Path, tmp_path: Path) -> None:
    """`PARTIAL_PRETRAIN_PREFIX_CHANGES` of cfgs/vqa/base_4x16G_fp32.yaml: mlm_head.predictions.transform becomes final_mlp.0."""
    tune(folder, "vl-bert", tmp_path / "out", "--set", "training.rate.linear.peak=0")
    started, words = load_checkpoint(tmp_path / "out").heads["answers"], load_checkpoint(folder / "vl-bert").heads
    mlm: Any = next(head for name, head in words.items() if name.startswith("token_prediction"))
    for layer in ("dense", "norm"):
        for name, tensor in mlm.head.get_submodule(layer).state_dict().items():
            assert torch.equal(started.head.get_submodule(layer).state_dict()[name], tensor)


def test_questions_without_pictures_are_read_without_the_edit_that_chooses_regions(folder: Path, tmp_path: Path) -> None:
    tune(folder, "vl-bert", tmp_path / "out", "--no-items")
    recipe = (tmp_path / "out/cloze/recipe.yaml").read_text(encoding="utf-8")
    assert "limit_items" not in recipe and "number_segments" in recipe


@pytest.mark.parity
def test_the_tuned_folder_of_visualbert_opens_as_the_class_that_answers_questions(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model, info = transformers.VisualBertForQuestionAnswering.from_pretrained(
        folder / "visualbert-vqa", output_loading_info=True
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    loaded = load_checkpoint(folder / "visualbert-vqa")
    reader = Reader.of(loaded)
    features = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(0))
    batch = reader.batch(reader.encode(["what is it", "it"]))
    given = Batch({
        **batch, "item_vectors/regions": features, "item_length/regions": torch.tensor([3, 2])}, checked=True
    )  # fmt: skip
    states = reader.states(given, ("summary",))
    ours = loaded.heads["answers"].head(states["summary"])
    with torch.no_grad():
        theirs = model.eval()(
            input_ids=batch["tokens"], attention_mask=batch["block"], token_type_ids=batch["segments"], visual_embeds=features,
            visual_attention_mask=torch.tensor([[1, 1, 1], [1, 1, 0]]),
        )
    torch.testing.assert_close(ours, theirs.logits, rtol=0, atol=1e-4)
    assert sorted(model.config.id2label.values()) == ["a", "b", "c"]
