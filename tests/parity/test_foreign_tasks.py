"""Heads that transformers saved: cloze takes the task and the labels from config.json and predicts what transformers computes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.share import share
from cloze.cli.main import main
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError, TaskError
from cloze.interop import import_folder
from cloze.tasks.tuned_folder import load_tuned, read_task_json

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

TEXTS = ["The cat sleeps on the mat.", "rain"]
CLASSIFIERS = (
    "bert", "distilbert", "ernie", "mobilebert", "roberta", "xlm-roberta", "camembert", "albert", "electra", "xlm", "flaubert",
    "xlnet", "modernbert", "modernbert-decoder", "openai-gpt", "gpt2", "bart", "llama", "mistral", "qwen2", "qwen3", "smollm3",
    "olmo2", "gemma", "data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl", "mpnet", "esm", "roformer", "big_bird",
    "megatron-bert", "deberta", "deberta-v2",
)  # fmt: skip
TWO: dict[str, Any] = {"num_labels": 2}
MULTI: dict[str, Any] = {"num_labels": 3, "problem_type": "multi_label_classification"}
Save = Callable[..., Any]


@pytest.fixture
def save(systems: ModuleType, foreign: ModuleType) -> Save:
    """Saves a model of one architecture with a class and keys of its config; returns the model."""

    def build(folder: Path, name: str = "bert", cls: str | None = None, **changes: Any) -> Any:
        kind = foreign.KINDS[name]
        pieces = systems.tokenizer(kind.tokenizer)
        model = foreign.model_of(kind, pieces, cls=cls or kind.classifier, **changes)
        foreign.save(model, pieces, folder)
        return model

    return build


def logits_of(model: Any, folder: Path, *texts: str) -> dict[str, torch.Tensor]:
    """What transformers' model computes of the ids that cloze reads of a text or of two, without the dimension of the batch."""
    learner: Any = load_tuned(load_checkpoint(folder))[0]
    (row,) = learner.reader.encode(*([text] for text in texts))
    ids = torch.from_numpy(row.ids[None]).long()
    fields = {"langs": torch.zeros_like(ids)} if model.config.model_type == "xlm" else {}
    if len(texts) > 1 and model.config.model_type == "bert":
        fields["token_type_ids"] = torch.from_numpy(row.segments[None]).long()
    with torch.inference_mode():
        output = model(ids, **fields)
    return {name: output[name][0] for name in ("logits", "start_logits", "end_logits") if name in output}


def set_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_predicts_by_its_problem_type_and_number_of_labels(save: Save, tmp_path: Path, name: str) -> None:
    model = save(tmp_path / "two", name, **TWO)
    assert "id2label" not in json.loads((tmp_path / "two" / "config.json").read_text())
    answer = cloze.load(tmp_path / "two").predict(TEXTS[0])
    expected = logits_of(model, tmp_path / "two", TEXTS[0])["logits"].softmax(-1)
    assert answer.probabilities == pytest.approx({"LABEL_0": float(expected[0]), "LABEL_1": float(expected[1])}, abs=1e-4)

    model = save(tmp_path / "multi", name, **MULTI)
    several = cloze.load(tmp_path / "multi").predict(TEXTS[0])
    expected = logits_of(model, tmp_path / "multi", TEXTS[0])["logits"].sigmoid()
    assert list(several.probabilities.values()) == pytest.approx(expected.tolist(), abs=1e-4)
    assert several.labels == [f"LABEL_{number}" for number in range(3) if expected[number] >= 0.5]

    model = save(tmp_path / "number", name, num_labels=1)
    value = cloze.load(tmp_path / "number").predict(TEXTS[0]).value
    assert value == pytest.approx(float(logits_of(model, tmp_path / "number", TEXTS[0])["logits"]), abs=1e-4)


@pytest.mark.parametrize(("name", "prefix"), [("bert", "Bert"), ("roberta", "Roberta"), ("modernbert", "ModernBert")])
def test_a_tagger_an_extractor_and_a_chooser_predict(save: Save, tmp_path: Path, name: str, prefix: str) -> None:
    model = save(tmp_path / "tagger", name, f"{prefix}ForTokenClassification")
    (tagged,) = cloze.load(tmp_path / "tagger").predict([["cat"]])
    expected = logits_of(model, tmp_path / "tagger", "cat")["logits"][1]
    assert tagged.labels == (f"LABEL_{int(expected.argmax())}",)

    model = save(tmp_path / "extractor", name, f"{prefix}ForQuestionAnswering")
    question = {"question": "Who sleeps?", "context": "The cat sleeps on the mat."}
    (answer,) = cloze.load(tmp_path / "extractor").predict([question])
    scores = logits_of(model, tmp_path / "extractor", *question.values())
    learner: Any = load_tuned(load_checkpoint(tmp_path / "extractor"))[0]
    (row,) = learner.reader.encode([question["question"]], [question["context"]])
    inside = [place for place, part in enumerate(row.part.tolist()) if part == 1]
    starts, ends = scores["start_logits"].tolist(), scores["end_logits"].tolist()
    spans = {(i, j): starts[i] + ends[j] for i in inside for j in inside if i <= j < i + 30}
    first, last = max(spans, key=lambda span: spans[span])
    assert answer.answer.replace(" ", "") == learner.reader.tokenizer.decode(row.ids[first : last + 1]).replace(" ", "").strip()
    squad = [{"id": "1", **question, "answers": {"text": [answer.answer], "answer_start": [answer.start]}}]
    (tmp_path / "squad.jsonl").write_text("".join(json.dumps(one) + "\n" for one in squad))
    assert cloze.load(tmp_path / "extractor").evaluate(tmp_path / "squad.jsonl").metrics["exact_match"] == 1.0

    model = save(tmp_path / "chooser", name, f"{prefix}ForMultipleChoice")
    assert read_task_json(tmp_path / "chooser")["task"] == "multiple_choice"
    (tmp_path / "choices.jsonl").write_text(json.dumps({"text": "The cat", "choices": ["sleeps", "a dog"]}) + "\n")
    (chosen,) = cloze.load(tmp_path / "chooser").predict(tmp_path / "choices.jsonl")
    expected = chosen_by(model, tmp_path / "chooser", "The cat", ["sleeps", "a dog"])
    assert chosen.probabilities == pytest.approx(expected.tolist(), abs=1e-4)


def chosen_by(model: Any, folder: Path, text: str, choices: list[str]) -> torch.Tensor:
    """The probabilities that transformers gives the choices, one by one."""
    learner: Any = load_tuned(load_checkpoint(folder))[0]
    scores = []
    for row in learner.reader.encode([text] * len(choices), choices):
        fields = {"token_type_ids": torch.from_numpy(row.segments[None, None]).long()}
        fields = fields if model.config.model_type == "bert" else {}
        with torch.inference_mode():
            scores.append(model(torch.from_numpy(row.ids[None, None]).long(), **fields).logits[0, 0])
    return torch.stack(scores).softmax(0)


def test_the_threshold_decides_which_classes_are_predicted(
    save: Save, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, **MULTI)
    assert main(["predict", str(tmp_path), TEXTS[0], "--threshold", "0.01"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == ["LABEL_0", "LABEL_1", "LABEL_2"]


def test_a_file_may_give_the_labels_by_their_numbers_and_the_evaluation_says_so(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "two", **TWO, id2label={0: "bad", 1: "good"})
    model = cloze.load(tmp_path / "two")
    found = [str(model.labels.index(one.label)) for one in model.predict(TEXTS)]
    evaluation = model.evaluate(list(zip(TEXTS, found, strict=True)))
    assert evaluation.metrics["accuracy"] == 1.0
    named = ", ".join(f"{number} is {model.labels[int(number)]}" for number in sorted(set(found)))
    assert evaluation.remarks == (f"the labels of the file are read as the numbers that config.json gives them: {named}",)
    assert not model.evaluate([(TEXTS[0], "good")]).remarks
    with pytest.raises(TaskError, match="the label '2' does not occur in config.json. Known: bad, good."):
        model.evaluate([(TEXTS[0], "0"), (TEXTS[1], "2")])

    save(tmp_path / "multi", **MULTI)
    several = cloze.load(tmp_path / "multi")
    numbers = [[name.removeprefix("LABEL_") for name in several.predict(text).labels] for text in TEXTS]
    assert several.evaluate([(text, ",".join(own)) for text, own in zip(TEXTS, numbers, strict=True)]).metrics["micro_f1"] == 1.0

    save(tmp_path / "tagger", cls="BertForTokenClassification")
    tagger = cloze.load(tmp_path / "tagger")
    (tagged,) = tagger.predict([["cat", "dog"]])
    rows = [{"text": ["cat", "dog"], "label": [name.removeprefix("LABEL_") for name in tagged.labels]}]
    evaluation = tagger.evaluate(rows)
    assert evaluation.metrics["accuracy"] == 1.0
    assert evaluation.baseline is not None and evaluation.baseline["always"] == "LABEL_0"


def test_an_imported_folder_keeps_its_task_and_so_does_one_that_cloze_published(save: Save, tmp_path: Path) -> None:
    for name, changes in {"multi": MULTI, "number": {"num_labels": 1}, "two": TWO}.items():
        save(tmp_path / name, **changes)
        expected = cloze.load(tmp_path / name).predict(TEXTS)
        assert main(["import", str(tmp_path / name), "--out", str(tmp_path / f"{name}-in")]) == 0
        share(tmp_path / f"{name}-in", tmp_path / f"{name}-out")
        assert main(["import", str(tmp_path / f"{name}-out"), "--out", str(tmp_path / f"{name}-again")]) == 0
        for copy in (f"{name}-in", f"{name}-out", f"{name}-again"):
            assert cloze.load(tmp_path / copy).predict(TEXTS) == expected
            assert (tmp_path / copy / "cloze" / "task.json").is_file()
        again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / f"{name}-again")
        again.save_pretrained(tmp_path / f"{name}-saved")
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(tmp_path / name / file, tmp_path / f"{name}-saved")
        assert cloze.load(tmp_path / f"{name}-saved").predict(TEXTS) == expected


def test_fine_tuning_goes_on_with_the_head_of_the_folder(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "multi", **{**MULTI, "num_labels": 2}, id2label={0: "dog", 1: "cat"})  # not in the order of cloze's
    before = cloze.load(tmp_path / "multi").predict(TEXTS[0])
    (tmp_path / "rows.tsv").write_text("text\tlabel\nThe cat\tcat\nA dog\tcat,dog\n")
    rows = str(tmp_path / "rows.tsv")
    still = ["--set", "training.rate.peak=1e-12", "--set", "training.epochs=1", "--set", "length=16"]
    command = ["finetune", str(tmp_path / "multi"), "--task", "multi_label", "--train", rows, "--dev", rows]
    assert main([*command, "--out", str(tmp_path / "out"), *still]) == 0
    after = cloze.load(tmp_path / "out").predict(TEXTS[0])
    assert after.probabilities == pytest.approx(before.probabilities, abs=1e-4)


def test_the_onnx_file_of_an_imported_classifier_holds_its_head_and_labels(
    save: Save, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    save(tmp_path / "two", **TWO)
    assert main(["export", str(tmp_path / "two"), str(tmp_path / "two.onnx"), "--to", "onnx"]) == 0
    assert "not in the file" not in capsys.readouterr().out
    held = onnx.load(str(tmp_path / "two.onnx"))
    assert [one.name for one in held.graph.output] == ["last_hidden_state", "logits"]
    assert {one.key: one.value for one in held.metadata_props}["labels"] == '["LABEL_0", "LABEL_1"]'


def test_what_a_config_lacks_for_a_task_is_named_and_adding_it_helps(save: Save, tmp_path: Path) -> None:
    save(tmp_path, **TWO)
    set_config(tmp_path, architectures=None)
    with pytest.raises(CheckpointError) as refused:
        read_task_json(tmp_path)
    assert 'config.json names no class, such as "architectures": ["BertForSequenceClassification"]' in str(refused.value)
    set_config(tmp_path, **json.loads("{" + str(refused.value).partition("such as ")[2].partition(".\n")[0] + "}"))
    assert read_task_json(tmp_path)["labels"] == ["LABEL_0", "LABEL_1"]


@pytest.mark.parametrize(("changes", "said"), [
    ({"problem_type": "ranking"}, "config.json: problem_type is 'ranking'; expected single_label_classification, multi_label"),
    ({"problem_type": ["regression"]}, r"config.json: problem_type is \['regression'\]; expected single_label"),
    ({"id2label": {"0": "a", "1": "a"}}, "id2label is {'0': 'a', '1': 'a'}; expected a name for each class that no other has"),
    ({"id2label": {"0": None, "1": "a"}}, "id2label is {'0': None, '1': 'a'}; expected a name for each class"),
    ({"id2label": {"0": "a", "2": "b"}}, "id2label is {'0': 'a', '2': 'b'}; expected the name of each class by its number"),
    ({"problem_type": "regression"}, "predicts 2 numbers of a text; cloze's regression predicts one"),
    ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "names 3 labels .* and the head in model.safetensors has 2 outputs"),
    ({"architectures": ["BertForCausalThings"]}, "not fine-tuned: cloze does not read the head of BertForCausalThings; of"),
])  # fmt: skip
def test_a_config_that_no_task_follows_from_is_refused(save: Save, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    save(tmp_path, **TWO)
    set_config(tmp_path, **changes)
    with pytest.raises(CheckpointError, match=said):
        load_tuned(load_checkpoint(tmp_path))


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(tmp_path / "none"), "text"]) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'none'}: there is no such file or folder; expected a folder with config.json" in error
    assert "fine-tune" not in error


def test_a_roberta_with_two_segments_reads_a_pair_as_transformers_tokenizer_lays_it_out(
    systems: ModuleType, save: Save, tmp_path: Path
) -> None:
    model = save(tmp_path / "in", "roberta", type_vocab_size=2)
    pair_frame = "[CLS] {A} [SEP] [SEP] {B} [SEP]"
    systems.tokenizer("roberta").save(tmp_path / "in", length=28, frame_single="[CLS] {A} [SEP]", frame_pair=pair_frame)
    path = tmp_path / "in" / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    assert settings["tokenizer_class"] == "RobertaTokenizer"
    del settings["model_input_names"]  # as most folders are
    path.write_text(json.dumps(settings))
    pair = transformers.AutoTokenizer.from_pretrained(tmp_path / "in")(*TEXTS, return_tensors="pt")
    assert set(pair) == {"input_ids", "attention_mask"}
    with torch.inference_mode():
        expected = model.roberta(**pair).last_hidden_state[0]

    assert main(["import", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
    for folder in ("in", "out"):
        reader = Reader.of(load_checkpoint(tmp_path / folder))
        batch = reader.batch(reader.encode([TEXTS[0]], [TEXTS[1]]))
        assert batch["tokens"].tolist() == pair["input_ids"].tolist()
        with torch.inference_mode():
            torch.testing.assert_close(reader.states(batch, {"hidden"})["hidden"][0], expected, atol=1e-5, rtol=1e-5)

    path.write_text(json.dumps({**settings, "model_input_names": ["input_ids", "token_type_ids"]}))
    assert import_folder(tmp_path / "in").model.arguments["segments"] == 2


def test_a_text_is_cut_where_the_tokenizer_of_the_folder_cuts_it(systems: ModuleType, save: Save, tmp_path: Path) -> None:
    model = save(tmp_path / "in")
    systems.tokenizer("wordpiece").save(tmp_path / "in", length=6, frame_single="[CLS] {A} [SEP]", frame_pair=None)
    pieces = transformers.AutoTokenizer.from_pretrained(tmp_path / "in")
    assert len(pieces(TEXTS[0])["input_ids"]) == 9
    with torch.inference_mode():
        expected = model(**pieces(TEXTS[0], truncation=True, return_tensors="pt")).logits[0].softmax(-1).tolist()

    assert main(["import", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
    assert main(["import", str(tmp_path / "out"), "--out", str(tmp_path / "again")]) == 0
    for folder in ("in", "out", "again"):
        with pytest.warns(UserWarning, match="longer than the network reads and lost their end, 3 tokens in all$"):
            answer = cloze.load(tmp_path / folder).predict(TEXTS[0])
        assert list(answer.probabilities.values()) == pytest.approx(expected, abs=1e-5)
        assert json.loads((tmp_path / folder / "tokenizer_config.json").read_text())["model_max_length"] == 6
