"""The network of text and films: what it reads of frames, pairs of every text with every film, and what can be frozen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from cloze.errors import RecipeError
from cloze.networks import Clock, JointModal
from cloze.networks.network import TokenSequence
from cloze.training.schedule.freezing import parameters_by_depth
from tests.making import network_of

ROWS, LENGTH, FRAMES, FEATURES, WIDTH = 3, 5, 4, 6, 8
STATES = frozenset({"hidden", "item_hidden", "item_tower", "text_mean", "item_mean", "pooled", "pair_pooled"})
LENGTHS = (4, 2, 1)


@pytest.fixture
def network() -> Any:
    torch.manual_seed(1)
    return network_of(
        "joint_modal", layers=2, width=WIDTH, heads=2, joint_layers=1, max_length=9, dropout=0.0, vocab_size=20, clock=Clock(1),
        **{"items.width": FEATURES, "items.layers": 1, "items.most": 6, "items.normed": True, "initial.std": 0.3},
    ).double().eval()


def film(**more: Any) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(2)
    vectors = torch.randn(ROWS, FRAMES, FEATURES, generator=draw, dtype=torch.double)
    return {"item_vectors": {"frames": vectors}, "item_length": {"frames": torch.tensor(LENGTHS)}, **more}


def ids() -> Tensor:
    return torch.randint(0, 20, (ROWS, LENGTH), generator=torch.Generator().manual_seed(3))


BLOCK = (torch.arange(LENGTH) < torch.tensor([[5], [3], [4]])).long()


def test_every_text_is_paired_with_every_film_as_if_they_were_one_row(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = film()
    made = network(want=STATES, tokens=ids(), block=BLOCK, **given)
    torch.testing.assert_close(made["pair_pooled"].diagonal(dim1=0, dim2=1).t(), made["pooled"])
    turned = {name: {"frames": value["frames"][[1, 2, 0]]} for name, value in given.items()}
    other = network(want=STATES, tokens=ids(), block=BLOCK, **turned)
    for row, column in enumerate([1, 2, 0]):
        torch.testing.assert_close(made["pair_pooled"][row, column], other["pooled"][row])
    monkeypatch.setattr("cloze.networks.multimodal.joint_modal._PAIRS_HELD", 1)
    torch.testing.assert_close(network(want=STATES, tokens=ids(), block=BLOCK, **given), made)


@pytest.mark.parametrize("after", [None, 3])
def test_frames_have_the_same_positions_however_long_the_other_texts_are(after: int | None) -> None:
    """`max_words` of UniVL's dataloaders pads every text to one length, so frames begin at one position (module_cross.py)."""
    torch.manual_seed(1)
    network = network_of(
        "joint_modal", layers=1, width=WIDTH, heads=2, joint_layers=1, max_length=9, dropout=0.0, vocab_size=20, clock=Clock(1),
        **{"items.width": FEATURES, "items.layers": 1, "items.most": 6, "items.after": after, "initial.std": 0.3},
    ).double().eval()
    tokens, block = F.pad(ids(), (0, 3)), F.pad(BLOCK, (0, 3))
    states, wide = (network(want=STATES, tokens=t, block=b, **film()) for t, b in ((ids(), BLOCK), (tokens, block)))
    real = torch.arange(FRAMES) < torch.tensor(LENGTHS)[:, None]
    torch.testing.assert_close(wide["item_hidden"][real], states["item_hidden"][real])
    for name in ("pooled", "pair_pooled"):
        torch.testing.assert_close(wide[name], states[name])
    first = 9 if after is None else after
    unread = sorted(set(range(15)) - {*range(LENGTH), *range(first, first + FRAMES)})
    with torch.no_grad():
        network.joint_positions.weight[unread] = torch.nan
        torch.testing.assert_close(network(want=STATES, tokens=ids(), block=BLOCK, **film())["pooled"], states["pooled"])
        network.joint_positions.weight[first, 0] += 1.0
    assert not torch.allclose(network(want=STATES, tokens=ids(), block=BLOCK, **film())["pooled"], states["pooled"])


def test_padding_of_texts_and_films_changes_nothing_and_the_order_of_frames_does(network: Any) -> None:
    made = network(want=STATES, tokens=ids(), block=BLOCK, **film())
    given = film()
    given["item_vectors"]["frames"][1, 2:] = 7.0
    changed = torch.where(BLOCK > 0, ids(), 1)
    again = network(want=STATES, tokens=changed, block=BLOCK, **given)
    for name in ("text_mean", "item_mean", "pooled", "pair_pooled"):
        torch.testing.assert_close(again[name], made[name])
    turned = film()
    turned["item_vectors"]["frames"][0] = turned["item_vectors"]["frames"][0].flip(0)
    assert (network(want=STATES, tokens=ids(), block=BLOCK, **turned)["pooled"][0] - made["pooled"][0]).abs().max() > 1e-3


def test_means_are_of_real_frames_and_of_the_text_behind_its_first_token(network: Any) -> None:
    made = network(want=STATES | {"layers"}, tokens=ids(), block=BLOCK, **film())
    for row, count in enumerate(LENGTHS):
        torch.testing.assert_close(made["item_mean"][row], made["item_tower"][row, :count].mean(0))
        text = made["layers"][2][row, 1 : int(BLOCK[row].sum())]
        torch.testing.assert_close(made["text_mean"][row], text.mean(0))


def test_the_text_is_read_by_bert_and_needs_no_film(network: Any) -> None:
    torch.manual_seed(0)
    bert = network_of(
        "transformer", layers=2, width=WIDTH, heads=2, segments=2, dropout=0.0, vocab_size=20, clock=Clock(1),
        **{"positions.max_length": 9, "norm.epsilon": 1e-12},
    ).double().eval()
    bert.load_state_dict({name: value for name, value in network.state_dict().items() if name in bert.state_dict()})
    alone = network(want=STATES | {"layers"}, tokens=ids(), block=BLOCK)
    expected = bert(want=frozenset({"layers"}), tokens=ids(), block=BLOCK)["layers"]
    torch.testing.assert_close(alone["layers"][:3], expected)
    torch.testing.assert_close(alone["layers"][3], alone["hidden"])
    assert alone["item_hidden"].shape == (ROWS, 0, WIDTH) and alone["hidden"].shape == (ROWS, LENGTH, WIDTH)
    none = film(item_length={"frames": torch.zeros(ROWS, dtype=torch.long)})
    torch.testing.assert_close(network(want=STATES, tokens=ids(), block=BLOCK, **none)["pooled"], alone["pooled"])


def test_the_last_depth_group_is_all_that_the_text_lacks(network: JointModal) -> None:
    groups = parameters_by_depth(network)
    text = {id(p) for name, p in network.named_parameters() if name.startswith(("embeddings.", "layers."))}
    assert len(groups) == 4 and {id(p) for p in groups[-1]} == {id(p) for p in network.parameters()} - text


@pytest.mark.parametrize("want", [frozenset({"hidden", "item_tower"}), frozenset({"pair_pooled"}), STATES])
def test_products_are_counted(network: Any, want: frozenset[str]) -> None:
    given = film(item_length={"frames": torch.full((ROWS,), FRAMES)})
    network.requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
        network(want=want, tokens=ids(), **given)
    fields = {"tokens": ids(), **{f"{name}/frames": value["frames"] for name, value in given.items()}}
    assert network.flops(fields, want=want) == counter.get_total_flops()


def test_the_decoder_reads_text_and_film_and_no_token_to_its_right() -> None:
    torch.manual_seed(1)
    made = network_of(
        "joint_modal", layers=1, width=WIDTH, heads=2, joint_layers=1, decoder_layers=2, max_length=9, dropout=0.0, vocab_size=20,
        clock=Clock(1), **{"items.width": FEATURES, "items.layers": 1, "items.most": 6, "initial.std": 0.3},
    ).double().eval()
    want, draw = frozenset({"decoder_hidden"}), torch.Generator().manual_seed(5)
    written = torch.randint(0, 20, (ROWS, 4), generator=draw)

    def run(written: Tensor, tokens: Tensor, **given: Any) -> Tensor:
        decoder = TokenSequence(written, block=torch.ones_like(written))
        found: Tensor = made(want=want, tokens=tokens, block=BLOCK, decoder=decoder, **given)["decoder_hidden"]
        return found

    before = run(written, ids(), **film())
    later = written.clone()
    later[:, 2] = (later[:, 2] + 1) % 20
    after = run(later, ids(), **film())
    torch.testing.assert_close(after[:, :2], before[:, :2])
    assert (after[:, 2:] - before[:, 2:]).abs().amin((1, 2)).min() >= 0 and not torch.allclose(after[:, 2], before[:, 2])
    other = film()
    other["item_vectors"]["frames"][0, 3] += 3
    other["item_vectors"]["frames"][1, 2:] += 3
    changed = run(written, torch.where(BLOCK > 0, ids(), 1), **other)
    assert not torch.allclose(changed[0], before[0])
    torch.testing.assert_close(changed[1:], before[1:])  # only padding was changed there
    fields = {"tokens": ids(), **{f"{name}/frames": value["frames"] for name, value in film().items()}, "decoder.tokens": written}
    fields["item_length/frames"] = torch.full((ROWS,), FRAMES)
    made.requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
        made(want=want, tokens=ids(), decoder=TokenSequence(written), item_vectors=film()["item_vectors"])
    assert made.flops(fields, want=want) == counter.get_total_flops()


def test_a_film_that_is_too_long_is_refused_with_the_way_out(network: Any) -> None:
    given = {"item_vectors": {"frames": torch.zeros(ROWS, 7, FEATURES, dtype=torch.double)}}
    with pytest.raises(RecipeError, match=r"has 7 items 'frames', .* positions for 6\.\n  Write items\.most: 7"):
        network(want=STATES, tokens=ids(), **given)


def test_text_that_is_written_token_by_token_has_the_states_of_text_read_at_once() -> None:
    torch.manual_seed(1)
    made = network_of(
        "joint_modal", layers=1, width=WIDTH, heads=2, joint_layers=1, decoder_layers=2, max_length=9, dropout=0.0, vocab_size=20,
        clock=Clock(1), **{"items.width": FEATURES, "items.layers": 1, "items.most": 6, "initial.std": 0.3},
    ).double().eval()
    want, written = frozenset({"decoder_hidden"}), torch.tensor([[1, 5, 3, 2], [1, 4, 4, 7], [1, 2, 9, 9]])
    whole = made(want=want, tokens=ids(), block=BLOCK, decoder=TokenSequence(written), **film())["decoder_hidden"]
    cache: Any = made.cache()
    steps = [
        made(want=want, tokens=ids(), block=BLOCK, decoder=TokenSequence(written[:, at : at + 1]), cache=cache, **film())
        for at in range(4)
    ]
    torch.testing.assert_close(torch.cat([step["decoder_hidden"] for step in steps], 1), whole)
    assert cache.length == 4 and network_of(
        "joint_modal", layers=1, width=WIDTH, heads=2, vocab_size=20, clock=Clock(1)
    ).cache() is None
