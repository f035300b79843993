"""BERT-fused layers: drop-net's three cases, caches, what the other network gets, and what a budget counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from cloze.batch import Batch
from cloze.changes import Fuse
from cloze.changes.fuse import Averaged
from cloze.errors import CheckpointError, RecipeError
from cloze.networks import Clock
from cloze.networks.fast.switch import switched
from cloze.networks.network import TokenSequence
from cloze.objectives.tokens.token_prediction import token_prediction
from cloze.training.passes import Pass, PassObjective
from cloze.training.step import StepModule
from tests.making import network_of

TEXT, BLOCK = torch.tensor([[1, 2, 5, 6], [8, 9, 2, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
TARGET = TokenSequence(torch.tensor([[0, 7, 3], [0, 4, 4]]))
WANT = frozenset({"hidden", "decoder_hidden"})


def states(rows: int = 2, tokens: int = 5) -> TokenSequence:
    """The states of another network, of width 6, whose second row is shorter."""
    torch.manual_seed(7)
    return TokenSequence(
        torch.zeros(rows, tokens, dtype=torch.long), vectors=torch.randn(rows, tokens, 6),
        block=(torch.arange(tokens) < torch.tensor([tokens, 2])[:rows, None]).long(),
    )


def made(drop_net: float = 1.0, **sizes: Any) -> tuple[Any, Any, Clock]:
    """A plain network, the same one fused, and its clock."""
    found, clock = [], Clock(3)
    for fused in (False, True):
        torch.manual_seed(0)
        values = {"layers": 2, "width": 8, "heads": 2, "positions.max_length": 16, "dropout": 0.0, **sizes}
        network: Any = network_of("encoder_decoder", **values, vocab_size=12, clock=clock)
        if fused:
            Fuse("bert", 6, drop_net).apply(network)
            for place in places(network):
                torch.nn.init.normal_(place.attention.memory.bias, std=0.5)
                torch.nn.init.normal_(place.attention.out.bias, std=0.5)
        found.append(network.eval())
    return found[0], found[1], clock


def places(network: Any) -> list[Averaged]:
    return [module for module in network.modules() if isinstance(module, Averaged)]


def read(network: Any, fused: TokenSequence | None = None, **given: Any) -> dict[str, Tensor]:
    sequence = {} if fused is None else {"fused": fused}
    made: dict[str, Tensor] = network(want=WANT, tokens=TEXT, block=BLOCK, decoder=TARGET, **sequence, **given)
    return made


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_layer_that_uses_its_own_attention_alone_is_the_plain_layer(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, fused, _ = made(norm=norm)
    monkeypatch.setattr(Averaged, "shares", lambda self: (1.0, 0.0))
    expected, found = read(plain), read(fused, states())
    real = BLOCK > 0
    torch.testing.assert_close(found["hidden"][real], expected["hidden"][real])
    torch.testing.assert_close(found["decoder_hidden"], expected["decoder_hidden"])


def test_outside_of_training_a_layer_adds_half_of_both_attentions() -> None:
    plain, fused, _ = made()
    for place in places(fused):
        torch.nn.init.zeros_(place.attention.out.weight)
        torch.nn.init.zeros_(place.attention.out.bias)
    with torch.no_grad():  # the plain network with half of its attention where the fused one averages
        for layer in plain.encoder.layers:
            layer.attention.out.weight.mul_(0.5)
            layer.attention.out.bias.mul_(0.5)
        for layer in plain.decoder.layers:
            layer.crossing.out.weight.mul_(0.5)
            layer.crossing.out.bias.mul_(0.5)
    torch.testing.assert_close(read(fused, states())["decoder_hidden"], read(plain)["decoder_hidden"])


def test_a_layer_that_uses_the_other_attention_alone_reads_what_is_not_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fused, _ = made(layers=1)
    monkeypatch.setattr(Averaged, "shares", lambda self: (0.0, 1.0))
    given = states()
    moved = given._replace(vectors=torch.where((given.block > 0)[..., None], given.vectors, given.vectors + 1.0))
    torch.testing.assert_close(read(fused, given)["decoder_hidden"], read(fused, moved)["decoder_hidden"])
    layer = fused.encoder.layers[0]
    place, x = layer.around["attention"], torch.randn(1, 1, 8)
    attention, memory = place.attention, given.vectors[1:, :2]
    query = attention.query(x).view(2, 1, 4)
    keys, values = attention.memory(memory)[0].view(2, 2, 2, 4).permute(1, 2, 0, 3)
    mixed = (query @ keys.transpose(1, 2) / 2.0).softmax(-1) @ values
    expected = layer.attention_norm(x + attention.out(mixed.transpose(0, 1).reshape(1, 1, 8)))
    change = type("Call", (), {"inputs": given_to(memory), "__call__": lambda self, x: torch.zeros_like(x)})()
    found = place.connect(x, change, layer.attention_norm, lambda output: output, lambda states: states)
    torch.testing.assert_close(found, expected)


def given_to(memory: Tensor) -> Any:
    """The inputs of a layer whose other network has these states."""
    from cloze.networks.blocks.attention import AttentionInputs
    from cloze.networks.blocks.visibility import Visibility

    return AttentionInputs(Visibility("all"), further=AttentionInputs(Visibility("all"), source=memory))


@pytest.mark.parametrize(("drop_net", "expected"), [(1.0, (0.5, 0.0, 0.5)), (0.5, (0.25, 0.5, 0.25)), (0.0, (0.0, 1.0, 0.0))])
def test_drop_net_draws_each_case_with_its_odds_once_per_layer_and_step(
    drop_net: float, expected: tuple[float, float, float]
) -> None:
    _, fused, clock = made(drop_net)
    first, second, *_ = places(fused.train())
    drawn, differ = [], 0
    for step in range(300):
        clock.set(step=step, first_row=0)
        own, other = map(float, first.shares())
        assert own + other == 1.0
        clock.set(first_row=12)  # another micro-batch of the step
        assert float(first.shares()[0]) == own
        differ += float(second.shares()[0]) != own
        drawn.append(other)
    counts = [drawn.count(share) / len(drawn) for share in (0.0, 0.5, 1.0)]
    assert counts == pytest.approx(expected, abs=0.08)
    assert drop_net == 0.0 or differ > 75
    assert [float(share) for share in first.eval().shares()] == [0.5, 0.5]


def stepped() -> tuple[StepModule, Batch]:
    """A step of a translator and a frozen network that it reads, and rows without padding for it."""
    _, main, clock = made(dropout=0.1)
    bert = network_of("transformer", layers=1, width=6, heads=2, vocab_size=9, clock=clock, **{"positions.max_length": 8})
    passes = (
        Pass("bert", "bert", view="fused", grad=False),
        Pass("main", "main", take={"fused.vectors": "bert.hidden"}, objectives=(
            PassObjective("token_prediction", "token_prediction", read={"hidden": "decoder_hidden"}),
        )),
    )  # fmt: skip
    head = token_prediction(width=8, vocab_size=12)
    step = StepModule(
        networks={"bert": bert, "main": main}, objectives={"token_prediction": head}, entries={"main": passes}, clock=clock
    )
    tokens = torch.tensor([[1, 2, 5, 6], [8, 9, 2, 3]])
    return step.train(), Batch({
        "tokens": tokens, "fused.tokens": tokens[:, [0, 1, 2, 3, 3, 1]].clamp(max=8), "decoder.tokens": TARGET.tokens,
        "decoder.targets/main": TARGET.tokens.flatten(), "decoder.positions/main": torch.arange(6),
    })


def test_every_parameter_has_a_gradient_in_every_case_and_those_of_the_other_network_never() -> None:
    step, batch = stepped()
    cases = set()
    for number in range(6):
        step.clock.set(step=number)
        cases |= {float(place.shares()[0]) for place in places(step.networks["main"])}
        step.zero_grad()
        step("main", batch)["token_prediction"].total.backward()
        assert [name for name, p in step.named_parameters() if p.grad is None and not name.startswith("networks.bert.")] == []
    assert cases == {0.0, 1.0}
    assert all(p.grad is None and not p.requires_grad for p in step.networks["bert"].parameters())


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_a_step_costs_the_products_of_both_attentions_and_one_pass_forward_of_the_other_network() -> None:
    step, batch = stepped()
    with switched(False), torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        step("main", batch)["token_prediction"].total.backward()
    assert step.flops("main", batch) == pytest.approx(counter.get_total_flops(), rel=0.001)
    assert step.flops_per_token("main", 4) > 0


def test_writing_with_a_cache_gives_the_states_of_reading_at_once() -> None:
    _, fused, _ = made()
    given, want = states(), frozenset({"decoder_hidden"})
    expected = fused(want=want, tokens=TEXT, block=BLOCK, decoder=TARGET, fused=given)["decoder_hidden"]
    cache, found = fused.cache(), []
    for column in range(3):
        part = TokenSequence(TARGET.tokens[:, column : column + 1])
        later = given if column == 0 else given._replace(vectors=torch.zeros_like(given.vectors))  # read only once
        found.append(fused(want=want, tokens=TEXT, block=BLOCK, decoder=part, fused=later, cache=cache)["decoder_hidden"])
    torch.testing.assert_close(torch.cat(found, dim=1), expected)
    assert [len(kept) for kept in cache.source] == [4, 4]  # keys and values of both sources


def test_padding_left_out_gives_the_same_states_as_padding_that_is_computed() -> None:
    _, fused, _ = made()
    fast = read(fused, states())
    with switched(False):
        plain = read(fused, states())
    torch.testing.assert_close(fast["decoder_hidden"], plain["decoder_hidden"])
    torch.testing.assert_close(fast["hidden"][BLOCK > 0], plain["hidden"][BLOCK > 0])


def test_without_the_states_of_the_other_network_nothing_is_computed() -> None:
    _, fused, _ = made()
    with pytest.raises(RecipeError, match=r"reads the states of 'bert', and the pass has none(.|\n)*take: \{fused.vectors: PASS"):
        read(fused)


def test_other_networks_and_unknown_widths_are_refused() -> None:
    with pytest.raises(CheckpointError, match="LSTM is not an encoder-decoder of Transformer layers"):
        Fuse("bert", 6).apply(network_of("lstm", layers=1, width=8, vocab_size=12, clock=Clock()))
    plain, fused, _ = made()
    with pytest.raises(CheckpointError, match="the recipe has no network 'bert' of known width"):
        Fuse("bert").apply(plain)
    with pytest.raises(CheckpointError, match="already read the states of 'bert'"):
        Fuse("roberta", 6).apply(fused)
