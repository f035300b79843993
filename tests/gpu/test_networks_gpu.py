"""Networks and objectives on a GPU: every kernel against float32 on the CPU, packed rows, dropout, compilation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.networks import Clock, Transformer
from cloze.objectives import Sample, token_labelling, token_prediction
from tests.making import network_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]
HIDDEN = frozenset({"hidden"})


def build(**changed: Any) -> Transformer:
    torch.manual_seed(0)
    arguments: dict[str, Any] = {"layers": 2, "width": 128, "heads": 2, "segments": 2, "positions.max_length": 256,
        "dropout": 0.0}
    return network_of("transformer", **{**arguments, **changed}, vocab_size=500, clock=Clock(3))


def on_gpu(network: Transformer) -> Transformer:
    network.clock.to("cuda")
    return network.cuda()


def ids(rows: int = 4, length: int = 128) -> Tensor:
    return torch.randint(0, 500, (rows, length), generator=torch.Generator().manual_seed(1))


def packed(rows: int = 4, length: int = 128) -> tuple[Tensor, Tensor]:
    """Blocks of 40, 60 and 20 tokens and 8 of padding, with positions that restart."""
    sizes = (40, 60, 20, 8)
    block = torch.cat([torch.full((n,), (i + 1) % 4) for i, n in enumerate(sizes)]).expand(rows, length)
    return block.contiguous(), torch.cat([torch.arange(n) for n in sizes]).expand(rows, length).contiguous()


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("order", ["open", "left_to_right"])
@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("low", [False, True])
def test_outputs_and_gradients_are_those_of_the_cpu(norm: str, order: str, packing: bool, low: bool) -> None:
    network, tokens = build(norm=norm), ids()
    fields: dict[str, Tensor] = {}
    if packing:
        fields["block"], fields["position_ids"] = packed()
    real = fields["block"] > 0 if packing else torch.ones_like(tokens, dtype=torch.bool)
    weights = torch.randn(*tokens.shape, 128) * real[..., None]
    exact = network(want=HIDDEN, tokens=tokens, order=order, **fields)["hidden"]
    (exact * weights).sum().backward()
    expected = {name: p.grad.clone() for name, p in network.named_parameters()}
    network.zero_grad()
    on_gpu(network)
    with torch.autocast("cuda", torch.bfloat16, enabled=low):
        moved = Batch(fields).to("cuda")
        hidden = network(want=HIDDEN, tokens=tokens.cuda(), order=order, **moved)["hidden"]
    (hidden.float() * weights.cuda()).sum().backward()
    bound = 0.05 if low else 2e-3
    assert (hidden.detach().float().cpu() - exact.detach())[real].abs().max() < (0.1 if low else 2e-3)
    for name, p in network.named_parameters():
        assert (p.grad.cpu() - expected[name]).norm() <= bound * expected[name].norm() + 1e-3, name


def test_packed_rows_equal_single_rows_in_bfloat16() -> None:
    network = on_gpu(build()).eval()
    block, position_ids = packed(1)
    tokens = ids(1).cuda()
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        whole = network(want=HIDDEN, tokens=tokens, **Batch({"block": block, "position_ids": position_ids}).to("cuda"))["hidden"]
        alone = network(want=HIDDEN, tokens=tokens[:, 40:100])["hidden"]
    assert (whole[:, 40:100] - alone).float().abs().max() < 0.05


def test_a_step_repeats_its_dropout_and_another_step_does_not() -> None:
    network = on_gpu(build(dropout=0.1))
    tokens = ids().cuda()
    outputs = []
    for step in (1, 1, 2):
        network.clock.set(step=step)
        with torch.autocast("cuda", torch.bfloat16):
            outputs.append(network(want=HIDDEN, tokens=tokens)["hidden"].detach())
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])


def test_hidden_dropout_follows_the_row_and_meets_its_rate() -> None:
    network = on_gpu(build(**{"dropout.hidden": 0.1, "dropout.attention": 0.0}))
    whole = network.embedding_dropout(torch.ones(4, 128, 128, device="cuda"))
    assert (whole == 0).float().mean().item() == pytest.approx(0.1, abs=0.01)
    network.clock.set(first_row=2)
    assert torch.equal(network.embedding_dropout(torch.ones(2, 128, 128, device="cuda")), whole[2:])


@pytest.mark.parametrize("packing", [False, True])
def test_compiled_layers_agree_with_eager_ones(packing: bool) -> None:
    network = on_gpu(build(dropout=0.0))
    fields = Batch(dict(zip(("block", "position_ids"), packed(), strict=True)) if packing else {}).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        eager = network(want=HIDDEN, tokens=ids().cuda(), **fields)["hidden"]
        for layer in network.layers:
            layer.compile()
        compiled = network(want=HIDDEN, tokens=ids().cuda(), **fields)["hidden"]
    assert (eager - compiled).float().abs().max() < 0.1
    compiled.float().sum().backward()


def test_compiled_dropout_meets_its_rate_and_trains() -> None:
    network = on_gpu(build(dropout=0.1))
    for layer in network.layers:
        layer.compile()
    losses = []
    for step in range(3):
        network.clock.set(step=step)
        with torch.autocast("cuda", torch.bfloat16):
            losses.append(network(want=HIDDEN, tokens=ids().cuda())["hidden"].float().square().mean())
        losses[-1].backward()
    assert all(loss.isfinite() for loss in losses)


def test_an_electra_step_runs_and_reaches_every_parameter() -> None:
    generator, discriminator = on_gpu(build()), on_gpu(build())
    discriminator.embeddings = generator.embeddings
    clock = generator.clock
    masked = token_prediction(
        transform="gelu", tie=True, width=128, vocab_size=500, table=generator.token_tables["tokens"]
    ).cuda()
    found = token_labelling(width=128, clock=clock).cuda()
    positions = torch.arange(0, 512, 7)
    tokens = ids()
    batch = Batch({"tokens": tokens, "targets/main": tokens.flatten()[positions], "positions/main": positions}).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        states = generator(want=HIDDEN, tokens=batch["tokens"])
        made = Sample(clock=clock)({"scores": masked.scores(states, batch)}, batch)
        second = Batch({**batch, **made})
        shown = discriminator(want=HIDDEN, tokens=second["tokens"])
        total = masked(states, batch).total / len(positions) + 50 * found(shown, second).total / tokens.numel()
    total.backward()
    for module in (generator, discriminator, masked, found):
        assert all(p.grad is not None for name, p in module.named_parameters() if "segments" not in name)
