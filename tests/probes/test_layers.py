"""Linear probes with their controls, senses by nearest neighbours, distances in trees and static vectors."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.cli.main import main
from cloze.errors import TaskError, UserError
from cloze.interop.vectors import Vectors
from cloze.probes.distance import (
    PaddedSentences,
    ProbedSentence,
    ProbedTrees,
    depth_loss,
    depths_of,
    distance_loss,
    is_punctuation,
    judge_depths,
    judge_distances,
    probe_distance,
    read_trees,
    spanning_tree,
    tree_distances,
)
from cloze.probes.finding import Subject, as_text
from cloze.probes.kinds.static_vectors import SimilarityData, StaticProbe
from cloze.probes.kinds.word_labels import LayerProbe
from cloze.probes.layers import LayerScores, marked_spans, nearest_senses, sense_words, split_of, tagged_words
from cloze.probes.linear import HiddenLayers, ProbeSplit, control_labels, fit_layers, most_frequent, probe_linear
from cloze.probes.static import Static, compare, static_vectors
from cloze.probes.training import Convergence, converge
from cloze.tasks.intrinsic.similarity import WordPair

TREE = """# text = x
1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tcat\tcat\tNOUN\tNN\t_\t3\tnsubj\t_\t_
3\tsees\tsee\tVERB\tVB\t_\t0\troot\t_\t_
4\tmice\tmouse\tNOUN\tNN\t_\t3\tobj\t_\t_

1\tdogs\tdog\tNOUN\tNN\t_\t2\tnsubj\t_\t_
2\tbark\tbark\tVERB\tVB\t_\t0\troot\t_\t_
3\tat\tat\tADP\tIN\t_\t4\tcase\t_\t_
4\tmice\tmouse\tNOUN\tNN\t_\t2\tobl\t_\t_
5\tin\tin\tADP\tIN\t_\t6\tcase\t_\t_
6\train\train\tNOUN\tNN\t_\t2\tobl\t_\t_

"""

#: Sentences with their heads, and the figures that the authors' functions give for the predictions of the test.
ORACLE = [
    (("the", "cat", "sat", ",", "and", "slept", "."), (2, 3, 0, 3, 6, 3, 3)),
    (("rain", "fell", "on", "the", "old", "roof", "today", "."), (2, 0, 6, 6, 6, 2, 2, 2)),
    (("dogs", "-LRB-", "all", "of", "them", "-RRB-", "ran", "off", "fast"), (7, 3, 1, 5, 3, 3, 0, 7, 7)),
    (("yes", "!"), (0, 1)), (("it", "is", "so", "cold"), (4, 4, 4, 0)),
]  # fmt: skip
AUTHORS_DISTANCES, AUTHORS_DEPTHS = (8 / 19, 0.43907031923782364), (0.2, 0.1378470640768862)


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    path = tmp_path / "trees.conllu"
    path.write_text(TREE, encoding="utf-8")
    return path


def made_split(separable: bool) -> ProbeSplit:
    """Layer 0: the word alone; layer 1: the label, if it is `separable`, else noise."""
    draw = np.random.default_rng(0)
    words = np.array([f"w{n}" for n in draw.integers(0, 12, 400)])
    labels = np.array(["A" if n < 0.7 else "B" for n in draw.random(400)])
    word = np.eye(12, dtype=np.float32)[[int(one[1:]) for one in words]]
    noise = draw.normal(size=(400, 12)).astype(np.float32)
    noise[:, 0] += 6.0 * (labels == "A") * separable
    x = np.stack([word, noise])
    return ProbeSplit(
        x[:, :300], x[:, 300:], labels[:300].tolist(), labels[300:].tolist(), words[:300].tolist(), words[300:].tolist()
    )


def test_a_layer_that_holds_the_labels_is_selective_and_one_that_holds_the_words_learns_the_control() -> None:
    found = probe_linear(made_split(separable=True))
    assert found.accuracy[1] > 0.97 and found.control[1] < 0.85 and found.control[0] == 1.0
    assert found.selectivity == pytest.approx([a - b for a, b in zip(found.accuracy, found.control, strict=True)])
    assert found.selectivity[0] < 0 < found.selectivity[1]
    assert found.majority == pytest.approx(Counter(made_split(True).test_labels)["A"] / 100)


def test_shuffled_labels_cannot_be_learned_from_any_layer() -> None:
    split = made_split(separable=True)
    found = probe_linear(split, control="shuffled")
    assert found.accuracy[1] > 0.97 and max(found.control) < found.majority + 0.1


def test_noise_predicts_no_better_than_the_most_frequent_label() -> None:
    found = probe_linear(made_split(separable=False), control=None)
    assert found.accuracy[1] <= found.majority + 0.03 and np.isnan(found.control).all()


@pytest.mark.parametrize(("hidden", "accuracy"), [(0, 0.5), (1, 1.0), (2, 1.0)])
def test_a_probe_with_hidden_layers_learns_what_no_line_separates_and_is_less_selective(
    hidden: int, accuracy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hewitt and Liang's finding (2019, §4): an MLP also learns the random labels of words that a linear map cannot learn."""
    monkeypatch.setattr("cloze.probes.linear._UPDATES", 8)
    draw = np.random.default_rng(0)
    words = draw.integers(0, 4, 600)
    x = (np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]])[words] + draw.normal(0, 0.05, (600, 2))).astype(np.float32)[None]
    kinds = [f"w{word}" for word in words]
    labels = ["A" if word < 2 else "B" for word in words]  # exclusive or
    split = ProbeSplit(x[:, :500], x[:, 500:], labels[:500], labels[500:], kinds[:500], kinds[500:])
    probed = probe_linear(split, seed=3, layers=HiddenLayers(hidden, width=64))
    assert control_labels(["w0", "w1", "w2", "w3"], labels, seed=3).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    if hidden:
        assert probed.accuracy[0] == accuracy == probed.control[0]
    else:
        assert max(probed.accuracy[0], probed.control[0]) < 0.8


def theirs_epochs(losses: list[float]) -> int:
    """After how many epochs `train_until_convergence` of control-tasks/regimen.py stops, by the losses of sentences."""
    lowest, best = float("inf"), -1
    for epoch, loss in enumerate(losses):
        if loss < lowest - 0.001:
            lowest, best = loss, epoch
        elif best < epoch - 4:
            return epoch + 1
    return len(losses)


def test_a_probe_is_trained_as_long_as_the_authors_whose_loss_is_the_sum_over_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    slowly = [0.5 - 0.00015 * epoch for epoch in range(9)] + [0.499] * 20  # of a word
    left = iter(slowly)

    def passed(parameters: Any, batches: Any, loss_of: Any, evaluate: Any, convergence: Convergence) -> float:
        return converge(parameters, lambda: (), loss_of, lambda: next(left), convergence)

    monkeypatch.setattr("cloze.probes.linear.converge", passed)
    fit_layers(torch.eye(20), np.arange(20) % 2, 2, HiddenLayers(1, 4), 0)
    assert len(slowly) - len(list(left)) == theirs_epochs([20 * loss for loss in slowly]) == 14
    assert theirs_epochs(slowly) == 6


def test_hidden_layers_are_those_of_the_authors_probes() -> None:
    """OneWordNNLabelProbe and OneWordLinearLabelProbe of john-hewitt/control-tasks: their numbers of parameters."""
    sizes = [sum(p.numel() for p in HiddenLayers(hidden, 7).network(5, 3).parameters()) for hidden in (0, 1, 2)]
    assert sizes == [5 * 7 + 7 + 7 * 3 + 3, 5 * 7 + 7 + 7 * 3 + 3, 5 * 7 + 7 + 7 * 7 + 7 + 7 * 3 + 3]
    assert [str(module) for module in HiddenLayers(2, 7, 0.4).network(5, 3)] == [
        "Dropout(p=0.4, inplace=False)", "Linear(in_features=5, out_features=7, bias=True)", "ReLU()",
        "Linear(in_features=7, out_features=7, bias=True)", "ReLU()", "Dropout(p=0.4, inplace=False)",
        "Linear(in_features=7, out_features=3, bias=True)",
    ]  # fmt: skip


def test_control_labels_depend_on_the_word_alone_and_have_the_labels_distribution() -> None:
    kinds, labels = [f"w{n}" for n in range(3000)] * 2, ["A"] * 7 + ["B"] * 2 + ["C"]
    found = control_labels(kinds, labels, seed=1)
    assert (found[:3000] == found[3000:]).all() and (control_labels(kinds[5:9], labels, seed=1) == found[5:9]).all()
    np.testing.assert_allclose(np.bincount(found) / 6000, [0.7, 0.2, 0.1], atol=0.03)
    assert (control_labels(kinds, labels, seed=2) != found).mean() > 0.3
    assert most_frequent(["x", "x", "x", "y"], ["B", "A", "A", "B"]) == {"x": "A", "y": "B"}


def test_words_and_relations_of_a_file_become_examples(trees: Path, checkpoint: Callable[..., Any]) -> None:
    words = tagged_words(trees, "upos", most=10)
    assert [example[2:] for example in words.examples[:3]] == [("DET", "the"), ("NOUN", "cat"), ("VERB", "sees")]
    split, remarks = split_of(checkpoint("bert"), words, words)
    assert split.train.shape == (3, 10, 16) and remarks == []
    _, remarks = split_of(checkpoint("bert"), words, words, length=6)
    assert remarks[0].endswith("words were left out: the network did not read them")


def test_the_nearest_occurrence_of_what_was_seen_is_itself(tmp_path: Path, checkpoint: Callable[..., Any]) -> None:
    path = tmp_path / "senses.jsonl"
    rows = [("the mat on the river", "a"), ("a mat and a mat", "b"), ("cheese under the mat", "a"), ("mat rain mat", "b")]
    path.write_text("".join(
        f'{{"text": "{text}", "spans": [[{text.index("mat")}, {text.index("mat") + 3}]], "label": "{label}"}}\n'
        for text, label in rows
    ))  # fmt: skip
    marked = marked_spans(path, most=10)
    split, _ = split_of(checkpoint("bert"), marked, marked)
    assert nearest_senses(split).occurrence[1:] == [1.0, 1.0] and probe_linear(split, control=None).by_kind == 0.5
    unseen = ProbeSplit(split.train, split.test, split.train_labels, split.test_labels, split.train_kinds, ["other"] * 4)
    assert nearest_senses(unseen).mean == [0.5, 0.5, 0.5]


def test_senses_are_read_from_the_files_of_the_evaluation_framework(tmp_path: Path, checkpoint: Callable[..., Any]) -> None:
    data, gold, index = tmp_path / "dev.data.xml", tmp_path / "dev.gold.key.txt", tmp_path / "index.sense"
    data.write_text(
        '<?xml version="1.0"?><corpus lang="en"><text id="d0"><sentence id="d0.s0"><wf lemma="the" pos="DET">the</wf>'
        '<instance id="d0.s0.t0" lemma="mat" pos="NOUN">mats</instance><wf lemma="in" pos="ADP">in front</wf></sentence>'
        '<sentence id="d0.s1"><wf lemma="no" pos="DET">no</wf></sentence></text></corpus>'
    )  # fmt: skip
    gold.write_text("d0.s0.t0 mat%1:06:00:: mat%1:06:01::\n")
    index.write_text("mat%1:06:00:: 03727837 1 8\nmat%1:06:01:: 03727946 2 0\nhot%3:00:01:: 01247240 1 45\n")
    words = LayerProbe(task="sense=A,B", wordnet=str(index)).read_file(str(data))
    assert words.texts == ["the mats in_front"] and words.examples == [(0, (1,), "mat%1:06:00::", "mat#NOUN")]
    assert words.fallback == {"mat#NOUN": "mat%1:06:00::", "hot#ADJ": "hot%3:00:01::"}
    split, _ = split_of(checkpoint("bert"), words, words)
    unseen = replace(split, train_labels=["x"], train_kinds=["other#NOUN"])
    assert nearest_senses(unseen).occurrence == [1.0, 1.0, 1.0] and nearest_senses(replace(unseen, fallback={})).mean == [0.0] * 3
    gold.write_text("d0.s9.t0 mat%1:06:00::\n")
    with pytest.raises(TaskError, match=r"dev\.gold\.key\.txt: no sense for 'd0\.s0\.t0'"):
        sense_words(data, most=5)
    data.write_text("<corpus>")
    with pytest.raises(TaskError, match="no XML"):
        sense_words(data, most=5)
    gold.unlink()
    with pytest.raises(TaskError, match=r"expected NAME\.data\.xml with the keys of its senses next to it"):
        sense_words(data, most=5)


def test_distances_in_a_tree_count_its_edges_and_their_spanning_tree_is_the_tree(trees: Path) -> None:
    heads = (2, 3, 0, 3, 4)
    found = tree_distances(heads)
    assert found.tolist() == [[0, 1, 2, 3, 4], [1, 0, 1, 2, 3], [2, 1, 0, 1, 2], [3, 2, 1, 0, 1], [4, 3, 2, 1, 0]]
    assert tree_distances((0, 1, 1)).tolist() == [[0, 1, 1], [1, 0, 2], [1, 2, 0]]
    assert spanning_tree(found) == {(0, 1), (1, 2), (2, 3), (3, 4)}
    assert read_trees(trees, most=5).heads[0] == (2, 3, 0, 3)


def test_the_spanning_tree_is_the_least_of_all_trees() -> None:
    draw = np.random.default_rng(3)
    for size in (2, 3, 4, 5):
        distances = draw.random((size, size))
        distances = distances + distances.T
        pairs = list(itertools.combinations(range(size), 2))

        def connects(edges: Any, size: int = size) -> bool:
            reached = {0}
            for _ in range(size):
                reached |= {b for a, b in edges if a in reached} | {a for a, b in edges if b in reached}
            return len(reached) == size

        least = min(
            (edges for edges in itertools.combinations(pairs, size - 1) if connects(edges)),
            key=lambda edges: sum(distances[a, b] for a, b in edges),
        )
        assert spanning_tree(distances) == set(least)


def test_the_structural_probe_learns_the_trees_that_it_was_trained_on(checkpoint: Callable[..., Any], trees: Path) -> None:
    read = read_trees(trees, most=5)
    figures = probe_distance(checkpoint("bert"), read, read, rank=8)
    assert figures.uuas[1] == 1.0 and figures.correlation[1] > 0.8 and len(figures.uuas) == 3
    assert figures.root[1] == 1.0 and figures.depth[1] > 0.8
    assert figures.chain == pytest.approx(6 / 8)
    with pytest.raises(UserError, match="this network cuts every sentence"):
        probe_distance(checkpoint("bert"), ProbedTrees([("cat",) * 45], [(0, *[1] * 44)]), read)
    with pytest.raises(UserError, match="this network cuts every sentence"):
        probe_distance(checkpoint("bert"), read, read, length=4)


def test_figures_of_the_structural_probe_are_those_that_its_authors_code_reports() -> None:
    """The expected numbers are those of reporter.py (john-hewitt/structural-probes) for these sentences and predictions."""
    sentences, distances, depths = [], [], []
    for words, heads in ORACLE:
        size = len(words)
        marks = np.array([is_punctuation(word) for word in words])
        sentences.append(ProbedSentence(torch.zeros(size, 1), tree_distances(heads), depths_of(heads), np.flatnonzero(~marks)))
        a, b = np.indices((size, size))
        distances.append(((a * 7 + b * 7 + a * b * 3) % 11 + 0.1 * np.abs(a - b)) * (a != b))
        depths.append((np.arange(size) * 5 % 7).astype(float))
    assert judge_distances(sentences, distances) == pytest.approx(AUTHORS_DISTANCES, abs=1e-6)
    assert judge_depths(sentences, depths) == pytest.approx(AUTHORS_DEPTHS, abs=1e-6)


def test_losses_of_the_structural_probe_are_means_over_the_words_of_each_sentence() -> None:
    one = ProbedSentence(torch.tensor([[1.0], [3.0]]), tree_distances((0, 1)), depths_of((0, 1)), np.arange(2))
    two = ProbedSentence(torch.tensor([[0.0], [1.0], [2.0]]), tree_distances((2, 0, 2)), depths_of((2, 0, 2)), np.arange(3))
    both, weight = PaddedSentences.of([one, two]), torch.ones(1, 1)
    assert float(distance_loss(weight, both)) == pytest.approx(((2 * 3) / 4 + (2 * 2) / 9) / 2)  # |4 - 1|, and |4 - 2|
    assert float(depth_loss(weight, both)) == pytest.approx((9 / 2 + (1 + 1 + 3) / 3) / 2)


def test_a_treebank_of_single_words_has_no_distances(tmp_path: Path) -> None:
    (tmp_path / "one.conllu").write_text("1\tdogs\tdog\tNOUN\tNN\t_\t0\troot\t_\t_\n\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"one\.conllu: no sentence of two words or more: a distance needs two\."):
        read_trees(tmp_path / "one.conllu", most=5)


def test_static_vectors_are_compared_over_the_pairs_that_all_have(checkpoint: Callable[..., Any]) -> None:
    texts = ["The cat saw the dog.", "Rain on the cat, cheese on the mat", "a dog and cheese"] * 2
    found = static_vectors(checkpoint("bert"), texts, ["Cat", "dog", "cheese", "rain", "absent"])
    assert list(found.words) == ["cat", "cheese", "dog", "rain"] and found.first.shape == (3, 4, 16)
    np.testing.assert_allclose(np.linalg.norm(found.first, axis=-1), 1.0, atol=1e-5)
    alike = np.einsum("nwd,nwd->nw", found.first, found.mean) / np.linalg.norm(found.mean, axis=-1)
    assert (alike > 0.9).all()
    scored = [("cat", "dog", 9.0), ("cat", "rain", 1.0), ("dog", "cheese", 2.0), ("cat", "absent", 5.0)]
    pairs = [WordPair(*one, line) for line, one in enumerate(scored)]
    other = Vectors(["cat", "dog", "cheese"], np.eye(3, dtype=np.float32), "other")
    assert compare(found, {"set": pairs}, {}).pairs == {"set": 3}
    compared = compare(found, {"set": pairs}, {"other": other})
    assert compared.pairs == {"set": 2} and np.isnan(compared.against["other"]["set"])
    assert "input, first component" in as_text(StaticProbe().finding([Subject("a", Path())], {"a": compared}))
    with pytest.raises(UserError, match="none of the words of these sets occurs"):
        static_vectors(checkpoint("bert"), texts, ["absent"])


def test_a_static_vector_is_that_of_the_first_occurrences_or_of_all(checkpoint: Callable[..., Any]) -> None:
    texts = ["The cat saw the dog.", "Rain on the cat", "a dog and the cat"]

    def mean(given: Sequence[str], occurrences: int) -> np.ndarray:
        probe = StaticProbe(contexts=occurrences)
        pairs = {"set": [WordPair("cat", "dog", 9.0, 1)]}
        seen: list[Static] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("cloze.probes.static.compare", lambda static, *_: seen.append(static))
            probe.measure(checkpoint("bert"), SimilarityData(list(given), pairs, {}))
        return seen[0].mean[:, list(seen[0].words).index("cat")]

    np.testing.assert_allclose(mean(texts, 2), mean(texts[:2], 0), atol=1e-5)
    assert not np.allclose(mean(texts, 0), mean(texts[:2], 0), atol=1e-3)


def test_a_finding_prints_the_control_beside_the_accuracy() -> None:
    scores = LayerScores(probe_linear(made_split(True)))
    made = LayerProbe(task="upos=A,B").finding([Subject("a", Path())], {"a": scores})
    assert made.kind == "layers" and made.title == "What can be read from each layer: upos"
    lines = as_text(made).splitlines()
    assert lines[1].split() == ["layer", "accuracy", "control", "selectivity"] and len(made.plots) == 2
    assert made.plots[0].dashed == {"a, control", "a, without a network"}


@pytest.mark.parametrize(("arguments", "said"), [
    (["layer", "X"], "unknown probe 'layer'. Did you mean 'layers'?"),
    (["layers", "X"], "expected --task COLUMN=TRAIN,TEST or sense=TRAIN,TEST, got nothing."),
    (["layers", "X", "--task", "tag=t.conllu,t.conllu"],
     "t.conllu: no column 'tag'; it has: id, form, lemma, upos, xpos, feats, head, deprel, deps, misc.\n"
     "  For CoNLL-U, choose words and labels, for example --task upos=TRAIN,TEST"),
    (["layers", "X", "--task", "tag=t.jsonl,t.jsonl"],
     "t.jsonl:1: no field 'tag'. Known: label, text. Choose a field with --task NAME=TRAIN,TEST."),
    (["edges", "X", "--task", "a=b,c"], "expected --task TRAIN,TEST, got 'a=b,c'."),
    (["attachments", "X"], "expected --task TRAIN,TEST, got nothing."),
    (["distance", "X", "--text", "a"], "cloze probe: distance does not use --text. Omit it. distance uses --task, --rank."),
    (["geometry", "X", "--no-control"], "geometry does not use --no-control. Omit it. geometry uses --text, --least, "),
    (["heads", "X", "--text", "a", "--task", "b"], "plain text (--text) or labelled text (--task). Give one of them."),
    (["geometry", "X"], "needs --text FILE, a file with a sentence per line."),
    (["heads", "X"], "a file with a sentence per line, or, for a fine-tuned folder, --task FILE with labelled text."),
])  # fmt: skip
def test_what_is_missing_is_said_before_a_checkpoint_is_opened(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "X").mkdir()
    (tmp_path / "t.conllu").write_text("1\tcats\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n\n")
    (tmp_path / "t.jsonl").write_text('{"text": ["cats"], "label": ["NOUN"]}\n')
    assert main(["probe", *arguments]) == 2
    assert said in capsys.readouterr().err
