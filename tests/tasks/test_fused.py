"""BERT-fused translation from fine-tuning to evaluation: a translator and a BERT that has another tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.share import share
from cloze.cli.main import main
from cloze.decoding.generating.forms import ByDecoder
from cloze.decoding.generating.search import Beams
from cloze.decoding.generating.sequence import Manner
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError
from cloze.recipe.load import load_recipe
from cloze.runs.binds import other_readings
from cloze.tasks import load_tuned
from cloze.tasks.evaluation import evaluate
from cloze.training.tensors import read_tensors

WORDS = ("cat", "cheese", "dog", "garden", "rain")
ROWS = [(f"{a} {b} {a}", f"{b} {a}") for a in WORDS for b in WORDS if a < b]
VALUES = ["--set", "training.epochs=2", "--set", "training.batch=4", "--set", "length=12"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, folder: Callable[[str], Path], writer: Callable[[str], Path]) -> Any:
    """A small BART tuned with a small BERT, whose folder is gone; and what they were tuned on."""
    place = tmp_path_factory.mktemp("fused")
    rows = place / "swap.jsonl"
    rows.write_text("".join(json.dumps({"text": a, "target": b}) + "\n" for a, b in ROWS))
    bert = shutil.copytree(folder("bert"), place / "bert")
    command = [
        "finetune", str(writer("bart")), "--recipe", "bert-fused", "--bind", f"bert={bert}", "--task", "text_to_text",
        "--train", str(rows), "--dev", str(rows), *VALUES, "--keep-checkpoints",
        "--out", str(place / "run"),
    ]
    assert main(command) == 0
    bert.rename(place / "elsewhere")
    return SimpleNamespace(out=place / "run", rows=rows, bert=folder("bert"), command=command, place=place)


def test_the_folder_holds_the_other_network_once_and_unchanged(run: Any) -> None:
    found, expected = load_checkpoint(run.out).other("bert"), load_checkpoint(run.bert)
    theirs = expected.network.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in found.network.state_dict().items())
    assert found.tokenizer.hash == expected.tokenizer.hash != load_checkpoint(run.out).tokenizer.hash
    copies = [*run.out.glob("cloze/**/networks/bert/model.safetensors")]
    assert len(copies) > 1 and len({path.stat().st_ino for path in copies}) == 1
    last = sorted(run.out.glob("cloze/checkpoints/step-*/state/parameters.safetensors"))[-1]
    assert not [name for name in read_tensors(last) if name.startswith("networks.bert")]


def test_evaluating_the_folder_gives_the_loss_that_training_measured(run: Any) -> None:
    learner, described = load_tuned(load_checkpoint(run.out))
    found = evaluate(learner, learner.task.read(run.rows))
    assert found.metrics["loss"] == pytest.approx(described["dev"]["loss"], rel=1e-5)


def test_the_other_network_reads_the_text_in_its_own_pieces(run: Any) -> None:
    reader, other = Reader.of(load_checkpoint(run.out)), Reader.of(load_checkpoint(run.bert))
    texts = [ROWS[0][0], "cat"]
    batch, expected = reader.batch(reader.encode(texts)), other.batch(other.encode(texts))
    assert torch.equal(batch["fused.tokens"], expected["tokens"]) and torch.equal(batch["fused.block"], expected["block"])
    torch.testing.assert_close(batch["fused.vectors"], other.states(expected, {"hidden"})["hidden"])


def test_beams_over_several_rows_score_what_reading_at_once_scores(run: Any) -> None:
    loaded = load_checkpoint(run.out)
    form = ByDecoder(Reader.of(loaded))
    head = next(iter(loaded.heads.values()))
    sources = [form.source(ids) for ids in form.reader.ids([text for text, _ in ROWS[:3]])]
    written = form.write(head, sources, Manner(tokens=5, beams=Beams(3, length_penalty=0.0)))
    end = loaded.tokenizer.roles["[SEP]"]
    pairs = [
        SimpleNamespace(source=source, target=np.array([*one.ids, *([end] if one.ended else [])], np.int32))
        for source, one in zip(sources, written, strict=True)
    ]
    with torch.inference_mode():
        expected = form.log_probabilities(head, pairs)
    assert [one.score for one in written] == pytest.approx(expected, rel=1e-4)


def test_a_copy_is_whole_and_other_exports_are_refused_in_words(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    remarks = share(run.out, run.place / "copy")
    assert any("the layers of this network read the states of 'bert'" in remark for remark in remarks)
    assert main(["predict", str(run.place / "copy"), "cat rain"]) == 0
    capsys.readouterr()
    for to, said in (("change", "a change saved alone would lack"), ("merged", "cannot be written as an ordinary network")):
        assert main(["export", str(run.out), str(run.place / to), "--to", to]) == 2
        assert said in capsys.readouterr().err
        assert not (run.place / to).exists()


def test_a_run_resumes_and_checkpoints_still_share_one_copy(run: Any) -> None:
    (run.place / "elsewhere").rename(run.place / "bert")
    assert main([*run.command, "--set", "training.epochs=3", "--extend"]) == 0
    events = [json.loads(line) for line in (run.out / "cloze" / "log.jsonl").read_text().splitlines()]
    assert events[-1]["step"] > 6
    copies = [*run.out.glob("cloze/**/networks/bert/model.safetensors")]
    assert len({path.stat().st_ino for path in copies}) == 1


def test_a_bert_that_reads_from_left_to_right_is_refused(
    run: Any, folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [f"bert={folder('gpt2')}" if word.startswith("bert=") else word for word in run.command[:-1]]
    assert main([*command, str(tmp_path / "new")]) == 2 and not (tmp_path / "new").exists()
    told = capsys.readouterr().err
    assert "networks.bert.architecture: gpt2 does not fit: order is 'open', transformers' GPT-2 has 'left_to_right'" in told
    assert "The network begins with 'bert': bind a checkpoint that the recipe can read as it was trained." in told
    store: Any = None  # it is not opened before
    with pytest.raises(CheckpointError, match="networks.bert reads left_to_right, and the recipe reads open"):
        other_readings(load_recipe("bert-fused"), store, {"bert": folder("gpt2")})
