"""`cloze export --to onnx`: onnxruntime opens the file and computes the same, at every batch and length."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.decoding.reader import Reader
from cloze.reading import Reading

Folder = Callable[..., Path]
TEXTS = ["the cat saw the dog", "the rain", "the night in the garden all the night"]


def run_file(path: Path, folder: Path) -> tuple[dict[str, Any], Any]:
    """The outputs of a file for three texts of different lengths, and the batch that the network reads."""
    runtime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    reader = Reader.of(load_checkpoint(folder))
    batch = reader.batch(reader.encode(TEXTS))
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    named = {"input_ids": "tokens", "attention_mask": "block", "token_type_ids": "segments"}
    given = {one.name: batch[named[one.name]].numpy() for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs()]
    found = dict(zip(names, map(torch.from_numpy, session.run(names, given)), strict=True))
    return found, (reader, batch, session)


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "electra", "modern"])
def test_an_encoder_computes_the_same_states(folder: Folder, cloze: Callable[..., Any], tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    said = cloze("export", folder(name), tmp_path / "m.onnx", "--to", "onnx")
    assert said.code == 0 and "opened by onnxruntime" in said.out, said.err
    found, (reader, batch, _) = run_file(tmp_path / "m.onnx", folder(name))
    with torch.no_grad():
        expected = reader.states(batch, {"hidden"})["hidden"]
    real = batch["block"] > 0
    torch.testing.assert_close(found["last_hidden_state"][real], expected[real], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("name", "shape"), [("classifier", 2), ("gpt2-classifier", 2), ("tagger", 3)])
def test_a_classifier_and_a_labeller_give_the_scores_of_their_heads(
    folder: Folder, tuned: Folder, cloze: Callable[..., Any], tmp_path: Path, name: str, shape: int
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    source = tuned() if name == "classifier" else folder(name)
    assert cloze("export", source, tmp_path / "m.onnx", "--to", "onnx").code == 0
    found, (reader, batch, session) = run_file(tmp_path / "m.onnx", source)
    (head,) = [one for key, one in load_checkpoint(source).heads.items() if key in ("classification", "class", "tags")]
    with torch.no_grad():
        states = reader.states(batch, set(head.reads))
        expected = head.head(states["hidden"], batch["block"]) if shape == 3 else head.head(states["summary"])
    assert found["logits"].dim() == shape
    real = batch["block"] > 0 if shape == 3 else slice(None)
    torch.testing.assert_close(found["logits"][real], expected[real], atol=1e-4, rtol=0)
    if name == "classifier":
        assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == ["animal", "weather"]


def test_int8_is_smaller_and_close(folder: Folder, cloze: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    assert cloze("export", folder("bert"), tmp_path / "a.onnx", "--to", "onnx").code == 0
    said = cloze("export", folder("bert"), tmp_path / "b.onnx", "--to", "onnx", "--int8")
    assert said.code == 0 and "int8: the largest difference from the network is" in said.out
    exact, rounded = (run_file(tmp_path / f"{one}.onnx", folder("bert"))[0]["last_hidden_state"] for one in "ab")
    assert 1e-5 < float((exact - rounded).norm() / exact.norm()) < 0.05


@pytest.mark.parametrize(("file", "message"), [
    ("model.onnx", "its ONNX file computes other numbers (largest difference inf); nothing was written"),
    ("int8.onnx", "in int8 its ONNX file computes no numbers (NaN); nothing was written.\n  Leave out --int8."),
])  # fmt: skip
def test_a_file_that_computes_no_numbers_is_not_written(
    folder: Folder, cloze: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, message: str
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

    class Broken(runtime.InferenceSession):  # type: ignore[misc, name-defined]
        def __init__(self, path: str, **options: Any) -> None:
            super().__init__(path, **options)
            self.broken = Path(path).name == file

        def run(self, names: Any, inputs: Any) -> Any:
            outputs = super().run(names, inputs)
            if self.broken:
                outputs[0][0, 0, 0] = float("nan")
            return outputs

    monkeypatch.setattr(runtime, "InferenceSession", Broken)
    said = cloze("export", folder("bert"), tmp_path / "m.onnx", "--to", "onnx", "--int8")
    assert said.code == 2 and message in said.err and list(tmp_path.iterdir()) == []


def records(said: Any) -> list[dict[str, Any]]:
    """What `cloze predict` printed."""
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


@pytest.mark.parametrize("name", ["classifier", "gpt2-classifier", "tagger"])
def test_a_file_alone_predicts_what_its_folder_does(
    folder: Folder, tuned: Folder, cloze: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    source = tuned() if name == "classifier" else folder(name)
    source = tagging(source, tmp_path / "tagger") if name == "tagger" else source
    assert cloze("export", source, tmp_path / "m.onnx", "--to", "onnx").code == 0
    moved = (tmp_path / "elsewhere").mkdir() or (tmp_path / "m.onnx").rename(tmp_path / "elsewhere" / "moved.onnx")
    expected, found = (records(cloze("predict", one, *TEXTS, "--batch", 2)) for one in (source, moved))
    for ours, theirs in zip(found, expected, strict=True):
        assert shares_of(ours) == pytest.approx(shares_of(theirs), abs=1e-4) and len(shares_of(ours)) > 1
        assert {key: ours[key] for key in ("line", "text")} == {key: theirs[key] for key in ("line", "text")}
        assert ours.get("labels", ours.get("label")) == theirs.get("labels", theirs.get("label"))


def shares_of(row: dict[str, Any]) -> list[float]:
    """The probabilities of a prediction."""
    shares = row["probabilities"]
    return list(shares.values() if isinstance(shares, dict) else shares)


def tagging(source: Path, out: Path) -> Path:
    """A copy of a folder whose head labels words, as if it was fine-tuned."""
    shutil.copytree(source, out)
    classes = json.loads((source / "cloze" / "network.json").read_text())["heads"]["tags"]["arguments"]["classes"]
    columns = {"text": "text", "label": "label"}
    described = {
        "version": 1, "task": "token_labelling", "columns": columns, "labels": [f"t{n}" for n in range(classes)],
        "constant_answer": "t0",
        "head": "tags", "length": None,
    }
    (out / "cloze" / "task.json").write_text(json.dumps(described))
    return out


def test_a_file_is_evaluated_and_compared_with_its_folder(
    tuned: Folder, tables: Path, cloze: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    dev = tables / "dev.tsv"
    said = cloze("export", tuned(), tmp_path / "m.onnx", "--to", "onnx", "--int8")
    assert said.code == 0 and f"Next: cloze evaluate {tmp_path / 'm.onnx'} FILE" in said.err
    made = json.loads(cloze("evaluate", tuned(), tmp_path / "m.onnx", dev, "--json").out)
    exact, rounded = made[str(tuned())][str(dev)], made[str(tmp_path / "m.onnx")][str(dev)]
    assert rounded["examples"] == 16 and rounded["baseline"] == exact["baseline"]
    assert rounded["calibration"]["brier"] == pytest.approx(exact["calibration"]["brier"], abs=0.02)


def test_an_int8_answer_does_not_depend_on_its_batch(
    tuned: Folder, cloze: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    said = cloze("export", tuned(), tmp_path / "m.onnx", "--to", "onnx", "--int8")
    assert "the scores of a row depend on its batch; cloze runs row by row" in said.out
    together = records(cloze("predict", tmp_path / "m.onnx", *TEXTS))
    alone = [records(cloze("predict", tmp_path / "m.onnx", text))[0] for text in TEXTS]
    assert [row["probabilities"] for row in together] == [row["probabilities"] for row in alone]
    import cloze as package

    loaded = package.load(tmp_path / "m.onnx").checkpoint
    loaded.network.alone = False  # as other programs run it
    reader = Reader.of(loaded)
    batched = reader.states(reader.batch(reader.encode(TEXTS)), {"logits"})["logits"]
    single = torch.cat([reader.states(reader.batch(reader.encode([text])), {"logits"})["logits"] for text in TEXTS])
    assert not torch.equal(batched, single)


def test_a_folder_holds_what_optimum_and_cloze_open(
    tuned: Folder, cloze: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    transformers = pytest.importorskip("transformers")
    out = tmp_path / "student"
    assert cloze("export", tuned(), out, "--to", "onnx").code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "cloze", "config.json", "model.onnx", "tokenizer.json", "tokenizer_config.json",
    ]
    config = transformers.AutoConfig.from_pretrained(out)
    assert config.architectures == ["BertForSequenceClassification"] and config.id2label == {0: "animal", 1: "weather"}
    assert transformers.AutoTokenizer.from_pretrained(out)("the cat")["input_ids"]
    expected = records(cloze("predict", tuned(), *TEXTS))
    for path in (out, out / "model.onnx"):
        assert [row["label"] for row in records(cloze("predict", path, *TEXTS))] == [row["label"] for row in expected]
    optimum = pytest.importorskip("optimum.onnxruntime")
    assert optimum.ORTModelForSequenceClassification.from_pretrained(out).config.num_labels == 2
    refused = cloze("export", tuned(), out, "--to", "onnx")
    assert refused.code == 2


MODERN = {"transform": {"gelu": {"norm_epsilon": 1e-5, "biases": False}}}  # what stands before the outputs of ModernBERT
LABELS = ["animal", "weather", "other"]
HEADS = [
    ("modern", "classify", "sentence_classification", {"classes": 3, "reading": "mean", **MODERN}),
    ("modern", "classify", "pair_classification", {"classes": 3, "reading": "mean", **MODERN}),
    ("modern", "soft_classification", "sentence_classification", {"classes": 3, "reading": "mean", **MODERN}),
    ("modern", "several", "multi_label", {"classes": 3, "reading": "mean", **MODERN}),
    ("modern", "regress", "regression", {"reading": "mean", **MODERN}),
    ("bert", "regress", "regression", {"reading": "mean", "transform": "tanh"}),
    ("gpt2", "several", "multi_label", {"classes": 3, "reading": "mean"}),
]


def with_head(
    name: str, part: str, task: str, arguments: dict[str, Any], out: Path, *, deviation: float = 0.5,
    reading: Reading | None = None,
) -> Path:
    """A folder of a system with a random head, as if it was fine-tuned for a task. `deviation` is that of its weights; `reading`
    takes the place of the system's."""
    from cloze.interop import Card, PortableHead, export_folder
    from tests.interop.conftest import load_systems

    systems = load_systems()
    system = systems.system(name, **{"positions.max_length": 40})
    arguments = {"set": "label", "dropout": 0.0, **arguments}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        inputs = {"width": 16, "vocab_size": system.tokenizer.size, "table": None, "clock": system.network.clock}
        head = systems.objective(part, arguments, inputs)
        for weight in (parameter for parameter in head.parameters() if parameter.dim() == 2):
            torch.nn.init.normal_(weight, std=deviation)
    model = system.model()
    model.heads["answer"] = PortableHead(part, arguments, head.state_dict())
    labels = tuple(LABELS) if "classes" in arguments else None
    export_folder(
        out, model=model, tokenizer=system.tokenizer, reading=reading or system.reading, card=Card("tuned"), labels=labels
    )
    two = task in ("pair_classification", "multiple_choice")
    columns = {"text": "text", "text_b": "text_b" if two else None, "label": "label"}
    described = {"version": 1, "task": task, "columns": columns, "labels": labels, "head": "answer", "length": 20}
    (out / "cloze" / "task.json").write_text(json.dumps(described))
    return out


@pytest.mark.parametrize(("name", "part", "task", "arguments"), HEADS)
def test_a_head_that_reads_all_tokens_gives_the_same_scores_alone_and_next_to_padding(
    tmp_path: Path, name: str, part: str, task: str, arguments: dict[str, Any]
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    from cloze.checkpoint.onnx_file import write_onnx, write_onnx_folder
    from cloze.tasks.tuned_folder import load_tuned

    source = with_head(name, part, task, arguments, tmp_path / "tuned")
    write_onnx(source, tmp_path / "m.onnx")
    write_onnx_folder(source, tmp_path / "folder")
    learner = load_tuned(load_checkpoint(source))[0]
    rows = learner.reader.encode(TEXTS, TEXTS[::-1] if task == "pair_classification" else None)
    alone = torch.cat([torch.from_numpy(learner.all_scores([row])) for row in rows])
    assert float(alone.std(0).min()) > 0.01  # the texts differ
    for path in (tmp_path / "m.onnx", tmp_path / "folder"):
        in_file = load_tuned(load_checkpoint(path))[0]
        padded = torch.from_numpy(in_file.all_scores(rows))
        torch.testing.assert_close(padded, alone, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(torch.from_numpy(in_file.all_scores(rows[:1])), alone[:1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("single", ["[CLS] {A} [MASK] [SEP]", "[CLS] {A} [SEP] [MASK] [SEP]"])
def test_a_head_that_reads_the_state_of_a_mask_is_exported(tmp_path: Path, single: str) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    from cloze.checkpoint.onnx_file import write_onnx
    from cloze.tasks.tuned_folder import load_tuned

    reading = Reading(single, summary="mask")
    head_arguments = {"classes": 3, "reading": "summary"}
    source = with_head("bert", "classify", "sentence_classification", head_arguments, tmp_path / "tuned", reading=reading)
    assert "logits" in write_onnx(source, tmp_path / "m.onnx").outputs
    learner, in_file = (load_tuned(load_checkpoint(path))[0] for path in (source, tmp_path / "m.onnx"))
    rows = learner.reader.encode(TEXTS)
    alone = torch.cat([torch.from_numpy(learner.all_scores([row])) for row in rows])
    assert float(alone.std(0).min()) > 0.01  # the texts differ
    torch.testing.assert_close(torch.from_numpy(in_file.all_scores(rows)), alone, atol=1e-5, rtol=1e-5)
    found, (reader, batch, _) = run_file(tmp_path / "m.onnx", source)
    hidden = reader.states(batch, {"hidden"})["hidden"]
    columns = torch.tensor([row.ids.tolist().index(reader.tokenizer.role("[MASK]")) for row in rows])
    head = load_checkpoint(source).heads["answer"].head
    torch.testing.assert_close(found["logits"], head(hidden[torch.arange(3), columns]).detach(), atol=1e-5, rtol=1e-5)


def test_a_regression_to_large_numbers_is_exported(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    from cloze.checkpoint.onnx_file import MOST, write_onnx
    from cloze.tasks.tuned_folder import load_tuned

    source = with_head("bert", "regress", "regression", {"reading": "mean"}, tmp_path / "tuned", deviation=1e8)
    assert write_onnx(source, tmp_path / "m.onnx").difference < MOST
    learner, in_file = (load_tuned(load_checkpoint(path))[0] for path in (source, tmp_path / "m.onnx"))
    rows = learner.reader.encode(TEXTS)
    expected = learner.all_scores(rows)
    assert abs(expected).max() > 1e6
    torch.testing.assert_close(*(torch.from_numpy(scores) for scores in (in_file.all_scores(rows), expected)), rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_head_that_reads_all_tokens_is_close_in_int8_and_the_same_in_any_batch(tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    from cloze.checkpoint.onnx_file import write_onnx
    from cloze.tasks.tuned_folder import load_tuned

    source = with_head(name, "several", "multi_label", {"classes": 3, "reading": "mean"}, tmp_path / "tuned")
    write_onnx(source, tmp_path / "int8.onnx", int8=True)
    exact, in_int8 = (load_tuned(load_checkpoint(path))[0] for path in (source, tmp_path / "int8.onnx"))
    rows = exact.reader.encode(TEXTS)
    scores, rounded = (torch.from_numpy(learner.all_scores(rows)) for learner in (exact, in_int8))
    assert 0 < float((rounded - scores).norm() / scores.norm()) < 0.1
    assert torch.equal(rounded, torch.cat([torch.from_numpy(in_int8.all_scores([row])) for row in rows]))


def test_a_mean_classifier_is_predicted_and_evaluated_from_its_file(
    tables: Path, cloze: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    source = with_head(*HEADS[0], tmp_path / "tuned")
    exported = cloze("export", source, tmp_path / "m.onnx", "--to", "onnx")
    assert exported.code == 0 and "not in the file" not in exported.out, exported.err
    assert f"Next: cloze evaluate {tmp_path / 'm.onnx'} FILE" in exported.err
    expected, answers = (records(cloze("predict", path, *TEXTS)) for path in (source, tmp_path / "m.onnx"))
    for answer, reference in zip(answers, expected, strict=True):
        assert shares_of(answer) == pytest.approx(shares_of(reference), abs=1e-5)
        assert answer["label"] == reference["label"]
    measured = json.loads(cloze("evaluate", source, tmp_path / "m.onnx", tables / "dev.tsv", "--json").out)
    by_network, by_file = (measured[str(path)][str(tables / "dev.tsv")] for path in (source, tmp_path / "m.onnx"))
    assert by_file["metrics"] == by_network["metrics"] and by_file["examples"] == 16


@pytest.mark.parametrize(("row", "name", "pooling"), [
    (0, "ModernBertForSequenceClassification", "mean"), (3, "ModernBertForSequenceClassification", "mean"),
    (5, "BertModel", None),
])  # fmt: skip
def test_config_json_names_a_class_that_has_the_head_or_one_without_heads(
    tmp_path: Path, row: int, name: str, pooling: str | None
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    from cloze.checkpoint.onnx_file import write_onnx_folder

    write_onnx_folder(with_head(*HEADS[row], tmp_path / "tuned"), tmp_path / "folder")
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert config["architectures"] == [name] and config.get("classifier_pooling") == pooling


def test_the_remark_on_int8_names_the_folder_that_was_written(tuned: Folder, cloze: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    said = cloze("export", tuned(), tmp_path / "m", "--to", "onnx", "--int8")
    assert said.code == 0 and f"To measure the quality: cloze evaluate {tmp_path / 'm'} FILE" in said.out


@pytest.mark.parametrize("int8", [[], ["--int8"]])
def test_a_head_that_the_file_cannot_hold_is_named_and_nothing_advises_to_evaluate(
    cloze: Callable[..., Any], tmp_path: Path, int8: list[str]
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    source = with_head("modern", "choose", "multiple_choice", {"reading": "mean", **MODERN}, tmp_path / "tuned")
    for out in (tmp_path / "m.onnx", tmp_path / "folder"):
        exported = cloze("export", source, out, "--to", "onnx", *int8)
        assert exported.code == 0 and "the head answer (choose) is not in the file" in exported.out
        assert f"to predict, use {source}" in exported.out and "evaluate" not in exported.out + exported.err
        refused = cloze("predict", out, "the cat\tthe dog")
        assert refused.code == 2 and f"{out}: holds a network without the head of its task, multiple_choice" in refused.err
        assert "cloze-onnx-" not in refused.err


def test_errors_name_the_file_and_never_where_it_is_unpacked(
    tuned: Folder, cloze: Callable[..., Any], tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
    file = tmp_path / "m.onnx"
    assert cloze("export", tuned(), file, "--to", "onnx").code == 0
    for command in (["fill", file, "the [MASK]"], ["look", file, "the cat"], ["retrieve", file, "cat", "--passages", file]):
        refused = cloze(*command)
        assert refused.code == 2 and f"{file}: " in refused.err and "cloze-onnx-" not in refused.err, refused.err
    assert "is an ONNX file, expected a checkpoint" in cloze("export", file, tmp_path / "n.onnx", "--to", "onnx").err
    model = onnx.load(str(file))
    texts = json.loads({entry.key: entry.value for entry in model.metadata_props}["cloze"])
    for name in ("cloze/task.json", "cloze/network.json", "tokenizer.json"):
        onnx.helper.set_model_props(model, {"cloze": json.dumps({**texts, name: "{"})})
        damaged = tmp_path / f"{Path(name).stem}.onnx"
        onnx.save(model, str(damaged))
        refused = cloze("predict", damaged, "the cat")
        assert refused.code == 2 and str(damaged) in refused.err and "cloze-onnx-" not in refused.err, refused.err


def test_a_file_that_cloze_did_not_export_is_refused(
    folder: Folder, cloze: Callable[..., Any], tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    refused = cloze("predict", tmp_path / "bad.onnx", "the cat")
    assert refused.code == 2 and "bad.onnx: onnxruntime cannot open it" in refused.err
    assert cloze("export", folder("bert"), tmp_path / "m.onnx", "--to", "onnx").code == 0
    refused = cloze("predict", tmp_path / "m.onnx", "the cat")
    assert refused.code == 2 and "not fine-tuned" in refused.err
    model = onnx.load(str(tmp_path / "m.onnx"))
    for props, message in (
        ({}, "holds no tokenizer and no task, so `cloze export` did not write it"),
        ({"cloze": '{"../evil.json": "{}", "cloze/onnx.json": "{}"}'}, "its metadata are not what cloze writes there."),
    ):
        onnx.helper.set_model_props(model, props)
        path = tmp_path / f"{len(message)}.onnx"
        onnx.save(model, str(path))
        refused = cloze("predict", path, "the cat")
        assert refused.code == 2 and message in refused.err and "Traceback" not in refused.err


@pytest.mark.parametrize(("options", "said"), [
    (["out.bin", "--to", "onnx"], "out.bin: expected a new file that ends in .onnx"),
    (["no/such/m.onnx", "--to", "onnx"], "its folder does not exist"),
    (["vectors.txt", "--int8"], "--int8 is for --to onnx, not for --to word2vec"),
])  # fmt: skip
def test_what_cannot_be_written_is_refused(
    folder: Folder, cloze: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = cloze("export", folder("bert"), *options)
    assert refused.code == 2 and said in refused.err and not list(tmp_path.iterdir())


def test_without_the_packages_the_extra_is_named(
    folder: Folder, cloze: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    refused = cloze("export", folder("bert"), tmp_path / "m.onnx", "--to", "onnx")
    assert refused.code == 2
    assert "--to onnx needs the package onnx, which is not installed." in refused.err
    assert 'Install it with: pip install "cloze-lm[onnx]"' in refused.err


def test_a_network_that_the_format_cannot_hold_is_refused_in_words(
    cloze: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    from cloze.checkpoint.build import build_step
    from cloze.checkpoint.publish import Publisher
    from cloze.recipe.load import load_recipe
    from tests.interop.conftest import load_systems

    pieces, recipe = load_systems().tokenizer("t5"), load_recipe("t5-small", size="tiny")
    Publisher(recipe, pieces)(tmp_path / "run", build_step(recipe, vocab_size=pieces.size).state_dict(), 0)
    refused = cloze("export", tmp_path / "run", tmp_path / "m.onnx", "--to", "onnx")
    assert refused.code != 0 and "this is encoder decoder" in refused.err and not (tmp_path / "m.onnx").exists()
