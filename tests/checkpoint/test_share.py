"""`cloze export --to huggingface`: a folder to publish, with nothing of the text in it, and a card without gaps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cloze.cli.main import main
from cloze.interop import import_folder

TEXT = "The owl naps in the barn.\nIt dreams of zucchini.\n\nA heron wades.\nIt waits for frogs.\n\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("share")
    (place / "text.txt").write_text(TEXT * 20)
    sizes = ["network.layers=1", "network.width=16", "network.heads=2", "network.feed_forward.inner=16",
        "text.tokenizer.wordpiece.size=120"]
    arguments = [word for value in (*sizes, "training.batch=4") for word in ("--set", value)]
    assert main([
        "pretrain", "bert", "--corpus", str(place / "text.txt"), "--budget", "3steps", "--device", "cpu", "--out",
        str(place / "run"), *arguments,
    ]) == 0  # fmt: skip
    return place / "run"


def test_the_folder_holds_the_model_and_nothing_of_the_text(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "my bert"
    assert main(["export", str(run), str(out), "--to", "huggingface"]) == 0
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert names == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md", "modules.json",
        "1_Pooling/config.json", "sentence_bert_config.json", "cloze/network.json", "cloze/recipe.yaml",
    }  # fmt: skip
    first, second = import_folder(run), import_folder(out)
    assert first.model.network.keys() == second.model.network.keys() and second.step == 3
    assert all(bool((tensor == second.model.network[name]).all()) for name, tensor in first.model.network.items())
    assert main(["fill", str(out), "The owl [MASK] in the barn."]) == 0
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_card_tells_data_loss_language_and_licence(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "owls"
    told = ["--language", "en,fr", "--licence", "cc-by-4.0", "--data", "Four sentences on birds"]
    assert main(["export", str(run), str(out), "--to", "huggingface", *told]) == 0
    card = (out / "README.md").read_text()
    front = card.split("---")[1]
    assert "language:\n- en\n- fr\nlicense: cc-by-4.0\n" in front
    assert re.search(r"Text: Four sentences on birds\. 40 documents with [\d,]+ tokens\.", card)
    records = [json.loads(line) for line in (run / "cloze" / "log.jsonl").read_text().splitlines()]
    loss = [record["loss"] for record in records if record["event"] == "held_out"][-1]
    assert f"Loss on held-out text after 3 steps: {loss:.4f} (" in card
    for gap in ("FOLDER", "TEXTS.txt", "VECTORS", "No licence is stated"):
        assert gap not in card
    assert 'from_pretrained("owls")' in card and 'cloze embed owls "A text." "Another text."' in card


def test_the_card_of_a_run_warns_of_the_text_next_to_it(run: Path) -> None:
    card = (run / "README.md").read_text()
    assert "it holds the training text as ids" in card and "cloze export RUN DIR --to huggingface" in card
    assert 'from_pretrained("run")' in card and "license:" not in card


@pytest.mark.parametrize(("arguments", "said"), [
    (["--to", "huggingface", "--licence", "My own!"], "expected a licence of the Hub, such as mit"),
    (["--to", "huggingface", "--language", "English"], "expected ISO 639 codes such as en"),
    (["--to", "huggingface", "--overwrite"], "choose a new or empty folder"),
    (["--to", "word2vec", "--licence", "mit"], "are for --to huggingface, not for --to word2vec"),
    (["--to", "hugginface"], "Did you mean 'huggingface'"),
    (["--to", "onnx", "--licence", "mit"], "--licence and --data are for --to huggingface, not for --to onnx"),
    (["--to", "onnx", "--base", "x"], "--base is for --to peft and --to change, not for --to onnx"),
    (["--to", "onnx", "--overwrite"], "for --to onnx choose a new or empty folder or a new file"),
    (["--to", "peft", "--task", "topics"], "--task is for --to huggingface and --to onnx, not for --to peft"),
    (["--to", "change", "--language", "en"], "are for --to huggingface, not for --to change"),
    (["--to", "change", "--overwrite"], "for --to change choose a new or empty folder"),
    (["--to", "fasttext", "--task", "topics"], "not for --to fasttext"),
])  # fmt: skip
def test_what_cannot_be_published_is_told_and_nothing_is_written(
    run: Path, tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run), str(tmp_path / "out"), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_is_left_as_it_is(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["export", str(run), str(tmp_path), "--to", "huggingface"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_fine_tuned_folder_keeps_its_task_and_tells_its_figures(run: Path, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "The owl naps\towl\nA heron wades\theron\n" * 2)
    files = ["--train", str(tmp_path / "train.tsv"), "--dev", str(tmp_path / "train.tsv"), "--out", str(tmp_path / "tuned")]
    assert main(["finetune", str(run), *files, "--set", "training.epochs=1", "--set", "length=16"]) == 0
    assert 'pipeline("text-classification", model="tuned", truncation=True' in (tmp_path / "tuned" / "README.md").read_text()
    assert main(["export", str(tmp_path / "tuned"), str(tmp_path / "birds"), "--to", "huggingface"]) == 0
    card = (tmp_path / "birds" / "README.md").read_text()
    assert re.search(r"\| accuracy \| [01]\.\d{4} \|", card) and "Fine-tuned from `run`." in card and "model-index:" in card
    assert "All settings are in `cloze/recipe.yaml`" in card and (tmp_path / "birds" / "cloze" / "recipe.yaml").is_file()
    assert main(["predict", str(tmp_path / "birds"), str(tmp_path / "train.tsv")]) == 0
