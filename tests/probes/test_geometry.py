"""How vectors lie: exact values on vectors made for them, and the measures of small networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.decoding.reader import Reader
from cloze.errors import UserError
from cloze.probes.finding import Subject, as_text, plain, subjects
from cloze.probes.geometry import Sampled, geometry
from cloze.probes.kinds.contextuality import GeometryProbe
from cloze.probes.measures import explained, first_direction, intra_sentence, self_similarity, unit
from cloze.probes.words import join_words, word_rows, word_states, words_of
from cloze.reports.probe import render, write_finding
from tests.pages import Outline

TEXTS = [
    "The cat sleeps on the mat.", "A dog sees the cat.", "The mice saw the cat and the garden.", "Rain fell on the garden.",
] * 3  # fmt: skip


def drawn(n: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width))


def test_zeros_have_no_direction_in_any_precision() -> None:
    for kind in (np.float32, np.float64):
        assert unit(np.array([[0, 0], [3, 4]], kind)).tolist() == [[0, 0], pytest.approx([0.6, 0.8])]


def test_self_similarity_is_the_mean_over_all_pairs() -> None:
    x = drawn(7, 5)
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    pairs = [u[i] @ u[j] for i in range(7) for j in range(7) if i != j]
    assert self_similarity(x) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert self_similarity(np.ones((4, 3)) * [1.0, 2.0, 3.0]) == pytest.approx(1.0)
    assert self_similarity(np.eye(6)) == pytest.approx(0.0) and np.isnan(self_similarity(x[:1]))


def test_the_three_estimators_of_variance_explained_are_the_three_of_published_code() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    for shape in ((6, 9), (40, 9)):
        x = drawn(*shape) + 3.0 * drawn(1, shape[1], 1)
        values = np.linalg.svd(x, compute_uv=False)
        found = explained(x)
        assert found["uncentred"] == pytest.approx(values[0] ** 2 / (values**2).sum())
        assert found["centred"] == pytest.approx(decomposition.PCA(1).fit(x).explained_variance_ratio_[0])
        truncated = decomposition.TruncatedSVD(1, algorithm="arpack", random_state=0).fit(x)
        assert found["truncated"] == pytest.approx(truncated.explained_variance_ratio_[0])
        assert abs(first_direction(x) @ truncated.components_[0]) == pytest.approx(1.0)
        assert first_direction(x) @ x.mean(0) > 0


def test_the_estimators_on_vectors_whose_answer_is_known() -> None:
    same = explained(np.ones((5, 3)))
    assert same["uncentred"] == pytest.approx(1.0) and np.isnan(same["centred"]) and np.isnan(same["truncated"])
    assert explained(np.eye(8))["uncentred"] == pytest.approx(1 / 8)
    x = unit(drawn(9, 6) + 1.0)
    assert explained(x)["uncentred"] >= (1 + 8 * self_similarity(x)) / 9 - 1e-12
    assert explained(drawn(5, 20))["centred"] >= 1 / 4  # 1 / (n - 1): few vectors always look like one direction


def test_measures_do_not_depend_on_the_axes() -> None:
    x, turn = drawn(8, 6) + 0.5, np.linalg.qr(drawn(6, 6, 2))[0]
    assert self_similarity(x @ turn) == pytest.approx(self_similarity(x))
    assert intra_sentence(x @ turn) == pytest.approx(intra_sentence(x))
    assert explained(x @ turn) == pytest.approx(explained(x))


def test_isotropic_vectors_have_no_similarity_and_a_sentence_of_one_word_has_all() -> None:
    assert abs(self_similarity(drawn(2000, 50))) < 0.003
    assert intra_sentence(drawn(1, 7)) == pytest.approx(1.0)


def test_words_are_the_mean_of_their_pieces_and_punctuation_is_none(checkpoint: Callable[..., Any]) -> None:
    assert [
        tuple(text[a:b] for a, b in words_of(text)) for text in ("a, (b2)!", "中文 x。")
    ] == [("a", "b2"), ("中", "文", "x")]
    for name in ("bert", "gpt2"):
        reader = Reader.of(checkpoint(name))
        text, spans = join_words(["nobody", "sleeps", ",", "on"])
        (row,) = word_rows(reader, [text], [spans])
        assert row.columns[0, 0] == len(reader.single.opening) and (row.columns[1:, 0] >= row.columns[:-1, 1]).all()
        ((number, states),) = word_states(reader, [row])
        layers = reader.states(reader.batch([row.row]), {"layers"})["layers"].detach().numpy()[:, 0]
        begin, end = row.columns[0]
        assert number == 0 and end - begin > 1
        np.testing.assert_allclose(states[:, 0], layers[:, begin:end].mean(1), rtol=1e-5, atol=1e-6)
        cut = word_rows(reader, [text], [spans], length=6)[0]
        assert cut.columns[-1, 0] == -1 and cut.columns[0, 0] == begin


def test_a_network_without_states_by_layer_is_refused_in_words(checkpoint: Callable[..., Any]) -> None:
    reader = Reader.of(checkpoint("bert"))
    reader.network.gives = {name: kind for name, kind in reader.network.gives.items() if name != "layers"}
    with pytest.raises(UserError, match="this network gives only its top layer: it has no states by layer"):
        list(word_states(reader, word_rows(reader, ["the cat"], [words_of("the cat")])))


def test_the_vectors_of_a_table_are_wholly_self_similar_and_layers_are_less(checkpoint: Callable[..., Any]) -> None:
    """Without positions the input is the same at every occurrence of a word."""
    loaded = checkpoint("modern")
    found = geometry(loaded, TEXTS, Sampled(least=3))
    own = found.measures["self-similarity"]
    assert own[0] == pytest.approx(1.0, abs=1e-6) and own[1] < 0.999 and own.shape == (3,)
    assert set(found.words) >= {"the", "cat"} or set(found.words) >= {"The", "the", "cat"}
    np.testing.assert_allclose(found.measures["adjusted"], own - found.measures["baseline"])
    assert np.isnan(found.measures["centred"][0]) and found.measures["uncentred"][0] == pytest.approx(1.0)
    again = geometry(loaded, TEXTS, Sampled(least=3), size=1)
    for name, values in found.measures.items():
        np.testing.assert_allclose(again.measures[name], values, rtol=1e-4, atol=1e-5, err_msg=name)


def test_pieces_are_measured_as_the_published_code_measures_them(checkpoint: Callable[..., Any]) -> None:
    """The formulas of kawine/contextual (analyze.py), on all pairs and all sentences: with punctuation, except as a word."""
    loaded = checkpoint("bert")
    reader, texts = Reader.of(loaded), TEXTS[:4]
    probed = geometry(loaded, texts, Sampled(None, 2, None, unit="pieces"))
    states = []
    for row in reader.encode(texts):
        layers = reader.states(reader.batch([row]), {"layers"})["layers"].detach().double().numpy()[:, 0]
        states.append((layers[:, row.part == 0], [loaded.tokenizer.piece(i) for i in row.ids[row.part == 0].tolist()]))
    occurrences: dict[str, list[np.ndarray]] = {}
    for layers, pieces in states:
        for n, piece in enumerate(pieces):
            occurrences.setdefault(piece, []).append(layers[:, n])
    assert set(probed.words) == {piece for piece, vectors in occurrences.items() if len(vectors) > 1} - {"."}
    for piece, by_layer in probed.words.items():
        x = unit(np.stack(occurrences[piece], axis=1))
        pairs = [[a @ b for i, a in enumerate(layer) for j, b in enumerate(layer) if i != j] for layer in x]
        np.testing.assert_allclose(by_layer, np.mean(pairs, axis=1), rtol=1e-4)
    inside = [(unit(layers) * unit(layers.mean(1, keepdims=True))).sum(-1).mean(1) for layers, _ in states]
    np.testing.assert_allclose(probed.measures["intra-sentence"], np.mean(inside, axis=0), rtol=1e-4)
    for name in ("uncentred", "truncated"):
        difference = probed.measures[name] - probed.measures[f"{name} baseline"]
        np.testing.assert_allclose(probed.measures[f"{name} adjusted"], difference)


def test_variance_explained_has_a_baseline_only_where_there_are_as_many_random_words(checkpoint: Callable[..., Any]) -> None:
    """One direction always explains all variance of one vector, so one random word would make every word look contextual."""
    probed = geometry(checkpoint("bert"), [" ".join(TEXTS)], Sampled(least=3))
    assert np.isfinite(probed.measures["uncentred"]).all()
    assert all(np.isnan(probed.measures[f"uncentred {kind}"]).all() for kind in ("baseline", "adjusted"))


def test_rare_words_are_refused_with_a_way_out(checkpoint: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"no word occurs 50 times in these 12 sentences\.\n  Give more text, or "):
        geometry(checkpoint("bert"), TEXTS, Sampled(least=50))


def test_a_finding_is_a_table_a_page_and_plain_json(checkpoint: Callable[..., Any], tmp_path: Path) -> None:
    found = {name: geometry(checkpoint("bert"), TEXTS, Sampled(least=3)) for name in ("step 0", "step <b>")}
    made = GeometryProbe().finding([Subject("step 0", tmp_path, 0), Subject("step <b>", tmp_path, 10)], found)
    lines = as_text(made).splitlines()
    assert lines[0] == "step 0: contextuality by layer" and lines[1].split()[:3] == ["layer", "self-similarity", "baseline"]
    assert [line.split()[0] for line in lines[2:5]] == ["2", "1", "input"]
    html = render(made)
    page = Outline(html)
    assert page.headings[1] == "Figures" and page.addresses == [] and "step <b>" not in html
    assert "self-similarity, over training" in html and "layer 2" in html
    assert {plot.x for plot in made.plots} == {"layer", "step"}
    assert write_finding(made, tmp_path / "a" / "b").name == "probe.html" and (tmp_path / "a" / "b" / "probe.json").is_file()
    assert plain({"x": np.array([1.0, np.nan]), "y": (float("inf"), 2)}) == {"x": [1.0, None], "y": [None, 2]}


def test_steps_of_a_run_are_named_and_missing_ones_refused(tmp_path: Path) -> None:
    for step in (0, 100, 20):
        (tmp_path / "cloze" / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
    assert [one.step for one in subjects([tmp_path], "all")] == [0, 20, 100]
    assert [one.name for one in subjects([tmp_path], "100")] == ["step 100"]
    with pytest.raises(UserError, match="expected all, or steps of this run: 0, 20, 100"):
        subjects([tmp_path], "5")
    with pytest.raises(UserError, match="expected the folder of one run, got 2"):
        subjects([tmp_path, tmp_path], "all")
    two = [tmp_path / "a", tmp_path / "b" / "a"]
    assert [one.name for one in subjects(two)] == [str(one) for one in two]
