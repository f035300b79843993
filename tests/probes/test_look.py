"""`look`: what a network computes for a text, and the page that shows it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.errors import CheckpointError, UserError
from cloze.probes.look import AttentionMap, Seen, look
from cloze.reports.look import embedded, in_bytes, packed, page_data, render, write_page
from tests.pages import Outline, needs_browser, title_in_browser

TEXT = "the cat sleeps on the mat"


def unpacked(made: dict[str, Any]) -> np.ndarray:
    """The bytes of the page as the script reads them: (N, H, Lq, Lk), 255 in a row."""
    shape = tuple(made["shape"])
    shares = np.frombuffer(base64.b64decode(made["shares"]), np.uint8)
    if made["kept"] is None:
        return shares.reshape(shape)
    found = np.zeros(shape, np.uint8)
    places = np.frombuffer(base64.b64decode(made["places"]), "<u2").reshape(*shape[:3], made["kept"])
    np.put_along_axis(found, places.astype(np.int64), shares.reshape(places.shape), -1)
    return found


def test_rows_of_attention_sum_to_one_and_the_page_keeps_that_exactly(checkpoint: Callable[..., Any]) -> None:
    seen = look(checkpoint("bert"), TEXT, "a dog barks")
    (attention,) = seen.attention
    length = len(seen.sequences["text"])
    assert attention.shares.shape == (2, 2, length, length)
    np.testing.assert_allclose(attention.shares.sum(-1), 1.0, atol=1e-6)
    found = unpacked(packed(attention))
    assert (found.sum(-1, dtype=np.int64) == 255).all()
    np.testing.assert_allclose(found / 255, attention.shares, atol=1 / 255)


def test_a_causal_network_attends_to_nothing_that_follows_on_the_page_either(checkpoint: Callable[..., Any]) -> None:
    (attention,) = look(checkpoint("gpt2"), TEXT).attention
    above = np.triu(np.ones(attention.shares.shape[-2:], bool), 1)
    assert (attention.shares[..., above] == 0).all() and (unpacked(packed(attention))[..., above] == 0).all()
    assert (attention.shares[..., ~above] > 0).all()


def test_bytes_sum_to_255_whatever_the_shares() -> None:
    shares = np.random.default_rng(0).dirichlet(np.full(300, 0.05), size=50).astype(np.float32)
    shares[0] = 0.0
    shares[0, 7] = 1.0
    found = in_bytes(shares)
    assert (found.sum(-1, dtype=np.int64) == 255).all() and found[0, 7] == 255
    np.testing.assert_allclose(found / 255, shares, atol=1 / 255)


def test_a_long_text_keeps_the_largest_shares_of_every_row() -> None:
    shares = np.random.default_rng(1).dirichlet(np.full(400, 0.02), size=(2, 3, 400)).astype(np.float32)
    made = packed(AttentionMap("attention", "text", "text", shares), cells=100_000)
    assert made["kept"] == 100_000 // (3 * 2 * 3 * 400)
    found = unpacked(made)
    assert len(made["shares"]) + len(made["places"]) < 4 / 3 * 100_000 + 8
    largest = -np.sort(-shares, axis=-1)[..., : made["kept"]]
    np.testing.assert_allclose(-np.sort(-found.astype(float), axis=-1)[..., : made["kept"]] / 255, largest, atol=0.5 / 255 + 1e-6)


def test_the_top_layer_predicts_what_the_network_predicts(checkpoint: Callable[..., Any]) -> None:
    """Every other layer goes through the final norm and the head, as the top one does."""
    loaded = checkpoint("gpt2")
    seen = look(loaded, TEXT, top=3)
    assert seen.lens is not None and seen.lens.predicts == "next" and seen.lens.ids.shape == (3, len(seen.sequences["text"]), 3)
    ids = torch.tensor([seen.sequences["text"].ids])
    with torch.inference_mode():
        layers = loaded.network(want=frozenset({"layers"}), tokens=ids, order="left_to_right")["layers"]
        table = loaded.network.embeddings.tokens.weight
        for number, states in enumerate([*(loaded.network.norm(one) for one in layers[:-1]), layers[-1]]):
            shares = (states[0] @ table.T).softmax(-1)
            np.testing.assert_allclose(seen.lens.shares[number], shares.topk(3).values.numpy(), rtol=1e-4)
            np.testing.assert_allclose(seen.lens.actual[number, :-1], shares[range(len(ids[0]) - 1), ids[0, 1:]], rtol=1e-4)
    assert np.isnan(seen.lens.actual[:, -1]).all()
    np.testing.assert_allclose(seen.lens.final[-1], seen.lens.shares[-1, :, 0])


def test_a_mask_is_predicted_at_its_own_place_and_has_no_actual_token(checkpoint: Callable[..., Any]) -> None:
    seen = look(checkpoint("bert"), "the cat [MASK] on the mat")
    assert seen.lens is not None and seen.lens.predicts == "own"
    hole = seen.sequences["text"].pieces.index("[MASK]")
    assert np.isnan(seen.lens.actual[:, hole]).all() and not np.isnan(seen.lens.actual[:, hole + 1]).any()


def test_neighbours_are_the_highest_cosines(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("bert")
    seen = look(loaded, TEXT, top=4)
    (near,) = seen.near
    ids = torch.tensor([seen.sequences["text"].ids])
    with torch.inference_mode():
        layers = loaded.network(want=frozenset({"layers"}), tokens=ids)["layers"][:, 0]
    unit = torch.nn.functional.normalize(layers, dim=-1)
    own = unit @ unit.transpose(1, 2) - 2 * torch.eye(len(ids[0]))
    np.testing.assert_allclose(near.cosines, own.topk(4).values, rtol=1e-4, atol=1e-6)
    assert not (near.tokens == np.arange(len(ids[0]))[:, None]).any()
    table = torch.nn.functional.normalize(loaded.network.embeddings.tokens.weight.detach(), dim=-1)
    assert near.words is not None and near.word_cosines is not None
    np.testing.assert_allclose(near.word_cosines, (unit @ table.T).topk(4).values, rtol=1e-4, atol=1e-6)


def test_a_text_that_is_too_long_is_cut_and_the_page_says_so(checkpoint: Callable[..., Any]) -> None:
    seen = look(checkpoint("bert"), TEXT * 20, length=12)
    assert len(seen.sequences["text"]) == 12
    assert re.fullmatch(r"The last \d+ tokens of the text do not fit and were cut\.", seen.remarks[0])


def test_a_second_text_for_a_network_that_reads_one_is_refused(checkpoint: Callable[..., Any]) -> None:
    with pytest.raises(CheckpointError, match="reads single texts only"):
        look(checkpoint("gpt2"), TEXT, "a dog")


@pytest.mark.parametrize(("texts", "which"), [((" ",), "the text is empty"), ((TEXT, ""), "the second text is empty")])
def test_an_empty_text_is_refused(texts: tuple[str, ...], which: str, checkpoint: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=which):
        look(checkpoint("bert"), *texts)


def hostile(seen: Seen) -> Seen:
    """Tokens and a text that would be markup."""
    evil = "</script><script>alert(1)</script>"
    own = seen.sequences["text"]
    pieces = (evil, "Ġthe", "▁<b>", "&amp;", *own.pieces[4:])
    return replace(seen, texts=(evil,), sequences={"text": replace(own, pieces=pieces)}, remarks=(evil,))


def test_tokens_cannot_become_markup_and_the_page_refers_to_nothing_outside(checkpoint: Callable[..., Any]) -> None:
    html = render(hostile(look(checkpoint("bert"), TEXT)), name="<i>run</i>", command="cloze look <b>")
    page = Outline(html)
    assert "<script>alert" not in html and "<i>run" not in html and page.addresses == []
    assert not re.search(r"https?:|@import|url\(", html)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert data is not None
    pieces = json.loads(data[1])["sequences"]["text"]["pieces"]
    assert pieces[:4] == ["</script><script>alert(1)</script>", "Ġthe", "▁<b>", "&amp;"]
    assert json.loads(embedded({"a": "<\u2028&>"})) == {"a": "<\u2028&>"} and "<" not in embedded({"a": "<"})
    assert page.headings[1:] == ["Attention", "Predictions by layer", "Neighbours by layer"]
    masked = Outline(render(look(checkpoint("bert"), "the [MASK]"), name="run"))
    assert masked.headings[1:] == ["Attention", "Predictions by layer", "What a prediction rests on", "Neighbours by layer"]


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_draws_every_panel_without_an_error(width: int, checkpoint: Callable[..., Any], tmp_path: Path) -> None:
    """And what goes from a text to itself and to the other one is all of a row."""
    seen = hostile(look(checkpoint("bert"), f"{TEXT} and [MASK]", "a dog"))
    page = write_page(seen, tmp_path / "page.html", name="tiny")
    script = """
      const wide = document.documentElement.scrollWidth, count = what => document.querySelectorAll(what).length;
      const parts = ["00", "01"].map(part => { state.part = part; return mean(3).reduce((a, b) => a + b); });
      state.part = "all"; document.querySelectorAll("#model canvas")[0].click(); document.getElementById("layer").value = 0;
      document.getElementById("layer").dispatchEvent(new Event("input"));
      document.title = [wide <= innerWidth, count("#model canvas"), count("#lens-table tbody tr"), count("#near-table tbody tr"),
        count("#view line") > 0, count("#attribution-strips .strip"), document.getElementById("layer-name").textContent,
        count("script"), Math.min(...parts) > 0 && (parts[0] + parts[1]).toFixed(6), window.failed ?? ""].join("|");
    """
    assert title_in_browser(page, script, width=width) == "true|4|3|3|true|1|input|5|1.000000|"


def test_the_data_of_a_network_without_attention_or_head_has_the_other_panels(checkpoint: Callable[..., Any]) -> None:
    seen = replace(look(checkpoint("electra"), TEXT), attention=())
    assert seen.lens is None and page_data(seen)["attention"] == [] and page_data(seen)["layers"] == 2
    assert Outline(render(seen, name="tiny")).headings[1:] == ["Neighbours by layer"]
