"""The encoder-decoder: who sees whom, padding, caches, both paths of a CPU, and how it begins."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.networks import Clock, EncoderDecoder
from cloze.networks.blocks.dropout import Dropout, Positions, drop
from cloze.networks.blocks.positions.buckets import bucket
from cloze.networks.blocks.recurrence.locked import LockedDropout
from cloze.networks.encoder_decoder import rolled
from cloze.networks.fast import switch
from cloze.networks.network import TokenSequence
from cloze.objectives.heads import CUT
from tests.making import network_of

WANT = frozenset({"hidden", "decoder_hidden"})
BART: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "feed_forward.inner": 24, "positions.max_length": 24}
T5: dict[str, Any] = {"layers": 2, "decoder_layers": 3, "width": 12, "heads": 3, "head_width": 5, "feed_forward.inner": 20,
    "norm": "pre", "norm.kind": "rms", "positions": "buckets", "attention.biases": False, "feed_forward.biases": False,
        "attention.scaled": False, "feed_forward": "gated", "initial": "t5"}  # fmt: skip
MASS: dict[str, Any] = {**BART, "embedding.inputs": {"language": 3}, "positions": "sinusoid", "embedding.scaled": True}
FIRST_T5: dict[str, Any] = {**T5, "feed_forward": "plain", "feed_forward.activation": "relu", "dropout.inner": 0.2}
MARIAN: dict[str, Any] = {**BART, "norm.embedding": False, "positions": "sinusoid", "positions.layout": "halves",
    "feed_forward.activation": "silu"}  # fmt: skip
M2M: dict[str, Any] = {**BART, "norm": "pre", "positions": "sinusoid", "positions.layout": "tensor2tensor",
    "positions.first": 2}  # fmt: skip
KINDS = {
    "bart": BART, "first t5": FIRST_T5, "t5": T5, "mass": MASS, "shared": {**BART, "norm": "pre"},
    "umt5": {**T5, "positions.shared": False}, "marian": MARIAN, "m2m": M2M,
}  # fmt: skip


def network(kind: str, *, dropout: float = 0.0, seed: int = 0, **changes: Any) -> EncoderDecoder:
    torch.manual_seed(seed)
    made = network_of("encoder_decoder", **{**KINDS[kind], "initial.std": 0.3, **changes}, dropout=dropout, vocab_size=40,
        clock=Clock(7))
    return made.train(dropout > 0)


def fields(rows: int = 3, length: int = 9, targets: int = 6, seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "tokens": torch.randint(0, 40, (rows, length), generator=generator),
        "decoder": TokenSequence(torch.randint(0, 40, (rows, targets), generator=generator)),
    }


def states(made: EncoderDecoder, given: dict[str, Any]) -> dict[str, Tensor]:
    with torch.no_grad():
        return made(want=WANT, **given)


def test_dropout_behind_the_final_norm_has_a_rate_of_its_own() -> None:
    rates = [
        network_of("encoder_decoder", **{**T5, "dropout.hidden": 0.2, **given}, vocab_size=40, clock=Clock(7))
        for given in ({}, {"dropout.final": 0.0})
    ]  # fmt: skip
    assert [made.decoder.final_dropout.rate for made in rates] == [0.2, 0.0]
    assert [made.encoder.embedding_dropout.rate for made in rates] == [0.2, 0.2]


@pytest.mark.parametrize("kind", KINDS)
def test_the_decoder_never_sees_what_follows_and_the_encoder_never_sees_the_decoder(kind: str) -> None:
    made, given = network(kind), fields()
    before = states(made, given)
    for place in range(6):
        changed = given["decoder"].tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % 40
        after = states(made, {**given, "decoder": TokenSequence(changed)})
        assert torch.equal(after["hidden"], before["hidden"])
        assert torch.equal(after["decoder_hidden"][:, :place], before["decoder_hidden"][:, :place])
        assert not torch.allclose(after["decoder_hidden"][:, place:], before["decoder_hidden"][:, place:])


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_token_reaches_every_state(kind: str) -> None:
    made, given = network(kind), fields()
    before = states(made, given)
    for place in range(9):
        changed = given["tokens"].clone()
        changed[:, place] = (changed[:, place] + 1) % 40
        after = states(made, {**given, "tokens": changed})
        for name in WANT:
            assert bool(((after[name] - before[name]).abs().amax(-1) > 0).all()), (name, place)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_on_either_side_changes_nothing(kind: str) -> None:
    made, given = network(kind), fields()
    plain = states(made, given)
    padded = {
        "tokens": torch.cat([given["tokens"], torch.full((3, 4), 1)], 1),
        "block": torch.cat([torch.ones(3, 9), torch.zeros(3, 4)], 1).long(),
        "decoder": TokenSequence(
            torch.cat([given["decoder"].tokens, torch.full((3, 2), 1)], 1),
            block=torch.cat([torch.ones(3, 6), torch.zeros(3, 2)], 1).long(),
        ),
    }
    wide = states(made, padded)
    torch.testing.assert_close(wide["hidden"][:, :9], plain["hidden"], atol=1e-5, rtol=0)
    torch.testing.assert_close(wide["decoder_hidden"][:, :6], plain["decoder_hidden"], atol=1e-5, rtol=0)
    assert bool(wide["decoder_hidden"].isfinite().all())


@pytest.mark.parametrize("kind", KINDS)
def test_what_crossing_hides_reaches_the_decoder_only_through_the_encoder(kind: str) -> None:
    made, given = network(kind), fields()
    crossing = torch.ones(3, 9, dtype=torch.bool)
    crossing[:, 3:6] = False
    with torch.no_grad():
        encoded = states(made, given)["hidden"]
        cache, other = made.cache(), made.cache()
        cache.encoded, other.encoded = encoded, encoded.clone()
        other.encoded[:, 3:6] = 7.0
        hidden, same = (
            made(want=frozenset({"decoder_hidden"}), crossing=crossing, cache=kept, **given)["decoder_hidden"]
            for kept in (cache, other)
        )
    assert torch.equal(hidden, same)
    assert not torch.allclose(hidden, states(made, given)["decoder_hidden"])


def test_a_row_that_hides_everything_still_reads_its_first_token() -> None:
    made, given = network("bart"), fields()
    made_of = made(want=WANT, crossing=torch.zeros(3, 9, dtype=torch.bool), **given)
    assert bool(made_of["decoder_hidden"].isfinite().all())


def test_decoder_positions_choose_rows_of_the_decoders_table() -> None:
    made, given = network("bart"), fields()
    usual = torch.arange(6).expand(3, 6)
    same = states(made, {**given, "decoder": given["decoder"]._replace(position_ids=usual)})
    assert torch.equal(same["decoder_hidden"], states(made, given)["decoder_hidden"])
    moved = states(made, {**given, "decoder": given["decoder"]._replace(position_ids=usual + 5)})["decoder_hidden"]
    with torch.no_grad():
        made.decoder.positions.weight[:6] = made.decoder.positions.weight[5:11].clone()
    torch.testing.assert_close(states(made, given)["decoder_hidden"], moved)


def test_languages_reach_both_stacks() -> None:
    made, given = network("mass"), fields()
    assert "inputs/language" in made.takes
    plain = states(made, given)
    same = states(made, {**given, "inputs": {"language": torch.zeros(3, 9, dtype=torch.long)}})
    other = states(made, {**given, "inputs": {"language": torch.full((3, 9), 2)}})
    for name in WANT:
        assert torch.equal(plain[name], same[name])
        assert not torch.allclose(plain[name], other[name])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_the_two_paths_of_a_cpu_agree_in_states_and_gradients(
    kind: str, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, given = network(kind, dropout=dropout).double(), fields()
    given["block"] = torch.ones(3, 9, dtype=torch.long)
    given["block"][1, 5:] = 0
    block = torch.ones(3, 6, dtype=torch.long)
    block[2, 4:] = 0
    given["decoder"] = given["decoder"]._replace(block=block)
    real = {"hidden": given["block"] > 0, "decoder_hidden": block > 0}
    found = []
    for plain in (True, False):
        if not plain:
            monkeypatch.setattr(switch, "_on", False)
        made.zero_grad()
        made_of = made(want=WANT, **given)
        weights = torch.randn(made_of["decoder_hidden"].shape, generator=torch.Generator().manual_seed(1)).double()
        (made_of["decoder_hidden"] * weights)[real["decoder_hidden"]].sum().backward()
        found.append((made_of, {name: p.grad.clone() for name, p in made.named_parameters() if p.grad is not None}))
    (first, gradients), (second, others) = found
    for name in WANT:
        torch.testing.assert_close(first[name][real[name]], second[name][real[name]])
    assert gradients.keys() == others.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, others[name], msg=lambda text, name=name: f"{name}: {text}")


def test_dropout_is_a_function_of_the_row() -> None:
    made, given = network("t5", dropout=0.3), fields()
    whole = states(made, given)["decoder_hidden"]
    made.clock.set(first_row=1)
    rest = {"tokens": given["tokens"][1:], "decoder": TokenSequence(given["decoder"].tokens[1:])}
    later = states(made, rest)["decoder_hidden"]
    torch.testing.assert_close(later, whole[1:])
    made.clock.set(step=1)
    assert not torch.allclose(states(made, rest)["decoder_hidden"], later)


def test_without_a_second_sequence_the_summary_reads_the_row_rolled_by_one() -> None:
    made, given = network("bart"), fields()
    block = torch.ones(3, 9, dtype=torch.long)
    block[2, 4:] = 0
    tokens = given["tokens"]
    moved = rolled(tokens, block)
    assert moved[0].tolist() == [*tokens[0, 8:].tolist(), *tokens[0, :8].tolist()]
    assert moved[2, :4].tolist() == [tokens[2, 3].item(), *tokens[2, :3].tolist()]
    with torch.no_grad():
        summary = made(want=frozenset({"summary"}), tokens=tokens, block=block)["summary"]
        decoded = made(
            want=frozenset({"decoder_hidden"}), tokens=tokens, block=block, decoder=TokenSequence(moved, block=block)
        )["decoder_hidden"]  # fmt: skip
    torch.testing.assert_close(summary, decoded[torch.arange(3), torch.tensor([8, 8, 3])])


def test_a_row_of_padding_is_rolled_and_summarised_like_any_other() -> None:
    tokens, block = torch.tensor([[5, 6, 7], [8, 9, 1]]), torch.tensor([[1, 1, 0], [0, 0, 0]])
    assert rolled(tokens, block).tolist() == [[6, 5, 6], [8, 8, 9]]
    summary = network("bart")(want=frozenset({"summary"}), tokens=tokens, block=block)["summary"]
    assert summary.shape == (2, 16) and bool(summary.isfinite().all())


def test_t5_begins_with_its_published_deviations() -> None:
    made = network_of("encoder_decoder", layers=1, width=128, heads=4, head_width=64, positions="buckets", feed_forward="gated",
        initial="t5", vocab_size=2000, clock=Clock(), **{"feed_forward.inner": 512, "attention.biases": False,
        "feed_forward.biases": False})  # fmt: skip
    layer: Any = made.decoder.layers[0]
    expected = {
        made.embeddings.tokens.weight: 1.0,
        layer.attention.projections.weight[:256]: (128 * 64) ** -0.5,
        layer.attention.projections.weight[256:]: 128**-0.5,
        layer.crossing.query.weight: (128 * 64) ** -0.5,
        layer.crossing.memory.weight: 128**-0.5,
        layer.crossing.out.weight: 256**-0.5,
        layer.inner.weight: CUT * 128**-0.5,
        layer.gate.weight: CUT * 128**-0.5,
        layer.outer.weight: CUT * 512**-0.5,
    }
    for weight, deviation in expected.items():
        assert weight.std().item() == pytest.approx(deviation, rel=0.03)
    assert layer.outer.weight.abs().max().item() <= 2 * 512**-0.5
    buckets = made.decoder.buckets.table.weight  # of 32 buckets and 4 heads; `mtf.get_variable` draws by Glorot's law
    assert buckets.abs().max().item() == pytest.approx(math.sqrt(6 / 36), rel=0.05)
    assert buckets.std().item() == pytest.approx(math.sqrt(2 / 36), rel=0.15)
    assert math.isclose(layer.attention_norm.weight.sum().item(), 128.0)


def test_buckets_of_the_published_table() -> None:
    both = {0: 0, -1: 1, -7: 7, -8: 8, -12: 9, -16: 10, -32: 12, -64: 14, -91: 15, -500: 15, 1: 17, 8: 24, 64: 30}
    past = {-15: 15, -16: 16, -20: 17, -32: 21, -64: 26, -113: 31, -500: 31, 1: 0, 90: 0}
    assert bucket(torch.tensor(list(both)), both=True).tolist() == list(both.values())
    assert bucket(torch.tensor(list(past)), both=False).tolist() == list(past.values())


def test_a_state_dict_goes_round_and_no_parameter_is_left_out() -> None:
    for kind in KINDS:
        made, other = network(kind), network(kind, seed=1)
        other.load_state_dict(made.state_dict())
        assert torch.equal(states(made, fields())["decoder_hidden"], states(other, fields())["decoder_hidden"])
        made(want=WANT, **fields())["decoder_hidden"].square().sum().backward()
        assert [name for name, p in made.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("empty", ["encoder", "decoder", "both"])
def test_a_batch_of_padding_alone_is_read_like_any_other(kind: str, empty: str) -> None:
    made, given = network(kind, dropout=0.1), fields(rows=2)
    given["block"] = torch.full((2, 9), int(empty == "decoder"))
    given["decoder"] = given["decoder"]._replace(block=torch.full((2, 6), int(empty == "encoder")))
    sum(state.sum() for state in made(want=WANT, **given).values()).backward()
    assert all(bool(p.grad.isfinite().all()) for p in made.parameters() if p.grad is not None)


def test_with_a_mask_per_row_all_positions_drop_the_same_numbers_and_all_queries_the_same_keys() -> None:
    clock = Clock(7)
    locked = LockedDropout(0.4, clock).train()
    hidden = locked.keep_hidden((3, 5, 16), torch.device("cpu"))
    assert hidden.shape == (3, 5, 16) and (hidden == hidden[:, :1]).all()
    assert not (hidden[0, 0] == hidden[1, 0]).all() and 0.3 < (hidden == 0).float().mean() < 0.55
    rows, columns = torch.tensor([0, 0, 2]), torch.tensor([1, 4, 0])
    assert torch.equal(locked.keep_hidden((3, 16), torch.device("cpu"), Positions(rows, columns)), hidden[rows, columns])
    scores = locked.keep_scores(2, 3, 4, 6, torch.device("cpu"))
    assert scores.shape == (2, 3, 4, 6) and (scores == scores[:, :, :1]).all() and not (scores[0, 0] == scores[0, 1]).all()
    shares, value = torch.rand(2, 3, 4, 6), torch.randn(2, 3, 6, 5)
    torch.testing.assert_close(drop(shares, scores, locked.scale) @ value, shares @ locked.for_kernel(value)[0])


@pytest.mark.parametrize("kind", ["first t5", "t5", "bart"])
def test_a_mask_per_row_is_drawn_at_every_place_by_either_path(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = network(kind, dropout=0.3, **{"dropout.mask": "row"})
    positions = [module for module in made.modules() if isinstance(module, Dropout)]
    assert len(positions) > 20 and all(isinstance(module, LockedDropout) for module in positions)
    block = torch.ones(3, 9, dtype=torch.long)
    block[1, 5:] = 0
    given = {**fields(), "block": block}
    fused = made(want=WANT, **given)["decoder_hidden"]
    (gradient,) = torch.autograd.grad(fused.square().sum(), made.embeddings.tokens.weight)
    monkeypatch.setattr(switch, "_on", False)
    plain = made(want=WANT, **given)["decoder_hidden"]
    (expected,) = torch.autograd.grad(plain.square().sum(), made.embeddings.tokens.weight)
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-4)
    free = network(kind, dropout=0.3)
    assert not torch.allclose(free(want=WANT, **given)["decoder_hidden"], plain)


@pytest.mark.parametrize("state", ["decoder_layers", "decoder_attention", "crossing_attention"])
def test_a_pass_that_reads_any_state_of_the_decoder_costs_the_decoder(state: str) -> None:
    made, tokens = network("bart"), torch.zeros(2, 9, dtype=torch.long)
    given = {"tokens": tokens, "decoder.tokens": tokens[:, :6]}
    encoder, whole = (made.flops(given, want=frozenset({name})) for name in ("hidden", "decoder_hidden"))
    assert encoder < whole == made.flops(given, want=frozenset({state}))
