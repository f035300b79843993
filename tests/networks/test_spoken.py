"""A BERT that reads recordings: the encoder, recordings that equal their words, and texts alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.networks.multimodal.spoken import SoundEncoder
from cloze.training.schedule.freezing import parameters_by_depth
from tests.making import network_of

WIDTH, BANDS, FRAMES = 8, 3, 4
SMALL: dict[str, Any] = {"layers": 2, "width": WIDTH, "heads": 2, "dropout": 0.0, "vocab_size": 20}
STATES = frozenset({"hidden", "item_hidden", "word_vectors"})


@pytest.fixture
def network() -> Any:
    torch.manual_seed(1)
    sizes = {"items.width": BANDS * FRAMES, "items.frames": FRAMES, "max_length": 9, "initial.std": 0.3}
    return network_of("spoken", **SMALL, clock=Clock(1), **sizes).double().eval()


def ids() -> Tensor:
    return torch.randint(0, 20, (2, 5), generator=torch.Generator().manual_seed(3))


def recordings(**more: Any) -> dict[str, Any]:
    """Two words in the first row, of which the second has two tokens, and one in the second row."""
    draw = torch.Generator().manual_seed(2)
    features = torch.randn(2, 2, BANDS * FRAMES, generator=draw, dtype=torch.double)
    links = torch.tensor([[1, 0], [2, 1], [3, 1], [6, 2]])
    return {
        "item_vectors": {"sounds": features}, "item_length": {"sounds": torch.tensor([2, 1])}, "links": {"sounds": links}, **more,
    }


@pytest.mark.parametrize("layers", [1, 2])
def test_the_encoder_maps_the_last_states_of_a_gru_in_both_directions(layers: int) -> None:
    torch.manual_seed(0)
    encoder = SoundEncoder(bands=BANDS, width=WIDTH, layers=layers)
    gru = nn.GRU(BANDS, WIDTH, num_layers=layers, bidirectional=True, batch_first=True)
    ours = encoder.state_dict()
    for number, suffix in enumerate(f"l{layer}{way}" for layer in range(layers) for way in ("", "_reverse")):
        for theirs, name in (("ih", "input"), ("hh", "recurrent")):
            for kind in ("weight", "bias"):
                gru.get_parameter(f"{kind}_{theirs}_{suffix}").data.copy_(ours[f"layers.{number}.{name}.{kind}"])
    features = torch.randn(2, 3, FRAMES * BANDS)
    last = gru(features.view(6, FRAMES, BANDS))[1][-2:].transpose(0, 1).flatten(1)
    torch.testing.assert_close(encoder(features).view(6, WIDTH), encoder.vector(last))


def test_recordings_that_equal_the_vectors_of_their_words_are_read_as_the_text(network: Any) -> None:
    given = recordings(links={"sounds": torch.tensor([[1, 0], [2, 1], [6, 2]])})
    table = network.embeddings.tokens.weight
    token, item = given["links"]["sounds"].unbind(1)

    def perfect(features: Tensor) -> Tensor:
        made = torch.zeros(4, WIDTH, dtype=torch.double)
        made[item] = table[ids().flatten()[token]]
        return made.view(2, 2, WIDTH)

    written = network(want=frozenset({"hidden"}), tokens=ids())["hidden"]
    spoken = network(want=STATES, tokens=ids(), **given)
    assert (spoken["hidden"] - written).abs().max() > 1e-3
    network.sounds.forward = perfect
    made = network(want=STATES, tokens=ids(), **given)
    torch.testing.assert_close(made["hidden"], written)
    torch.testing.assert_close(made["item_hidden"], made["word_vectors"])


def test_word_vectors_are_means_of_linked_tokens_and_padding_is_zero(network: Any) -> None:
    made = network(want=STATES, tokens=ids(), **recordings())
    table, tokens = network.embeddings.tokens.weight, ids()
    torch.testing.assert_close(made["word_vectors"][0, 1], table[tokens[0, 2:4]].mean(0))
    torch.testing.assert_close(made["word_vectors"][1, 0], table[tokens[1, 1]])
    assert not made["word_vectors"][1, 1].any() and not made["item_hidden"][1, 1].any()


def test_hidden_recordings_reach_no_state_of_the_text(network: Any) -> None:
    given = recordings(links={"sounds": torch.tensor([[1, 0]])})
    before = network(want=frozenset({"hidden"}), tokens=ids(), **given)["hidden"]
    given["item_vectors"]["sounds"][0, 1] += 5
    given["item_vectors"]["sounds"][1] += 5
    torch.testing.assert_close(network(want=frozenset({"hidden"}), tokens=ids(), **given)["hidden"], before)


def test_texts_alone_are_read_as_bert_reads_them(network: Any) -> None:
    sizes = {"positions.max_length": 9, "norm.epsilon": 1e-12, "segments": 2}
    bert = network_of("transformer", **SMALL, clock=Clock(1), **sizes).double().eval()
    bert.load_state_dict({name: value for name, value in network.state_dict().items() if not name.startswith("sounds.")})
    want = frozenset({"hidden", "layers"})
    torch.testing.assert_close(network(want=want, tokens=ids()), bert(want=want, tokens=ids()))
    assert network(want=STATES, tokens=ids())["item_hidden"].shape == (2, 0, WIDTH)


def test_the_last_depth_group_is_the_encoder(network: Any) -> None:
    groups = parameters_by_depth(network)
    assert len(groups) == 4 and {id(p) for p in groups[-1]} == {id(p) for p in network.sounds.parameters()}


@pytest.mark.parametrize("want", [frozenset({"item_hidden"}), STATES])
def test_products_are_counted(network: Any, want: frozenset[str]) -> None:
    network.requires_grad_(False)
    given = recordings()
    with FlopCounterMode(display=False) as counter:
        network(want=want, tokens=ids(), **given)
    fields = {"tokens": ids(), "item_vectors/sounds": given["item_vectors"]["sounds"]}
    assert network.flops(fields, want=want) == counter.get_total_flops()


def test_frames_that_do_not_fill_a_recording_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"items\.frames: 30 frames do not divide the 100 numbers of a recording"):
        network_of("spoken", **SMALL, clock=Clock(1), **{"items.width": 100})
