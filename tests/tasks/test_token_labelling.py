"""Labelling words: where a word is asked, what is said of it, saved and opened again."""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.readers.tagged import TaggedSentences
from cloze.decoding.reader import Reader
from cloze.interop import Card, PortableModel, Reading, export_folder
from cloze.networks import Clock
from cloze.networks.blocks.inputs.characters import CharCNN
from cloze.runs.finetuning.finetune import finetune
from cloze.tasks import load_tuned, task
from cloze.tasks.evaluation import evaluate
from cloze.tasks.remarks import NONE_KNOWN
from cloze.tasks.words import word_windows
from cloze.text import Phrases, TextSpec, train
from cloze.text.normalise import Normalise
from cloze.text.words import Words
from tests.making import network_of

Make = Callable[..., Any]
PART = {"filters": [[1, 8], [2, 16]], "per_word": 12, "highways": 1}
SENTENCES = [("the cat saw rain", "O B-X O B-Y"), ("all mice and rain", "O B-X O B-Y"), ("the rain on the mat", "O B-Y O O O")]


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which words always have the same label."""
    path = tmp_path_factory.mktemp("tagged") / "words.conll"
    texts = [zip(words.split(), labels.split(), strict=True) for words, labels in SENTENCES * 4]
    path.write_text("\n\n".join("\n".join(f"{word}\t{label}" for word, label in text) for text in texts) + "\n")
    return path


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random network of characters in both directions."""
    tokenizer = Words(min_count=1).train(["the cat and rain"], Normalise())
    torch.manual_seed(0)
    made = CharCNN(**PART, vocab_size=tokenizer.size, spellings=tokenizer.spellings)  # type: ignore[arg-type]
    network = network_of("bilstm", layers=2, width=24, inner=16, embedding=made, vocab_size=tokenizer.size, clock=Clock())
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)  # so that words differ
    folder = tmp_path_factory.mktemp("elmo")
    arguments = {"layers": 2, "width": 24, "inner": 16, "embedding": {"char_cnn": PART}}
    export_folder(
        folder / "elmo", model=PortableModel(arguments, "open", network.state_dict(), {}, "bilstm"), tokenizer=tokenizer,
        reading=Reading("[EOS] {A} [EOS]", None, "last"), card=Card("elmo"),
    )
    return folder / "elmo"


def learnt(folder: Path, tagged: Path, out: Path, *values: str) -> Any:
    """What labels words after a few epochs."""
    finetune(
        folder, task="token_labelling", train=[str(tagged)], dev=[str(tagged)], out=out, report=lambda line: None,
        overrides=["training.batch=4", "training.epochs=1", "training.rate.peak=2e-2", "length=20", "task.patience=0", *values],
    )
    return load_tuned(load_checkpoint(out))[0]


@pytest.fixture(scope="module")
def tuned(elmo: Path, tagged: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A network of characters that labels the file without a fault, after training: its head does not start fitted."""
    values = ["training.epochs=20", "objectives[0].dropout=0", "training.new_heads=drawn"]
    return learnt(elmo, tagged, tmp_path_factory.mktemp("tuned") / "out", *values)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_windows_ask_every_word_of_a_long_text_once(checkpoint: Make, name: str) -> None:
    reader = Reader.of(checkpoint(name))
    chance = np.random.default_rng(0)
    texts = [tuple(chance.choice(["the", "catmat", "saw", "rain", "\u200b"], count)) for count in (1, 2, 7, 30, 90)]
    for max_length in (reader.single_layout.added + 4, 17, None):
        for words, windows in zip(texts, word_windows(reader, texts, max_length), strict=True):
            bound = min(n for n in (max_length, reader.max_length) if n is not None)
            assert all(len(window.row) <= bound for window in windows)
            asked = np.concatenate([window.words for window in windows])
            assert asked.tolist() == [n for n, word in enumerate(words) if name == "gpt2" or word != "\u200b"]
            for window in windows:
                pieces = [reader.tokenizer.piece(window.row.ids[c]).lstrip("Ġ").strip() for c in window.columns]
                own = zip(window.words, pieces, strict=True)
                assert all(words[n].startswith(piece) for n, piece in own if words[n] != "\u200b")


@pytest.mark.parametrize(("length", "count"), [(None, 1), (2, 2)])
def test_words_that_the_tokenizer_joins_are_asked_at_their_one_token(checkpoint: Make, length: int | None, count: int) -> None:
    phrases = TextSpec(Normalise(lower=True), Phrases(min_count=1, min_pairs=1, thresholds=(4.5,)))
    texts = ["New York is big.", "new york, new york!", "a new day in new york", "the big day is in a park"]
    tokenizer = train(phrases, [*texts, "big , , , a the the is day"])
    reader = replace(Reader.of(checkpoint("gpt2")), tokenizer=tokenizer, reading=Reading("{A}", None, "last"), order="open")
    (windows,) = word_windows(reader, [("is", "new", "york", "big")], length)
    assert len(windows) == count
    asked = [
        (word, tokenizer.piece(window.row.ids[column]))
        for window in windows for column, word in zip(window.columns, window.words, strict=True)
    ]
    assert asked == [(0, "is"), (1, "new_york"), (2, "new_york"), (3, "big")]


def test_a_trained_network_learns_labels(tuned: Any, elmo: Path, tagged: Path) -> None:
    found = tuned.evaluate(tuned.task.read(tagged), "O", size=4, report=lambda done: None)
    assert found.metrics["span_f1"] == found.metrics["accuracy"] == 1.0
    before, after = load_checkpoint(elmo).network.state_dict(), tuned.network.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_the_loss_of_labels_is_compared_with_their_entropy_and_not_with_tokens(elmo: Path, tagged: Path, tmp_path: Path) -> None:
    learnt(elmo, tagged, tmp_path / "out")
    start = json.loads((tmp_path / "out" / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()[0])
    (base,) = start["baselines"].values()
    labels = Counter(line.split("\t")[1] for line in tagged.read_text(encoding="utf-8").splitlines() if line.strip())
    entropy = -sum(n / labels.total() * math.log(n / labels.total()) for n in labels.values())
    assert "pairs" not in base and base["single"] == pytest.approx(entropy, abs=0.01)
    cut = json.loads((tmp_path / "out" / "cloze" / "task.json").read_text(encoding="utf-8"))["cut"]
    assert cut.keys() == {"train"}  # the dev set is read in windows, which lose nothing


def test_words_in_a_batch_do_not_touch_each_other(tuned: Any) -> None:
    texts = [("the", "cat"), ("rain", "on", "the", "mat", "and", "cat")]
    rows = tuned.encode(TaggedSentences(texts, None, "", (1, 2)))
    together, alone = tuned.row_outputs(rows), tuned.row_outputs(rows[:1])
    assert together[0][0] == alone[0][0]
    np.testing.assert_allclose(together[0][1], alone[0][1], atol=2e-6)


def test_what_training_never_saw_is_wrong_and_told(tuned: Any, tmp_path: Path) -> None:
    (tmp_path / "new.conll").write_text("the\tO\ncat\tB-NEW\n" + "on\tO\n" * 30)
    found = tuned.evaluate(tuned.task.read(tmp_path / "new.conll"), "O")
    assert found.metrics["accuracy"] < 1.0 and found.baseline is not None and found.baseline["accuracy"] == 31 / 32
    assert len(found.remarks) == 1 and "B-NEW (1)" in found.remarks[0]


def test_the_verbs_finetune_evaluate_and_predict(
    elmo: Path, tagged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tagger"
    given = ["--task", "token_labelling", "--set", "training.epochs=1", "--set", "length=20", "--device", "cpu"]
    assert main(["finetune", str(elmo), "--train", str(tagged), "--dev", str(tagged), "--out", str(out), *given]) == 0
    assert "span_f1" in capsys.readouterr().out
    learner, described = load_tuned(load_checkpoint(out))
    assert described["labels"] == ["B-X", "B-Y", "O"]
    assert described["constant_answer"] == "O" == described["baseline"]["always"]
    examples = learner.task.read(tagged)
    assert learner.evaluate(examples, None, size=4, report=lambda done: None).metrics == pytest.approx(described["dev"])
    assert main(["evaluate", str(out), str(tagged)]) == 0
    (tmp_path / "new.conll").write_text("the\ncat\n")
    capsys.readouterr()
    assert main(["evaluate", str(out), str(tagged), "--repair", "drop"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"label +precision +recall +f1 +support\n  X +\d\.\d{4}", shown)
    assert main(["evaluate", str(out), str(tagged), "--repair", "dorp"]) == 2
    assert "--repair dorp: unknown rule. Did you mean 'drop'?" in capsys.readouterr().err
    assert main(["predict", str(out), str(tmp_path / "new.conll")]) == 0
    shown = capsys.readouterr()
    assert '"words": ["the", "cat"], "labels": ["' in shown.out and "note: " not in shown.err
    log = out / "cloze" / "log.jsonl"
    log.write_text("".join(log.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")  # as if killed
    note = f"note: {out}: this run is interrupted after 100% of the budget; the folder holds a checkpoint from the middle of it. "
    for command in (["predict", str(out), str(tmp_path / "new.conll")], ["evaluate", str(out), str(tagged)]):
        assert main(command) == 0 and f"{note}To resume: cloze finetune " in capsys.readouterr().err


def test_lines_that_look_like_the_words_of_texts_are_told(
    tuned: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def predicted(text: str, *options: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False))
        assert main(["predict", str(tuned.saved_in[0]), "-", *options]) == 0
        shown = capsys.readouterr()
        return len(shown.out.splitlines()), shown.err

    note = "note: each line is read as a text; if the lines are words, with an empty line after each text: --format tsv\n"
    texts, said = predicted("the\ncat\n\nrain\n")
    assert texts == 3 and note in said
    texts, said = predicted("the\ncat\n\nrain\n", "--format", "tsv")
    assert texts == 2 and note not in said
    assert note not in predicted("the\ncat\nrain\n")[1] and note not in predicted("the cat\n\nrain\n")[1]


def test_names_are_predicted_with_their_text_and_where_it_stands(tuned: Any, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the cat, rain\n雨cat。\n", encoding="utf-8")
    first, second = tuned.predict(tuned.task.read(tmp_path / "texts.txt", labelled=False))
    assert first.words == ("the", "cat", ",", "rain") and first.text == "the cat, rain" and first.offsets[1] == (4, 7)
    found = {(one.label, one.text, one.start, one.end) for one in first.entities or ()}
    assert {("X", "cat", 4, 7), ("Y", "rain", 9, 13)} <= found
    assert second.words == ("雨", "cat", "。")
    for decode in (first, second):
        for one in decode.entities or ():
            assert decode.text[one.start : one.end] == one.text and one.probability <= 1
    assert first.record()["entities"][0] == dict((first.entities or ())[0].__dict__)


def test_what_breaks_the_scheme_is_counted_and_the_rule_is_named(
    tuned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.conll").write_text("the\tO\ncat\tI-X\non\tI-X\n")
    for repair, rule, spans in (("begin", "begin: a label that continues", 1), ("drop", "drop: only spans", 0)):
        chosen: Any = task("token_labelling", repair=repair)
        monkeypatch.setattr(tuned, "task", chosen)
        found = tuned.evaluate(chosen.read(tmp_path / "broken.conll"))
        assert any("1 labels of the file" in remark and rule in remark for remark in found.remarks)
        assert sum(row["support"] for row in found.by_class) == spans
        assert found.record().get("report", []) == list(found.by_class)


def test_a_file_whose_labels_training_never_saw_is_not_taken_for_a_network_that_learned_nothing(
    folder: Callable[[str], Path], tagged: Path, tmp_path: Path
) -> None:
    learner = learnt(folder("bert"), tagged, tmp_path / "out")
    (tmp_path / "other.conll").write_text("the\tDET\ncat\tNOUN\n")
    remarks = evaluate(learner, learner.task.read(tmp_path / "other.conll")).remarks
    assert remarks[:2] == (NONE_KNOWN, "labels that training never saw are never right: DET (1), NOUN (1)")
    assert not any("learned nothing" in remark for remark in remarks)


def test_what_is_written_is_counted_in_texts_as_each_has_a_row_for_every_word(
    folder: Callable[[str], Path], tagged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learnt(folder("bert"), tagged, tmp_path / "out")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "out"), str(tagged), "--out", str(tmp_path / "p.csv")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'p.csv'}: 12 texts\n"
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 1 + 4 * 13
