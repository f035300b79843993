"""Description-length probing: the online code of labels, its parts, and what it says of layers that hold labels or do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.cli.main import main
from cloze.errors import UserError
from cloze.probes.description import SHARES, Description, OnlineCode, describe, online_bits, parts
from cloze.probes.finding import Subject, as_text
from cloze.probes.kinds.description_length import DescriptionProbe
from cloze.probes.layers import LabelledWords, WordExample, tagged_words
from cloze.probes.linear import HiddenLayers, LinearMap, fit_layers


def notebook_code(train_targets: int, losses: list[float], classes: int) -> float:
    """The online code of Eval_MDL_online_code.ipynb, whose losses are summed cross-entropies of each portion; here in bits."""
    return train_targets * np.log2(classes) + sum(losses) / np.log(2)


def test_the_code_of_labels_is_that_of_the_authors_notebook_in_bits() -> None:
    draw = np.random.default_rng(0)
    labels, ends = draw.integers(0, 3, 20), [2, 5, 11, 20]
    scores = draw.normal(size=(3, 20, 3)).astype(np.float32)  # of the classifiers of 2, 5 and 11 examples
    seen = []

    def train(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
        seen.append(count)
        return lambda x: torch.from_numpy(scores[[2, 5, 11].index(count)])[x[:, 0].long()]

    bits = online_bits(torch.arange(20.0)[:, None], labels, ends, 3, train)
    log_probabilities = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    losses = [
        -sum(log_probabilities[n, i, labels[i]] for i in range(begin, end))
        for n, (begin, end) in enumerate([(2, 5), (5, 11), (11, 20)])
    ]
    assert seen == [2, 5, 11] and bits.sum() == pytest.approx(notebook_code(2, losses, 3), abs=1e-5)
    assert bits.tolist() == pytest.approx([2 * np.log2(3), *(loss / np.log(2) for loss in losses)], abs=1e-5)


def test_parts_end_after_the_authors_shares_of_sentences_and_no_sentence_is_cut() -> None:
    words_of = np.random.default_rng(1).integers(1, 4, 1000)
    sentences = np.repeat(np.arange(1000) * 7, words_of)  # numbers may have gaps
    order, ends = parts(sentences, seed=5)
    assert sorted(order.tolist()) == list(range(len(sentences)))
    seen = list(dict.fromkeys(sentences[order].tolist()))
    assert len(seen) == 1000 and seen != sorted(seen)
    expected = [sum(words_of[n // 7] for n in seen[: int(share * 1000)]) for share in SHARES]
    assert ends == expected and len(ends) == 11
    assert (np.diff(order)[np.diff(sentences[order]) == 0] == 1).all()  # words of a sentence stay in order


def test_few_sentences_have_fewer_parts() -> None:
    assert parts(np.arange(15), seed=0)[1] == [1, 3, 7, 15]  # 12.5, 25, 50 and 100 %, rounded down
    assert parts(np.arange(1), seed=0)[1] == [1]


def test_a_development_set_of_its_own_leaves_all_words_for_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloze.probes.linear._UPDATES", 100)
    x, labels = torch.eye(10), np.array([0] * 9 + [1])
    alone = fit_layers(x, labels, 2, LinearMap(), 0)
    with_all = fit_layers(x, labels, 2, LinearMap(), 0, (x, labels))
    assert with_all(x).argmax(1).tolist() == labels.tolist() != alone(x).argmax(1).tolist()
    assert [str(module) for module in LinearMap(0.2).network(5, 3)] == [
        "Dropout(p=0.2, inplace=False)", "Linear(in_features=5, out_features=3, bias=True)",
    ]  # fmt: skip


def spoken(count: int, tag: Callable[[str, int], str]) -> LabelledWords:
    """Sentences of three words, each labelled by its word and the number of the sentence."""
    words = ["cat", "dog", "rain", "mat", "river", "cheese"]
    draw = np.random.default_rng(count)
    texts, spans, examples = [], [], []
    for n in range(count):
        chosen = draw.choice(words, 3, replace=False).tolist()
        begins = np.cumsum([0, *(len(word) + 1 for word in chosen)])[:3]
        texts.append(" ".join(chosen))
        spans.append(np.stack([begins, begins + [len(word) for word in chosen]], axis=1))
        examples += [WordExample(n, (k,), tag(word, n), word) for k, word in enumerate(chosen)]
    return LabelledWords(texts, spans, examples)


@pytest.mark.parametrize("layers", [LinearMap(), HiddenLayers(1, 16)], ids=["linear", "hidden"])
def test_labels_of_words_are_compressed_and_coins_are_not(
    layers: LinearMap | HiddenLayers, checkpoint: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloze.probes.training.EPOCHS", 6)
    by_word = {word: "AB"[n % 2] for n, word in enumerate(["cat", "dog", "rain", "mat", "river", "cheese"])}
    train, development = (spoken(count, lambda word, n: by_word[word]) for count in (40, 20))
    figures = describe(checkpoint("bert"), train, development, layers, control=None)
    assert figures.control is None and figures.classes == 2 and figures.uniform == 120.0 == figures.ends[-1]
    assert figures.ends == [3, 6, 15, 30, 60, 120] and figures.labels.bits.shape == (3, 6)  # of 1, 2, 5, 10, 20, 40 sentences
    assert (figures.labels.bits[:, 0] == 3.0).all() and figures.labels.accuracy[0] == 1.0
    assert figures.compression(figures.labels)[0] > 2.0  # the input holds the words

    coins = np.random.default_rng(3).integers(0, 2, 40)
    part = spoken(40, lambda word, n: "AB"[coins[n]])
    thrown = describe(checkpoint("bert"), part, spoken(20, lambda word, n: "AB"[coins[n]]), layers, control=None)
    assert max(thrown.compression(thrown.labels)) < 1.05


def test_the_control_describes_a_random_label_of_every_word(
    checkpoint: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloze.probes.training.EPOCHS", 4)
    part = spoken(16, lambda word, n: "AB"[n % 2])
    figures = describe(checkpoint("bert"), part, part, LinearMap(), seed=1)
    shuffled = describe(checkpoint("bert"), part, part, LinearMap(), control="shuffled", seed=1)
    assert figures.control is not None and shuffled.control is not None
    np.testing.assert_array_equal(figures.labels.bits, shuffled.labels.bits)
    assert figures.control.lengths[0] < min(figures.labels.lengths[0], shuffled.control.lengths[0])  # it follows from the word


def test_what_has_no_code_is_said_in_words(checkpoint: Callable[..., Any]) -> None:
    part = spoken(4, lambda word, n: "AB"[n % 2])
    same, one = spoken(4, lambda word, n: "A"), spoken(1, lambda word, n: word)
    for train, read in ((same, "1 kind in 4 sentences"), (one, "3 kinds in 1 sentence")):
        with pytest.raises(UserError, match=rf"needs labels of two kinds and two sentences; read: {read}\.\n  Give more text"):
            describe(checkpoint("bert"), train, part, LinearMap())
    with pytest.raises(UserError, match=r"the second file has no label of the first\. Give two files with the same labels\."):
        describe(checkpoint("bert"), part, spoken(4, lambda word, n: "C"), LinearMap())


def test_a_finding_says_how_many_bits_a_label_takes() -> None:
    code = OnlineCode(np.array([[4.0, 12.0], [4.0, 4.0]]), [0.5, 0.75])
    figures = Description(code, OnlineCode(np.array([[4.0, 20.0], [4.0, 28.0]]), [0.1, 0.2]), [2, 8], 4, 6)
    finding = DescriptionProbe(task="upos=A,B").finding([Subject("net", Path())], {"net": figures})
    assert finding.kind == "description" and finding.title == "How many bits describe the labels: upos" and not finding.remarks
    lines = [line.split() for line in as_text(finding).splitlines()]
    assert lines[2] == ["1", "1.000", "2.000", "0.750", "4.000", "0.500", "0.200"]
    assert lines[3] == ["input", "2.000", "1.000", "0.500", "3.000", "0.667", "0.100"]
    assert finding.plots[0].lines["net"] == [(0.0, 1.0), (1.0, 2.0)] and finding.plots[0].dashed == {"net, control"}
    assert finding.plots[1].lines == {"net, input": [(1.0, 2.0), (2.0, 2.0)], "net, layer 1": [(1.0, 2.0), (2.0, 4 / 6)]}
    assert finding.data["net"]["uniform"] == 16.0 and finding.data["net"]["labels"]["length"].tolist() == [16.0, 8.0]
    flat = Description(OnlineCode(np.full((2, 2), 8.0), [0.2, 0.2]), None, [2, 8], 4, 6)
    assert DescriptionProbe(task="upos=A,B").remarks(flat) == [
        "no layer describes the labels in fewer bits than the uniform code: nothing is shown"
    ]


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "description: expected --task COLUMN=TRAIN,DEV or sense=TRAIN,DEV, got nothing."),
    (["--task", "upos=t.conllu"], "expected --task COLUMN=TRAIN,DEV or sense=TRAIN,DEV, got 'upos=t.conllu'."),
    (["--task", "tag=t.conllu,t.conllu"], "For CoNLL-U, choose words and labels, for example --task upos=TRAIN,DEV"),
    (["--wordnet", "index.sense"], "description does not use --wordnet. Omit it."),
])  # fmt: skip
def test_what_is_missing_is_said_before_a_checkpoint_is_opened(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "X").mkdir()
    (tmp_path / "t.conllu").write_text("1\tcats\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n")
    assert main(["probe", "description", "X", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_command_writes_lengths_and_parts(
    tmp_path: Path, checkpoint: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cloze.probes.training.EPOCHS", 2)
    monkeypatch.setattr("cloze.checkpoint.build.load_checkpoint", lambda folder, device: checkpoint("bert"))
    Path("t.conllu").write_text("1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tcat\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n" * 4)
    assert tagged_words("t.conllu", "upos", most=9).examples[1][2] == "NOUN"
    assert main(["probe", "description", ".", "--task", "upos=t.conllu,t.conllu", "--no-control", "--json"]) == 0
    (figures,) = json.loads(capsys.readouterr().out).values()
    assert figures["ends"] == [2, 4, 8] and figures["uniform"] == 8.0 and "control" not in figures
    assert np.array(figures["labels"]["parts"]).shape == (3, 3)
