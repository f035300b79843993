"""`cloze look` on every kind of network: what it has is shown, and a table of words is refused in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.reader import Reader, head_of_kind
from cloze.probes.look import look
from cloze.reports.look import page_data, write_page
from tests.pages import needs_browser, title_in_browser

#: Of every kind of network: its kinds of attention, and what its head predicts at a token.
KINDS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "bert": (("attention",), "own"), "gpt2": (("attention",), "next"), "unilm": (("attention",), "own"),
    "t5-small": (("encoder", "decoder", "decoder to encoder"), "next"), "transformer-xl": (("attention",), "next"),
    "xlnet-base": (("attention", "query stream"), "own"), "zen": (("attention",), "own"),
    "character-bert": (("attention",), "own"), "electra-small": (("attention",), None), "lstm": ((), "next"), "elmo": ((), None),
    "context2vec": ((), None), "cove": ((), None), "skip-thought": ((), None), "nnlm": ((), "next"), "mamba": ((), "next"),
    "mamba-bidirectional": ((), "own"),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_look_shows_what_a_kind_of_network_has(name: str, start: Callable[[str], Path]) -> None:
    seen = look(load_checkpoint(start(name)), "the cat saw the river")
    kinds, predicts = KINDS[name]
    assert tuple(one.name for one in seen.attention) == kinds
    assert (None if seen.lens is None else seen.lens.predicts) == predicts
    for one in seen.attention:
        np.testing.assert_allclose(one.shares.sum(-1), 1.0, atol=1e-5)
        if predicts == "next" and one.rows == one.columns != "source":
            assert (np.triu(one.shares, 1) == 0).all()
    assert all(near.cosines.shape[:2] == near.tokens.shape[:2] for near in seen.near)
    assert page_data(seen)["layers"] == max(len(near.tokens) for near in seen.near) - 1


@needs_browser
@pytest.mark.parametrize(("name", "grid"), [("gpt2", 4), ("t5-small", 4), ("xlnet-base", 4), ("lstm", 0)])
def test_a_browser_draws_the_page_of_each_kind_of_network_without_an_error(
    name: str, grid: int, start: Callable[[str], Path], tmp_path: Path
) -> None:
    page = write_page(look(load_checkpoint(start(name)), "the cat saw the river"), tmp_path / "page.html", name=name)
    script = """
      const count = what => document.querySelectorAll(what).length, slider = document.getElementById("layer");
      slider.value = 0; slider.dispatchEvent(new Event("input"));
      const layer = document.getElementById("layer-name").textContent;
      document.title = [count("#model canvas"), count("#near-table tbody tr") > 0, layer, window.failed ?? ""].join("|");
    """
    assert title_in_browser(page, script) == f"{grid}|true|input|"


@needs_browser
def test_a_browser_draws_queries_keys_and_their_products(start: Callable[[str], Path], tmp_path: Path) -> None:
    seen = look(load_checkpoint(start("bert")), "the cat saw the river")
    page = write_page(seen, tmp_path / "page.html", name="bert")
    script = """
      [...document.querySelectorAll("#views button")].find(one => one.textContent === "neurons").click();
      const rows = [...document.querySelectorAll(".neurons tbody tr")], score = +rows[0].children[4].textContent;
      document.title = [rows.length, rows[0].querySelectorAll("canvas").length, score, window.failed ?? ""].join("|");
    """
    rows, canvases, score, failed = title_in_browser(page, script).split("|")
    queries, keys = seen.attention[0].neurons or (np.zeros(0), np.zeros(0))
    chosen = 4  # the last word: "river"
    assert (int(rows), canvases, failed) == (len(seen.sequences["text"]), "3", "")
    assert float(score) == pytest.approx(queries[-1, 0, chosen] @ keys[-1, 0, 0], abs=0.06)


def test_the_query_stream_is_that_of_each_token_predicted_from_all_others(start: Callable[[str], Path]) -> None:
    loaded = load_checkpoint(start("xlnet-base"))
    seen = look(loaded, "the cat saw the river")
    shares = next(one.shares for one in seen.attention if one.name == "query stream")
    assert (shares.diagonal(axis1=2, axis2=3) == 0).all()
    reader = Reader.of(loaded)
    batch = reader.batch(reader.encode(["the cat saw the river"]))
    inputs, _ = reader.prediction_inputs(head_of_kind(loaded, "token_prediction"), batch, torch.tensor([2]))
    expected = reader.states(inputs, {"query_attention"})["query_attention"][:, 0, :, 2].detach().numpy()
    np.testing.assert_allclose(shares[:, :, 2], expected, atol=1e-5)


def test_an_encoder_decoder_reads_the_second_text_with_its_decoder(start: Callable[[str], Path]) -> None:
    seen = look(load_checkpoint(start("t5-small")), "the cat saw the river", "the rain")
    assert seen.texts == ("the cat saw the river", "the rain") and set(seen.sequences) == {"source", "target"}
    target = seen.sequences["target"]
    assert target.parts[0] == -1 and seen.attention[2].shares.shape[2:] == (len(target), len(seen.sequences["source"]))


def test_word_vectors_are_refused_and_so_is_a_page_that_is_no_html(
    start: Callable[[str], Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = str(tmp_path / "page.html")
    assert main(["look", str(start("word2vec-cbow")), "the cat", "--out", out]) == 2
    assert "has no layers to look into.\n  The nearest words: cloze neighbours" in capsys.readouterr().err
    assert main(["look", str(start("bert")), "the cat", "--out", str(tmp_path / "page.txt")]) == 2
    assert "expected an HTML file, such as page.html" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main(["look", str(start("bert")), "the cat", "--out", out]) == 0
    assert ": 5 tokens, " in capsys.readouterr().out and Path(out).is_file()
