"""Files of others in older layouts: pickled weights, configs without a model type, peft's folders; and advice that works."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.saved_change import write_change
from cloze.cli.main import as_note, main
from cloze.errors import CheckpointError
from cloze.interop import import_folder
from cloze.tasks.tuned_folder import load_tuned, read_task_json
from cloze.text import layout

from .conftest import publish_start

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

TEXT = "The cat sleeps on the mat."


@pytest.fixture
def folder(systems: ModuleType, foreign: ModuleType, tmp_path: Path) -> Path:
    """A classifier of BERT as transformers saves it."""
    pieces = systems.tokenizer("wordpiece")
    model = foreign.model_of(foreign.KINDS["bert"], pieces, cls="BertForSequenceClassification", num_labels=2)
    folder: Path = foreign.save(model, pieces, tmp_path / "model")
    return folder


def pickled(folder: Path) -> dict[str, torch.Tensor]:
    """Put pytorch_model.bin in the place of model.safetensors; returns its tensors."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    return tensors


def test_weights_of_pytorch_model_bin_are_those_of_safetensors(folder: Path) -> None:
    expected = cloze.load(folder).predict(TEXT)
    tensors = pickled(folder)
    assert cloze.load(folder).predict(TEXT) == expected

    (folder / "pytorch_model.bin").unlink()
    names = sorted(tensors)
    shards = {f"pytorch_model-0000{number + 1}-of-00002.bin": names[number::2] for number in range(2)}
    for file, own in shards.items():
        torch.save({name: tensors[name] for name in own}, folder / file)
    places = {name: file for file, own in shards.items() for name in own}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    assert cloze.load(folder).predict(TEXT) == expected


class Planted:
    """Runs code when it is unpickled by Python's own reader."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


def test_code_in_a_pickle_never_runs_and_the_printed_line_saves_the_tensors_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = cloze.load(folder).predict(TEXT)
    planted = tmp_path / "planted"
    torch.save({**pickled(folder), "harmless": Planted(planted)}, folder / "pytorch_model.bin")
    assert main(["predict", str(folder), TEXT]) == 2
    said = capsys.readouterr().err
    assert f"{folder / 'pytorch_model.bin'}: torch does not read it as tensors alone: it is damaged, or holds code." in said
    assert not planted.exists()

    line = said.partition("save its tensors again: ")[2].strip()
    places = {"PATH": str(folder / "pytorch_model.bin"), "NEW": str(folder / "pytorch_model.bin")}
    exec(line, {"torch": torch, **places})
    assert planted.exists()  # the file was trusted
    assert cloze.load(folder).predict(TEXT) == expected


def test_a_config_under_its_old_name_and_one_without_a_model_type_are_read(folder: Path) -> None:
    expected = cloze.load(folder).predict(TEXT)
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"]
    (folder / "config.json").write_text(json.dumps(config))
    assert cloze.load(folder).predict(TEXT) == expected  # by the class

    (folder / "config.json").rename(folder / "bert_config.json")
    assert cloze.load(folder).predict(TEXT) == expected


def test_the_line_that_a_config_lacks_is_named_and_helps(folder: Path) -> None:
    expected = import_folder(folder).model.network
    config = json.loads((folder / "config.json").read_text())
    for key in ("model_type", "architectures"):
        del config[key]
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    with pytest.raises(CheckpointError, match="no model_type; its tensors have the names of BERT's") as refused:
        import_folder(folder)
    line = str(refused.value).partition("into config.json: ")[2]
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("{", "{\n  " + line, 1))
    found = import_folder(folder).model.network
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_cased_vocabulary_that_is_lower_cased_is_said_and_the_advice_helps(folder: Path) -> None:
    pieces = sorted(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"].items(), key=lambda item: item[1])
    names = [name for name, _ in pieces]
    names[-1] = "Cat"
    (folder / "vocab.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.warns(UserWarning, match="vocab.txt: pieces have capitals .*, but texts are lower-cased") as told:
        assert import_folder(folder).tokenizer.encode("Cat").ids.tolist() != [len(names) - 1]
    advice = str(told[0].message).partition("write ")[2].partition(" into that file")[0]
    (folder / "tokenizer_config.json").write_text(advice)
    assert import_folder(folder).tokenizer.encode("Cat").ids.tolist() == [len(names) - 1]


def test_a_warning_of_cloze_is_one_line_on_the_command_line(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Cat", *map(str, range(127))]))
    with pytest.warns(UserWarning, match="pieces have capitals"):
        assert main(["predict", str(folder), TEXT]) == 0
    assert as_note("so it is", UserWarning, str(layout.__file__), 1) == "note: so it is\n"
    assert as_note("so it is", UserWarning, str(torch.__file__), 1).startswith(f"{torch.__file__}:1: UserWarning: so")


@pytest.fixture
def base(systems: ModuleType, tmp_path: Path) -> Path:
    """A network without heads of tasks, on which peft trains."""
    return publish_start(tmp_path / "base", "bert", systems.tokenizer("wordpiece"))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("cls", "task", "labels"), [
    ("BertForSequenceClassification", "SEQ_CLS", 3), ("BertForSequenceClassification", "SEQ_CLS", 1),
    ("BertForTokenClassification", "TOKEN_CLS", 3), ("BertForQuestionAnswering", "QUESTION_ANS", 2),
])  # fmt: skip
def test_a_folder_of_peft_opens_with_its_head_and_task(base: Path, tmp_path: Path, cls: str, task: str, labels: int) -> None:
    peft = pytest.importorskip("peft")
    model = getattr(transformers, cls).from_pretrained(base, num_labels=labels)
    trained = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["query", "value"], task_type=task)).eval()
    trained.save_pretrained(tmp_path / "peft")
    learner, described = load_tuned(load_checkpoint(tmp_path / "peft"))
    kinds = {"TOKEN_CLS": "token_labelling", "QUESTION_ANS": "question_answering"}
    assert described["task"] == kinds.get(task, None if labels > 1 else "regression")
    texts = ["cat"] if task != "QUESTION_ANS" else [("Who?", "The cat.")]
    (answer,) = cloze.load(tmp_path / "peft").predict([["cat"]] if task == "TOKEN_CLS" else texts)
    ids = torch.from_numpy(learner.reader.encode(["cat"])[0].ids[None]).long()
    with torch.inference_mode():
        logits = trained(ids).get("logits")
    if task == "SEQ_CLS" and labels > 1:
        assert list(answer.probabilities.values()) == pytest.approx(logits[0].softmax(-1).tolist(), abs=1e-4)
        assert list(answer.probabilities) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    elif task == "SEQ_CLS":
        assert answer.value == pytest.approx(float(logits), abs=1e-4)
    elif task == "TOKEN_CLS":
        assert answer.labels == (f"LABEL_{int(logits[0, 1].argmax())}",)
    else:
        assert answer.answer in "The cat."


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_peft_and_transformers_open_what_cloze_exports_by_the_lines_of_its_card(base: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    rows = "text\tlabel\nThe cat sleeps\tcat\nA dog barks\tdog\nrain\tweather\n"
    (tmp_path / "rows.tsv").write_text(rows)
    files = ["--train", str(tmp_path / "rows.tsv"), "--dev", str(tmp_path / "rows.tsv"), "--out", str(tmp_path / "run")]
    settings = ["--set", "training.epochs=1", "--set", "length=16"]
    assert main(["finetune", str(base), *files, "--change", "lora=2", *settings]) == 0
    write_change(tmp_path / "run", tmp_path / "x", peft=True)
    said = json.loads((tmp_path / "x" / "adapter_config.json").read_text())
    assert said["task_type"] == "SEQ_CLS" and Path(said["base_model_name_or_path"]) == base.resolve()
    assert said["auto_mapping"] == {"base_model_class": "BertForSequenceClassification", "parent_library": "transformers"}

    card = (tmp_path / "x" / "README.md").read_text()
    assert "library_name: peft" in card
    code = card.partition("```python\n")[2].partition("```")[0]
    assert "AutoPeftModelForSequenceClassification" in code
    opened: dict[str, Any] = {}
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        exec(code, opened)
    finally:
        os.chdir(here)
    expected = cloze.load(tmp_path / "run").predict("The cat")
    with torch.inference_mode():
        found = opened["model"].eval()(**opened["tokenizer"]("The cat", return_tensors="pt")).logits[0].softmax(-1)
    labels = opened["model"].config.id2label
    shares = {labels[number]: share for number, share in enumerate(found.tolist())}
    assert shares == pytest.approx(expected.probabilities, abs=1e-4)


def test_a_bart_says_where_its_norms_are_as_its_authors_do(systems: ModuleType, foreign: ModuleType, tmp_path: Path) -> None:
    """CTranslate2's converter reads `normalize_before` and `normalize_embedding` from the config of transformers."""
    pieces = systems.tokenizer("roberta")
    foreign.save(foreign.model_of(foreign.KINDS["bart"], pieces), pieces, tmp_path / "in")
    assert main(["import", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert (config.normalize_before, config.normalize_embedding) == (False, True)


def test_a_pipe_in_the_place_of_weights_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    for verb in (["predict", str(folder), TEXT], ["embed", str(folder), TEXT, "--out", str(folder / "vectors.npy")]):
        assert main(verb) == 2
        assert f"{folder / 'model.safetensors'}: not an ordinary file" in capsys.readouterr().err
    assert main(["show", str(folder)]) == 0  # which lists faults
    assert f"{folder / 'model.safetensors'}: not an ordinary file" in capsys.readouterr().out
    assert read_task_json(folder)["labels"] == ["LABEL_0", "LABEL_1"]
