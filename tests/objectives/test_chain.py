"""Conditional random fields against the enumeration of all sequences."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.networks import Clock
from cloze.objectives import crf_labelling, sequence_labelling
from cloze.objectives.labels.chain import Chains, Moves, best_path, chains_of, log_total, marginals, path_score
from cloze.schemes import breaks

WIDTH = 5


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("labels", [1, 2, 3, 4])
def test_the_sum_the_best_sequence_and_the_marginals_are_those_of_all_sequences(labels: int) -> None:
    sizes = torch.tensor([6, 1, 3, 5, 2, 4])
    scores = drawn(len(sizes), 6, labels, seed=labels) * 2
    moves = Moves(drawn(labels, seed=7), drawn(labels, seed=8), drawn(labels, labels, seed=9))
    totals, paths, shares = log_total(scores, sizes, moves), best_path(scores, sizes, moves), marginals(scores, sizes, moves)
    for row, size in enumerate(sizes.tolist()):
        every = torch.tensor(list(product(range(labels), repeat=size)))
        values = torch.stack([
            moves.start[own[0]] + moves.end[own[-1]] + sum(scores[row, place, label] for place, label in enumerate(own))
            + sum(moves.between[a, b] for a, b in zip(own, own[1:], strict=False))
            for own in every.tolist()
        ])  # fmt: skip
        torch.testing.assert_close(totals[row], values.logsumexp(0))
        assert paths[row, :size].tolist() == every[values.argmax()].tolist() and not paths[row, size:].any()
        chance = values.softmax(0)
        exact = torch.stack([torch.stack([chance[every[:, t] == k].sum() for k in range(labels)]) for t in range(size)])
        torch.testing.assert_close(shares[row, :size], exact)
        assert not shares[row, size:].any()
        given = path_score(scores[row : row + 1].expand(len(every), -1, -1), sizes[row].expand(len(every)), moves,
                           torch.nn.functional.pad(every, (0, 6 - size)))  # fmt: skip
        torch.testing.assert_close(given, values)


def test_rows_of_an_owner_are_a_chain_wherever_they_stand() -> None:
    chains = chains_of(torch.tensor([4, 1, 4, 4, 1]))
    assert isinstance(chains, Chains) and chains.sizes.tolist() == [2, 3]
    assert chains.laid(torch.tensor([10, 20, 30, 40, 50])).tolist() == [[20, 50, 0], [10, 30, 40]]


def made(classes: int = 3, **changed: Any) -> Any:
    torch.manual_seed(0)
    objective = crf_labelling(classes=classes, width=WIDTH, clock=Clock(), **changed).double()
    for number, part in enumerate((objective.start, objective.end, objective.moves)):
        part.data = drawn(*part.shape, seed=20 + number)
    return objective


def batch_of(positions: list[int], labels: list[int], width: int, rows: int) -> Batch:
    return Batch({
        "tokens": torch.zeros(rows, width, dtype=torch.long), "positions/label": torch.tensor(positions, dtype=torch.long),
        "targets/label": torch.tensor(labels, dtype=torch.long),
    })  # fmt: skip


def test_without_moves_it_is_the_softmax_of_each_word() -> None:
    torch.manual_seed(0)
    plain = sequence_labelling(classes=3, width=WIDTH, vocab_size=9, clock=Clock()).double()
    chained = crf_labelling(classes=3, width=WIDTH, clock=Clock()).double()
    chained.load_state_dict(plain.state_dict(), strict=False)
    states, batch = {"hidden": drawn(2, 6, WIDTH)}, batch_of([1, 2, 4, 7], [0, 2, 1, 1], 6, 2)
    torch.testing.assert_close(chained(states, batch).total, plain(states, batch).total)
    sizes = torch.tensor([3, 1])
    one, two = (each.decided(each.scores(states, batch).detach(), sizes, ("A", "B", "C")) for each in (plain, chained))
    assert one[0].tolist() == two[0].tolist()
    torch.testing.assert_close(one[1], two[1])


def test_pieces_padding_and_answers_of_no_weight_are_in_no_chain() -> None:
    """The words of a text are neighbours, however many tokens stand between their positions."""
    objective = made()
    words = drawn(3, WIDTH, seed=1)
    spread, dense = drawn(2, 9, WIDTH, seed=2), drawn(2, 3, WIDTH, seed=3)
    spread[0, [1, 4, 8]], dense[0, :3] = words, words
    far, near = batch_of([1, 4, 8], [0, 2, 1], 9, 2), batch_of([0, 1, 2], [0, 2, 1], 3, 2)
    loss = objective({"hidden": spread}, far).total
    torch.testing.assert_close(loss, objective({"hidden": dense}, near).total)
    padded = Batch({
        **batch_of([1, 4, 8, 0, 0], [0, 2, 1, 0, 0], 9, 2), "weights/label": torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    })
    torch.testing.assert_close(objective({"hidden": spread}, padded).total, loss)
    assert float(objective.count(padded)) == 3


def test_the_loss_of_rows_is_the_sum_of_their_losses_and_rows_do_not_touch() -> None:
    objective = made()
    states = drawn(2, 4, WIDTH)
    both = objective({"hidden": states}, batch_of([1, 2, 3, 4, 6], [0, 2, 1, 1, 0], 4, 2)).total
    first = objective({"hidden": states[:1]}, batch_of([1, 2, 3], [0, 2, 1], 4, 1)).total
    second = objective({"hidden": states[1:]}, batch_of([0, 2], [1, 0], 4, 1)).total
    torch.testing.assert_close(both, first + second)


def test_zero_answers_give_a_zero_connected_to_every_parameter() -> None:
    objective = made()
    loss = objective({"hidden": drawn(1, 4, WIDTH)}, batch_of([], [], 4, 1))
    loss.total.backward()
    assert loss.total.item() == 0
    assert all(part.grad is not None and not part.grad.any() for part in objective.parameters())


def test_gradients_agree_with_finite_differences() -> None:
    objective = made()
    batch = batch_of([1, 2, 3, 4, 6], [0, 2, 1, 1, 0], 4, 2)
    names, values = zip(*((name, part.detach().clone().requires_grad_()) for name, part in objective.named_parameters()),
                        strict=True)  # fmt: skip

    def run(states: Tensor, *given: Tensor) -> Any:
        return torch.func.functional_call(objective, dict(zip(names, given, strict=True)), ({"hidden": states}, batch)).total

    assert torch.autograd.gradcheck(run, (drawn(2, 4, WIDTH).requires_grad_(), *values))


@pytest.mark.parametrize(("scheme", "names"), [
    ("bio", ("B-X", "B-Y", "I-X", "I-Y", "O")), ("bioes", ("B-X", "E-X", "I-X", "O", "S-X", "S-Y")),
])  # fmt: skip
def test_a_scheme_keeps_what_breaks_it_from_being_answered(scheme: str, names: tuple[str, ...]) -> None:
    objective, free = (made(len(names), scheme=own) for own in (scheme, "none"))
    sizes = torch.tensor([4, 1, 3])
    broken = 0
    for seed in range(20):
        scores = drawn(8, len(names), seed=seed) * 2
        for each in (objective, free):
            which, shares = each.decided(scores, sizes, names)
            texts = [[names[n] for n in own] for own in torch.split(which, sizes.tolist())]
            faults = sum(len(breaks(text, closed=scheme == "bioes")) for text in texts)
            assert ((shares > 0) & (shares <= 1 + 1e-12)).all()
            if each is objective:
                assert faults == 0
            broken += faults
    assert broken > 20  # without the scheme they are frequent
