"""What heads attend to, and which find the heads of words: against the formulas of the authors' notebooks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.cli.main import main
from cloze.corpus.readers.trees import Tree
from cloze.decoding.reader import Reader
from cloze.errors import UserError
from cloze.probes.attention import attention_habits, each_attention, word_attention
from cloze.probes.finding import Subject, as_text
from cloze.probes.kinds.attention_heads import AttentionFigures, AttentionProbe
from cloze.probes.relations import (
    AttentionClassifier,
    Counts,
    ReadSentence,
    each_sentence,
    fit_attention,
    guessed_heads,
    offset_heads,
    relation_heads,
)

TEXTS = ["the cat sleeps , the dog sleeps .", "a dog", "rain on the mat ."]


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    """Attention whose rows sum to one."""
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.4), size=shape[:-1]).astype(np.float32)


def notebook_averages(documents: Sequence[tuple[list[str], np.ndarray]]) -> dict[str, np.ndarray]:
    """General_Analysis.ipynb: mean attention to tokens and positions, and entropies."""
    sums: Counter[str] = Counter()
    for tokens, attention in documents:
        n = len(tokens)
        sep, cls, mark = (np.array([token in chosen for token in tokens], float) for chosen in (["[SEP]"], ["[CLS]"], ".,"))
        selectors = {
            "same": (np.eye(n), n), "next": (np.eye(n, k=1), n), "previous": (np.eye(n, k=-1), n),
            "special": (np.tile(sep, (n, 1)), n), "special, from special": (np.outer(sep, sep), sep.sum()),
            "special, from others": (np.outer(1 - sep, sep), n - sep.sum()), "first": (np.tile(cls, (n, 1)), n),
            "punctuation": (np.tile(mark, (n, 1)), n),
        }  # fmt: skip
        for name, (selector, divisor) in selectors.items():
            sums[name] += (attention * selector).sum((-2, -1)) / divisor
        smooth = 0.9999 * attention + 0.0001 / n
        sums["entropy"] += -(smooth * np.log(smooth)).sum(-1).mean(-1)
        sums["first entropy"] += -(smooth * np.log(smooth))[:, :, 0].sum(-1)
        sums["uniform"] += np.log(n)
    return {name: value / len(documents) for name, value in sums.items()}


def test_averages_and_entropies_are_those_of_the_authors_notebook(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("bert")
    reader = Reader.of(loaded)
    documents = []
    for text in TEXTS:
        row = reader.encode([text])[0]
        with torch.no_grad():
            attention = reader.states(reader.batch([row]), {"attention"})["attention"][:, 0].double().numpy()
        documents.append(([reader.tokenizer.piece(int(i)) for i in row.ids], attention))
    assert [tokens[0] for tokens, _ in documents] == ["[CLS]"] * 3 and sum(tokens.count(".") for tokens, _ in documents) == 2
    expected = notebook_averages(documents)
    found = attention_habits(loaded, TEXTS, size=2)
    for name, shares in found.shares.items():
        np.testing.assert_allclose(shares, expected[name], atol=1e-6, err_msg=name)
    assert set(found.shares) == set(expected) - {"entropy", "first entropy", "uniform"} and found.texts == 3
    np.testing.assert_allclose(found.entropy, expected["entropy"], atol=1e-5)
    np.testing.assert_allclose(found.first_entropy, expected["first entropy"], atol=1e-5)
    assert found.uniform == pytest.approx(expected["uniform"])


def test_a_causal_network_attends_to_nothing_that_follows(checkpoint: Callable[..., Any]) -> None:
    found = attention_habits(checkpoint("gpt2"), ["the cat sleeps on the mat"])
    assert (found.shares["next"] == 0).all() and (found.shares["previous"] > 0).all() and (found.first_entropy < 0.01).all()
    assert np.isnan(found.shares["special"]).all()  # nothing stands around a text
    count = len(Reader.of(checkpoint("gpt2")).encode(["the cat sleeps on the mat"])[0])
    assert found.uniform == pytest.approx(np.log(np.arange(1, count + 1)).mean())


def test_texts_of_one_token_are_refused(checkpoint: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"no text has two tokens to attend to: give longer ones, or a larger --length\."):
        attention_habits(checkpoint("gpt2"), ["a"])


def bpe_words(attention: np.ndarray, words_to_tokens: list[list[int]]) -> np.ndarray:
    """get_word_word_attention of bpe_utils.py with `mean`, for one head."""
    words = np.array(attention)
    rest = [token for word in words_to_tokens for token in word[1:]]
    for word in words_to_tokens:
        words[:, word[0]] = words[:, word].sum(-1)
    words = np.delete(words, rest, -1)
    for word in words_to_tokens:
        words[word[0]] = words[word].mean(0)
    return np.delete(words, rest, 0)


def test_words_attend_with_the_mean_of_their_pieces_to_the_sum_of_pieces() -> None:
    attention = drawn(2, 3, 7, 7)
    columns = np.array([[0, 1], [1, 4], [4, 5], [5, 7]])
    found = word_attention(attention, columns)
    for layer, head in np.ndindex(2, 3):
        expected = bpe_words(attention[layer, head], [[0], [1, 2, 3], [4], [5, 6]])
        np.testing.assert_allclose(found[layer, head], expected, atol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1.0, atol=1e-6)
    empty = word_attention(attention, np.array([[0, 0], [0, 7], [7, 7]]))
    assert (empty[..., 0, :] == 0).all() and (empty[..., 0] == 0).all() and empty[0, 0, 1, 1] == pytest.approx(1.0)


def sentence(heads: Sequence[int], relations: Sequence[str], attention: np.ndarray | None = None, seed: int = 0) -> ReadSentence:
    words = tuple(f"w{n}" for n in range(len(heads)))
    tree = Tree(1, words, tuple(heads), tuple(relations), tuple(range(len(heads))), ())
    return ReadSentence(tree, drawn(2, 3, len(heads) + 2, len(heads) + 2, seed=seed) if attention is None else attention)


SENTENCES = [
    sentence((2, 0, 2, 3), ("det", "root", "obj", "punct"), seed=1),
    sentence((2, 3, 0, 5, 3), ("det", "nsubj", "root", "det", "obj"), seed=2), sentence((0, 1), ("root", "obj"), seed=3),
]  # fmt: skip


def notebook_accuracies(predict: Callable[[ReadSentence], Sequence[int]]) -> dict[str, float]:
    """evaluate_predictor of Syntax_Analysis.ipynb, without its special case for possessors."""
    right, words = Counter[str](), Counter[str]()
    for read in SENTENCES:
        for guess, head, relation in zip(predict(read), read.tree.heads, read.tree.relations, strict=True):
            for name in (relation, "all"):
                right[name] += int(guess == head)
                words[name] += 1
    return {name: right[name] / words[name] for name in words}


def test_heads_and_offsets_find_what_the_authors_predictors_find() -> None:
    counts = Counts()
    for read in SENTENCES:
        counts.add(read)
    assert counts.words == {"all": 11, "det": 3, "root": 3, "obj": 3, "punct": 1, "nsubj": 1}

    def attended(layer: int, head: int, transposed: bool) -> Callable[[ReadSentence], Sequence[int]]:
        def predict(read: ReadSentence) -> Sequence[int]:
            attention = np.array(read.attention[layer, head])
            attention = attention.T if transposed else attention
            attention[np.arange(len(attention)), np.arange(len(attention))] = 0
            return (attention[1:-1, 1:-1].argmax(-1) + 1).tolist()

        return predict

    for direction, layer, head in np.ndindex(2, 2, 3):
        expected = notebook_accuracies(attended(layer, head, bool(direction)))
        for name, accuracy in expected.items():
            assert counts.by_head[name][direction, layer, head] / counts.words[name] == pytest.approx(accuracy)
    for number, offset in enumerate((-3, -2, -1, 1, 2, 3)):
        expected = notebook_accuracies(
            lambda read, offset=offset: [
                max(0, min(i + offset + 1, len(read.tree.words))) for i in range(len(read.tree.words))
            ]
        )  # fmt: skip
        for name, accuracy in expected.items():
            assert counts.by_offset[name][number] / counts.words[name] == pytest.approx(accuracy)


def test_a_word_is_never_its_own_head_and_offsets_end_at_the_last_word() -> None:
    attention = np.zeros((1, 1, 5, 5), np.float32)
    attention[0, 0, 1:4, 1:4] = [[0.9, 0.0, 0.1], [0.2, 0.7, 0.1], [0.0, 0.6, 0.4]]
    attention[0, 0, 1, 0] = 1.0  # what the template inserts is no word
    assert guessed_heads(attention)[:, 0, 0].tolist() == [[3, 1, 2], [2, 3, 1]]
    assert offset_heads(3).tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [2, 3, 3], [3, 3, 3], [3, 3, 3]]


def test_scores_of_the_classifier_are_those_of_the_authors_attention_probe() -> None:
    read = SENTENCES[1].attention
    model = AttentionClassifier(6)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        model.weights.copy_(torch.randn(2, 6, generator=generator))
        model.root.copy_(torch.tensor([0.3, -2.0]))
    flat = read.reshape(6, 7, 7)
    maps = np.concatenate([flat, flat.swapaxes(1, 2)])
    root = 0.3 * maps[:, 1:-1, 0] - 2.0 * maps[:, 1:-1, -1]
    features = np.concatenate([root[..., None], maps[:, 1:-1, 1:-1]], -1)
    expected = np.einsum("m,mij->ij", model.weights.detach().numpy().reshape(12), features)
    np.testing.assert_allclose(model(torch.from_numpy(read)).detach().numpy(), expected, atol=1e-5)


def test_the_classifier_finds_the_head_of_attention_that_points_to_the_heads_of_words() -> None:
    trees = []
    draw = np.random.default_rng(0)
    for _ in range(12):
        size = int(draw.integers(3, 7))
        root = int(draw.integers(1, size + 1))
        heads = np.array([0 if n == root else root for n in range(1, size + 1)])
        attention = drawn(1, 2, size + 2, size + 2, seed=size)
        attention[0, 1, 1:-1] = np.eye(size + 2, dtype=np.float32)[heads]
        trees.append((torch.from_numpy(attention), torch.from_numpy(heads)))
    model = fit_attention(trees, seed=0)
    assert all((model(attention).argmax(1) == heads).all() for attention, heads in trees)


def trees_of(texts: Sequence[str]) -> list[Tree]:
    """Every word depends on the one before it."""
    split = [tuple(text.split()) for text in texts]
    return [
        Tree(1, words, tuple(range(len(words))), ("root", *["dep"] * (len(words) - 2), "punct"), tuple(range(len(words))), ())
        for words in split
    ]


def test_the_best_head_of_a_relation_is_chosen_on_one_file_and_measured_on_the_other(
    checkpoint: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloze.probes.training.EPOCHS", 1)
    train, test = trees_of(["the cat sleeps on the mat .", "a dog sleeps ."]), trees_of(["rain on the mat .", "the dog barks ."])
    loaded = checkpoint("bert")
    found = relation_heads(loaded, train, test, rare=1)
    assert list(found.scores) == ["all", "dep", "punct"] and (found.train, found.test) == (2, 2)
    score = found.scores["dep"]
    assert (score.words, score.offset, score.baseline) == (5, -1, 1.0) and found.uas_by_offset == 1.0
    chosen, counted = Counts(), Counts()
    each_sentence(Reader.of(loaded), train, chosen.add)
    each_sentence(Reader.of(loaded), test, counted.add)
    best = np.unravel_index(chosen.by_head["dep"].argmax(), (2, 2, 2))
    assert (score.direction, score.layer, score.head) == (["word → head", "head → word"][best[0]], best[1], best[2])
    assert score.accuracy == counted.by_head["dep"][best] / 5 == found.accuracy["dep"][best]
    assert list(relation_heads(loaded, train, test, rare=3).scores) == ["all", "dep"]
    (remark,) = relation_heads(loaded, train, test, rare=1, length=8).remarks
    assert remark == "left out, because the network did not read all of their words: 2 sentences"
    with pytest.raises(UserError, match="this network cuts every sentence of the treebank"):
        relation_heads(loaded, train, test, length=3)


def test_attention_of_words_stands_between_that_of_what_the_template_inserts(checkpoint: Callable[..., Any]) -> None:
    for name, around in (("bert", 1), ("gpt2", 0)):
        reader, seen = Reader.of(checkpoint(name)), []
        (tree,) = trees_of(["the cat sleeps on the mat ."])
        each_sentence(reader, [tree], seen.append)
        words = seen[0].attention
        assert words.shape[-2:] == (9, 9)
        sums = words[..., 1:-1, :].sum(-1)  # GPT-2 has a token for a space, which is part of no word
        assert (sums <= 1 + 1e-5).all() and (sums[..., :-1] >= 1 - 1e-5).all()
        assert (words[..., 1:-1, [0, -1]].sum() > 0) == bool(around)
        ((_, tokens),) = each_attention(reader, reader.encode([" ".join(tree.words)]))
        if around:
            np.testing.assert_allclose(words[..., 1:-1, 0], tokens[..., 1:-1, 0], atol=1e-6)


def test_a_finding_names_heads_by_layer_and_number(checkpoint: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloze.probes.training.EPOCHS", 1)
    train = trees_of(["the cat sleeps on the mat .", "a dog sleeps ."])
    figures = AttentionFigures(
        attention_habits(checkpoint("bert"), TEXTS), relation_heads(checkpoint("bert"), train, train, rare=1)
    )  # fmt: skip
    probe = AttentionProbe(all_heads=True)
    finding = probe.finding([Subject("net", Path())], {"net": figures})
    said = as_text(finding)
    assert "net: the head that attends most" in said and "net: heads that find the heads of words" in said
    assert [table.title for table in finding.tables[3:]][:2] == ["net: previous of every head", "net: same of every head"]
    assert len(finding.plots) == 9 and finding.plots[-1].dashed == {"net, first token", "net, alike"}
    assert [x for x, _ in finding.plots[0].lines["net"]] == [1.0, 2.0]
    layer, head = np.unravel_index(figures.habits.shares["next"].argmax(), (2, 2))
    assert finding.tables[1].rows[2] == ["the next token", f"{layer + 1}-{head + 1}", figures.habits.shares["next"].max()]
    causal = AttentionFigures(attention_habits(checkpoint("gpt2"), TEXTS), None)
    both = AttentionProbe().finding([Subject("a", Path()), Subject("b", Path())], {"a": figures, "b": causal})
    assert both.kind == "attention" and "other special tokens" not in str(both.tables[-1].rows)


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "attention needs --text FILE, a file with a sentence per line, or --task TRAIN,TEST with dependency trees."),
    (["--task", "t.conllu"], "attention: expected --task TRAIN,TEST, got 't.conllu'."),
    (["--task", "t.conllu,none.conllu"], "none.conllu"),
    (["--task", "t.conllu,t.conllu"], "t.conllu: no sentence of two words or more: a relation needs two."),
    (
        ["--text", "t", "--metric", "x"],
        "attention does not use --metric. Omit it. attention uses --text, --task, --rare, --all-heads",
    ),
])  # fmt: skip
def test_what_is_missing_is_said_before_a_checkpoint_is_opened(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "X").mkdir()
    (tmp_path / "t.conllu").write_text("1\tcats\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n")
    assert main(["probe", "attention", "X", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_command_measures_a_text_without_trees(
    tmp_path: Path, checkpoint: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cloze.checkpoint.build.load_checkpoint", lambda folder, device: checkpoint("gpt2"))
    Path("t.txt").write_text("\n".join(TEXTS))
    assert main(["probe", "attention", ".", "--text", "t.txt", "--json"]) == 0
    (figures,) = json.loads(capsys.readouterr().out).values()
    assert figures["shares"]["special"] == [[None] * 2] * 2 and "relations" not in figures and figures["texts"] == 3
