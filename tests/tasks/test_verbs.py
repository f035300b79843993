"""The verbs that use a checkpoint, as a user types them."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

Folder = Callable[[str], Path]
TRAIN = ["finetune", "{bert}", "--train", "{dev}", "--dev", "{dev}", "--out", "{here}/o"]


def test_fill_prints_words_with_probabilities(cloze: Any, folder: Folder) -> None:
    shown = cloze("fill", folder("bert"), "the [MASK] sleeps", "--top", 3)
    assert shown.code == 0 and len(shown.out.splitlines()) == 4 and "%" in shown.out
    (record,) = map(json.loads, cloze("fill", folder("bert"), "the [MASK] sleeps", "--json").out.splitlines())
    assert record["given"] == "the [MASK] sleeps" and len(record["masks"][0]) == 5


def test_generate_repeats_itself_with_a_seed(cloze: Any, folder: Folder) -> None:
    line = ["generate", folder("gpt2"), "The cat", "--tokens", 6, "--top-p", 0.9, "--count", 2]
    one, two = cloze(*line, "--seed", 4), cloze(*line, "--seed", 4)
    assert one.code == 0 and one.out == two.out and one.out.startswith("The cat") and "\n---\n" in one.out
    assert cloze(*line, "--seed", 5).out != one.out
    records = [json.loads(text) for text in cloze(*line, "--greedy", "--json").out.splitlines()]
    assert len(records) == 2 and records[0]["ids"] == records[1]["ids"] and len(records[0]["ids"]) == 6
    refused = cloze(*line, "--greedy", "--temperature", 0.7)
    assert refused.code == 2 and "--greedy is the same as --temperature 0, not 0.7" in refused.err


def test_embed_reads_standard_input_and_writes_npy(
    cloze: Any, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"the cat\n\nrain\n"), isatty=lambda: False))
    shown = cloze("embed", folder("bert"), "--out", tmp_path / "v.npy", "--pooling", "max", "--layer", 1)
    assert shown.code == 0 and np.load(tmp_path / "v.npy").shape == (3, 16)
    record = json.loads(cloze("embed", folder("bert"), "the cat", "--json", "--normalise").out)
    assert np.linalg.norm(record["vector"]) == pytest.approx(1)


@pytest.mark.parametrize("options", [["--normalise"], ["--pooling", "max"], ["--layer", 0], ["--of", "pair"], ["--json"]])
def test_options_of_one_vector_are_refused_where_every_token_has_its_own(
    cloze: Any, folder: Folder, tmp_path: Path, options: list[Any]
) -> None:
    refused = cloze("embed", folder("bert"), "the cat", "--layers", "all", "--out", tmp_path / "f.npz", *options)
    assert refused.code == 2 and f"{options[0]} is for one vector per text" in refused.err
    assert not (tmp_path / "f.npz").exists()


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl"])
def test_the_verbs_read_a_column_of_a_table_one_text_for_each_row(
    cloze: Any, folder: Folder, tmp_path: Path, name: str
) -> None:
    texts, path = ["the cat, the [MASK]", "the rain\nof the [MASK]"], tmp_path / name
    rows = [(text, f"label {number}") for number, text in enumerate(texts)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    else:
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t").writerows([("text", "label"), *rows])
    assert cloze("embed", folder("bert"), "--file", path, "--out", tmp_path / "v.npy").code == 0
    alone = [json.loads(cloze("embed", folder("bert"), text, "--json").out)["vector"] for text in texts]
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), alone, atol=1e-5)
    for verb, system, key in (("score", "gpt2", "text"), ("fill", "bert", "given"), ("generate", "gpt2", "prompt")):
        shown = cloze(verb, folder(system), "--file", path, "--json")
        assert [json.loads(line)[key] for line in shown.out.splitlines()] == texts, shown.err
    labels = cloze("score", folder("gpt2"), "--file", path, "--field", "label", "--json").out.splitlines()
    assert [json.loads(line)["text"] for line in labels] == ["label 0", "label 1"]
    missing = cloze("score", folder("gpt2"), "--file", path, "--field", "txt")
    assert missing.code == 2 and "Did you mean 'text'?" in missing.err


def test_score_ranks_pairs_and_sentences(cloze: Any, folder: Folder, tmp_path: Path) -> None:
    pairs = tmp_path / "one.jsonl"
    pairs.write_text('{"sentence_good": "the cat", "sentence_bad": "a dog"}\n{"sentence_good": "x", "sentence_bad": "x"}\n')
    for system in ("bert", "gpt2", "electra"):
        found = json.loads(cloze("score", folder(system), "--pairs", pairs, "--json").out)
        assert found["overall"]["pairs"] == 2 and found["overall"]["ties"] == 1 and found["files"][0]["file"] == "one"
    for options in (["--ends"], ["--segment", 3], ["--truncate"], ["--columns", "a,b"], ["--field", "a"], ["--target", "a"]):
        refused = cloze("score", folder("gpt2"), "--pairs", pairs, *options)
        assert refused.code == 2 and f"each alone; {options[0]} does not go with it" in refused.err
    refused = cloze("score", folder("gpt2"), "--pairs", pairs, "--perplexity")
    assert refused.code != 0 and "--perplexity is one figure for all texts" in refused.err
    refused = cloze("score", folder("gpt2"), "the cat", "--columns", "text,target")
    assert refused.code != 0 and "this network scores texts alone" in refused.err
    empty = json.loads(cloze("score", folder("gpt2"), "", "--perplexity", "--json").out)
    assert empty["perplexity"] is None and empty["tokens"] == 0
    shown = cloze("score", folder("bert"), "--pairs", pairs)
    assert shown.out.splitlines()[-1].startswith("overall")
    value, tokens, text = cloze("score", folder("gpt2"), "the cat").out.strip().split("\t")
    assert float(value) < 0 and int(tokens) > 0 and text == "the cat"


def test_a_long_text_is_scored_whole_and_counted_in_every_unit(cloze: Any, folder: Folder) -> None:
    text = "the cat sleeps in the garden; " * 40
    shown = cloze("score", folder("gpt2"), text, "--perplexity", "--stride", 9)
    found = json.loads(cloze("score", folder("gpt2"), text, "--perplexity", "--stride", 9, "--json").out)
    (alone,) = [json.loads(cloze("score", folder("gpt2"), text, "--json", "--stride", 9).out)]
    assert found["score"] == alone["score"] and (found["words"], found["bytes"], found["texts"]) == (240, len(text), 1)
    assert found["tokens"] == alone["tokens"] > 200 and alone["cut"] == 0
    assert found["bits_per_byte"] == pytest.approx(-found["score"] / len(text) / np.log(2))
    assert found["word_perplexity"] == pytest.approx(np.exp(-found["score"] / 240))
    head, word, byte, character = shown.out.splitlines()
    assert head == f"perplexity {found['perplexity']:.4f} over {found['tokens']} tokens of 1 texts (log_probability)"
    assert word == f"per word   {found['word_perplexity']:.4f} over 240 words"
    assert byte.endswith(f"over {len(text)} bytes: {found['bits_per_byte']:.4f} bits per byte")
    assert character.endswith(f"{found['bits_per_character']:.4f} bits per character")


def test_running_text_is_measured_in_bits_per_byte_and_the_pseudo_likelihood_is_named(
    cloze: Any, folder: Folder, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sleeps in the garden\nthe garden\n", encoding="utf-8")
    found = json.loads(cloze("score", folder("gpt2"), "--corpus", text, "--json").out)[str(text)]
    assert found["bytes"] == 38 and found["method"] == "log_probability" and found["bits_per_byte"] > 0
    lines = cloze("score", folder("bert"), "--corpus", text, "--bytes", 28).out.splitlines()
    assert "pseudo-bits per byte  tokens per word" in lines[0] and "no probability of the text" in lines[-1]
    assert lines[1].split()[:2] == [str(text), "28"]
    shown = cloze("score", folder("bert"), "the cat", "--perplexity").out
    assert shown.startswith("pseudo-perplexity ") and shown.count(" pseudo-bits per ") == 2


def test_running_text_is_read_in_the_encoding_that_is_named(cloze: Any, folder: Folder, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes("the cat \N{LATIN SMALL LETTER R WITH ACUTE}".encode("cp1250"))  # in cp1252 another letter of two bytes
    figures = {}
    for encoding in ("cp1250", "utf-16-le"):
        shown = cloze("score", folder("gpt2"), "--corpus", text, "--json", "--encoding", encoding)
        figures[encoding] = json.loads(shown.out)[str(text)]["bytes"] if shown.code == 0 else shown.err
    assert figures["cp1250"] == 10 and figures["utf-16-le"] != 10


@pytest.mark.parametrize(
    ("system", "options", "message"),
    [
        ("electra", ["--perplexity"], "--perplexity is for networks that predict tokens"),
        ("gpt2", ["--truncate"], "--truncate cuts answers"),
        ("gpt2", ["--ends"], "--segment and --ends are for texts that are read as one stream"),
        ("gpt2", ["--memory", "4", "--stride", "4"], "--stride and --max-length are for texts read one by one"),
        ("gpt2", ["--stride", "400"], "--stride 400: windows hold"),
        ("gpt2", ["--memory", "4"], r"This one (Transformer) does not; leave it out."),
        ("gpt2", ["--clamp", "4"], "Add it, such as --memory 640"),
        ("gpt2", ["--bytes", "9"], "--bytes says how --corpus is read"),
        ("gpt2", ["--format", "line"], "--format says how --corpus is read"),
        ("gpt2", ["--limit", "9"], "--limit bounds the pairs"),
        ("gpt2", ["--corpus", __file__], "--corpus measures running text as a whole; texts does not go with it"),
    ],
)  # fmt: skip
def test_options_of_score_that_would_do_nothing_are_refused(
    cloze: Any, folder: Folder, system: str, options: list[str], message: str
) -> None:
    refused = cloze("score", folder(system), "the cat", *options)
    assert refused.code == 2 and refused.out == "" and message in refused.err and "Traceback" not in refused.err


@pytest.mark.parametrize(
    "options", [["--perplexity"], ["--truncate"], ["--ends"], ["--field", "body"], ["--limit", "3"], ["--order", "open"]]
)
def test_options_of_score_that_running_text_does_not_have_are_refused(cloze: Any, folder: Folder, options: list[str]) -> None:
    refused = cloze("score", folder("gpt2"), "--corpus", __file__, *options)
    assert refused.code == 2 and f"{options[0]} does not go with it" in refused.err and "Traceback" not in refused.err


def test_running_text_is_read_in_windows_of_the_length_that_is_asked_for(cloze: Any, folder: Folder, tmp_path: Path) -> None:
    text = "the cat sleeps in the garden and the old dog runs in the garden"
    (tmp_path / "text.txt").write_text(text + "\n", encoding="utf-8")
    windows = ["--max-length", "8", "--stride", "3", "--json"]
    whole = json.loads(cloze("score", folder("gpt2"), "--corpus", tmp_path / "text.txt", *windows).out)
    alone = json.loads(cloze("score", folder("gpt2"), text, "--perplexity", *windows).out)
    assert whole[str(tmp_path / "text.txt")]["bits_per_byte"] == pytest.approx(alone["bits_per_byte"], rel=1e-6)
    at_once = json.loads(cloze("score", folder("gpt2"), text, "--perplexity", "--json").out)
    assert alone["tokens"] == at_once["tokens"] and alone["bits_per_byte"] != at_once["bits_per_byte"]


def test_finetune_evaluate_predict_follow_each_other(cloze: Any, folder: Folder, tables: Path, tmp_path: Path) -> None:
    train, dev, out = tables / "train.tsv", tables / "dev.tsv", tmp_path / "out"
    line = ["finetune", folder("bert"), "--train", train, "--dev", dev, "--test", dev, "--seeds", "1,2"]
    values = ["training.rate.peak=0.01", "training.epochs=3", "training.batch=8", "task.patience=0"]
    done = cloze(*line, *[a for v in values for a in ("--set", v)], "--out", out, "--device", "cpu")
    assert done.code == 0 and "always 'animal'" in done.out and "± " in done.out
    assert "seed 2\n" in done.err and "epoch 3.00  dev: accuracy" in done.err
    described = json.loads((out / "cloze" / "task.json").read_text())
    assert described["labels"] == ["animal", "weather"] and len(described["trials"]) == 2
    assert described["columns"] == {"text": "text", "text_b": None, "label": "label"}

    card = (out / "README.md").read_text()
    assert "\n# out\n" in card and "Fine-tuned from `bert`." in card and 'cloze predict out "A text."' in card
    results = yaml.safe_load(card.split("---\n")[1])["model-index"][0]["results"]
    assert [one["dataset"]["type"] for one in results] == ["dev", "test"]
    assert {one["name"]: one["value"] for one in results[0]["metrics"]} == described["dev"]

    measured = json.loads(cloze("evaluate", out, dev, "--json").out)[str(dev)]
    assert measured["metrics"] == described["dev"] and measured["baseline"]["accuracy"] == 0.5
    details = described["dev_report"]
    assert details == {name: measured[name] for name in ("report", "averages", "confusion", "calibration", "ranking")}
    assert "F1 by class: " in done.out and f"--threshold {details['ranking']['threshold']!r} of predict" in done.out
    assert "always 'animal'" in cloze("evaluate", out, dev).out

    rows = [json.loads(text) for text in cloze("predict", out, dev).out.splitlines()]
    assert len(rows) == 16 and rows[0]["line"] == 2 and set(rows[0]["probabilities"]) == {"animal", "weather"}
    assert cloze("predict", out, dev, "--out", tmp_path / "p.jsonl").code == 0
    assert [json.loads(text) for text in (tmp_path / "p.jsonl").read_text().splitlines()] == rows
    assert cloze("predict", out, dev, "--out", tmp_path / "p.jsonl").code == 0  # its own are replaced
    mine = tmp_path / "mine.tsv"
    mine.write_bytes(dev.read_bytes())
    refused = cloze("predict", out, mine, "--out", mine)
    assert refused.code == 2 and "holds the texts to predict, which would be lost" in refused.err
    assert mine.read_bytes() == dev.read_bytes()


def test_the_printed_commands_read_the_columns_and_the_encoding_of_training(
    cloze: Any, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = tmp_path / "words.conll", tmp_path / "out"
    file.write_bytes(("the DT O\ncat NN B-A\nna\xefve JJ O\n\n" + "the DT O\nrain NN B-W\n\n" * 6).encode("latin-1"))
    monkeypatch.chdir(tmp_path)
    line = ["finetune", folder("bert"), "--task", "token_labelling", "--train", file, "--dev", file, "--device", "cpu"]
    done = cloze(*line, "--set", "corpus.columns=[text,x,label]", "--set", "training.epochs=1", "--out", out)
    assert done.code == 2 and "words.conll:3: byte 0xef is not UTF-8, and the encoding is not certain" in done.err
    line += ["--encoding", "cp1252"]
    done = cloze(*line, "--set", "corpus.columns=[text,x,label]", "--set", "training.epochs=1", "--out", out)
    assert done.code == 0 and f"note: {file}: read as cp1252, as asked for\n" in done.err
    assert json.loads((out / "cloze" / "task.json").read_text())["files"] == {"columns": ["text", "x", "label"]}
    stores = [json.loads(path.read_text())["records"] for path in (out / "cloze").rglob("store.json")]
    assert [one["encodings"] for one in stores] == [{str(file): "cp1252"}] * len(stores) and stores
    for verb in ("evaluate", "predict"):
        (command,) = [text for text in done.err.splitlines() if text.startswith(f"Next: cloze {verb} ")]
        done = cloze(*shlex.split(command.removeprefix("Next: cloze ").partition("  (more")[0]))
        assert done.code == 0, done.err
    rows = [json.loads(text) for text in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert len(rows) == 7 and rows[0]["words"] == ["the", "cat", "naïve"]


def test_a_twin_is_trained_from_scratch(cloze: Any, folder: Folder, tables: Path, tmp_path: Path) -> None:
    line = ["finetune", folder("electra"), "--train", tables / "train.tsv", "--dev", tables / "dev.tsv"]
    line += ["--set", "network.from=null", "--set", "training.epochs=1"]
    done = cloze(*line, "--out", tmp_path / "out", "--device", "cpu", "--json")
    assert done.code == 0 and json.loads(done.out)["examples"] == {"train": 64, "dev": 16}
    assert json.loads((tmp_path / "out" / "cloze" / "task.json").read_text())["from_scratch"] is True


def test_pairs_are_fine_tuned_by_their_columns(cloze: Any, folder: Folder, tables: Path, tmp_path: Path) -> None:
    pairs, out = tables / "pairs.csv", tmp_path / "out"
    line = ["finetune", folder("roberta"), "--task", "pair_classification"]
    line += ["--set", "corpus.text=one", "--set", "corpus.text_b=two", "--set", "training.epochs=1"]
    assert cloze(*line, "--train", pairs, "--dev", pairs, "--out", out, "--device", "cpu").code == 0
    row = json.loads(cloze("predict", out, pairs).out.splitlines()[0])
    assert row["label"] in ("same", "other") and row["text_b"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["fill", "{gpt2}", "a [MASK]"], "that reads in the order open; this one reads in the order left_to_right"),
        (["fill", "{electra}", "a [MASK]"], "needs a head that predicts tokens; this checkpoint has: token_labelling"),
        (["fill", "{bert}", "no mask"], "no mask to fill"),
        (["generate", "{gpt2}", "a", "--groups", "2"], "--groups, --diversity and --sampled are for beam search. Add --beams 4"),
        (["generate", "{gpt2}", "a", "--min-tokens", "9", "--tokens", "8"], "--min-tokens 9 is more than --tokens 8"),
        (["generate", "{bert}", "a"], "needs a network that reads in the order left_to_right"),
        (["generate", "{gpt2}", "a", "--top-p", "2"], "top-p 2.0: expected a probability"),
        (["embed", "{bert}", "a", "--layer", "9"], "this network has the layers 0 to 2"),
        (["embed", "{bert}", "a", "--out", "{here}/no/v.npy"], "its folder does not exist"),
        (["score", "{bert}", "--pairs", "{here}/missing"], "no such file or folder of minimal pairs"),
        (["evaluate", "{bert}", "{dev}"], "not fine-tuned"),
        (["evaluate", "{bert}", "{dev}", "--task", "link_predicton"], "unknown task. Did you mean 'link_prediction'"),
        (["evaluate", "{bert}", "{dev}", "--task", "sentence_clasification"], "unknown task. Did you mean 'sentence_cl"),
        (["evaluate", "{bert}", "{dev}", "--task", "sentence_classification"], "not fine-tuned"),
        (["predict", "{bert}", "{dev}"], "not fine-tuned"),
        ([*TRAIN, "--seeds", "a"], "expected whole numbers"),
        ([*TRAIN, "--task", "tagging"], "--task tagging: unknown task"),
        ([*TRAIN, "--set", "corpus.label=lable"], "no column 'lable'; it has: text, label"),
        ([*TRAIN, "--set", "task.metric=f1"], "unknown metric 'f1'"),
        ([*TRAIN, "--set", "training.precision=fp16"], "expected one of auto, fp32, bf16"),
        (
            [*TRAIN, "--epochs", "3"],
            "No such option: --epochs. The recipe has this value: --set training.epochs=N\n  All options: cloze finetune --help",
        ),
        (TRAIN[:-2], "--out is missing: name the folder"),
        (["finetune", "{bert}", "--out", "{here}/o"], "--train FILE and --dev FILE are missing"),
        (["finetune", "{bert}", "--train", "{bert}/config.json", "--out", "{here}/o"], ": --dev FILE is missing. Give labelled"),
        ([*TRAIN, "--device", "cuda:99"], "device 'cuda:99' was asked for"),
    ],
)  # fmt: skip
def test_wrong_input_is_told_in_a_line_or_two_and_leaves_nothing(
    cloze: Any, folder: Folder, tables: Path, tmp_path: Path, line: list[str], message: str
) -> None:
    names = {name: folder(name) for name in ("bert", "gpt2", "electra")}
    given = [a.format(**names, dev=tables / "dev.tsv", pairs=tables / "pairs.csv", here=tmp_path) for a in line]
    shown = cloze(*given)
    assert shown.code == 2 and message in shown.err and shown.out == ""
    assert len(shown.err.strip().splitlines()) <= 3 and "Traceback" not in shown.err
    assert list(tmp_path.iterdir()) == []


def test_an_unseen_dev_label_stops_before_training(cloze: Any, folder: Folder, tables: Path, tmp_path: Path) -> None:
    dev = tmp_path / "dev.csv"
    dev.write_text("text,label\nthe cat,animal\nthe car,vehicle\n")
    shown = cloze("finetune", folder("bert"), "--train", tables / "train.tsv", "--dev", dev, "--out", tmp_path / "out")
    assert shown.code == 2 and "dev.csv:3: the label 'vehicle' does not occur" in shown.err
    assert "animal, weather" in shown.err and "fitted to" not in shown.err
    assert not (tmp_path / "out").exists()


def test_every_dev_file_is_read_before_the_plan_is_printed_and_the_first_task_is_learned(
    cloze: Any, folder: Folder, tables: Path, tmp_path: Path
) -> None:
    train, dev, bad = tables / "train.tsv", tables / "dev.tsv", tmp_path / "bad.tsv"
    bad.write_text("text\tlabel\nthe cat\tanimal\nthe dog\t\n")
    shown = cloze(
        "finetune", folder("bert"), "--first", f"sentence_classification:{train},{dev}", "--train", train, "--dev", bad,
        "--out", tmp_path / "out",
    )
    assert shown.code == 2 and shown.err.startswith(f"cloze finetune: {bad}:3: an empty 'label'")
    assert not (tmp_path / "out").exists()


def test_soft_labels_of_texts_that_are_cut_come_with_a_note(
    cloze: Callable[..., Any], tuned: Callable[..., Path], tmp_path: Path
) -> None:
    path, out = tmp_path / "long.tsv", tmp_path / "soft.jsonl"
    path.write_text("text\n" + "the cat saw the dog and " * 5 + "\nthe cat\n")
    done = cloze("predict", tuned(length=8), path, "--scores", "--out", out)
    assert done.code == 0 and "note: 1 of 2 texts are longer than 8 tokens and lost their end" in done.err
    first, second = map(json.loads, out.read_text().splitlines())
    assert first["cut"] > 0 and "cut" not in second and first["label"].keys() == {"animal", "weather"}


@pytest.mark.parametrize(  # both read 40 tokens, of which [CLS] and [SEP] are two; the first word for gpt2 has two more
    ("name", "most", "words"), [("bert", 38, 38), ("gpt2", 40, 38)]
)
def test_texts_longer_than_the_network_reads_are_scored_with_a_note_on_their_windows(
    cloze: Any, folder: Folder, name: str, most: int, words: int
) -> None:
    def note(count: int, *options: str) -> str:
        shown = cloze("score", folder(name), " ".join(["cat"] * count), *options)
        assert shown.code == 0
        return str(shown.err)

    assert "read in windows" not in note(words)
    told = f"note: texts of more than {most} tokens were read in windows of that many, each {most // 2} after the one before."
    assert told in note(words + 1) and ", each 9 after" in note(words + 1, "--stride", "9")
    assert "read in windows" not in note(words + 1, "--max-length", "40")
