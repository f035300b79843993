"""Optimizers against their papers' arithmetic."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from cloze.training.optimizers.adamax import Adamax
from cloze.training.optimizers.optimizers import AdamW, BertAdam, GptAdam, Lamb, OptimizerSpec, XlmAdam, clip, gradient_norm


def moved(spec: OptimizerSpec, *, steps: int = 5, rate: float = 1e-3, start: float = 0.0) -> list[float]:
    """How far a weight goes in each step under a constant unit gradient, in units of the rate."""
    weight = nn.Parameter(torch.full((2, 2), start, dtype=torch.float64))
    optimizer = spec.build([("weight", weight)])
    optimizer.param_groups[0]["lr"] = rate
    distances = []
    for _ in range(steps):
        before = weight[0, 0].item()
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        distances.append((before - weight[0, 0].item()) / rate)
    return distances


def test_optimizers_of_torch_are_as_they_were_without_the_compiler() -> None:
    code = """
import sys, torch
from cloze.uncompiled import eager
kinds = (torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, torch.optim.LBFGS)
ends = {}
for make in (eager, lambda kind: kind):
    for kind in kinds:
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        optimizer = make(kind)([weight], lr=0.1)
        def loss():
            optimizer.zero_grad()
            value = weight.square().sum()
            value.backward()
            return value
        for _ in range(3):
            optimizer.step(loss)
        ends.setdefault(kind.__name__, []).append(weight.tolist())
    print("torch._dynamo" in sys.modules)
print(all(first == second for first, second in ends.values()))
"""
    lines = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert lines == ["False", "True", "True"]


def test_bert_adam_has_no_bias_correction() -> None:
    assert moved(BertAdam(weight_decay=0.0)) == pytest.approx([3.162, 4.249, 4.950, 5.442, 5.797], abs=6e-4)


def test_bert_adam_decays_by_the_rate_times_the_weight() -> None:
    assert moved(BertAdam(weight_decay=0.5), steps=1, start=2.0) == pytest.approx([3.1622 + 0.5 * 2.0], abs=1e-3)


def test_tensor_clip_cuts_queries_keys_and_values_apart_as_the_code_of_bert_adam_does() -> None:
    """pytorch-pretrained-BERT calls torch's `clip_grad_norm_` with each tensor alone, and has a tensor for each of the three."""
    gradients = torch.tensor([[[3.0, 4.0]], [[0.3, 0.4]], [[-30.0, 0.0]]], dtype=torch.float64)

    def trained(spec: OptimizerSpec, tensors: dict[str, torch.Tensor], cut: float | None) -> torch.Tensor:
        parameters = {name: nn.Parameter(torch.zeros_like(gradient)) for name, gradient in tensors.items()}
        optimizer = spec.build(parameters.items())
        optimizer.param_groups[0]["lr"] = 1.0
        for scale in (1.0, 0.01):  # the second gradients are short, so that moments show how the first were cut
            for name, parameter in parameters.items():
                parameter.grad = tensors[name] * scale
                if cut is not None:
                    nn.utils.clip_grad_norm_(parameter, cut)
            optimizer.step()
        return torch.cat([parameter.detach() for parameter in parameters.values()])

    stack = trained(BertAdam(weight_decay=0.0, tensor_clip=1.0), {"attention.projections.weight": gradients.flatten(0, 1)}, None)
    three = trained(BertAdam(weight_decay=0.0), {name: gradients[i] for i, name in enumerate("qkv")}, 1.0)
    torch.testing.assert_close(stack, three, rtol=1e-12, atol=0)
    assert not torch.allclose(stack, trained(BertAdam(weight_decay=0.0), {"qkv": gradients.flatten(0, 1)}, 1.0))


def test_adamw_moves_by_the_rate_under_a_constant_gradient() -> None:
    assert moved(AdamW(weight_decay=0.0)) == pytest.approx([1.0] * 5, abs=1e-6)


def test_lamb_moves_a_matrix_by_the_rate_times_its_own_norm() -> None:
    assert moved(Lamb(weight_decay=0.0), steps=1, start=3.0) == pytest.approx([3.0], rel=1e-6)
    assert moved(Lamb(weight_decay=0.0), steps=1) == pytest.approx([0.1 / math.sqrt(0.001)], rel=1e-4)


def stepped(spec: OptimizerSpec, weight: list[float], gradients: list[list[float]], rate: float = 0.1) -> list[float]:
    """A 1 × n matrix after these gradients."""
    parameter = nn.Parameter(torch.tensor([weight], dtype=torch.float64))
    optimizer = spec.build([("weight", parameter)])
    optimizer.param_groups[0]["lr"] = rate
    for gradient in gradients:
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
    return parameter[0].tolist()


def test_adamax_moves_weights_and_biases_as_mt_dnns_code_does() -> None:
    # namisan/mt-dnn v0.1, module/bert_optim.py, executed with a decay of 0.01 for the weight and 0 for the bias, which it ignores
    gradients = [[0.5, -2.0], [0.1, 1.0], [-0.3, 0.25]]
    assert stepped(Adamax(), [3.0, 4.0], gradients) == pytest.approx([2.9661212749, 4.0043466967], abs=1e-10)
    assert stepped(Adamax(), [2.0], [gradient[:1] for gradient in gradients]) == pytest.approx([1.9691182759], abs=1e-10)


def test_lamb_measures_the_step_with_its_decay() -> None:
    weight, gradient, decay = [3.0, 4.0], [0.5, -2.0], 0.5
    change = [0.1 * g / (math.sqrt(0.001) * abs(g) + 1e-6) + decay * w for w, g in zip(weight, gradient, strict=True)]
    ratio = 5.0 / math.hypot(*change)
    expected = [w - 0.1 * ratio * c for w, c in zip(weight, change, strict=True)]
    assert stepped(Lamb(weight_decay=decay), weight, [gradient]) == pytest.approx(expected, rel=1e-12)


def test_lamb_with_bias_correction_divides_both_moments_by_what_they_lack() -> None:
    weight, means, squares = [3.0, 4.0], [0.0, 0.0], [0.0, 0.0]
    gradients = [[0.5, -2.0], [1.0, 1.0], [-0.25, 3.0]]
    expected = list(weight)
    for number, gradient in enumerate(gradients, 1):
        means = [0.9 * m + 0.1 * g for m, g in zip(means, gradient, strict=True)]
        squares = [0.999 * v + 0.001 * g * g for v, g in zip(squares, gradient, strict=True)]
        change = [
            m / (1 - 0.9**number) / (math.sqrt(v / (1 - 0.999**number)) + 1e-6) + 0.01 * w
            for m, v, w in zip(means, squares, expected, strict=True)
        ]
        ratio = math.hypot(*expected) / math.hypot(*change)
        expected = [w - 0.1 * ratio * c for w, c in zip(expected, change, strict=True)]
    assert stepped(Lamb(bias_correction=True), weight, gradients) == pytest.approx(expected, rel=1e-6)


def test_lamb_gives_vectors_a_ratio_only_when_told_and_bounds_it() -> None:
    def bias_after(spec: Lamb) -> float:
        bias = nn.Parameter(torch.full((2,), 30.0, dtype=torch.float64))
        optimizer = spec.build([("bias", bias)])
        optimizer.param_groups[0]["lr"] = 0.1
        bias.grad = torch.ones_like(bias)
        optimizer.step()
        return bias[0].item()

    step = 0.1 / (math.sqrt(0.001) + 1e-6)
    assert bias_after(Lamb()) == pytest.approx(30.0 - 0.1 * step)
    assert bias_after(Lamb(ratio="all")) == pytest.approx(30.0 - 0.1 * 30.0)
    assert bias_after(Lamb(ratio="all", largest_ratio=5.0)) == pytest.approx(30.0 - 0.1 * 5.0 * step)


@pytest.mark.parametrize("spec", [Lamb(weight_decay=0.1), Lamb(ratio="all", bias_correction=True, largest_ratio=10.0)])
@pytest.mark.parametrize(("name", "parts"), [("projections", 3), ("memory", 2), ("query_key", 2)])
def test_lamb_moves_stacked_projections_like_the_tensors_they_stack(spec: Lamb, name: str, parts: int) -> None:
    torch.manual_seed(1)
    stacked, apart = nn.ModuleDict({name: nn.Linear(4, 4 * parts)}), nn.ModuleList(nn.Linear(4, 4) for _ in range(parts))
    with torch.no_grad():
        for part, scale in zip(apart, (0.1, 1.0, 5.0), strict=False):
            part.weight.mul_(scale)
        stacked[name].weight.copy_(torch.cat([part.weight for part in apart]))
        stacked[name].bias.copy_(torch.cat([part.bias for part in apart]))
    optimizers = [spec.build(module.named_parameters()) for module in (stacked, apart)]
    for _ in range(2):
        gradient, offset = torch.randn(4 * parts, 4), torch.randn(4 * parts)
        stacked[name].weight.grad, stacked[name].bias.grad = gradient, offset
        for number, part in enumerate(apart):
            part.weight.grad, part.bias.grad = gradient[4 * number : 4 * number + 4], offset[4 * number : 4 * number + 4]
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.01
            optimizer.step()
    torch.testing.assert_close(stacked[name].weight, torch.cat([part.weight for part in apart]))
    torch.testing.assert_close(stacked[name].bias, torch.cat([part.bias for part in apart]))


def test_gpt_adam_decays_by_the_corrected_step() -> None:
    assert moved(GptAdam(weight_decay=0.0)) == pytest.approx([1.0] * 5, abs=1e-6)
    place, expected = 2.0, []
    for step in range(1, 6):
        expected.append(1.0 + 0.5 * place * math.sqrt(1 - 0.999**step) / (1 - 0.9**step))
        place -= 0.1 * expected[-1]
    assert expected[0] == pytest.approx(1.3162, abs=1e-4)
    assert moved(GptAdam(weight_decay=0.5), start=2.0, rate=0.1) == pytest.approx(expected, rel=1e-6)


def test_gpt_adam_goes_on_from_a_restored_state() -> None:
    whole, halves = (nn.Parameter(torch.full((2, 2), 2.0, dtype=torch.float64)) for _ in range(2))
    optimizers = [GptAdam(weight_decay=0.5).build([("weight", weight)]) for weight in (whole, halves, halves)]
    optimizers[2].state = optimizers[1].state
    for step in range(6):
        for weight, optimizer in ((whole, optimizers[0]), (halves, optimizers[1 if step < 3 else 2])):
            weight.grad = torch.ones_like(weight)
            optimizer.param_groups[0]["lr"] = 0.1
            optimizer.step()
    assert torch.equal(whole, halves)


def test_xlm_adam_decays_biases_and_norms_by_the_rate() -> None:
    bias = nn.Parameter(torch.full((2,), 2.0, dtype=torch.float64))
    optimizer = XlmAdam(weight_decay=0.5).build([("bias", bias)])
    optimizer.param_groups[0]["lr"] = 0.1
    bias.grad = torch.ones_like(bias)
    optimizer.step()
    assert bias[0].item() == pytest.approx(2.0 - 0.1 * (1.0 + 0.5 * 2.0))


DECAYING = [AdamW(weight_decay=0.1), BertAdam(weight_decay=0.1), GptAdam(weight_decay=0.1), Lamb(weight_decay=0.1)]


@pytest.mark.parametrize("spec", DECAYING)
def test_biases_and_norms_are_not_decayed_and_embeddings_are(spec: OptimizerSpec) -> None:
    module = nn.ModuleDict({"table": nn.Embedding(3, 2), "norm": nn.LayerNorm(2), "dense": nn.Linear(2, 2)})
    decayed = {
        id(parameter)
        for group in spec.build(module.named_parameters()).param_groups
        if group["weight_decay"]
        for parameter in group["params"]
    }
    assert {name for name, parameter in module.named_parameters() if id(parameter) in decayed} == {
        "table.weight",
        "dense.weight",
    }


def test_frozen_parameters_stay_out() -> None:
    frozen = nn.Parameter(torch.zeros(2, 2), requires_grad=False)
    groups = AdamW().build([("a", frozen), ("b", nn.Parameter(torch.zeros(2, 2)))]).param_groups
    assert sum(len(group["params"]) for group in groups) == 1


def test_clipping_scales_all_gradients_together() -> None:
    one, two = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    one.grad, two.grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    norm = gradient_norm([one, two])
    assert norm.item() == pytest.approx(5.0)
    clip([one, two], norm, 10.0)
    assert one.grad[0].item() == 3.0
    clip([one, two], norm, 1.0)
    assert [one.grad[0].item(), two.grad[0].item()] == pytest.approx([0.6, 0.8], rel=1e-5)
