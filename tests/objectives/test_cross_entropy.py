"""The summed loss over many scores: compiled code and torch's passes agree."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cloze.kernels import KERNELS
from cloze.objectives import cross_entropy


def both(
    monkeypatch: pytest.MonkeyPatch, scores: Tensor, targets: Tensor, weights: Tensor, smoothing: float,
    z_loss: float = 0.0,
) -> list[list[Tensor]]:
    """Loss, right answers and gradient, by torch's passes in float64 and by compiled code, in place and apart."""
    pytest.importorskip("numba")
    found = []
    for many, given, apart in ((1 << 60, scores.double(), True), (1, scores.clone(), False), (1, scores, True)):
        monkeypatch.setitem(KERNELS, "cross_entropy", KERNELS["cross_entropy"]._replace(least=many))
        total, right = torch.zeros((), dtype=torch.float64), torch.zeros(())
        into = torch.empty_like(given) if apart else given
        shares = weights.double() if given.dtype == torch.float64 else weights
        cross_entropy._add_losses(given, targets, shares, total, right, into, smoothing, z_loss)
        found.append([total, right.double(), into.double()])
    return found


@pytest.mark.parametrize(("smoothing", "z_loss"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.01), (0.1, 0.01)])
@pytest.mark.parametrize("classes", [3, 16, 101, 8001])
@pytest.mark.parametrize("share", [1 << 60, 200])
def test_compiled_losses_are_the_losses(
    classes: int, smoothing: float, z_loss: float, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(classes)
    monkeypatch.setattr(cross_entropy, "_A_THREAD", share)  # on one thread, or on as many as torch has
    scores = (3 * torch.randn(13, classes)).bfloat16()
    targets, weights = torch.randint(0, classes, (13,)), torch.tensor([0.0, 1.0, 0.5] * 4 + [2.0])
    targets[:2] = classes - 1
    scores[3:6].scatter_(1, targets[3:6, None], 40.0)
    scores[5, (targets[5] + 1) % classes] = 40.0  # a tie is not right
    (total, right, gradient), *compiled = both(monkeypatch, scores, targets, weights, smoothing, z_loss)
    for loss, hits, made in compiled:
        torch.testing.assert_close(loss, total, rtol=1e-6, atol=1e-6)
        assert hits == right
        torch.testing.assert_close(made, gradient, rtol=KERNELS["cross_entropy"].tolerance, atol=1e-6)


def test_compiled_losses_add_up_in_the_same_order_whatever_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, targets = torch.randn(64, 300).bfloat16(), torch.arange(64)
    found = set()
    for share in (1 << 60, 1):
        monkeypatch.setattr(cross_entropy, "_A_THREAD", share)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        total, right = both(monkeypatch, scores, targets, torch.ones(64), 0.0)[1][:2]
        found.add((total.item(), right.item()))
    assert len(found) == 1


def test_scores_of_minus_infinity_have_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.zeros(2, 40).bfloat16()
    scores[:, 10:] = float("-inf")
    for total, _, gradient in both(monkeypatch, scores, torch.tensor([0, 9]), torch.ones(2), 0.0):
        assert total.item() == pytest.approx(2 * torch.tensor(10.0).log().item(), abs=1e-6)
        assert (gradient[:, 10:] == 0).all() and gradient[0, 0].item() == pytest.approx(-0.9, abs=0.004)


def test_scores_that_do_not_stand_one_behind_the_other_are_read_right(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setitem(KERNELS, "cross_entropy", KERNELS["cross_entropy"]._replace(least=1))
    torch.manual_seed(0)
    whole, targets = torch.randn(40, 9).bfloat16(), torch.randint(0, 40, (9,))
    total, _ = cross_entropy.cross_entropy_sum(whole.t(), targets, None)
    wanted, _ = cross_entropy.cross_entropy_sum(whole.t().contiguous(), targets, None)
    torch.testing.assert_close(total, wanted)


def test_a_score_that_is_not_a_number_makes_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.zeros(2, 40).bfloat16()
    scores[1, 33] = float("nan")
    for total, _, _ in both(monkeypatch, scores, torch.tensor([0, 9]), torch.ones(2), 0.0):
        assert total.isnan()


def test_z_loss_is_the_squared_log_sum_of_dense_scores_times_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    torch.manual_seed(0)
    given, targets, weights = torch.randn(9, 37).bfloat16() + 2, torch.randint(0, 37, (9,)), torch.rand(9)
    dense = given.double().requires_grad_()
    answers = dense.logsumexp(1) - dense.gather(1, targets[:, None])[:, 0] + 0.3 * dense.logsumexp(1) ** 2
    wanted = (answers * weights).sum()
    (gradient,) = torch.autograd.grad(wanted, dense)
    ways = [(torch.float64, 1 << 60, True), (torch.float64, 1 << 60, False), (torch.bfloat16, 1 << 60, False)]
    for dtype, many, other_device in (*ways, (torch.bfloat16, 1, False)):
        monkeypatch.setitem(KERNELS, "cross_entropy", KERNELS["cross_entropy"]._replace(least=many))
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda other=other_device: other)
        scores = given.clone().to(dtype).requires_grad_()
        loss, _ = cross_entropy.cross_entropy_sum(scores, targets, weights, z_loss=0.3)
        loss.backward()
        torch.testing.assert_close(loss.double(), wanted, rtol=1e-6, atol=0)
        assert scores.grad is not None
        torch.testing.assert_close(scores.grad.double(), gradient, rtol=2**-7 if dtype == torch.bfloat16 else 1e-5, atol=1e-6)


def test_answers_weigh_alike_on_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    scores, targets = torch.randn(4, 7, dtype=torch.float64), torch.tensor([1, 2, 3, 4])
    scores[torch.arange(4), torch.tensor([1, 2, 3, 0])] = 9.0  # the last answer is wrong
    weights = torch.tensor([0.25, 0.0, 2.0, 1.0], dtype=torch.float64)
    wanted = (weights * (scores.logsumexp(1) - scores.gather(1, targets[:, None])[:, 0])).sum()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # what every device but a CPU does
    loss, right = cross_entropy.cross_entropy_sum(scores, targets, weights)
    torch.testing.assert_close(loss, wanted)
    assert float(right) == 2.25
