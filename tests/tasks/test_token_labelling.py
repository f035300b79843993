"""Labelling words: where a word is asked, a trained network and a frozen one, saved and opened again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.assembly.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError, TaskError
from cloze.interop import Card, Model, Reading, export_folder
from cloze.networks import GRU, BiLSTM, Clock
from cloze.networks.blocks.characters import CharCNN
from cloze.tasks import Settings, finetune_seeds, load_tuned, task
from cloze.tasks.labeller import LabelledWords, WordLabeller, word_columns
from cloze.tasks.words import word_windows
from cloze.text.normalise import Normalise
from cloze.text.words import Words

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
    """A random network of characters in both directions, and `gru` beside it, which gives its top layer alone."""
    tokenizer = Words(min_count=1).train(["the cat and rain"], Normalise())
    torch.manual_seed(0)
    made = CharCNN(**PART, vocab_size=tokenizer.size, spellings=tokenizer.spellings)  # type: ignore[arg-type]
    network = BiLSTM(layers=2, width=24, inner=16, characters=made, vocab_size=tokenizer.size, clock=Clock())
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.4)  # so that words differ
    folder = tmp_path_factory.mktemp("elmo")
    arguments = {"layers": 2, "width": 24, "inner": 16, "characters": {"char_cnn": PART}}
    simple: dict[str, Any] = {"width": 8, "both_directions": True}
    for name, part, given, own in (
        ("elmo", "bilstm", arguments, network),
        ("gru", "gru", simple, GRU(**simple, vocab_size=tokenizer.size, clock=Clock())),
    ):
        export_folder(
            folder / name, model=Model(given, "open", own.state_dict(), {}, part), tokenizer=tokenizer,
            reading=Reading("[EOS] {A} [EOS]", None, "last"), card=Card(name),
        )
    return folder / "elmo"


def learnt(loaded: Any, tagged: Path, mix: str | None = None, **changed: Any) -> Any:
    chosen: Any = task("token_labelling", mix=mix)
    settings = Settings(**{"epochs": 25, "batch": 4, "rate": 0.02, "patience": None, "length": 20, "dropout": 0.0, **changed})
    examples = chosen.read(tagged)
    return finetune_seeds(loaded, chosen, examples, examples, settings=settings, seeds=(1,))


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_word_is_labelled_at_its_first_token(checkpoint: Make, name: str) -> None:
    reader = Reader.of(checkpoint(name))
    texts = [("the", "catmat", "saw"), ("rain",)]
    (first, columns), (second, one) = word_columns(reader, texts, None)
    ids = [reader.tokenizer.piece(first.ids[c]).lstrip("Ġ").strip() for c in columns]
    assert [word.startswith(piece) for word, piece in zip(texts[0], ids, strict=True)] == [True] * 3
    assert len(first) > 3 + reader.single.added and list(np.diff(columns) > 0) == [True, True]
    assert one.tolist() == [int(np.flatnonzero(second.part == 0)[0])]


def test_words_that_do_not_fit_or_leave_no_token_are_not_read(checkpoint: Make) -> None:
    reader = Reader.of(checkpoint("bert"))
    ((_, columns),) = word_columns(reader, [("cat", "\u200b\x07", "rain", "mat")], reader.single.added + 2)
    assert (columns >= 0).tolist() == [True, False, True, False]


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_windows_ask_every_word_of_a_long_text_once(checkpoint: Make, name: str) -> None:
    reader = Reader.of(checkpoint(name))
    chance = np.random.default_rng(0)
    texts = [tuple(chance.choice(["the", "catmat", "saw", "rain", "\u200b"], count)) for count in (1, 2, 7, 30, 90)]
    for longest in (reader.single.added + 4, 17, None):
        for words, windows in zip(texts, word_windows(reader, texts, longest), strict=True):
            bound = min(n for n in (longest, reader.longest) if n is not None)
            assert all(len(window.row) <= bound for window in windows)
            asked = np.concatenate([window.words for window in windows])
            assert asked.tolist() == [n for n, word in enumerate(words) if name == "gpt2" or word != "\u200b"]
            for window in windows:
                pieces = [reader.tokenizer.piece(window.row.ids[c]).lstrip("Ġ").strip() for c in window.columns]
                own = zip(window.words, pieces, strict=True)
                assert all(words[n].startswith(piece) for n, piece in own if words[n] != "\u200b")


def test_a_trained_network_learns_labels(checkpoint: Make, tagged: Path) -> None:
    loaded = checkpoint("bert")
    result = learnt(loaded, tagged, rate=3e-3)
    assert result.best.metrics["span_f1"] == 1.0 and result.best.metrics["accuracy"] == 1.0
    weight = result.tuned.network.tables["tokens"].weight
    assert not torch.equal(weight, loaded.network.tables["tokens"].weight)


@pytest.mark.parametrize(("mix", "task_lstm"), [("both", 12), (None, 12)])
def test_layers_of_elmo_are_mixed_for_labels(elmo: Path, tagged: Path, mix: str | None, task_lstm: int) -> None:
    loaded = load_checkpoint(elmo)
    result = learnt(loaded, tagged, mix, task_lstm=task_lstm)
    assert result.best.metrics["span_f1"] > 0.95
    before, after = loaded.network.state_dict(), result.tuned.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before) == (mix is not None)
    result.tuned.train()
    assert result.tuned.network.training == (mix is None)


def test_layers_of_bert_are_mixed_as_well(checkpoint: Make, tagged: Path) -> None:
    result = learnt(checkpoint("bert"), tagged, "input", task_lstm=12)
    assert result.best.metrics["accuracy"] > 0.95 and result.tuned.usual_rate == 1e-3


def test_words_in_a_batch_do_not_touch_each_other(elmo: Path, tagged: Path) -> None:
    tuned: WordLabeller = learnt(load_checkpoint(elmo), tagged, "input", epochs=1, task_lstm=8).tuned
    rows = word_windows(tuned.reader, [("the", "cat"), ("rain", "on", "the", "mat", "and", "cat")], None)
    together, alone = tuned.said(rows, [2, 6]), tuned.said(rows[:1], [2])
    assert together[0][0] == alone[0][0]
    np.testing.assert_allclose(together[0][1], alone[0][1], atol=2e-6)


def test_the_loss_is_the_mean_over_words_that_were_read_and_are_known(elmo: Path, tagged: Path) -> None:
    tuned: WordLabeller = learnt(load_checkpoint(elmo), tagged, None, epochs=1).tuned
    ((framed, columns),) = word_columns(tuned.reader, [("the", "cat", "rain")], None)
    tuned.eval()
    both = tuned.loss([LabelledWords(framed, columns, ("O", "B-X", "NEW"))])
    single = [tuned.loss([LabelledWords(framed, np.where(np.arange(3) == n, columns, -1), ("O", "B-X", "O"))]) for n in (0, 1)]
    torch.testing.assert_close(both, torch.stack(single).mean())
    assert float(tuned.loss([LabelledWords(framed, np.full(3, -1), ("O", "O", "O"))]).detach()) == 0.0


def test_what_training_never_saw_is_wrong_and_told(elmo: Path, tagged: Path, tmp_path: Path) -> None:
    tuned: WordLabeller = learnt(load_checkpoint(elmo), tagged, None, epochs=1).tuned
    (tmp_path / "new.conll").write_text("the\tO\ncat\tB-NEW\n" + "on\tO\n" * 30)
    found = tuned.evaluate(tuned.task.read(tmp_path / "new.conll"), "O")
    assert found.metrics["accuracy"] < 1.0 and found.baseline is not None and found.baseline["accuracy"] == 31 / 32
    assert len(found.remarks) == 1 and "B-NEW (1)" in found.remarks[0]


def test_the_verbs_finetune_evaluate_and_predict(
    elmo: Path, tagged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tagger"
    given = ["--task", "token_labelling", "--mix", "both:0.01", "--task-lstm", "8", "--epochs", "1", "--device", "cpu"]
    assert main(["finetune", str(elmo), "--train", str(tagged), "--dev", str(tagged), "--out", str(out), *given]) == 0
    assert "span_f1" in capsys.readouterr().out
    learner, described = load_tuned(load_checkpoint(out))
    assert described["mix"] == "both" and described["penalty"] == 0.01 and described["labels"] == ["B-X", "B-Y", "O"]
    assert described["usual"] == "O" == described["baseline"]["always"]
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
    assert '"words": ["the", "cat"], "labels": ["' in capsys.readouterr().out


def test_names_are_predicted_with_their_text_and_where_it_stands(elmo: Path, tagged: Path, tmp_path: Path) -> None:
    tuned: WordLabeller = learnt(load_checkpoint(elmo), tagged, None, epochs=25).tuned
    (tmp_path / "texts.txt").write_text("the cat, rain\n雨cat。\n", encoding="utf-8")
    first, second = tuned.predict(tuned.task.read(tmp_path / "texts.txt", labelled=False))
    assert first.words == ("the", "cat", ",", "rain") and first.text == "the cat, rain" and first.offsets[1] == (4, 7)
    found = {(one.label, one.text, one.start, one.end) for one in first.entities or ()}
    assert {("X", "cat", 4, 7), ("Y", "rain", 9, 13)} <= found
    assert second.words == ("雨", "cat", "。")
    for said in (first, second):
        for one in said.entities or ():
            assert said.text[one.start : one.end] == one.text and one.probability <= 1
    assert first.record()["entities"][0] == dict((first.entities or ())[0].__dict__)


def test_what_breaks_the_scheme_is_counted_and_the_rule_is_named(elmo: Path, tagged: Path, tmp_path: Path) -> None:
    tuned: WordLabeller = learnt(load_checkpoint(elmo), tagged, None, epochs=1).tuned
    (tmp_path / "broken.conll").write_text("the\tO\ncat\tI-X\non\tI-X\n")
    for repair, rule, spans in (("begin", "begin: a label that continues", 1), ("drop", "drop: only spans", 0)):
        chosen: Any = task("token_labelling", repair=repair)
        tuned.task = chosen
        found = tuned.evaluate(chosen.read(tmp_path / "broken.conll"))
        assert any("1 labels of the file" in remark and rule in remark for remark in found.remarks)
        assert sum(row["support"] for row in found.report) == spans
        assert found.record().get("report", []) == list(found.report)


def test_options_that_mean_nothing_here_are_refused(elmo: Path, tagged: Path) -> None:
    loaded = load_checkpoint(elmo)
    with pytest.raises(TaskError, match="--pool is for tasks that classify a text"):
        learnt(loaded, tagged, pool="max")
    with pytest.raises(TaskError, match="--layerwise is for networks that are trained; token_labelling with --mix"):
        learnt(loaded, tagged, "input", layerwise=object())
    with pytest.raises(CheckpointError, match="top layer alone. Leave out --mix"):
        learnt(load_checkpoint(elmo.parent / "gru"), tagged, "input")
    with pytest.raises(TaskError, match="unknown --mix"):
        task("token_labelling", mix="inside")
